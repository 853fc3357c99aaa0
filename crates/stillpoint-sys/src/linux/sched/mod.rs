//! How a thread is scheduled, seen and changed by another thread of the process.

#[cfg(not(any(loom, miri)))]
mod kernel;
#[cfg(any(loom, miri))]
#[allow(missing_docs, dead_code, reason = "as the real one; nobody is boosted under Miri")]
mod model;

#[cfg(not(any(loom, miri)))]
pub use kernel::{probe_realtime, Before, Subject};
#[cfg(loom)]
pub use model::is_raised;
#[cfg(any(loom, miri))]
pub use model::{probe_realtime, Before, Subject};

/// A way to get a thread to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Raised to `SCHED_FIFO`.
    Realtime,
    /// Over to the CPU of the caller.
    Migrate,
}

/// What a booster finds.
#[derive(Debug)]
pub enum Finding {
    /// The thread runs, or sleeps, or has ended, or is a real-time thread.
    NoNeed,
    /// It waits for the very CPU that the caller is on: to raise it there would be to lose the CPU to it.
    GiveWay,
    /// It waits for a CPU: this is to be restored when it was boosted.
    Boost(Before),
}
