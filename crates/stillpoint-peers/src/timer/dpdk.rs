//! DPDK's `rte_timer`. A tick is a cycle of the time stamp counter, which each call reads itself.

use std::ptr::NonNull;

use super::TimerContender;

#[repr(C)]
struct RawTimer {
    opaque: [u8; 0],
}

unsafe extern "C" {
    safe fn stillpoint_timers_new(number: usize) -> *mut RawTimer;
    fn stillpoint_timers_free(timers: *mut RawTimer);
    fn stillpoint_timers_reset(timers: *mut RawTimer, delays: *const u64, number: usize) -> usize;
    fn stillpoint_timers_stop(timers: *mut RawTimer, order: *const u32, number: usize) -> usize;
    fn stillpoint_timers_manage(times: usize) -> u64;
    safe fn stillpoint_timers_wait(cycles: u64);
}

/// Not `Send`: the timers are those of the thread that has initialised DPDK.
struct RteTimer {
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
    let raw = NonNull::new(stillpoint_timers_new(timers)).ok_or("rte_timer could not be set up")?;
    Ok(Box::new(RteTimer { timers: raw, number: timers, added: 0 }))
}

impl TimerContender for RteTimer {
    fn name(&self) -> &'static str {
        "dpdk/rte_timer"
    }

    fn add(&mut self, delays: &[u64]) -> Result<(), String> {
        assert!(delays.len() <= self.number, "more timers than were made");
        self.added = delays.len();
        // SAFETY: there are as many timers, and as many delays.
        let done = unsafe { stillpoint_timers_reset(self.timers.as_ptr(), delays.as_ptr(), delays.len()) };
        if done == delays.len() { Ok(()) } else { Err("rte_timer_reset refused a timer".to_owned()) }
    }

    fn reset(&mut self, delays: &[u64]) -> u64 {
        assert!(delays.len() <= self.number, "more timers than were made");
        // SAFETY: as in `add`.
        unsafe { stillpoint_timers_reset(self.timers.as_ptr(), delays.as_ptr(), delays.len()) as u64 }
    }

    fn cancel(&mut self, order: &[u32]) -> u64 {
        assert!(order.iter().all(|&which| (which as usize) < self.number), "a timer that was not made");
        // SAFETY: every number is that of a timer.
        unsafe { stillpoint_timers_stop(self.timers.as_ptr(), order.as_ptr(), order.len()) as u64 }
    }

    fn idle(&mut self, polls: usize) -> u64 {
        // SAFETY: this thread has initialised DPDK, and the timers that it may fire are alive.
        unsafe { stillpoint_timers_manage(polls) }
    }

    fn wait(&mut self, ticks: u64) {
        stillpoint_timers_wait(ticks);
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
        unsafe { stillpoint_timers_free(self.timers.as_ptr()) };
    }
}
