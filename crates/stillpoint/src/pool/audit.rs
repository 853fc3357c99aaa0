//! What is known about any pool: its geometry, counts, audits, misuse and leaks. The engine fills it in.

use std::fmt;

use super::memory::Backing;

/// Additional checks of a pool. Every pool refuses pointers to other memory, and detects a double free when the object
/// comes back to its bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Hardening {
    /// No additional checks.
    #[default]
    None,
    /// Double frees are refused at once. Free objects of a [`RawPool`](super::raw::RawPool) hold a pattern, and a write to a
    /// free object is reported. Objects of a [`Pool`](super::Pool) are validated when they come back
    /// ([`Objects::validate`](super::Objects::validate)). There is no cache: each object goes to its bucket.
    Verify,
    /// As `Verify`. Also, a thread allocates from its whole buckets first, and the objects of a bucket in turn (in a
    /// [small](super::PoolBuilder::cache) pool, all objects in turn), so that a freed object is not used again soon. The tag of
    /// the thread that allocated an object ([`Local::set_tag`](super::Local::set_tag)) is recorded for the list of leaks.
    Trace,
}

/// The geometry and settings of a pool. See [`AnyPool::info`](super::AnyPool::info).
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

/// A piece of a pool's memory: see [`AnyPool::info`](super::AnyPool::info).
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

/// Numbers of objects. `available` and `in_use` always add up to `capacity`. See [`AnyPool::stats`](super::AnyPool::stats).
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

/// Where the buckets and the objects of a pool are: see [`AnyPool::audit`](super::AnyPool::audit).
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
/// a defect of the library. See [`AnyPool::audit`](super::AnyPool::audit).
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

/// Misuse that was found after the faulty call had returned. See [`AnyPool::misuses`](super::AnyPool::misuses).
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
