//! What a pool tells of itself.

use std::fmt;

use super::builder::{Hardening, Kind};
use super::engine::{Core, Piece};
use super::region::Backing;

/// What a pool is made of.
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
    pub maximum: usize,
    /// Objects that the cache of a thread holds.
    pub cache: usize,
    /// Whole buckets that a thread keeps to itself.
    pub high_water: usize,
    /// Threads that may use the pool at a time.
    pub locals: usize,
    /// What is checked.
    pub hardening: Hardening,
    /// The pieces of memory, in the order in which they were made.
    pub regions: Vec<RegionInfo>,
}

/// A piece of a pool's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegionInfo {
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

/// How many objects there are, and where. `available` and `in_use` always add up to `capacity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// All objects.
    pub capacity: usize,
    /// Objects that are free, caches included.
    pub available: usize,
    /// Objects that are out.
    pub in_use: usize,
}

/// What a walk through the whole pool has found: every bucket in one place, and every object accounted for.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// Free objects in buckets that belong to a thread.
    pub objects_held: usize,
    /// Objects that were freed by other threads, and not collected by the owner of their bucket yet.
    pub objects_on_their_way: usize,
    /// Objects that are out.
    pub objects_out: usize,
    /// `fill[n]` buckets have `n` objects that are not in them: out, or in a cache.
    pub fill: Vec<usize>,
}

/// Something does not fit. When nobody used the pool meanwhile, it is damaged: by a double free, or by a defect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditError(pub(super) String);

impl fmt::Display for AuditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the pool does not add up (unless it was in use): {}", self.0)
    }
}

impl std::error::Error for AuditError {}

/// An object that is out although nobody can give it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leak {
    /// Its address.
    pub address: usize,
    /// The tag of whoever got it, in pools that record it ([`Hardening::Trace`]).
    pub tag: Option<u32>,
}

/// The objects that were out when their pool was closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaks(pub Vec<Leak>);

impl fmt::Display for Leaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} objects of the pool were never given back", self.0.len())
    }
}

impl std::error::Error for Leaks {}

/// The pieces of a pool, for the inside of this module.
pub(super) fn regions(core: &Core, node: Option<u32>) -> Vec<RegionInfo> {
    let bucket = core.geometry().bucket_bytes();
    let of = |piece: Piece| RegionInfo {
        start: core.start().addr() + piece.first as usize * bucket,
        bytes: piece.buckets as usize * bucket,
        buckets: piece.buckets as usize,
        backing: piece.made.into(),
        node,
    };
    core.pieces().into_iter().map(of).collect()
}

pub(super) fn info(core: &Core, kind: &Kind) -> Info {
    let geometry = core.geometry();
    Info {
        object_bytes: core.object_bytes(),
        stride: geometry.stride(),
        objects_per_block: geometry.objects() as usize,
        bucket_bytes: geometry.bucket_bytes(),
        maximum: kind.maximum,
        cache: core.cache_limit(),
        high_water: core.high_water() as usize,
        locals: kind.locals,
        hardening: kind.hardening,
        regions: regions(core, kind.node),
    }
}

pub(super) fn counts(core: &Core) -> Counts {
    let (capacity, in_use) = core.totals();
    Counts { capacity, available: capacity - in_use, in_use }
}

pub(super) fn census(core: &Core) -> Result<Census, AuditError> {
    let found = core.audit().map_err(AuditError)?;
    Ok(Census {
        buckets_in_store: found.buckets_in_store,
        buckets_whole: found.buckets_whole,
        buckets_partial: found.buckets_partial,
        buckets_busy: found.buckets_busy,
        objects_cached: found.objects_cached,
        objects_held: found.objects_held_free,
        objects_on_their_way: found.objects_on_their_way,
        objects_out: found.objects_out,
        fill: found.fill,
    })
}

/// # Safety
/// The caller has the pool to itself.
pub(super) unsafe fn leaks(core: &Core) -> Leaks {
    // SAFETY: the caller's promise.
    let out = unsafe { core.out() };
    Leaks(out.into_iter().map(|(object, tag)| Leak { address: object.addr(), tag }).collect())
}
