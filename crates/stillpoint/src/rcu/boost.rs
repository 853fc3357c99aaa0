use std::time::Duration;

use super::engine::boost::Boosting;
use super::error::BuildError;
#[cfg(all(feature = "boost", target_os = "linux"))]
use stillpoint_sys::linux::sched::{self, Way};

/// What a domain does about a region reader that holds a grace period up because it waits for a CPU.
///
/// A thread that is preempted inside a guard, or between two quiescent states, holds up everything that is retired
/// until the scheduler runs it again. With more readers than CPUs that takes milliseconds. A boost gets such a reader to
/// run to the end of its section at once. Readers that hold protected loads alone need none.
///
/// Whoever waits or polls in the domain boosts: `synchronize` and the other waits, [`Reclaimer`](super::Reclaimer)s and
/// [`BackgroundReclaimer`](super::BackgroundReclaimer)s. It acts when a grace period has been held up for longer than
/// [`boost_after`](super::DomainBuilder::boost_after), on readers that want to run and do not: never on one that runs,
/// sleeps, or is stopped, and never on a real-time thread.
///
/// No thread stays raised or moved. The reader lets go of it at the end of its section, or when it is dropped; if its
/// section lasts longer than 2 ms, the next poll or wait in the domain ends the boost; a reclaimer that is dropped or has
/// nothing left to wait for, or a wait that gives up, ends it at once; so do the end of the thread, and `fork`. **A
/// reclaimer that has given a boost must be polled, or dropped**: nobody else watches the limit. What somebody else has
/// changed meanwhile is left as it is. A reader that is boosted pays some system calls at the end of the section; the
/// others pay nothing. Registering a thread's first reader opens a file in `/proc`; where that fails, its readers are
/// not boosted, which [`Stats::boost_refused`](super::Stats::boost_refused) counts.
///
/// Only on Linux. Elsewhere there is [`Off`](Boost::Off), as without the feature `boost`.
///
/// What a thread starts inside a section inherits what it has at that moment. A moved thread's children (threads and
/// programs) are on one CPU; those of a raised one are ordinary, for which it has the flag `SCHED_RESET_ON_FORK`
/// meanwhile (and keeps it without the capability `CAP_SYS_NICE`). Start them outside sections: drop the guard, or go
/// offline. After a boost, a thread's CPU mask is the one it had, as an explicit wish.
///
#[cfg_attr(all(feature = "boost", target_os = "linux"), doc = "```")]
#[cfg_attr(not(all(feature = "boost", target_os = "linux")), doc = "```compile_fail")]
/// use stillpoint::rcu::{Domain, Boost};
///
/// let domain = Domain::builder().boost(Boost::Realtime).boost_fallback(Boost::Migrate).build()?;
/// assert_ne!(domain.boost(), Boost::Off);
/// # Ok::<(), stillpoint::rcu::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Boost {
    /// Nothing: a preempted reader is waited for.
    #[default]
    Off,
    /// Raises the reader to the lowest real-time priority (`SCHED_FIFO`, 1) until the end of its section.
    ///
    /// Needs the capability `CAP_SYS_NICE`, or a limit of real-time priorities (`RLIMIT_RTPRIO`) of at least 1. A reader
    /// that waits for the booster's own CPU is not raised there, where it would take the CPU from its booster: the booster
    /// gives way. All in all, one thread less than there are CPUs is raised at a time.
    #[cfg(all(feature = "boost", target_os = "linux"))]
    Realtime,
    /// Moves the reader to the CPU of the thread that waits for it, which gives way, until the end of its section.
    ///
    /// Needs no right. Breaks pinning for so long, and does nothing for a reader that waits for the very CPU of the
    /// booster.
    #[cfg(all(feature = "boost", target_os = "linux"))]
    Migrate,
}

impl Boost {
    /// What the engine needs for it, if this process may.
    #[cfg(all(feature = "boost", target_os = "linux"))]
    pub(super) fn prepare(self, after: Duration) -> Result<Option<Boosting>, BuildError> {
        let way = match self {
            Boost::Off => return Ok(None),
            Boost::Migrate => Way::Migrate,
            Boost::Realtime => sched::probe_realtime()
                .map_err(|error| BuildError::Boost { boost: self, errno: error.raw_os_error() })?,
        };
        Ok(Some(Boosting::new(way, after)))
    }

    #[cfg(not(all(feature = "boost", target_os = "linux")))]
    pub(super) fn prepare(self, _: Duration) -> Result<Option<Boosting>, BuildError> {
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
