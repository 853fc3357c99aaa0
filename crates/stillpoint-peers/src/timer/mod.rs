//! Timers of others behind one trait, for the experiment `timer`.

mod rust;

#[cfg(peer_dpdk)]
mod dpdk;
#[cfg(not(peer_dpdk))]
#[path = "no_dpdk.rs"]
mod dpdk;

pub use dpdk::{RemoteRteTimer, RemoteSource, idle_rte_timer, rte_timer, rte_timer_drop_in};
pub use rust::{DelayQueues, HashWheel, Nexus};

/// What can be asked of a contender besides adding and cancelling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// To give a timer another deadline.
    Reset,
    /// To fire in time that is told to it, or that passes.
    Expire,
    /// To be polled when nothing is due.
    Idle,
}

/// Timers under test. A tick is the contender's own: a nanosecond, a cycle, a millisecond.
///
/// The loops are the contender's own, so that they are compiled into one, as its users would have them.
pub trait TimerContender {
    /// The stable name, such as `dpdk/rte_timer`.
    fn name(&self) -> &'static str;

    /// Whether there is such a thing here.
    fn can(&self, ability: Ability) -> bool {
        let _ = ability;
        true
    }

    /// Adds a timer for each delay, in ticks from now. There are no others.
    ///
    /// # Errors
    /// When one of them was refused.
    fn add(&mut self, delays: &[u64]) -> Result<(), String>;

    /// Gives each timer, in the order of its addition, a new delay from now; how many could be.
    fn reset(&mut self, delays: &[u64]) -> u64;

    /// Cancels timers, by the order of their addition, each once; how many had not fired.
    fn cancel(&mut self, order: &[u32]) -> u64;

    /// Polls so many times in a row, with a time that goes on by one tick each; how many have fired.
    fn idle(&mut self, polls: usize) -> u64;

    /// Prepares for [`expire`](Self::expire): lets time pass where it passes by itself.
    fn wait(&mut self, ticks: u64) {
        let _ = ticks;
    }

    /// Fires what is due after so many further ticks; how many have fired.
    fn expire(&mut self, ticks: u64) -> u64;

    /// Forgets the handles of timers that have all fired or been cancelled.
    fn forget(&mut self);

    /// Ticks in a millisecond, where time is told; `None` where it passes by itself.
    fn millisecond(&self) -> Option<u64> {
        None
    }

    /// Adds `count` timers of one delay, in ticks from now, whose handles nobody keeps.
    ///
    /// # Errors
    /// When one of them was refused.
    fn renew(&mut self, delay: u64, count: u64) -> Result<(), String> {
        let _ = (delay, count);
        Ok(())
    }
}

/// Timers of connections, one each, which a packet sets anew. Times are nanoseconds of [`clock`](Self::clock).
pub trait IdleTimers {
    /// The time, as the contender's users read it.
    fn clock(&mut self) -> u64;

    /// How much later than at its deadline a timer may be due: deadlines are rounded, or counted from a later time.
    fn tick(&self) -> u64;

    /// Adds the timer of a connection that has none, for `timeout` after `now`.
    ///
    /// # Errors
    /// When it was refused.
    fn open(&mut self, connection: u32, now: u64, timeout: u64) -> Result<(), String>;

    /// Sets the timers of these connections for `timeout` after `now`, in this order; how many of them were there.
    fn packets(&mut self, connections: &[u32], now: u64, timeout: u64) -> usize;

    /// Fires what is due at `now`, and appends the connections to `expired`. False when something was left for the next call.
    fn expire(&mut self, now: u64, expired: &mut Vec<u32>) -> bool;
}
