//! How a thread is scheduled. Another thread of the process reads and changes this.

#[cfg(not(any(stillpoint_loom, miri)))]
mod kernel;
#[cfg(any(stillpoint_loom, miri))]
#[allow(
    missing_docs,
    dead_code,
    reason = "`kernel` documents the same interface; no thread is boosted under Miri"
)]
mod model;

#[cfg(not(any(stillpoint_loom, miri)))]
pub use kernel::{probe_realtime, Before, Subject};
#[cfg(stillpoint_loom)]
pub use model::is_raised;
#[cfg(any(stillpoint_loom, miri))]
pub use model::{probe_realtime, Before, Subject};

/// A way to make the scheduler run a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Raises the thread to `SCHED_FIFO`.
    Realtime,
    /// Moves the thread to the CPU of the caller.
    Migrate,
}

/// What a booster finds.
#[derive(Debug)]
pub enum Finding {
    /// The thread runs, or sleeps, or has ended, or is a real-time thread.
    NoNeed,
    /// The thread waits for the caller's own CPU: if it were raised there, the caller would lose the CPU to it.
    GiveWay,
    /// The thread waits for a CPU. Contains the scheduling that the end of the boost restores.
    Boost(Before),
}
