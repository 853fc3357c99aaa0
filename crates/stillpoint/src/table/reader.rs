use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::ops::Deref;

use super::engine::arena::Lens;
use super::engine::array::View;
use super::engine::search::{search, search_many, Held, Pins};
use super::engine::write::{Insertion, Only, Unlinked};
use super::engine::Inner;
use super::error::Full;
use super::iter::Iter;
use super::removed::{Removed, Replaced};
use super::RandomState;
use crate::fence::ReaderFence;
use crate::rcu::engine::core::record::Record;
use crate::rcu::engine::Core;
use crate::rcu::region::sealed::Sealed;
use crate::rcu::{Reader, Region};

/// A [`Table`](super::Table) as one reader sees it: made by [`Table::reader`](super::Table::reader).
///
/// It has the reader to itself, and hands out one entry, or one guard, at a time. As long as it exists it pins the
/// array of buckets that its last lookup saw, so that one which is never used again holds up the memory of an old
/// array after the table has grown: drop it when a thread stops reading for long.
pub struct TableReader<'a, K: Send + Sync + 'static, V: Send + Sync + 'static, S = RandomState> {
    inner: &'a Inner<K, V, S>,
    lens: Lens<'a, K, V>,
    pins: Pins<'a>,
    record: &'a Record,
    core: &'a Core,
    fence: ReaderFence,
    reader: PhantomData<&'a mut Reader>,
}

impl<'a, K: Send + Sync + 'static, V: Send + Sync + 'static, S> TableReader<'a, K, V, S> {
    /// The reader is of the table's domain.
    #[inline(always)]
    pub(super) fn new(inner: &'a Inner<K, V, S>, reader: &'a mut Reader) -> Self {
        let reader = &*reader;
        let (record, fence) = (reader.record(), reader.fence());
        // SAFETY: the domain was checked, this value has the reader to itself, and it borrows the table.
        let pins = unsafe { Pins::new(inner, record.own_hazards(), fence) };
        Self { inner, lens: inner.lens(), pins, record, core: reader.core(), fence, reader: PhantomData }
    }

    /// Begins a region in which the table is read. A preempted thread that holds the guard holds up everything retired
    /// since, as for [`Reader::pin`].
    ///
    /// ```
    /// # use stillpoint::{rcu::Domain, table::Table};
    /// # let domain = Domain::new();
    /// # let table: Table<u64, u64> = Table::new_in(&domain);
    /// # for key in 0..100 { table.insert(key, key * key).unwrap(); }
    /// # let mut reader = domain.reader();
    /// let mut lookup = table.reader(&mut reader);
    /// let guard = lookup.pin();
    /// assert_eq!((guard.get(&4), guard.get(&5)), (Some(&16), Some(&25)));
    /// assert_eq!(guard.get_many(&[6, 7, 700]), [Some(&36), Some(&49), None]);
    /// ```
    #[inline(always)]
    pub fn pin(&mut self) -> TableGuard<'_, K, V, S> {
        self.core.enter(self.fence, self.record);
        // SAFETY: the region has begun, and lasts as long as the guard, which the result borrows.
        let view = unsafe { self.inner.view_in_region() };
        TableGuard {
            inner: self.inner,
            lens: self.lens,
            view,
            record: self.record,
            core: self.core,
            reader: PhantomData,
        }
    }
}

impl<'a, K, V, S> TableReader<'a, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Looks a key up, and pins its entry: this one is not freed as long as the result exists. A preempted thread holds
    /// up this entry, and nothing else.
    ///
    /// Two cache misses in a large table: the bucket and the entry.
    #[inline(always)]
    pub fn get<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<Ref<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        let hash = self.inner.hash(key);
        self.pins.search(self.inner, self.lens, hash, key).map(Ref::new)
    }

    /// A copy of the value.
    #[inline(always)]
    pub fn copied<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Copy,
    {
        self.get(key).map(|entry| *entry)
    }

    /// Whether the key is in the table.
    #[inline(always)]
    pub fn contains<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// The entry of a key, inserted now if there is none, with the value that `value` returns.
    ///
    /// Exactly one of several threads inserts. Each may have called its function before: the values that were not
    /// needed are dropped.
    ///
    /// # Errors
    /// When the table is full: the pair is handed back.
    ///
    /// # Panics
    /// As [`Table::insert`](super::Table::insert).
    ///
    /// ```
    /// # use stillpoint::{rcu::Domain, table::Table};
    /// # let domain = Domain::new();
    /// # let table: Table<&str, u64> = Table::new_in(&domain);
    /// # let mut reader = domain.reader();
    /// let mut lookup = table.reader(&mut reader);
    /// assert_eq!(*lookup.get_or_insert_with("a", || 1)?, 1);
    /// assert_eq!(*lookup.get_or_insert_with("a", || 2)?, 1);
    /// # Ok::<(), stillpoint::table::Full<&str, u64>>(())
    /// ```
    pub fn get_or_insert_with(
        &mut self,
        key: K,
        value: impl FnOnce() -> V,
    ) -> Result<Ref<'_, K, V>, Full<K, V>> {
        let hash = self.inner.hash(&key);
        if let Some(held) = self.pins.search(self.inner, self.lens, hash, &key) {
            return Ok(Ref::new(held));
        }
        let hazard = self.pins.slots.entry;
        let new = Unlinked::new(self.inner, key, value())
            .or_else(|(key, value)| Unlinked::pressed(self.inner, key, value))
            .map_err(|(key, value)| Full(key, value))?;
        let fresh = new.entry;
        let held = |entry| {
            // SAFETY: `insert` has put the entry's address into the slot while it was linked, under the lock.
            Ok(Ref::new(unsafe { Held::new(self.lens, entry, hazard) }))
        };
        match self.inner.insert(hash, new, Only::New, Some(hazard)) {
            Insertion::Done(_) => {
                let entry = held(fresh);
                // As after every insertion: a table may grow by these calls alone.
                self.inner.poll();
                entry
            }
            Insertion::Present(unused, entry) => {
                drop(unused);
                held(entry)
            }
            Insertion::NoRoom(unused) => {
                let (key, value) = unused.into_pair();
                Err(Full(key, value))
            }
        }
    }

    /// Replaces the value of a key by one that is made from the old one, and returns the old entry; `None` when the key
    /// is not in the table.
    ///
    /// Atomic: when another thread changes the entry meanwhile, `value` is called again with what is there then.
    ///
    /// # Errors
    /// When the table is full, and so many replaced entries wait for readers that no slot is left beside the
    /// [limit](super::TableBuilder::max_len): the new pair is handed back.
    ///
    /// ```
    /// # use stillpoint::{rcu::Domain, table::Table};
    /// # let domain = Domain::new();
    /// # let table: Table<&str, u64> = Table::new_in(&domain);
    /// # let mut reader = domain.reader();
    /// table.insert("hits", 1)?;
    /// let mut lookup = table.reader(&mut reader);
    /// let old = lookup.update("hits", |hits| hits + 1)?;
    /// assert_eq!(old.as_deref(), Some(&1));
    /// assert_eq!(lookup.copied("hits"), Some(2));
    /// # Ok::<(), stillpoint::table::Full<&str, u64>>(())
    /// ```
    pub fn update<Q: Hash + Eq + ?Sized>(
        &mut self,
        key: &Q,
        mut value: impl FnMut(&V) -> V,
    ) -> Replaced<'a, K, V, S>
    where
        K: Borrow<Q> + Clone,
    {
        let hash = self.inner.hash(key);
        while let Some(held) = self.pins.search(self.inner, self.lens, hash, key) {
            let old = held.get();
            let new = Unlinked::replacing(self.inner, old.key.clone(), value(&old.value))
                .map_err(|(key, value)| Full(key, value))?;
            // SAFETY: the entry is pinned until the end of this turn, and the array until the next search.
            if unsafe { self.inner.replace_entry(hash, held.entry, held.found, new) }.is_ok() {
                return Ok(Some(Removed::new(self.inner, held.entry)));
            }
        }
        Ok(None)
    }

    /// Removes the entry of a key if `condition` holds for it, and returns it.
    ///
    /// Atomic: when another thread changes the entry meanwhile, `condition` is asked again about what is there then.
    ///
    /// ```
    /// # use stillpoint::{rcu::Domain, table::Table};
    /// # let domain = Domain::new();
    /// # let table: Table<&str, u64> = Table::new_in(&domain);
    /// # let mut reader = domain.reader();
    /// # table.insert("a", 1).unwrap();
    /// let mut lookup = table.reader(&mut reader);
    /// assert!(lookup.remove_if("a", |_, value| *value > 1).is_none());
    /// assert!(lookup.remove_if("a", |_, value| *value == 1).is_some());
    /// ```
    pub fn remove_if<Q: Hash + Eq + ?Sized>(
        &mut self,
        key: &Q,
        mut condition: impl FnMut(&K, &V) -> bool,
    ) -> Option<Removed<'a, K, V, S>>
    where
        K: Borrow<Q>,
    {
        let hash = self.inner.hash(key);
        loop {
            let held = self.pins.search(self.inner, self.lens, hash, key)?;
            let pair = held.get();
            if !condition(&pair.key, &pair.value) {
                return None;
            }
            // SAFETY: as in `update`.
            if unsafe { self.inner.remove_entry(hash, held.entry, held.found) } {
                return Some(Removed::new(self.inner, held.entry));
            }
        }
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> fmt::Debug for TableReader<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableReader").field("domain", &self.core.name()).finish_non_exhaustive()
    }
}

/// An entry that is not freed as long as this value exists: see [`TableReader::get`]. It dereferences to the value.
#[must_use = "the entry is protected until this value is dropped"]
pub struct Ref<'a, K, V> {
    held: Held<'a, K, V>,
}

impl<'a, K, V> Ref<'a, K, V> {
    #[inline(always)]
    fn new(held: Held<'a, K, V>) -> Self {
        Self { held }
    }

    /// The key.
    #[inline(always)]
    pub fn key(&self) -> &K {
        &self.held.get().key
    }

    /// The value.
    #[inline(always)]
    pub fn value(&self) -> &V {
        &self.held.get().value
    }
}

impl<K, V> Deref for Ref<'_, K, V> {
    type Target = V;

    #[inline(always)]
    fn deref(&self) -> &V {
        self.value()
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Ref<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ref").field("key", self.key()).field("value", self.value()).finish()
    }
}

/// A region in which a table is read: see [`TableReader::pin`]. It serves as a region for cells of the domain, too.
#[must_use = "the region ends when the guard is dropped"]
pub struct TableGuard<'g, K: Send + Sync + 'static, V: Send + Sync + 'static, S = RandomState> {
    inner: &'g Inner<K, V, S>,
    lens: Lens<'g, K, V>,
    view: View<'g>,
    record: &'g Record,
    core: &'g Core,
    reader: PhantomData<&'g mut Reader>,
}

impl<K, V, S> TableGuard<'_, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Looks a key up.
    #[inline(always)]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        // SAFETY: the view was taken in this region.
        unsafe { search(self.lens, self.view, self.inner.hash(key), key) }.map(|pair| &pair.value)
    }

    /// Looks a burst of keys up: their cache misses overlap. A burst of 32 takes a third to a half of the time of as
    /// many single lookups in a large table.
    #[inline]
    pub fn get_many<Q: Hash + Eq, const N: usize>(&self, keys: &[Q; N]) -> [Option<&V>; N]
    where
        K: Borrow<Q>,
    {
        let hashes = self.inner.hashes(keys);
        // SAFETY: as in `get`.
        unsafe { search_many(self.lens, self.view, hashes, |at| &keys[at]) }.map(|pair| Some(&pair?.value))
    }

    /// Every entry, in no order. See [`Table::iter`](super::Table::iter).
    pub fn iter(&self) -> Iter<'_, K, V, S> {
        // SAFETY: as in `get`; the result borrows the guard.
        unsafe { Iter::new(self.inner) }
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Region for TableGuard<'_, K, V, S> {}

// SAFETY: the record publishes the token of `pin` until the guard is dropped; the table reader has its reader to
// itself, and this guard the table reader, so that no other guard ends the region.
unsafe impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Sealed for TableGuard<'_, K, V, S> {
    #[inline(always)]
    fn core(&self) -> &Core {
        self.core
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Drop for TableGuard<'_, K, V, S> {
    #[inline(always)]
    fn drop(&mut self) {
        self.core.leave(self.record);
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> fmt::Debug for TableGuard<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableGuard").field("domain", &self.core.name()).finish_non_exhaustive()
    }
}
