//! Where objects come from when the holder's own buckets have none.

use super::hold::Hold;
use super::row::NONE;
use super::{Core, Shard};
use crate::pool::busted::{is, Variant};
use stillpoint_sys::sync::atomic::Ordering;

impl Hold<'_> {
    /// Gets at least `want` objects, if the pool has so many, `enough` if the shard's own buckets have them, and at most
    /// `room`; returns how many. No code of the user's runs meanwhile.
    ///
    /// # Safety
    /// There is room for so many at `to`.
    pub(crate) unsafe fn obtain(self, to: *mut *mut u8, want: usize, enough: usize, room: usize) -> usize {
        self.collect();
        let mut got = 0;
        while got < enough {
            // SAFETY: the caller's promise; what was written before is behind.
            let (to, room) = (unsafe { to.add(got) }, room - got);
            // SAFETY: as above.
            got += match unsafe { self.draw(to, room) } {
                0 if got >= want => break,
                0 if self.collect() || self.find(false) => continue,
                // SAFETY: as above.
                0 => match unsafe { self.draw_left(to, room) } {
                    // SAFETY: as above.
                    0 => match unsafe { self.draw_sent(to, room) } {
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

    /// A whole bucket from anywhere. No code of the user's runs meanwhile.
    pub(crate) fn obtain_whole(self) -> Option<u32> {
        self.collect();
        loop {
            let found = self.draw_whole();
            let more = || {
                self.collect() || self.find(true) || self.rescue() || self.free_cached() || self.empty_depot()
            };
            if found.is_some() || !more() {
                return found;
            }
        }
    }

    /// Finds whole buckets for this shard.
    fn find(self, block: bool) -> bool {
        self.stock() || self.inherit(block)
    }

    /// Empties the cache: its objects may make buckets whole.
    fn free_cached(self) -> bool {
        let cached = self.shard.cache.len();
        if cached == 0 {
            return false;
        }
        self.empty_cache(cached);
        true
    }

    /// Empties the depot, until that makes a bucket of this shard's whole. Those of others may be rescued then.
    fn empty_depot(self) -> bool {
        let mut some = false;
        while self.shard.whole.len() == 0 && self.empty_magazine() {
            some = true;
        }
        some
    }

    /// Puts the oldest `least` objects of the cache, or some more, back into their buckets.
    pub(crate) fn empty_cache(self, least: usize) {
        let before = self.shard.cache.len();
        // SAFETY: the shard is held (see `Hold::new`); giving does not touch the cache.
        unsafe { self.shard.cache.shift(|objects| self.give_first(objects, least)) };
        self.shard.calls.given.count(before - self.shard.cache.len());
    }

    /// Takes over the whole buckets of a shard that nobody holds. For a block, it is worth another look when there were rows
    /// in an inbox, which are not all collected at once.
    fn inherit(self, block: bool) -> bool {
        for shard in self.core.shards().filter(|shard| shard.try_hold()) {
            // SAFETY: taken hold of just now.
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
        // What was collected may have gone there.
        self.stock()
    }

    /// Takes single objects from the broken buckets of shards that nobody holds. The buckets stay theirs.
    ///
    /// # Safety
    /// As [`draw`](Hold::draw).
    unsafe fn draw_left(self, to: *mut *mut u8, most: usize) -> usize {
        for shard in self.core.shards().filter(|shard| shard.try_hold()) {
            // SAFETY: taken hold of just now; the caller has room.
            let drawn = unsafe { Hold::new(shard).draw(to, most) };
            shard.leave();
            if drawn > 0 {
                return drawn;
            }
        }
        0
    }

    /// Claims a bucket of a shard whose holder does not look into its inbox: one of which every object has been freed by other
    /// threads. Goes through all that waits.
    fn rescue(self) -> bool {
        let mut found = false;
        for shard in self.core.shards().filter(|shard| shard.index != self.shard.index) {
            for take in [Shard::take_rest, Shard::take_posted] {
                self.core.go_through(shard, take(shard), |row, bits| {
                    found = self.claim(row, bits, shard.index);
                    if !found && !is(Variant::RescueForgets) {
                        self.core.pass_on(row, bits);
                    }
                    !found
                });
                if found {
                    return true;
                }
            }
        }
        false
    }

    /// Makes the bucket of a row one of the shard's if all its objects are among `bits`.
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

    /// Whether the owner of a row has nothing of its bucket left, not even in a list. Only for buckets of one row.
    fn may_claim(self, row: u32, bits: u64, owner: u32) -> bool {
        let (header, full) = (&self.core.rows[row as usize], self.core.geometry.full(row));
        // If the owner has a free object of the bucket, one of these was freed twice: the owner finds out which.
        let all = self.core.geometry.rows() == 1
            && bits == full
            && (header.live.get() == full || is(Variant::ClaimFree));
        // Relaxed: as in `take_in`.
        (all || is(Variant::ClaimAnyhow)) && header.owner.load(Ordering::Relaxed) == owner
    }

    /// Takes objects out of the inboxes of others, as they are: their buckets stay where they are, and whose they are. A bucket
    /// of which all objects are there is claimed instead, so that some are drawn from it. Goes no further than it must;
    /// `None` if there was nothing.
    ///
    /// # Safety
    /// There is room for that many.
    unsafe fn draw_sent(self, to: *mut *mut u8, most: usize) -> Option<usize> {
        let (mut drawn, mut claimed) = (0, false);
        for shard in self.core.shards().filter(|shard| shard.index != self.shard.index) {
            for take in [Shard::take_rest, Shard::take_posted] {
                if drawn == most || claimed {
                    break;
                }
                self.core.go_through(shard, take(shard), |row, bits| {
                    claimed = self.claim(row, bits, shard.index);
                    if claimed {
                        return false;
                    }
                    // What is free in its bucket was freed twice.
                    let mut rest = bits & self.core.rows[row as usize].live.peek();
                    let twice = bits & !rest;
                    while rest != 0 && drawn < most {
                        let bit = rest.trailing_zeros();
                        rest &= rest - 1;
                        // SAFETY: the caller's promise.
                        unsafe { to.add(drawn).write(self.core.address(row, bit)) };
                        drawn += 1;
                    }
                    self.core.pass_on(row, rest | twice);
                    drawn < most
                });
            }
        }
        self.shard.out.set(self.shard.out.get() + drawn as isize);
        (drawn > 0 || claimed).then_some(drawn)
    }
}

impl Core {
    /// Sends bits that were taken from an inbox to the owner of their bucket.
    pub(crate) fn pass_on(&self, row: u32, bits: u64) {
        if bits != 0 {
            // Counted when they were freed; what was freed again meanwhile counts as a double free.
            let brought = self.deliver(row, bits);
            self.correct(bits.count_ones() - brought);
        }
    }

    /// The shard of an index that was read from a row.
    pub(crate) fn shard(&self, index: u32) -> Option<&super::shard::Shard> {
        (index != NONE).then(|| &**self.shards[index as usize].get().expect("an owner is a shard"))
    }
}
