use std::fmt;
use std::hash::{BuildHasher, Hash};

use equivalent::Equivalent;
use stillpoint::rcu::{default_domain, pin};
use stillpoint::table::{Set, Table};

use crate::{room, Guard, HashSetRef, LocalGuard, RandomState};

/// A [`Set`] of the default domain.
pub struct HashSet<K, S = RandomState> {
    set: Set<K, S>,
}

impl<K: Send + Sync + 'static> HashSet<K> {
    /// An empty set.
    pub fn new() -> Self {
        Self { set: Set::new() }
    }

    /// An empty set with room for `capacity` keys.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { set: Set::with_capacity(capacity) }
    }
}

impl<K, S> HashSet<K, S> {
    /// A guard for the calling thread.
    pub fn guard(&self) -> LocalGuard<'static> {
        pin()
    }

    /// The set, with a guard.
    pub fn pin(&self) -> HashSetRef<'_, K, S> {
        HashSetRef::new(self, pin())
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.set.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }
}

/// As the original's methods.
#[allow(missing_docs)]
impl<K, S> HashSet<K, S>
where
    K: Hash + Eq,
    S: BuildHasher,
{
    pub fn get<'g, Q: Hash + Equivalent<K> + ?Sized>(
        &'g self,
        key: &Q,
        guard: &'g impl Guard,
    ) -> Option<&'g K> {
        Some(self.set.within(guard).get_key_value(key)?.0)
    }

    pub fn contains<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q, guard: &impl Guard) -> bool {
        self.set.within(guard).contains_key(key)
    }

    pub fn insert(&self, key: K, _: &impl Guard) -> bool {
        room(self.set.insert(key))
    }

    pub fn remove<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q, _: &impl Guard) -> bool {
        self.set.remove(key).is_some()
    }

    pub fn reserve(&self, additional: usize, _: &impl Guard) {
        room(self.set.reserve(additional));
    }

    pub fn clear(&self, _: &impl Guard) {
        self.set.clear();
    }

    pub fn retain(&self, mut keep: impl FnMut(&K) -> bool, guard: &impl Guard) {
        self.set.within(guard).retain(|key, ()| keep(key));
    }

    pub fn iter<'g>(&'g self, guard: &'g impl Guard) -> impl Iterator<Item = &'g K> {
        self.set.within(guard).keys()
    }
}

impl<K: Send + Sync + 'static, S: Default> Default for HashSet<K, S> {
    fn default() -> Self {
        Self { set: Set::default() }
    }
}

impl<K: Hash + Eq, S: BuildHasher> PartialEq for HashSet<K, S> {
    fn eq(&self, other: &Self) -> bool {
        let guard = pin();
        self.len() == other.len() && self.iter(&guard).all(|key| other.contains(key, &guard))
    }
}

impl<K: Hash + Eq, S: BuildHasher> Eq for HashSet<K, S> {}

impl<K, S> Clone for HashSet<K, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Clone,
{
    fn clone(&self) -> Self {
        let builder =
            Table::builder_in(default_domain()).capacity(self.len()).hasher(self.set.hasher().clone());
        let clone = Self { set: room(builder.build()).into() };
        let guard = pin();
        (&clone).extend(self.iter(&guard).cloned());
        clone
    }
}

impl<K: Hash + Eq + fmt::Debug, S: BuildHasher> fmt::Debug for HashSet<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.set.fmt(f)
    }
}

impl<K: Hash + Eq, S: BuildHasher> Extend<K> for &HashSet<K, S> {
    fn extend<I: IntoIterator<Item = K>>(&mut self, keys: I) {
        for key in keys {
            room(self.set.insert(key));
        }
    }
}

impl<'e, K: Hash + Eq + Copy + 'e, S: BuildHasher> Extend<&'e K> for &HashSet<K, S> {
    fn extend<I: IntoIterator<Item = &'e K>>(&mut self, keys: I) {
        self.extend(keys.into_iter().copied());
    }
}

impl<K: Hash + Eq + Send + Sync + 'static, S: BuildHasher + Default> FromIterator<K> for HashSet<K, S> {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        Self { set: keys.into_iter().collect() }
    }
}
