//! A timer in the program's memory: what it is, and whose.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

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
/// Between an asynchronous addition and the end of the timer, the fields are the target's, except `whose`, which other threads read: to
/// refuse a timer that is in use, and to find its thread.
#[repr(C)]
pub(in crate::htimer) struct Timer {
    pub(super) node: Node,
    /// In ticks once the timer is pending; before, as the program has said. 0 for once.
    pub(super) period: Cell<u64>,
    pub(super) function: Cell<still_htimer_fn>,
    pub(super) argument: Cell<*mut c_void>,
    /// The [stamp](Manager::stamp) of its manager, its flags, and its state; 32, 8 and 8 bits. 0: it never had one. Written only by the
    /// thread that has the timer.
    whose: AtomicU64,
}

const FLAGS_AT: u32 = 8;
const OWNER_AT: u32 = 32;

fn owner_of(whose: u64) -> u32 {
    (whose >> OWNER_AT) as u32
}

fn state_of(whose: u64) -> i32 {
    (whose as u8).into()
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
    /// Owner, flags and state of one moment, for [`set_whose`](Timer::set_whose).
    pub(super) fn whose(&self) -> u64 {
        // Relaxed: what else is in the timer is read only by the thread that has it. Whoever reads an owner here, and posts to its inbox,
        // makes that thread read the same word or a later one: H3.
        self.whose.load(Ordering::Relaxed)
    }

    pub(super) fn set_whose(&self, whose: u64) {
        // Relaxed: as in `whose`; an inbox publishes the rest.
        self.whose.store(whose, Ordering::Relaxed);
    }

    pub(in crate::htimer) fn state(&self) -> i32 {
        state_of(self.whose())
    }

    pub(in crate::htimer) fn owner(&self) -> u32 {
        owner_of(self.whose())
    }

    pub(super) fn flags(&self) -> u32 {
        u32::from((self.whose() >> FLAGS_AT) as u8)
    }

    pub(super) fn enter(&self, state: i32) {
        self.set_whose(self.whose() & !0xff | u64::from(state as u8));
    }

    /// The thread with this stamp has the timer from here on, with these flags, in this state.
    fn give(&self, stamp: u32, flags: u32, state: i32) {
        let flags = u64::from(flags as u8) << FLAGS_AT;
        self.set_whose(u64::from(stamp) << OWNER_AT | flags | u64::from(state as u8));
    }

    /// The state, if the thread with this stamp has the timer. Its own pending timer is in its wheel, as only it stores this word.
    pub(in crate::htimer) fn state_at(&self, stamp: u32) -> Option<i32> {
        let whose = self.whose();
        let state = state_of(whose);
        (owner_of(whose) == stamp && state != SENT).then_some(state)
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

    /// What the program wants is written down, in the timer of the thread with this stamp from here on.
    pub(super) fn set(&self, wanted: Wanted, stamp: u32, state: i32) {
        let Wanted { period, function, argument, flags, .. } = wanted;
        self.period.set(if flags & PERIODICAL == 0 { 0 } else { period });
        self.function.set(Some(function));
        self.argument.set(argument);
        self.give(stamp, flags, state);
    }
}
