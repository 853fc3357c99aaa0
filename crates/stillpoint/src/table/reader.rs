use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::ops::Deref;

use super::compute::{Compute, TryInsertError};
use super::engine::arena::{Lens, Pair};
use super::engine::change::{Deciding, Found, Operation, Protecting};
use super::engine::search::{Held, Home, Pins};
use super::engine::Inner;
use super::error::Full;
use super::guard::TableGuard;
use super::removed::{Removed, Replaced};
use super::table::Table;
use super::RandomState;
use crate::rcu::{default_domain, Reader};

/// A [`Table`](super::Table) as one reader sees it: made by [`Table::reader`](super::Table::reader), or by
/// [`TableHandle::reader`](super::TableHandle::reader).
///
/// It borrows the reader exclusively, and hands out one entry, or one guard, at a time. As long as it exists, it pins
/// the array of buckets that its last lookup saw. So after the table has grown, a `TableReader` that is no longer used
/// keeps alive the memory of an old array. Drop it when the thread stops reading for a long time.
pub struct TableReader<'a, K: Send + Sync + 'static, V: Send + Sync + 'static, S = RandomState> {
    inner: &'a Inner<K, V, S>,
    lens: Lens<'a, K, V>,
    pins: Pins<'a>,
    reader: &'a Reader,
    exclusive: PhantomData<&'a mut Reader>,
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Table<K, V, S> {
    /// Binds a reader to the table. The domain is checked here, not at each lookup.
    ///
    /// # Panics
    /// If `reader` belongs to another domain.
    #[inline(always)]
    #[track_caller]
    pub fn reader<'a>(&'a self, reader: &'a mut Reader) -> TableReader<'a, K, V, S> {
        self.verify(reader.core());
        TableReader::new(self.inner(), reader)
    }
}

/// Lookups that protect one entry. A thread that is preempted in such a call, or while it holds the [`Ref`], keeps this entry alive, and
/// during the call at most two arrays of buckets.
impl<K, V, S> Table<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Looks a key up, with the reader of the calling thread: the entry is not freed as long as the result exists. For tables of the
    /// [default domain](crate::rcu::default_domain); in others, see [`protect`](Table::protect).
    ///
    /// Never waits, and takes no lock. In a large table, it has two cache misses: the bucket and the entry. Any number of results may
    /// exist at a time. Each stays on its thread. Not for signal handlers: see [`try_pin`](crate::rcu::try_pin).
    ///
    /// # Panics
    /// If the table is of another domain; the message names both. With a panic of the user's `Hash` or `Eq`.
    ///
    /// ```
    /// use stillpoint::table::Table;
    ///
    /// let flows: Table<u64, String> = Table::new();
    /// flows.insert(7, "https".into())?;
    /// let flow = flows.get(&7).expect("inserted above");
    /// flows.remove(&7); // freed when `flow` is dropped
    /// assert_eq!(*flow, "https");
    /// assert!(flows.get(&7).is_none());
    /// # Ok::<(), stillpoint::table::Full<u64, String>>(())
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Ref<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        self.protect(default_domain::reader(), key)
    }

    /// As [`get`](Table::get), with this reader.
    ///
    /// # Panics
    /// If the reader is of another domain. With a panic of the user's `Hash` or `Eq`.
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let domain = Domain::new();
    /// let flows: Table<u64, &str> = Table::from_iter_in(&domain, [(1, "http"), (2, "dns")]);
    /// let reader = domain.reader(); // one for each thread, kept
    /// let (first, second) = (flows.protect(&reader, &1), flows.protect(&reader, &2));
    /// assert_eq!((first.as_deref(), second.as_deref()), (Some(&"http"), Some(&"dns")));
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn protect<'a, Q: Hash + Eq + ?Sized>(&'a self, reader: &'a Reader, key: &Q) -> Option<Ref<'a, K, V>>
    where
        K: Borrow<Q>,
    {
        self.verify(reader.core());
        let inner = self.inner();
        inner.search_unbound(reader, inner.hash(key), key).map(Ref::new)
    }

    /// Whether the key is in the table, by a lookup as [`get`](Table::get).
    ///
    /// # Panics
    /// As [`get`](Table::get).
    #[inline(always)]
    #[track_caller]
    pub fn contains_key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// A copy of the value, by a lookup as [`get`](Table::get).
    ///
    /// # Panics
    /// As [`get`](Table::get).
    ///
    /// ```
    /// let ports = stillpoint::table::Table::from_iter([("ssh", 22), ("dns", 53)]);
    /// assert_eq!((ports.copied("dns"), ports.copied("ntp")), (Some(53), None));
    /// assert!(ports.contains_key("ssh"));
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn copied<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Copy,
    {
        self.get(key).map(|entry| *entry)
    }

    /// A clone of the value, by a lookup as [`get`](Table::get).
    ///
    /// # Panics
    /// As [`get`](Table::get), and with a panic of `clone`.
    #[inline]
    #[track_caller]
    pub fn cloned<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.get(key).map(|entry| entry.value().clone())
    }
}

impl<'a, K: Send + Sync + 'static, V: Send + Sync + 'static, S> TableReader<'a, K, V, S> {
    /// The reader must be of the table's domain.
    #[inline(always)]
    pub(super) fn new(inner: &'a Inner<K, V, S>, reader: &'a mut Reader) -> Self {
        let reader = &*reader;
        // SAFETY: the domain was checked; this value borrows the reader exclusively, and the table.
        let pins = unsafe { Pins::new(inner, reader.record(), reader.fence()) };
        Self { inner, lens: inner.lens(), pins, reader, exclusive: PhantomData }
    }

    /// As [`new`](TableReader::new), with an array that stays pinned from one reader to the next.
    ///
    /// # Safety
    /// The reader is of the table's domain. As long as `home` exists, the reader is used for nothing else, and `home` only
    /// with this reader and this table.
    #[inline(always)]
    pub(super) unsafe fn resume(
        inner: &'a Inner<K, V, S>,
        reader: &'a mut Reader,
        home: &'a mut Home,
    ) -> Self {
        let reader = &*reader;
        // SAFETY: by the caller's promise, the reader is of the table's domain, and `home` belongs to both. This value
        // borrows all three.
        let pins = unsafe { Pins::resume(inner, reader.record(), reader.fence(), home) };
        Self { inner, lens: inner.lens(), pins, reader, exclusive: PhantomData }
    }

    /// Begins a region in which the table is read. A preempted thread that holds the guard keeps alive everything retired
    /// since, as for [`Reader::pin`].
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let domain = Domain::new();
    /// let table: Table<u64, u64> = Table::new_in(&domain);
    /// for key in 0..100 { table.insert(key, key * key).unwrap(); }
    /// let mut reader = domain.reader();
    /// let mut lookup = table.reader(&mut reader);
    /// let guard = lookup.pin();
    /// assert_eq!((guard.get(&4), guard.get(&5)), (Some(&16), Some(&25)));
    /// assert_eq!(guard.get_many(&[6, 7, 700]), [Some(&36), Some(&49), None]);
    /// ```
    #[inline(always)]
    pub fn pin(&mut self) -> TableGuard<'_, K, V, S> {
        // SAFETY: the reader is of the table's domain.
        unsafe { TableGuard::new(self.inner, self.reader.pin()) }
    }
}

impl<'a, K, V, S> TableReader<'a, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Looks a key up, and pins its entry: the entry is not freed as long as the result exists. A preempted thread
    /// keeps only this entry alive.
    ///
    /// In a large table, a lookup has two cache misses: the bucket and the entry.
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
    pub fn contains_key<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    #[inline(always)]
    fn finder(&mut self) -> (&'a Inner<K, V, S>, Protecting<'_, 'a, K, V>) {
        (self.inner, Protecting { pins: &mut self.pins, lens: self.lens })
    }

    /// The entry of a key, inserted if there was none, and whether this call inserted it.
    ///
    /// # Errors
    /// When the table is full: the pair is handed back.
    ///
    /// # Panics
    /// As [`Table::insert`](super::Table::insert).
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let domain = Domain::new();
    /// let table: Table<&str, u64> = Table::new_in(&domain);
    /// let mut reader = domain.reader();
    /// let mut lookup = table.reader(&mut reader);
    /// let (entry, inserted) = lookup.get_or_insert("a", 1)?;
    /// assert_eq!((*entry, inserted), (1, true));
    /// # Ok::<(), stillpoint::table::Full<&str, u64>>(())
    /// ```
    #[inline]
    pub fn get_or_insert(&mut self, key: K, value: V) -> Result<(Ref<'_, K, V>, bool), Full<K, V>> {
        self.get_or_insert_with(key, || value)
    }

    /// As [`get_or_insert`](TableReader::get_or_insert), with the value that `value` returns. `value` is called only if
    /// the key is not in the table.
    ///
    /// If several threads call this at once, exactly one inserts. Each of them may have called its `value` before;
    /// unused values are dropped.
    ///
    /// # Errors
    /// When the table is full: the pair is handed back.
    ///
    /// # Panics
    /// As [`Table::insert`](super::Table::insert).
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let domain = Domain::new();
    /// let table: Table<&str, u64> = Table::new_in(&domain);
    /// let mut reader = domain.reader();
    /// let mut lookup = table.reader(&mut reader);
    /// assert_eq!(*lookup.get_or_insert_with("a", || 1)?.0, 1);
    /// assert_eq!(*lookup.get_or_insert_with("a", || 2)?.0, 1);
    /// # Ok::<(), stillpoint::table::Full<&str, u64>>(())
    /// ```
    #[inline]
    pub fn get_or_insert_with(
        &mut self,
        key: K,
        value: impl FnOnce() -> V,
    ) -> Result<(Ref<'_, K, V>, bool), Full<K, V>> {
        let (inner, mut finder) = self.finder();
        Ok(match inner.get_or_insert(&mut finder, key, value)? {
            Found::Inserted(held) => (Ref::new(held), true),
            Found::Present(held, ..) => (Ref::new(held), false),
        })
    }

    /// Inserts an entry if its key is not in the table.
    ///
    /// # Errors
    /// If the key is in the table: the pair is handed back, with the present entry. If the table is full: the pair is
    /// handed back.
    ///
    /// # Panics
    /// As [`Table::insert`](super::Table::insert).
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::{Table, TryInsertError}};
    ///
    /// let domain = Domain::new();
    /// let table: Table<&str, u64> = Table::new_in(&domain);
    /// let mut reader = domain.reader();
    /// let mut lookup = table.reader(&mut reader);
    /// assert_eq!(*lookup.try_insert("a", 1).unwrap(), 1);
    /// let Err(TryInsertError::Occupied { current, value, .. }) = lookup.try_insert("a", 2) else { panic!() };
    /// assert_eq!((*current, value), (1, 2));
    /// ```
    #[expect(clippy::type_complexity, reason = "each part matters to the caller; an alias would hide them")]
    pub fn try_insert(
        &mut self,
        key: K,
        value: V,
    ) -> Result<Ref<'_, K, V>, TryInsertError<Ref<'_, K, V>, K, V>> {
        let mut value = Some(value);
        let inserted = self.try_insert_with(key, || value.take().expect("called once"));
        inserted.map_err(|error| error.with(value))
    }

    /// As [`try_insert`](TableReader::try_insert), with the value that `value` returns. `value` is called only if the
    /// first lookup does not find the key.
    ///
    /// # Errors
    /// As [`try_insert`](TableReader::try_insert); the value is handed back if it was made.
    ///
    /// # Panics
    /// As [`Table::insert`](super::Table::insert).
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::{Table, TryInsertError}};
    ///
    /// let domain = Domain::new();
    /// let table: Table<&str, u64> = Table::new_in(&domain);
    /// let mut reader = domain.reader();
    /// let mut lookup = table.reader(&mut reader);
    /// assert_eq!(*lookup.try_insert_with("a", || 1).unwrap(), 1);
    /// let again = lookup.try_insert_with("a", || unreachable!());
    /// assert!(matches!(again, Err(TryInsertError::Occupied { key: "a", value: None, .. })));
    /// ```
    #[expect(clippy::type_complexity, reason = "each part matters to the caller; an alias would hide them")]
    pub fn try_insert_with(
        &mut self,
        key: K,
        value: impl FnOnce() -> V,
    ) -> Result<Ref<'_, K, V>, TryInsertError<Ref<'_, K, V>, K, V, Option<V>>> {
        let (inner, mut finder) = self.finder();
        TryInsertError::check(inner.get_or_insert(&mut finder, key, value), Ref::new)
    }

    /// Replaces the value of a key with one made from the old value, and returns the old entry; `None` when the key is
    /// not in the table.
    ///
    /// Atomic: if another thread changes the entry meanwhile, `value` is called again with the new entry. `value` runs
    /// without a lock, and may use the table.
    ///
    /// # Errors
    /// When the table is full, and replaced entries that wait for readers take all its [spare
    /// slots](super::TableBuilder::max_len): the new pair is handed back.
    ///
    /// # Panics
    /// If `value` changes this entry itself for the second time: the call would never end. The first time, `value` is
    /// called again. Then this call has changed nothing, and what `value` has written stays. If the table is full, also
    /// with the panic of the destructor of an entry that was removed before.
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let domain = Domain::new();
    /// let table: Table<&str, u64> = Table::new_in(&domain);
    /// let mut reader = domain.reader();
    /// table.insert("hits", 1)?;
    /// let mut lookup = table.reader(&mut reader);
    /// let old = lookup.update("hits", |hits| hits + 1)?;
    /// assert_eq!(old.as_deref(), Some(&1));
    /// assert_eq!(lookup.copied("hits"), Some(2));
    /// # Ok::<(), stillpoint::table::Full<&str, u64>>(())
    /// ```
    #[track_caller]
    #[doc(alias = "get_mut")]
    pub fn update<Q: Hash + Eq + ?Sized>(
        &mut self,
        key: &Q,
        value: impl FnMut(&V) -> V,
    ) -> Replaced<'a, K, V, S>
    where
        K: Borrow<Q> + Clone,
    {
        let (inner, mut finder) = self.finder();
        let old = inner.update(&mut finder, key, value)?;
        Ok(old.map(|entry| Removed::new(inner, entry)))
    }

    /// Replaces the value of a key with one made from the old value, or inserts `value`. Returns the new entry, whose
    /// key is the one passed to this call.
    ///
    /// Atomic, as [`update`](TableReader::update).
    ///
    /// # Errors
    /// When the table is full: the new pair is handed back.
    ///
    /// # Panics
    /// As [`Table::insert`](super::Table::insert), and if `update` changes the entry itself, as
    /// [`update`](TableReader::update).
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let domain = Domain::new();
    /// let table: Table<&str, u64> = Table::new_in(&domain);
    /// let mut reader = domain.reader();
    /// let mut lookup = table.reader(&mut reader);
    /// assert_eq!(*lookup.update_or_insert("hits", |hits| hits + 1, 1)?, 1);
    /// assert_eq!(*lookup.update_or_insert("hits", |hits| hits + 1, 1)?, 2);
    /// # Ok::<(), stillpoint::table::Full<&str, u64>>(())
    /// ```
    #[track_caller]
    #[doc(alias = "entry")]
    pub fn update_or_insert(
        &mut self,
        key: K,
        update: impl FnMut(&V) -> V,
        value: V,
    ) -> Result<Ref<'_, K, V>, Full<K, V>> {
        self.update_or_insert_with(key, update, || value)
    }

    /// As [`update_or_insert`](TableReader::update_or_insert), with the value that `value` returns. `value` is called
    /// only if the key is not in the table.
    ///
    /// # Errors
    /// As [`update_or_insert`](TableReader::update_or_insert).
    ///
    /// # Panics
    /// As [`update_or_insert`](TableReader::update_or_insert).
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let domain = Domain::new();
    /// let table: Table<&str, Vec<u64>> = Table::new_in(&domain);
    /// let mut reader = domain.reader();
    /// let mut lookup = table.reader(&mut reader);
    /// let twice = |values: &Vec<u64>| [values.as_slice(), &[1]].concat();
    /// assert_eq!(lookup.update_or_insert_with("a", twice, Vec::new)?.len(), 0);
    /// assert_eq!(lookup.update_or_insert_with("a", twice, || unreachable!())?.len(), 1);
    /// # Ok::<(), stillpoint::table::Full<&str, Vec<u64>>>(())
    /// ```
    #[track_caller]
    pub fn update_or_insert_with(
        &mut self,
        key: K,
        update: impl FnMut(&V) -> V,
        value: impl FnOnce() -> V,
    ) -> Result<Ref<'_, K, V>, Full<K, V>> {
        let (inner, mut finder) = self.finder();
        Ok(Ref::new(inner.update_or_insert(&mut finder, key, update, value)?))
    }

    /// Calls `function` with the entry of a key, or with `None` if there is none, and carries out the operation that it
    /// returns.
    ///
    /// Atomic: if another thread changes the entry meanwhile, `function` is called again with the new entry. It runs
    /// without a lock, on a protected entry: it may take long, and may use the table. If it panics, the table is
    /// unchanged.
    ///
    /// # Errors
    /// When the table is full: the new pair is handed back.
    ///
    /// # Panics
    /// As [`Table::insert`](super::Table::insert), and if `function` changes the entry itself, as
    /// [`update`](TableReader::update).
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::{Compute, Operation, Table}};
    ///
    /// let domain = Domain::new();
    /// let requests: Table<&str, u64> = Table::new_in(&domain);
    /// let mut reader = domain.reader();
    /// let mut lookup = requests.reader(&mut reader);
    /// // The third request ends a session.
    /// let request = |present: Option<(&&str, &u64)>| match present {
    ///     None => Operation::Insert(1),
    ///     Some((_, 2)) => Operation::Remove,
    ///     Some((_, count)) => Operation::<u64>::Insert(count + 1),
    /// };
    /// assert!(matches!(lookup.compute("session 7", request)?, Compute::Inserted(_)));
    /// assert!(matches!(lookup.compute("session 7", request)?, Compute::Updated { .. }));
    /// assert!(matches!(lookup.compute("session 7", request)?, Compute::Removed(_)));
    /// let refused = lookup.compute("session 7", |_| Operation::Abort("not now"))?;
    /// assert!(matches!(refused, Compute::Aborted("not now")));
    /// # Ok::<(), stillpoint::table::Full<&str, u64>>(())
    /// ```
    #[expect(clippy::type_complexity, reason = "each part matters to the caller; an alias would hide them")]
    #[track_caller]
    pub fn compute<T>(
        &mut self,
        key: K,
        mut function: impl FnMut(Option<(&K, &V)>) -> Operation<V, T>,
    ) -> Result<Compute<Ref<'_, K, V>, Removed<'a, K, V, S>, T>, Full<K, V>> {
        let (inner, mut finder) = self.finder();
        let decide = |present: Option<&Pair<K, V>>, _| function(present.map(|pair| (&pair.key, &pair.value)));
        let computed = inner.compute(&mut finder, key, decide, Deciding::Compute)?;
        Ok(Compute::of(computed, Ref::new, |entry| Removed::new(inner, entry)))
    }

    /// Removes and returns the entry of a key if `condition` holds for it.
    ///
    /// Atomic: if another thread changes the entry meanwhile, `condition` is called again with the new entry.
    ///
    /// # Panics
    /// If `condition` changes the entry itself, as [`update`](TableReader::update).
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let domain = Domain::new();
    /// let table: Table<&str, u64> = Table::new_in(&domain);
    /// let mut reader = domain.reader();
    /// table.insert("a", 1).unwrap();
    /// let mut lookup = table.reader(&mut reader);
    /// assert!(lookup.remove_if("a", |_, value| *value > 1).is_none());
    /// assert!(lookup.remove_if("a", |_, value| *value == 1).is_some());
    /// ```
    #[track_caller]
    pub fn remove_if<Q: Hash + Eq + ?Sized>(
        &mut self,
        key: &Q,
        condition: impl FnMut(&K, &V) -> bool,
    ) -> Option<Removed<'a, K, V, S>>
    where
        K: Borrow<Q>,
    {
        let (inner, mut finder) = self.finder();
        let entry = inner.remove_if(&mut finder, key, condition)?;
        Some(Removed::new(inner, entry))
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> fmt::Debug for TableReader<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableReader").field("domain", &self.reader.core().name()).finish_non_exhaustive()
    }
}

/// An entry that is not freed as long as this value exists: see [`Table::get`]. It dereferences to the value.
///
/// ```
/// use stillpoint::table::Table;
///
/// let flows: Table<u64, &str> = Table::new();
/// flows.insert(7, "https")?;
/// let flow = flows.get(&7).expect("inserted above");
/// flows.remove(&7); // freed when `flow` is dropped
/// assert_eq!((flow.key(), flow.value()), (&7, &"https"));
/// assert_eq!(*flow, "https");
/// # Ok::<(), stillpoint::table::Full<u64, &str>>(())
/// ```
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
