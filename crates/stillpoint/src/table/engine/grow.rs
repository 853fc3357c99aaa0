//! The move to a larger array, or to a smaller one, a few buckets with each write.
//!
//! The chains of a stripe are moved in order, by the holder of its lock. A write moves the chain that it is about to
//! change, and [`SHARE`] more. An insertion whose own stripe is done helps another stripe. When the last stripe is
//! done, the next array becomes the current one, and the old array is retired.

use std::hash::{BuildHasher, Hash};
use std::ptr;
use std::sync::PoisonError;

use super::array::{many, Array};
use super::bucket::{Bucket, END, MOVED};
use super::slab::Touch;
use super::stripe::{Held, Stripe};
use super::write::under_lock;
use super::{hint, Inner};
use crate::table::busted::{self, Variant};
use stillpoint_sys::sync::atomic::Ordering;
use stillpoint_sys::sync::prefetch;
use stillpoint_sys::work;

/// Chains that a write moves besides its own. With these, insertions end a growth before they fill the next array.
pub(crate) const SHARE: usize = 2;
/// Chains moved under one lock when everything is moved.
const PIECE: usize = 64;
/// Chains that have moved already, which a call passes under one lock: writes to the last chains of a stripe have moved these before the
/// cursor comes to them.
const PASSED: usize = 64;

/// An array to which no move has begun, and the stripes of a table that becomes large by that move.
struct Coming {
    /// From a box; null once it is published.
    array: *mut Array,
    stripes: Option<Box<[Stripe]>>,
}

impl Coming {
    /// For a move from a small table, or from a large one. `None` when there is no memory.
    fn new(len: usize, is_small: bool, touch: Touch) -> Option<Self> {
        let mut coming = Self { array: Box::into_raw(Array::new(len, touch)?), stripes: None };
        if is_small {
            // SAFETY: the pointer is from `Box::into_raw`, and is not published yet.
            coming.stripes = Some(Stripe::several(many(), unsafe { &*coming.array })?);
        }
        Some(coming)
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        if !self.array.is_null() {
            // SAFETY: the pointer is from `Box::into_raw`, and was not published.
            drop(unsafe { Box::from_raw(self.array) });
        }
    }
}

impl<K, V, S> Inner<K, V, S>
where
    K: Hash,
    S: BuildHasher,
{
    /// The array and the index of the bucket for keys with this hash, for the holder of the stripe. Does the stripe's
    /// share of a growth.
    #[inline]
    pub(super) fn locate<'s>(&'s self, held: &mut Held<'s>, hash: u64) -> (&'s Array, usize) {
        let array = held.array();
        let index = array.index_of(hash);
        match array.next() {
            None => (array, index),
            Some(next) => self.locate_in_growth(held, hash, (array, index), next),
        }
    }

    /// As [`locate`](Inner::locate), if the stripe is moving to the array `next`.
    #[cold]
    #[inline(never)]
    fn locate_in_growth<'s>(
        &'s self,
        held: &mut Held<'s>,
        hash: u64,
        (array, index): (&'s Array, usize),
        next: &'s Array,
    ) -> (&'s Array, usize) {
        // Prefetch the buckets that the moves below will read, before the first of them is needed.
        let step = array.stripe_count();
        let own = index % step;
        fetch(array, held.cursor() + own, next);
        fetch(array, held.cursor() + step + own, next);
        // If the cursor has passed the bucket, it has moved: do not read it.
        let mut moved = Moved::default();
        if index >= held.cursor() + own && !is_moved(array.bucket(index)) {
            let Some(buckets) = self.move_chain(array, index, next) else {
                // No memory. The caller writes to this chain in the old array, so nothing else is moved: `advance`
                // might move this chain.
                return (array, index);
            };
            moved.count(buckets);
        }
        let more = self.advance(held, hash as usize, SHARE);
        held.note_moved(moved.buckets + more.buckets);
        (next, next.index_of(hash))
    }

    /// Moves up to `share` chains of the stripe that `hash` belongs to, and leaves the array when all have moved. If that makes a small
    /// table a large one, the caller then holds another stripe: that of the hash. Passes up to [`PASSED`] chains that have moved.
    ///
    /// Afterwards, the buckets of the old array may be gone: the caller must not read them.
    fn advance<'s>(&'s self, held: &mut Held<'s>, hash: usize, share: usize) -> Moved {
        let (array, mut moved) = (held.array(), Moved::default());
        let Some(next) = array.next() else { return moved };
        let mut passed = 0;
        while held.cursor() < array.len() && moved.chains < share && passed < PASSED {
            work::step();
            let index = held.cursor() + hash % array.stripe_count();
            if is_moved(array.bucket(index)) {
                passed += 1;
            } else {
                let Some(buckets) = self.move_chain(array, index, next) else {
                    moved.lacks_memory = true;
                    return moved;
                };
                moved.count(buckets);
            }
            held.set_cursor(held.cursor() + array.stripe_count());
        }
        if held.cursor() < array.len() {
            moved.has_more = true;
            return moved;
        }
        held.leave_for(next);
        if array.count_moved_stripe() {
            self.finish(array, next, held, hash);
        }
        moved
    }

    /// Moves the entries of one chain to the chains of the next array that their keys belong to. Returns the number of
    /// its buckets; `None` when there is no memory. In this case, and after a panic of the user's `Hash`, nothing has
    /// changed.
    ///
    /// Readers rely on the order. First, the entries are linked in the next array; then each bucket of the old chain is
    /// marked; then its words and tags are cleared. A reader that finds one of these cleared also finds the mark.
    fn move_chain(&self, array: &Array, index: usize, next: &Array) -> Option<usize> {
        fetch(array, index, next);
        // Every bit of a hash that a smaller array keeps is in the index or the kept bits of this array.
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
                    // SAFETY: the entry is linked, and the stripe is locked, so no other thread unlinks it.
                    under_lock(|| self.hash(unsafe { &self.arena().pair(entry).as_ref().key }))
                };
                // The lower bits stay as they are, so that a key whose hash has changed remains in its stripe.
                let hash = array.at_index(hash, index);
                let (bucket_of_next, free) = next.room(next.index_of(hash))?;
                bucket_of_next.link_entry(free, bucket.tag(slot), next.bits_of(hash), entry);
            }
        }
        std::mem::forget(undo);
        let (mut old, mut buckets) = (array.bucket(index), 0);
        loop {
            buckets += 1;
            let link = old.link();
            if busted::is(Variant::MarkLate) {
                old.empty();
            }
            old.set_link(MOVED);
            if !busted::is(Variant::OldWordKept) {
                old.empty();
            }
            if link == END {
                return Some(buckets);
            }
            old = array.overflow(link);
        }
    }

    /// The last stripe has left `array`: lookups begin in `next` from now on. `held` is that stripe, and then the one that the hash
    /// belongs to.
    fn finish<'s>(&'s self, array: &Array, next: &'s Array, held: &mut Held<'s>, hash: usize) {
        if array.len() < many() {
            let its = self.stripes.become_many(hash);
            if !busted::is(Variant::FewKept) {
                *held = its;
            }
        }
        next.allow_huge_pages();
        self.set_fetched(next);
        let count = if next.len() > array.len() { &self.growths } else { &self.shrinks };
        // Relaxed: for statistics.
        count.fetch_add(1, Ordering::Relaxed);
        // Release: publishes the moves of all stripes, which happen before the last count. Pairs with the acquire loads
        // of `current`. This store unlinks the old array.
        self.current.store(array.next_raw(), Ordering::Release);
        // SAFETY: every stripe has left the array. Only the thread of the last count gets here, so the array is retired
        // once. Readers find arrays through `current`, from which this one was just unlinked. The `Array` stays as long
        // as the store.
        self.places.put(unsafe { self.store.array(array) }, hint());
    }

    /// Begins a growth if the table is above its capacity. For the holder of a stripe in which an entry was just
    /// linked. Without memory for a larger array, chains grow longer instead.
    #[inline(always)]
    pub(super) fn grow_if_full(&self, held: &Held<'_>) {
        let array = held.array();
        if held.entries() > array.stripe_limit() && self.is_steady(array) {
            self.grow_above_capacity(array);
        }
    }

    /// To the size that the entries need: more than twice as large if there was no memory for a growth before.
    #[inline(never)]
    fn grow_above_capacity(&self, array: &Array) {
        let entries = self.len();
        if let Some(len) = Array::len_for(entries).filter(|_| entries > array.capacity()) {
            self.begin_move(array, len, Touch::Lazily);
        }
    }

    /// Whether every stripe is in `array`, and no move has begun.
    fn is_steady(&self, array: &Array) -> bool {
        // Relaxed: compared, not followed. `begin_move` detects a growth that begins at the same time.
        ptr::eq(self.current.load(Ordering::Relaxed), array) && array.next().is_none()
    }

    /// Begins a move to an array of `len` buckets, unless another move has begun. False when there is no memory. The
    /// caller holds a stripe that is in `array`, which is current.
    fn begin_move(&self, array: &Array, len: usize, touch: Touch) -> bool {
        let coming = Coming::new(len, array.len() < many(), touch);
        coming.map(|coming| self.move_to(array, coming)).is_some()
    }

    /// As [`begin_move`](Self::begin_move), to an array that the caller has made. Hands it back if another move has begun.
    fn move_to(&self, array: &Array, mut coming: Coming) -> Option<Coming> {
        if !array.try_set_next(coming.array) {
            return Some(coming);
        }
        coming.array = ptr::null_mut();
        if let Some(stripes) = coming.stripes.take() {
            self.stripes.keep(stripes);
        }
        None
    }

    /// Moves a share of another stripe, for an insertion whose own stripe is done. So a growth ends even if some
    /// stripes have no writers.
    pub(super) fn help(&self) {
        // Relaxed: any number will do.
        let number = self.help.fetch_add(1, Ordering::Relaxed) % self.stripes.count();
        if let Some(mut held) = self.stripes.try_lock(number) {
            let moved = self.advance(&mut held, number, SHARE);
            held.note_moved(moved.buckets);
        }
    }

    /// Makes room for `additional` more entries, and moves everything to the new array now. False when there is no
    /// memory, or the limit is too low.
    ///
    /// # Panics
    /// With the panic of a destructor, before anything else is done.
    pub(crate) fn reserve(&self, additional: usize) -> bool {
        let Some(entries) = self.len().checked_add(additional) else { return false };
        let Some(len) = Array::len_for(entries) else { return false };
        // Removed entries that no reader keeps alive count as room: this frees their slots.
        self.press(usize::MAX);
        if !self.arena().reserve(additional) {
            return false;
        }
        let _turn = self.reserving.lock().unwrap_or_else(PoisonError::into_inner);
        let mut coming: Option<Coming> = None;
        // The second turn finds the array. Each further one is due to a move that another thread began meanwhile.
        loop {
            if !self.move_everything() {
                return false;
            }
            let was_small = {
                let held = self.stripes.lock(0);
                let array = held.array();
                if array.len() >= len {
                    return true;
                }
                if !self.is_steady(array) {
                    continue;
                }
                array.len() < many()
            };
            if coming.as_ref().is_none_or(|coming| coming.stripes.is_some() != was_small) {
                // Without the lock, for which writers would wait: the system clears the memory of the whole array.
                let Some(made) = Coming::new(len, was_small, Touch::Now) else { return false };
                coming = Some(made);
            }
            let held = self.stripes.lock(0);
            let array = held.array();
            if self.is_steady(array) && array.len() < len && (array.len() < many()) == was_small {
                coming = coming.and_then(|coming| self.move_to(array, coming));
            }
        }
    }

    /// Moves everything to the smallest array with room for the present entries, if it is smaller than the current one.
    /// If memory for its chains runs out, writers move the rest once there is memory.
    pub(crate) fn shrink(&self) {
        if !self.move_everything() {
            return;
        }
        let begun = {
            let held = self.stripes.lock(0);
            let array = held.array();
            let is_smaller = |len: &usize| *len < array.len() && self.is_steady(array);
            let len = Array::len_for(self.len()).map(|len| len.max(many())).filter(is_smaller);
            len.is_some_and(|len| self.begin_move(array, len, Touch::Lazily))
        };
        if begun {
            self.move_everything();
        }
    }

    /// Moves all stripes, and releases each lock after [`PIECE`] chains. False when there is no memory.
    fn move_everything(&self) -> bool {
        let (mut complete, mut number, mut count) = (true, 0, self.stripes.count());
        while number < count {
            let mut held = self.stripes.lock(number);
            let moved = self.advance(&mut held, number, PIECE);
            drop(held);
            complete &= !moved.lacks_memory;
            if self.stripes.count() > count {
                // A small table has become a large one, which may already be moving, too.
                (number, count) = (0, self.stripes.count());
            } else if !moved.has_more {
                number += 1;
            }
        }
        complete
    }
}

/// What was moved.
#[derive(Default)]
struct Moved {
    chains: usize,
    /// Buckets of these chains.
    buckets: usize,
    /// Whether the next chain stays where it is, for want of memory.
    lacks_memory: bool,
    /// Whether the stripe has chains left that this call did not look at, as it has done its share.
    has_more: bool,
}

impl Moved {
    fn count(&mut self, buckets: usize) {
        self.chains += 1;
        self.buckets += buckets;
    }
}

/// Prefetches a bucket that is about to be moved, and the two that its entries go to.
fn fetch(array: &Array, index: usize, next: &Array) {
    prefetch(array.start().wrapping_add(index));
    prefetch(next.start().wrapping_add(index));
    prefetch(next.start().wrapping_add(index + array.len()));
}

fn is_moved(bucket: &Bucket) -> bool {
    bucket.link() == MOVED
}

/// When dropped, removes the links that were made in the next array. No reader looks there for keys of this chain
/// before the chain is marked. A chain of a smaller array may already have entries of other chains, which stay.
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

#[cfg(all(test, not(any(miri, stillpoint_loom))))]
mod tests {
    use std::hash::BuildHasherDefault;

    use super::{PASSED, SHARE};
    use crate::rcu::Domain;
    use crate::table::engine::slab::Touch;
    use crate::table::identity::Identity;
    use crate::table::Table;

    /// Writes to the last chains of a stripe first: when the cursor comes to these, they have moved.
    #[test]
    fn a_write_looks_at_few_chains_that_have_moved() {
        const CHAINS: usize = 1 << 17;
        let builder = Table::builder_in(&Domain::new()).hasher(BuildHasherDefault::<Identity>::default());
        let table: Table<u64, (), _> = builder.unmixed().capacity(CHAINS * 5).build().unwrap();
        let inner = table.inner();
        assert!(inner.begin_move(inner.stripes.lock(0).array(), CHAINS * 2, Touch::Lazily));
        let (mut writes, mut most) = (0, 0);
        while is_moving(&table) {
            writes += 1;
            let key = (CHAINS - 256 * (writes % (CHAINS / 256)).max(1)) as u64;
            most = most.max(stillpoint_sys::work::steps_of(|| drop(table.insert(key, ()).unwrap())).0);
        }
        assert!(
            (PASSED..=PASSED + SHARE).contains(&most) && writes < CHAINS / 256,
            "{most}, {writes} writes"
        );
    }

    /// Whether stripe 0 is moving.
    fn is_moving<S>(table: &Table<u64, (), S>) -> bool {
        table.inner().stripes.lock(0).array().next().is_some()
    }
}
