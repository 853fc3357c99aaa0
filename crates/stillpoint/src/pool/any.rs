use std::alloc::{handle_alloc_error, Layout};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use super::audit::{Audit, AuditError, CacheStats, CallStats, Info, MemoryInfo, PoolStats};
use super::engine::{Core, Handle, NoShard, Shard};
use super::error::TooManyLocals;
use super::memory::{self, Backing, Iova};

/// A pool of any objects. [`Pool`](super::Pool) and [`RawPool`](super::raw::RawPool) dereference to it for their statistics
/// and audits.
///
/// ```
/// use stillpoint::pool::raw::RawPool;
/// use stillpoint::pool::{AnyPool, Pool};
///
/// fn show(name: &str, pool: &AnyPool) {
///     println!("{name}: {} of {} objects are out", pool.stats().in_use, pool.stats().capacity);
/// }
/// let (names, packets) = (Pool::new(100, String::new)?, RawPool::builder(100, 2048, 64).build()?);
/// show("names", &names);
/// show("packets", &packets);
/// # Ok::<(), stillpoint::pool::BuildError>(())
/// ```
// Users never get a mutable reference to this, not even by `DerefMut`: with two such references, they could swap pools
// of different types.
pub struct AnyPool {
    core: Arc<Core>,
}

impl AnyPool {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(super) fn handle(&self) -> Result<Handle<'_>, TooManyLocals> {
        let handle = self.try_handle()?;
        // As a box that gets no memory.
        Ok(handle.unwrap_or_else(|| handle_alloc_error(Layout::new::<Shard>())))
    }

    /// As [`handle`](AnyPool::handle); `None` when there is no memory.
    pub(super) fn try_handle(&self) -> Result<Option<Handle<'_>>, TooManyLocals> {
        match Handle::new(&self.core) {
            Ok(handle) => Ok(Some(handle)),
            Err(NoShard::NoMemory) => Ok(None),
            Err(NoShard::AllHeld) => Err(TooManyLocals { limit: self.core.most_handles() }),
        }
    }

    /// The geometry and settings of the pool.
    pub fn info(&self) -> Info {
        self.core.info()
    }

    /// The number of objects, and of those in use. Takes time in proportion to the number of threads that have used the
    /// pool.
    ///
    /// ```
    /// use stillpoint::pool::Pool;
    ///
    /// let pool = Pool::new(100, || 0u64)?;
    /// let local = pool.local()?;
    /// let objects = [local.alloc(), local.alloc()];
    /// let stats = pool.stats();
    /// assert_eq!((stats.in_use, stats.available), (2, stats.capacity - 2));
    /// # drop(objects);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self) -> PoolStats {
        self.core.stats(self.core.totals())
    }

    /// Counts of each cache since the pool was made. A cache that a thread leaves goes to the next thread, so its
    /// counts are those of all its owners. Only the current owner changes a count, by a plain store. Allocations and
    /// frees that the cache serves are not counted one by one, because counting would make them a tenth slower. Only
    /// their difference is known: allocations less frees are `drawn` less `given` and `cached`. Objects and blocks that
    /// are freed without a local of the calling thread, or while its local is parked, are not counted. Takes time in
    /// proportion to the number of threads that have used the pool.
    ///
    /// ```
    /// use stillpoint::pool::Pool;
    ///
    /// let pool = Pool::new(100, || 0u64)?;
    /// let local = pool.local()?;
    /// drop((local.alloc(), local.alloc()));
    /// let stats = pool.cache_stats()[0];
    /// assert_eq!((stats.drawn - stats.given, stats.failures), (stats.cached, 0)); // no object is in use
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cache_stats(&self) -> Vec<CacheStats> {
        self.core.cache_stats()
    }

    /// Counts of all calls since the pool was made, if it [counts](super::PoolBuilder::count_calls) them; zeros otherwise. While threads use
    /// the pool, the counts are those of slightly different times. Takes time in proportion to the number of threads that have used the
    /// pool.
    pub fn call_stats(&self) -> CallStats {
        self.core.call_stats()
    }

    /// Checks the whole pool: that every bucket is in exactly one place, and that the counts add up. Takes time in
    /// proportion to the number of buckets.
    ///
    /// # Errors
    /// The first inconsistency. While other threads use the pool, inconsistencies are normal.
    ///
    /// ```
    /// use stillpoint::pool::Pool;
    ///
    /// let pool = Pool::new(100, || 0u64)?;
    /// assert_eq!(pool.audit()?.stats.in_use, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn audit(&self) -> Result<Audit, AuditError> {
        self.core.audit().map_err(AuditError)
    }

    /// The backing of the piece of the pool's memory that contains these addresses, if one does.
    fn backing(&self, addresses: &Range<usize>) -> Option<Backing> {
        let holds = |piece: &MemoryInfo| {
            let end = piece.start + piece.bytes;
            (piece.start..end).contains(&addresses.start) && addresses.end <= end
        };
        self.core.memory().find(holds).map(|piece| piece.backing)
    }

    /// The device address of an object.
    pub(super) fn iova(&self, object: NonNull<u8>) -> Option<Iova> {
        let address = object.addr().get();
        memory::iova(self.backing(&(address..address.checked_add(1)?))?, address)
    }

    /// Whether addresses of the pool are contiguous in physical memory.
    pub(super) fn physically_contiguous(&self, addresses: Range<usize>) -> Option<bool> {
        memory::contiguous(self.backing(&addresses)?, addresses)
    }

    /// See [`Pool::leaks`](super::Pool::leaks).
    pub(super) fn leaks(&mut self) -> Vec<NonNull<u8>> {
        // SAFETY: every local and every typed object borrows the pool, and the caller borrows it exclusively. Objects
        // that wait in reclaimers come back without a shard.
        unsafe { self.core.out() }
    }
}

stillpoint_sys::debug!(|this| AnyPool { stats: this.stats(), .. });
