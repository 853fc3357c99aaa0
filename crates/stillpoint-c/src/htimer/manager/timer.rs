//! A timer in the program's memory: what it is, and whose.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU8, Ordering};

use stillpoint::timer::Node;
use stillpoint_sys::tsan;

use crate::timer::still_timer;

pub type still_htimer_fn =
    Option<unsafe extern "C-unwind" fn(timer: *mut still_htimer, argument: *mut c_void)>;
pub type still_htimer_result_fn =
    Option<unsafe extern "C-unwind" fn(timer: *mut still_htimer, result: i32, argument: *mut c_void)>;

/// A timer, to C.
#[repr(C)]
pub struct still_htimer {
    node_: still_timer,
    words_: [u64; 4],
}

/// A timer, in the program's memory.
///
/// Between an asynchronous addition and the end of the timer, the fields are the target's, except `state` and `owner`, which other
/// threads read: to refuse a timer that is in use, and to find its thread.
#[repr(C)]
pub(in crate::htimer) struct Timer {
    pub(super) node: Node,
    /// In ticks once the timer is pending; before, as the program has said. 0 for once.
    pub(super) period: Cell<u64>,
    pub(super) function: Cell<still_htimer_fn>,
    pub(super) argument: Cell<*mut c_void>,
    /// The [stamp](Manager::stamp) of its manager. 0: it never had one.
    pub(super) owner: AtomicU32,
    pub(super) state: AtomicU8,
    pub(super) flags: Cell<u8>,
}

const _: () = assert!(
    size_of::<still_htimer>() == size_of::<Timer>() && align_of::<still_htimer>() == align_of::<Timer>()
);

pub(in crate::htimer) const ABSOLUTE: u32 = 1;
pub(in crate::htimer) const PERIODICAL: u32 = 2;
pub(in crate::htimer) const TICKS: u32 = 4;
pub(in crate::htimer) const TSC: u32 = 8;
pub(in crate::htimer) const TELL_CANCEL: u32 = 16;
pub(in crate::htimer) const FLAGS: u32 = ABSOLUTE | PERIODICAL | TICKS | TSC | TELL_CANCEL;

/// States of a timer, and results of requests.
pub(super) const IDLE: i32 = 0;
/// Pending.
pub(in crate::htimer) const ADDED: i32 = 1;
pub(in crate::htimer) const CANCELLED: i32 = 2;
pub(in crate::htimer) const EXPIRED: i32 = 3;
/// Only a result: there was nothing to cancel.
pub(in crate::htimer) const ALREADY_CANCELLED: i32 = 4;
/// Only a result.
pub(super) const GONE: i32 = 5;
/// Only a state: given to its target, which has not taken it in.
pub(in crate::htimer) const SENT: i32 = 6;

impl Timer {
    pub(in crate::htimer) fn state(&self) -> i32 {
        // Relaxed: what else is in the timer is read only by the thread that has it.
        self.state.load(Ordering::Relaxed).into()
    }

    pub(in crate::htimer) fn owner(&self) -> u32 {
        // Acquire: pairs with the release in `belongs_to`.
        self.owner.load(Ordering::Acquire)
    }

    /// Relaxed: the inbox publishes it.
    pub(super) fn enter(&self, state: i32) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    /// The thread with this stamp has the timer from here on.
    pub(super) fn belongs_to(&self, stamp: u32) {
        // Release: pairs with the acquire in `owner`. Whoever finds the target here, and asks it for a cancellation, makes the target see
        // that the timer was sent: H5.
        self.owner.store(stamp, Ordering::Release);
    }

    pub(super) fn node(&self) -> NonNull<Node> {
        NonNull::from(self).cast()
    }
}

/// What a caller says of a timer.
#[derive(Clone, Copy)]
pub(in crate::htimer) struct Wanted {
    pub(in crate::htimer) expiration: u64,
    pub(in crate::htimer) period: u64,
    pub(in crate::htimer) function: unsafe extern "C-unwind" fn(*mut still_htimer, *mut c_void),
    pub(in crate::htimer) argument: *mut c_void,
    pub(in crate::htimer) flags: u32,
}

/// When a periodical timer is due next, after `now`: beats that were missed are left out. Divides only if some were.
pub(super) fn next_beat(last: u64, period: u64, now: u64) -> u64 {
    let next = last.saturating_add(period);
    match now.checked_sub(next) {
        None => next,
        Some(late) => next.saturating_add((late / period + 1).saturating_mul(period)),
    }
}

/// Calls a function of the program.
///
/// # Safety
/// The function may be called with the timer.
pub(super) unsafe fn call(timer: *const Timer, function: still_htimer_fn, argument: *mut c_void) {
    let _heeded = tsan::heed();
    if let Some(function) = function {
        // SAFETY: by the caller's promise.
        unsafe { function(timer.cast_mut().cast(), argument) };
    }
}

impl Timer {
    /// # Safety
    /// As for the function `call`. The timer may be freed afterwards.
    pub(super) unsafe fn call(&self) {
        // SAFETY: by the caller's promise.
        unsafe { call(self, self.function.get(), self.argument.get()) };
    }

    pub(super) fn set(&self, wanted: Wanted) {
        let Wanted { period, function, argument, flags, .. } = wanted;
        self.period.set(if flags & PERIODICAL == 0 { 0 } else { period });
        self.function.set(Some(function));
        self.argument.set(argument);
        self.flags.set(flags as u8);
    }
}
