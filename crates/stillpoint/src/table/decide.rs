//! Writes that look at the present entry and decide, by the reader of the calling thread.

use std::hash::{BuildHasher, Hash};

use equivalent::Equivalent;

use super::compute::{Compute, TryInsertError};
use super::engine::change::{Deciding, Found, Operation, Sharing};
use super::engine::search::Located;
use super::engine::Inner;
use super::error::{InitError, UpdateError};
use super::full::Full;
use super::methods::deciding;
use super::reader::Ref;
use super::removed::{Removed, Replaced};
use super::table::Table;
use crate::rcu::{default_domain, Reader};

/// A table as the calling thread's reader sees it.
struct Own<'a, K, V, S> {
    inner: &'a Inner<K, V, S>,
    reader: &'a Reader,
}

impl<'a, K, V, S> Own<'a, K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    #[inline(always)]
    fn finder(&self) -> (&'a Inner<K, V, S>, Sharing<'a, K, V, S>) {
        (self.inner, Sharing::new(self.inner, self.reader))
    }

    deciding!(self, [&self], 'a, Ref<'a, K, V> = Ref::new, Ref<'a, K, V> = Ref::new, (&K, &V) = Located::key_value);
}

/// Writes that look at the present entry and decide. Each protects the entry that it looks at, as [`get`](Table::get) does, and acts only
/// if that entry is still there. Otherwise it looks again. In a table of another domain than the [default
/// one](crate::rcu::default_domain), they panic: use the same methods of a [`TableReader`](super::TableReader).
impl<K, V, S> Table<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    #[inline(always)]
    #[track_caller]
    fn own(&self) -> Own<'_, K, V, S> {
        let reader = default_domain::reader();
        self.verify(reader.core());
        Own { inner: self.inner(), reader }
    }

    /// The entry of a key, inserted if there was none, and whether this call inserted it.
    ///
    /// # Errors
    /// When the table is full: the pair is handed back.
    ///
    /// # Panics
    /// As [`get`](Table::get) and [`insert`](Table::insert).
    ///
    /// ```
    /// use stillpoint::table::Table;
    ///
    /// let table: Table<&str, u64> = Table::new();
    /// let (entry, inserted) = table.get_or_insert("a", 1)?;
    /// assert_eq!((*entry, inserted), (1, true));
    /// # Ok::<(), stillpoint::table::Full<&str, u64>>(())
    /// ```
    #[inline]
    #[track_caller]
    pub fn get_or_insert(&self, key: K, value: V) -> Result<(Ref<'_, K, V>, bool), Full<K, V>> {
        self.own().get_or_insert(key, value)
    }

    /// As [`get_or_insert`](Table::get_or_insert), with the value that `value` returns. `value` is called only if the key is not in the
    /// table.
    ///
    /// If several threads call this at once, exactly one inserts. Each of them may have called its `value` before; unused values are
    /// dropped.
    ///
    /// # Errors
    /// When the table is full: the pair is handed back.
    ///
    /// # Panics
    /// As [`get_or_insert`](Table::get_or_insert).
    ///
    /// ```
    /// use stillpoint::table::Table;
    ///
    /// let table: Table<&str, u64> = Table::new();
    /// assert_eq!(*table.get_or_insert_with("a", || 1)?.0, 1);
    /// assert_eq!(*table.get_or_insert_with("a", || 2)?.0, 1);
    /// # Ok::<(), stillpoint::table::Full<&str, u64>>(())
    /// ```
    #[inline]
    #[track_caller]
    pub fn get_or_insert_with(
        &self,
        key: K,
        value: impl FnOnce() -> V,
    ) -> Result<(Ref<'_, K, V>, bool), Full<K, V>> {
        self.own().get_or_insert_with(key, value)
    }

    /// The entry of a key. If there is none, `init` makes its value: once for each entry that is linked, for a value that is expensive,
    /// or that must not be made twice. Other threads that call this for the same key wait until the value is there, or `init` has
    /// panicked; then one of them calls its own `init`.
    ///
    /// The other calls do not wait: an [`insert`](Table::insert) meanwhile takes effect, and its entry is the result. `init` runs without a
    /// lock, and may use the table. It must not wait for what a waiting thread holds: for an entry that it protects, or for another domain.
    /// Nor may destructors of entries: they may run during the writes of `init`, and when the table is full.
    /// Keys with equal hashes are taken for the same key by those who wait.
    ///
    /// # Errors
    /// When this call would have to wait, but must not, since the wait might never end: within the `init` of another call (so two
    /// `init` never wait for each other), within a destructor or a callback that the library runs, or within a region of the table's
    /// domain. The key is handed back. When the table is full: the pair is handed back.
    ///
    /// # Panics
    /// As [`get_or_insert`](Table::get_or_insert), and with a panic of `init`.
    ///
    /// ```
    /// use stillpoint::table::{error::InitError, Table};
    ///
    /// let pages: Table<&str, String> = Table::new();
    /// let page = pages.get_or_init("index", || {
    ///     let own = pages.get_or_init("index", String::new); // would wait for itself
    ///     assert!(matches!(own, Err(InitError::WouldDeadlock("index"))));
    ///     "<html>".to_owned()
    /// })?;
    /// assert_eq!(*page, "<html>");
    /// assert_eq!(*pages.get_or_init("index", || unreachable!())?, "<html>");
    /// # Ok::<(), InitError<&str, String>>(())
    /// ```
    #[track_caller]
    pub fn get_or_init(&self, key: K, init: impl FnOnce() -> V) -> Result<Ref<'_, K, V>, InitError<K, V>> {
        let (inner, mut finder) = self.own().finder();
        Ok(Ref::new(inner.get_or_init(&mut finder, key, init)?))
    }

    /// Inserts an entry if its key is not in the table.
    ///
    /// # Errors
    /// If the key is in the table: the pair is handed back, with the present entry. If the table is full: the pair is handed back.
    ///
    /// # Panics
    /// As [`get_or_insert`](Table::get_or_insert).
    ///
    /// ```
    /// use stillpoint::table::{Table, TryInsertError};
    ///
    /// let table: Table<&str, u64> = Table::new();
    /// assert_eq!(*table.try_insert("a", 1).unwrap(), 1);
    /// let Err(TryInsertError::Occupied { current, value, .. }) = table.try_insert("a", 2) else { panic!() };
    /// assert_eq!((*current, value), (1, 2));
    /// ```
    #[expect(clippy::type_complexity, reason = "each part matters to the caller; an alias would hide them")]
    #[track_caller]
    pub fn try_insert(&self, key: K, value: V) -> Result<Ref<'_, K, V>, TryInsertError<Ref<'_, K, V>, K, V>> {
        self.own().try_insert(key, value)
    }

    /// As [`try_insert`](Table::try_insert), with the value that `value` returns. `value` is called only if the first lookup does not
    /// find the key.
    ///
    /// # Errors
    /// As [`try_insert`](Table::try_insert); the value is handed back if it was made.
    ///
    /// # Panics
    /// As [`get_or_insert`](Table::get_or_insert).
    ///
    /// ```
    /// use stillpoint::table::{Table, TryInsertError};
    ///
    /// let table: Table<&str, u64> = Table::new();
    /// assert_eq!(*table.try_insert_with("a", || 1).unwrap(), 1);
    /// let again = table.try_insert_with("a", || unreachable!());
    /// assert!(matches!(again, Err(TryInsertError::Occupied { key: "a", value: None, .. })));
    /// ```
    #[expect(clippy::type_complexity, reason = "each part matters to the caller; an alias would hide them")]
    #[track_caller]
    pub fn try_insert_with(
        &self,
        key: K,
        value: impl FnOnce() -> V,
    ) -> Result<Ref<'_, K, V>, TryInsertError<Ref<'_, K, V>, K, V, Option<V>>> {
        self.own().try_insert_with(key, value)
    }

    /// Replaces the value of a key with one made from the old value, and returns the old entry; `None` when the key is not in the table.
    /// The key of the new entry is a clone: see [`update_owned`](Table::update_owned).
    ///
    /// Atomic: if another thread changes the entry meanwhile, `value` is called again with the new entry. `value` runs without a lock,
    /// and may use the table.
    ///
    /// # Errors
    /// When the table is full, and replaced entries that wait for readers take all its [spare
    /// slots](super::TableBuilder::max_len): the new pair is handed back.
    ///
    /// # Panics
    /// As [`get`](Table::get). If `value` changes this entry itself for the second time: the call would never end. The first time,
    /// `value` is called again. Then this call has changed nothing, and what `value` has written stays. If the table is full, also with
    /// the panic of the destructor of an entry that was removed before.
    ///
    /// ```
    /// use stillpoint::table::Table;
    ///
    /// let table: Table<&str, u64> = Table::new();
    /// table.insert("hits", 1)?;
    /// let old = table.update("hits", |hits| hits + 1)?;
    /// assert_eq!(old.as_deref(), Some(&1));
    /// assert_eq!(table.copied("hits"), Some(2));
    /// # Ok::<(), stillpoint::table::Full<&str, u64>>(())
    /// ```
    #[track_caller]
    #[doc(alias = "get_mut")]
    pub fn update<Q: Hash + Equivalent<K> + ?Sized>(
        &self,
        key: &Q,
        value: impl FnMut(&V) -> V,
    ) -> Replaced<'_, K, V, S>
    where
        K: Clone,
    {
        self.own().update(key, value)
    }

    /// As [`update`](Table::update), with a key that becomes that of the new entry: for keys that are not cloned, or that differ in what
    /// `Eq` does not compare.
    ///
    /// # Errors
    /// When the key is not in the table: it is handed back. When the table is full, as [`update`](Table::update).
    ///
    /// # Panics
    /// As [`update`](Table::update).
    ///
    /// ```
    /// use stillpoint::table::{error::UpdateError, Table};
    ///
    /// let hits = Table::from([(String::from("index"), 1)]);
    /// let old = hits.update_owned("index".into(), |hits| hits + 1)?;
    /// assert_eq!((*old, hits.copied("index")), (1, Some(2)));
    /// let absent = hits.update_owned("about".into(), |hits| hits + 1);
    /// assert!(matches!(absent, Err(UpdateError::Absent(key)) if key == "about"));
    /// # Ok::<(), UpdateError<String, u64>>(())
    /// ```
    #[track_caller]
    pub fn update_owned(
        &self,
        key: K,
        value: impl FnMut(&V) -> V,
    ) -> Result<Removed<'_, K, V, S>, UpdateError<K, V>> {
        self.own().update_owned(key, value)
    }

    /// Replaces the value of a key with one made from the old value, or inserts `value`. Returns the new entry, whose key is the one
    /// passed to this call.
    ///
    /// Atomic, as [`update`](Table::update).
    ///
    /// # Errors
    /// When the table is full: the new pair is handed back.
    ///
    /// # Panics
    /// As [`get_or_insert`](Table::get_or_insert), and if `update` changes the entry itself, as [`update`](Table::update).
    ///
    /// ```
    /// use stillpoint::table::Table;
    ///
    /// let table: Table<&str, u64> = Table::new();
    /// assert_eq!(*table.update_or_insert("hits", |hits| hits + 1, 1)?, 1);
    /// assert_eq!(*table.update_or_insert("hits", |hits| hits + 1, 1)?, 2);
    /// # Ok::<(), stillpoint::table::Full<&str, u64>>(())
    /// ```
    #[track_caller]
    #[doc(alias = "entry")]
    pub fn update_or_insert(
        &self,
        key: K,
        update: impl FnMut(&V) -> V,
        value: V,
    ) -> Result<Ref<'_, K, V>, Full<K, V>> {
        self.own().update_or_insert(key, update, value)
    }

    /// As [`update_or_insert`](Table::update_or_insert), with the value that `value` returns. `value` is called only if the key is not in
    /// the table.
    ///
    /// # Errors
    /// As [`update_or_insert`](Table::update_or_insert).
    ///
    /// # Panics
    /// As [`update_or_insert`](Table::update_or_insert).
    ///
    /// ```
    /// use stillpoint::table::Table;
    ///
    /// let table: Table<&str, Vec<u64>> = Table::new();
    /// let twice = |values: &Vec<u64>| [values.as_slice(), &[1]].concat();
    /// assert_eq!(table.update_or_insert_with("a", twice, Vec::new)?.len(), 0);
    /// assert_eq!(table.update_or_insert_with("a", twice, || unreachable!())?.len(), 1);
    /// # Ok::<(), stillpoint::table::Full<&str, Vec<u64>>>(())
    /// ```
    #[track_caller]
    pub fn update_or_insert_with(
        &self,
        key: K,
        update: impl FnMut(&V) -> V,
        value: impl FnOnce() -> V,
    ) -> Result<Ref<'_, K, V>, Full<K, V>> {
        self.own().update_or_insert_with(key, update, value)
    }

    /// Calls `function` with the entry of a key, or with `None` if there is none, and carries out the operation that it returns.
    ///
    /// Atomic: if another thread changes the entry meanwhile, `function` is called again with the new entry. It runs without a lock, on a
    /// protected entry: it may take long, and may use the table. If it panics, the table is unchanged. A closure that is kept in a
    /// variable is passed through [`Operation::deciding`] first. Under a guard, what it gets lives as long as the region.
    ///
    /// # Errors
    /// When the table is full: the new pair is handed back.
    ///
    /// # Panics
    /// As [`get_or_insert`](Table::get_or_insert), and if `function` changes the entry itself, as [`update`](Table::update).
    ///
    /// ```
    /// use stillpoint::table::{Compute, Operation, Table};
    ///
    /// let requests: Table<&str, u64> = Table::new();
    /// // The third request ends a session.
    /// let request = Operation::deciding(|present: Option<(&&str, &u64)>| match present {
    ///     None => Operation::Insert(1),
    ///     Some((_, 2)) => Operation::Remove,
    ///     Some((_, count)) => Operation::<u64>::Insert(count + 1),
    /// });
    /// assert!(matches!(requests.compute("session 7", request)?, Compute::Inserted(_)));
    /// assert!(matches!(requests.compute("session 7", request)?, Compute::Updated { .. }));
    /// assert!(matches!(requests.compute("session 7", request)?, Compute::Removed(_)));
    /// let refused = requests.compute("session 7", |_| Operation::Abort("not now"))?;
    /// assert!(matches!(refused, Compute::Aborted("not now")));
    /// # Ok::<(), stillpoint::table::Full<&str, u64>>(())
    /// ```
    #[expect(clippy::type_complexity, reason = "each part matters to the caller; an alias would hide them")]
    #[track_caller]
    pub fn compute<T>(
        &self,
        key: K,
        function: impl FnMut(Option<(&K, &V)>) -> Operation<V, T>,
    ) -> Result<Compute<Ref<'_, K, V>, Removed<'_, K, V, S>, T>, Full<K, V>> {
        self.own().compute(key, function)
    }

    /// Removes and returns the entry of a key if `condition` holds for it; `None` when the key is not in the table.
    ///
    /// Atomic: if another thread changes the entry meanwhile, `condition` is called again with the new entry.
    ///
    /// # Errors
    /// When `condition` does not hold: the entry, which stays in the table.
    ///
    /// # Panics
    /// As [`get`](Table::get). If `condition` changes the entry itself, as [`update`](Table::update).
    ///
    /// ```
    /// use stillpoint::table::Table;
    ///
    /// let table = Table::from([("a", 1)]);
    /// let kept = table.remove_if("a", |_, value| *value > 1).expect_err("1 is not above 1");
    /// assert_eq!(*kept, 1);
    /// let removed = table.remove_if("a", |_, value| *value == 1).expect("it is 1");
    /// assert_eq!(removed.as_deref(), Some(&1));
    /// assert!(matches!(table.remove_if("a", |_, _| true), Ok(None)));
    /// ```
    #[expect(clippy::type_complexity, reason = "each part matters to the caller; an alias would hide them")]
    #[track_caller]
    pub fn remove_if<Q: Hash + Equivalent<K> + ?Sized>(
        &self,
        key: &Q,
        condition: impl FnMut(&K, &V) -> bool,
    ) -> Result<Option<Removed<'_, K, V, S>>, Ref<'_, K, V>> {
        self.own().remove_if(key, condition)
    }
}
