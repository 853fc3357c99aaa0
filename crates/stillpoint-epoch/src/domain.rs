//! The domain behind a collector: how much waits, who holds it up, and what is done about that. The original has nothing like it.
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
//! What the numbers mean in terms of guards and deferred functions is told in `docs/guide/epoch.md` of the repository.

use stillpoint::fence::Mode;
pub use stillpoint::rcu::{Activity, Boost, BuildError, Domain, DomainBuilder, Stall, Stats};

use crate::collector::Collector;
use crate::default;
use crate::local::Shared;

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

/// What collectors are made from: a domain whose readers fence, since [`pin`](crate::pin) is a fence anyway. No writer interrupts them.
///
/// ```
/// use stillpoint_epoch::domain::{self, Boost};
///
/// let domain = domain::builder().name("routes").boost(Boost::Migrate).build()?;
/// let collector = domain::collector(domain);
/// # Ok::<(), domain::BuildError>(())
/// ```
pub fn builder() -> DomainBuilder {
    Domain::builder().fence(Mode::Symmetric)
}

/// A collector over a domain. The domain may have cells, readers and reclaimers of its own; each collector over it is another one.
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
/// drop(stillpoint_epoch::pin()); // if its thread is preempted here, others let it run
/// assert_eq!(domain::build_default(domain::builder()).unwrap_err(), BuildError::DefaultInUse);
/// # Ok::<(), BuildError>(())
/// ```
///
/// # Errors
/// [`DefaultInUse`](BuildError::DefaultInUse) when there is a default collector already; otherwise as [`DomainBuilder::build`].
pub fn build_default(builder: DomainBuilder) -> Result<&'static Collector, BuildError> {
    default::build(builder)
}
