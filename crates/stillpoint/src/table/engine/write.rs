//! The writers' protocol: everything that happens under the lock of a stripe.
//!
//! The only user code that runs under a lock is `Eq` and `Hash`, and no lock holder waits for a reader: there, calls that may
//! wait are refused, and nothing is freed, since a destructor may need the lock. Values are made before the lock is taken, and
//! dropped after it is released.

use std::hash::{BuildHasher, Hash};
use std::mem::ManuallyDrop;
use std::ptr;

use equivalent::Equivalent;

use super::arena::{Pair, SPARE};
use super::array::Array;
use super::bucket::{tag_of, Bucket, NO_ENTRY};
use super::places::FREED_PER_CALL;
use super::search::Place;
use super::stripe::Held;
use super::{hint, Inner, Owned};
use crate::frames::{keeping, Foreign};
use crate::rcu::engine::core::record::{set_hazard, Hazard};
use crate::table::busted::{self, Variant};
use stillpoint_sys::panics::resume;
use stillpoint_sys::sync::atomic::Ordering;

/// An entry that is not linked. Its drop destroys the pair and frees the slot.
struct Unlinked<'t, K, V, S> {
    inner: &'t Inner<K, V, S>,
    entry: u32,
}

impl<'t, K, V, S> Unlinked<'t, K, V, S> {
    /// Puts a pair into a free slot. Hands the pair back when there is none.
    #[inline(always)]
    fn new(inner: &'t Inner<K, V, S>, key: K, value: V) -> Result<Self, (K, V)> {
        let hint = inner.hint_before_link(&key);
        let Some(entry) = inner.arena().allocate(hint) else { return Err((key, value)) };
        // SAFETY: only this thread has the slot.
        unsafe { inner.arena().pair(entry).write(Pair { key, value }) };
        Ok(Self { inner, entry })
    }
}

impl<K, V, S> Drop for Unlinked<'_, K, V, S> {
    fn drop(&mut self) {
        let pair = self.inner.arena().pair(self.entry).cast();
        // SAFETY: the slot holds a pair that no reader has seen, and belongs to this value.
        unsafe { self.inner.store.destroy_entry(pair) };
    }
}

/// A pair that is to be linked: it has a slot, or gets one under the lock of its stripe.
///
/// A slot is taken before the lock, if one is free. Otherwise, it is asked for again under the lock, where it is also
/// known whether the key is in the table. So the answer "there is no room" holds at an instant at which the key is
/// absent.
trait Linkable<K, V, S>: Sized {
    fn key(&self) -> &K;

    /// A slot: a spare one, if need be, when the pair `replaces` an entry. `None` when there is none.
    fn take_slot(&self, inner: &Inner<K, V, S>, replaces: bool) -> Option<u32>;

    /// Undoes [`take_slot`](Linkable::take_slot).
    fn return_slot(&self, inner: &Inner<K, V, S>, slot: u32);

    /// Gives the pair, in the slot that it took, to the table, which is about to link it.
    fn fill(self, inner: &Inner<K, V, S>, slot: u32);

    /// The pair, which is not linked.
    fn into_pair(self) -> (K, V);
}

impl<K, V, S> Linkable<K, V, S> for Unlinked<'_, K, V, S> {
    #[inline(always)]
    fn key(&self) -> &K {
        // SAFETY: the slot holds a pair, and belongs to this value.
        unsafe { &self.inner.arena().pair(self.entry).as_ref().key }
    }

    #[inline(always)]
    fn take_slot(&self, _: &Inner<K, V, S>, _: bool) -> Option<u32> {
        Some(self.entry)
    }

    #[inline(always)]
    fn return_slot(&self, _: &Inner<K, V, S>, _: u32) {}

    #[inline(always)]
    fn fill(self, _: &Inner<K, V, S>, _: u32) {
        std::mem::forget(self);
    }

    fn into_pair(self) -> (K, V) {
        let this = ManuallyDrop::new(self);
        // SAFETY: the slot belongs to this value, which is not dropped.
        unsafe { this.inner.take_pair(this.entry) }
    }
}

/// A pair that found no free slot before the lock.
struct Late<K, V>(Pair<K, V>);

impl<K, V, S> Linkable<K, V, S> for Late<K, V> {
    fn key(&self) -> &K {
        &self.0.key
    }

    fn take_slot(&self, inner: &Inner<K, V, S>, replaces: bool) -> Option<u32> {
        let arena = inner.arena();
        arena.allocate(hint()).or_else(|| if replaces { arena.allocate_spare() } else { None })
    }

    fn return_slot(&self, inner: &Inner<K, V, S>, slot: u32) {
        // SAFETY: `take_slot` has just allocated the slot, which is still empty.
        unsafe { inner.arena().free(slot, hint()) };
    }

    fn fill(self, inner: &Inner<K, V, S>, slot: u32) {
        // SAFETY: only this thread has the slot.
        unsafe { inner.arena().pair(slot).write(self.0) };
    }

    fn into_pair(self) -> (K, V) {
        (self.0.key, self.0.value)
    }
}

/// The condition under which a new entry is linked.
#[derive(Clone, Copy)]
pub(crate) enum Only {
    /// Whether or not its key is in the table.
    Always,
    /// Only if its key is not in the table.
    New,
    /// Only in place of this entry, which has the same key.
    InPlaceOf(Pinned),
}

/// An entry whose index is not given to another one as long as this is used.
#[derive(Clone, Copy)]
pub(crate) struct Pinned {
    entry: u32,
    found: Option<Place>,
}

impl Pinned {
    /// # Safety
    /// As long as the result is used, the caller pins the entry, so that its index is not given to another entry meanwhile. If `found`
    /// names a bucket, the caller pins that, too.
    #[inline(always)]
    pub(crate) unsafe fn new(entry: u32, found: Option<Place>) -> Self {
        Self { entry, found }
    }
}

/// The result of [`Inner::put`].
pub(crate) enum Put<K, V> {
    /// The key was not in the table; this is its entry. The caller polls, with this [`hint`], as every insertion does: a
    /// program may use no other call that writes. No hint if the call had to make room, and may have run its share of destructors.
    Inserted { new: u32, hint: Option<usize> },
    /// The entry replaced the old one.
    Replaced { old: Owned, new: u32 },
    /// Nothing was linked: the key is in the table already, with this entry. [`NO_ENTRY`] if the one that was to be replaced is not in the
    /// table any more.
    Refused { entry: u32, key: K, value: V },
}

/// The result of an insertion of `N`, a [`Linkable`].
enum Insertion<N> {
    /// The new entry is linked. It replaced the old one, if there was one.
    Done { new: u32, old: Option<u32> },
    /// As [`Put::Refused`].
    Refused(N, u32),
    /// There was no slot, or no memory for an overflow bucket.
    NoRoom(N),
}

/// How many destructors a call may still run to make room.
struct Pressure(usize);

impl Default for Pressure {
    /// While spare slots are owed, those that are freed become spare ones. So a call that needs a slot may have to free
    /// as many more.
    fn default() -> Self {
        Self(FREED_PER_CALL + SPARE as usize)
    }
}

impl Pressure {
    /// Frees some of the removed entries that no reader keeps alive, and that no other writer has in hand. Returns whether
    /// it has freed any.
    ///
    /// # Panics
    /// With the panic of a destructor.
    fn makes_room<K, V, S>(&mut self, inner: &Inner<K, V, S>) -> bool {
        let freed = inner.press(self.0.min(FREED_PER_CALL));
        self.0 = self.0.saturating_sub(freed);
        freed > 0
    }
}

/// Where an entry is linked.
struct Spot<'s> {
    bucket: &'s Bucket,
    slot: usize,
    entry: u32,
}

/// Runs `Eq` or `Hash` of the user under a lock.
#[inline(always)]
pub(super) fn under_lock<T>(call: impl FnOnce() -> T) -> T {
    let _foreign = Foreign::begin();
    call()
}

impl<K, V, S> Inner<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    fn lock(&self, hash: u64) -> Held<'_> {
        self.stripes.lock(hash as usize)
    }

    /// The first entry of the chain that has the tag, and for which `is_it` returns true.
    #[inline(always)]
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
    #[inline(always)]
    fn insert<N: Linkable<K, V, S>>(
        &self,
        hash: u64,
        new: N,
        only: Only,
        pin: Option<&Hazard>,
    ) -> Insertion<N> {
        let mut held = self.lock(hash);
        let before = held.array();
        let place = self.locate(&mut held, hash);
        let spot = match only {
            Only::InPlaceOf(old) => self.find_again(&held, place, hash, old),
            Only::Always | Only::New => self.find(place, hash, |_, key| under_lock(|| new.key() == key)),
        };
        match (&spot, only) {
            (Some(present), Only::New) => {
                self.pin(pin, present.entry);
                drop(held);
                return Insertion::Refused(new, present.entry);
            }
            (None, Only::InPlaceOf(_)) => {
                drop(held);
                return Insertion::Refused(new, NO_ENTRY);
            }
            _ => {}
        }
        let Some(entry) = new.take_slot(self, spot.is_some()) else {
            drop(held);
            return Insertion::NoRoom(new);
        };
        if let Some(old) = spot {
            self.pin(pin, entry);
            new.fill(self, entry);
            // Release (in `orders::set_entry`): publishes the new entry, and unlinks the old one.
            old.bucket.set_entry(old.slot, entry);
            return Insertion::Done { new: entry, old: Some(old.entry) };
        }
        let (array, index) = place;
        let Some((bucket, slot)) = array.room(index) else {
            drop(held);
            new.return_slot(self, entry);
            return Insertion::NoRoom(new);
        };
        self.pin(pin, entry);
        new.fill(self, entry);
        bucket.link_entry(slot, tag_of(hash), array.bits_of(hash), entry);
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
        Insertion::Done { new: entry, old: None }
    }

    /// Links a pair, as [`insert`](Inner::insert). Hands it back if there is no room.
    ///
    /// # Panics
    /// With the panic of a destructor, if the table was full; the pair is dropped then.
    #[inline(always)]
    pub(crate) fn put(
        &self,
        hash: u64,
        key: K,
        value: V,
        only: Only,
        pin: Option<&Hazard>,
    ) -> Result<Put<K, V>, (K, V)> {
        match Unlinked::new(self, key, value) {
            Ok(new) => self.put_of(self.insert(hash, new, only, pin), false),
            Err(pair) => self.put_into_full(hash, pair, only, pin),
        }
    }

    /// What [`put`](Inner::put) returns.
    #[inline(always)]
    fn put_of<N: Linkable<K, V, S>>(
        &self,
        insertion: Insertion<N>,
        is_late: bool,
    ) -> Result<Put<K, V>, (K, V)> {
        match insertion {
            Insertion::Done { new, old: None } => {
                let hint = self.hint_after(new, NO_ENTRY);
                Ok(Put::Inserted { new, hint: (!is_late).then_some(hint) })
            }
            Insertion::Done { new, old: Some(old) } => Ok(Put::Replaced { old: self.owned(old, new), new }),
            Insertion::Refused(unused, entry) => {
                let (key, value) = unused.into_pair();
                Ok(Put::Refused { entry, key, value })
            }
            Insertion::NoRoom(unused) => {
                self.count_refused();
                Err(unused.into_pair())
            }
        }
    }

    /// As [`put`](Inner::put) with the key's hash, and then [`poll`](Inner::poll).
    ///
    /// # Panics
    /// With the panic of a destructor. The pair was linked then, unless the table was full.
    #[inline(always)]
    pub(crate) fn put_and_poll(&self, key: K, value: V, only: Only) -> Result<Put<K, V>, (K, V)> {
        let hash = self.hash(&key);
        self.fetch(hash);
        let put = self.put(hash, key, value, only, None)?;
        if let Put::Inserted { hint: Some(hint), .. } = put {
            self.poll(hint);
        }
        Ok(put)
    }

    /// As [`put`](Inner::put), for a pair that found no free slot. Frees what no reader holds, if need be, without
    /// waiting.
    #[cold]
    #[inline(never)]
    fn put_into_full(
        &self,
        hash: u64,
        (key, value): (K, V),
        only: Only,
        pin: Option<&Hazard>,
    ) -> Result<Put<K, V>, (K, V)> {
        let (mut pressure, mut late) = (Pressure::default(), Late(Pair { key, value }));
        loop {
            self.hint_before_link(&late.0.key);
            late = match self.insert(hash, late, only, pin) {
                Insertion::NoRoom(refused) if pressure.makes_room(self) => refused,
                insertion => return self.put_of(insertion, true),
            }
        }
    }

    /// Counts a pair that found no room.
    #[cold]
    #[inline(never)]
    fn count_refused(&self) {
        // Relaxed: for statistics.
        let count = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
        self.tell_refused(count);
    }

    /// Of refused pairs, the first, the second, the fourth, the eighth and so on are events. Says nothing while others wait for a value
    /// that this thread makes, since they would wait for the subscriber, which may wait for them: `get_or_init` says it afterwards,
    /// and may then miss its number, or say that of another thread again.
    pub(super) fn tell_refused(&self, count: usize) {
        #[cfg(feature = "tracing")]
        if count.is_power_of_two() && !self.is_making() {
            let _foreign = Foreign::begin();
            let (domain, table, thread) = (self.places.core().name(), &*self.name, std::thread::current());
            let (entries, waiting) = (self.len(), self.places.pending());
            tracing::warn!(
                target: "stillpoint",
                domain,
                table,
                thread_id = stillpoint_sys::os::thread_id(),
                thread_name = thread.name(),
                entries,
                waiting,
                refused = count,
                "an entry for table `{table}` of domain `{domain}` was refused: {entries} entries, and {waiting} that wait to be freed"
            );
        }
        #[cfg(not(feature = "tracing"))]
        let _ = count;
    }

    /// Pins an entry that is linked, or about to be, under the lock. A thread that unlinks it takes the lock later, so
    /// this store happens before the unlinking.
    fn pin(&self, hazard: Option<&Hazard>, entry: u32) {
        if let Some(hazard) = hazard.filter(|_| !busted::is(Variant::EntryNotPinned)) {
            set_hazard(hazard, self.arena().pair(entry).as_ptr().cast());
        }
    }

    /// Unlinks the entry of a key.
    pub(crate) fn remove<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<Owned> {
        let hash = self.hash(key);
        self.fetch(hash);
        let mut held = self.lock(hash);
        let place = self.locate(&mut held, hash);
        let spot = self.find(place, hash, |_, found| under_lock(|| key.equivalent(found)))?;
        Some(self.unlink(held, &spot))
    }

    /// Unlinks an entry, whose key has this hash. `None` when it is not in the table any more.
    pub(crate) fn remove_entry(&self, hash: u64, entry: Pinned) -> Option<Owned> {
        let mut held = self.lock(hash);
        let place = self.locate(&mut held, hash);
        let spot = self.find_again(&held, place, hash, entry)?;
        Some(self.unlink(held, &spot))
    }

    #[inline(always)]
    fn unlink(&self, mut held: Held<'_>, spot: &Spot<'_>) -> Owned {
        spot.bucket.unlink_entry(spot.slot);
        held.count(-1);
        drop(held);
        self.owned(spot.entry, NO_ENTRY)
    }

    /// The slot that the entry is linked in: the one where it was found, unless the stripe is moving.
    #[inline(always)]
    fn find_again<'s>(
        &'s self,
        held: &Held<'s>,
        place: (&'s Array, usize),
        hash: u64,
        Pinned { entry, found }: Pinned,
    ) -> Option<Spot<'s>> {
        if let Some(Place { bucket, slot }) = found.filter(|_| held.array().next().is_none()) {
            // SAFETY: the bucket is pinned (see `Pinned::new`). If the index is still there, the bucket is in an
            // array that the table has not left (I1), whose buckets stay as long as the stripe is locked.
            let bucket = unsafe { bucket.as_ref() };
            if bucket.entry(slot) == entry {
                return Some(Spot { bucket, slot, entry });
            }
        }
        self.find(place, hash, |found, _| found == entry)
    }

    /// Unlinks and retires everything, stripe by stripe.
    ///
    /// # Panics
    /// With the first panic of a destructor, after everything has been unlinked; or with a panic of the user's `Hash`.
    pub(crate) fn clear(&self) {
        let (mut taken, mut first) = (Vec::new(), None);
        let (mut count, mut number) = (self.stripes.count(), 0);
        let (mut index_of_chain, mut chains) = (0, 0);
        while number < count {
            let mut held = self.stripes.lock(number);
            if self.stripes.count() > count {
                // A small table has become a large one: its chains are in another order.
                (count, number) = (self.stripes.count(), 0);
                (index_of_chain, chains) = (0, 0);
                continue;
            }
            // A growth may begin and end meanwhile; the same order also holds in a larger array. If the stripe has left
            // for a smaller array, entries that were not reached yet may be in a chain that was already passed.
            let now = held.array().len().max(held.newest().len());
            if now < chains {
                index_of_chain = number;
            }
            chains = now;
            if index_of_chain >= chains {
                number += 1;
                (index_of_chain, chains) = (number, 0);
                continue;
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
            taken.drain(..).for_each(|entry| self.retire(self.owned(entry, NO_ENTRY)));
            for _ in 0..polls {
                keeping(&mut first, || self.poll(hint()));
            }
            index_of_chain += count;
        }
        resume(first);
    }
}
