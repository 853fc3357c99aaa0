//! The headers: one row for each 64 objects of a bucket, in a dense array beside the memory.

use super::own::{OwnU32, OwnU64};
use super::store::Linked;
use stillpoint_sys::sync::atomic::{AtomicU32, AtomicU64};

/// No row, no shard.
pub(crate) const NONE: u32 = u32::MAX;

/// Where a bucket is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Spot {
    /// Beyond the pool's memory.
    Absent,
    /// Whole, in the shared store.
    Store,
    /// Whole, in the list of its owner.
    Whole,
    /// In its owner's list of buckets that have both free objects and others.
    Partial,
    /// In no list: no object of it is free.
    Busy,
}

impl Spot {
    pub(crate) fn of(value: u32) -> Self {
        match value {
            1 => Self::Store,
            2 => Self::Whole,
            3 => Self::Partial,
            4 => Self::Busy,
            _ => Self::Absent,
        }
    }
}

/// A row. What belongs to the bucket as a whole is in its first one.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Row {
    /// A bit for each object that is not free in this row: out, in a cache, or on its way back. The owner's.
    pub(crate) live: OwnU64,
    /// The bucket's: the shard that it belongs to. Changed only while no object of the bucket is out.
    pub(crate) owner: AtomicU32,
    /// The bucket's: how many of its objects are free. The owner's.
    pub(crate) free: OwnU32,
    /// The bucket's [`Spot`]. The owner's, or whoever moves it through the store.
    pub(crate) spot: OwnU32,
    /// Neighbours in a list of the owner's.
    pub(crate) before: OwnU32,
    pub(crate) after: OwnU32,
    /// The bit to look at first where objects are to rest for long. The owner's.
    pub(crate) turn: OwnU32,
    /// The bucket's, if it has several rows: none of them before this one has a free object, counted from the first. The
    /// owner's.
    pub(crate) drained: OwnU32,
    /// The next bucket in the store.
    pub(crate) below: AtomicU32,
    /// What other threads write has a line of its own.
    pub(crate) far: Far,
}

/// The side of a row that other threads write.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Far {
    /// A bit for each object that was freed by a thread without the owner's shard, until the owner collects it.
    pub(crate) remote: AtomicU64,
    /// The next row of the owner's inbox.
    pub(crate) behind: AtomicU32,
}

impl Linked for Row {
    #[inline(always)]
    fn below(&self) -> &AtomicU32 {
        &self.below
    }
}

impl Row {
    pub(crate) fn absent() -> Self {
        Self {
            live: OwnU64::new(0),
            owner: AtomicU32::new(NONE),
            free: OwnU32::new(0),
            spot: OwnU32::new(Spot::Absent as u32),
            before: OwnU32::new(NONE),
            after: OwnU32::new(NONE),
            turn: OwnU32::new(0),
            drained: OwnU32::new(0),
            below: AtomicU32::new(NONE),
            far: Far { remote: AtomicU64::new(0), behind: AtomicU32::new(NONE) },
        }
    }
}
