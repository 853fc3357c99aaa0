//! The writers' protocol: everything that happens under the lock of a stripe.
//!
//! Under a lock runs no code of the user's but `Eq` and `Hash`, and nobody waits for a reader. Values are made before,
//! and dropped after.

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

/// An entry that is not linked yet, or no more in need of it: dropped with its slot.
pub(crate) struct Unlinked<'t, K, V, S> {
    inner: &'t Inner<K, V, S>,
    pub(crate) entry: u32,
}

impl<'t, K, V, S> Unlinked<'t, K, V, S> {
    /// Puts a pair into a slot. The pair comes back when there is none.
    #[inline(always)]
    pub(crate) fn new(inner: &'t Inner<K, V, S>, key: K, value: V) -> Result<Self, (K, V)> {
        Self::fill(inner, inner.arena().allocate(hint()), key, value)
    }

    /// As [`new`](Unlinked::new), after what waits and need not has been freed.
    pub(crate) fn pressed(inner: &'t Inner<K, V, S>, key: K, value: V) -> Result<Self, (K, V)> {
        inner.press();
        Self::new(inner, key, value)
    }

    /// Puts a pair that is to replace another one into a spare slot.
    pub(crate) fn spare(inner: &'t Inner<K, V, S>, key: K, value: V) -> Result<Self, (K, V)> {
        Self::fill(inner, inner.arena().allocate_spare(), key, value)
    }

    /// For a replacement: a slot as any, or a spare one, or what becomes free now.
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
        // SAFETY: the slot is this thread's alone.
        unsafe { inner.arena().pair(entry).write(Pair { key, value }) };
        Ok(Self { inner, entry })
    }

    pub(crate) fn key(&self) -> &K {
        // SAFETY: the slot holds a pair, and is this value's alone.
        unsafe { &self.inner.arena().pair(self.entry).as_ref().key }
    }

    /// The pair itself.
    pub(crate) fn into_pair(self) -> (K, V) {
        let this = ManuallyDrop::new(self);
        // SAFETY: the slot is this value's alone.
        unsafe { this.inner.take_pair(this.entry) }
    }

    /// It is linked: the table owns it.
    fn linked(self) {
        std::mem::forget(self);
    }
}

impl<K, V, S> Drop for Unlinked<'_, K, V, S> {
    fn drop(&mut self) {
        let pair = self.inner.arena().pair(self.entry).cast();
        // SAFETY: the slot holds a pair that no reader has seen, and is this value's alone.
        unsafe { destroy::<K, V>(pair, self.inner.store().context()) };
    }
}

/// When a new entry is linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Only {
    /// Whether its key is there or not.
    Always,
    /// If its key is not there.
    New,
    /// If its key is there: the entry has a spare slot.
    Replacement,
}

/// What became of a new entry.
pub(crate) enum Insertion<'t, K, V, S> {
    /// It is in the table, in place of this one, if there was any.
    Done(Option<u32>),
    /// The key is there already, with this entry.
    Present(Unlinked<'t, K, V, S>, u32),
    /// No memory for an overflow bucket; or it was only to replace another one, and there is none.
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

    /// The entry that `is_it` picks among those in the chain whose tag fits.
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
                // SAFETY: tags of unlinked entries are cleared before the lock is given back, so the slot holds one;
                // nobody else may unlink it while this thread holds the lock.
                let key = unsafe { &self.arena().pair(entry).as_ref().key };
                is_it(entry, key).then_some(Spot { bucket, slot, entry })
            })
        })
    }

    /// Links a new entry, whose key has this hash, in place of the one with the same key. With `pin`, the entry that is in
    /// the table afterwards is put into that hazard slot.
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
            // Release: publishes the new entry, and unlinks the old one.
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
        // The stripe was ahead of others when this call came. One that it has taken ahead has done its share already.
        // Relaxed: compared, not followed.
        let ahead = ptr::eq(before, held.array())
            && before.next().is_none()
            && !ptr::eq(self.current.load(Ordering::Relaxed), before);
        drop(held);
        if ahead {
            self.help();
        }
        Insertion::Done(None)
    }

    /// Pins an entry that is linked, or about to be, under the lock: whoever unlinks it takes the lock later, and so
    /// comes after this store.
    fn pin(&self, hazard: Option<&Hazard>, entry: u32) {
        if let Some(hazard) = hazard {
            set_hazard(hazard, self.arena().pair(entry).as_ptr().cast());
        }
    }

    /// Unlinks the entry of a key, which the caller then owns but for its readers.
    pub(crate) fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<u32>
    where
        K: Borrow<Q>,
    {
        let hash = self.hash(key);
        self.fetch(hash);
        self.unlink(hash, |_, found| found.borrow() == key)
    }

    /// Unlinks this very entry, whose key has this hash. False when it is not in the table any more.
    ///
    /// # Safety
    /// The caller pins the entry, so that its index does not belong to another one meanwhile, and the bucket that it was
    /// found in, if one is named.
    pub(crate) unsafe fn remove_entry(&self, hash: u64, entry: u32, found: Option<Place>) -> bool {
        let mut held = self.lock(hash);
        // SAFETY: the caller's promise.
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

    /// The slot that this very entry is linked in: the one that it was found in, unless something moves.
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
            // SAFETY: pinned, by the caller's promise; if the index is there still, it is in an array that the table has
            // not left (I1), whose buckets stay as long as the stripe is held.
            let bucket = unsafe { bucket.as_ref() };
            if bucket.entry(slot) == entry {
                return Some(Spot { bucket, slot, entry });
            }
        }
        let place = self.locate(held, hash);
        self.find(place, hash, |found, _| found == entry)
    }

    /// Puts `new` in the place of this very entry, whose key has this hash; comes back when that is not in the table
    /// any more. With `pin`, the new entry is put into that hazard slot.
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
        // SAFETY: the caller's promise.
        let Some(spot) = (unsafe { self.find_again(&mut held, hash, old, found) }) else {
            drop(held);
            return Err(new);
        };
        self.pin(pin, new.entry);
        // Release: as in `insert`.
        spot.bucket.set_entry(spot.slot, new.entry);
        new.linked();
        Ok(())
    }

    /// Whether a key is in the table; takes the lock of its stripe. For callers that have neither a region nor a hazard slot.
    #[cold]
    pub(crate) fn has(&self, hash: u64, key: &K) -> bool {
        let mut held = self.lock(hash);
        let place = self.locate(&mut held, hash);
        self.find(place, hash, |_, found| found == key).is_some()
    }

    /// Unlinks and retires everything, stripe by stripe.
    ///
    /// # Panics
    /// With the first panic of a destructor, after everything has been unlinked; or with one of the user's `Hash`.
    pub(crate) fn clear(&self) {
        let (mut taken, mut first) = (Vec::new(), None);
        for (number, stripe) in self.stripes.iter().enumerate() {
            let (mut index_of_chain, mut chains) = (number, 0);
            loop {
                let mut held = stripe.lock();
                // A growth may begin and end meanwhile: larger arrays are passed over in the same order. If the stripe has left for
                // a smaller array, what was still to come may be in a chain that was already passed.
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
                // All of them are retired before the first destructor runs: a panic then costs none of the others.
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
