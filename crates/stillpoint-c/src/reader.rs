//! Readers, and protected loads that are bound to no thread.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use stillpoint::rcu::raw::{self, offsets, states, Slot};
use stillpoint::rcu::{Domain, Guard, OwnedProtected, QsbrReader, Reader};
use stillpoint_sys::tsan;

use crate::border::{call, time, Refusal};
use crate::domain::{domain_of, still_domain, synchronize};
use crate::handle::{self, find, kind, mark_of, still_head_, Parts, Within, STILL_FULL_FENCE_};
use crate::reserve;
use crate::thread_end::{adopt, disown, handles};

pub const STILL_LAYOUT: u32 = 2;
pub const STILL_STATE_: usize = 0;
pub const STILL_ATTENTION_: usize = 8;
pub const STILL_HAZARD_: usize = 56;
pub const STILL_IDLE_: u64 = 0x8000_0000_0000_0000;
pub const STILL_AWAY_: u64 = 0xffff_ffff_ffff_ffff;
pub const STILL_MARK_READER_: u32 = 0x5d0a_0002;
pub const STILL_MARK_QSBR_: u32 = 0x5d0a_0003;

const _: () = {
    assert!(STILL_STATE_ == offsets::STATE && STILL_ATTENTION_ == offsets::ATTENTION);
    assert!(STILL_HAZARD_ == offsets::HAZARD);
    // Inline code compares states as signed numbers with -2, which is `AWAY - 1`.
    assert!(STILL_IDLE_ == states::IDLE && STILL_AWAY_ == states::AWAY);
};

/// A reader, to C.
#[repr(C)]
pub struct still_reader {
    head_: still_head_,
}

/// A reader that reports quiescent states, to C.
#[repr(C)]
pub struct still_qsbr {
    head_: still_head_,
}

pub(crate) struct Guards {
    reader: Reader,
    domain: u64,
}

kind!(Guards: still_reader, STILL_MARK_READER_, "a reader");

pub(crate) struct Qsbr {
    reader: UnsafeCell<QsbrReader>,
    domain: Domain,
}

kind!(Qsbr: still_qsbr, STILL_MARK_QSBR_, "a QSBR reader");

impl Qsbr {
    /// The parts of the reader, for its thread. Inline code of the header uses the same record.
    fn parts(&self) -> raw::Parts<'_> {
        // SAFETY: there are only shared references to the reader, also in `still_qsbr_synchronize`.
        raw::Parts::of_qsbr(unsafe { &*self.reader.get() })
    }
}

fn parts(parts: raw::Parts<'_>) -> Parts {
    Parts {
        record: parts.record().as_ptr(),
        token: parts.token().as_ptr(),
        flags: if parts.needs_full_fence() { STILL_FULL_FENCE_ } else { 0 },
    }
}

fn same_layout(layout: u32) -> Result<(), Refusal> {
    if layout == STILL_LAYOUT {
        return Ok(());
    }
    let text =
        c"the program was compiled against a stillpoint.h of layout {}, but the library has layout {}: recompile it";
    Err(Refusal::new(libc::EPROTO, text).with(layout).with(STILL_LAYOUT))
}

#[no_mangle]
pub unsafe extern "C" fn still_reader_new_(domain: *const still_domain, layout: u32) -> *mut still_reader {
    call(|| {
        same_layout(layout)?;
        // SAFETY: the caller passes a handle.
        let domain = unsafe { domain_of(domain) }?;
        adopt::<Guards>(handle::make(|| {
            let reader = domain.reader();
            let parts = parts(raw::Parts::of(&reader));
            Ok((Guards { reader, domain: domain.id() }, parts))
        })?)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_qsbr_new_(domain: *const still_domain, layout: u32) -> *mut still_qsbr {
    call(|| {
        same_layout(layout)?;
        // SAFETY: the caller passes a handle.
        let domain = unsafe { domain_of(domain) }?.clone();
        adopt::<Qsbr>(handle::make(|| {
            let reader = domain.qsbr_reader();
            let parts = parts(raw::Parts::of_qsbr(&reader));
            Ok((Qsbr { reader: UnsafeCell::new(reader), domain }, parts))
        })?)
    })
}

fn is_mine(parts: raw::Parts<'_>) -> Result<(), Refusal> {
    match parts.is_mine() {
        true => Ok(()),
        false => Err(Refusal::new(
            libc::EPERM,
            c"the reader belongs to the thread that made it, and this is another thread: make a reader on each thread",
        )),
    }
}

#[no_mangle]
pub unsafe extern "C" fn still_reader_free(reader: *mut still_reader) -> c_int {
    call(|| {
        // SAFETY: the caller passes a handle, and no other call uses it.
        let found = unsafe { find::<Guards>(reader) }?;
        // SAFETY: the caller passes a handle, and no other call uses it.
        is_mine(raw::Parts::of(&unsafe { found.value() }.reader))?;
        drop(found.enter()?);
        disown(reader.cast());
        // SAFETY: the caller passes a handle, and no other call uses it.
        drop(unsafe { found.free() });
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_qsbr_free(qsbr: *mut still_qsbr) -> c_int {
    call(|| {
        // SAFETY: the caller passes a handle, and no other call uses it.
        let found = unsafe { find::<Qsbr>(qsbr) }?;
        // SAFETY: the caller passes a handle, and no other call uses it.
        is_mine(unsafe { found.value() }.parts())?;
        drop(found.enter()?);
        disown(qsbr.cast());
        // SAFETY: the caller passes a handle, and no other call uses it.
        drop(unsafe { found.free() });
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_reset_after_fork(domain: *const still_domain) -> c_int {
    call(|| {
        // SAFETY: the caller passes a handle.
        let domain = unsafe { domain_of(domain) }?;
        // SAFETY: the caller is the only thread of a child. The header states what the child may no longer use.
        unsafe {
            lose_readers(domain.id());
            domain.reset_after_fork();
        }
        Ok(0)
    })
}

/// In the child of a `fork`, before the domain is reset: takes the handles of the readers of other threads. Their records may soon be those
/// of new readers of the child, which a call with an old handle would take for its own.
///
/// # Safety
/// The calling thread is the only one of the process.
unsafe fn lose_readers(domain: u64) {
    // SAFETY: the calling thread is the only one, by the caller's promise.
    unsafe {
        handle::lose::<Guards>(|guards| guards.domain == domain && !raw::Parts::of(&guards.reader).is_mine());
        handle::lose::<Qsbr>(|qsbr| qsbr.domain.id() == domain && !qsbr.parts().is_mine());
    }
}

/// A region in which a call reads, of a reader of either kind, on the reader's thread.
pub(crate) enum Region<'r> {
    Guard(Pinned<'r>),
    Qsbr(&'r QsbrReader),
}

/// A region of a reader, counted in `nested` like those of inline code. This one and an inline one may end in either order.
pub(crate) struct Pinned<'r> {
    guard: ManuallyDrop<Guard<'r>>,
    nested: &'static AtomicU32,
}

impl<'r> Pinned<'r> {
    fn new(reader: &'r Reader, head: &'static still_head_) -> Self {
        let nested = &head.nested;
        match raw::Parts::of(reader).is_online() {
            // Relaxed, both: only the reader's thread uses the count.
            true => nested.store(nested.load(Ordering::Relaxed) + 1, Ordering::Relaxed),
            false => std::mem::forget(reader.pin()),
        }
        // SAFETY: the reader is in a region until this value is dropped, unless the program ends a region that it has not begun. The guard
        // that began the region is not dropped.
        Self { guard: unsafe { raw::guard_of(reader) }, nested }
    }

    pub(crate) fn guard(&self) -> &Guard<'r> {
        &self.guard
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        // Relaxed, both: only the reader's thread uses the count.
        match self.nested.load(Ordering::Relaxed) {
            // SAFETY: this is the only drop of the guard.
            0 => unsafe { ManuallyDrop::drop(&mut self.guard) },
            nested => self.nested.store(nested - 1, Ordering::Relaxed),
        }
    }
}

impl Qsbr {
    /// The reader, if it is online and the calling thread's. [`region`] handles all other cases, including errors.
    #[inline(always)]
    pub(crate) fn online(&self) -> Option<&QsbrReader> {
        let parts = self.parts();
        // SAFETY: shared access, as in `parts`.
        (parts.is_online() && parts.is_mine()).then(|| unsafe { &*self.reader.get() })
    }
}

/// Begins a region of the calling thread, for one call, in the domain with this number. If the call calls the program back, the reader is
/// marked as in use.
///
/// # Safety
/// `reader` is null, or has been a handle of some kind, which is not freed meanwhile.
pub(crate) unsafe fn region<'r>(
    reader: *const c_void,
    domain: u64,
    calls_back: bool,
) -> Result<(Region<'r>, Option<Within<'static>>), Refusal> {
    // SAFETY: the pointer is null, or has been a handle, by the caller's promise.
    let (own, region, head) = if unsafe { mark_of(reader) } == STILL_MARK_QSBR_ {
        // SAFETY: the pointer is null, or has been a handle, by the caller's promise.
        let found = unsafe { find::<Qsbr>(reader.cast()) }?;
        // SAFETY: the handle is not freed meanwhile, by the caller's promise.
        let qsbr = unsafe { found.value() };
        is_mine(qsbr.parts())?;
        if !qsbr.parts().is_online() {
            return Err(Refusal::invalid(c"the QSBR reader is offline: bring it online first"));
        }
        // SAFETY: shared access, as in `Qsbr::parts`.
        (qsbr.domain.id(), Region::Qsbr(unsafe { &*qsbr.reader.get() }), found.head())
    } else {
        // SAFETY: the pointer is null, or has been a handle, by the caller's promise.
        let found = unsafe { find::<Guards>(reader.cast()) }?;
        // SAFETY: the handle is not freed meanwhile, by the caller's promise.
        let guards = unsafe { found.value() };
        is_mine(raw::Parts::of(&guards.reader))?;
        (guards.domain, Region::Guard(Pinned::new(&guards.reader, found.head())), found.head())
    };
    match own == domain {
        true => Ok((region, calls_back.then(|| head.hold()))),
        false => Err(FOREIGN),
    }
}

/// The reader that protects what a call finds, on the reader's thread, in the domain with this number. If the call calls the program back,
/// the reader is marked as in use.
///
/// # Safety
/// As for [`region`].
#[inline]
pub(crate) unsafe fn protector<'r>(
    reader: *const still_reader,
    domain: u64,
    calls_back: bool,
) -> Result<(&'r Reader, Option<Within<'static>>), Refusal> {
    // SAFETY: the pointer is null, or has been a handle, by the caller's promise.
    let found = unsafe { find::<Guards>(reader) }?;
    // SAFETY: the handle is not freed meanwhile, by the caller's promise.
    let guards: &Guards = unsafe { found.value() };
    is_mine(raw::Parts::of(&guards.reader))?;
    match guards.domain == domain {
        true => Ok((&guards.reader, calls_back.then(|| found.head().hold()))),
        false => Err(FOREIGN),
    }
}

/// Whether a protected load of the calling thread, by a reader of C, holds the object at this address.
pub(crate) fn is_protected_here(address: NonNull<()>) -> bool {
    handles::<Guards>(|handle| {
        // SAFETY: the thread has not freed this handle.
        let found = unsafe { find::<Guards>(handle) };
        // SAFETY: the thread has not freed it.
        found.is_ok_and(|found| raw::Parts::of(&unsafe { found.value() }.reader).holds(address))
    })
}

const FOREIGN: Refusal = Refusal::new(
    libc::EXDEV,
    c"the reader belongs to another domain than the table: make it with the table's domain",
);

/// # Safety
/// `head` is null, or has been the head of a handle, which is not freed meanwhile.
unsafe fn parts_of<'r>(head: *const still_head_) -> Option<raw::Parts<'r>> {
    // SAFETY: the head is null, or has been the head of a handle, which is not freed meanwhile, by the caller's promise.
    unsafe {
        if mark_of(head.cast()) == STILL_MARK_QSBR_ {
            find::<Qsbr>(head.cast()).map(|found| found.value().parts()).ok()
        } else {
            find::<Guards>(head.cast()).map(|found| raw::Parts::of(&found.value().reader)).ok()
        }
    }
}

/// The slow path of inline code, when another thread has requested the reader's attention. Reaches no cancellation point: the wakers of
/// futures, which it may call, run with cancellation disabled.
#[no_mangle]
pub unsafe extern "C" fn still_answer_(head: *mut still_head_) {
    let _ignored = tsan::ignore();
    // SAFETY: inline code has the head of a reader, on its thread.
    let Some(parts) = (unsafe { parts_of(head) }) else { return };
    // SAFETY: inline code has the head of a reader, on its thread.
    unsafe { parts.answer() };
}

/// Whether the reader belongs to the calling thread. Inline code calls it if `STILL_CHECKED` is defined.
#[no_mangle]
pub unsafe extern "C" fn still_is_mine_(head: *const still_head_) -> c_int {
    // SAFETY: inline code has the head of a reader.
    c_int::from(unsafe { parts_of(head) }.is_some_and(raw::Parts::is_mine))
}

/// Begins a region of a reader that is in none, and may be away. A signal handler may do this, too.
///
/// # Safety
/// The calling thread is the reader's.
pub(crate) unsafe fn enter(reader: &Reader) {
    // SAFETY: the calling thread is the reader's, by the caller's promise.
    unsafe { raw::Parts::of(reader).come_back() };
    std::mem::forget(reader.pin());
}

/// The slow path of inline code: begins a region of a reader that was away. Reaches no cancellation point.
#[no_mangle]
pub unsafe extern "C" fn still_enter_(head: *mut still_head_) {
    let _ignored = tsan::ignore();
    // SAFETY: inline code has the head of a reader, on its thread.
    if let Ok(found) = unsafe { find::<Guards>(head.cast()) } {
        // SAFETY: inline code has the head of a reader, on its thread.
        unsafe { enter(&found.value().reader) };
    }
}

/// A protected load, to C.
#[repr(C)]
pub struct still_protected {
    object: *mut c_void,
    slot_: *mut c_void,
}

impl still_protected {
    pub(crate) const NOTHING: Self = Self { object: ptr::null_mut(), slot_: ptr::null_mut() };

    #[inline]
    pub(crate) fn new(object: NonNull<()>, slot: Slot) -> Self {
        Self { object: object.as_ptr().cast(), slot_: slot.into_raw().as_ptr().cast() }
    }
}

/// The slow path of inline code: a protected load by a reader that was away. Reaches no cancellation point.
#[no_mangle]
pub unsafe extern "C" fn still_protect_back_(
    reader: *mut still_reader,
    link: *const c_void,
) -> still_protected {
    let _ignored = tsan::ignore();
    // SAFETY: inline code has a reader, on its thread, and the address of a pointer, which threads access only atomically.
    let (found, link) = unsafe { (find::<Guards>(reader), &*link.cast::<AtomicPtr<c_void>>()) };
    // SAFETY: inline code has a reader, on its thread.
    let held = found.ok().and_then(|found| raw::protect(unsafe { &found.value().reader }, link));
    // Tells ThreadSanitizer what the acquire load orders; in inline code, it sees the load itself.
    tsan::acquire(link);
    held.map_or(still_protected::NOTHING, |(object, slot)| still_protected::new(object.cast(), slot))
}

/// The slow path of inline code: claims a slot other than the first one. Reaches no cancellation point.
#[no_mangle]
pub unsafe extern "C" fn still_slot_(reader: *mut still_reader) -> *mut c_void {
    let _ignored = tsan::ignore();
    // SAFETY: inline code has a reader, on its thread.
    match unsafe { find::<Guards>(reader) } {
        // SAFETY: inline code has a reader, on its thread.
        Ok(found) => unsafe { raw::Parts::of(&found.value().reader).slot().into_raw().as_ptr().cast() },
        Err(_) => ptr::null_mut(),
    }
}

#[no_mangle]
pub unsafe extern "C" fn still_slot_release_(slot: *mut c_void) {
    if let Some(slot) = NonNull::new(slot.cast()) {
        // SAFETY: `still_slot_` returned the slot on this thread, and inline code passes it once.
        unsafe { Slot::from_raw(slot).release() };
    }
}

#[no_mangle]
pub unsafe extern "C" fn still_reader_offline(reader: *mut still_reader) -> c_int {
    call(|| {
        // SAFETY: the caller passes a handle.
        let reader = unsafe { &find::<Guards>(reader)?.value().reader };
        is_mine(raw::Parts::of(reader))?;
        Ok(c_int::from(reader.offline()))
    })
}

/// Runs a call on a QSBR reader, on the reader's thread.
unsafe fn on_own_thread<A>(qsbr: *const still_qsbr, action: impl FnOnce(&Qsbr) -> A) -> Result<A, Refusal> {
    // SAFETY: the caller passes a handle.
    let found = unsafe { find::<Qsbr>(qsbr) }?;
    // SAFETY: the caller passes a handle.
    let qsbr = unsafe { found.value() };
    is_mine(qsbr.parts())?;
    let _within = found.enter()?;
    Ok(action(qsbr))
}

#[no_mangle]
pub unsafe extern "C" fn still_offline(qsbr: *mut still_qsbr) -> c_int {
    // SAFETY: the caller passes a handle, and holds nothing that it has loaded.
    call(|| unsafe { on_own_thread(qsbr, |qsbr| qsbr.parts().offline()) }.map(|()| 0))
}

#[no_mangle]
pub unsafe extern "C" fn still_online(qsbr: *mut still_qsbr) -> c_int {
    // SAFETY: the caller passes a handle.
    call(|| unsafe { on_own_thread(qsbr, |qsbr| qsbr.parts().online()) }.map(|()| 0))
}

#[no_mangle]
pub unsafe extern "C" fn still_is_online(qsbr: *const still_qsbr) -> c_int {
    // SAFETY: the caller passes a handle.
    call(|| unsafe { find::<Qsbr>(qsbr).map(|found| c_int::from(found.value().parts().is_online())) })
}

#[no_mangle]
pub unsafe extern "C" fn still_qsbr_synchronize(qsbr: *mut still_qsbr, timeout: i64) -> c_int {
    let wait = |qsbr: &Qsbr| {
        // Refused as it would be below: what called the destructor may hold what it has loaded.
        if raw::is_within_foreign_code() {
            return synchronize(&qsbr.domain, timeout);
        }
        time(timeout)?;
        let parts = qsbr.parts();
        let was_online = parts.is_online();
        // SAFETY: this is the reader's thread. The caller holds nothing that it has loaded, as the header requires.
        unsafe { parts.offline() };
        let answer = synchronize(&qsbr.domain, timeout);
        if was_online {
            // SAFETY: this is the reader's thread. The caller holds nothing that it has loaded, as the header requires.
            unsafe { parts.online() };
        }
        answer
    };
    // SAFETY: the caller passes a handle.
    call(|| unsafe { on_own_thread(qsbr, wait) }?.map(|()| 0))
}

/// A protected load that is bound to no thread, to C.
#[repr(C)]
pub struct still_hold {
    _private: [u8; 0],
}

pub(crate) struct Hold {
    held: UnsafeCell<Option<OwnedProtected<'static, ()>>>,
    domain: Domain,
}

kind!(Hold: still_hold, 0x5d0a_0004, "a hold");

#[no_mangle]
pub unsafe extern "C" fn still_hold_new(domain: *const still_domain) -> *mut still_hold {
    call(|| {
        // SAFETY: the caller passes a handle.
        let domain = unsafe { domain_of(domain) }?.clone();
        handle::make(|| Ok((Hold { held: UnsafeCell::new(None), domain }, Parts::default())))
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_hold_protect_(
    hold: *mut still_hold,
    link: *const c_void,
    object: *mut c_void,
) -> c_int {
    call(|| {
        if link.is_null() || object.is_null() {
            return Err(Refusal::invalid(c"NULL was passed for the address of a pointer"));
        }
        let place = object.cast::<*mut c_void>();
        // SAFETY: by the header, `object` is the address of a pointer of the calling thread.
        unsafe { place.write(ptr::null_mut()) };
        // SAFETY: by the header, `link` is the address of a pointer, which threads access only atomically.
        let link = unsafe { &*link.cast::<AtomicPtr<c_void>>() };
        // SAFETY: the caller passes a handle.
        let hold = unsafe { find::<Hold>(hold)?.value() };
        // SAFETY: by the header, one thread at a time uses the hold.
        let held = unsafe { &mut *hold.held.get() };
        let found = reserve::kept(|| Ok(raw::protect_owned(&hold.domain, link)));
        // Not before: the link may lie in the object that is held.
        *held = None;
        let Some((object, protected)) = found? else { return Ok(0) };
        // Tells ThreadSanitizer what the acquire load orders; in inline code, it sees the load itself.
        tsan::acquire(link);
        *held = Some(protected);
        // SAFETY: as above.
        unsafe { place.write(object.as_ptr()) };
        Ok(1)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_hold_release(hold: *mut still_hold) -> c_int {
    call(|| {
        // SAFETY: the caller passes a handle, from one thread at a time.
        unsafe { *find::<Hold>(hold)?.value().held.get() = None };
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_hold_free(hold: *mut still_hold) -> c_int {
    call(|| {
        // SAFETY: the caller passes a handle, and no other call uses it.
        drop(unsafe { find::<Hold>(hold)?.free() });
        Ok(0)
    })
}
