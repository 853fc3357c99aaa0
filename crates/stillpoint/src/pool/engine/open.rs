//! The open bucket of a shard, in a pool without caches: objects of one of its rows come from it and go back to it by a few instructions,
//! without a look at the shard's lists.
//!
//! It is the one from which the next object would be taken anyway. It is the shard's own, is in none of its lists, and has at least one free
//! object. So what other threads may do with buckets in which the owner has no free object cannot happen to it. It is closed, which is to say
//! put back into the list in which it belongs, before the shard is used in any other way: by [`Hold::new`].

use std::ptr::NonNull;

use super::hold::{run_from, Hold};
use super::Shard;
use crate::pool::busted::{is, Variant};

/// Only the holder of the shard may call these functions, while no [`Hold`] is in use.
impl Shard {
    /// Takes an object out of the open bucket, unless the inbox has to be collected first: so a double free by another thread is found no
    /// later than without an open bucket, and what others free is not left behind.
    #[inline(always)]
    pub(crate) fn draw_open(&self) -> Option<NonNull<u8>> {
        let (open, core) = (&self.open, self.core());
        if self.has_posted() {
            return None;
        }
        let live = &core.rows.get(open.row.get() as usize)?.live;
        let bit = (!live.get()).trailing_zeros();
        if bit >= open.objects.get() {
            return None;
        }
        let object = open.start.get() + bit as usize * core.geometry.stride();
        let free = &core.rows[open.bucket()? as usize].free;
        // Before the row is full: from then on, others may claim the bucket.
        if free.get() == 1 && !is(Variant::OpenEmpty) {
            open.unset();
        }
        live.set(live.get() | 1 << bit);
        free.set(free.get() - 1);
        self.out.set(self.out.get() + 1);
        self.calls.drawn.count(1);
        NonNull::new(core.extent.start().with_addr(object))
    }

    /// Puts an object back into the open bucket, as [`give_open`](Shard::give_open).
    #[inline(always)]
    pub(crate) fn give_open_one(&self, object: *mut u8) -> bool {
        self.open.index_of(self.core(), object).is_some_and(|index| self.give_bits(1 << index, 1))
    }

    /// Puts objects back into the open bucket. False, and nothing has changed, if they are no neighbours in the open row, if one is free
    /// already, or if they make the bucket whole while the shard keeps as many whole ones as it may, or has others to take from.
    #[inline(always)]
    pub(crate) fn give_open(&self, objects: &[*mut u8]) -> bool {
        let (core, count) = (self.core(), objects.len() as u32);
        let Some(index) = objects.first().and_then(|first| self.open.index_of(core, *first)) else {
            return false;
        };
        let (lowest, run) = run_from(index, self.open.objects.get(), objects, core.geometry.stride());
        run == count && self.give_bits((u64::MAX >> (u64::BITS - run)) << lowest, count)
    }

    #[inline(always)]
    fn give_bits(&self, bits: u64, count: u32) -> bool {
        let (core, Some(bucket)) = (self.core(), self.open.bucket()) else { return false };
        let live = &core.rows[self.open.row.get() as usize].live;
        let free = &core.rows[bucket as usize].free;
        let is_last = free.get() + count == core.geometry.objects();
        let may_be_whole = || self.whole.len() < core.high_water() && self.partial.first().is_none();
        if bits & !live.get() != 0 || is_last && !may_be_whole() {
            return false;
        }
        live.set(live.get() & !bits);
        free.set(free.get() + count);
        self.out.set(self.out.get() - count as isize);
        self.calls.given.count(count as usize);
        true
    }
}

impl Hold<'_> {
    /// Opens the bucket from which the next object would be taken anyway: so objects go to other buckets as they would without an open one,
    /// and these become whole. Nothing else is done with this value.
    pub(crate) fn open_next(self) {
        let (rows, geometry) = (&self.core.rows, &self.core.geometry);
        let Some(bucket) = self.shard.partial.first().or(self.shard.whole.first()) else { return };
        if !is(Variant::OpenInList) {
            self.list_of(bucket).remove(rows, bucket);
        }
        let row = rows[bucket as usize].first.get();
        let (objects, start) = (geometry.in_row(row), self.core.address(row, 0).addr());
        self.shard.open.set(row, bucket, objects, start, objects as usize * geometry.stride());
    }

    /// Puts the open bucket back into its list.
    pub(super) fn close(self, bucket: u32) {
        self.shard.open.unset();
        if self.core.geometry.rows() > 1 {
            self.pass_full(bucket);
        }
        self.list_of(bucket).push(&self.core.rows, bucket);
    }
}
