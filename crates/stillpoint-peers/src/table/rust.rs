//! papaya, dashmap, scc; with the hasher that stillpoint's table has.

use foldhash::quality::RandomState;

use super::{TableContender, TableKey, mixed};

/// [`papaya::HashMap`], pinned for each lookup.
pub struct Papaya<K>(papaya::HashMap<K, u64, RandomState>);

/// [`papaya::HashMap`], pinned once for a whole run of lookups.
pub struct PapayaGuard<K>(papaya::HashMap<K, u64, RandomState>);

/// [`dashmap::DashMap`].
pub struct Dash<K>(dashmap::DashMap<K, u64, RandomState>);

/// [`scc::HashMap`].
pub struct Scc<K>(scc::HashMap<K, u64, RandomState>);

macro_rules! with_capacity {
    ($($name:ident of $map:ty),*) => {$(
        impl<K: TableKey> $name<K> {
            /// A table for so many entries; 0 to let it grow from nothing.
            pub fn with_capacity(entries: usize) -> Self {
                Self(<$map>::with_capacity_and_hasher(entries, RandomState::default()))
            }
        }
    )*};
}

with_capacity!(
    Papaya of papaya::HashMap<K, u64, RandomState>,
    PapayaGuard of papaya::HashMap<K, u64, RandomState>,
    Dash of dashmap::DashMap<K, u64, RandomState>,
    Scc of scc::HashMap<K, u64, RandomState>
);

impl<K: TableKey> TableContender<K> for Papaya<K> {
    fn name(&self) -> &'static str {
        "papaya"
    }

    fn insert(&self, key: K, value: u64) -> bool {
        self.0.pin().insert(key, value).is_none()
    }

    fn churn(&self, keys: &[(K, u64)]) -> u64 {
        let there = keys.iter().filter(|(key, value)| {
            let there = self.0.pin().remove(key).is_some();
            self.0.pin().insert(*key, *value);
            there
        });
        there.count() as u64
    }

    fn mix(&self, lookups: &[K], pairs: &[(K, u64)]) -> u64 {
        mixed(
            lookups,
            pairs,
            |key| self.0.pin().get(key).copied().unwrap_or(0),
            |pair| self.churn(std::slice::from_ref(pair)),
        )
    }

    fn lookup(&self, keys: &[K]) -> u64 {
        keys.iter().fold(0, |sum, key| sum.wrapping_add(self.0.pin().get(key).copied().unwrap_or(0)))
    }
}

impl<K: TableKey> TableContender<K> for PapayaGuard<K> {
    fn name(&self) -> &'static str {
        "papaya+guard"
    }

    fn note(&self) -> &'static str {
        "one guard for a run of lookups"
    }

    fn insert(&self, key: K, value: u64) -> bool {
        self.0.pin().insert(key, value).is_none()
    }

    fn churn(&self, _keys: &[(K, u64)]) -> u64 {
        0
    }

    fn mix(&self, _lookups: &[K], _pairs: &[(K, u64)]) -> u64 {
        0
    }

    fn lookup(&self, keys: &[K]) -> u64 {
        let map = self.0.pin();
        keys.iter().fold(0, |sum, key| sum.wrapping_add(map.get(key).copied().unwrap_or(0)))
    }

    fn has_own_writers(&self) -> bool {
        false
    }
}

impl<K: TableKey> TableContender<K> for Dash<K> {
    fn name(&self) -> &'static str {
        "dashmap"
    }

    fn insert(&self, key: K, value: u64) -> bool {
        self.0.insert(key, value).is_none()
    }

    fn churn(&self, keys: &[(K, u64)]) -> u64 {
        let there = keys.iter().filter(|(key, value)| {
            let there = self.0.remove(key).is_some();
            self.0.insert(*key, *value);
            there
        });
        there.count() as u64
    }

    fn mix(&self, lookups: &[K], pairs: &[(K, u64)]) -> u64 {
        mixed(
            lookups,
            pairs,
            |key| self.0.get(key).map_or(0, |value| *value),
            |pair| self.churn(std::slice::from_ref(pair)),
        )
    }

    fn lookup(&self, keys: &[K]) -> u64 {
        keys.iter().fold(0, |sum, key| sum.wrapping_add(self.0.get(key).map_or(0, |value| *value)))
    }
}

impl<K: TableKey> TableContender<K> for Scc<K> {
    fn name(&self) -> &'static str {
        "scc"
    }

    fn insert(&self, key: K, value: u64) -> bool {
        self.0.insert_sync(key, value).is_ok()
    }

    fn churn(&self, keys: &[(K, u64)]) -> u64 {
        let there = keys.iter().filter(|(key, value)| {
            let there = self.0.remove_sync(key).is_some();
            let _ = self.0.insert_sync(*key, *value);
            there
        });
        there.count() as u64
    }

    fn mix(&self, lookups: &[K], pairs: &[(K, u64)]) -> u64 {
        mixed(
            lookups,
            pairs,
            |key| self.0.read_sync(key, |_, value| *value).unwrap_or(0),
            |pair| self.churn(std::slice::from_ref(pair)),
        )
    }

    fn lookup(&self, keys: &[K]) -> u64 {
        keys.iter()
            .fold(0, |sum, key| sum.wrapping_add(self.0.read_sync(key, |_, value| *value).unwrap_or(0)))
    }
}
