//! What a pool tells of itself, whatever it holds: its geometry, counts, audits, misuse and leaks.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use super::builder::{Hardening, LeakHook};
use super::engine::{Core, Handle};
use super::error::TooManyLocals;
use super::memory::{self, Backing, Iova};

/// A pool, whatever it holds: what [`Pool`](super::Pool) and [`RawPool`](super::RawPool), which dereference to it, both
/// tell of themselves.
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
// Nobody outside gets a mutable reference to one, also not by `DerefMut`: pools of different types could be exchanged.
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

    /// What the pool is made of.
    pub fn info(&self) -> Info {
        self.core.info()
    }

    /// How many objects there are, and are out. Takes time in proportion to the threads that have used the pool.
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

    /// What has passed through each cache since the pool was made. A cache that a thread leaves goes to the next thread, so its
    /// counts are those of all threads that have had it. Only the cache's owner changes a count, by a plain store. Gets and puts that
    /// the cache serves are not counted one by one, which would make them a tenth slower; their difference is `drawn` less `given`
    /// and `cached`. Objects and blocks that come back without a local of the calling thread, or while its local is parked, are not
    /// counted. Takes time in proportion to the number of threads that have used the pool.
    ///
    /// ```
    /// use stillpoint::pool::Pool;
    ///
    /// let pool = Pool::new(100, || 0u64)?;
    /// let local = pool.local()?;
    /// drop((local.alloc(), local.alloc()));
    /// let stats = pool.cache_stats()[0];
    /// assert_eq!((stats.drawn - stats.given, stats.failures), (stats.cached, 0)); // nothing is out
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cache_stats(&self) -> Vec<CacheStats> {
        self.core.cache_stats()
    }

    /// Walks through the whole pool: is every bucket in exactly one place, and do the counts add up? Takes time in
    /// proportion to the number of buckets.
    ///
    /// # Errors
    /// The first thing that does not fit. Nothing is wrong with that while others use the pool.
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

    /// The first 64 cases of misuse that were found after the call that did it had returned. See the
    /// [example](super::Objects::validate).
    pub fn misuses(&self) -> Vec<Misuse> {
        self.core.ledger.first()
    }

    /// How many cases of misuse there were: see [`misuses`](AnyPool::misuses), which has only the first ones.
    pub fn misuse_count(&self) -> usize {
        self.core.ledger.count()
    }

    /// What the memory at these addresses is made of, if it is one piece of the pool's.
    fn backing(&self, addresses: &Range<usize>) -> Option<Backing> {
        let holds = |piece: &MemoryInfo| {
            let end = piece.start + piece.bytes;
            (piece.start..end).contains(&addresses.start) && addresses.end <= end
        };
        self.core.memory().into_iter().find(holds).map(|piece| piece.backing)
    }

    /// The device's address of an object.
    pub(super) fn iova(&self, object: NonNull<u8>) -> Option<Iova> {
        let address = object.addr().get();
        memory::iova(self.backing(&(address..address + 1))?, address)
    }

    /// Whether addresses of the pool lie in one piece of physical memory.
    pub(super) fn physically_contiguous(&self, addresses: Range<usize>) -> Option<bool> {
        memory::contiguous(self.backing(&addresses)?, addresses)
    }

    /// The objects that were never given back.
    pub(super) fn leaks(&mut self) -> Leaks {
        // SAFETY: every local and every typed object borrows the pool, which only the caller has. What waits in reclaimers
        // comes back without a shard.
        Leaks(unsafe { self.core.out() })
    }

    /// The same as an error, for a pool that ends: its hook is not called any more.
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

/// What a pool is made of: see [`AnyPool::info`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// Bytes of an object that belong to the user.
    pub object_bytes: usize,
    /// Bytes from one object to the next.
    pub stride: usize,
    /// Objects of a bucket, which are those of a block.
    pub objects_per_block: usize,
    /// Bytes of a bucket.
    pub bucket_bytes: usize,
    /// Objects that the pool may grow to.
    pub max_objects: usize,
    /// Objects that the cache of a thread holds.
    pub cache: usize,
    /// Whole buckets that a thread keeps to itself.
    pub high_water: usize,
    /// Threads that may use the pool at a time.
    pub max_locals: usize,
    /// What is checked.
    pub hardening: Hardening,
    /// The pieces of memory, in the order in which they were made.
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
    /// What the kernel made it of.
    pub backing: Backing,
    /// The NUMA node that was asked for.
    pub node: Option<u32>,
}

/// How many objects there are, and where: see [`AnyPool::stats`]. `available` and `in_use` always add up to `capacity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolStats {
    /// All objects.
    pub capacity: usize,
    /// Objects that are free, caches included.
    pub available: usize,
    /// Objects that are out.
    pub in_use: usize,
}

/// What was asked of one cache, by the threads that have had it: see [`AnyPool::cache_stats`]. Counts wrap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Objects that came from buckets or from other threads, to the cache or past it.
    pub drawn: usize,
    /// Objects that were too many for the cache, or did not fit: they went to buckets or to other threads.
    pub given: usize,
    /// Blocks that were handed out.
    pub blocks_got: usize,
    /// Blocks that came back.
    pub blocks_put: usize,
    /// Calls that found too few objects, or no block.
    pub failures: usize,
    /// Objects that it holds now.
    pub cached: usize,
}

/// What a walk through the whole pool has found, every bucket in one place, and every object accounted for: see
/// [`AnyPool::audit`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Census {
    /// Whole buckets in the shared store.
    pub buckets_in_store: usize,
    /// Whole buckets that threads keep to themselves.
    pub buckets_whole: usize,
    /// Buckets of which some objects are free, and others are not.
    pub buckets_partial: usize,
    /// Buckets without a free object.
    pub buckets_busy: usize,
    /// Free objects in caches.
    pub objects_cached: usize,
    /// Free objects that threads had too many of, for those that need some.
    pub objects_deposited: usize,
    /// Free objects in buckets that belong to a thread.
    pub objects_held: usize,
    /// Objects that were freed by other threads, and not collected by the owner of their bucket yet.
    pub objects_on_their_way: usize,
    /// Objects that are out.
    pub objects_out: usize,
    /// `fill[n]` buckets have `n` objects that are not in them: out, in a cache, or deposited.
    pub fill: Vec<usize>,
}

/// Something does not fit: see [`AnyPool::audit`]. When nobody used the pool meanwhile, it is damaged: by a double free, or by a
/// defect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditError(pub(super) String);

impl fmt::Display for AuditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the pool does not add up (unless it was in use): {}", self.0)
    }
}

impl std::error::Error for AuditError {}

/// An object that is out although nobody can give it back: see [`Pool::close`](super::Pool::close).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leak {
    /// Its address.
    pub address: usize,
    /// The tag of whoever got it, in pools that record it ([`Hardening::Trace`]).
    pub tag: Option<u32>,
}

/// The objects that were out when their pool was closed: see [`Pool::close`](super::Pool::close).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaks(pub Vec<Leak>);

impl fmt::Display for Leaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} objects of the pool were never given back", self.0.len())
    }
}

impl std::error::Error for Leaks {}

/// What was found to be wrong, after the call that did it had returned: see [`AnyPool::misuses`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misuse {
    /// The object was freed although it was free. The second free was not carried out.
    DoubleFree {
        /// Its address.
        address: usize,
    },
    /// Something was freed that is no object of the pool.
    NotAnObject {
        /// Its address.
        address: usize,
    },
    /// The object was written to while it was free. It has been handed out again.
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
