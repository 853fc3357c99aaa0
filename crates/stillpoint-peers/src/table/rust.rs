//! papaya, dashmap, scc and std's map behind a lock, with the hasher of stillpoint's table. None has a handle for a thread.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use foldhash::quality::RandomState;

use super::{Bound, Map, TableKey, TableValue};

/// [`papaya::HashMap`], pinned at each call. If a guard were kept, nothing would be freed.
pub struct Papaya<K, V>(papaya::HashMap<K, V, RandomState>);

/// [`dashmap::DashMap`].
pub struct Dash<K, V>(dashmap::DashMap<K, V, RandomState>);

/// [`scc::HashMap`].
pub struct Scc<K, V>(scc::HashMap<K, V, RandomState>);

/// std's `RwLock<HashMap>`.
pub struct Locked<K, V>(RwLock<HashMap<K, V, RandomState>>);

/// A map that several threads own.
pub struct Shared<M>(Arc<M>);

impl<K, V, M> Bound<K, V> for Shared<M>
where
    for<'a> &'a M: Bound<K, V>,
{
    fn get(&mut self, key: &K) -> Option<u64> {
        (&*self.0).get(key)
    }

    fn insert(&mut self, key: K, value: V) -> bool {
        (&*self.0).insert(key, value)
    }

    fn remove(&mut self, key: &K) -> bool {
        (&*self.0).remove(key)
    }

    fn update(&mut self, key: &K, value: impl Fn(&V) -> V) -> bool {
        (&*self.0).update(key, value)
    }

    fn get_or_insert(&mut self, key: K, value: V) -> u64 {
        (&*self.0).get_or_insert(key, value)
    }
}

macro_rules! maps {
    ($($name:ident by $make:expr),*) => {$(
        impl<K: TableKey, V: TableValue> Map<K, V> for $name<K, V> {
            type Reader = ();
            type Bound<'a> = &'a Self;
            type Handle = Shared<Self>;

            fn with_capacity(entries: usize) -> Self {
                Self($make(entries, RandomState::default()))
            }

            fn reader(&self) {}

            fn bind<'a>(&'a self, (): &'a mut ()) -> &'a Self {
                self
            }

            fn handle(map: &Arc<Self>) -> Shared<Self> {
                Shared(Arc::clone(map))
            }
        }
    )*};
}

maps!(
    Papaya by papaya::HashMap::with_capacity_and_hasher,
    Dash by dashmap::DashMap::with_capacity_and_hasher,
    Scc by scc::HashMap::with_capacity_and_hasher,
    Locked by |entries, hasher| RwLock::new(HashMap::with_capacity_and_hasher(entries, hasher))
);

impl<K: TableKey, V: TableValue> Papaya<K, V> {
    /// The sum of the numbers in the values of keys, under one guard.
    pub fn lookup_guarded(&self, keys: &[K]) -> u64 {
        let map = self.0.pin();
        keys.iter().fold(0, |sum, key| sum.wrapping_add(map.get(key).map_or(0, V::number)))
    }
}

impl<K: TableKey, V: TableValue> Bound<K, V> for &Papaya<K, V> {
    fn get(&mut self, key: &K) -> Option<u64> {
        self.0.pin().get(key).map(V::number)
    }

    fn insert(&mut self, key: K, value: V) -> bool {
        self.0.pin().insert(key, value).is_none()
    }

    fn remove(&mut self, key: &K) -> bool {
        self.0.pin().remove(key).is_some()
    }

    fn update(&mut self, key: &K, value: impl Fn(&V) -> V) -> bool {
        self.0.pin().update(key.clone(), value).is_some()
    }

    fn get_or_insert(&mut self, key: K, value: V) -> u64 {
        self.0.pin().get_or_insert_with(key, || value).number()
    }
}

impl<K: TableKey, V: TableValue> Bound<K, V> for &Dash<K, V> {
    fn get(&mut self, key: &K) -> Option<u64> {
        self.0.get(key).map(|value| value.number())
    }

    fn insert(&mut self, key: K, value: V) -> bool {
        self.0.insert(key, value).is_none()
    }

    fn remove(&mut self, key: &K) -> bool {
        self.0.remove(key).is_some()
    }

    fn update(&mut self, key: &K, value: impl Fn(&V) -> V) -> bool {
        self.0.get_mut(key).map(|mut there| *there = value(&there)).is_some()
    }

    fn get_or_insert(&mut self, key: K, value: V) -> u64 {
        self.0.entry(key).or_insert(value).number()
    }
}

impl<K: TableKey, V: TableValue> Bound<K, V> for &Scc<K, V> {
    fn get(&mut self, key: &K) -> Option<u64> {
        self.0.read_sync(key, |_, value| value.number())
    }

    /// scc's insertion refuses a key that is in the map; the other maps replace the value.
    fn insert(&mut self, key: K, value: V) -> bool {
        let refused = self.0.insert_sync(key, value);
        refused.map_err(|(key, value)| self.0.upsert_sync(key, value)).is_ok()
    }

    fn remove(&mut self, key: &K) -> bool {
        self.0.remove_sync(key).is_some()
    }

    fn update(&mut self, key: &K, value: impl Fn(&V) -> V) -> bool {
        self.0.update_sync(key, |_, there| *there = value(there)).is_some()
    }

    fn get_or_insert(&mut self, key: K, value: V) -> u64 {
        self.0.entry_sync(key).or_insert(value).get().number()
    }
}

impl<K: TableKey, V: TableValue> Bound<K, V> for &Locked<K, V> {
    fn get(&mut self, key: &K) -> Option<u64> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(key).map(V::number)
    }

    fn insert(&mut self, key: K, value: V) -> bool {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(key, value).is_none()
    }

    fn remove(&mut self, key: &K) -> bool {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(key).is_some()
    }

    fn update(&mut self, key: &K, value: impl Fn(&V) -> V) -> bool {
        let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
        map.get_mut(key).map(|there| *there = value(there)).is_some()
    }

    fn get_or_insert(&mut self, key: K, value: V) -> u64 {
        self.0.write().unwrap_or_else(PoisonError::into_inner).entry(key).or_insert(value).number()
    }
}
