//! A thread's access to a pool.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::slice;

use super::copy;
use super::geometry::Place;
use super::hold::Hold;
use super::own::OwnUsize;
use super::shard::{Calls, Tally};
use super::{Core, NoShard, Shard};
use crate::pool::busted::{is, Variant};
use crate::pool::error::FreeError;
use stillpoint_sys::sync::atomic::Ordering;

/// Holds a shard, or none while it is parked. Stays on its thread.
pub(crate) struct Handle<'p> {
    core: &'p Core,
    shard: Cell<&'p Shard>,
    /// In a pool that counts calls: the shard, outside of calls.
    kept: Cell<&'p Shard>,
    /// Whether a call is being counted.
    is_open: Cell<bool>,
    stays: PhantomData<*const ()>,
}

impl<'p> Handle<'p> {
    pub(crate) fn new(core: &'p Core) -> Result<Self, NoShard> {
        let nobody = core.nobody();
        let (shard, kept, is_open) =
            (Cell::new(nobody), Cell::new(nobody), Cell::new(core.plan.counts_calls));
        let handle = Self { core, shard, kept, is_open, stays: PhantomData };
        handle.attach()?;
        handle.close();
        Ok(handle)
    }

    #[inline(always)]
    pub(crate) fn core(&self) -> &'p Core {
        self.core
    }

    /// The shard that objects allocated now carry.
    #[inline(always)]
    pub(crate) fn shard(&self) -> &'p Shard {
        self.shard.get()
    }

    /// Whether the handle holds no shard.
    fn is_parked(&self) -> bool {
        ptr::eq(self.shard.get(), self.core.nobody())
    }

    /// Takes hold of a shard if the handle has none.
    fn attach(&self) -> Result<(), NoShard> {
        if self.is_parked() {
            let shard = self.core.hold_one()?;
            shard.settle(stillpoint_sys::os::thread_handle());
            self.shard.set(shard);
        }
        Ok(())
    }

    /// Whether this call has to be counted: then [`open`](Handle::open) makes it.
    ///
    /// Outside of calls, a handle of a pool that counts seems parked: it has the shard of nobody, whose cache is empty and full, and no
    /// thread is stored in its own shard. So every call takes a slow path, and comes here; in other pools, fast paths are
    /// as they were.
    #[inline]
    fn is_closed(&self) -> bool {
        self.core.plan.counts_calls && !self.is_open.get()
    }

    /// Makes a call with the handle's shard, and counts it, unless other threads hold all shards.
    #[cold]
    fn open<R>(&self, call: impl FnOnce() -> R, tally: impl FnOnce(&Tally<OwnUsize>, &R)) -> R {
        struct Closes<'h, 'p>(&'h Handle<'p>);

        impl Drop for Closes<'_, '_> {
            fn drop(&mut self) {
                self.0.close();
            }
        }

        self.is_open.set(true);
        let _closes = Closes(self);
        self.reopen();
        let answer = call();
        if !self.is_parked() {
            tally(&self.shard.get().calls.all, &answer);
        }
        answer
    }

    /// Counts a call that was to allocate more objects than the pool can have.
    #[cold]
    pub(crate) fn count_refused(&self, objects: usize) {
        if self.is_closed() {
            self.open(|| (), |all, ()| all.count_get(false, objects));
        }
    }

    /// Takes the shard that was kept.
    fn reopen(&self) {
        let shard = self.kept.replace(self.core.nobody());
        if !ptr::eq(shard, self.core.nobody()) {
            shard.settle(stillpoint_sys::os::thread_handle());
            self.shard.set(shard);
        }
    }

    /// Ends a call that was counted.
    fn close(&self) {
        if self.is_open.replace(false) {
            let shard = self.shard.replace(self.core.nobody());
            if !ptr::eq(shard, self.core.nobody()) {
                // What is dropped between two calls is not freed into this shard, but counted.
                shard.settle(0);
                self.kept.set(shard);
            }
        }
    }

    /// Empties the shard into the store, and leaves it.
    pub(crate) fn park(&self) {
        if self.is_closed() {
            self.reopen();
        }
        if self.is_parked() {
            return;
        }
        let (shard, hold) = (self.shard.get(), self.hold());
        hold.empty_cache(shard.cache.len());
        // Take back as many objects as the shard has deposited beyond those it has withdrawn. Otherwise its buckets
        // would stay partial.
        while shard.deposited.get() > 0 && hold.empty_magazine() {}
        while hold.collect() {}
        hold.spill(u32::MAX);
        self.shard.set(self.core.nobody());
        if !is(Variant::NeverLeft) {
            self.core.leave_one(shard);
        }
    }

    fn hold(&self) -> Hold<'p> {
        debug_assert!(!self.is_parked(), "a handle attaches after user code has run");
        // SAFETY: callers attach first, so the handle holds its shard, and it stays on its thread. No `Hold` is kept
        // while user code runs, which may park this handle.
        unsafe { Hold::new(self.shard.get()) }
    }

    #[inline(always)]
    pub(crate) fn alloc(&self) -> Option<NonNull<u8>> {
        match self.alloc_from_cache() {
            None => self.alloc_slowly(),
            found => found,
        }
    }

    #[inline(always)]
    pub(crate) fn alloc_from_cache(&self) -> Option<NonNull<u8>> {
        // SAFETY: the handle holds the shard.
        unsafe { self.shard.get().cache.pop() }
    }

    #[inline(never)]
    fn alloc_slowly(&self) -> Option<NonNull<u8>> {
        if let Some(object) = self.shard.get().draw_open() {
            return Some(object);
        }
        if self.is_closed() {
            return self.open(|| self.alloc(), |all, found| all.count_get(found.is_some(), 1));
        }
        let mut object = ptr::null_mut();
        // SAFETY: there is room for one.
        let found = unsafe { self.alloc_many_slowly(&raw mut object, 1) };
        found.then_some(NonNull::new(object)?)
    }

    /// Writes `count` objects to `to`. Returns false, and allocates none, when there are fewer.
    ///
    /// # Safety
    /// There is room for them.
    #[inline(always)]
    pub(crate) unsafe fn alloc_many(&self, to: *mut *mut u8, count: usize) -> bool {
        // SAFETY: there is room for the objects, by the caller's promise.
        unsafe { self.alloc_many_from_cache(to, count) || self.alloc_many_slowly(to, count) }
    }

    /// # Safety
    /// As [`alloc_many`](Handle::alloc_many).
    #[inline(always)]
    pub(crate) unsafe fn alloc_many_from_cache(&self, to: *mut *mut u8, count: usize) -> bool {
        // SAFETY: the handle holds the shard, and there is room for the objects, by the caller's promise.
        unsafe { self.shard.get().cache.pop_many(to, count) }
    }

    /// # Safety
    /// As [`alloc_many`](Handle::alloc_many).
    #[inline(never)]
    unsafe fn alloc_many_slowly(&self, to: *mut *mut u8, count: usize) -> bool {
        if self.is_closed() {
            // SAFETY: there is room for the objects, by the caller's promise.
            let call = || unsafe { self.alloc_many(to, count) };
            return self.open(call, |all, found| all.count_get(*found, count));
        }
        let cached = self.shard.get().cache.len();
        let is_small = count <= self.core.cache_limit() && !self.shard.get().cache.is_large(count);
        // A search for more objects than the pool can have would leave others without any. It is counted, too, by the shard.
        if self.attach().is_err() || count > self.core.maximum() {
            self.count(|calls| &calls.failures, 1);
            return false;
        }
        // Also if a constructor panics while the pool grows.
        let undo = PutsBack { handle: self, cached };
        let found = if is_small {
            // SAFETY: the handle holds its shard, and there is room for the objects, by the caller's promise.
            self.refill(count) && unsafe { self.shard.get().cache.pop_many(to, count) }
        } else {
            // SAFETY: there is room for the objects, by the caller's promise.
            unsafe { self.alloc_directly(to, count) }
        };
        if !found {
            self.count(|calls| &calls.failures, 1);
            return false;
        }
        std::mem::forget(undo);
        if count == 1 && self.core.opens {
            self.hold().open_next();
        }
        true
    }

    /// Puts what a call has drawn in vain back to where other threads find it: otherwise, two threads could keep from each other what each
    /// lacks. Before the call, the cache had `cached` objects; what was drawn lies above them.
    fn put_back(&self, cached: usize) {
        const SOME: usize = 64;
        let shard = self.shard.get();
        if self.is_parked() {
            return;
        }
        let mut drawn = [ptr::null_mut(); SOME];
        while let count @ 1.. = shard.cache.len().saturating_sub(cached).min(SOME) {
            // SAFETY: the handle holds its shard, since it has drawn; there is room for that many.
            unsafe { shard.cache.pop_many(drawn.as_mut_ptr(), count) };
            self.hold().give(&drawn[..count]);
            shard.calls.given.count(count);
        }
        // The search has emptied the lists: these are objects that it had drawn.
        self.hold().offer();
    }

    /// Frees blocks of a call that found too few, and gives the whole buckets that the thread keeps to the store.
    ///
    /// # Safety
    /// As [`free_block`](Handle::free_block), for each.
    pub(crate) unsafe fn put_back_blocks(&self, starts: impl Iterator<Item = *mut u8>) {
        for start in starts {
            // SAFETY: the block is of this pool, and the caller gives it up, by its promise.
            let answer = unsafe { self.free_block(start) };
            debug_assert!(answer.is_ok(), "{answer:?}");
        }
        let spill = || {
            if !self.is_parked() {
                self.hold().spill(u32::MAX);
            }
        };
        if self.is_closed() {
            self.open(spill, |_, ()| ());
        } else {
            spill();
        }
    }

    /// Adds to a count of the handle's shard, if it holds one. Not called when the cache serves a call, which it would
    /// make a tenth slower.
    fn count(&self, which: impl FnOnce(&Calls) -> &OwnUsize, more: usize) {
        if !self.is_parked() {
            which(&self.shard.get().calls).count(more);
        }
    }

    /// Fills the cache until it has `count` objects; `count` is at most its limit. False when there are too few.
    fn refill(&self, count: usize) -> bool {
        loop {
            // Attach in each iteration: a constructor that ran while the pool grew may have parked this handle.
            if self.attach().is_err() {
                return count == 0;
            }
            let seen = self.core.seen();
            let cache = &self.shard.get().cache;
            self.shard.get().wants_blocks.set(0);
            let before = cache.len();
            while cache.len() < count && self.hold().withdraw() {}
            if let missing @ 1.. = count.saturating_sub(cache.len()) {
                let enough = missing.max(cache.appetite());
                // SAFETY: there is room for `cache.room()` objects at the end, and no user code runs before they are
                // counted.
                unsafe { cache.grew(self.hold().obtain(cache.end(), missing, enough, cache.room())) };
            }
            self.count(|calls| &calls.drawn, cache.len() - before);
            if cache.len() >= count {
                return true;
            }
            if !self.core.grow(seen, count - cache.len()) {
                return false;
            }
        }
    }

    /// # Safety
    /// As [`alloc_many`](Handle::alloc_many).
    unsafe fn alloc_directly(&self, to: *mut *mut u8, count: usize) -> bool {
        // Attach in each iteration: a constructor that ran while the pool grew may have parked this handle.
        while self.attach().is_ok() {
            let seen = self.core.seen();
            let cache = &self.shard.get().cache;
            // SAFETY: the handle holds the shard, and `to` has room, by the caller's promise.
            let ready = unsafe { cache.pop_up_to(to, count) };
            let mut got = ready;
            if ready < count && cache.is_large(count) {
                self.shard.get().wants_blocks.set(0);
                while got < count {
                    // SAFETY: as above, for as many as are missing.
                    match unsafe { self.hold().withdraw_to(to.add(got), count - got) } {
                        0 => break,
                        more => got += more,
                    }
                }
                // The rest of the last magazine is in the cache, which was empty before.
                self.count(|calls| &calls.drawn, cache.len());
            }
            let missing = count - got;
            // SAFETY: as above.
            got += unsafe { self.hold().obtain(to.add(got), missing, missing, missing) };
            self.count(|calls| &calls.drawn, got - ready);
            // SAFETY: written above.
            let objects = unsafe { slice::from_raw_parts(to, got) };
            if got == count {
                self.arm(objects.iter().copied());
                return true;
            }
            // Put the objects back before constructors run, which may panic.
            self.put(objects);
            if !self.core.grow(seen, count - got) {
                break;
            }
        }
        false
    }

    /// Records that objects are allocated, in hardened pools.
    fn arm(&self, objects: impl Iterator<Item = *mut u8>) {
        if self.core.is_hardened() {
            objects.for_each(|object| self.core.arm(object));
        }
    }

    /// Allocates a whole bucket. Returns its first object. The caller wants this many, this one included: if the pool may not have them all,
    /// it does not grow.
    pub(crate) fn alloc_block(&self, wanted: usize) -> Option<NonNull<u8>> {
        if self.is_closed() {
            let tally = |all: &Tally<OwnUsize>, found: &Option<_>| {
                if found.is_some() { &all.block_gets } else { &all.failed_block_gets }.count(1);
            };
            return self.open(|| self.alloc_block(wanted), tally);
        }
        loop {
            // Attach in each iteration: a constructor that ran while the pool grew may have parked this handle.
            if self.attach().is_err() {
                return None;
            }
            let missing = wanted.saturating_mul(self.core.geometry.objects() as usize);
            if missing > self.core.maximum() {
                self.count(|calls| &calls.failures, 1);
                return None;
            }
            let seen = self.core.seen();
            self.shard.get().wants_blocks.set(1);
            if let Some(bucket) = self.hold().obtain_whole() {
                self.count(|calls| &calls.blocks_got, 1);
                self.arm(self.core.objects_of(bucket));
                return NonNull::new(self.core.address(bucket, 0));
            }
            if !self.core.grow(seen, missing) {
                self.count(|calls| &calls.failures, 1);
                return None;
            }
        }
    }

    /// # Safety
    /// The object came from this pool, and the caller gives it up.
    #[inline(always)]
    pub(crate) unsafe fn free(&self, object: *mut u8) -> Result<(), FreeError> {
        // SAFETY: the object came from this pool, and the caller gives it up, by its promise.
        if unsafe { self.free_to_cache(object) } {
            return Ok(());
        }
        // SAFETY: the object came from this pool, and the caller gives it up, by its promise.
        unsafe { self.free_one_slowly(object) }
    }

    /// Frees an object if it is in the pool's memory and the cache has room. False if nothing happened.
    ///
    /// # Safety
    /// As [`free`](Handle::free).
    #[inline(always)]
    pub(crate) unsafe fn free_to_cache(&self, object: *mut u8) -> bool {
        let cache = &self.shard.get().cache;
        // One branch, so that a loop over single frees is well predicted.
        let fits = self.core.offset_of(object).is_some() & cache.has_room();
        if fits {
            // SAFETY: the handle holds the shard, whose cache has room; an address in the pool is not null.
            unsafe { cache.push_where_is_room(object) };
        }
        fits
    }

    /// Takes the address by value, so that a caller that ends with this call needs no stack frame.
    ///
    /// # Safety
    /// As [`free`](Handle::free).
    #[inline(never)]
    unsafe fn free_one_slowly(&self, object: *mut u8) -> Result<(), FreeError> {
        if self.shard.get().give_open_one(object) {
            return Ok(());
        }
        if self.is_closed() {
            // SAFETY: the object came from this pool, and the caller gives it up, by its promise.
            let call = || unsafe { self.free(object) };
            return self.open(call, |all, answer| all.count_put(answer, 1));
        }
        // SAFETY: the object came from this pool, and the caller gives it up, by its promise.
        unsafe { self.free_slowly(slice::from_ref(&object)) }
    }

    /// # Safety
    /// The objects came from this pool, and the caller gives up all of them.
    #[inline(always)]
    pub(crate) unsafe fn free_many(&self, objects: &[*mut u8]) -> Result<(), FreeError> {
        // SAFETY: the objects came from this pool, and the caller gives them up, by its promise.
        if unsafe { self.free_many_to_cache(objects) } {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.free_slowly(objects) }
    }

    /// Frees objects if all are in the pool's memory and the cache has room for them. False if nothing happened.
    ///
    /// # Safety
    /// As [`free_many`](Handle::free_many).
    #[inline(always)]
    pub(crate) unsafe fn free_many_to_cache(&self, objects: &[*mut u8]) -> bool {
        let cache = &self.shard.get().cache;
        let Some(to) = cache.reserve(objects.len()) else { return false };
        let (start, last) = self.core.bounds();
        // SAFETY: room for them was reserved, in the shard that the handle holds.
        let are_ours = unsafe { copy::within(objects.as_ptr(), to, objects.len(), start, last) };
        if are_ours {
            // SAFETY: written above.
            unsafe { cache.grew(objects.len()) };
        }
        are_ours
    }

    /// # Safety
    /// As [`free_many`](Handle::free_many).
    #[inline(never)]
    unsafe fn free_slowly(&self, objects: &[*mut u8]) -> Result<(), FreeError> {
        if self.is_closed() {
            // SAFETY: the objects came from this pool, and the caller gives them up, by its promise.
            let call = || unsafe { self.free_many(objects) };
            return self.open(call, |all, answer| all.count_put(answer, objects.len()));
        }
        let freed = match self.shard.get().cache.limit() {
            0 => 0,
            // SAFETY: the objects came from this pool, and the caller gives them up, by its promise.
            _ => unsafe { self.free_quickly(objects) },
        };
        // After a refill the cache may hold more than its limit; a call without objects must not empty it.
        if freed == objects.len() {
            return Ok(());
        }
        if let Some((row, bits)) = if self.core.opens { self.core.run_of(objects) } else { None } {
            self.give_openly(row, bits, objects);
            return Ok(());
        }
        let answer = self.core.accept_many(objects, freed);
        self.put(&objects[freed..answer.err().map_or(objects.len(), FreeError::index)]);
        answer
    }

    /// Frees neighbours in a row, in a pool that opens buckets.
    fn give_openly(&self, row: u32, bits: u64, objects: &[*mut u8]) {
        if self.shard.get().give_open(objects) {
            return;
        }
        if self.attach().is_err() {
            return self.core.free_bits_stray(row, bits);
        }
        self.count(|calls| &calls.given, objects.len());
        let hold = self.hold();
        hold.give_run(row, bits);
        hold.open_next();
    }

    /// Frees objects without a look at their buckets: many to magazines, and the rest to the cache, in which it makes room. Returns how many
    /// it has freed: not all, if the cache is too small for that, or if one is not in the pool's memory.
    ///
    /// # Safety
    /// As [`free_many`](Handle::free_many).
    #[inline(never)]
    unsafe fn free_quickly(&self, objects: &[*mut u8]) -> usize {
        let shard = self.shard.get();
        let mut freed = 0;
        if shard.cache.is_large(objects.len()) && shard.wants_blocks.get() == 0 {
            // SAFETY: by the caller's promise; each has as many as a magazine.
            let deposited = |many: &&[*mut u8]| unsafe { self.hold().deposit_from(many) };
            let magazine = shard.cache.limit() / 2;
            freed = magazine * objects.chunks_exact(magazine).take_while(deposited).count();
        }
        let rest = &objects[freed..];
        if (1..=shard.cache.limit()).contains(&rest.len()) {
            self.hold().make_room(rest.len());
            // SAFETY: by the caller's promise.
            if unsafe { self.free_many_to_cache(rest) } {
                return objects.len();
            }
        }
        freed
    }

    /// Frees objects that were accepted.
    fn put(&self, objects: &[*mut u8]) {
        if self.attach().is_ok() {
            self.hold().put(objects);
        } else {
            // This handle is parked, and no shard is left for it.
            objects.iter().filter_map(|&object| self.core.place_of(object)).for_each(|place| {
                self.core.free_stray(place);
            });
        }
    }

    /// Frees a block as a whole.
    ///
    /// # Safety
    /// It came from [`alloc_block`](Handle::alloc_block) of this pool, and the caller gives up all its objects.
    pub(crate) unsafe fn free_block(&self, start: *mut u8) -> Result<(), FreeError> {
        if self.is_closed() {
            let tally = |all: &Tally<OwnUsize>, answer: &Result<_, _>| {
                if answer.is_ok() { &all.block_puts } else { &all.failed_block_puts }.count(1);
            };
            // SAFETY: the block came from this pool, and the caller gives it up, by its promise.
            return self.open(|| unsafe { self.free_block(start) }, tally);
        }
        let bucket = self.core.accept_block(start)?;
        if self.attach().is_ok() {
            self.hold().give_bucket(bucket);
            self.count(|calls| &calls.blocks_put, 1);
        } else {
            self.core.free_bucket_stray(bucket);
        }
        Ok(())
    }
}

/// Puts back what a call has drawn in vain when it is dropped. See [`Handle::put_back`].
struct PutsBack<'h, 'p> {
    handle: &'h Handle<'p>,
    cached: usize,
}

impl Drop for PutsBack<'_, '_> {
    fn drop(&mut self) {
        self.handle.put_back(self.cached);
    }
}

impl Tally<OwnUsize> {
    fn count_get(&self, is_done: bool, objects: usize) {
        let (calls, all) = if is_done { (&self.gets, &self.got) } else { (&self.failed_gets, &self.not_got) };
        calls.count(1);
        all.count(objects);
    }

    fn count_put(&self, answer: &Result<(), FreeError>, objects: usize) {
        let (calls, put) = match answer {
            Ok(()) => (&self.puts, objects),
            Err(error) => (&self.failed_puts, error.index()),
        };
        calls.count(1);
        self.put.count(put);
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        self.park();
    }
}

impl Hold<'_> {
    /// Puts objects into the cache, after making room if necessary. More objects than the cache's limit go to their
    /// buckets.
    pub(crate) fn put(self, objects: &[*mut u8]) {
        let (cache, count) = (&self.shard.cache, objects.len());
        if count > cache.limit() {
            self.shard.calls.given.count(count);
            return self.give(objects);
        }
        self.make_room(count);
        // SAFETY: the shard is held (see `Hold::new`), and there is room below the limit.
        unsafe {
            ptr::copy_nonoverlapping(objects.as_ptr(), cache.end(), count);
            cache.grew(count);
        }
    }

    /// Empties the cache until `count` more objects fit; `count` is at most its limit.
    fn make_room(self, count: usize) {
        let cache = &self.shard.cache;
        while cache.len() + count > cache.limit() {
            if self.shard.wants_blocks.get() != 0 || !self.deposit() {
                let keep = (cache.limit() / 2).min(cache.limit() - count);
                self.empty_cache(cache.len() - keep);
            }
        }
    }

    /// Puts all objects of a bucket back into it.
    fn give_bucket(self, bucket: u32) {
        // The row that comes back last is the first to be drawn from: go on from lower addresses to higher ones.
        for row in (bucket..bucket + self.core.geometry.rows()).rev() {
            self.give_run(row, self.core.geometry.full(row));
        }
    }
}

/// See [`Core::unless_it_panics`].
pub(crate) struct Rest<'c, I: Iterator<Item = *mut u8>> {
    core: &'c Core,
    objects: I,
}

impl<I: Iterator<Item = *mut u8>> Drop for Rest<'_, I> {
    fn drop(&mut self) {
        for object in self.objects.by_ref() {
            if let Some(place) = self.core.place_of(object).filter(|&place| self.core.disarm(object, place)) {
                self.core.count_dropped(0, true);
                self.core.free_stray(place);
            }
        }
    }
}

impl Core {
    /// The address of the first byte, and the offset of the last.
    #[inline(always)]
    pub(crate) fn bounds(&self) -> (usize, usize) {
        (self.extent.start().addr(), self.extent.end().wrapping_sub(1))
    }

    /// The objects of a bucket.
    fn objects_of(&self, bucket: u32) -> impl Iterator<Item = *mut u8> + Clone {
        self.objects_from(self.address(bucket, 0))
    }

    /// The objects of the bucket whose first object is `first`.
    pub(crate) fn objects_from(&self, first: *mut u8) -> impl Iterator<Item = *mut u8> + Clone {
        let stride = self.geometry.stride();
        (0..self.geometry.objects() as usize).map(move |index| first.wrapping_add(index * stride))
    }

    /// Checks an object that is being freed, the one at `index` of the call, and records that it is free.
    pub(crate) fn accept(&self, object: *mut u8, index: usize) -> Result<Place, FreeError> {
        if self.offset_of(object).is_none() {
            return Err(FreeError::Foreign(index));
        }
        let place = self.place_of(object).ok_or(FreeError::NotAnObject(index))?;
        if self.disarm(object, place) {
            Ok(place)
        } else {
            Err(FreeError::AlreadyFree(index))
        }
    }

    /// Checks a block that is being freed. Returns its bucket.
    fn accept_block(&self, start: *mut u8) -> Result<u32, FreeError> {
        if self.offset_of(start).is_none() {
            return Err(FreeError::Foreign(0));
        }
        let place = self.place_of(start).ok_or(FreeError::NotAnObject(0))?;
        let bucket = self.geometry.bucket_of(place.row);
        if place != (Place { row: bucket, bit: 0 }) {
            return Err(FreeError::NotAnObject(0));
        }
        if self.is_hardened() {
            let objects: Vec<_> = self.objects_of(bucket).collect();
            let free = |&object: &*mut u8| self.place_of(object).is_none_or(|place| !self.is_armed(place));
            // Either all objects are freed, or none.
            if let Some(index) = objects.iter().position(free) {
                return Err(FreeError::AlreadyFree(index));
            }
            let mut doubled = None;
            let mut ours = Vec::with_capacity(objects.len());
            for (index, &object) in objects.iter().enumerate() {
                match self.place_of(object).filter(|&place| self.disarm(object, place)) {
                    Some(place) => ours.push(place),
                    None => doubled = doubled.or(Some(index)),
                }
            }
            if let Some(index) = doubled {
                // Another thread is freeing the same block: each object is freed by one of the two threads.
                ours.into_iter().for_each(|place| self.free_stray(place));
                return Err(FreeError::AlreadyFree(index));
            }
        }
        Ok(bucket)
    }

    /// Checks objects that are being freed, those from `first` on, as [`accept`](Core::accept) does. If there is an error, the objects before
    /// the faulty one were accepted.
    fn accept_many(&self, objects: &[*mut u8], first: usize) -> Result<(), FreeError> {
        let mut index = first;
        while let Some(&object) = objects.get(index) {
            let place = self.accept(object, index)?;
            // Neighbours of an object are objects. A hardened pool looks at each one.
            index += if self.is_hardened() { 1 } else { self.run_at(place, &objects[index..]).1 };
        }
        Ok(())
    }

    /// A guard that frees the caller's objects if the caller panics before it forgets the guard.
    pub(crate) fn unless_it_panics<I: Iterator<Item = *mut u8>>(&self, objects: I) -> Rest<'_, I> {
        Rest { core: self, objects }
    }

    /// Frees an object on any thread. If the calling thread holds the shard that the object came with, it goes into
    /// that shard; otherwise it goes through the owner's inbox.
    ///
    /// # Safety
    /// The object came from the pool of `shard`, together with `shard`, and the caller gives it up.
    #[inline(always)]
    pub(crate) unsafe fn free_anywhere(shard: &Shard, object: *mut u8) {
        let here = shard.is_of(stillpoint_sys::os::thread_handle());
        // SAFETY: the calling thread holds the shard, and its handle, which stays on this thread, is not in a call.
        if !here || !unsafe { shard.cache.push(object) } {
            Self::free_anywhere_slowly(shard, object);
        }
    }

    #[inline(never)]
    fn free_anywhere_slowly(shard: &Shard, object: *mut u8) {
        let core = shard.core();
        if shard.is_of(stillpoint_sys::os::thread_handle()) && shard.give_open_one(object) {
            return core.count_dropped(0, true);
        }
        let accepted = core.accept(object, 0);
        core.count_dropped(0, accepted.is_ok());
        match accepted {
            Ok(_) if shard.is_of(stillpoint_sys::os::thread_handle()) => {
                // SAFETY: the calling thread holds the shard, and its handle, which stays on this thread, is not in a
                // call.
                unsafe { Hold::new(shard) }.put(&[object])
            }
            Ok(place) => core.free_stray(place),
            Err(_) => core.misused(1),
        }
    }

    /// As [`free_anywhere`](Core::free_anywhere), for all objects of a bucket.
    ///
    /// # Safety
    /// The bucket came from the pool of `shard`, together with `shard`, and the caller gives up all its objects.
    pub(crate) unsafe fn free_block_anywhere(shard: &Shard, start: *mut u8) {
        let core = shard.core();
        let accepted = core.accept_block(start);
        core.count_dropped(1, accepted.is_ok());
        let Ok(bucket) = accepted else { return core.misused(1) };
        if shard.is_of(stillpoint_sys::os::thread_handle()) {
            // SAFETY: the calling thread holds the shard, and its handle, which stays on this thread, is not in a call.
            unsafe { Hold::new(shard) }.give_bucket(bucket);
            shard.calls.blocks_put.count(1);
        } else {
            core.free_bucket_stray(bucket);
        }
    }

    /// Frees an object through the owner's inbox, without checking who holds its shard.
    pub(crate) fn free_without_shard(&self, object: *mut u8) {
        let accepted = self.accept(object, 0);
        self.count_dropped(0, accepted.is_ok());
        match accepted {
            Ok(place) => self.free_stray(place),
            Err(_) => self.misused(1),
        }
    }

    /// Counts an object (0) or a block (1) that is freed without a handle, in a pool that counts calls.
    fn count_dropped(&self, which: usize, is_accepted: bool) {
        if self.plan.counts_calls && is_accepted {
            // Relaxed: a count.
            self.dropped[which].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The shard that owns the bucket of an object. In a small pool, one that no thread holds.
    pub(crate) fn owner_of(&self, object: *mut u8) -> Option<&Shard> {
        let row = self.place_of(object)?.row;
        if self.plan.common {
            return Some(self.nobody());
        }
        self.shard(self.owner_of_row(row))
    }
}
