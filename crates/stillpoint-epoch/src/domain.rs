//! The domain behind a collector: how much waits, which threads hold it up, and what is done about that. The original
//! has no counterpart.
//!
//! ```
//! use stillpoint_epoch::{domain, Collector};
//!
//! let collector = Collector::new();
//! let handle = collector.register();
//! let guard = handle.pin();
//! guard.defer(|| ());
//! let stats = domain::of(&collector).stats();
//! assert_eq!((stats.pending, stats.freed, stats.readers), (1, 0, 1));
//! guard.flush();
//! assert!(domain::of(&collector).stall().is_some(), "this very guard holds it up");
//! drop(guard);
//! assert_eq!(domain::of(&collector).stats().freed, 1);
//! ```
//!
//! What a domain reports is in rcu's words. For a collector they mean:
//!
//! | in rcu | for a collector |
//! |---|---|
//! | `Stats::retired`, `freed` | functions deferred so far, and run so far |
//! | `Stats::pending`, `pending_bytes` | functions that wait, and the bytes of what they free or own by value |
//! | `Stats::readers` | handles and threads that are registered |
//! | `Stats::oldest` | how long guards have delayed functions that a round has looked at; `None` if no guard is in their way |
//! | `Stats::grace_periods` | rounds that found new functions (a *round* is one search for functions to run) |
//! | `Stats::beyond_limits`, `handed_back` | functions deferred while the domain was full: refused at first, and then taken in beyond the limit |
//! | `Stall` | a guard that holds functions up: its thread, what it is doing, since when, and how much waits. A report to a hook counts only the functions of the list that the round has looked at; `Domain::stall` counts all |
//! | `Boost` | what rounds of other threads do to a preempted thread with a guard: raise its priority, or move it |
//! | limits | cannot refuse a function; in a full domain, `defer` runs functions that are ready |

pub use stillpoint::rcu::wait::{Activity, Stall};
pub use stillpoint::rcu::{Boost, BuildError, Domain, DomainBuilder, Stats};

pub use crate::collector::builder;
use crate::collector::Collector;
use crate::default;
use crate::rounds::Shared;

/// The domain of a collector.
///
/// ```
/// use stillpoint_epoch::{default_collector, domain};
///
/// assert_eq!(domain::of(default_collector()).name(), "crossbeam-epoch");
/// ```
pub fn of(collector: &Collector) -> &Domain {
    collector.shared().domain()
}

/// Makes a collector over a domain. The domain may also have cells, readers, reclaimers and other collectors. Then a deferred function
/// waits for their readers, too, and whoever frees in the domain may run it, also after the collector has gone: so it borrows nothing
/// from what surrounds the collector. Each call makes another collector.
///
/// ```
/// use stillpoint_epoch::domain::{self, Domain};
///
/// let collector = domain::collector(Domain::new());
/// drop(collector.register().pin());
/// ```
pub fn collector(domain: Domain) -> Collector {
    Collector::of(Shared::new(domain))
}

/// Makes the [default collector](crate::default_collector) of the process. Call it before anything pins, for example in the first lines of
/// `main`. Libraries should leave this to the program.
///
/// ```
/// use stillpoint_epoch::domain::{self, Boost, BuildError};
///
/// let builder = domain::builder().boost(Boost::Realtime).boost_fallback(Boost::Migrate);
/// domain::build_default(builder)?;
/// drop(stillpoint_epoch::pin()); // if this thread is preempted here, other threads boost it
/// assert_eq!(domain::build_default(domain::builder()).unwrap_err(), BuildError::DefaultInUse);
/// # Ok::<(), BuildError>(())
/// ```
///
/// # Errors
/// [`DefaultInUse`](BuildError::DefaultInUse) when there is a default collector already; otherwise as [`DomainBuilder::build`].
pub fn build_default(builder: DomainBuilder) -> Result<&'static Collector, BuildError> {
    default::build(builder)
}
