//! Frees by threads that do not hold the owner's shard. The argument is in `docs/design/pool.md`.

use super::geometry::Place;
use super::row::NONE;
use super::shard::Shard;
use super::Core;
use crate::pool::busted::{is, Variant};
use crate::pool::orders;
use stillpoint_sys::sync::atomic::Ordering;
use stillpoint_sys::work;

impl Core {
    /// Marks objects of a row as free in the remote word. The caller that changes the word from zero puts the row into
    /// the owner's inbox. Returns how many objects the caller has freed. In a small pool, which has no owners and no counts,
    /// makes the objects free, and returns 0.
    pub(crate) fn deliver(&self, row: u32, bits: u64) -> u32 {
        if self.plan.common {
            self.free_to_common(row, bits);
            return 0;
        }
        let far = &self.rows[row as usize].far;
        let mut mine = bits;
        let mut brought = None;
        loop {
            let before = far.remote.fetch_or(mine, orders::free());
            if brought.is_none() {
                self.doubled(mine & before);
                brought = Some((mine & !before).count_ones());
            }
            let brought = brought.unwrap_or_default();
            if before != 0 && !is(Variant::PostAlways) {
                return brought;
            }
            if let Some(shard) = self.shard(self.owner_of_row(row)) {
                shard.post(&self.rows, row);
                return brought;
            }
            // A bucket without an owner has no allocated objects: these were free already. The row is not in an inbox,
            // so only the caller may take the word back. Another thread may have got the bucket meanwhile, and other
            // threads may have freed objects of it: the loop sends their bits to the new owner.
            let taken = self.take_remote(row);
            self.doubled(taken & mine);
            self.correct((taken & mine).count_ones());
            mine = taken & !mine;
            if mine == 0 {
                return brought;
            }
        }
    }

    /// Takes the remote word of a row. Only for a caller that has taken the row out of an inbox, or has not yet put it
    /// there.
    pub(crate) fn take_remote(&self, row: u32) -> u64 {
        work::step();
        self.rows[row as usize].far.remote.swap(0, orders::collect())
    }

    /// Goes through a list that was taken from a shard's inbox. `each` gets a row and its bits, and returns whether it
    /// takes another row. The rows that are left go back to the inbox. True if the list had rows.
    pub(crate) fn go_through(
        &self,
        shard: &Shard,
        first: u32,
        mut each: impl FnMut(u32, u64) -> bool,
    ) -> bool {
        let mut row = first;
        while row != NONE {
            let taken = row;
            // Relaxed: published with the row. Read before the word is taken: after that, the row may be posted again.
            let read = || self.rows[taken as usize].far.behind.load(Ordering::Relaxed);
            let early = read();
            let bits = self.take_remote(taken);
            let behind = if is(Variant::NextAfterTake) { read() } else { early };
            row = behind;
            if !each(taken, bits) && row != NONE {
                shard.leave_rest(&self.rows, row);
                break;
            }
        }
        first != NONE
    }

    /// Frees one object without any shard.
    pub(crate) fn free_stray(&self, place: Place) {
        self.free_bits_stray(place.row, 1 << place.bit);
    }

    /// Frees all objects of a bucket without any shard.
    pub(crate) fn free_bucket_stray(&self, bucket: u32) {
        (bucket..bucket + self.geometry.rows())
            .for_each(|row| self.free_bits_stray(row, self.geometry.full(row)));
    }

    pub(crate) fn free_bits_stray(&self, row: u32, bits: u64) {
        if self.plan.common {
            self.free_to_common(row, bits);
            return;
        }
        // Read before `deliver` is called: afterwards, the owner may change.
        let owner = self.owner_of_row(row);
        let brought = self.deliver(row, bits);
        // Relaxed: a count.
        match self.shard(owner) {
            Some(shard) => _ = shard.strays.fetch_add(brought as isize, Ordering::Relaxed),
            None => self.uncount(brought),
        }
    }
}
