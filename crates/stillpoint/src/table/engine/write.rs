//! The writers' protocol: everything that happens under the lock of a stripe.
//!
//! The only user code that runs under a lock is `Eq` and `Hash`, and no lock holder waits for a reader. Values are made
//! before the lock is taken, and dropped after it is released.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::mem::ManuallyDrop;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;

use super::arena::Pair;
use super::array::Array;
use super::bucket::{tag_of, Bucket};
use super::search::Place;
use super::store::destroy;
use super::stripe::{Held, STRIPES};
use super::{hint, Inner};
use crate::rcu::engine::core::record::{set_hazard, Hazard};
use stillpoint_sys::panics::{keep_first, resume};
use stillpoint_sys::sync::atomic::Ordering;

/// An entry that is not linked. Its drop destroys the pair and frees the slot.
pub(crate) struct Unlinked<'t, K, V, S> {
    inner: &'t Inner<K, V, S>,
    pub(crate) entry: u32,
}

impl<'t, K, V, S> Unlinked<'t, K, V, S> {
    /// Puts a pair into a free slot. Hands the pair back when there is none.
    #[inline(always)]
    pub(crate) fn new(inner: &'t Inner<K, V, S>, key: K, value: V) -> Result<Self, (K, V)> {
        Self::fill(inner, inner.arena().allocate(hint()), key, value)
    }

    /// As [`new`](Unlinked::new), after freeing the removed entries that no reader holds up.
    pub(crate) fn pressed(inner: &'t Inner<K, V, S>, key: K, value: V) -> Result<Self, (K, V)> {
        inner.press();
        Self::new(inner, key, value)
    }

    /// Puts a pair that will replace another entry into a spare slot.
    pub(crate) fn spare(inner: &'t Inner<K, V, S>, key: K, value: V) -> Result<Self, (K, V)> {
        Self::fill(inner, inner.arena().allocate_spare(), key, value)
    }

    /// Puts a pair that will replace another entry into a free slot, a spare slot, or one that can be freed now.
    #[inline(always)]
    pub(crate) fn replacing(inner: &'t Inner<K, V, S>, key: K, value: V) -> Result<Self, (K, V)> {
        match Self::new(inner, key, value) {
            Ok(new) => Ok(new),
            Err((key, value)) => Self::replacing_in_full(inner, key, value),
        }
    }

    #[cold]
    #[inline(never)]
    fn replacing_in_full(inner: &'t Inner<K, V, S>, key: K, value: V) -> Result<Self, (K, V)> {
        Self::spare(inner, key, value)
            .or_else(|(key, value)| Self::pressed(inner, key, value))
            .or_else(|(key, value)| Self::spare(inner, key, value))
    }

    #[inline(always)]
    fn fill(inner: &'t Inner<K, V, S>, slot: Option<u32>, key: K, value: V) -> Result<Self, (K, V)> {
        let Some(entry) = slot else { return Err((key, value)) };
        // SAFETY: only this thread has the slot.
        unsafe { inner.arena().pair(entry).write(Pair { key, value }) };
        Ok(Self { inner, entry })
    }

    pub(crate) fn key(&self) -> &K {
        // SAFETY: the slot holds a pair, and belongs to this value.
        unsafe { &self.inner.arena().pair(self.entry).as_ref().key }
    }

    /// The pair. Frees the slot.
    pub(crate) fn into_pair(self) -> (K, V) {
        let this = ManuallyDrop::new(self);
        // SAFETY: the slot belongs to this value, which is not dropped.
        unsafe { this.inner.take_pair(this.entry) }
    }

    /// Gives the entry, which is linked now, to the table.
    fn linked(self) {
        std::mem::forget(self);
    }
}

impl<K, V, S> Drop for Unlinked<'_, K, V, S> {
    fn drop(&mut self) {
        let pair = self.inner.arena().pair(self.entry).cast();
        // SAFETY: the slot holds a pair that no reader has seen, and belongs to this value.
        unsafe { destroy::<K, V>(pair, self.inner.store().context()) };
    }
}

/// The condition under which a new entry is linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Only {
    /// Whether or not its key is in the table.
    Always,
    /// Only if its key is not in the table.
    New,
    /// Only if its key is in the table: the new entry has a spare slot.
    Replacement,
}

/// The result of an insertion.
pub(crate) enum Insertion<'t, K, V, S> {
    /// The new entry is linked. It replaced this entry, if there was one.
    Done(Option<u32>),
    /// The key is in the table already, with this entry.
    Present(Unlinked<'t, K, V, S>, u32),
    /// There was no memory for an overflow bucket, or, for `Only::Replacement`, no entry to replace.
    NoRoom(Unlinked<'t, K, V, S>),
}

/// Where an entry is linked.
struct Spot<'s> {
    bucket: &'s Bucket,
    slot: usize,
    entry: u32,
}

impl<K, V, S> Inner<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    fn lock(&self, hash: u64) -> Held<'_> {
        self.stripes[hash as usize % STRIPES].lock()
    }

    /// The first entry of the chain that has the tag, and for which `is_it` returns true.
    fn find<'s>(
        &self,
        (array, index): (&'s Array, usize),
        hash: u64,
        mut is_it: impl FnMut(u32, &K) -> bool,
    ) -> Option<Spot<'s>> {
        let tag = tag_of(hash);
        array.chain(index).find_map(|bucket| {
            bucket.matching(tag).find_map(|slot| {
                let entry = bucket.entry(slot);
                // SAFETY: the tag of an unlinked entry is cleared before the lock is released, so the slot holds a
                // linked entry. No other thread unlinks it while this one holds the lock.
                let key = unsafe { &self.arena().pair(entry).as_ref().key };
                is_it(entry, key).then_some(Spot { bucket, slot, entry })
            })
        })
    }

    /// Links a new entry, whose key has this hash. If there is an entry with the same key, the new one replaces it.
    /// With `pin`, the entry that is in the table afterwards is put into that hazard slot.
    pub(crate) fn insert<'t>(
        &'t self,
        hash: u64,
        new: Unlinked<'t, K, V, S>,
        only: Only,
        pin: Option<&Hazard>,
    ) -> Insertion<'t, K, V, S> {
        let mut held = self.lock(hash);
        let before = held.array();
        let place = self.locate(&mut held, hash);
        if let Some(spot) = self.find(place, hash, |_, key| key == new.key()) {
            if only == Only::New {
                self.pin(pin, spot.entry);
                drop(held);
                return Insertion::Present(new, spot.entry);
            }
            self.pin(pin, new.entry);
            // Release (in `orders::set_entry`): publishes the new entry, and unlinks the old one.
            spot.bucket.set_entry(spot.slot, new.entry);
            new.linked();
            return Insertion::Done(Some(spot.entry));
        }
        let (array, index) = place;
        let room = if only == Only::Replacement { None } else { array.room(index) };
        let Some((bucket, slot)) = room else {
            drop(held);
            return Insertion::NoRoom(new);
        };
        self.pin(pin, new.entry);
        bucket.link_entry(slot, tag_of(hash), array.bits_of(hash), new.entry);
        new.linked();
        held.count(1);
        self.grow_if_full(&held);
        // Help if the stripe had left the current array for the next one before this call. If it left during this call,
        // the call has already done its share. Relaxed: compared, not followed.
        let ahead = ptr::eq(before, held.array())
            && before.next().is_none()
            && !ptr::eq(self.current.load(Ordering::Relaxed), before);
        drop(held);
        if ahead {
            self.help();
        }
        Insertion::Done(None)
    }

    /// Pins an entry that is linked, or about to be, under the lock. A thread that unlinks it takes the lock later, so
    /// this store happens before the unlinking.
    fn pin(&self, hazard: Option<&Hazard>, entry: u32) {
        if let Some(hazard) = hazard {
            set_hazard(hazard, self.arena().pair(entry).as_ptr().cast());
        }
    }

    /// Unlinks the entry of a key. The caller then owns it, though readers may still hold it.
    pub(crate) fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<u32>
    where
        K: Borrow<Q>,
    {
        let hash = self.hash(key);
        self.fetch(hash);
        self.unlink(hash, |_, found| found.borrow() == key)
    }

    /// Unlinks the entry with this index, whose key has this hash. False when it is not in the table any more.
    ///
    /// # Safety
    /// The caller pins the entry, so that its index is not given to another entry meanwhile. If `found` names a bucket,
    /// the caller pins that, too.
    pub(crate) unsafe fn remove_entry(&self, hash: u64, entry: u32, found: Option<Place>) -> bool {
        let mut held = self.lock(hash);
        // SAFETY: the caller pins the entry, and the bucket that `found` names, by its promise.
        let spot = unsafe { self.find_again(&mut held, hash, entry, found) };
        if let Some(spot) = &spot {
            spot.bucket.unlink_entry(spot.slot);
            held.count(-1);
        }
        spot.is_some()
    }

    fn unlink(&self, hash: u64, is_it: impl FnMut(u32, &K) -> bool) -> Option<u32> {
        let mut held = self.lock(hash);
        let place = self.locate(&mut held, hash);
        let spot = self.find(place, hash, is_it)?;
        spot.bucket.unlink_entry(spot.slot);
        held.count(-1);
        Some(spot.entry)
    }

    /// The slot that the entry with this index is linked in: the slot in `found`, unless the stripe is moving.
    ///
    /// # Safety
    /// As for [`remove_entry`](Inner::remove_entry).
    #[inline(always)]
    unsafe fn find_again<'s>(
        &'s self,
        held: &mut Held<'s>,
        hash: u64,
        entry: u32,
        found: Option<Place>,
    ) -> Option<Spot<'s>> {
        if let Some(Place { bucket, slot }) = found.filter(|_| held.array().next().is_none()) {
            // SAFETY: by the caller's promise, the bucket is pinned. If the index is still there, the bucket is in an
            // array that the table has not left (I1), whose buckets stay as long as the stripe is locked.
            let bucket = unsafe { bucket.as_ref() };
            if bucket.entry(slot) == entry {
                return Some(Spot { bucket, slot, entry });
            }
        }
        let place = self.locate(held, hash);
        self.find(place, hash, |found, _| found == entry)
    }

    /// Links `new` in place of the entry `old`, whose key has this hash. Hands `new` back when `old` is not in the
    /// table any more. With `pin`, the new entry is put into that hazard slot.
    ///
    /// # Safety
    /// As for [`remove_entry`](Inner::remove_entry).
    #[inline]
    pub(crate) unsafe fn replace_entry<'t>(
        &'t self,
        hash: u64,
        old: u32,
        found: Option<Place>,
        new: Unlinked<'t, K, V, S>,
        pin: Option<&Hazard>,
    ) -> Result<(), Unlinked<'t, K, V, S>> {
        let mut held = self.lock(hash);
        // SAFETY: the caller pins the entry, and the bucket that `found` names, by its promise.
        let Some(spot) = (unsafe { self.find_again(&mut held, hash, old, found) }) else {
            drop(held);
            return Err(new);
        };
        self.pin(pin, new.entry);
        // Release (in `orders::set_entry`): publishes the new entry, and unlinks the old one.
        spot.bucket.set_entry(spot.slot, new.entry);
        new.linked();
        Ok(())
    }

    /// Whether a key is in the table. Takes the lock of its stripe. For callers that have neither a region nor a hazard
    /// slot.
    #[cold]
    pub(crate) fn has(&self, hash: u64, key: &K) -> bool {
        let mut held = self.lock(hash);
        let place = self.locate(&mut held, hash);
        self.find(place, hash, |_, found| found == key).is_some()
    }

    /// Unlinks and retires everything, stripe by stripe.
    ///
    /// # Panics
    /// With the first panic of a destructor, after everything has been unlinked; or with a panic of the user's `Hash`.
    pub(crate) fn clear(&self) {
        let (mut taken, mut first) = (Vec::new(), None);
        for (number, stripe) in self.stripes.iter().enumerate() {
            let (mut index_of_chain, mut chains) = (number, 0);
            loop {
                let mut held = stripe.lock();
                // A growth may begin and end meanwhile; the same order also holds in a larger array. If the stripe has
                // left for a smaller array, entries that were not reached yet may be in a chain that was already
                // passed.
                let now = held.array().len().max(held.newest().len());
                if now < chains {
                    index_of_chain = number;
                }
                chains = now;
                if index_of_chain >= chains {
                    break;
                }
                let (array, index) = self.locate(&mut held, index_of_chain as u64);
                for bucket in array.chain(index) {
                    taken.extend(bucket.entries().map(|(_, entry)| entry));
                    bucket.empty();
                }
                held.count(-(taken.len() as i32));
                drop(held);
                // All entries are retired before the first destructor runs, so that a panic leaks none.
                let polls = taken.len();
                taken.drain(..).for_each(|entry| self.retire(entry));
                for _ in 0..polls {
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.poll())) {
                        keep_first(&mut first, panic);
                    }
                }
                index_of_chain += STRIPES;
            }
        }
        resume(first);
    }
}
