//! DPDK's `rte_timer`. A tick is a cycle of the time stamp counter, which each call reads itself.

use std::marker::PhantomData;
use std::ptr::NonNull;

use super::{IdleTimers, TimerContender};
use crate::table::ThreadNumber;

#[repr(C)]
struct RawTimer {
    opaque: [u8; 0],
}

/// The functions of c/rte_timer.c.
struct Functions {
    new: unsafe extern "C" fn(usize) -> *mut RawTimer,
    free: unsafe extern "C" fn(*mut RawTimer),
    reset: unsafe extern "C" fn(*mut RawTimer, *const u64, usize) -> usize,
    lcore: unsafe extern "C" fn() -> u32,
    reset_on: unsafe extern "C" fn(*mut RawTimer, *const u64, usize, u32) -> usize,
    stop: unsafe extern "C" fn(*mut RawTimer, *const u32, usize) -> usize,
    manage: unsafe extern "C" fn(usize) -> u64,
    wait: unsafe extern "C" fn(u64),
    touch: unsafe extern "C" fn(*mut RawTimer, *const u32, usize, u64) -> usize,
    collect: unsafe extern "C" fn(*mut u32) -> usize,
    cycles: unsafe extern "C" fn() -> u64,
    hertz: unsafe extern "C" fn() -> u64,
}

/// Those whose names begin so.
macro_rules! functions {
    ($prefix:literal) => {{
        unsafe extern "C" {
            #[link_name = concat!($prefix, "new")]
            fn new(number: usize) -> *mut RawTimer;
            #[link_name = concat!($prefix, "free")]
            fn free(timers: *mut RawTimer);
            #[link_name = concat!($prefix, "reset")]
            fn reset(timers: *mut RawTimer, delays: *const u64, number: usize) -> usize;
            #[link_name = concat!($prefix, "lcore")]
            fn lcore() -> u32;
            #[link_name = concat!($prefix, "reset_on")]
            fn reset_on(timers: *mut RawTimer, delays: *const u64, number: usize, lcore: u32) -> usize;
            #[link_name = concat!($prefix, "stop")]
            fn stop(timers: *mut RawTimer, order: *const u32, number: usize) -> usize;
            #[link_name = concat!($prefix, "manage")]
            fn manage(times: usize) -> u64;
            #[link_name = concat!($prefix, "wait")]
            fn wait(cycles: u64);
            #[link_name = concat!($prefix, "touch")]
            fn touch(timers: *mut RawTimer, which: *const u32, number: usize, delay: u64) -> usize;
            #[link_name = concat!($prefix, "collect")]
            fn collect(numbers: *mut u32) -> usize;
            #[link_name = concat!($prefix, "cycles")]
            fn cycles() -> u64;
            #[link_name = concat!($prefix, "hertz")]
            fn hertz() -> u64;
        }
        Functions { new, free, reset, lcore, reset_on, stop, manage, wait, touch, collect, cycles, hertz }
    }};
}

static DPDKS: Functions = functions!("stillpoint_timers_");
/// Compiled against stillpoint's header in the place of DPDK's.
static OURS: Functions = functions!("stillpoint_drop_in_timers_");

/// Not `Send`: the timers are those of the thread that has initialised DPDK.
struct RteTimer {
    name: &'static str,
    functions: &'static Functions,
    timers: NonNull<RawTimer>,
    number: usize,
    /// Those that were added last.
    added: usize,
}

/// So many timers, to be used by the thread that has called
/// [`initialise_dpdk`](crate::table::initialise_dpdk).
///
/// # Errors
/// When there is no memory.
pub fn rte_timer(timers: usize) -> Result<Box<dyn TimerContender>, String> {
    Ok(Box::new(RteTimer::new("dpdk/rte_timer", &DPDKS, timers)?))
}

/// The same, from the program that was compiled against stillpoint's `rte_timer.h`.
///
/// # Errors
/// When there is no memory.
pub fn rte_timer_drop_in(timers: usize) -> Result<Box<dyn TimerContender>, String> {
    Ok(Box::new(RteTimer::new("drop-in/rte_timer", &OURS, timers)?))
}

/// The timers of so many connections, DPDK's or stillpoint's under its names.
///
/// # Errors
/// When there is no memory.
pub fn idle_rte_timer(timers: usize, drop_in: bool) -> Result<Box<dyn IdleTimers>, String> {
    let (name, functions) = if drop_in { ("drop-in/rte_timer", &OURS) } else { ("dpdk/rte_timer", &DPDKS) };
    let timers = RteTimer::new(name, functions, timers)?;
    // SAFETY: the layer was initialised, or there would be no timers.
    let (begin, hertz) = unsafe { ((functions.cycles)(), (functions.hertz)()) };
    Ok(Box::new(Idle { timers, begin, hertz, latest: 0 }))
}

/// Timers of the thread that has initialised DPDK, added and cancelled by another one.
pub struct RemoteRteTimer {
    timers: RteTimer,
    lcore: u32,
}

/// The access of a thread other than the one that has initialised DPDK. It stays in its thread.
pub struct RemoteSource<'t> {
    remote: &'t RemoteRteTimer,
    /// DPDK's own number of the thread.
    _number: ThreadNumber,
    here: PhantomData<*mut ()>,
}

// SAFETY: of what is shared, other threads call only `source`, and its calls are those that `rte_timer` and our header have for any
// thread: they hold the lock of the timer's list, or send a message to its lcore.
unsafe impl Sync for RemoteRteTimer {}

impl RemoteRteTimer {
    /// That many timers of the calling thread, which has initialised DPDK: DPDK's, or stillpoint's under its names.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn new(timers: usize, drop_in: bool) -> Result<Self, String> {
        let (name, functions) =
            if drop_in { ("drop-in/rte_timer", &OURS) } else { ("dpdk/rte_timer", &DPDKS) };
        // SAFETY: the layer was initialised by this thread.
        let lcore = unsafe { (functions.lcore)() };
        Ok(Self { timers: RteTimer::new(name, functions, timers)?, lcore })
    }

    /// What another thread may do.
    pub fn source(&self) -> RemoteSource<'_> {
        RemoteSource { remote: self, _number: ThreadNumber::take(), here: PhantomData }
    }

    /// Polls once, in the thread that this was made in; how many timers have fired.
    pub fn manage(&mut self) -> u64 {
        self.timers.idle(1)
    }
}

impl RemoteSource<'_> {
    /// Adds a timer for each delay, in cycles from now; how many could be.
    pub fn add(&self, delays: &[u64]) -> usize {
        let RteTimer { functions, timers, number, .. } = &self.remote.timers;
        assert!(delays.len() <= *number, "more timers than were made");
        // SAFETY: there are as many timers, and as many delays.
        unsafe { (functions.reset_on)(timers.as_ptr(), delays.as_ptr(), delays.len(), self.remote.lcore) }
    }

    /// Cancels timers, by the order of their addition; how many had not fired.
    pub fn cancel(&self, order: &[u32]) -> usize {
        let RteTimer { functions, timers, number, .. } = &self.remote.timers;
        assert!(order.iter().all(|&which| (which as usize) < *number), "a timer that was not made");
        // SAFETY: every number is that of a timer.
        unsafe { (functions.stop)(timers.as_ptr(), order.as_ptr(), order.len()) }
    }
}

impl RteTimer {
    fn new(name: &'static str, functions: &'static Functions, number: usize) -> Result<Self, String> {
        // SAFETY: any number will do.
        let timers =
            NonNull::new(unsafe { (functions.new)(number) }).ok_or("rte_timer could not be set up")?;
        Ok(Self { name, functions, timers, number, added: 0 })
    }
}

/// Each call reads the counter by itself: a timer is armed some time after the one that the caller has read.
struct Idle {
    timers: RteTimer,
    begin: u64,
    hertz: u64,
    /// The longest of these times.
    latest: u64,
}

impl IdleTimers for Idle {
    fn clock(&mut self) -> u64 {
        // SAFETY: as when this was made.
        let cycles = unsafe { (self.timers.functions.cycles)() } - self.begin;
        (u128::from(cycles) * 1_000_000_000 / u128::from(self.hertz)) as u64
    }

    /// A nanosecond for the rounding of cycles, and what has passed before it was armed.
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
        assert!(connections.iter().all(|&which| (which as usize) < *number), "a timer that was not made");
        // Never before the timeout is over.
        let delay = (u128::from(timeout) * u128::from(self.hertz)).div_ceil(1_000_000_000) as u64;
        // SAFETY: every number is that of a timer.
        let done =
            unsafe { (functions.touch)(timers.as_ptr(), connections.as_ptr(), connections.len(), delay) };
        self.latest = self.latest.max(self.clock().saturating_sub(now));
        done
    }

    fn expire(&mut self, _now: u64, expired: &mut Vec<u32>) -> bool {
        expired.reserve(self.timers.number);
        let fired = expired.len();
        // SAFETY: no timer fires twice in a call, and there is room for all of them.
        unsafe {
            let more = (self.timers.functions.collect)(expired.as_mut_ptr().add(fired));
            expired.set_len(fired + more);
        }
        true
    }
}

impl TimerContender for RteTimer {
    fn name(&self) -> &'static str {
        self.name
    }

    fn add(&mut self, delays: &[u64]) -> Result<(), String> {
        assert!(delays.len() <= self.number, "more timers than were made");
        self.added = delays.len();
        // SAFETY: there are as many timers, and as many delays.
        let done = unsafe { (self.functions.reset)(self.timers.as_ptr(), delays.as_ptr(), delays.len()) };
        if done == delays.len() { Ok(()) } else { Err("rte_timer_reset refused a timer".to_owned()) }
    }

    fn reset(&mut self, delays: &[u64]) -> u64 {
        assert!(delays.len() <= self.number, "more timers than were made");
        // SAFETY: as in `add`.
        unsafe { (self.functions.reset)(self.timers.as_ptr(), delays.as_ptr(), delays.len()) as u64 }
    }

    fn cancel(&mut self, order: &[u32]) -> u64 {
        assert!(order.iter().all(|&which| (which as usize) < self.number), "a timer that was not made");
        // SAFETY: every number is that of a timer.
        unsafe { (self.functions.stop)(self.timers.as_ptr(), order.as_ptr(), order.len()) as u64 }
    }

    fn idle(&mut self, polls: usize) -> u64 {
        // SAFETY: this thread has initialised DPDK, and the timers that it may fire are alive.
        unsafe { (self.functions.manage)(polls) }
    }

    fn wait(&mut self, ticks: u64) {
        // SAFETY: any number of cycles will do.
        unsafe { (self.functions.wait)(ticks) };
    }

    fn expire(&mut self, _ticks: u64) -> u64 {
        self.idle(1)
    }

    fn forget(&mut self) {}
}

impl Drop for RteTimer {
    fn drop(&mut self) {
        let all: Vec<u32> = (0..self.number as u32).collect();
        self.cancel(&all);
        // SAFETY: no timer is pending any more.
        unsafe { (self.functions.free)(self.timers.as_ptr()) };
    }
}
