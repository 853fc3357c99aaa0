//! The readers of threads. Their hot paths are inline code of the header, over thread-local variables in `shim.c`.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use stillpoint::rcu::raw::{self, offsets, states, Spare};
use stillpoint::rcu::wait::SynchronizeError;
use stillpoint::rcu::{QsbrReader, Reader};

use super::defer;
use super::flavour::{all, of, Flavour, STILL_URCU_BP, STILL_URCU_QSBR};
use crate::border::{briefly, call};
use crate::handle::STILL_FULL_FENCE_;
use crate::own::{self, own, own_in_handler};
use crate::report::report;
use crate::thread::Blocked;

pub const STILL_URCU_FULL_FENCE_: u32 = STILL_FULL_FENCE_;
pub const STILL_URCU_UNREGISTERED_: u32 = 0x8000_0000;
pub const STILL_URCU_ATTENTION_: usize = 8;
pub const STILL_URCU_IDLE_: u64 = 0x8000_0000_0000_0000;
const _: () = assert!(offsets::STATE == 0 && offsets::ATTENTION == STILL_URCU_ATTENTION_);
// Inline code compares states as signed numbers with -2, which is `AWAY - 1`.
const _: () = assert!(STILL_URCU_IDLE_ == states::IDLE && states::AWAY == u64::MAX);

/// A thread's reader of a flavour, to C. Only that thread uses it.
#[repr(C)]
pub struct still_urcu_reader_ {
    record: *mut u8,
    /// The address of the domain's token, and [`STILL_URCU_FULL_FENCE_`].
    token: *const u8,
    /// In qsbr: the state that inline code or [`Flavour::go`] reported last.
    seen: u64,
    nested: u32,
    /// In qsbr: [`STAYS`], [`GOES_OFFLINE`] or [`ENDS`], which is what happens to the reader at the end of a turn of callbacks.
    frame: u32,
    seat: *mut c_void,
    pub(super) worker: *mut c_void,
    pub(super) ring: *mut c_void,
}

// `shim.c` asserts the same numbers.
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<still_urcu_reader_>() == 56 && offset_of!(still_urcu_reader_, record) == 0);
    assert!(offset_of!(still_urcu_reader_, token) == 8 && offset_of!(still_urcu_reader_, seen) == 16);
    assert!(offset_of!(still_urcu_reader_, nested) == 24 && offset_of!(still_urcu_reader_, frame) == 28);
    assert!(offset_of!(still_urcu_reader_, seat) == 32 && offset_of!(still_urcu_reader_, worker) == 40);
    assert!(offset_of!(still_urcu_reader_, ring) == 48 && size_of::<still_urcu_nobody_>() == 16);
};

const STAYS: u32 = 0;
const GOES_OFFLINE: u32 = 1;
const ENDS: u32 = 2;

/// The record of threads that are not registered, in `shim.c`.
#[repr(C)]
struct still_urcu_nobody_ {
    state: u64,
    attention: u32,
    reserved: u32,
}

extern "C" {
    #[link_name = "still_urcu_nobody_"]
    static NOBODY: still_urcu_nobody_;
    fn still_urcu_acquires_();
    fn still_urcu_releases_();
}

impl still_urcu_reader_ {
    /// For a thread that is not registered.
    pub(crate) const fn of_nobody() -> Self {
        Self {
            record: (&raw const NOBODY).cast_mut().cast(),
            // Its state, which is also read as the token, and seems to have been reported.
            token: (&raw const NOBODY).cast(),
            seen: u64::MAX,
            nested: STILL_URCU_UNREGISTERED_,
            frame: STAYS,
            seat: ptr::null_mut(),
            worker: ptr::null_mut(),
            ring: ptr::null_mut(),
        }
    }
}

/// The state that a reader has published.
///
/// # Safety
/// The calling thread is the reader's.
unsafe fn state(parts: raw::Parts<'_>) -> u64 {
    // SAFETY: the record begins with an atomic of this type, and is valid as long as the domain exists. Relaxed: only this thread writes it.
    unsafe { (*parts.record().cast::<AtomicU64>().as_ptr()).load(Ordering::Relaxed) }
}

/// The place of a thread's reader. It is always in a box, so that registering with a reader in reserve allocates nothing.
pub(super) enum Seat {
    Empty,
    Spare(Spare),
    Guards(Reader),
    Qsbr(QsbrReader),
}

impl Seat {
    fn parts(&self) -> Option<raw::Parts<'_>> {
        match self {
            Self::Guards(reader) => Some(raw::Parts::of(reader)),
            Self::Qsbr(reader) => Some(raw::Parts::of_qsbr(reader)),
            Self::Empty | Self::Spare(_) => None,
        }
    }
}

impl Flavour {
    /// The calling thread's reader. Nothing may be written to it before [`own`] has made the thread's block, in which it does not move
    /// until the thread's end.
    #[inline]
    pub(super) fn mine(&self) -> *mut still_urcu_reader_ {
        own::urcu_reader(self.number())
    }

    /// The parts of the calling thread's reader, if it is registered.
    fn parts<'r>(&self) -> Option<raw::Parts<'r>> {
        // SAFETY: `mine` is a thread-local variable of the calling thread; a seat lives until `unregister`, on this thread.
        unsafe { (*self.mine()).seat.cast::<Seat>().as_ref() }?.parts()
    }

    /// Takes the calling thread's qsbr reader online or offline. The thread must hold nothing.
    fn go(&self, parts: raw::Parts<'_>, online: bool) {
        releases();
        // SAFETY: the reader is the calling thread's qsbr reader, and the caller promises that the thread holds nothing.
        unsafe {
            if online {
                parts.online();
            } else {
                parts.offline();
            }
            (*self.mine()).seen = if online { state(parts) } else { 0 };
        }
    }

    /// Whether the calling thread is in a read-side section, or, in qsbr, online.
    pub(super) fn is_ongoing(&self) -> bool {
        self.parts().is_some_and(raw::Parts::is_online)
    }

    /// Registers the calling thread, unless it is registered. In qsbr, the thread is online afterwards. With `by_the_way`, the thread's first
    /// section registers it; this allocates nothing if there is a reader in reserve.
    pub(super) fn register(&'static self, by_the_way: bool) {
        if let Some(parts) = self.parts() {
            if self.is_qsbr() {
                self.go(parts, true);
            }
            return;
        }
        let group = self.group();
        if !by_the_way {
            self.refill();
        }
        let _quiet = Blocked::every();
        // Also arranges that the thread's end unregisters it.
        if by_the_way {
            own_in_handler();
        } else {
            own();
        }
        let mine = self.mine();
        // SAFETY: `mine` is a thread-local variable of the calling thread.
        if !unsafe { (*mine).seat }.is_null() {
            // A signal handler has registered the thread meanwhile.
            return;
        }
        let mut seat = ptr::null_mut();
        if by_the_way {
            seat = group.take_seat();
            self.ask_for_refill();
        }
        if seat.is_null() {
            seat = Box::into_raw(Box::new(Seat::Empty));
        }
        // SAFETY: `seat` came from a box, and only this thread has it.
        let place = unsafe { &mut *seat };
        *place = match std::mem::replace(place, Seat::Empty) {
            Seat::Spare(spare) => Seat::Guards(spare.into_reader()),
            _ if self.is_qsbr() => Seat::Qsbr(group.domain.qsbr_reader()),
            _ => Seat::Guards(group.domain.reader()),
        };
        let Some(parts) = place.parts() else { return };
        // SAFETY: `mine` is a thread-local variable of the calling thread; signal handlers do not run.
        unsafe {
            (*mine).record = parts.record().as_ptr();
            let fence = if parts.needs_full_fence() { STILL_URCU_FULL_FENCE_ } else { 0 };
            (*mine).token = parts.token().as_ptr().cast::<u8>().wrapping_add(fence as usize);
            (*mine).seen = state(parts);
            (*mine).nested = 0;
            (*mine).seat = seat.cast();
        }
    }

    /// Unregisters the calling thread, if it is registered.
    pub(super) fn unregister(&'static self) {
        releases();
        let _quiet = Blocked::every();
        let mine = self.mine();
        // SAFETY: `mine` is a thread-local variable of the calling thread; signal handlers do not run.
        let seat = unsafe { (*mine).seat.cast::<Seat>() };
        if seat.is_null() {
            return;
        }
        // SAFETY: as above. The thread was registered, so it has its block.
        unsafe {
            let nobody = still_urcu_reader_::of_nobody();
            (*mine).record = nobody.record;
            (*mine).token = nobody.token;
            (*mine).seen = nobody.seen;
            (*mine).nested = nobody.nested;
            (*mine).seat = nobody.seat;
        }
        // SAFETY: `seat` came from a box, and no other thread has it.
        let place = unsafe { &mut *seat };
        if self.number() == STILL_URCU_BP {
            if let Seat::Guards(reader) = std::mem::replace(place, Seat::Empty) {
                *place = Seat::Spare(Spare::of_reader(reader));
                if self.group().give_seat(seat) {
                    return;
                }
            }
        }
        // SAFETY: `seat` came from a box, and no other thread has it.
        drop(unsafe { Box::from_raw(seat) });
    }

    /// Runs `wait` with the calling thread's qsbr reader offline, if it was online.
    pub(super) fn while_offline<R>(&'static self, wait: impl FnOnce() -> R) -> R {
        let online = self.parts().filter(|parts| self.is_qsbr() && parts.is_online());
        if let Some(parts) = online {
            self.go(parts, false);
        }
        let answer = wait();
        if online.is_some() {
            // Callbacks that ran meanwhile may have registered the thread again, so its reader is looked up again.
            if let Some(parts) = self.parts() {
                self.go(parts, true);
            }
        }
        answer
    }

    /// Waits for a grace period, however long it takes.
    pub(super) fn synchronize(&'static self) {
        let group = self.group();
        self.refill();
        let mut is_told = false;
        // One grace period for all tries: a fence of another thread may serve it.
        let token = group.domain.start();
        self.while_offline(|| loop {
            // A callback may wait for readers, as in liburcu. No reader waits for a callback: a barrier is refused in a section.
            let error = match raw::let_wait(|| group.domain.wait(token)) {
                Ok(()) => return acquires(),
                Err(error) => error,
            };
            if !std::mem::replace(&mut is_told, true) {
                report(format_args!("urcu-{}: synchronize_rcu: {error}", self.name()));
                group.tell();
            }
            match error {
                // Only a signal handler can end the section. Signals are blocked from the check to the sleep, and a handler ends the sleep.
                SynchronizeError::WouldDeadlock { .. } => {
                    let quiet = Blocked::every();
                    if raw::blocked_by_caller(&group.domain).is_err() {
                        quiet.until_handled();
                    }
                }
                _ => std::thread::sleep(AGAIN),
            }
        });
    }
}

/// The time between a failure and the next try, for a fence of the kernel or the start of a thread.
pub(super) const AGAIN: std::time::Duration = std::time::Duration::from_millis(10);

/// Tells ThreadSanitizer, if it is there, that what the calling thread has done happens before what others do after [`acquires`].
pub(super) fn releases() {
    // SAFETY: the function has no preconditions.
    unsafe { still_urcu_releases_() };
}

pub(super) fn acquires() {
    // SAFETY: the function has no preconditions.
    unsafe { still_urcu_acquires_() };
}

/// Runs at the beginning and at the end of a turn of callbacks, in flavours with sections.
pub(super) fn plain_frame(begins: bool) {
    if begins {
        acquires();
    }
}

/// The same for deferred calls of qsbr: the thread is offline after a turn, whatever the functions have called.
pub(super) fn offline_frame(begins: bool) {
    plain_frame(begins);
    let flavour = of(STILL_URCU_QSBR);
    if let (false, Some(parts)) = (begins, flavour.parts()) {
        if parts.is_online() {
            flavour.go(parts, false);
        }
    }
}

/// Runs at the beginning and at the end of a turn of callbacks, in qsbr: the thread has an online reader during the turn.
pub(super) fn frame(begins: bool) {
    plain_frame(begins);
    let flavour = of(STILL_URCU_QSBR);
    let parts = flavour.parts();
    if begins {
        let after = match parts {
            None => ENDS,
            Some(parts) if parts.is_online() => STAYS,
            Some(_) => GOES_OFFLINE,
        };
        own();
        // SAFETY: the thread has its block.
        unsafe { (*flavour.mine()).frame = after };
        flavour.register(false);
        return;
    }
    // SAFETY: `mine` is a thread-local variable of the calling thread.
    match (unsafe { (*flavour.mine()).frame }, parts) {
        (ENDS, _) => flavour.unregister(),
        (GOES_OFFLINE, Some(parts)) => flavour.go(parts, false),
        _ => {}
    }
}

/// Registers a thread whose first read-side section is about to begin, if it is not registered, and makes it a reader that writers look
/// at. In flavours with sections.
#[no_mangle]
pub extern "C" fn still_urcu_register_by_the_way_(flavour: u32) {
    call(|| {
        of(flavour).register(true);
        if let Some(parts) = of(flavour).parts() {
            // SAFETY: the reader is the calling thread's, and has sections.
            unsafe { parts.come_back() };
        }
        Ok(())
    });
}

#[no_mangle]
pub extern "C" fn still_urcu_answer_(flavour: u32) {
    briefly(|| {
        if let Some(parts) = of(flavour).parts() {
            // SAFETY: the reader is the calling thread's.
            unsafe { parts.answer() };
        }
        Ok(())
    });
}

#[no_mangle]
pub extern "C" fn still_urcu_register_(flavour: u32) {
    call(|| {
        // In bp, a signal handler may call this, too.
        of(flavour).register(flavour == STILL_URCU_BP);
        Ok(())
    });
}

#[no_mangle]
pub extern "C" fn still_urcu_unregister_(flavour: u32) {
    call(|| {
        of(flavour).unregister();
        Ok(())
    });
}

#[no_mangle]
pub extern "C" fn still_urcu_offline_() {
    briefly(|| {
        let flavour = of(STILL_URCU_QSBR);
        if let Some(parts) = flavour.parts() {
            flavour.go(parts, false);
        }
        Ok(())
    });
}

#[no_mangle]
pub extern "C" fn still_urcu_online_() {
    briefly(|| {
        let flavour = of(STILL_URCU_QSBR);
        if let Some(parts) = flavour.parts() {
            flavour.go(parts, true);
        }
        Ok(())
    });
}

#[no_mangle]
pub extern "C" fn still_urcu_synchronize_(flavour: u32) {
    call(|| {
        of(flavour).synchronize();
        Ok(())
    });
}

#[no_mangle]
pub extern "C" fn still_urcu_start_(flavour: u32) -> u64 {
    call(|| Ok(raw::number_of(of(flavour).group().domain.start())))
}

#[no_mangle]
pub extern "C" fn still_urcu_check_(flavour: u32, number: u64) -> c_int {
    call(|| {
        let domain = &of(flavour).group().domain;
        let is_over = raw::token_of(domain, number).is_some_and(|token| domain.check(token));
        if is_over {
            acquires();
        }
        Ok(c_int::from(is_over))
    })
}

/// As [`thread_ends`], for what signal handlers have begun since; then calls `last`, with no handler in between.
pub(crate) fn thread_ends_before<R>(last: impl FnOnce() -> R) -> R {
    let _quiet = Blocked::every();
    thread_ends();
    last()
}

/// Ends what the calling thread has in the flavours, when the thread ends.
pub(crate) fn thread_ends() {
    for flavour in all() {
        defer::leave(flavour);
        flavour.unregister();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Wake, Waker};

    use super::*;

    extern "C-unwind" {
        fn pthread_cancel(thread: libc::pthread_t) -> c_int;
        fn pthread_testcancel();
    }

    struct Tests(AtomicU64);

    impl Wake for Tests {
        fn wake(self: Arc<Self>) {
            // SAFETY: no preconditions.
            unsafe { pthread_testcancel() };
            // Relaxed: there is one thread.
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A reader that answers, or goes offline, wakes the futures of its domain. That is no point of cancellation, as nothing is in liburcu.
    #[test]
    fn no_thread_is_cancelled_while_it_wakes_futures() {
        let reads = || {
            still_urcu_register_(STILL_URCU_QSBR);
            let domain = &of(STILL_URCU_QSBR).group().domain;
            let tests = Arc::new(Tests(AtomicU64::new(0)));
            let waker = Waker::from(Arc::clone(&tests));
            // SAFETY: the calling thread is alive.
            assert_eq!(unsafe { pthread_cancel(libc::pthread_self()) }, 0);
            for (times, wakes) in
                [(1, (|| still_urcu_answer_(STILL_URCU_QSBR)) as fn()), (2, || still_urcu_offline_())]
            {
                let mut over = pin!(domain.grace_period(domain.start()));
                assert!(over.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                wakes();
                // Relaxed: there is one thread.
                assert_eq!(tests.0.load(Ordering::Relaxed), times);
            }
            // It stays pending: the end of this thread is Rust, too.
            std::mem::forget(crate::border::Uncancelled::new());
            still_urcu_unregister_(STILL_URCU_QSBR);
        };
        std::thread::spawn(reads).join().expect("the thread returns");
    }
}
