use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;

use equivalent::Equivalent;
use stillpoint::rcu::{default_domain, pin};
use stillpoint::table::{self, Table, TableGuard, TryInsertError};

use crate::{room, Guard, HashMapRef, Iter, LocalGuard, RandomState};

/// A [`Table`] of the default domain.
pub struct HashMap<K, V, S = RandomState> {
    table: Table<K, V, S>,
}

/// What the function passed to [`HashMap::compute`] wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation<V, T> {
    /// Insert the value, or replace the present one.
    Insert(V),
    /// Remove the present entry. Panics if there is none.
    Remove,
    /// Change nothing.
    Abort(T),
}

/// What [`HashMap::compute`] has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compute<'g, K, V, T> {
    /// The new entry.
    Inserted(&'g K, &'g V),
    /// An entry was replaced.
    Updated {
        /// The entry before.
        old: (&'g K, &'g V),
        /// The entry now.
        new: (&'g K, &'g V),
    },
    /// The entry that was removed.
    Removed(&'g K, &'g V),
    /// The value of [`Operation::Abort`].
    Aborted(T),
}

/// The key is in the map already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OccupiedError<'g, V> {
    /// The present value.
    pub current: &'g V,
    /// The value that was to be inserted.
    pub not_inserted: V,
}

/// How the original's map grows. Here growth is always incremental.
#[derive(Debug, Clone, Copy)]
pub enum ResizeMode {
    /// Each writer moves that many entries.
    Incremental(usize),
    /// Writers wait until everything has been moved.
    Blocking,
}

/// Makes a map.
#[derive(Debug)]
pub struct HashMapBuilder<K, V>(PhantomData<fn(K, V)>);

impl<K, V> HashMapBuilder<K, V> {
    /// Changes nothing.
    pub fn resize_mode(self, _: ResizeMode) -> Self {
        self
    }

    /// Makes the map.
    pub fn build(self) -> HashMap<K, V>
    where
        K: Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        HashMap::new()
    }
}

impl<K, V> HashMap<K, V> {
    /// An empty map.
    pub fn new() -> Self
    where
        K: Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        Self { table: Table::new() }
    }

    /// An empty map with room for `capacity` entries.
    pub fn with_capacity(capacity: usize) -> Self
    where
        K: Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        Self { table: Table::with_capacity(capacity) }
    }

    /// Makes a map.
    pub fn builder() -> HashMapBuilder<K, V> {
        HashMapBuilder(PhantomData)
    }
}

impl<K, V, S> HashMap<K, V, S> {
    /// A guard for the calling thread.
    pub fn guard(&self) -> LocalGuard<'static> {
        pin()
    }

    /// The map, with a guard.
    pub fn pin(&self) -> HashMapRef<'_, K, V, S> {
        HashMapRef::new(self, pin())
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}

/// As the original's methods.
#[allow(missing_docs)]
impl<K, V, S> HashMap<K, V, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    fn view<'g, G: Guard>(&'g self, guard: &'g G) -> TableGuard<'g, K, V, S, &'g G> {
        self.table.within(guard)
    }

    pub fn get<'g, Q: Hash + Equivalent<K> + ?Sized>(
        &'g self,
        key: &Q,
        guard: &'g impl Guard,
    ) -> Option<&'g V> {
        self.view(guard).get(key)
    }

    pub fn get_key_value<'g, Q>(&'g self, key: &Q, guard: &'g impl Guard) -> Option<(&'g K, &'g V)>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.view(guard).get_key_value(key)
    }

    pub fn contains_key<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q, guard: &impl Guard) -> bool {
        self.view(guard).contains_key(key)
    }

    pub fn insert<'g>(&'g self, key: K, value: V, guard: &'g impl Guard) -> Option<&'g V> {
        room(self.table.insert(key, value)).map(|old| old.within(guard).1)
    }

    pub fn try_insert<'g>(
        &'g self,
        key: K,
        value: V,
        guard: &'g impl Guard,
    ) -> Result<&'g V, OccupiedError<'g, V>> {
        match self.view(guard).try_insert(key, value) {
            Ok(value) => Ok(value),
            Err(TryInsertError::Occupied { current, value, .. }) => {
                Err(OccupiedError { current, not_inserted: value })
            }
            Err(TryInsertError::Full(full)) => panic!("{full}"),
        }
    }

    pub fn try_insert_with<'g>(
        &'g self,
        key: K,
        value: impl FnOnce() -> V,
        guard: &'g impl Guard,
    ) -> Result<&'g V, &'g V> {
        let (value, is_new) = room(self.view(guard).get_or_insert_with(key, value));
        if is_new {
            Ok(value)
        } else {
            Err(value)
        }
    }

    pub fn get_or_insert<'g>(&'g self, key: K, value: V, guard: &'g impl Guard) -> &'g V {
        room(self.view(guard).get_or_insert(key, value)).0
    }

    pub fn get_or_insert_with<'g>(
        &'g self,
        key: K,
        value: impl FnOnce() -> V,
        guard: &'g impl Guard,
    ) -> &'g V {
        room(self.view(guard).get_or_insert_with(key, value)).0
    }

    /// Returns the new value. The table's `update` returns the old entry, and clones the key; its `compute` does neither.
    pub fn update<'g>(&'g self, key: K, update: impl Fn(&V) -> V, guard: &'g impl Guard) -> Option<&'g V> {
        let update = |present: Option<(&K, &V)>| match present {
            Some((_, value)) => table::Operation::Insert(update(value)),
            None => table::Operation::<V>::Keep,
        };
        match room(self.view(guard).compute(key, update)) {
            table::Compute::Updated { new, .. } => Some(new.1),
            _ => None,
        }
    }

    pub fn update_or_insert<'g>(
        &'g self,
        key: K,
        update: impl Fn(&V) -> V,
        value: V,
        guard: &'g impl Guard,
    ) -> &'g V {
        room(self.view(guard).update_or_insert(key, update, value))
    }

    pub fn update_or_insert_with<'g>(
        &'g self,
        key: K,
        update: impl Fn(&V) -> V,
        value: impl FnOnce() -> V,
        guard: &'g impl Guard,
    ) -> &'g V {
        room(self.view(guard).update_or_insert_with(key, update, value))
    }

    pub fn compute<'g, T>(
        &'g self,
        key: K,
        mut compute: impl FnMut(Option<(&'g K, &'g V)>) -> Operation<V, T>,
        guard: &'g impl Guard,
    ) -> Compute<'g, K, V, T> {
        let function = |entry: Option<(&'g K, &'g V)>| match compute(entry) {
            Operation::Insert(value) => table::Operation::Insert(value),
            Operation::Remove if entry.is_none() => panic!("there is no entry to remove"),
            Operation::Remove => table::Operation::Remove,
            Operation::Abort(with) => table::Operation::Abort(with),
        };
        match room(self.view(guard).compute(key, function)) {
            table::Compute::Inserted((key, value)) => Compute::Inserted(key, value),
            table::Compute::Updated { old, new } => Compute::Updated { old: old.within(guard), new },
            table::Compute::Removed(old) => {
                let (key, value) = old.within(guard);
                Compute::Removed(key, value)
            }
            table::Compute::Kept(_) => unreachable!("the function never keeps"),
            table::Compute::Aborted(with) => Compute::Aborted(with),
        }
    }

    pub fn remove<'g, Q: Hash + Equivalent<K> + ?Sized>(
        &'g self,
        key: &Q,
        guard: &'g impl Guard,
    ) -> Option<&'g V> {
        self.table.remove(key).map(|old| old.within(guard).1)
    }

    pub fn remove_if<'g, Q: Hash + Equivalent<K> + ?Sized>(
        &'g self,
        key: &Q,
        condition: impl FnMut(&K, &V) -> bool,
        guard: &'g impl Guard,
    ) -> Result<Option<(&'g K, &'g V)>, (&'g K, &'g V)> {
        let removed = self.view(guard).remove_if(key, condition)?;
        Ok(removed.map(|old| old.within(guard)))
    }

    pub fn reserve(&self, additional: usize, _: &impl Guard) {
        room(self.table.reserve(additional));
    }

    pub fn clear(&self, _: &impl Guard) {
        self.table.clear();
    }

    pub fn retain(&self, keep: impl FnMut(&K, &V) -> bool, guard: &impl Guard) {
        self.view(guard).retain(keep);
    }

    pub fn iter<'g>(&'g self, guard: &'g impl Guard) -> Iter<'g, K, V, S> {
        self.view(guard).iter()
    }

    pub fn keys<'g>(&'g self, guard: &'g impl Guard) -> impl Iterator<Item = &'g K> {
        self.view(guard).keys()
    }

    pub fn values<'g>(&'g self, guard: &'g impl Guard) -> impl Iterator<Item = &'g V> {
        self.view(guard).values()
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S: Default> Default for HashMap<K, V, S> {
    fn default() -> Self {
        Self { table: Table::default() }
    }
}

impl<K: Hash + Eq, V: PartialEq, S: BuildHasher> PartialEq for HashMap<K, V, S> {
    fn eq(&self, other: &Self) -> bool {
        let guard = pin();
        self.len() == other.len()
            && self.iter(&guard).all(|(key, value)| other.get(key, &guard) == Some(value))
    }
}

impl<K: Hash + Eq, V: Eq, S: BuildHasher> Eq for HashMap<K, V, S> {}

impl<K, V, S> Clone for HashMap<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone,
{
    fn clone(&self) -> Self {
        let builder =
            Table::builder_in(default_domain()).capacity(self.len()).hasher(self.table.hasher().clone());
        let clone = Self { table: room(builder.build()) };
        let guard = pin();
        (&clone).extend(self.iter(&guard).map(|(key, value)| (key.clone(), value.clone())));
        clone
    }
}

impl<K: Hash + Eq + fmt::Debug, V: fmt::Debug, S: BuildHasher> fmt::Debug for HashMap<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table.fmt(f)
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> Extend<(K, V)> for &HashMap<K, V, S> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        (&self.table).extend(entries);
    }
}

impl<'e, K: Hash + Eq + Copy + 'e, V: Copy + 'e, S: BuildHasher> Extend<(&'e K, &'e V)>
    for &HashMap<K, V, S>
{
    fn extend<I: IntoIterator<Item = (&'e K, &'e V)>>(&mut self, entries: I) {
        self.extend(entries.into_iter().map(|(key, value)| (*key, *value)));
    }
}

impl<K, V, S> FromIterator<(K, V)> for HashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Default,
{
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Self { table: entries.into_iter().collect() }
    }
}
