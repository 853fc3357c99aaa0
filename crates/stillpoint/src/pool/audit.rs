//! What is known about any pool: its geometry, its counts, and where its objects are. The engine fills it in.

use std::fmt;

use super::memory::Backing;

/// The geometry and settings of a pool. See [`AnyPool::info`](super::AnyPool::info).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
    /// Bytes by which the objects of every other bucket, the second one first, are moved up: so that not all buckets use the same
    /// half of a processor's cache. Object `i` of bucket `b` begins at byte `b * bucket_bytes + (b % 2) * shift + i * stride`.
    pub shift: usize,
    /// Number of objects that the pool may grow to.
    pub max_objects: usize,
    /// Objects that the cache of a thread holds.
    pub cache: usize,
    /// Whole buckets that a thread keeps.
    pub high_water: usize,
    /// Threads that may use the pool at a time.
    pub max_locals: usize,
    /// Whether the pool makes [additional checks](super::PoolBuilder::hardened).
    pub hardened: bool,
    /// Whether the pool [counts calls](super::PoolBuilder::count_calls).
    pub counts_calls: bool,
    /// The pieces of memory, in the order in which they were added.
    pub memory: Vec<MemoryInfo>,
}

/// A piece of a pool's memory: see [`AnyPool::info`](super::AnyPool::info).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// Address of the first bucket. In a piece by which a pool has grown, the first object may be 64 bytes after it.
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

/// Numbers of objects. `available` and `in_use` always add up to `capacity`. See [`AnyPool::stats`](super::AnyPool::stats).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// All objects.
    pub capacity: usize,
    /// Free objects. In a [small](super::PoolBuilder::cache) pool, any thread can allocate all of them. In others, some
    /// may be in the cache of a thread, or in a bucket that it has begun, and only this thread can allocate them until
    /// it parks: [`Audit`] says how many.
    pub available: usize,
    /// Allocated objects.
    pub in_use: usize,
    /// Misuses that were found after the faulty call had returned, where objects went to their buckets: double frees, and frees of addresses at
    /// which no object begins, unless a cache has handed the address out again before; in a [hardened](super::PoolBuilder::hardened) pool also writes to free
    /// objects, and objects that were not valid when they came back.
    pub misuses: usize,
}

/// Counts of one cache, by all threads that have owned it: see [`AnyPool::cache_stats`](super::AnyPool::cache_stats). Counts wrap.
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

/// Counts of the calls of all threads: see [`AnyPool::call_stats`](super::AnyPool::call_stats). An object that is dropped, or freed by a
/// reclaimer, counts as one call. Calls for no objects, calls that find no shard free, and calls within constructors are not counted. Counts wrap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallStats {
    /// Calls that have allocated objects, not blocks.
    pub gets: usize,
    /// Objects that these calls have allocated.
    pub got: usize,
    /// Calls that were to allocate objects, not blocks, and found too few.
    pub failed_gets: usize,
    /// Objects that these calls were to allocate.
    pub not_got: usize,
    /// Calls that have freed objects, not blocks; [`Local::free_many`](super::Local::free_many) counts as one for each 64 objects.
    pub puts: usize,
    /// Objects that calls have freed one by one or many at a time, those before a refused one included.
    pub put: usize,
    /// Calls of locals that were to free an object which the pool has refused. Others are [misuses](PoolStats::misuses).
    pub failed_puts: usize,
    /// Blocks that were allocated.
    pub block_gets: usize,
    /// Calls that found no whole block.
    pub failed_block_gets: usize,
    /// Blocks that were freed.
    pub block_puts: usize,
    /// Blocks that the pool has refused.
    pub failed_block_puts: usize,
}

/// Where the objects and the buckets of a pool are: see [`AnyPool::audit`](super::AnyPool::audit). Any thread can
/// allocate the free objects, except for those that are `cached` or `held` by others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Audit {
    /// The numbers of objects, in use and free, and of misuses.
    pub stats: PoolStats,
    /// Free objects in caches.
    pub cached: usize,
    /// Free objects that caches have handed over, for any thread.
    pub deposited: usize,
    /// Free objects in buckets that belong to a thread.
    pub held: usize,
    /// Objects that other threads have freed, and that the owner of their bucket has not collected yet.
    pub on_their_way: usize,
    /// Whole buckets in the shared store.
    pub buckets_in_store: usize,
    /// Whole buckets that threads keep.
    pub buckets_whole: usize,
    /// Buckets with both free objects and others.
    pub buckets_partial: usize,
    /// Buckets without a free object.
    pub buckets_busy: usize,
    /// `fill[n]` buckets have `n` objects that are not in them: allocated, in a cache, or deposited.
    pub fill: Vec<usize>,
}

/// An audit found an inconsistency. If no thread used the pool meanwhile, the pool is damaged: by a double free, or by
/// a defect of the library. See [`AnyPool::audit`](super::AnyPool::audit).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditError(pub(super) String);

impl fmt::Display for AuditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the pool is inconsistent, or threads used it during the audit: {}", self.0)
    }
}

impl std::error::Error for AuditError {}
