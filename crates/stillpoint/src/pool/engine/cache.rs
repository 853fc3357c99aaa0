//! A stack of free objects in front of the holder's buckets: most calls only copy addresses, and touch no header.

use std::cell::UnsafeCell;
use std::ptr::{self, NonNull};

use super::boxed;
use super::copy;
use super::own::{OwnU32, OwnUsize};

/// Magazines of caches that are smaller have too few objects to be passed through. In models, those of all caches are.
const LARGE: usize = if cfg!(stillpoint_loom) { 2 } else { 64 };

/// Free objects, ready to be allocated. Only the owner uses it; other threads only read the length.
#[derive(Debug)]
pub(crate) struct Cache {
    len: OwnUsize,
    /// Frees do not fill the cache beyond this.
    limit: usize,
    /// Refills from buckets exceed the limit by at most this.
    more: usize,
    /// Objects that a refill should bring, if the shard's own buckets have them. It grows with each refill, and is
    /// reset when objects did not fit into the cache. So a thread whose objects all fit soon stops moving objects.
    appetite: OwnUsize,
    /// How many objects a deposit moves, and the number of withdrawals since the last deposit.
    portion: OwnUsize,
    withdrawals: OwnU32,
    slots: Box<[Line]>,
}

/// Slots that begin at a cache line: elsewhere, calls for many objects may be up to twice as slow.
#[derive(Debug)]
#[repr(C, align(64))]
struct Line([UnsafeCell<*mut u8>; SLOTS]);

const SLOTS: usize = 8;

/// Only the holder of the shard may call these functions. The engine makes sure of that.
impl Cache {
    /// A cache for `limit` objects. Refills from buckets may exceed the limit by `more`, and refills from the depot by
    /// half the limit. `None` when there is no memory.
    pub(crate) fn new(limit: usize, more: usize) -> Option<Self> {
        let more = if limit == 0 { 0 } else { more };
        let line = || Line([const { UnsafeCell::new(ptr::null_mut()) }; SLOTS]);
        let slots = boxed((limit + more.max(limit / 2)).div_ceil(SLOTS), line)?;
        Some(Self {
            len: OwnUsize::new(0),
            limit,
            more,
            appetite: OwnUsize::new(0),
            portion: OwnUsize::new(limit / 2),
            withdrawals: OwnU32::new(0),
            slots,
        })
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len.get()
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Whether a call for that many objects passes magazines through, instead of copying each object to the cache and from there.
    pub(crate) fn is_large(&self, count: usize) -> bool {
        self.limit >= LARGE && count > self.limit / 2
    }

    /// How many objects a refill from buckets may bring.
    pub(crate) fn room(&self) -> usize {
        self.limit + self.more - self.len.get()
    }

    #[inline(always)]
    fn start(&self) -> *mut *mut u8 {
        UnsafeCell::raw_get(self.slots.as_ptr().cast())
    }

    /// How many objects a refill should bring.
    pub(crate) fn appetite(&self) -> usize {
        let now = self.appetite.get();
        self.appetite.set((2 * now + 1).min(self.limit / 2));
        now
    }

    /// The address for the next object.
    pub(crate) fn end(&self) -> *mut *mut u8 {
        self.start().wrapping_add(self.len.get())
    }

    /// Counts `by` objects that were written to the [`end`](Cache::end).
    ///
    /// # Safety
    /// They were written, and there was room for them.
    #[inline(always)]
    pub(crate) unsafe fn grew(&self, by: usize) {
        self.len.set(self.len.get() + by);
    }

    /// Takes the newest object.
    ///
    /// # Safety
    /// The caller holds the shard.
    #[inline(always)]
    pub(crate) unsafe fn pop(&self) -> Option<NonNull<u8>> {
        let left = self.len.get().checked_sub(1)?;
        self.len.set(left);
        // SAFETY: the slots below `len` hold objects, and no other thread accesses them.
        Some(unsafe { NonNull::new_unchecked(self.start().add(left).read()) })
    }

    /// Puts an object into the cache. False when it is full.
    ///
    /// # Safety
    /// The caller holds the shard. The object is not null.
    #[inline(always)]
    pub(crate) unsafe fn push(&self, object: *mut u8) -> bool {
        let fits = self.has_room();
        if fits {
            // SAFETY: `has_room` returned true. The caller holds the shard, and the object is not null, by the caller's
            // promise.
            unsafe { self.push_where_is_room(object) };
        }
        fits
    }

    /// Whether a free may add an object.
    #[inline(always)]
    pub(crate) fn has_room(&self) -> bool {
        self.len.get() < self.limit
    }

    /// # Safety
    /// The caller holds the shard, and the cache [`has_room`](Cache::has_room). The object is not null.
    #[inline(always)]
    pub(crate) unsafe fn push_where_is_room(&self, object: *mut u8) {
        let len = self.len.get();
        // SAFETY: there are at least `limit` slots, and no other thread accesses them.
        unsafe { self.start().add(len).write(object) };
        self.len.set(len + 1);
    }

    /// Moves the newest `count` objects to `to`, the newest first. So contiguous objects stay in order, upwards or
    /// downwards, however many are taken at a time. False when there are fewer than `count`.
    ///
    /// # Safety
    /// The caller holds the shard, and has room for them.
    #[inline(always)]
    pub(crate) unsafe fn pop_many(&self, to: *mut *mut u8, count: usize) -> bool {
        let Some(left) = self.len.get().checked_sub(count) else { return false };
        // SAFETY: the slots below `len` hold objects, and no other thread accesses them. There is room for `count`
        // objects at `to`, by the caller's promise.
        unsafe { copy::reversed(self.start().add(left), to, count) };
        self.len.set(left);
        true
    }

    /// As [`pop_many`](Cache::pop_many), but all that there are, up to `most`. Returns their number.
    ///
    /// # Safety
    /// As for `pop_many`.
    pub(crate) unsafe fn pop_up_to(&self, to: *mut *mut u8, most: usize) -> usize {
        let count = self.len.get().min(most);
        // SAFETY: the caller holds the shard, and has room, by its promise.
        unsafe { self.pop_many(to, count) };
        count
    }

    /// Moves the newest objects to `to`, in the same order; returns their number. The number is half the limit at
    /// first, and at most that of all objects. It stays if no withdrawal came since the last deposit. If exactly one
    /// came, it becomes an eighth of half the limit, but at least 1, so that a thread with a few objects too many gives
    /// up only a few. If several came, it is half the limit again.
    ///
    /// # Safety
    /// The caller holds the shard, and has room for half the limit.
    pub(crate) unsafe fn pop_portion(&self, to: *mut *mut u8) -> usize {
        match self.withdrawals.get() {
            0 => {}
            1 => self.portion.set((self.limit / 16).max(1)),
            _ => self.portion.set(self.limit / 2),
        }
        self.withdrawals.set(0);
        let count = self.len.get().min(self.portion.get());
        let left = self.len.get() - count;
        // SAFETY: the slots below `len` hold objects, and no other thread accesses them. There is room for half the
        // limit at `to`, by the caller's promise.
        unsafe { ptr::copy_nonoverlapping(self.start().add(left), to, count) };
        self.len.set(left);
        self.appetite.set(0);
        count
    }

    /// Takes objects from a magazine.
    ///
    /// # Safety
    /// The caller holds the shard, whose cache has room.
    pub(crate) unsafe fn push_portion(&self, objects: &[*mut u8]) {
        // SAFETY: the caller holds the shard, and its cache has room, by the caller's promise.
        unsafe { ptr::copy_nonoverlapping(objects.as_ptr(), self.end(), objects.len()) };
        self.len.set(self.len.get() + objects.len());
        self.withdrawals.set(self.withdrawals.get().saturating_add(1));
    }

    /// The address for `count` more objects, which the caller then counts with [`grew`](Cache::grew). `None` when they
    /// would exceed the limit.
    #[inline(always)]
    pub(crate) fn reserve(&self, count: usize) -> Option<*mut *mut u8> {
        let len = self.len.get();
        // The sum cannot overflow: both numbers are small.
        (len + count <= self.limit).then(|| self.start().wrapping_add(len))
    }

    /// Passes the objects, the oldest first, to `take`, which returns how many it has taken; moves the others down.
    ///
    /// # Safety
    /// The caller holds the shard. `take` does not use this cache, and takes at most all objects.
    pub(crate) unsafe fn shift(&self, take: impl FnOnce(&[*mut u8]) -> usize) {
        // SAFETY: the caller holds the shard, and `take` does not use the cache, by the caller's promise. So nothing
        // changes the objects meanwhile.
        let taken = take(unsafe { self.objects() });
        let (start, left) = (self.start(), self.len.get() - taken);
        // SAFETY: within the slots below `len`.
        unsafe { ptr::copy(start.add(taken), start, left) };
        self.len.set(left);
        self.appetite.set(0);
    }

    /// The objects.
    ///
    /// # Safety
    /// No thread uses the shard as long as the slice is used.
    pub(crate) unsafe fn objects(&self) -> &[*mut u8] {
        // SAFETY: the slots below `len` hold objects, which do not change meanwhile.
        unsafe { std::slice::from_raw_parts(self.start(), self.len.get()) }
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_newest_object_comes_first_however_many_are_taken() {
        let at = |index: usize| ptr::without_provenance_mut::<u8>(8 * index);
        for count in 0..40 {
            let cache = Cache::new(64, 0).unwrap();
            // SAFETY: no other thread has this cache, and there is room for all objects.
            unsafe {
                (1..=50).for_each(|index| assert!(cache.push(at(index))));
                let mut taken = [ptr::null_mut(); 40];
                assert!(cache.pop_many(taken.as_mut_ptr(), count));
                let expected = (0..count).map(|index| at(50 - index));
                assert!(taken[..count].iter().copied().eq(expected));
                assert_eq!(cache.pop().map(NonNull::as_ptr), Some(at(50 - count)));
            }
        }
    }

    #[test]
    fn frees_fill_it_to_its_limit_and_refills_beyond() {
        let object = ptr::without_provenance_mut::<u8>(8);
        let cache = Cache::new(8, 3).unwrap();
        // SAFETY: no other thread has this cache.
        unsafe {
            (0..8).for_each(|_| assert!(cache.push(object)));
            assert!(!cache.push(object) && cache.reserve(1).is_none() && cache.reserve(0).is_some());
            assert_eq!((cache.len(), cache.room()), (8, 3));
            cache.shift(|objects| objects.len() - 5);
        }
        assert_eq!((cache.len(), cache.room()), (5, 6));
        assert!(cache.reserve(3).is_some() && cache.reserve(4).is_none());
        assert_eq!(Cache::new(0, 3).unwrap().room(), 0);
    }

    /// A thread whose objects fit into the cache stops using buckets.
    #[test]
    fn the_appetite_grows_with_each_refill_and_is_gone_when_the_cache_was_too_full() {
        let cache = Cache::new(20, 0).unwrap();
        for _ in 0..2 {
            assert_eq!([(); 6].map(|()| cache.appetite()), [0, 1, 3, 7, 10, 10]);
            // SAFETY: no other thread has this cache, which is empty.
            unsafe { cache.shift(|_| 0) };
        }
    }
}
