use std::fmt;
use std::sync::Arc;

use stillpoint::fence::Mode;
use stillpoint::rcu::{Domain, DomainBuilder};

use crate::rounds::Shared;

/// The guards and the deferred functions that belong together: a function waits only for guards of its collector.
///
/// A clone is the same collector. Handles and guards keep the collector alive. When the last clone, handle and guard
/// has been dropped, the functions that are still deferred run. In a domain that others use, too, they may
/// wait for more: see [`domain::collector`](crate::domain::collector).
///
/// ```
/// use stillpoint_epoch::Collector;
///
/// let collector = Collector::new();
/// let handle = collector.register();
/// drop(collector); // the handle keeps the collector alive
/// let guard = handle.pin();
/// drop(handle); // the guard keeps the collector alive
/// guard.defer(|| println!("runs at the latest when the guard is dropped: it is the last one"));
/// ```
#[derive(Clone)]
pub struct Collector {
    shared: Arc<Shared>,
}

impl Collector {
    /// A new collector.
    ///
    /// ```
    /// use stillpoint_epoch::Collector;
    ///
    /// assert!(Collector::new() != Collector::new());
    /// ```
    pub fn new() -> Self {
        Self::of(Shared::new(builder().build().expect("nothing was chosen that may be refused")))
    }

    pub(crate) fn of(shared: Shared) -> Self {
        Self { shared: Arc::new(shared) }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }
}

impl Default for Collector {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether both are the same collector.
impl PartialEq for Collector {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for Collector {}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Collector { .. }")
    }
}

/// A builder for the domain of a collector. The domain's readers fence, since [`pin`](crate::pin) is a fence anyway. So
/// no writer interrupts them.
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
