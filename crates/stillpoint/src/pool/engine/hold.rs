//! What the holder of a shard does with its buckets.

use super::row::Spot;
use super::shard::Shard;
use super::store::Chain;
use super::Core;
use crate::pool::busted::{is, Variant};
use crate::sync::atomic::Ordering;

/// The right to use a shard.
#[derive(Clone, Copy)]
pub(crate) struct Hold<'c> {
    pub(crate) core: &'c Core,
    pub(crate) shard: &'c Shard,
}

impl<'c> Hold<'c> {
    /// # Safety
    /// The caller holds the shard as long as this value is used, and is the only one who does.
    #[inline(always)]
    pub(crate) unsafe fn new(shard: &'c Shard) -> Self {
        Self { core: shard.core(), shard }
    }

    /// Writes up to `most` free objects of the shard's own buckets to `to`: those of one bucket, a broken one first.
    ///
    /// # Safety
    /// There is room for them.
    pub(crate) unsafe fn draw(self, to: *mut *mut u8, most: usize) -> usize {
        let broken = self.end_of(&self.shard.partial);
        // What has come back lately is in broken buckets.
        let broken = broken.filter(|_| !self.core.cold_first || self.shard.whole.len() == 0);
        let (list, bucket) = match (broken, self.end_of(&self.shard.whole)) {
            (Some(bucket), _) => (&self.shard.partial, bucket),
            (None, Some(bucket)) => (&self.shard.whole, bucket),
            (None, None) => return 0,
        };
        if most == 0 {
            return 0;
        }
        let rows = &self.core.rows;
        let free = rows[bucket as usize].free.get();
        if free as usize <= most {
            list.remove(rows, bucket);
        } else if Spot::of(rows[bucket as usize].spot.get()) == Spot::Whole {
            list.remove(rows, bucket);
            self.shard.partial.push(rows, bucket);
        }
        let mut drawn = 0;
        for row in bucket..bucket + self.core.geometry.rows() {
            // SAFETY: the caller's promise; `drawn` does not exceed `most`.
            drawn += unsafe { self.draw_row(row, to.add(drawn), most - drawn) };
        }
        rows[bucket as usize].free.set(free - drawn as u32);
        self.shard.out.set(self.shard.out.get() + drawn as isize);
        drawn
    }

    /// # Safety
    /// As [`draw`](Hold::draw).
    unsafe fn draw_row(self, row: u32, to: *mut *mut u8, most: usize) -> usize {
        let live = &self.core.rows[row as usize].live;
        let full = self.core.geometry.full(row);
        let mut left = full & !live.get();
        let count = (left.count_ones() as usize).min(most);
        if left == full && count == full.count_ones() as usize {
            let first = self.core.address(row, 0);
            for index in 0..count {
                // SAFETY: the caller's promise.
                unsafe { to.add(index).write(first.wrapping_add(index * self.core.geometry.stride())) };
            }
            live.set(full);
            return count;
        }
        // Where objects are to rest for long, the drawing goes round.
        let turn = self.core.cold_first.then_some(&self.core.rows[row as usize].turn);
        for index in 0..count {
            let ahead = turn.map_or(left, |turn| left & (u64::MAX << turn.get()));
            let bit = if ahead == 0 { left } else { ahead }.trailing_zeros();
            left &= !(1 << bit);
            turn.inspect(|turn| turn.set((bit + 1) % u64::BITS));
            // SAFETY: the caller's promise.
            unsafe { to.add(index).write(self.core.address(row, bit)) };
        }
        live.set(full & !left);
        count
    }

    /// The bucket to take from: the newest, or the oldest where objects are to rest for long.
    fn end_of(self, list: &super::list::List) -> Option<u32> {
        if self.core.cold_first {
            list.last()
        } else {
            list.first()
        }
    }

    /// Takes a whole bucket for a block.
    pub(crate) fn draw_whole(self) -> Option<u32> {
        let (rows, geometry) = (&self.core.rows, &self.core.geometry);
        let bucket = self.end_of(&self.shard.whole)?;
        self.shard.whole.remove(rows, bucket);
        (bucket..bucket + geometry.rows()).for_each(|row| rows[row as usize].live.set(geometry.full(row)));
        rows[bucket as usize].free.set(0);
        self.shard.out.set(self.shard.out.get() + geometry.objects() as isize);
        Some(bucket)
    }

    /// Puts objects back into their buckets, in runs that share a row.
    pub(crate) fn give(self, objects: &[*mut u8]) {
        let stride = self.core.geometry.stride();
        let mut rest = objects;
        while let Some((&first, mut others)) = rest.split_first() {
            let Some(place) = self.core.place_of(first) else {
                self.core.report_stranger(first);
                rest = others;
                continue;
            };
            let full = self.core.geometry.full(place.row);
            let mut last = 1u64 << place.bit;
            let mut bits = last;
            let mut neighbour = first.wrapping_add(stride);
            while let Some((&next, beyond)) = others.split_first() {
                // The next object of the bucket, which comes most often, takes no division.
                let bit = if next == neighbour && full & (last << 1) != 0 {
                    last << 1
                } else {
                    match self.core.place_of(next) {
                        Some(same) if same.row == place.row => 1 << same.bit,
                        _ => break,
                    }
                };
                if bits & bit != 0 {
                    break;
                }
                (bits, last, neighbour) = (bits | bit, bit, next.wrapping_add(stride));
                others = beyond;
            }
            self.give_run(place.row, bits);
            rest = others;
        }
    }

    /// Puts objects of one row back.
    pub(crate) fn give_run(self, row: u32, bits: u64) {
        // Relaxed: as in `deliver`.
        let owner = self.core.rows[self.core.geometry.bucket_of(row) as usize].owner.load(Ordering::Relaxed);
        let given = if owner == self.shard.index {
            let doubled = self.merge(row, bits);
            bits.count_ones() - doubled
        } else {
            self.core.deliver(row, bits)
        };
        self.shard.out.set(self.shard.out.get() - given as isize);
    }

    /// Marks objects of an own row as free. Returns how many were that before.
    fn merge(self, row: u32, bits: u64) -> u32 {
        let (rows, geometry) = (&self.core.rows, &self.core.geometry);
        let live = &rows[row as usize].live;
        let doubled = bits & !live.get();
        self.core.report_doubled(row, doubled);
        let freed = bits & !doubled;
        if freed == 0 {
            return doubled.count_ones();
        }
        live.set(live.get() & !freed);
        let bucket = geometry.bucket_of(row);
        let free = &rows[bucket as usize].free;
        let (before, now) = (free.get(), free.get() + freed.count_ones());
        free.set(now);
        if now == geometry.objects() {
            if before > 0 {
                self.shard.partial.remove(rows, bucket);
            }
            self.keep_whole(bucket);
        } else if before == 0 {
            self.shard.partial.push(rows, bucket);
        }
        doubled.count_ones()
    }

    /// Keeps a whole bucket; beyond the high-water mark, the oldest ones go to the store.
    pub(crate) fn keep_whole(self, bucket: u32) {
        self.shard.whole.push(&self.core.rows, bucket);
        if self.shard.whole.len() > self.core.high_water() {
            self.spill(self.core.batch());
        }
    }

    /// Gives up to `most` whole buckets, the oldest ones, to the store.
    pub(crate) fn spill(self, most: u32) {
        let rows = &self.core.rows;
        let mut chain: Option<Chain> = None;
        for _ in 0..most {
            let Some(bucket) = self.shard.whole.last() else { break };
            self.shard.whole.remove(rows, bucket);
            let row = &rows[bucket as usize];
            row.spot.set(Spot::Store as u32);
            // Relaxed, both: published with the chain.
            row.owner.store(super::row::NONE, Ordering::Relaxed);
            chain = Some(match chain {
                None => Chain { first: bucket, last: bucket, len: 1 },
                Some(chain) => {
                    row.below.store(chain.first, Ordering::Relaxed);
                    Chain { first: bucket, len: chain.len + 1, ..chain }
                }
            });
        }
        if let Some(chain) = chain {
            self.core.store.give(rows, chain);
        }
    }

    /// Takes whole buckets from the store.
    pub(crate) fn stock(self) -> bool {
        let rows = &self.core.rows;
        let Some(chain) = self.core.store.take(rows, self.core.batch()) else { return false };
        let mut bucket = chain.first;
        for taken in 1..=chain.len {
            // Relaxed: the chain is the caller's.
            let below = rows[bucket as usize].below.load(Ordering::Relaxed);
            self.own(bucket);
            if taken < chain.len {
                bucket = below;
            }
        }
        true
    }

    /// Makes a whole bucket, which is the caller's alone, one of the shard's.
    pub(crate) fn own(self, bucket: u32) {
        let row = &self.core.rows[bucket as usize];
        // Relaxed: whoever is to see it gets an object of the bucket first.
        row.owner.store(self.shard.index, Ordering::Relaxed);
        self.shard.whole.push(&self.core.rows, bucket);
    }

    /// Takes in what other threads have freed of this shard's buckets.
    #[inline]
    pub(crate) fn collect(self) -> bool {
        let mut some = self.core.empty_inbox(self.shard, |row, bits| self.take_in(row, bits));
        if is(Variant::TakeUnposted) {
            let rows = 0..self.core.rows.len() as u32;
            // Relaxed: as elsewhere.
            let own = rows.filter(|&row| {
                self.core.rows[row as usize].owner.load(Ordering::Relaxed) == self.shard.index
            });
            own.for_each(|row| {
                let bits = self.core.take_remote(row);
                some |= bits != 0;
                self.take_in(row, bits);
            });
        }
        some
    }

    /// Bits of a row that came from an inbox.
    pub(crate) fn take_in(self, row: u32, bits: u64) {
        // Relaxed: the bits were taken by acquire, and name the owner of the time when the objects were out.
        let owner = self.core.rows[self.core.geometry.bucket_of(row) as usize].owner.load(Ordering::Relaxed);
        if owner == self.shard.index {
            let doubled = self.merge(row, bits);
            self.core.correct(doubled);
        } else {
            // The row came here by a double free, and others have freed objects since: these go where they belong.
            self.core.pass_on(row, bits);
        }
    }
}
