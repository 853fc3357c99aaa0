//! Free objects that pass from one cache to another in magazines: arrays of addresses, handed over as a whole. The
//! buckets of the objects are not looked up.
//!
//! After J. Bonwick and J. Adams, "Magazines and Vmem", USENIX 2001.

use std::cell::UnsafeCell;
use std::ptr;

use super::boxed;
use super::copy;
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
        // SAFETY: the magazine has room; the shard is held (see `Hold::new`).
        self.load(|to| Some(unsafe { self.shard.cache.pop_portion(to) }))
    }

    /// Puts as many objects as a magazine has into one. False, and nothing happened, if there is no empty magazine, or if an object is not in
    /// the pool's memory.
    ///
    /// # Safety
    /// They are half the cache's limit, came from this pool, and the caller gives them up.
    pub(crate) unsafe fn deposit_from(self, objects: &[*mut u8]) -> bool {
        let (start, last) = self.core.bounds();
        // SAFETY: the magazine has room for half the limit.
        let copy = |to| unsafe { copy::within(objects.as_ptr(), to, objects.len(), start, last) };
        self.load(|to| copy(to).then_some(objects.len()))
    }

    /// Has `write` fill an empty magazine, and puts it among the full ones, if `write` returns how many objects it has written.
    fn load(self, write: impl FnOnce(*mut *mut u8) -> Option<usize>) -> bool {
        let depot = &self.core.depot;
        let Some(index) = depot.take(&depot.empty) else { return false };
        work::step();
        let magazine = &depot.magazines[index as usize];
        let Some(count) = write(magazine.start()) else {
            depot.put(&depot.empty, index);
            return false;
        };
        magazine.len.set(count as u32);
        self.shard.deposited.set(self.shard.deposited.get() + count as isize);
        self.shard.calls.given.count(count);
        depot.put(&depot.full, index);
        true
    }

    /// Takes a magazine's objects into the cache, which has room. False if there is no full magazine.
    pub(crate) fn withdraw(self) -> bool {
        // SAFETY: the caller has room; the shard is held (see `Hold::new`).
        self.unload(|objects| unsafe { self.shard.cache.push_portion(objects) }).is_some()
    }

    /// Moves a magazine's objects to `to`, up to `most`, and the others into the cache, which is empty. Returns how many came to `to`: none
    /// if there is no full magazine, or `most` is 0.
    ///
    /// # Safety
    /// There is room for them.
    pub(crate) unsafe fn withdraw_to(self, to: *mut *mut u8, most: usize) -> usize {
        let cache = &self.shard.cache;
        let taken = self.unload(|objects| {
            let (others, taken) = objects.split_at(objects.len().saturating_sub(most));
            // SAFETY: there is room for `most` objects, by the caller's promise, and in the cache; the shard is held.
            unsafe {
                copy::reversed(taken.as_ptr(), to, taken.len());
                if !others.is_empty() {
                    cache.push_portion(others);
                }
            }
            taken.len()
        });
        taken.unwrap_or(0)
    }

    /// Puts a magazine's objects back into their buckets. False if there is no full magazine.
    pub(crate) fn empty_magazine(self) -> bool {
        self.unload(|objects| self.give(objects)).is_some()
    }

    /// Passes the objects of a full magazine to `take`. `None`: there is none.
    fn unload<T>(self, take: impl FnOnce(&[*mut u8]) -> T) -> Option<T> {
        let depot = &self.core.depot;
        let index = depot.take(&depot.full)?;
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
        let answer = take(objects);
        if !is(Variant::EmptiedEarly) {
            depot.put(&depot.empty, index);
        }
        Some(answer)
    }
}
