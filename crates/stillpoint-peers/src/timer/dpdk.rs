//! DPDK's `rte_timer`. A tick is a cycle of the time stamp counter, which each call reads itself.

use std::ptr::NonNull;

use super::TimerContender;

#[repr(C)]
struct RawTimer {
    opaque: [u8; 0],
}

/// The functions of c/rte_timer.c.
struct Functions {
    new: unsafe extern "C" fn(usize) -> *mut RawTimer,
    free: unsafe extern "C" fn(*mut RawTimer),
    reset: unsafe extern "C" fn(*mut RawTimer, *const u64, usize) -> usize,
    stop: unsafe extern "C" fn(*mut RawTimer, *const u32, usize) -> usize,
    manage: unsafe extern "C" fn(usize) -> u64,
    wait: unsafe extern "C" fn(u64),
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
            #[link_name = concat!($prefix, "stop")]
            fn stop(timers: *mut RawTimer, order: *const u32, number: usize) -> usize;
            #[link_name = concat!($prefix, "manage")]
            fn manage(times: usize) -> u64;
            #[link_name = concat!($prefix, "wait")]
            fn wait(cycles: u64);
        }
        Functions { new, free, reset, stop, manage, wait }
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
    made("dpdk/rte_timer", &DPDKS, timers)
}

/// The same, from the program that was compiled against stillpoint's `rte_timer.h`.
///
/// # Errors
/// When there is no memory.
pub fn rte_timer_drop_in(timers: usize) -> Result<Box<dyn TimerContender>, String> {
    made("drop-in/rte_timer", &OURS, timers)
}

fn made(
    name: &'static str,
    functions: &'static Functions,
    number: usize,
) -> Result<Box<dyn TimerContender>, String> {
    // SAFETY: any number will do.
    let timers = NonNull::new(unsafe { (functions.new)(number) }).ok_or("rte_timer could not be set up")?;
    Ok(Box::new(RteTimer { name, functions, timers, number, added: 0 }))
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
