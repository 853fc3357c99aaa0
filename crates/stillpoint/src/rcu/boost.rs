use std::time::Duration;

use super::engine::boost::Boosting;
#[cfg(all(feature = "boost", target_os = "linux"))]
use stillpoint_sys::linux::sched::{self, Way};

/// What a domain does about a region reader that blocks a grace period because it waits for a CPU.
///
/// A thread that is preempted inside a guard, or between two quiescent states, keeps alive everything that is retired
/// until the scheduler runs it again. With more readers than CPUs that takes milliseconds. A boost makes the scheduler run
/// such a reader to the end of its section at once. Readers that hold only protected loads need no boost.
///
/// The threads that wait or poll in the domain boost: `synchronize` and the other waits, [`Reclaimer`](super::Reclaimer)s and
/// [`BackgroundReclaimer`](super::BackgroundReclaimer)s. They act when a grace period has been blocked for longer than
/// [`boost_after`](super::DomainBuilder::boost_after). They boost only readers that are runnable but not running: never a reader
/// that runs, sleeps, or is stopped, and never a real-time thread.
///
/// Every boost ends:
/// - The reader ends it at the end of its section, or when the reader is dropped.
/// - If the section lasts longer than 2 ms, the next poll or wait in the domain ends it.
/// - A reclaimer that is dropped or has nothing left to wait for ends it at once, as does a wait that gives up.
/// - The end of the thread and `fork` end it.
///
/// **A reclaimer that has given a boost must be polled, or dropped**: the library has no thread that would watch the 2 ms. If
/// other code changes the thread's scheduling meanwhile, that change stays, unless it sets just what the boost has set (the one CPU, or
/// `SCHED_FIFO` with priority 1), or comes while a booster is looking at the thread. A reader that is boosted pays some system calls at the
/// end of the section; other readers pay nothing. Registering a thread's first reader opens a file in `/proc`. If that fails, the
/// thread's readers are not boosted, which [`Stats::boost_refused`](super::Stats::boost_refused) counts.
///
/// Only on Linux. On other systems, and without the feature `boost`, [`Off`](Boost::Off) is the only choice.
///
/// Threads and programs that a thread starts inside a section inherit the thread's scheduling at that moment. If the thread was
/// moved, they are confined to one CPU. If it was raised, they are ordinary, because a raised thread has the flag
/// `SCHED_RESET_ON_FORK` (and keeps it after the boost if it lacks the capability `CAP_SYS_NICE`). Start threads and programs
/// outside sections: drop the guard, or go offline. A booster that is late may still boost the thread for a moment after that, until it has
/// seen that the section is over. What must never inherit a boost is started by a thread that has no readers in domains that boost. After a
/// boost, a thread's CPU mask is the one it had, set explicitly.
///
#[cfg_attr(all(feature = "boost", target_os = "linux"), doc = "```")]
#[cfg_attr(not(all(feature = "boost", target_os = "linux")), doc = "```compile_fail")]
/// use std::time::Duration;
/// use stillpoint::rcu::{Boost, Domain};
///
/// let domain = Domain::builder()
///     .boost(Boost::Realtime)
///     .boost_fallback(Boost::Migrate) // where this process may not raise threads
///     .boost_after(Duration::from_micros(100))
///     .build()?;
/// assert_ne!(domain.boost(), Boost::Off);
/// # Ok::<(), stillpoint::rcu::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Boost {
    /// Does nothing: a preempted reader is waited for.
    #[default]
    Off,
    /// Raises the reader to the lowest real-time priority (`SCHED_FIFO`, 1) until the end of its section.
    ///
    /// Needs the capability `CAP_SYS_NICE`, or a limit of real-time priorities (`RLIMIT_RTPRIO`) of at least 1. A reader
    /// that waits for the booster's own CPU is not raised, because it would take the CPU from its booster: the booster
    /// yields. In a process that may use n CPUs, at most n - 1 threads are raised at a time, or one if n is 1.
    #[cfg(all(feature = "boost", target_os = "linux"))]
    Realtime,
    /// Moves the reader to the CPU of the thread that waits for it, until the end of its section. The waiting thread yields.
    ///
    /// Needs no privilege. Breaks the pinning of the reader's thread for this time. Does nothing for a reader that already
    /// waits for the booster's own CPU.
    #[cfg(all(feature = "boost", target_os = "linux"))]
    Migrate,
}

impl Boost {
    /// What the engine needs for this boost, if the process may use it. Fails with the error number of the system call, as in
    /// `errno.h`.
    #[cfg(all(feature = "boost", target_os = "linux"))]
    pub(super) fn prepare(self, after: Duration) -> Result<Option<Boosting>, i32> {
        let way = match self {
            Boost::Off => return Ok(None),
            Boost::Migrate => Way::Migrate,
            Boost::Realtime => sched::probe_realtime()?,
        };
        Ok(Some(Boosting::new(way, after)))
    }

    #[cfg(not(all(feature = "boost", target_os = "linux")))]
    pub(super) fn prepare(self, _: Duration) -> Result<Option<Boosting>, i32> {
        Ok(None)
    }

    #[cfg(all(feature = "boost", target_os = "linux"))]
    pub(super) fn of(boosting: Option<&Boosting>) -> Self {
        match boosting.map(|boosting| boosting.way) {
            None => Boost::Off,
            Some(Way::Realtime) => Boost::Realtime,
            Some(Way::Migrate) => Boost::Migrate,
        }
    }

    #[cfg(not(all(feature = "boost", target_os = "linux")))]
    pub(super) fn of(_: Option<&Boosting>) -> Self {
        Boost::Off
    }
}
