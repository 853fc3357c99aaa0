//! Other projects' timers behind one trait, for the experiment `timer`.

mod rust;

#[cfg(peer_dpdk)]
mod dpdk;
#[cfg(not(peer_dpdk))]
#[path = "no_dpdk.rs"]
mod dpdk;

#[cfg(peer_c)]
mod htimer;
#[cfg(not(peer_c))]
#[path = "no_htimer.rs"]
mod htimer;

pub use dpdk::{RemoteRteTimer, RemoteSource, idle_rte_timer, rte_timer};
pub use htimer::{HtimerAddress, HtimerSource, HtimerTarget, htimer};
pub use rust::{DelayQueues, HashWheel, Nexus};

/// What a contender may be able to do besides adding and cancelling timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// Give a timer another deadline.
    Reset,
    /// Fire timers at a time that the experiment sets or waits for.
    Expire,
    /// Be polled when no timer is due.
    Idle,
}

/// Timers under test. Each contender has its own tick, such as a nanosecond, a cycle or a millisecond.
///
/// Each contender has its own loops, so that its calls are inlined into them, as in its users' programs.
pub trait TimerContender {
    /// Whether the contender has this ability. Without it, the method does nothing.
    fn can(&self, ability: Ability) -> bool {
        let _ = ability;
        true
    }

    /// Adds a timer for each delay, in ticks from now. Before this call, the contender has no timers.
    ///
    /// # Errors
    /// If a timer was refused.
    fn add(&mut self, delays: &[u64]) -> Result<(), String>;

    /// Gives each timer, in the order of addition, a new delay from now. Returns how many timers were reset.
    fn reset(&mut self, delays: &[u64]) -> u64 {
        let _ = delays;
        0
    }

    /// Cancels the timers with these numbers, each once; timers are numbered in the order of their addition. Returns how many had not
    /// fired.
    fn cancel(&mut self, order: &[u32]) -> u64;

    /// Polls `polls` times in a row. Where the time is set, it advances by one tick before each poll. Returns how many timers have
    /// fired.
    fn idle(&mut self, polls: usize) -> u64 {
        let _ = polls;
        0
    }

    /// Prepares for [`expire`](Self::expire): waits for `ticks` ticks if the contender reads a clock that cannot be set.
    fn wait(&mut self, ticks: u64) {
        let _ = ticks;
    }

    /// Fires the timers that are due `ticks` ticks later. Returns how many have fired.
    fn expire(&mut self, ticks: u64) -> u64 {
        let _ = ticks;
        0
    }

    /// Drops the handles of the timers, all of which have fired or been cancelled.
    fn forget(&mut self) {}

    /// Ticks in a millisecond if the experiment sets the time; `None` if the contender reads a clock.
    fn millisecond(&self) -> Option<u64> {
        None
    }

    /// Adds `count` timers with the same delay, in ticks from now, and keeps no handles.
    ///
    /// # Errors
    /// If a timer was refused.
    fn renew(&mut self, delay: u64, count: u64) -> Result<(), String> {
        let _ = (delay, count);
        Ok(())
    }
}

/// A queue of delays that a task reads, in real time. Times are nanoseconds.
pub trait Delays {
    /// Inserts an item for each delay from now. Before this call, the queue is empty.
    ///
    /// # Errors
    /// If an item was refused.
    fn insert(&mut self, delays: &[u64]) -> Result<(), String>;

    /// Gives the items with these numbers, each once, new delays from now; items are numbered in the order of their insertion. Returns
    /// how many were reset.
    fn reset(&mut self, order: &[u32], delays: &[u64]) -> u64;

    /// Takes out what is due, as a task does that asks for the next item until it would have to wait. Returns the sum of the items,
    /// each of which is 1.
    fn take(&mut self) -> u64;

    /// Drops all items.
    fn clear(&mut self);
}

/// Timers of connections, one for each, which each packet resets. Times are nanoseconds of [`clock`](Self::clock).
pub trait IdleTimers {
    /// The time, as the contender's users read it.
    fn clock(&mut self) -> u64;

    /// How much later than its deadline a timer may be due. Deadlines may be rounded, or counted from a later time.
    fn tick(&self) -> u64;

    /// Adds the timer of a connection that has none, for `timeout` after `now`.
    ///
    /// # Errors
    /// If the timer was refused.
    fn open(&mut self, connection: u32, now: u64, timeout: u64) -> Result<(), String>;

    /// Resets the timers of these connections, in this order, to `timeout` after `now`. Returns how many were reset.
    fn packets(&mut self, connections: &[u32], now: u64, timeout: u64) -> usize;

    /// Fires the timers that are due at `now`, and appends their connections to `expired`. Returns false if the next call has more to
    /// fire.
    fn expire(&mut self, now: u64, expired: &mut Vec<u32>) -> bool;
}
