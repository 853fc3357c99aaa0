//! Waiting for a grace period.

use std::sync::Arc;
use std::time::Duration;

use crate::rcu::domain::Domain;
use crate::rcu::engine::queue::retire_list::RetireList;
use crate::rcu::engine::wait::error::SynchronizeError;
use crate::rcu::engine::Core;

impl Domain {
    /// Waits for a grace period: no region reader holds anything that was unlinked before this call. Then frees
    /// what had been left to the domain (retired objects that were dropped, and what dropped reclaimers left), except for
    /// what protected loads hold, and what another thread is just adopting: [`barrier`](Domain::barrier) waits for these, too.
    ///
    /// Spins for some microseconds, then sleeps until the reader in the way wakes it.
    ///
    /// # Errors
    /// [`WouldDeadlock`](SynchronizeError::WouldDeadlock) if the calling thread itself is in the way;
    /// [`Reentrant`](SynchronizeError::Reentrant) if the call comes from a destructor, a deferred call, a callback or a [stall
    /// hook](crate::rcu::DomainBuilder::stall_hook) that this domain or another one runs, or from the `Eq` or `Hash` of a key
    /// that a table's writer compares, since such code must not wait;
    /// [`Fence`](SynchronizeError::Fence) if the kernel refuses the fence. All are returned at once.
    ///
    /// # Panics
    /// With the first panic of a destructor; everything else that was ready has been freed.
    ///
    /// ```
    /// use stillpoint::rcu::wait::SynchronizeError;
    /// use stillpoint::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let reader = domain.reader();
    /// let guard = reader.pin();
    /// assert!(matches!(domain.synchronize(), Err(SynchronizeError::WouldDeadlock { .. })));
    /// drop(guard);
    /// domain.synchronize()?;
    /// # Ok::<(), SynchronizeError>(())
    /// ```
    pub fn synchronize(&self) -> Result<(), SynchronizeError> {
        Core::synchronize(self.core(), None)
    }

    /// As [`synchronize`](Domain::synchronize), for at most `limit`.
    ///
    /// # Errors
    /// Also [`Stalled`](SynchronizeError::Stalled), with a report on the reader in the way.
    pub fn synchronize_timeout(&self, limit: Duration) -> Result<(), SynchronizeError> {
        Core::synchronize(self.core(), Some(limit))
    }
}

impl Core {
    pub(in crate::rcu) fn synchronize(
        this: &Arc<Self>,
        limit: Option<Duration>,
    ) -> Result<(), SynchronizeError> {
        SynchronizeError::unless_foreign(this)?;
        if !this.has_orphans() {
            return this.wait_for(this.protocol.start(), limit);
        }
        let mut orphans = RetireList::of_orphans(this, usize::MAX);
        let token = orphans.close().unwrap_or_else(|| this.protocol.start());
        this.wait_for(token, limit)?;
        orphans.advance(usize::MAX);
        Ok(())
    }
}
