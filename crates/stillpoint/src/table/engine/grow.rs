//! The move to a larger array, or to a smaller one, a few buckets with each write.
//!
//! A stripe moves its buckets in order, whoever holds its lock doing the work: a write moves the bucket it is about
//! to change and [`SHARE`] more; an insertion that finds its own stripe done helps another one. The stripe that is
//! done last makes the next array the current one, and retires the old.

use std::hash::{BuildHasher, Hash};
use std::ptr;

use super::array::Array;
use super::bucket::{Bucket, END, MOVED};
use super::search::prefetch;
use super::slab::Touch;
use super::stripe::{Held, STRIPES};
use super::{hint, Inner};
use crate::table::busted::{self, Variant};
use stillpoint_sys::sync::atomic::Ordering;

/// Buckets that a write moves beside its own: a growth is done after half as many writes as there are buckets.
pub(crate) const SHARE: usize = 2;
/// How many buckets are moved under one lock when everything is moved.
const PIECE: usize = 64;

impl<K, V, S> Inner<K, V, S>
where
    K: Hash,
    S: BuildHasher,
{
    /// Array and index of the bucket that holds the keys of `hash`, for the holder of the stripe; does the stripe's
    /// share of a growth.
    pub(super) fn locate<'s>(&'s self, held: &mut Held<'s>, hash: u64) -> (&'s Array, usize) {
        let array = held.array();
        let index = array.index_of(hash);
        let Some(next) = array.next() else { return (array, index) };
        // What the moves below begin with, all at once.
        let own = index % STRIPES;
        fetch(array, held.cursor() + own, next);
        fetch(array, held.cursor() + STRIPES + own, next);
        // Where the cursor has passed the old bucket is not looked at.
        let must_move = index >= held.cursor() + own && !is_moved(array.bucket(index));
        if must_move && !self.move_bucket(array, index, next) {
            // No memory for it. Nothing else is moved then: with this chain among it, the caller would write to a chain
            // that has moved after all.
            return (array, index);
        }
        let more = self.advance(held, own, SHARE);
        held.note_moved(usize::from(must_move) + more);
        (next, next.index_of(hash))
    }

    /// Moves up to `share` buckets of the stripe `number`, and leaves the array when all are moved. Returns their
    /// number.
    ///
    /// The buckets of the array may be gone afterwards: the caller uses what it found out before.
    fn advance(&self, held: &mut Held<'_>, number: usize, share: usize) -> usize {
        let array = held.array();
        let Some(next) = array.next() else { return 0 };
        let mut moved = 0;
        while held.cursor() < array.len() && moved < share {
            let index = held.cursor() + number;
            if !is_moved(array.bucket(index)) {
                if !self.move_bucket(array, index, next) {
                    return moved;
                }
                moved += 1;
            }
            held.set_cursor(held.cursor() + STRIPES);
        }
        if held.cursor() >= array.len() {
            held.leave_for(next);
            if array.count_moved_stripe() {
                self.finish(array, next);
            }
        }
        moved
    }

    /// Moves the entries of one chain to the chains of the next array that its keys belong to. False when there is
    /// no memory: nothing has changed then, nor after a panic of the user's `Hash`.
    ///
    /// The order is what readers rely on: the entries are linked in the next array; then each bucket of the old
    /// chain is marked, and after that its words and tags are cleared. Whoever finds one of them cleared finds the
    /// mark.
    fn move_bucket(&self, array: &Array, index: usize, next: &Array) -> bool {
        fetch(array, index, next);
        // A smaller array keeps no bits of a hash that the index and the bits of this one do not have.
        let is_known = next.len() < array.len() || array.knows(next);
        if !is_known {
            for (_, entry) in array.bucket(index).entries() {
                prefetch(self.arena().pair(entry).as_ptr());
            }
        }
        let undo = Undo { array, index, next };
        if next.len() == array.len() * 2 {
            next.bucket(index).touch();
            next.bucket(index + array.len()).touch();
        }
        for bucket in array.chain(index) {
            for (slot, entry) in bucket.entries() {
                let hash = if is_known {
                    array.known(bucket, slot)
                } else {
                    // SAFETY: linked, and the stripe is locked: nobody else may unlink it.
                    self.hash(unsafe { &self.arena().pair(entry).as_ref().key })
                };
                // The lower bits stay as they are, so that a key whose hash has changed remains in its stripe.
                let hash = array.at_index(hash, index);
                let Some((bucket_of_next, free)) = next.room(next.index_of(hash)) else { return false };
                bucket_of_next.link_entry(free, bucket.tag(slot), next.bits_of(hash), entry);
            }
        }
        std::mem::forget(undo);
        let mut old = array.bucket(index);
        loop {
            let link = old.link();
            if busted::is(Variant::MarkLate) {
                old.empty();
            }
            old.set_link(MOVED);
            if !busted::is(Variant::OldWordKept) {
                old.empty();
            }
            if link == END {
                return true;
            }
            old = array.overflow(link);
        }
    }

    /// The last stripe has left `array`: lookups begin in the next one from now on.
    fn finish(&self, array: &Array, next: &Array) {
        next.allow_huge_pages();
        self.set_fetched(next);
        let count = if next.len() > array.len() { &self.growths } else { &self.shrinks };
        // Relaxed: for statistics.
        count.fetch_add(1, Ordering::Relaxed);
        // Release: publishes the moves of all stripes, which the last count has gathered. This is what unlinks the
        // old array.
        self.current.store(array.next_raw(), Ordering::Release);
        // SAFETY: every stripe has left it, which is found out once, and readers come from `current`; it stays as long as
        // the table, which frees what is left in the bin before its arrays.
        self.bin.put(unsafe { self.store.array(array) }, hint());
    }

    /// Begins a growth when the table is full, for the holder of a stripe that has just taken an entry in. Without
    /// memory for a larger array, chains grow longer instead.
    pub(super) fn grow_if_full(&self, held: &Held<'_>) {
        let array = held.array();
        if held.entries() > array.stripe_limit() && self.is_steady(array) && self.len() > array.capacity() {
            self.begin_move(array, array.len() * 2, Touch::Lazily);
        }
    }

    /// Whether every stripe is in `array`, and none moves.
    fn is_steady(&self, array: &Array) -> bool {
        // Relaxed: compared, not followed; and a growth that begins at the same time is found by `begin_move`.
        ptr::eq(self.current.load(Ordering::Relaxed), array) && array.next().is_none()
    }

    /// The caller holds a stripe that is in `array`, which is current.
    fn begin_move(&self, array: &Array, len: usize, touch: Touch) -> bool {
        let Some(next) = Array::new(len, touch) else { return false };
        let next = Box::into_raw(next);
        if !array.try_set_next(next) {
            // SAFETY: from `Box::into_raw`, and not published.
            drop(unsafe { Box::from_raw(next) });
        }
        true
    }

    /// An insertion whose own stripe is done moves a share of another one, so that a growth ends although some
    /// stripes have no writers.
    pub(super) fn help(&self) {
        // Relaxed: any number will do.
        let number = self.help.fetch_add(1, Ordering::Relaxed) % STRIPES;
        if let Some(mut held) = self.stripes[number].try_lock() {
            let moved = self.advance(&mut held, number, SHARE);
            held.note_moved(moved);
        }
    }

    /// Makes room for `additional` more entries, and moves everything there now. False when there is no memory.
    ///
    /// # Panics
    /// With the panic of a destructor, before anything else is done.
    pub(crate) fn reserve(&self, additional: usize) -> bool {
        let Some(entries) = self.len().checked_add(additional) else { return false };
        let Some(len) = Array::len_for(entries) else { return false };
        // What waits, and need not, is room. After this its slots are among the free ones.
        self.press();
        if !self.arena().reserve(additional) {
            return false;
        }
        // A growth that is under way may be to a size that is too small still.
        for _ in 0..2 {
            if !self.move_everything() {
                return false;
            }
            let held = self.stripes[0].lock();
            let array = held.array();
            if array.len() < len && self.is_steady(array) && !self.begin_move(array, len, Touch::Now) {
                return false;
            }
        }
        self.move_everything()
    }

    /// Moves everything to the smallest array that takes as many entries as there are, if it is smaller than the one that is
    /// current. If memory for its chains runs out, writers move what is left, once there is memory.
    pub(crate) fn shrink(&self) {
        if !self.move_everything() {
            return;
        }
        let begun = {
            let held = self.stripes[0].lock();
            let array = held.array();
            let is_smaller = |len: &usize| *len < array.len() && self.is_steady(array);
            let len = Array::len_for(self.len()).filter(is_smaller);
            len.is_some_and(|len| self.begin_move(array, len, Touch::Lazily))
        };
        if begun {
            self.move_everything();
        }
    }

    /// A stripe is locked for one piece at a time.
    fn move_everything(&self) -> bool {
        let mut complete = true;
        for (number, stripe) in self.stripes.iter().enumerate() {
            loop {
                let mut held = stripe.lock();
                let moved = self.advance(&mut held, number, PIECE);
                if moved < PIECE {
                    complete &= held.array().next().is_none() || held.cursor() == 0;
                    break;
                }
            }
        }
        complete
    }
}

/// Fetches a bucket that is about to be moved, and the two that its entries will go to.
fn fetch(array: &Array, index: usize, next: &Array) {
    prefetch(array.start().wrapping_add(index));
    prefetch(next.start().wrapping_add(index));
    prefetch(next.start().wrapping_add(index + array.len()));
}

fn is_moved(bucket: &Bucket) -> bool {
    bucket.link() == MOVED
}

/// Takes back the links in the next array, which no reader follows yet: nobody goes there for this chain before this chain is
/// marked. A chain of a smaller array may already have entries of other chains, which stay.
struct Undo<'a> {
    array: &'a Array,
    index: usize,
    next: &'a Array,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        let own = |entry| self.array.chain(self.index).flat_map(Bucket::entries).any(|(_, own)| own == entry);
        let targets = self.array.targets(self.index, self.next);
        for bucket in targets.flat_map(|target| self.next.chain(target)) {
            bucket.entries().filter(|&(_, entry)| own(entry)).for_each(|(slot, _)| bucket.unlink_entry(slot));
        }
    }
}
