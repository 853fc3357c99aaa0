//! Maps and sets together with a guard. Each method is that of the map or of the set, with this guard.

use std::hash::{BuildHasher, Hash};

use equivalent::Equivalent;

use crate::{Compute, Guard, HashMap, HashSet, Iter, LocalGuard, OccupiedError, Operation, RandomState};

/// A map with a guard: see [`HashMap::pin`].
pub struct HashMapRef<'map, K, V, S = RandomState, G = LocalGuard<'static>> {
    map: &'map HashMap<K, V, S>,
    guard: G,
}

impl<'map, K, V, S, G> HashMapRef<'map, K, V, S, G> {
    pub(crate) fn new(map: &'map HashMap<K, V, S>, guard: G) -> Self {
        Self { map, guard }
    }
}

#[allow(missing_docs)]
impl<K, V, S, G> HashMapRef<'_, K, V, S, G>
where
    K: Hash + Eq,
    S: BuildHasher,
    G: Guard,
{
    pub fn len(&self) -> usize {
        self.map.len()
    }

    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&V> {
        self.map.get(key, &self.guard)
    }

    pub fn contains_key<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        self.map.contains_key(key, &self.guard)
    }

    pub fn insert(&self, key: K, value: V) -> Option<&V> {
        self.map.insert(key, value, &self.guard)
    }

    pub fn try_insert(&self, key: K, value: V) -> Result<&V, OccupiedError<'_, V>> {
        self.map.try_insert(key, value, &self.guard)
    }

    pub fn get_or_insert(&self, key: K, value: V) -> &V {
        self.map.get_or_insert(key, value, &self.guard)
    }

    pub fn update(&self, key: K, update: impl Fn(&V) -> V) -> Option<&V> {
        self.map.update(key, update, &self.guard)
    }

    pub fn update_or_insert(&self, key: K, update: impl Fn(&V) -> V, value: V) -> &V {
        self.map.update_or_insert(key, update, value, &self.guard)
    }

    pub fn compute<'g, T>(
        &'g self,
        key: K,
        compute: impl FnMut(Option<(&'g K, &'g V)>) -> Operation<V, T>,
    ) -> Compute<'g, K, V, T> {
        self.map.compute(key, compute, &self.guard)
    }

    pub fn remove<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&V> {
        self.map.remove(key, &self.guard)
    }

    #[allow(clippy::type_complexity)]
    pub fn remove_if<Q: Hash + Equivalent<K> + ?Sized>(
        &self,
        key: &Q,
        condition: impl FnMut(&K, &V) -> bool,
    ) -> Result<Option<(&K, &V)>, (&K, &V)> {
        self.map.remove_if(key, condition, &self.guard)
    }

    pub fn clear(&self) {
        self.map.clear(&self.guard);
    }

    pub fn retain(&self, keep: impl FnMut(&K, &V) -> bool) {
        self.map.retain(keep, &self.guard);
    }

    pub fn iter(&self) -> Iter<'_, K, V, S> {
        self.map.iter(&self.guard)
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.map.values(&self.guard)
    }
}

impl<'s, K: Hash + Eq, V, S: BuildHasher, G: Guard> IntoIterator for &'s HashMapRef<'_, K, V, S, G> {
    type Item = (&'s K, &'s V);
    type IntoIter = Iter<'s, K, V, S>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// A set with a guard: see [`HashSet::pin`].
pub struct HashSetRef<'set, K, S = RandomState, G = LocalGuard<'static>> {
    set: &'set HashSet<K, S>,
    guard: G,
}

impl<'set, K, S, G> HashSetRef<'set, K, S, G> {
    pub(crate) fn new(set: &'set HashSet<K, S>, guard: G) -> Self {
        Self { set, guard }
    }
}

#[allow(missing_docs)]
impl<K, S, G> HashSetRef<'_, K, S, G>
where
    K: Hash + Eq,
    S: BuildHasher,
    G: Guard,
{
    pub fn len(&self) -> usize {
        self.set.len()
    }

    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&K> {
        self.set.get(key, &self.guard)
    }

    pub fn insert(&self, key: K) -> bool {
        self.set.insert(key, &self.guard)
    }

    pub fn remove<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        self.set.remove(key, &self.guard)
    }

    pub fn retain(&self, keep: impl FnMut(&K) -> bool) {
        self.set.retain(keep, &self.guard);
    }

    pub fn iter(&self) -> impl Iterator<Item = &K> {
        self.set.iter(&self.guard)
    }
}
