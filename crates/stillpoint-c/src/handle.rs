//! Handles: addresses that are never unmapped. Each has a mark, which shows its kind.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use stillpoint_sys::sync::Lasting;
use stillpoint_sys::tsan;

use crate::border::Refusal;
use crate::copies;
use crate::reason::Word;
use crate::reserve;

/// How many handles a chunk has. Each has a bit in [`Chunk::claimed`].
const CHUNK: usize = 64;

/// The part of a handle that inline code of the header reads. It belongs to the binary interface, whose version is `STILL_LAYOUT`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct still_head_ {
    record: AtomicPtr<u8>,
    token: AtomicPtr<u64>,
    /// [`STILL_FULL_FENCE_`], and the tag of the copy of the library.
    flags: AtomicU32,
    /// Pins beyond the first, by inline code and by the library.
    pub(crate) nested: AtomicU32,
    mark: AtomicU32,
    in_use: AtomicU32,
}

impl still_head_ {
    /// Makes the handle one that was freed, when only the caller uses it.
    fn clear(&self) {
        // Relaxed, all: no other thread uses the handle. In `free`, a release publishes the fields to the next claim.
        self.mark.store(FREE, Ordering::Relaxed);
        self.record.store(ptr::null_mut(), Ordering::Relaxed);
        self.token.store(ptr::null_mut(), Ordering::Relaxed);
    }

    /// Begins a call that calls the program back. Until the call ends, [`enter`](Found::enter) is refused.
    pub(crate) fn hold(&'static self) -> Within<'static> {
        // Relaxed, both: as in `enter`.
        self.in_use.store(self.in_use.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Within(&self.in_use)
    }
}

pub const STILL_FULL_FENCE_: u32 = 1;
/// The mark of a free handle.
const FREE: u32 = 0;
/// The mark of a handle that is claimed and not complete.
const CLAIMED: u32 = 1;

#[repr(C)]
struct Handle {
    head: still_head_,
    /// The value, from `Box::into_raw`.
    payload: AtomicPtr<()>,
    /// The chunk that has the handle's bit. Null until the handle is first used.
    chunk: AtomicPtr<Chunk>,
}

struct Chunk {
    /// A bit for each handle that is claimed.
    claimed: AtomicU64,
    next: Lasting<Chunk>,
    handles: [Handle; CHUNK],
}

/// The first chunk; each points to the next one. Chunks are leaked.
static FIRST: Lasting<Chunk> = Lasting::new();

/// The value behind handles of one kind.
pub(crate) trait Kind {
    /// The type in C.
    type C;
    const MARK: u32;
    /// The kind's name for messages, with an article.
    const NAME: &'static str;
}

/// Makes a type the value behind handles: `kind!(TYPE: TYPE IN C, MARK, NAME)`. See [`Kind`].
macro_rules! kind {
    ($value:ty: $c:ty, $mark:expr, $name:literal) => {
        impl $crate::handle::Kind for $value {
            type C = $c;
            const MARK: u32 = $mark;
            const NAME: &'static str = $name;
        }
    };
}
pub(crate) use kind;

/// The parts of the head that inline code uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts {
    pub(crate) record: *mut u8,
    pub(crate) token: *mut u64,
    pub(crate) flags: u32,
}

impl Default for Parts {
    fn default() -> Self {
        Self { record: ptr::null_mut(), token: ptr::null_mut(), flags: 0 }
    }
}

/// Makes a handle of the value that `build` makes. Lock-free; allocates a chunk when all handles are in use. Reads a word for each chunk
/// of 64 handles.
pub(crate) fn make<K: Kind>(
    build: impl FnOnce() -> Result<(K, Parts), Refusal>,
) -> Result<*mut K::C, Refusal> {
    let (value, parts) = reserve::kept(|| {
        let mut place = Box::new_uninit();
        let (value, parts) = build()?;
        place.write(value);
        // SAFETY: it was written.
        Ok((unsafe { place.assume_init() }, parts))
    })?;
    let handle = claim();
    let head = &handle.head;
    // Relaxed, all: the release below publishes the fields.
    head.record.store(parts.record, Ordering::Relaxed);
    head.token.store(parts.token, Ordering::Relaxed);
    head.flags.store(parts.flags | copies::tag(), Ordering::Relaxed);
    head.nested.store(0, Ordering::Relaxed);
    head.in_use.store(0, Ordering::Relaxed);
    handle.payload.store(Box::into_raw(value).cast(), Ordering::Relaxed);
    // Release: pairs with the acquire load in `find`.
    head.mark.store(K::MARK, Ordering::Release);
    Ok(ptr::from_ref(handle).cast_mut().cast())
}

fn claim() -> &'static Handle {
    let mut link = &FIRST;
    loop {
        let chunk = link.get_or_make(new_chunk);
        // Acquire: pairs with the release in `give_back`.
        let answer = chunk.claimed.fetch_update(Ordering::Acquire, Ordering::Relaxed, |claimed| {
            (claimed != u64::MAX).then(|| claimed | (claimed + 1))
        });
        if let Ok(before) = answer {
            let handle = &chunk.handles[before.trailing_ones() as usize];
            tsan::acquire(handle);
            // Relaxed, both: the mark's release publishes the chunk.
            handle.head.mark.store(CLAIMED, Ordering::Relaxed);
            handle.chunk.store(ptr::from_ref(chunk).cast_mut(), Ordering::Relaxed);
            return handle;
        }
        link = &chunk.next;
    }
}

fn new_chunk() -> Chunk {
    let handle = || Handle {
        head: still_head_::default(),
        payload: AtomicPtr::new(ptr::null_mut()),
        chunk: AtomicPtr::new(ptr::null_mut()),
    };
    Chunk { claimed: AtomicU64::new(0), next: Lasting::new(), handles: std::array::from_fn(|_| handle()) }
}

/// In the child of a `fork`: takes the mark from each handle of one kind that `is_lost` chooses, as if it had been freed. Its value stays
/// where it is. Reads a word for each handle.
///
/// # Safety
/// The calling thread is the only one of the process.
pub(crate) unsafe fn lose<K: Kind>(is_lost: impl Fn(&K) -> bool) {
    let mut link = &FIRST;
    while let Some(chunk) = link.get() {
        for handle in &chunk.handles {
            // SAFETY: no handle is freed meanwhile.
            let found = unsafe { peek::<K>(ptr::from_ref(handle).cast()) };
            // SAFETY: as above.
            if found.is_some_and(|found| is_lost(unsafe { found.value() })) {
                handle.head.clear();
            }
        }
        link = &chunk.next;
    }
}

/// The mark of a handle of any kind; 0 for null.
///
/// # Safety
/// `pointer` is null, or has been a handle of some kind.
pub(crate) unsafe fn mark_of(pointer: *const c_void) -> u32 {
    let head = pointer.cast::<still_head_>();
    if head.is_null() || !head.is_aligned() {
        return FREE;
    }
    // SAFETY: handles are never unmapped. Acquire: pairs with the release in `make`.
    unsafe { (*head).mark.load(Ordering::Acquire) }
}

/// A handle from C code, which had the right mark when it was looked up.
pub(crate) struct Found<K: Kind> {
    handle: &'static Handle,
    kind: PhantomData<K>,
}

/// Looks up a handle.
///
/// # Safety
/// `pointer` is null, or has been a handle of some kind.
#[inline]
pub(crate) unsafe fn find<K: Kind>(pointer: *const K::C) -> Result<Found<K>, Refusal> {
    // SAFETY: the pointer is null, or has been a handle, by the caller's promise.
    unsafe { peek(pointer).ok_or_else(|| refusal::<K>(pointer)) }
}

/// As [`find`], without a reason for the refusal.
///
/// # Safety
/// As for [`find`].
#[inline]
pub(crate) unsafe fn peek<K: Kind>(pointer: *const K::C) -> Option<Found<K>> {
    let pointer = pointer.cast::<Handle>();
    if pointer.is_null() || !pointer.is_aligned() {
        return None;
    }
    // SAFETY: handles are never unmapped.
    let handle = unsafe { &*pointer };
    // Acquire: pairs with the release in `make`.
    let is_one = handle.head.mark.load(Ordering::Acquire) == K::MARK && is_own(&handle.head);
    is_one.then_some(Found { handle, kind: PhantomData })
}

/// As [`peek`], for two handles at once, which takes fewer branches.
///
/// # Safety
/// As for [`find`], for both.
#[inline(always)]
pub(crate) unsafe fn peek_both<A: Kind, B: Kind>(
    first: *const A::C,
    second: *const B::C,
) -> Option<(Found<A>, Found<B>)> {
    let (first, second) = (first.cast::<Handle>(), second.cast::<Handle>());
    let either = ptr::without_provenance::<Handle>(first.addr() | second.addr());
    if first.is_null() || second.is_null() || !either.is_aligned() {
        return None;
    }
    // SAFETY: handles are never unmapped.
    let (first, second) = unsafe { (&*first, &*second) };
    // Acquire, both: pairs with the release in `make`.
    if first.head.mark.load(Ordering::Acquire) != A::MARK
        || second.head.mark.load(Ordering::Acquire) != B::MARK
    {
        return None;
    }
    if foreignness(&first.head) | foreignness(&second.head) > STILL_FULL_FENCE_ {
        return None;
    }
    Some((Found { handle: first, kind: PhantomData }, Found { handle: second, kind: PhantomData }))
}

/// At most [`STILL_FULL_FENCE_`], the lowest bit, if this copy of the library has made the handle.
#[inline(always)]
fn foreignness(head: &still_head_) -> u32 {
    // Relaxed: the mark was loaded before.
    head.flags.load(Ordering::Relaxed) ^ copies::tag()
}

/// Whether this copy of the library has made the handle.
#[inline]
fn is_own(head: &still_head_) -> bool {
    foreignness(head) <= STILL_FULL_FENCE_
}

/// The reason why a handle is refused.
///
/// # Safety
/// As for [`find`].
#[cold]
unsafe fn refusal<K: Kind>(pointer: *const K::C) -> Refusal {
    if pointer.is_null() {
        return Refusal::invalid(c"NULL was passed for {}").with(&K::NAME);
    }
    if !pointer.cast::<Handle>().is_aligned() {
        return Refusal::invalid(c"{} is not {}").with(Word::Address(pointer.addr())).with(&K::NAME);
    }
    // SAFETY: the pointer is neither null nor misaligned, so it has been a handle, by the caller's promise.
    match unsafe { mark_of(pointer.cast()) } {
        FREE | CLAIMED => Refusal::new(libc::EBADF, c"{} was used after it was freed").with(&K::NAME),
        // SAFETY: as above.
        _ if !unsafe { is_own(&*pointer.cast()) } => {
            let text = c"a handle of another copy of the library in the process was passed for {}: each copy has its own";
            Refusal::new(libc::EBADF, text).with(&K::NAME)
        }
        _ => Refusal::invalid(c"a handle of another kind was passed for {}").with(&K::NAME),
    }
}

impl<K: Kind> Found<K> {
    /// The value.
    ///
    /// # Safety
    /// The handle is not freed while the reference lives: see THREADS in the header.
    pub(crate) unsafe fn value<'v>(&self) -> &'v K {
        // SAFETY: the mark shows that the value is a `K`, and the caller promises that the handle is not freed.
        unsafe { &*self.handle.payload.load(Ordering::Relaxed).cast::<K>() }
    }

    pub(crate) fn head(&self) -> &'static still_head_ {
        &self.handle.head
    }

    /// Whether no call further up the stack is using the handle, which one thread uses at a time.
    pub(crate) fn is_idle(&self) -> bool {
        // Relaxed: as in `enter`.
        self.handle.head.in_use.load(Ordering::Relaxed) == 0
    }

    /// Begins a call on a handle that one thread uses at a time. It is refused while another call is using the handle.
    pub(crate) fn enter(&self) -> Result<Within<'_>, Refusal> {
        let in_use = &self.handle.head.in_use;
        // Relaxed, both: the handle is for one thread at a time.
        if !self.is_idle() {
            let text = c"{} is in use by a call further up the stack";
            return Err(Refusal::new(libc::EBUSY, text).with(&K::NAME));
        }
        in_use.store(1, Ordering::Relaxed);
        Ok(Within(in_use))
    }

    /// Frees the handle, and returns the value.
    ///
    /// # Safety
    /// No other call uses the handle.
    pub(crate) unsafe fn free(self) -> K {
        let Handle { head, payload, chunk } = self.handle;
        head.clear();
        // Relaxed: no other thread uses the handle.
        let value = payload.swap(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: `claim` has set the field, and chunks are leaked.
        let chunk = unsafe { &*chunk.load(Ordering::Relaxed) };
        let place = (ptr::from_ref(self.handle).addr() - chunk.handles.as_ptr().addr()) / size_of::<Handle>();
        // SAFETY: `value` came from a box of a `K`, and the swap took it out.
        let value = unsafe { *Box::from_raw(value.cast::<K>()) };
        tsan::release(self.handle);
        // Release: pairs with the acquire in `claim`.
        chunk.claimed.fetch_and(!(1 << place), Ordering::Release);
        value
    }
}

/// A call that is using a handle.
pub(crate) struct Within<'h>(&'h AtomicU32);

impl Drop for Within<'_> {
    fn drop(&mut self) {
        // Relaxed: see `Found::enter`.
        self.0.store(self.0.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }
}

/// A struct of options or answers, which begins with its size. The program's version may be shorter or longer.
///
/// # Safety
/// All zeros are a valid value. So is every prefix of a valid value of at least `FIRST` bytes if it is filled up with zeros.
pub(crate) unsafe trait Versioned: Copy {
    const NAME: &'static str;
    /// The size of its first version.
    const FIRST: usize;
}

/// Implements [`Versioned`] for structs of the header: `versioned!(unsafe NAME: FIRST, ...)`. The caller says why what the trait requires is
/// true.
macro_rules! versioned {
    (unsafe $($name:ident: $first:literal),+) => {$(
        // SAFETY: the caller's, who says `unsafe`.
        unsafe impl $crate::handle::Versioned for $name {
            const NAME: &'static str = concat!("struct ", stringify!($name));
            const FIRST: usize = $first;
        }
    )+};
}
pub(crate) use versioned;

/// Larger than any of these structs will ever be. A program that passes this size or a larger one has not set the field.
const UNSET: usize = 4096;

/// The size that a program has set.
///
/// # Safety
/// `place` is null, or begins with a word.
unsafe fn size_of_place<T: Versioned>(place: *const T) -> Result<usize, Refusal> {
    const { assert!(T::FIRST <= size_of::<T>()) };
    if place.is_null() {
        return Err(Refusal::invalid(c"NULL was passed for {}").with(&T::NAME));
    }
    // SAFETY: the caller promises that `place` begins with a word.
    match unsafe { *place.cast::<usize>() } {
        size if (T::FIRST..UNSET).contains(&size) => Ok(size),
        size => Err(Refusal::invalid(c"{} has size {}: set `size` to its sizeof").with(&T::NAME).with(size)),
    }
}

/// The options at `place`. If the program's struct is shorter, the missing options are 0. If it is longer, the additional bytes must be 0.
///
/// # Safety
/// `place` is null, or points to memory whose first word is its size in bytes.
pub(crate) unsafe fn sized<T: Versioned>(place: *const T) -> Result<T, Refusal> {
    // SAFETY: the place is null, or its first word is its size, by the caller's promise.
    let size = unsafe { size_of_place(place) }?;
    let own = size_of::<T>();
    // SAFETY: `size` bytes can be read there, by the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(place.cast::<u8>(), size) };
    if bytes.iter().skip(own).any(|byte| *byte != 0) {
        let text =
            c"{} has options that this version of the library does not know: bytes after the first {} are not 0";
        return Err(Refusal::invalid(text).with(&T::NAME).with(own));
    }
    let mut options = MaybeUninit::<T>::zeroed();
    // SAFETY: both sides have the bytes that are copied; a prefix followed by zeros is a valid value.
    unsafe {
        ptr::copy_nonoverlapping(bytes.as_ptr(), options.as_mut_ptr().cast(), size.min(own));
        Ok(options.assume_init())
    }
}

/// Refuses a field that is for later versions, and is not 0.
pub(crate) fn is_unused<T: Versioned>(reserved: u32) -> Result<(), Refusal> {
    match reserved {
        0 => Ok(()),
        _ => {
            let text = c"{}: `reserved` is {}: set it to 0";
            Err(Refusal::invalid(text).with(&T::NAME).with(reserved))
        }
    }
}

/// The place where a program wants an answer.
pub(crate) struct Place<T> {
    start: *mut T,
    size: usize,
}

impl<T: Versioned> Place<T> {
    /// # Safety
    /// As for [`sized`], and the bytes may be written while this value is used. Only the size has to be initialised.
    pub(crate) unsafe fn of(start: *mut T) -> Result<Self, Refusal> {
        // SAFETY: the place is null, or its first word is its size, by the caller's promise.
        Ok(Self { start, size: unsafe { size_of_place(start) }? })
    }

    /// Writes as much of the answer as fits, except the size. If the program's struct is longer, the additional bytes become 0.
    pub(crate) fn write(self, answer: T) {
        let (from, to) = ((&raw const answer).cast::<u8>(), self.start.cast::<u8>());
        let (head, own) = (size_of::<usize>(), size_of::<T>());
        // SAFETY: both sides have the bytes that are copied, by the promise to `of`.
        unsafe {
            ptr::copy_nonoverlapping(from.add(head), to.add(head), self.size.min(own) - head);
            ptr::write_bytes(to.add(self.size.min(own)), 0, self.size.saturating_sub(own));
        }
    }
}

const _: () = {
    assert!(std::mem::offset_of!(still_head_, record) == 0);
    assert!(std::mem::offset_of!(still_head_, token) == 8);
    assert!(std::mem::offset_of!(still_head_, flags) == 16);
    assert!(std::mem::offset_of!(still_head_, nested) == 20);
    assert!(std::mem::offset_of!(still_head_, mark) == 24);
    assert!(std::mem::offset_of!(still_head_, in_use) == 28);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Grown {
        size: usize,
        first: u64,
        second: u64,
    }

    // SAFETY: all fields are numbers.
    versioned!(unsafe Grown: 16);

    fn read(words: &[usize]) -> Result<(u64, u64), i32> {
        // SAFETY: in these tests the first word is at most the size of the array, or it is refused.
        let answer = unsafe { sized(words.as_ptr().cast::<Grown>()) };
        answer.map(|grown| (grown.first, grown.second)).map_err(|refusal| refusal.errno)
    }

    #[test]
    fn options_of_other_versions_are_read_as_far_as_they_go() {
        assert_eq!(read(&[16, 1]), Ok((1, 0)));
        assert_eq!(read(&[24, 1, 2]), Ok((1, 2)));
        assert_eq!(read(&[40, 1, 2, 0, 0]), Ok((1, 2)));
        assert_eq!(read(&[40, 1, 2, 0, 1]), Err(libc::EINVAL));
        for size in [0, 8, 15, UNSET, usize::MAX] {
            assert_eq!(read(&[size, 1, 2]), Err(libc::EINVAL));
        }
    }

    #[test]
    fn answers_fill_the_room_that_there_is() {
        let write = |mut words: [usize; 5]| {
            // SAFETY: the first word is at most the size of the array, or it is refused.
            let place = unsafe { Place::of(words.as_mut_ptr().cast::<Grown>()) };
            place.map_err(|refusal| refusal.errno)?.write(Grown { size: 24, first: 1, second: 2 });
            Ok::<_, i32>(words)
        };
        assert_eq!(write([16, 9, 9, 9, 9]), Ok([16, 1, 9, 9, 9]));
        assert_eq!(write([24, 9, 9, 9, 9]), Ok([24, 1, 2, 9, 9]));
        assert_eq!(write([32, 9, 9, 9, 9]), Ok([32, 1, 2, 0, 9]));
        assert_eq!(write([8, 9, 9, 9, 9]), Err(libc::EINVAL));
    }
}
