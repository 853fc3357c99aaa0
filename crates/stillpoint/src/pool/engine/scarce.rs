//! Sources of objects when the holder's own buckets have none.

use std::ptr;

use super::hold::Hold;
use super::row::NONE;
use super::{Core, Shard};
use crate::pool::busted::{is, Variant};
use stillpoint_sys::sync::atomic::Ordering;

impl Hold<'_> {
    /// Gets at least `want` objects if the pool has that many, `enough` if the shard's own buckets have that many, and
    /// at most `room`. Returns their number. No user code runs meanwhile.
    ///
    /// # Safety
    /// There is room for `room` objects at `to`.
    pub(crate) unsafe fn obtain(self, to: *mut *mut u8, want: usize, enough: usize, room: usize) -> usize {
        if self.core.plan.common {
            // SAFETY: there is room for `room` objects, by the caller's promise, and `enough` is not more.
            return unsafe { self.core.take_from_common(to, enough) };
        }
        self.collect();
        let mut got = 0;
        while got < enough {
            // SAFETY: there is room for `room` objects, by the caller's promise, and `got` of them were written
            // already.
            let (to, room) = (unsafe { to.add(got) }, room - got);
            // SAFETY: `to` has room for `room` more objects.
            got += match unsafe { self.draw(to, room) } {
                0 if got >= want => break,
                0 if self.collect() || self.find(false) => continue,
                // SAFETY: `to` has room for `room` more objects.
                0 => match unsafe { self.draw_left(to, enough - got, room) } {
                    // SAFETY: `to` has room for `room` more objects.
                    0 => match unsafe { self.draw_sent(to, room.min(enough - got)) } {
                        None if self.empty_magazine() => 0,
                        None => break,
                        Some(drawn) => drawn,
                    },
                    drawn => drawn,
                },
                drawn => drawn,
            };
        }
        got
    }

    /// Takes a whole bucket from any source. No user code runs meanwhile.
    pub(crate) fn obtain_whole(self) -> Option<u32> {
        if self.core.plan.common {
            return self.core.take_bucket_from_common();
        }
        self.collect();
        let mut emptied = false;
        loop {
            if let found @ Some(_) = self.draw_whole() {
                return found;
            }
            if self.collect() || self.find(true) || self.rescue() || self.free_cached() {
                continue;
            }
            if !self.empty_depot() {
                break;
            }
            emptied = true;
        }
        if emptied {
            // What was in the depot was there for all threads.
            self.offer();
        }
        None
    }

    /// Finds whole buckets for this shard in the store, or in shards that no thread holds.
    fn find(self, block: bool) -> bool {
        self.stock() || self.inherit(block)
    }

    /// Empties the cache, whose objects may make buckets whole.
    fn free_cached(self) -> bool {
        let cached = self.shard.cache.len();
        if cached == 0 {
            return false;
        }
        self.empty_cache(cached);
        true
    }

    /// Empties the depot, until one of this shard's buckets is whole. Buckets of other shards may be rescued
    /// afterwards.
    fn empty_depot(self) -> bool {
        let mut some = false;
        while self.shard.whole.len() == 0 && self.empty_magazine() {
            some = true;
        }
        some
    }

    /// Puts at least the `least` oldest objects of the cache back into their buckets.
    pub(crate) fn empty_cache(self, least: usize) {
        let before = self.shard.cache.len();
        // SAFETY: the shard is held (see `Hold::new`), and `give_first` does not touch the cache.
        unsafe { self.shard.cache.shift(|objects| self.give_first(objects, least)) };
        self.shard.calls.given.count(before - self.shard.cache.len());
    }

    /// Takes over the whole buckets of a shard that no thread holds. For a block, also returns true if there were rows
    /// in the inbox. Not all rows are collected at once, so another attempt may find a bucket.
    fn inherit(self, block: bool) -> bool {
        for shard in self.core.shards().filter(|shard| shard.try_hold()) {
            // SAFETY: `try_hold` succeeded just now.
            let left = unsafe { Hold::new(shard) };
            let mut found = left.collect() && block;
            while let Some(bucket) = shard.whole.last() {
                shard.whole.remove(&self.core.rows, bucket);
                self.own(bucket);
                found = true;
            }
            shard.leave();
            if found {
                return true;
            }
        }
        // Collected buckets may have gone to the store.
        self.stock()
    }

    /// Takes single objects from the partial buckets of shards that no thread holds, bucket by bucket, until there are `enough`, or more if
    /// the last bucket has them. The buckets keep their owner. Does not return before: the next search collects from all these shards.
    ///
    /// # Safety
    /// As [`draw`](Hold::draw).
    unsafe fn draw_left(self, to: *mut *mut u8, enough: usize, most: usize) -> usize {
        let mut drawn = 0;
        for shard in self.core.shards().filter(|shard| shard.try_hold()) {
            // SAFETY: `try_hold` succeeded just now.
            let left = unsafe { Hold::new(shard) };
            while drawn < enough {
                // SAFETY: the caller has room for `most` objects, and `drawn` of them were written.
                match unsafe { left.draw(to.add(drawn), most - drawn) } {
                    0 => break,
                    more => drawn += more,
                }
            }
            shard.leave();
            if drawn >= enough {
                break;
            }
        }
        drawn
    }

    /// Claims a bucket of a shard whose holder does not collect, if other threads have freed all objects of the bucket.
    /// Goes through all inboxes.
    fn rescue(self) -> bool {
        // SAFETY: no object is written.
        unsafe { self.draw_sent(ptr::null_mut(), 0) }.is_some()
    }

    /// Gives this shard the bucket of a row, if all its objects are among `bits`.
    fn claim(self, row: u32, bits: u64, owner: u32) -> bool {
        let claimed = self.may_claim(row, bits, owner);
        if claimed {
            let header = &self.core.rows[row as usize];
            header.live.set(0);
            header.free.set(self.core.geometry.objects());
            self.own(row);
        }
        claimed
    }

    /// Whether the owner has no objects of this bucket, and the bucket is in no list. Only for buckets of one row.
    fn may_claim(self, row: u32, bits: u64, owner: u32) -> bool {
        let (header, full) = (&self.core.rows[row as usize], self.core.geometry.full(row));
        // If the owner has a free object of the bucket, one of `bits` was freed twice; the owner will find it.
        let all = self.core.geometry.rows() == 1
            && bits == full
            && (header.live.get() == full || is(Variant::ClaimFree));
        // Relaxed: the exchange that took the bits was an acquire, so this finds the owner that the bucket had when the
        // objects were allocated, or a later one.
        (all || is(Variant::ClaimAnyhow)) && header.owner.load(Ordering::Relaxed) == owner
    }

    /// Takes single objects out of the inboxes of other shards. Their buckets keep their place and their owner. If all
    /// objects of a bucket are in an inbox, the bucket itself is claimed, and the caller can draw from it. Stops only when it has drawn or
    /// claimed `most` objects (if `most` is 0, a bucket): the next search begins with all shards again. `None` if there was nothing.
    ///
    /// # Safety
    /// There is room for `most` objects.
    unsafe fn draw_sent(self, to: *mut *mut u8, most: usize) -> Option<usize> {
        let (mut drawn, mut claimed) = (0, 0);
        let bucket = self.core.geometry.objects() as usize;
        let is_enough = |drawn: usize, claimed: usize| drawn + claimed * bucket >= most.max(1);
        for shard in self.core.shards().filter(|shard| shard.index != self.shard.index) {
            for take in [Shard::take_rest, Shard::take_posted] {
                if is_enough(drawn, claimed) {
                    break;
                }
                self.core.go_through(shard, take(shard), |row, bits| {
                    if self.claim(row, bits, shard.index) {
                        claimed += 1;
                        return !is_enough(drawn, claimed);
                    }
                    // If a bit is that of an object that is free in its bucket, the object was freed twice.
                    let mut rest = bits & self.core.rows[row as usize].live.peek();
                    let twice = bits & !rest;
                    while rest != 0 && drawn + claimed * bucket < most {
                        let bit = rest.trailing_zeros();
                        rest &= rest - 1;
                        // SAFETY: there is room for `most` objects, by the caller's promise, and `drawn` is below
                        // `most`.
                        unsafe { to.add(drawn).write(self.core.address(row, bit)) };
                        drawn += 1;
                    }
                    if most > 0 || !is(Variant::RescueForgets) {
                        self.core.pass_on(row, rest | twice);
                    }
                    !is_enough(drawn, claimed)
                });
            }
        }
        self.shard.out.set(self.shard.out.get() + drawn as isize);
        (drawn + claimed > 0).then_some(drawn)
    }
}

impl Core {
    /// Sends bits that were taken from an inbox back to the owner of their bucket.
    pub(crate) fn pass_on(&self, row: u32, bits: u64) {
        if bits != 0 {
            // The objects were counted when they were freed. Those that were freed again meanwhile count as double
            // frees.
            let brought = self.deliver(row, bits);
            self.correct(bits.count_ones() - brought);
        }
    }

    /// The shard with an index that was read from a row.
    pub(crate) fn shard(&self, index: u32) -> Option<&super::shard::Shard> {
        (index != NONE).then(|| self.shards[index as usize].get().expect("an owner is a shard"))
    }
}
