//! Information about any pool: its geometry, counts, audits, misuse and leaks.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use super::builder::{Hardening, LeakHook};
use super::engine::{Core, Handle};
use super::error::TooManyLocals;
use super::memory::{self, Backing, Iova};

/// A pool of any objects. [`Pool`](super::Pool) and [`RawPool`](super::RawPool) dereference to it for their statistics
/// and audits.
///
/// ```
/// use stillpoint::pool::{AnyPool, Pool, RawPool};
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
    leak_hook: Option<LeakHook>,
}

impl AnyPool {
    pub(super) fn new(core: Arc<Core>, leak_hook: Option<LeakHook>) -> Self {
        Self { core, leak_hook }
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(super) fn handle(&self) -> Result<Handle<'_>, TooManyLocals> {
        Handle::new(&self.core).ok_or_else(|| TooManyLocals { limit: self.core.info().max_locals })
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
        let (capacity, in_use) = self.core.totals();
        PoolStats { capacity, available: capacity - in_use, in_use }
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
    /// assert_eq!(pool.audit()?.objects_out, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn audit(&self) -> Result<Census, AuditError> {
        self.core.audit().map_err(AuditError)
    }

    /// The first 64 cases of misuse that were found after the faulty call had returned. See the
    /// [example](super::Objects::validate).
    pub fn misuses(&self) -> Vec<Misuse> {
        self.core.ledger.first()
    }

    /// The number of all cases of misuse that were found after the faulty call had returned. See
    /// [`misuses`](AnyPool::misuses).
    pub fn misuse_count(&self) -> usize {
        self.core.ledger.count()
    }

    /// The backing of the piece of the pool's memory that contains these addresses, if one does.
    fn backing(&self, addresses: &Range<usize>) -> Option<Backing> {
        let holds = |piece: &MemoryInfo| {
            let end = piece.start + piece.bytes;
            (piece.start..end).contains(&addresses.start) && addresses.end <= end
        };
        self.core.memory().into_iter().find(holds).map(|piece| piece.backing)
    }

    /// The device address of an object.
    pub(super) fn iova(&self, object: NonNull<u8>) -> Option<Iova> {
        let address = object.addr().get();
        memory::iova(self.backing(&(address..address + 1))?, address)
    }

    /// Whether addresses of the pool are contiguous in physical memory.
    pub(super) fn physically_contiguous(&self, addresses: Range<usize>) -> Option<bool> {
        memory::contiguous(self.backing(&addresses)?, addresses)
    }

    /// The objects that were never given back.
    pub(super) fn leaks(&mut self) -> Leaks {
        // SAFETY: every local and every typed object borrows the pool, and the caller borrows it exclusively. Objects
        // that wait in reclaimers come back without a shard.
        Leaks(unsafe { self.core.out() })
    }

    /// The result of [`leaks`](AnyPool::leaks) as an error, for a pool that is being dropped. Its hook is not called
    /// any more.
    pub(super) fn close(&mut self) -> Result<(), Leaks> {
        self.leak_hook = None;
        match self.leaks() {
            leaks if leaks.0.is_empty() => Ok(()),
            leaks => Err(leaks),
        }
    }
}

impl Drop for AnyPool {
    fn drop(&mut self) {
        if let Some(hook) = self.leak_hook.take() {
            if let Err(leaks) = self.close() {
                hook(&leaks);
            }
        }
    }
}

impl fmt::Debug for AnyPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyPool").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// The geometry and settings of a pool. See [`AnyPool::info`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// Bytes of an object that belong to the user.
    pub object_bytes: usize,
    /// Bytes from one object to the next.
    pub stride: usize,
    /// Objects of a bucket, and so of a block.
    pub objects_per_block: usize,
    /// Bytes of a bucket.
    pub bucket_bytes: usize,
    /// Number of objects that the pool may grow to.
    pub max_objects: usize,
    /// Objects that the cache of a thread holds.
    pub cache: usize,
    /// Whole buckets that a thread keeps.
    pub high_water: usize,
    /// Threads that may use the pool at a time.
    pub max_locals: usize,
    /// Which additional checks the pool makes.
    pub hardening: Hardening,
    /// The pieces of memory, in the order in which they were added.
    pub memory: Vec<MemoryInfo>,
}

/// A piece of a pool's memory: see [`AnyPool::info`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// Address of the first object.
    pub start: usize,
    /// Bytes of all buckets.
    pub bytes: usize,
    /// Number of buckets.
    pub buckets: usize,
    /// The kind of the piece's pages.
    pub backing: Backing,
    /// The NUMA node that was requested.
    pub node: Option<u32>,
}

/// Numbers of objects. `available` and `in_use` always add up to `capacity`. See [`AnyPool::stats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolStats {
    /// All objects.
    pub capacity: usize,
    /// Free objects. In a [small](super::PoolBuilder::cache) pool, any thread can allocate all of them. In others, some
    /// may be in the cache of a thread, or in a bucket that it has begun, and only this thread can allocate them until
    /// it parks: [`Census`] says how many.
    pub available: usize,
    /// Allocated objects.
    pub in_use: usize,
}

/// Counts of one cache, by all threads that have owned it: see [`AnyPool::cache_stats`]. Counts wrap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Objects that came from buckets or from other threads, into the cache or directly to the caller.
    pub drawn: usize,
    /// Objects that had no room in the cache, and went to buckets or to other threads.
    pub given: usize,
    /// Blocks that were allocated.
    pub blocks_got: usize,
    /// Blocks that were freed.
    pub blocks_put: usize,
    /// Allocations that found too few objects, or no block.
    pub failures: usize,
    /// Objects in the cache now.
    pub cached: usize,
}

/// Where the buckets and the objects of a pool are: see [`AnyPool::audit`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Census {
    /// Whole buckets in the shared store.
    pub buckets_in_store: usize,
    /// Whole buckets that threads keep.
    pub buckets_whole: usize,
    /// Buckets with both free objects and others.
    pub buckets_partial: usize,
    /// Buckets without a free object.
    pub buckets_busy: usize,
    /// Free objects in caches.
    pub objects_cached: usize,
    /// Free objects that caches have handed over, for any thread.
    pub objects_deposited: usize,
    /// Free objects in buckets that belong to a thread.
    pub objects_held: usize,
    /// Objects that other threads have freed, and that the owner of their bucket has not collected yet.
    pub objects_on_their_way: usize,
    /// Allocated objects.
    pub objects_out: usize,
    /// `fill[n]` buckets have `n` objects that are not in them: allocated, in a cache, or deposited.
    pub fill: Vec<usize>,
}

/// An audit found an inconsistency. If no thread used the pool meanwhile, the pool is damaged: by a double free, or by
/// a defect of the library. See [`AnyPool::audit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditError(pub(super) String);

impl fmt::Display for AuditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the pool is inconsistent, or threads used it during the audit: {}", self.0)
    }
}

impl std::error::Error for AuditError {}

/// An object that was never given back. See [`Pool::close`](super::Pool::close).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leak {
    /// Its address.
    pub address: usize,
    /// The tag of the thread that allocated it, in pools that record it ([`Hardening::Trace`]).
    pub tag: Option<u32>,
}

/// The objects that were still allocated when their pool was closed. See [`Pool::close`](super::Pool::close).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaks(pub Vec<Leak>);

impl fmt::Display for Leaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => f.write_str("1 object of the pool was never given back"),
            count => write!(f, "{count} objects of the pool were never given back"),
        }
    }
}

impl std::error::Error for Leaks {}

/// Misuse that was found after the faulty call had returned. See [`AnyPool::misuses`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misuse {
    /// The object was freed although it was free. The second free had no effect.
    DoubleFree {
        /// Its address.
        address: usize,
    },
    /// No object of the pool begins at an address that was freed.
    NotAnObject {
        /// Its address.
        address: usize,
    },
    /// The object was written to while it was free. This was found when it was allocated again.
    WrittenAfterFree {
        /// Its address.
        address: usize,
        /// The first byte that was changed.
        offset: usize,
    },
    /// The object was not valid when it came back, and a new one was made in its place.
    Invalid {
        /// Its address.
        address: usize,
    },
}
