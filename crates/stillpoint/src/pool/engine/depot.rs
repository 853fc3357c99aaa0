//! Free objects that pass from one cache to another in magazines: arrays of addresses, handed over as a whole. The
//! buckets of the objects are not looked up.
//!
//! After J. Bonwick and J. Adams, "Magazines and Vmem", USENIX 2001.

use std::cell::UnsafeCell;
use std::ptr;

use super::boxed;
use super::hold::Hold;
use super::own::OwnU32;
use super::row::NONE;
use super::store::{Chain, Linked, Store};
use crate::pool::busted::{is, Variant};
use stillpoint_sys::sync::atomic::AtomicU32;
use stillpoint_sys::sync::spin;
use stillpoint_sys::work;

/// The most magazines of a pool. In models there is one, so that it is used again.
const MOST: usize = if cfg!(stillpoint_loom) { 1 } else { 128 };

/// Full magazines, for threads that need objects, and empty ones, for threads that have too many.
#[derive(Debug)]
pub(crate) struct Depot {
    magazines: Box<[Magazine]>,
    full: Store,
    empty: Store,
}

/// A magazine belongs to the thread that has taken it from a stack.
#[derive(Debug)]
struct Magazine {
    below: AtomicU32,
    len: OwnU32,
    objects: Box<[UnsafeCell<*mut u8>]>,
}

impl Linked for Magazine {
    #[inline(always)]
    fn below(&self) -> &AtomicU32 {
        &self.below
    }
}

impl Magazine {
    fn new(room: usize) -> Option<Self> {
        let objects = boxed(room, || UnsafeCell::new(ptr::null_mut()))?;
        Some(Self { below: AtomicU32::new(NONE), len: OwnU32::new(0), objects })
    }

    fn start(&self) -> *mut *mut u8 {
        UnsafeCell::raw_get(self.objects.as_ptr())
    }

    /// # Safety
    /// Nothing changes the magazine as long as the slice is used.
    unsafe fn objects(&self) -> &[*mut u8] {
        // SAFETY: `len` objects were written, and do not change meanwhile.
        unsafe { std::slice::from_raw_parts(self.start(), self.len.get() as usize) }
    }
}

impl Depot {
    /// A depot whose magazines have room for half a cache each: enough for `objects` objects, but at most [`MOST`]
    /// magazines. `None` when there is no memory.
    pub(crate) fn new(objects: usize, cache: usize) -> Option<Self> {
        let room = cache / 2;
        let count = objects.checked_div(room).unwrap_or(0).min(MOST);
        let magazines: Option<Vec<Magazine>> = (0..count).map(|_| Magazine::new(room)).collect();
        let depot =
            Self { magazines: magazines?.into_boxed_slice(), full: Store::new(), empty: Store::new() };
        (0..count as u32).for_each(|index| depot.put(&depot.empty, index));
        Some(depot)
    }

    fn take(&self, from: &Store) -> Option<u32> {
        from.take(&self.magazines, 1).map(|chain| chain.first)
    }

    fn put(&self, to: &Store, index: u32) {
        to.give(&self.magazines, Chain { first: index, last: index, len: 1 });
    }

    /// The full magazines. Exact when no other thread uses the depot.
    fn full(&self) -> impl Iterator<Item = &Magazine> {
        self.full.elements(&self.magazines).map(|index| &self.magazines[index as usize])
    }

    /// The number of objects. Exact when no other thread uses the depot.
    pub(crate) fn len(&self) -> usize {
        self.full().take(self.magazines.len()).map(|magazine| magazine.len.get() as usize).sum()
    }

    /// The objects.
    ///
    /// # Safety
    /// No thread uses the depot meanwhile.
    pub(crate) unsafe fn objects(&self) -> Vec<*mut u8> {
        // SAFETY: no thread uses the depot meanwhile, by the caller's promise.
        self.full().flat_map(|magazine| unsafe { magazine.objects() }.iter().copied()).collect()
    }
}

impl Hold<'_> {
    /// Moves the newest objects of the cache into a magazine, for any thread. False if there is no empty magazine.
    pub(crate) fn deposit(self) -> bool {
        let (depot, cache) = (&self.core.depot, &self.shard.cache);
        let Some(index) = depot.take(&depot.empty) else { return false };
        work::step();
        let magazine = &depot.magazines[index as usize];
        // SAFETY: the caller has taken the magazine, which has room; the shard is held (see `Hold::new`).
        let count = unsafe { cache.pop_portion(magazine.start()) };
        magazine.len.set(count as u32);
        self.shard.deposited.set(self.shard.deposited.get() + count as isize);
        self.shard.calls.given.count(count);
        depot.put(&depot.full, index);
        true
    }

    /// Takes a magazine's objects into the cache, which has room. False if there is no full magazine.
    pub(crate) fn withdraw(self) -> bool {
        // SAFETY: the caller has room; the shard is held (see `Hold::new`).
        self.unload(|objects| unsafe { self.shard.cache.push_portion(objects) })
    }

    /// Puts a magazine's objects back into their buckets. False if there is no full magazine.
    pub(crate) fn empty_magazine(self) -> bool {
        self.unload(|objects| self.give(objects))
    }

    /// Passes the objects of a full magazine to `take`.
    fn unload(self, take: impl FnOnce(&[*mut u8])) -> bool {
        let depot = &self.core.depot;
        let Some(index) = depot.take(&depot.full) else { return false };
        work::step();
        let magazine = &depot.magazines[index as usize];
        if is(Variant::EmptiedEarly) {
            depot.put(&depot.empty, index);
            // For models: lets loom switch threads after the exchange.
            spin();
        }
        // SAFETY: the caller owns the magazine until it puts it back.
        let objects = unsafe { magazine.objects() };
        self.shard.deposited.set(self.shard.deposited.get() - objects.len() as isize);
        take(objects);
        if !is(Variant::EmptiedEarly) {
            depot.put(&depot.empty, index);
        }
        true
    }
}
