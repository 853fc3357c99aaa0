//! Small pools without caches. No thread owns a bucket: a bit of a row's remote word is set while the object is free,
//! and every thread takes objects there and puts them back. So any thread can allocate any free object. The argument
//! is in `docs/design/pool.md`, step 17.

use super::row::Row;
use super::Core;
use crate::pool::audit::Audit;
use crate::pool::orders;
use stillpoint_sys::bits::bits;
use stillpoint_sys::sync::atomic::Ordering;
use stillpoint_sys::work;

/// The most objects, and the most buckets, of a small pool: together, at most 64 rows. A call may look at all rows.
pub(crate) const OBJECTS: usize = 512;
pub(crate) const BUCKETS: u32 = 64;

impl Core {
    /// Makes all objects of a new bucket free. Nothing else uses the bucket yet.
    pub(crate) fn put_in_common(&self, bucket: u32) {
        self.rows[bucket as usize].free.set(0);
        for row in self.rows_of_bucket(bucket) {
            let full = self.geometry.full(row);
            self.rows[row as usize].live.set(full);
            // Relaxed: published when the bucket goes to the store.
            self.rows[row as usize].far.remote.store(full, Ordering::Relaxed);
        }
    }

    fn rows_of_bucket(&self, bucket: u32) -> std::ops::Range<u32> {
        bucket..bucket + self.geometry.rows()
    }

    /// The buckets. They stay in the store, and their links do not change.
    fn buckets_in_common(&self) -> impl Iterator<Item = u32> + '_ {
        self.store.elements(&self.rows)
    }

    fn rows_in_common(&self) -> impl Iterator<Item = (u32, &Row)> {
        self.buckets_in_common().flat_map(|bucket| self.rows_of(bucket))
    }

    /// Takes up to `most` free objects, and writes them to `to`. Returns their number.
    ///
    /// # Safety
    /// There is room for `most` objects.
    pub(crate) unsafe fn take_from_common(&self, to: *mut *mut u8, most: usize) -> usize {
        // Relaxed: it only says where to begin.
        let turn = if self.plan.hardened { self.turn.load(Ordering::Relaxed) } else { 0 };
        let mut taken = 0;
        let mut from = turn;
        loop {
            for (row, Row { far, .. }) in self.rows_in_common() {
                let ahead = at_or_after(from, row);
                while taken < most {
                    work::step();
                    // Relaxed: the change below says which of these bits the caller gets.
                    let wanted = lowest(far.remote.load(Ordering::Relaxed) & ahead, most - taken);
                    if wanted == 0 {
                        break;
                    }
                    for bit in bits(wanted & far.remote.fetch_and(!wanted, orders::take_common())) {
                        // SAFETY: there is room for `most` objects, by the caller's promise, and `taken` is below
                        // `most`: at most as many bits were taken as were wanted.
                        unsafe { to.add(taken).write(self.address(row, bit)) };
                        taken += 1;
                        if self.plan.hardened {
                            // Relaxed: it only says where to begin.
                            self.turn.store(row * u64::BITS + bit + 1, Ordering::Relaxed);
                        }
                    }
                }
            }
            if taken == most || from == 0 {
                return taken;
            }
            from = 0;
        }
    }

    /// Takes a bucket all of whose objects are free.
    pub(crate) fn take_bucket_from_common(&self) -> Option<u32> {
        self.buckets_in_common().find(|&bucket| {
            let mut rows = self.rows_of_bucket(bucket);
            // Relaxed: the exchanges below decide. Looking first avoids to take rows of a bucket that is in use.
            let is_free = |row: u32| {
                work::step();
                self.rows[row as usize].far.remote.load(Ordering::Relaxed) == self.geometry.full(row)
            };
            if !rows.clone().all(is_free) {
                return false;
            }
            let take = |row: u32| {
                let word = &self.rows[row as usize].far.remote;
                let (full, take) = (self.geometry.full(row), orders::take_common());
                // Relaxed on failure: the bucket is not taken.
                word.compare_exchange(full, 0, take, Ordering::Relaxed).is_ok()
            };
            match rows.find(|&row| !take(row)) {
                None => true,
                Some(lost) => {
                    (bucket..lost).for_each(|row| _ = self.free_to_common(row, self.geometry.full(row)));
                    false
                }
            }
        })
    }

    /// Frees objects of a row. Returns how many were not free before.
    pub(crate) fn free_to_common(&self, row: u32, bits: u64) -> u32 {
        let before = self.rows[row as usize].far.remote.fetch_or(bits, orders::free_common());
        self.doubled(bits & before);
        (bits & !before).count_ones()
    }

    /// The number of all objects, and of those that are allocated.
    pub(crate) fn totals_in_common(&self) -> (usize, usize) {
        self.rows_in_common().fold((0, 0), |(all, out), (row, Row { far, .. })| {
            let objects = self.geometry.in_row(row) as usize;
            // Relaxed: a count.
            let free = far.remote.load(Ordering::Relaxed).count_ones() as usize;
            (all + objects, out + objects - free)
        })
    }

    /// As [`audit`](Core::audit), which gives an audit with room for the fill.
    pub(crate) fn audit_in_common(&self, mut audit: Audit) -> Result<Audit, String> {
        let (objects, mut buckets, mut out) = (self.geometry.objects() as usize, 0, 0);
        for bucket in self.buckets_in_common().take(self.extent.buckets() + 1) {
            let mut free = 0;
            for row in self.rows_of_bucket(bucket) {
                // Relaxed: exact only when no thread uses the pool.
                let word = self.rows[row as usize].far.remote.load(Ordering::Relaxed);
                if word & !self.geometry.full(row) != 0 {
                    return Err(format!("row {row} has the free objects {word:x}, which it does not have"));
                }
                free += word.count_ones() as usize;
            }
            match free {
                0 => audit.buckets_busy += 1,
                free if free == objects => audit.buckets_in_store += 1,
                _ => audit.buckets_partial += 1,
            }
            out += objects - free;
            audit.fill[objects - free] += 1;
            buckets += 1;
        }
        if buckets != self.extent.buckets() {
            return Err(format!("the store has {buckets} buckets, not {}", self.extent.buckets()));
        }
        audit.stats = self.stats((buckets * objects, out));
        Ok(audit)
    }
}

/// The bits of a row at or after a position: a row's number times 64, and a bit.
fn at_or_after(from: u32, row: u32) -> u64 {
    match row.cmp(&(from / u64::BITS)) {
        std::cmp::Ordering::Less => 0,
        std::cmp::Ordering::Equal => u64::MAX << (from % u64::BITS),
        std::cmp::Ordering::Greater => u64::MAX,
    }
}

/// The `count` lowest of these bits, or all if there are fewer.
fn lowest(bits: u64, count: usize) -> u64 {
    if bits.count_ones() as usize <= count {
        return bits;
    }
    let higher = (0..count).fold(bits, |left, _| left & (left - 1));
    bits & !higher
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::{at_or_after, lowest};

    #[test]
    fn the_lowest_bits_are_chosen() {
        assert_eq!(
            [0, 1, 2, 3, 9].map(|count| lowest(0b1011_0000, count)),
            [0, 0b0001_0000, 0b0011_0000, 0b1011_0000, 0b1011_0000]
        );
        assert_eq!((lowest(u64::MAX, 64), lowest(u64::MAX, 63), lowest(0, 5)), (u64::MAX, u64::MAX >> 1, 0));
    }

    #[test]
    fn a_position_divides_its_row() {
        assert_eq!([0, 1, 2].map(|row| at_or_after(64 + 3, row)), [0, u64::MAX << 3, u64::MAX]);
        assert_eq!(at_or_after(0, 0), u64::MAX);
    }
}
