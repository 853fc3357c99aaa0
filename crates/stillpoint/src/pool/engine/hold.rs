//! Operations of a shard's holder on its buckets.

use super::geometry::Place;
use super::list::List;
use super::row::{Row, NONE};
use super::shard::Shard;
use super::store::Chain;
use super::Core;
use crate::pool::busted::{is, Variant};
use stillpoint_sys::sync::atomic::Ordering;
use stillpoint_sys::work;

/// Number of rows whose objects are gathered while a cache is emptied.
const OPEN: usize = 8;

/// Rows of an inbox that are collected at a time. In models only one, so that rows are left.
const COLLECTED: u32 = if cfg!(stillpoint_loom) { 1 } else { 64 };

/// The right to use a shard.
#[derive(Clone, Copy)]
pub(crate) struct Hold<'c> {
    pub(crate) core: &'c Core,
    pub(crate) shard: &'c Shard,
}

impl<'c> Hold<'c> {
    /// # Safety
    /// The caller holds the shard as long as this value is used, and nothing else uses the shard meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn new(shard: &'c Shard) -> Self {
        let hold = Self { core: shard.core(), shard };
        if let Some(bucket) = shard.open.bucket() {
            hold.close(bucket);
        }
        hold
    }

    /// The list in which a bucket of the shard belongs, if it has free objects.
    pub(super) fn list_of(self, bucket: u32) -> &'c List {
        if self.core.is_whole(bucket) {
            &self.shard.whole
        } else {
            &self.shard.partial
        }
    }

    /// Takes up to `most` free objects out of one of the shard's own buckets, a partial one first, and writes them to
    /// `to`. Returns their number.
    ///
    /// # Safety
    /// There is room for `most` objects.
    pub(crate) unsafe fn draw(self, to: *mut *mut u8, most: usize) -> usize {
        let broken = self.end_of(&self.shard.partial);
        // Recently freed objects are in partial buckets: avoid these if old objects come first.
        let broken = broken.filter(|_| !self.core.plan.hardened || self.shard.whole.len() == 0);
        let (is_whole, list) = match broken {
            Some(_) => (false, &self.shard.partial),
            None => (true, &self.shard.whole),
        };
        let Some(bucket) = self.end_of(list) else { return 0 };
        if most == 0 {
            return 0;
        }
        let rows = &self.core.rows;
        let free = rows[bucket as usize].free.get();
        if free as usize <= most {
            list.remove(rows, bucket);
        } else if is_whole {
            list.remove(rows, bucket);
            self.shard.partial.push(rows, bucket);
        }
        let drawn = if self.core.geometry.rows() == 1 {
            // SAFETY: there is room for `most` objects, by the caller's promise.
            unsafe { self.draw_row(bucket, to, most) }
        } else {
            // SAFETY: the caller promises room for `most` objects.
            unsafe { self.draw_rows(bucket, to, most.min(free as usize)) }
        };
        rows[bucket as usize].free.set(free - drawn as u32);
        self.shard.out.set(self.shard.out.get() + drawn as isize);
        drawn
    }

    /// Draws from a bucket of several rows, which has at least `most` free objects. Looks only at rows that have some.
    ///
    /// # Safety
    /// As [`draw`](Hold::draw).
    #[inline(never)]
    unsafe fn draw_rows(self, bucket: u32, to: *mut *mut u8, most: usize) -> usize {
        let (first, mut drawn) = (&self.core.rows[bucket as usize].first, 0);
        while drawn < most {
            // SAFETY: there is room for `most` objects, by the caller's promise, and `drawn` does not exceed `most`.
            let more = unsafe { self.draw_row(first.get(), to.add(drawn), most - drawn) };
            debug_assert!(more > 0, "a bucket leads to rows with free objects");
            drawn += more;
            self.pass_full(bucket);
        }
        drawn
    }

    /// If the first row with free objects has none left, the next one is the first.
    pub(super) fn pass_full(self, bucket: u32) {
        let rows = &self.core.rows;
        let first = rows[bucket as usize].first.get();
        if self.core.is_full(first) {
            rows[bucket as usize].first.set(rows[first as usize].next.get());
        }
    }

    /// # Safety
    /// As [`draw`](Hold::draw).
    #[inline(always)]
    unsafe fn draw_row(self, row: u32, to: *mut *mut u8, most: usize) -> usize {
        work::step();
        let live = &self.core.rows[row as usize].live;
        let full = self.core.geometry.full(row);
        let mut left = full & !live.get();
        let (objects, first) = (self.core.geometry.in_row(row) as usize, self.core.address(row, 0));
        if left == full && objects <= most {
            for index in 0..objects {
                // SAFETY: there is room for `most` objects, by the caller's promise, and `objects` does not exceed
                // `most`.
                unsafe { to.add(index).write(first.wrapping_add(index * self.core.geometry.stride())) };
            }
            live.set(full);
            return objects;
        }
        let count = (left.count_ones() as usize).min(most);
        for index in 0..count {
            let bit = self.next_bit(row, left);
            left &= !(1 << bit);
            // SAFETY: there is room for `most` objects, by the caller's promise, and `count` does not exceed `most`.
            unsafe { to.add(index).write(first.wrapping_add(bit as usize * self.core.geometry.stride())) };
        }
        live.set(full & !left);
        count
    }

    /// Which of the free objects to draw: the first, or each in turn if old objects come first.
    #[inline(always)]
    fn next_bit(self, row: u32, left: u64) -> u32 {
        if !self.core.plan.hardened {
            return left.trailing_zeros();
        }
        let turn = &self.core.rows[row as usize].turn;
        let ahead = left & (u64::MAX << turn.get());
        let bit = if ahead == 0 { left } else { ahead }.trailing_zeros();
        turn.set((bit + 1) % u64::BITS);
        bit
    }

    /// The bucket to take from: the newest, or the oldest if old objects come first.
    fn end_of(self, list: &List) -> Option<u32> {
        if self.core.plan.hardened {
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

    /// Puts objects back into their buckets.
    pub(crate) fn give(self, objects: &[*mut u8]) {
        // A table of rows would take longer than a single object itself.
        let single = if let [object] = *objects { self.core.place_of(object) } else { None };
        match single {
            Some(place) => self.give_run(place.row, 1 << place.bit),
            None => _ = self.give_first(objects, objects.len()),
        }
    }

    /// Puts the first `least` objects back into their buckets. Also puts back the objects after them that share a row
    /// with the last one, so that fewer buckets are left partial. Returns the number of objects put back.
    pub(crate) fn give_first(self, objects: &[*mut u8], least: usize) -> usize {
        // Rows with the bits of their objects so far. Each is given back when another row takes its place, or at the
        // end.
        let mut open = [(NONE, 0); OPEN];
        let (mut given, mut row) = (0, NONE);
        while let Some(&first) = objects.get(given) {
            let Some(place) = self.core.place_of(first) else {
                self.core.misused(1);
                given += 1;
                continue;
            };
            if given >= least && place.row != row {
                break;
            }
            row = place.row;
            // Neighbours, the most frequent case, are found without computing their places.
            let (bits, run) = self.core.run_at(place, &objects[given..]);
            given += run;
            let entry = &mut open[row as usize % OPEN];
            if entry.0 == row && entry.1 & bits == 0 {
                entry.1 |= bits;
            } else {
                self.give_run(entry.0, entry.1);
                *entry = (row, bits);
            }
        }
        open.into_iter().for_each(|(row, bits)| self.give_run(row, bits));
        given
    }

    /// Puts objects of one row back, if there are any.
    pub(crate) fn give_run(self, row: u32, bits: u64) {
        if bits == 0 {
            return;
        }
        let is_own = self.core.owner_of_row(row) == self.shard.index;
        let given = if is_own { self.merge(row, bits) } else { self.core.deliver(row, bits) };
        self.shard.out.set(self.shard.out.get() - given as isize);
    }

    /// Marks objects in a row of the shard's own bucket as free. Returns how many were not free before.
    fn merge(self, row: u32, bits: u64) -> u32 {
        let (rows, geometry) = (&self.core.rows, &self.core.geometry);
        let live = rows[row as usize].live.get();
        let freed = bits & live;
        self.core.doubled(bits & !live);
        if freed == 0 {
            return 0;
        }
        rows[row as usize].live.set(live & !freed);
        let bucket = geometry.bucket_of(row);
        let free = &rows[bucket as usize].free;
        if geometry.rows() > 1 && live == geometry.full(row) {
            self.link(bucket, row);
        }
        let count = if freed == geometry.full(row) { geometry.in_row(row) } else { freed.count_ones() };
        let (before, now) = (free.get(), free.get() + count);
        free.set(now);
        if now == geometry.objects() {
            if before > 0 {
                self.shard.partial.remove(rows, bucket);
            }
            self.keep_whole(bucket);
        } else if before == 0 {
            self.shard.partial.push(rows, bucket);
        }
        count
    }

    /// Adds a row to those of its bucket that have free objects, before `free` counts them.
    fn link(self, bucket: u32, row: u32) {
        let rows = &self.core.rows;
        let Row { first, free, .. } = &rows[bucket as usize];
        if free.get() > 0 && self.core.plan.hardened {
            // What was freed just now comes after the objects of another row.
            let after = &rows[first.get() as usize].next;
            rows[row as usize].next.set(after.get());
            return after.set(row);
        }
        rows[row as usize].next.set(first.get());
        first.set(row);
    }

    /// Keeps a whole bucket. Above the high-water mark, gives the oldest buckets to the store.
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
            // Relaxed, both: published with the chain.
            row.owner.store(NONE, Ordering::Relaxed);
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

    /// Puts all free objects of the shard's buckets where other threads find them: whole buckets into the store, and other objects into the
    /// shard's inbox, as if other threads had freed them.
    pub(crate) fn offer(self) {
        self.spill(u32::MAX);
        let (rows, geometry) = (&self.core.rows, &self.core.geometry);
        while let Some(bucket) = self.shard.partial.first() {
            self.shard.partial.remove(rows, bucket);
            let Row { first, free, .. } = &rows[bucket as usize];
            let mut left = free.get();
            free.set(0);
            self.shard.out.set(self.shard.out.get() + left as isize);
            while left > 0 {
                let row = first.get();
                let live = &rows[row as usize].live;
                let bits = geometry.full(row) & !live.get();
                left -= bits.count_ones();
                // Before the objects are in the inbox: from then on, others may claim the bucket.
                live.set(geometry.full(row));
                if geometry.rows() > 1 {
                    self.pass_full(bucket);
                }
                let given = self.core.deliver(row, bits);
                self.shard.out.set(self.shard.out.get() - given as isize);
            }
        }
    }

    /// Takes a batch of whole buckets from the store. False if there is none.
    pub(crate) fn stock(self) -> bool {
        let rows = &self.core.rows;
        let Some(chain) = self.core.store.take(rows, self.core.batch()) else { return false };
        let mut bucket = chain.first;
        for taken in 1..=chain.len {
            // Relaxed: the caller owns the chain.
            let below = rows[bucket as usize].below.load(Ordering::Relaxed);
            self.own(bucket);
            if taken < chain.len {
                bucket = below;
            }
        }
        true
    }

    /// Gives the shard a whole bucket that only the caller has.
    pub(crate) fn own(self, bucket: u32) {
        let row = &self.core.rows[bucket as usize];
        // Relaxed: a thread that relies on the owner has got an object of the bucket first, which orders this store.
        row.owner.store(self.shard.index, Ordering::Relaxed);
        self.shard.whole.push(&self.core.rows, bucket);
    }

    /// Collects objects of this shard's buckets that other threads have freed. The number of rows is limited, so that
    /// no call pays for everything that other threads have done since the last one. False if there was nothing.
    #[inline(always)]
    pub(crate) fn collect(self) -> bool {
        // The rest is older than the posted rows.
        let first = match self.shard.take_rest() {
            NONE => self.shard.take_posted(),
            rest => rest,
        };
        (first != NONE || is(Variant::TakeUnposted)) && self.collect_list(first)
    }

    #[inline(never)]
    fn collect_list(self, first: u32) -> bool {
        let mut left = COLLECTED;
        let take_in = |row, bits| {
            self.take_in(row, bits);
            left -= 1;
            left > 0
        };
        let mut some = self.core.go_through(self.shard, first, take_in);
        if is(Variant::TakeUnposted) {
            let rows = 0..self.core.rows.len() as u32;
            // Relaxed: only for the broken variant.
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

    /// Takes the bits of a row that came from an inbox.
    pub(crate) fn take_in(self, row: u32, bits: u64) {
        // The exchange that took the bits was an acquire, so this finds the owner that the bucket had when the objects
        // were allocated, or a later one.
        if self.core.owner_of_row(row) == self.shard.index {
            let freed = self.merge(row, bits);
            self.core.correct(bits.count_ones() - freed);
        } else {
            // The row came into this inbox by a double free, and other threads have freed objects of it since: send
            // these to their owner.
            self.core.pass_on(row, bits);
        }
    }
}

impl Core {
    /// The longest run of neighbours at the beginning, within the row of the first object, whose place this is: their bits, and their number.
    #[inline(always)]
    pub(crate) fn run_at(&self, place: Place, objects: &[*mut u8]) -> (u64, usize) {
        let (lowest, run) =
            run_from(place.bit, self.geometry.in_row(place.row), objects, self.geometry.stride());
        ((u64::MAX >> (u64::BITS - run)) << lowest, run as usize)
    }

    /// The row and the bits of objects, if there are any, and they are neighbours in a row.
    #[inline(always)]
    pub(crate) fn run_of(&self, objects: &[*mut u8]) -> Option<(u32, u64)> {
        let place = self.place_of(*objects.first()?)?;
        let (bits, run) = self.run_at(place, objects);
        (run == objects.len()).then_some((place.row, bits))
    }
}

/// The longest run of neighbours at the beginning, up or down, within a row of `in_row` objects in which the first one has this bit: its
/// lowest bit, and its length.
#[inline(always)]
pub(super) fn run_from(bit: u32, in_row: u32, objects: &[*mut u8], stride: usize) -> (u32, u32) {
    let up = match objects {
        [first, next, ..] => next.addr() > first.addr(),
        _ => true,
    };
    let (step, most) = if up { (stride, in_row - bit) } else { (stride.wrapping_neg(), bit + 1) };
    let run = neighbours(objects, step, most as usize) as u32;
    (if up { bit } else { bit + 1 - run }, run)
}

/// The length of the longest run at the beginning, within the first `most` objects, in which each object is `step`
/// bytes after the one before.
#[inline(always)]
fn neighbours(objects: &[*mut u8], step: usize, most: usize) -> usize {
    let objects = &objects[..most.min(objects.len())];
    let (mut run, mut expected) = (0, objects[0].addr());
    // One branch for each four objects.
    for four in objects.chunks_exact(4) {
        let mut apart = 0;
        for object in four {
            apart |= object.addr() ^ expected;
            expected = expected.wrapping_add(step);
        }
        if apart != 0 {
            break;
        }
        run += 4;
    }
    expected = objects[0].addr().wrapping_add(step.wrapping_mul(run));
    for object in &objects[run..] {
        if object.addr() != expected {
            break;
        }
        expected = expected.wrapping_add(step);
        run += 1;
    }
    run
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::{neighbours, run_from};

    /// Otherwise, the place of each object would be computed.
    #[test]
    fn a_run_is_found_in_either_direction_and_ends_with_the_row() {
        let up: Vec<_> = (1..100).map(|number| std::ptr::without_provenance_mut::<u8>(number * 24)).collect();
        let down: Vec<_> = up.iter().rev().copied().collect();
        for bit in 0..40 {
            assert_eq!(run_from(bit, 40, &up, 24), (bit, 40 - bit));
            assert_eq!(run_from(bit, 40, &down, 24), (0, bit + 1));
            assert_eq!(run_from(bit, 40, &up[..1], 24), (bit, 1));
            assert_eq!(run_from(bit, 40, &[down[0], up[0]], 24), (bit, 1), "they are no neighbours");
        }
    }

    #[test]
    fn neighbours_are_counted_up_and_down_as_far_as_they_go() {
        let at = std::ptr::without_provenance_mut::<u8>;
        for step in [24usize, 24usize.wrapping_neg()] {
            for (run, gap) in (1..20).flat_map(|run| [(run, 1), (run, 8), (run, 48)]) {
                let address = |index: usize| 4096usize.wrapping_add(step.wrapping_mul(index));
                let mut objects: Vec<_> = (0..run).map(|index| at(address(index))).collect();
                objects.push(at(address(run) + gap));
                assert_eq!(neighbours(&objects, step, 64), run);
                assert_eq!(neighbours(&objects, step, 5), run.min(5));
                assert_eq!(neighbours(&objects[..run], step, 64), run);
            }
        }
    }
}
