//! Writes that depend on the present entry. The entry is read without a lock, and changed under the lock only if it is
//! still linked. Otherwise the call begins again with the entry that is linked then. So the user's functions run
//! without a lock, and may do anything with the table.

use std::cell::Cell;
use std::hash::{BuildHasher, Hash};
use std::mem;
use std::ptr::NonNull;

use equivalent::Equivalent;

use super::arena::{Lens, Pair};
use super::array::View;
use super::bucket::NO_ENTRY;
use super::inits::MustNotWait;
use super::search::{search, Located, Pins};
use super::write::{Only, Pinned, Put};
use super::{Inner, Owned};
use crate::frames::{self, Kind};
use crate::own_writes::{OwnRuns, Watch};
use crate::rcu::engine::core::record::{Hazard, Slot};
use crate::rcu::Reader;

/// Returned by the function passed to [`Table::compute`](crate::table::Table::compute): what to do with the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation<V, T = ()> {
    /// Insert the value, or replace the present entry.
    Insert(V),
    /// Remove the entry, if there is one.
    Remove,
    /// Change nothing, and return the present entry, if there is one.
    Keep,
    /// Change nothing, and return this value to the caller.
    Abort(T),
}

impl Operation<()> {
    /// The function itself. A closure that is written here can be passed to [`Table::compute`](crate::table::Table::compute) from a
    /// variable: otherwise the compiler takes the lifetimes of its arguments for those of its first call. See the example there.
    pub fn deciding<K, V, T, F>(function: F) -> F
    where
        F: FnMut(Option<(&K, &V)>) -> Operation<V, T>,
    {
        function
    }
}

/// How a writer keeps an entry alive while it reads it.
pub(crate) trait Finder<K, V> {
    /// A value that keeps an entry alive until it is dropped.
    type Kept: Kept<K, V>;

    /// Looks a key up.
    fn find<Q: Equivalent<K> + ?Sized>(&mut self, hash: u64, key: &Q) -> Option<Self::Kept>;

    /// The hazard slot for an entry that is about to be linked, if one is needed to keep it.
    fn hazard(&self) -> Option<&Hazard>;

    /// Keeps an entry that was linked just now.
    ///
    /// # Safety
    /// It was linked in this table, after its address was put into [`hazard`](Finder::hazard), which was not called since.
    unsafe fn keep(&self, entry: u32) -> Self::Kept;

    /// Lets go of an entry that was replaced by the one in [`hazard`](Finder::hazard).
    #[inline(always)]
    fn let_go(kept: Self::Kept) {
        drop(kept);
    }
}

/// An entry that is not freed as long as this value exists.
pub(crate) trait Kept<K, V> {
    fn pair(&self) -> &Pair<K, V>;

    fn entry(&self) -> u32;

    /// # Safety
    /// As for [`Pinned::new`], of the bucket where the entry was found.
    unsafe fn pinned(&self) -> Pinned;
}

impl<K, V> Kept<K, V> for Located<'_, K, V> {
    #[inline(always)]
    fn pair(&self) -> &Pair<K, V> {
        self.get()
    }

    #[inline(always)]
    fn entry(&self) -> u32 {
        self.entry
    }

    #[inline(always)]
    unsafe fn pinned(&self) -> Pinned {
        // SAFETY: this value pins the entry, and the caller the bucket, by its promise.
        unsafe { Pinned::new(self.entry, self.found) }
    }
}

/// Finds entries, and pins them in the hazard slots of a bound reader.
pub(crate) struct Protecting<'p, 'a, K, V, S> {
    pub(crate) inner: &'a Inner<K, V, S>,
    pub(crate) pins: &'p mut Pins<'a>,
    pub(crate) lens: Lens<'a, K, V>,
}

impl<'a, K, V, S> Finder<K, V> for Protecting<'_, 'a, K, V, S> {
    type Kept = Located<'a, K, V>;

    #[inline(always)]
    fn find<Q: Equivalent<K> + ?Sized>(&mut self, hash: u64, key: &Q) -> Option<Self::Kept> {
        self.pins.search(self.inner, &self.lens, hash, key)
    }

    #[inline(always)]
    fn hazard(&self) -> Option<&Hazard> {
        Some(self.pins.slots.entry.hazard())
    }

    #[inline(always)]
    unsafe fn keep(&self, entry: u32) -> Self::Kept {
        // SAFETY: by the caller's promise, the slot was set under the lock, while the entry was linked or about to be
        // linked.
        unsafe { Located::new(self.lens, entry, self.pins.slots.entry) }
    }

    /// The slot is that of the new entry.
    #[inline(always)]
    fn let_go(kept: Self::Kept) {
        mem::forget(kept);
    }
}

/// Finds entries by a reader that others share, and pins each in a slot of its own.
pub(crate) struct Sharing<'a, K, V, S> {
    inner: &'a Inner<K, V, S>,
    reader: &'a Reader,
    /// For an entry that is about to be linked. Taken until then, so that no lookup of the user's `Eq` gets it.
    slot: Cell<Option<Slot<'a>>>,
}

impl<'a, K, V, S> Sharing<'a, K, V, S> {
    /// The reader is of the table's domain.
    #[inline(always)]
    pub(crate) fn new(inner: &'a Inner<K, V, S>, reader: &'a Reader) -> Self {
        Self { inner, reader, slot: Cell::new(None) }
    }
}

impl<K, V, S> Drop for Sharing<'_, K, V, S> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            // SAFETY: the slot belongs to this value, which stays on the thread of its reader.
            unsafe { slot.release() };
        }
    }
}

impl<'a, K, V, S> Finder<K, V> for Sharing<'a, K, V, S> {
    type Kept = Located<'a, K, V>;

    #[inline(always)]
    fn find<Q: Equivalent<K> + ?Sized>(&mut self, hash: u64, key: &Q) -> Option<Self::Kept> {
        self.inner.search_unbound(self.reader, hash, key)
    }

    #[inline(always)]
    fn hazard(&self) -> Option<&Hazard> {
        let slot = self.slot.take().unwrap_or_else(|| self.reader.further_hazard());
        self.slot.set(Some(slot));
        Some(slot.hazard())
    }

    #[inline(always)]
    unsafe fn keep(&self, entry: u32) -> Self::Kept {
        let slot = self.slot.take().expect("`hazard` has taken a slot");
        // SAFETY: by the caller's promise, the slot was set under the lock, while the entry was linked or about to be linked.
        unsafe { Located::new(self.inner.lens(), entry, slot) }
    }
}

/// Finds entries in a region.
pub(crate) struct InRegion<'g, K, V> {
    lens: Lens<'g, K, V>,
    view: View<'g>,
}

impl<'g, K, V> InRegion<'g, K, V> {
    /// # Safety
    /// The view is from [`Inner::view_in_region`], and the region lasts as long as this value and its results are used.
    pub(crate) unsafe fn new(lens: Lens<'g, K, V>, view: View<'g>) -> Self {
        Self { lens, view }
    }
}

/// An entry that a region keeps.
pub(crate) struct Seen<'g, K, V> {
    pair: &'g Pair<K, V>,
    entry: u32,
}

impl<'g, K, V> Seen<'g, K, V> {
    pub(crate) fn value(self) -> &'g V {
        &self.pair.value
    }

    pub(crate) fn key_value(self) -> (&'g K, &'g V) {
        self.lend()
    }

    pub(crate) fn lend(&self) -> (&'g K, &'g V) {
        (&self.pair.key, &self.pair.value)
    }
}

impl<K, V> Kept<K, V> for Seen<'_, K, V> {
    fn pair(&self) -> &Pair<K, V> {
        self.pair
    }

    fn entry(&self) -> u32 {
        self.entry
    }

    unsafe fn pinned(&self) -> Pinned {
        // SAFETY: the region pins the entry.
        unsafe { Pinned::new(self.entry, None) }
    }
}

impl<'g, K, V> Finder<K, V> for InRegion<'g, K, V> {
    type Kept = Seen<'g, K, V>;

    fn find<Q: Equivalent<K> + ?Sized>(&mut self, hash: u64, key: &Q) -> Option<Self::Kept> {
        // SAFETY: the caller of `new` promised that the view is of the region, which has not ended.
        let pair = unsafe { search(self.lens, self.view, hash, key) }?;
        Some(Seen { pair, entry: self.lens.arena().index_of(NonNull::from(pair)) })
    }

    fn hazard(&self) -> Option<&Hazard> {
        None
    }

    unsafe fn keep(&self, entry: u32) -> Self::Kept {
        // SAFETY: by the caller's promise, the entry was linked during the region, so it is alive until the region
        // ends.
        Seen { pair: unsafe { self.lens.pair(entry).as_ref() }, entry }
    }
}

/// What is in the table after a call that links an entry, and the [`hint`](super::hint) of the poll that should follow, if there is one.
type Linked<Kept, K, V> = (Found<Kept, K, V>, Option<usize>);

/// The result of [`Inner::get_or_insert`].
pub(crate) enum Found<E, K, V> {
    /// The key was not in the table; this is its new entry.
    Inserted(E),
    /// The present entry, the unused key, and the unused value if it was made.
    Present(E, K, Option<V>),
}

/// Why [`Inner::get_or_init`] has no entry.
pub(crate) enum NotMade<K, V> {
    NoRoom(K, V),
    MustNotWait(K),
}

/// The result of [`Inner::compute`].
pub(crate) enum Computed<E, T> {
    Inserted(E),
    Updated { old: Owned, new: E },
    Removed(Owned),
    Kept(Option<E>),
    Aborted(T),
}

/// The public call that [`Inner::compute`] is made for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deciding {
    Compute,
    /// The function for an absent key is called only once, so it may write what it likes.
    UpdateOrInsert,
}

impl Deciding {
    fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::UpdateOrInsert => "update_or_insert",
        }
    }
}

impl<K, V, S> Inner<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    /// The entry of a key, or a new one with the value that `value` makes. The pair is handed back if there is no room.
    #[inline(always)]
    pub(crate) fn get_or_insert<F: Finder<K, V>>(
        &self,
        finder: &mut F,
        key: K,
        value: impl FnOnce() -> V,
    ) -> Result<Found<F::Kept, K, V>, (K, V)> {
        let hash = self.hash(&key);
        if let Some(kept) = finder.find(hash, &key) {
            return Ok(Found::Present(kept, key, None));
        }
        self.link_new(finder, hash, key, value())
    }

    /// Links an entry, or keeps the one that has its key.
    #[inline(always)]
    fn link_new<F: Finder<K, V>>(
        &self,
        finder: &mut F,
        hash: u64,
        key: K,
        value: V,
    ) -> Result<Found<F::Kept, K, V>, (K, V)> {
        let (found, hint) = self.link_unpolled(finder, hash, key, value)?;
        if let Some(hint) = hint {
            self.poll(hint);
        }
        Ok(found)
    }

    /// As [`link_new`](Inner::link_new), but the caller polls, if there is a hint.
    #[inline(always)]
    fn link_unpolled<F: Finder<K, V>>(
        &self,
        finder: &mut F,
        hash: u64,
        key: K,
        value: V,
    ) -> Result<Linked<F::Kept, K, V>, (K, V)> {
        match self.put(hash, key, value, Only::New, finder.hazard())? {
            Put::Inserted { new, hint } => {
                // SAFETY: `put` has set the hazard slot to the entry's address, under the lock.
                let kept = unsafe { finder.keep(new) };
                Ok((Found::Inserted(kept), hint))
            }
            Put::Refused { entry, key, value } => {
                // SAFETY: `put` has set the hazard slot to the present entry's address, under the lock.
                let kept = unsafe { finder.keep(entry) };
                Ok((Found::Present(kept, key, Some(value)), None))
            }
            Put::Replaced { .. } => unreachable!("only a new key is inserted"),
        }
    }

    /// As [`get_or_insert`](Inner::get_or_insert), but if several threads call this for a key, one calls its function, and the others wait
    /// for it.
    pub(crate) fn get_or_init<F: Finder<K, V>>(
        &self,
        finder: &mut F,
        key: K,
        init: impl FnOnce() -> V,
    ) -> Result<F::Kept, NotMade<K, V>> {
        let hash = self.hash(&key);
        let making = loop {
            if let Some(kept) = finder.find(hash, &key) {
                return Ok(kept);
            }
            match self.inits.begin(hash, || self.may_wait()) {
                Ok(Some(making)) => break making,
                Ok(None) => {}
                Err(MustNotWait) => return Err(NotMade::MustNotWait(key)),
            }
        };
        let made = frames::within(Kind::Making, || {
            // Another thread may have made the value since the lookup.
            match finder.find(hash, &key) {
                Some(kept) => Ok((Found::Present(kept, key, None), None)),
                None => self.link_unpolled(finder, hash, key, init()),
            }
        });
        // Comes before destructors of what was not used, and of what is polled: these may wait for a thread that waits for this one.
        drop(making);
        match made {
            Ok((Found::Inserted(kept) | Found::Present(kept, ..), hint)) => {
                if let Some(hint) = hint {
                    self.poll(hint);
                }
                Ok(kept)
            }
            Err((key, value)) => {
                // Relaxed: for statistics.
                self.tell_refused(self.refused.load(std::sync::atomic::Ordering::Relaxed));
                Err(NotMade::NoRoom(key, value))
            }
        }
    }

    /// Whether the calling thread makes a value that others may wait for.
    pub(super) fn is_making(&self) -> bool {
        frames::of(Kind::Making).next().is_some()
    }

    /// Whether the calling thread may wait for another one that makes a value: see [`Inits`](super::inits::Inits).
    fn may_wait(&self) -> bool {
        !self.is_making() && !frames::is_foreign() && self.core().protocol.region_of_caller().is_none()
    }

    /// Replaces the value of a key with one made from the old value, and returns the old entry.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn update<F: Finder<K, V>, Q: Hash + Equivalent<K> + ?Sized>(
        &self,
        finder: &mut F,
        key: &Q,
        mut value: impl FnMut(&V) -> V,
    ) -> Result<Option<Owned>, (K, V)>
    where
        K: Clone,
    {
        let hash = self.hash(key);
        let mut own_runs = OwnRuns::default();
        while let Some(kept) = finder.find(hash, key) {
            let old = kept.pair();
            let watch = self.watch(kept.entry());
            let (key, value) = watch.run(|| (old.key.clone(), value(&old.value)));
            // SAFETY: the entry is pinned until the end of this iteration, and the array until the next search.
            let old = Only::InPlaceOf(unsafe { kept.pinned() });
            if let Put::Replaced { old, .. } = self.put(hash, key, value, old, None)? {
                return Ok(Some(old));
            }
            own_runs.count(&watch, None, "update");
        }
        Ok(None)
    }

    /// As [`update`](Inner::update), with a key that becomes that of the new entry. It is handed back if it is not in the table.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn update_owned<F: Finder<K, V>>(
        &self,
        finder: &mut F,
        mut key: K,
        mut value: impl FnMut(&V) -> V,
    ) -> Result<Result<Owned, K>, (K, V)> {
        let hash = self.hash(&key);
        let mut own_runs = OwnRuns::default();
        while let Some(kept) = finder.find(hash, &key) {
            let watch = self.watch(kept.entry());
            let new = watch.run(|| value(&kept.pair().value));
            // SAFETY: the entry is pinned until the end of this iteration, and the array until the next search.
            let old = Only::InPlaceOf(unsafe { kept.pinned() });
            key = match self.put(hash, key, new, old, None)? {
                Put::Replaced { old, .. } => return Ok(Ok(old)),
                Put::Refused { key, .. } => key,
                Put::Inserted { .. } => unreachable!("an entry is replaced"),
            };
            own_runs.count(&watch, None, "update_owned");
        }
        Ok(Err(key))
    }

    /// Unlinks the entry of a key if `condition` holds for it, and returns the entry. Otherwise keeps it.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn remove_if<F: Finder<K, V>, Q: Hash + Equivalent<K> + ?Sized>(
        &self,
        finder: &mut F,
        key: &Q,
        mut condition: impl FnMut(&K, &V) -> bool,
    ) -> Result<Option<Owned>, F::Kept> {
        let hash = self.hash(key);
        let mut own_runs = OwnRuns::default();
        loop {
            let Some(kept) = finder.find(hash, key) else { return Ok(None) };
            let pair = kept.pair();
            let watch = self.watch(kept.entry());
            if !watch.run(|| condition(&pair.key, &pair.value)) {
                return Err(kept);
            }
            // SAFETY: the entry is pinned until the end of this iteration, and the array until the next search.
            let removed = self.remove_entry(hash, unsafe { kept.pinned() });
            if removed.is_some() {
                return Ok(removed);
            }
            own_runs.count(&watch, None, "remove_if");
        }
    }

    /// For a function that is to decide about this entry.
    #[inline(always)]
    fn watch(&self, entry: u32) -> Watch {
        Watch::of(self.place(), entry as usize)
    }

    /// Calls `decide` with the present entry, and carries out the operation that it returns. If another thread changes
    /// the entry first, `decide` is called again, and also gets the value that it made before. The pair is handed back
    /// if there is no room.
    #[track_caller]
    pub(crate) fn compute<F: Finder<K, V>, T>(
        &self,
        finder: &mut F,
        mut key: K,
        mut decide: impl FnMut(Option<&F::Kept>, Option<V>) -> Operation<V, T>,
        of: Deciding,
    ) -> Result<Computed<F::Kept, T>, (K, V)> {
        let hash = self.hash(&key);
        let (mut unused, mut own_runs) = (None, OwnRuns::default());
        loop {
            let present = finder.find(hash, &key);
            let watch = match &present {
                Some(kept) => self.watch(kept.entry()),
                None if of == Deciding::UpdateOrInsert => self.watch(NO_ENTRY),
                // SAFETY: the key is of this table, and is not moved before `decide` returns.
                None => unsafe { Watch::of_absent(self.place(), &raw const key) },
            };
            let operation = watch.run(|| decide(present.as_ref(), unused.take()));
            let (late, now) = match (operation, present) {
                (Operation::Abort(with), _) => return Ok(Computed::Aborted(with)),
                (Operation::Keep, present) => return Ok(Computed::Kept(present)),
                (Operation::Remove, None) => return Ok(Computed::Kept(None)),
                (Operation::Remove, Some(kept)) => {
                    // SAFETY: the entry is pinned until the end of this iteration, and the array until the next search.
                    if let Some(old) = self.remove_entry(hash, unsafe { kept.pinned() }) {
                        return Ok(Computed::Removed(old));
                    }
                    own_runs.count(&watch, None, of.name());
                    continue;
                }
                (Operation::Insert(value), Some(kept)) => {
                    // SAFETY: the entry is pinned until the end of this iteration, and the array until the next search.
                    let old = Only::InPlaceOf(unsafe { kept.pinned() });
                    match self.put(hash, key, value, old, finder.hazard())? {
                        Put::Replaced { old, new } => {
                            // The caller owns the old entry.
                            F::let_go(kept);
                            // SAFETY: `put` has set the hazard slot to the new entry's address, under the lock.
                            return Ok(Computed::Updated { old, new: unsafe { finder.keep(new) } });
                        }
                        Put::Refused { key, value, .. } => ((key, Some(value)), None),
                        Put::Inserted { .. } => unreachable!("an entry is replaced"),
                    }
                }
                (Operation::Insert(value), None) => match self.link_new(finder, hash, key, value)? {
                    Found::Inserted(kept) => return Ok(Computed::Inserted(kept)),
                    // Dropped at once: the entry is looked up again.
                    Found::Present(kept, key, value) => ((key, value), Some(kept.entry() as usize)),
                },
            };
            own_runs.count(&watch, now, of.name());
            (key, unused) = late;
        }
    }

    /// As [`compute`](Inner::compute), with an update if there is an entry, and an insertion if not.
    #[track_caller]
    pub(crate) fn update_or_insert<F: Finder<K, V>>(
        &self,
        finder: &mut F,
        key: K,
        mut update: impl FnMut(&V) -> V,
        value: impl FnOnce() -> V,
    ) -> Result<F::Kept, (K, V)> {
        // `value` is called at most once. If another thread inserts an entry meanwhile, its result is kept, in case
        // that entry is removed again.
        let (mut value, mut made, mut was_absent) = (Some(value), None, false);
        let decide = |present: Option<&F::Kept>, unused| {
            if mem::replace(&mut was_absent, present.is_none()) {
                made = unused;
            }
            Operation::<V, ()>::Insert(match (present, made.take(), value.take()) {
                (Some(kept), left, function) => {
                    (made, value) = (left, function);
                    update(&kept.pair().value)
                }
                (None, Some(left), _) => left,
                (None, None, Some(function)) => function(),
                (None, None, None) => unreachable!("`compute` passes an unused value back"),
            })
        };
        match self.compute(finder, key, decide, Deciding::UpdateOrInsert)? {
            Computed::Inserted(kept) => Ok(kept),
            Computed::Updated { old, new } => {
                self.retire_and_poll(old);
                Ok(new)
            }
            Computed::Removed(_) | Computed::Kept(_) | Computed::Aborted(()) => {
                unreachable!("`decide` returns only insertions")
            }
        }
    }
}
