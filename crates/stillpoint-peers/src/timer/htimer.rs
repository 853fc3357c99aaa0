//! Timers of `stillpoint/htimer.h`, through C. The experiment sets the time.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr::NonNull;

// Links the library, whose functions C calls by name.
use stillpoint_c as _;

use super::TimerContender;
use crate::c_functions::opaque;

opaque! {
    struct RawTimer;
    struct RawManager;
}

// The functions of c/htimer.c.
unsafe extern "C" {
    fn stillpoint_htimers_start(requests: usize) -> c_int;
    fn stillpoint_htimers_stop() -> c_int;
    fn stillpoint_htimers_new(number: usize) -> *mut RawTimer;
    fn stillpoint_htimers_add(timers: *mut RawTimer, delays: *const u64, number: usize) -> usize;
    fn stillpoint_htimers_reset(timers: *mut RawTimer, delays: *const u64, number: usize) -> usize;
    fn stillpoint_htimers_cancel(timers: *mut RawTimer, order: *const u32, number: usize) -> usize;
    fn stillpoint_htimers_manage(now: u64, times: usize) -> u64;
    fn stillpoint_htimers_self() -> *mut RawManager;
    fn stillpoint_htimers_ask(
        target: *mut RawManager,
        timers: *mut RawTimer,
        delays: *const u64,
        number: usize,
        burst: usize,
    ) -> usize;
    fn stillpoint_htimers_ask_to_cancel(timers: *mut RawTimer, number: usize) -> usize;
    fn stillpoint_htimers_process() -> usize;
    fn stillpoint_htimers_told(result: c_int) -> usize;
    fn free(memory: *mut RawTimer);
}

/// The timers of a thread, which has a manager as long as this value lives.
struct Timers {
    timers: NonNull<RawTimer>,
    number: usize,
    /// The manager is the thread's.
    here: PhantomData<*mut ()>,
}

impl Timers {
    /// Starts the calling thread's manager, with room for this many requests.
    fn new(number: usize, requests: usize) -> Result<Self, String> {
        // SAFETY: the function takes any number.
        match unsafe { stillpoint_htimers_start(requests) } {
            0 => {}
            errno => return Err(format!("still_htimer_start: {errno}")),
        }
        // SAFETY: as above.
        let timers = NonNull::new(unsafe { stillpoint_htimers_new(number) });
        let timers = timers.ok_or("there is no memory for timers")?;
        Ok(Self { timers, number, here: PhantomData })
    }

    /// Adds a timer for each delay. Returns how many were added.
    fn add(&mut self, delays: &[u64]) -> usize {
        assert!(delays.len() <= self.number, "more delays than timers");
        // SAFETY: there are at least as many timers as delays.
        unsafe { stillpoint_htimers_add(self.timers.as_ptr(), delays.as_ptr(), delays.len()) }
    }

    /// Cancels the timers with these numbers. Returns how many were pending.
    fn cancel(&mut self, order: &[u32]) -> usize {
        assert!(order.iter().all(|&which| (which as usize) < self.number), "a number that no timer has");
        // SAFETY: each number is less than the number of timers.
        unsafe { stillpoint_htimers_cancel(self.timers.as_ptr(), order.as_ptr(), order.len()) }
    }
}

impl Drop for Timers {
    fn drop(&mut self) {
        // SAFETY: the thread is the one that has started the manager. Stopping it takes all timers out.
        unsafe {
            assert_eq!(stillpoint_htimers_stop(), 0, "results are missing");
            free(self.timers.as_ptr());
        }
    }
}

/// Timers of one thread.
struct Htimers {
    timers: Timers,
    now: u64,
}

/// Makes this many timers of the calling thread, which must not have other ones.
///
/// # Errors
/// If there is no memory, or the thread has timers already.
pub fn htimer(timers: usize) -> Result<Box<dyn TimerContender>, String> {
    Ok(Box::new(Htimers { timers: Timers::new(timers, 0)?, now: 0 }))
}

impl TimerContender for Htimers {
    fn add(&mut self, delays: &[u64]) -> Result<(), String> {
        let is_whole = self.timers.add(delays) == delays.len();
        is_whole.then_some(()).ok_or_else(|| "still_htimer_add refused a timer".to_owned())
    }

    fn reset(&mut self, delays: &[u64]) -> u64 {
        assert!(delays.len() <= self.timers.number, "more delays than timers");
        // SAFETY: there are at least as many timers as delays.
        unsafe { stillpoint_htimers_reset(self.timers.timers.as_ptr(), delays.as_ptr(), delays.len()) as u64 }
    }

    fn cancel(&mut self, order: &[u32]) -> u64 {
        self.timers.cancel(order) as u64
    }

    fn idle(&mut self, polls: usize) -> u64 {
        let from = self.now + 1;
        self.now += polls as u64;
        // SAFETY: the timers that expire are alive: `Drop` takes all out.
        unsafe { stillpoint_htimers_manage(from, polls) }
    }

    fn expire(&mut self, ticks: u64) -> u64 {
        self.now += ticks;
        // SAFETY: as above.
        unsafe { stillpoint_htimers_manage(self.now, 1) }
    }
}

/// The timers of a thread that asks another one to add them.
pub struct HtimerSource(Timers);

/// The thread that is asked.
pub struct HtimerTarget(Timers);

/// The address of that thread's manager, for a source.
#[derive(Clone, Copy)]
pub struct HtimerAddress(*mut RawManager);

// SAFETY: managers are for all threads.
unsafe impl Send for HtimerAddress {}
// SAFETY: as above.
unsafe impl Sync for HtimerAddress {}

impl HtimerTarget {
    /// Makes the calling thread a target, with this many timers of its own.
    ///
    /// # Errors
    /// If there is no memory, or the thread has timers already.
    pub fn new(timers: usize) -> Result<Self, String> {
        Timers::new(timers, 0).map(Self)
    }

    /// Its address.
    pub fn address(&self) -> HtimerAddress {
        // SAFETY: the calling thread has a manager.
        HtimerAddress(unsafe { stillpoint_htimers_self() })
    }

    /// Takes in what was asked for. Returns how many requests there were.
    pub fn process(&mut self) -> usize {
        // SAFETY: the calling thread has a manager.
        unsafe { stillpoint_htimers_process() }
    }

    /// Adds a timer of its own for each delay. Returns how many were added.
    pub fn add(&mut self, delays: &[u64]) -> usize {
        self.0.add(delays)
    }

    /// Cancels those timers. Returns how many were pending.
    pub fn cancel(&mut self, order: &[u32]) -> usize {
        self.0.cancel(order)
    }
}

/// Results of `stillpoint/htimer.h`.
const ADDED: c_int = 1;
const CANCELLED: c_int = 2;

impl HtimerSource {
    /// Makes timers of the calling thread, with room for as many requests.
    ///
    /// # Errors
    /// If there is no memory, or the thread has timers already.
    pub fn new(timers: usize) -> Result<Self, String> {
        Timers::new(timers, timers).map(Self)
    }

    /// Asks the target to add a timer for each delay, `burst` at a time. Returns the number of requests.
    pub fn ask(&mut self, target: HtimerAddress, delays: &[u64], burst: usize) -> usize {
        assert!(delays.len() <= self.0.number, "more delays than timers");
        // SAFETY: there are at least as many timers as delays, and managers are never freed.
        unsafe {
            stillpoint_htimers_ask(target.0, self.0.timers.as_ptr(), delays.as_ptr(), delays.len(), burst)
        }
    }

    /// Asks for the cancellation of all timers. Returns for how many it has asked.
    pub fn ask_to_cancel(&mut self) -> usize {
        // SAFETY: the timers were added.
        unsafe { stillpoint_htimers_ask_to_cancel(self.0.timers.as_ptr(), self.0.number) }
    }

    /// Takes the results that have come. Returns how many there were.
    pub fn take_results(&mut self) -> usize {
        // SAFETY: the calling thread has a manager.
        unsafe { stillpoint_htimers_process() }
    }

    /// How many timers were added, and how many cancelled, by the results since the last call.
    pub fn told(&mut self) -> (usize, usize) {
        // SAFETY: both are results.
        unsafe { (stillpoint_htimers_told(ADDED), stillpoint_htimers_told(CANCELLED)) }
    }
}
