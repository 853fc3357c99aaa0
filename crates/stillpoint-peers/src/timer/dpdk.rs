//! DPDK's `rte_timer`. A tick is a cycle of the timestamp counter. Each call reads the counter itself.

use std::marker::PhantomData;
use std::ptr::NonNull;

use super::{IdleTimers, TimerContender};
use crate::c_functions::{c_functions, opaque};
use crate::table::ThreadNumber;

opaque! {
    struct RawTimer;
}

c_functions! { $
    /// The functions of c/rte_timer.c.
    struct Functions by functions_of {
        new(number: usize) -> *mut RawTimer;
        free(timers: *mut RawTimer);
        reset(timers: *mut RawTimer, delays: *const u64, number: usize) -> usize;
        lcore() -> u32;
        reset_on(timers: *mut RawTimer, delays: *const u64, number: usize, lcore: u32) -> usize;
        stop(timers: *mut RawTimer, order: *const u32, number: usize) -> usize;
        manage(times: usize) -> u64;
        wait(cycles: u64);
        touch(timers: *mut RawTimer, which: *const u32, number: usize, delay: u64) -> usize;
        collect(numbers: *mut u32) -> usize;
        cycles() -> u64;
        hertz() -> u64;
    }
}

static DPDKS: Functions = functions_of!("stillpoint_timers_");
/// The functions that were compiled against stillpoint's header in the place of DPDK's.
static OURS: Functions = functions_of!("stillpoint_drop_in_timers_");

/// Not `Send`: the timers belong to the thread that initialised DPDK.
struct RteTimer {
    functions: &'static Functions,
    timers: NonNull<RawTimer>,
    number: usize,
}

/// DPDK's functions, or stillpoint's under DPDK's names if `drop_in` is set.
fn functions(drop_in: bool) -> &'static Functions {
    if drop_in { &OURS } else { &DPDKS }
}

/// Makes `timers` timers: DPDK's, or those of the same C code compiled against stillpoint's `rte_timer.h` if `drop_in` is set. Only the
/// thread that called [`initialise_dpdk`](crate::table::initialise_dpdk) may use them.
///
/// # Errors
/// If there is no memory.
pub fn rte_timer(timers: usize, drop_in: bool) -> Result<Box<dyn TimerContender>, String> {
    Ok(Box::new(RteTimer::new(functions(drop_in), timers)?))
}

/// Makes the timers of `timers` connections: DPDK's, or stillpoint's under DPDK's names if `drop_in` is set.
///
/// # Errors
/// If there is no memory.
pub fn idle_rte_timer(timers: usize, drop_in: bool) -> Result<Box<dyn IdleTimers>, String> {
    let functions = functions(drop_in);
    let timers = RteTimer::new(functions, timers)?;
    // SAFETY: the caller has initialised the layer, without which no timers could be made.
    let (begin, hertz) = unsafe { ((functions.cycles)(), (functions.hertz)()) };
    Ok(Box::new(Idle { timers, begin, hertz, latest: 0 }))
}

/// Timers of the thread that initialised DPDK, which another thread adds and cancels.
pub struct RemoteRteTimer {
    timers: RteTimer,
    lcore: u32,
}

/// The access of another thread to these timers. It cannot be sent to a third thread.
pub struct RemoteSource<'t> {
    remote: &'t RemoteRteTimer,
    /// The thread's number in DPDK.
    _number: ThreadNumber,
    here: PhantomData<*mut ()>,
}

// SAFETY: through a shared reference, other threads can call only `source`. The calls of a source may be made by any thread:
// DPDK's and those of stillpoint's header take the lock of the timer's list.
unsafe impl Sync for RemoteRteTimer {}

impl RemoteRteTimer {
    /// Makes `timers` timers of the calling thread, which must have initialised DPDK. They are DPDK's, or stillpoint's under
    /// DPDK's names if `drop_in` is set.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn new(timers: usize, drop_in: bool) -> Result<Self, String> {
        let functions = functions(drop_in);
        // SAFETY: this thread has initialised the layer.
        let lcore = unsafe { (functions.lcore)() };
        Ok(Self { timers: RteTimer::new(functions, timers)?, lcore })
    }

    /// The access of the calling thread, which need not be the thread of the timers.
    pub fn source(&self) -> RemoteSource<'_> {
        RemoteSource { remote: self, _number: ThreadNumber::take(), here: PhantomData }
    }

    /// Polls once, on the thread that made the timers. Returns how many timers have fired.
    pub fn manage(&mut self) -> u64 {
        self.timers.idle(1)
    }
}

impl RemoteSource<'_> {
    /// Adds a timer for each delay, in cycles from now. Returns how many were added.
    pub fn add(&self, delays: &[u64]) -> usize {
        let RteTimer { functions, timers, number, .. } = &self.remote.timers;
        assert!(delays.len() <= *number, "more delays than timers");
        // SAFETY: there are at least as many timers as delays.
        unsafe { (functions.reset_on)(timers.as_ptr(), delays.as_ptr(), delays.len(), self.remote.lcore) }
    }

    /// Cancels the timers with these numbers; timers are numbered in the order of their addition. Returns how many had not fired.
    pub fn cancel(&self, order: &[u32]) -> usize {
        let RteTimer { functions, timers, number, .. } = &self.remote.timers;
        assert!(order.iter().all(|&which| (which as usize) < *number), "a number that no timer has");
        // SAFETY: each number is less than the number of timers.
        unsafe { (functions.stop)(timers.as_ptr(), order.as_ptr(), order.len()) }
    }
}

impl RteTimer {
    fn new(functions: &'static Functions, number: usize) -> Result<Self, String> {
        // SAFETY: `new` accepts any number, and returns null on failure.
        let timers =
            NonNull::new(unsafe { (functions.new)(number) }).ok_or("rte_timer could not be set up")?;
        Ok(Self { functions, timers, number })
    }
}

/// Each call reads the counter itself, so a timer is armed somewhat later than the time that the caller has read.
struct Idle {
    timers: RteTimer,
    begin: u64,
    hertz: u64,
    /// The longest time so far from the caller's read of the clock to the end of the call, in nanoseconds.
    latest: u64,
}

impl IdleTimers for Idle {
    fn clock(&mut self) -> u64 {
        // SAFETY: the layer is initialised, since the timers could be made.
        let cycles = unsafe { (self.timers.functions.cycles)() } - self.begin;
        (u128::from(cycles) * 1_000_000_000 / u128::from(self.hertz)) as u64
    }

    /// The sum of a nanosecond, because the delay in cycles is rounded up, and of the longest time so far between the caller's
    /// read of the clock and the end of the call.
    fn tick(&self) -> u64 {
        1 + self.latest
    }

    fn open(&mut self, connection: u32, now: u64, timeout: u64) -> Result<(), String> {
        match self.packets(&[connection], now, timeout) {
            1 => Ok(()),
            _ => Err("rte_timer_reset refused a timer".to_owned()),
        }
    }

    fn packets(&mut self, connections: &[u32], now: u64, timeout: u64) -> usize {
        let RteTimer { functions, timers, number, .. } = &self.timers;
        assert!(connections.iter().all(|&which| (which as usize) < *number), "a number that no timer has");
        // Rounded up, so that no timer fires before its timeout is over.
        let delay = (u128::from(timeout) * u128::from(self.hertz)).div_ceil(1_000_000_000) as u64;
        // SAFETY: each number is less than the number of timers.
        let done =
            unsafe { (functions.touch)(timers.as_ptr(), connections.as_ptr(), connections.len(), delay) };
        self.latest = self.latest.max(self.clock().saturating_sub(now));
        done
    }

    fn expire(&mut self, _now: u64, expired: &mut Vec<u32>) -> bool {
        expired.reserve(self.timers.number);
        let fired = expired.len();
        // SAFETY: `expired` has room for all timers, and none fires twice in a call; `collect` returns how many numbers it wrote.
        unsafe {
            let more = (self.timers.functions.collect)(expired.as_mut_ptr().add(fired));
            expired.set_len(fired + more);
        }
        true
    }
}

impl TimerContender for RteTimer {
    fn add(&mut self, delays: &[u64]) -> Result<(), String> {
        assert!(delays.len() <= self.number, "more delays than timers");
        // SAFETY: there are at least as many timers as delays.
        let done = unsafe { (self.functions.reset)(self.timers.as_ptr(), delays.as_ptr(), delays.len()) };
        if done == delays.len() { Ok(()) } else { Err("rte_timer_reset refused a timer".to_owned()) }
    }

    fn reset(&mut self, delays: &[u64]) -> u64 {
        assert!(delays.len() <= self.number, "more delays than timers");
        // SAFETY: there are at least as many timers as delays.
        unsafe { (self.functions.reset)(self.timers.as_ptr(), delays.as_ptr(), delays.len()) as u64 }
    }

    fn cancel(&mut self, order: &[u32]) -> u64 {
        assert!(order.iter().all(|&which| (which as usize) < self.number), "a number that no timer has");
        // SAFETY: each number is less than the number of timers.
        unsafe { (self.functions.stop)(self.timers.as_ptr(), order.as_ptr(), order.len()) as u64 }
    }

    fn idle(&mut self, polls: usize) -> u64 {
        // SAFETY: this thread has initialised DPDK. `Drop` stops all timers before it frees them, so those that fire are alive.
        unsafe { (self.functions.manage)(polls) }
    }

    fn wait(&mut self, ticks: u64) {
        // SAFETY: `wait` accepts any number of cycles.
        unsafe { (self.functions.wait)(ticks) };
    }

    fn expire(&mut self, _ticks: u64) -> u64 {
        self.idle(1)
    }
}

impl Drop for RteTimer {
    fn drop(&mut self) {
        let all: Vec<u32> = (0..self.number as u32).collect();
        self.cancel(&all);
        // SAFETY: `new` made the timers, and all have been cancelled.
        unsafe { (self.functions.free)(self.timers.as_ptr()) };
    }
}
