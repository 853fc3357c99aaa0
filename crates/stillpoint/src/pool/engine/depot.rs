//! Free objects that pass from one cache to another by the magazine: an array of addresses, handed over as a whole. Nobody
//! looks where the objects belong.
//!
//! After J. Bonwick and J. Adams, "Magazines and Vmem", USENIX 2001.

use std::cell::UnsafeCell;
use std::ptr;

use super::hold::Hold;
use super::own::OwnU32;
use super::row::NONE;
use super::store::{Chain, Linked, Store};
use crate::pool::busted::{is, Variant};
use stillpoint_sys::sync::atomic::{AtomicU32, Ordering};
use stillpoint_sys::sync::spin;
use stillpoint_sys::work;

/// The most magazines that a pool has. In models one, so that it is used again.
const MOST: usize = if cfg!(loom) { 1 } else { 128 };

/// Full magazines for every thread that needs objects, and empty ones for every thread that has too many.
#[derive(Debug)]
pub(crate) struct Depot {
    magazines: Box<[Magazine]>,
    full: Store,
    empty: Store,
}

/// It belongs to the thread that has taken it from a stack.
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
        let mut objects = Vec::new();
        objects.try_reserve_exact(room).ok()?;
        objects.extend((0..room).map(|_| UnsafeCell::new(ptr::null_mut())));
        Some(Self { below: AtomicU32::new(NONE), len: OwnU32::new(0), objects: objects.into_boxed_slice() })
    }

    fn start(&self) -> *mut *mut u8 {
        UnsafeCell::raw_get(self.objects.as_ptr())
    }

    /// # Safety
    /// Nobody uses the magazine as long as the slice is used.
    unsafe fn objects(&self) -> &[*mut u8] {
        // SAFETY: that many were written; nobody changes them meanwhile.
        unsafe { std::slice::from_raw_parts(self.start(), self.len.get() as usize) }
    }
}

impl Depot {
    /// With magazines of half a cache for all of `objects`, up to a limit. `None` without memory.
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

    /// Full magazines, for a walk that is exact when nobody else uses the depot.
    fn full(&self) -> impl Iterator<Item = &Magazine> {
        let find = |index: u32| self.magazines.get(index as usize);
        // Relaxed: nobody uses the depot.
        std::iter::successors(find(self.full.first()), move |magazine| {
            find(magazine.below.load(Ordering::Relaxed))
        })
    }

    /// The number of objects, exact when nobody else uses the depot.
    pub(crate) fn len(&self) -> usize {
        self.full().take(self.magazines.len()).map(|magazine| magazine.len.get() as usize).sum()
    }

    /// The objects.
    ///
    /// # Safety
    /// Nobody uses the depot meanwhile.
    pub(crate) unsafe fn objects(&self) -> Vec<*mut u8> {
        // SAFETY: the caller's promise.
        self.full().flat_map(|magazine| unsafe { magazine.objects() }.iter().copied()).collect()
    }
}

impl Hold<'_> {
    /// Hands the newest objects of the cache over to whoever needs some. False if there is no empty magazine.
    pub(crate) fn deposit(self) -> bool {
        let (depot, cache) = (&self.core.depot, &self.shard.cache);
        let Some(index) = depot.take(&depot.empty) else { return false };
        work::step();
        let magazine = &depot.magazines[index as usize];
        // SAFETY: the magazine is the caller's, and has room; the shard is held (see `Hold::new`).
        let count = unsafe { cache.pop_portion(magazine.start()) };
        magazine.len.set(count as u32);
        self.shard.deposited.set(self.shard.deposited.get() + count as isize);
        self.shard.calls.given.count(count);
        depot.put(&depot.full, index);
        true
    }

    /// Takes a magazine's objects into the cache, which has room. False if there is none.
    pub(crate) fn withdraw(self) -> bool {
        // SAFETY: the caller has room; the shard is held (see `Hold::new`).
        self.unload(|objects| unsafe { self.shard.cache.push_portion(objects) })
    }

    /// Puts a magazine's objects back into their buckets. False if there is none.
    pub(crate) fn empty_magazine(self) -> bool {
        self.unload(|objects| self.give(objects))
    }

    /// Has a full magazine emptied.
    fn unload(self, take: impl FnOnce(&[*mut u8])) -> bool {
        let depot = &self.core.depot;
        let Some(index) = depot.take(&depot.full) else { return false };
        work::step();
        let magazine = &depot.magazines[index as usize];
        if is(Variant::EmptiedEarly) {
            depot.put(&depot.empty, index);
            // For models, which count what follows an exchange at once as a part of it.
            spin();
        }
        // SAFETY: the magazine is the caller's until it is put.
        let objects = unsafe { magazine.objects() };
        self.shard.deposited.set(self.shard.deposited.get() - objects.len() as isize);
        take(objects);
        if !is(Variant::EmptiedEarly) {
            depot.put(&depot.empty, index);
        }
        true
    }
}
