//! The headers: one row for each 64 objects of a bucket, in a dense array outside the buckets.

use super::own::{OwnU32, OwnU64};
use stillpoint_sys::sync::atomic::{AtomicU32, AtomicU64};

/// No row, no shard.
pub(crate) const NONE: u32 = u32::MAX;

/// A row. Fields of the whole bucket are in its first row.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Row {
    /// A bit for each object that is not free in this row: allocated, in a cache, or on its way back. For the owner.
    pub(crate) live: OwnU64,
    /// Of the bucket: the shard that owns it. Changed only while no object of the bucket is allocated.
    pub(crate) owner: AtomicU32,
    /// Of the bucket: the number of its free objects. For the owner.
    pub(crate) free: OwnU32,
    /// The neighbours of the bucket in a list of the owner.
    pub(crate) before: OwnU32,
    pub(crate) after: OwnU32,
    /// The bit at which the search begins, if old objects come first. For the owner.
    pub(crate) turn: OwnU32,
    /// Of a bucket with free objects: its rows that have some are this one and those that follow through `next`. If a
    /// row is open, it is this one, and may be full. For the owner.
    pub(crate) first: OwnU32,
    /// The next row of the bucket with free objects. Of the last one, any value. For the owner.
    pub(crate) next: OwnU32,
    /// The next bucket in the store.
    pub(crate) below: AtomicU32,
    /// On a separate cache line, since other threads write it.
    pub(crate) far: Far,
}

/// The part of a row that other threads write.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Far {
    /// A bit for each object that was freed by a thread without the owner's shard, until the owner collects it.
    pub(crate) remote: AtomicU64,
    /// The next row of the owner's inbox.
    pub(crate) behind: AtomicU32,
}

impl Row {
    pub(crate) fn absent() -> Self {
        Self {
            live: OwnU64::new(0),
            owner: AtomicU32::new(NONE),
            free: OwnU32::new(0),
            before: OwnU32::new(NONE),
            after: OwnU32::new(NONE),
            turn: OwnU32::new(0),
            first: OwnU32::new(NONE),
            next: OwnU32::new(NONE),
            below: AtomicU32::new(NONE),
            far: Far { remote: AtomicU64::new(0), behind: AtomicU32::new(NONE) },
        }
    }
}
