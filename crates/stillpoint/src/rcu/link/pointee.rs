use std::alloc::{alloc, dealloc, handle_alloc_error, Layout};
use std::ptr::NonNull;

/// What a link can point to: how an object is made, found from one word, and freed.
///
/// Implemented for every sized type, whose objects are in boxes; and for slices, which store their length before the elements,
/// so that a link is one word.
///
/// ```
/// use stillpoint::rcu::link::Owned;
///
/// let number = Owned::new(7);
/// let numbers = Owned::<[u32]>::init(vec![1, 2, 3]);
/// assert_eq!((*number, numbers.len()), (7, 3));
/// ```
///
/// A link to a slice that a writer replaces:
///
/// ```
/// use std::sync::atomic::Ordering::AcqRel;
/// use stillpoint::rcu::link::{Atomic, Owned, Unprotected};
/// use stillpoint::rcu::Domain;
///
/// let domain = Domain::new();
/// let (reader, mut reclaimer) = (domain.reader(), domain.reclaimer());
/// let route = Atomic::from(Owned::<[u16]>::init(vec![3, 1, 4]));
/// {
///     let hops = route.protect(&reader);
///     // SAFETY: the link is no node's, and what it held is retired to this domain.
///     assert_eq!(unsafe { hops.as_ref() }, Some(&[3, 1, 4][..]));
/// }
/// let old = route.swap(Owned::<[u16]>::init(vec![1, 5]), AcqRel, &Unprotected);
/// // SAFETY: unlinked just now; its readers are of the domain.
/// unsafe { old.retire(&mut reclaimer) };
/// // SAFETY: no other thread has the link.
/// drop(unsafe { route.into_owned() });
/// ```
///
/// # Safety
/// Addresses from `init` are multiples of `ALIGN`, a power of two. `target` refers to the object until `drop`. A pointee is
/// `Send` only if `drop` may be called on another thread than `init`, and `Sync` only if references from `target` may be
/// shared between threads.
pub unsafe trait Pointee {
    /// The type that references to the object have.
    type Target: ?Sized;
    /// What an object is made from.
    type Init;
    /// Addresses are multiples of this, so this is also the number of tags.
    const ALIGN: usize;

    /// Makes an object, which the caller owns.
    fn init(init: Self::Init) -> NonNull<()>;

    /// The object.
    ///
    /// # Safety
    /// The object came from `init`, is not dropped during `'a`, and no exclusive reference to it exists meanwhile.
    unsafe fn target<'a>(object: NonNull<()>) -> &'a Self::Target;

    /// Size of the object itself in bytes, without what it owns elsewhere.
    ///
    /// # Safety
    /// As for `target`.
    unsafe fn bytes(object: NonNull<()>) -> usize;

    /// Drops the object and frees its memory.
    ///
    /// # Safety
    /// The object came from `init`, the caller owns it, and nothing uses it any more.
    unsafe fn drop(object: NonNull<()>);
}

// SAFETY: a box is aligned for its type, and a reference to its content is valid until the box is dropped.
unsafe impl<T> Pointee for T {
    type Target = T;
    type Init = T;
    const ALIGN: usize = align_of::<T>();

    fn init(init: T) -> NonNull<()> {
        NonNull::from(Box::leak(Box::new(init))).cast()
    }

    unsafe fn target<'a>(object: NonNull<()>) -> &'a T {
        // SAFETY: the object is a `T` that is not dropped during `'a`, by the caller's promise.
        unsafe { object.cast().as_ref() }
    }

    unsafe fn bytes(_object: NonNull<()>) -> usize {
        size_of::<T>()
    }

    unsafe fn drop(object: NonNull<()>) {
        // SAFETY: the object came from a box in `init`, and the caller owns it.
        drop(unsafe { Box::from_raw(object.cast::<T>().as_ptr()) });
    }
}

/// The offset of a slice's elements, which follow the length, and the layout of both together.
fn slice_layout<T>(len: usize) -> (usize, Layout) {
    let elements = Layout::array::<T>(len).expect("a slice that exists has a layout");
    let (all, offset) = Layout::new::<usize>().extend(elements).expect("the length fits in front of a slice");
    (offset, all.pad_to_align())
}

/// # Safety
/// `object` came from `<[T]>::init`, and is not dropped yet.
unsafe fn elements<T>(object: NonNull<()>) -> NonNull<[T]> {
    // SAFETY: `init` has written the length at the address.
    let len = unsafe { object.cast::<usize>().read() };
    // SAFETY: the elements begin at this offset, in the same allocation.
    let first = unsafe { object.byte_add(slice_layout::<T>(len).0) };
    NonNull::slice_from_raw_parts(first.cast(), len)
}

// SAFETY: the layout has the greater alignment of the length and the elements. Only `drop` drops the elements, which
// come from a vector.
unsafe impl<T> Pointee for [T] {
    type Target = [T];
    type Init = Vec<T>;
    const ALIGN: usize =
        if align_of::<T>() > align_of::<usize>() { align_of::<T>() } else { align_of::<usize>() };

    fn init(init: Vec<T>) -> NonNull<()> {
        let (offset, layout) = slice_layout::<T>(init.len());
        // SAFETY: the layout has room for the length at least.
        let memory = NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        // SAFETY: the memory has room for the length, and after it for the elements. The elements move there: the vector's
        // length is set to 0, so that it frees only its memory.
        unsafe {
            memory.cast().write(init.len());
            let mut init = init;
            memory
                .byte_add(offset)
                .cast::<T>()
                .copy_from_nonoverlapping(NonNull::new_unchecked(init.as_mut_ptr()), init.len());
            init.set_len(0);
        }
        memory.cast()
    }

    unsafe fn target<'a>(object: NonNull<()>) -> &'a [T] {
        // SAFETY: the object came from `init`, and is not dropped during `'a`, by the caller's promise.
        unsafe { elements(object).as_ref() }
    }

    unsafe fn bytes(object: NonNull<()>) -> usize {
        // SAFETY: the object came from `init`, and is not dropped, by the caller's promise.
        slice_layout::<T>(unsafe { elements::<T>(object) }.len()).1.size()
    }

    unsafe fn drop(object: NonNull<()>) {
        /// Frees the memory, also when an element's destructor panics.
        struct Memory(NonNull<()>, Layout);

        impl Drop for Memory {
            fn drop(&mut self) {
                // SAFETY: `init` allocated it with this layout.
                unsafe { dealloc(self.0.as_ptr().cast(), self.1) };
            }
        }

        // SAFETY: the object came from `init`, and is not dropped yet, by the caller's promise.
        let elements = unsafe { elements::<T>(object) };
        let _memory = Memory(object, slice_layout::<T>(elements.len()).1);
        // SAFETY: the caller owns the elements, and they are dropped once.
        unsafe { elements.drop_in_place() };
    }
}

/// The word without its tag. The compiler makes one instruction of this subtraction, but two or three of `map_addr`, each of which a
/// walk waits for.
#[inline(always)]
pub(super) fn untagged<T: Pointee + ?Sized>(word: *mut ()) -> *mut () {
    word.wrapping_byte_sub(tag_of::<T>(word))
}

#[inline(always)]
pub(super) fn tag_of<T: Pointee + ?Sized>(word: *mut ()) -> usize {
    word.addr() & (T::ALIGN - 1)
}

/// The word with this tag. Bits that do not fit below the alignment are ignored.
#[inline(always)]
pub(super) fn tagged<T: Pointee + ?Sized>(word: *mut (), tag: usize) -> *mut () {
    untagged::<T>(word).wrapping_byte_add(tag & (T::ALIGN - 1))
}
