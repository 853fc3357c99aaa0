//! Maps of any keys and values, as one thread uses them, and the loops over them.

use std::fmt::Debug;
use std::hash::Hash;
use std::hint::black_box;
use std::sync::Arc;

use super::{TableContender, mixed};

/// A key of the experiment. It is made from a number.
pub trait TableKey: Clone + Eq + Hash + Debug + Send + Sync + 'static {
    /// The key of a number. Different numbers have different keys.
    fn of(number: u64) -> Self;
}

impl TableKey for u64 {
    fn of(number: u64) -> Self {
        // Neither the multiplication by an odd number nor the shift loses bits, so the keys differ.
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    }
}

/// 16 bytes, such as the addresses and ports of a flow.
impl TableKey for [u64; 2] {
    fn of(number: u64) -> Self {
        [u64::of(number), !number]
    }
}

/// 16 characters, in a separate allocation.
impl TableKey for String {
    fn of(number: u64) -> Self {
        format!("{:016x}", u64::of(number))
    }
}

/// A value of the experiment, which holds a number.
pub trait TableValue: Clone + Send + Sync + 'static {
    /// The value that holds a number.
    fn holding(number: u64) -> Self;

    /// The number that the value holds.
    fn number(&self) -> u64;
}

impl TableValue for u64 {
    fn holding(number: u64) -> Self {
        number
    }

    fn number(&self) -> u64 {
        *self
    }
}

/// 64 bytes.
impl TableValue for [u64; 8] {
    fn holding(number: u64) -> Self {
        [number; 8]
    }

    fn number(&self) -> u64 {
        self[0]
    }
}

/// A concurrent map.
pub trait Map<K: TableKey, V: TableValue>: Send + Sync + Sized + 'static {
    /// The state with which a thread uses any map.
    type Reader: 'static;
    /// This map, bound to a thread's reader.
    type Bound<'a>: Bound<K, V>;
    /// This map, with the state that a thread needs to use it.
    type Handle: Bound<K, V> + 'static;

    /// A map with room for `entries` entries; 0: an empty map that grows.
    fn with_capacity(entries: usize) -> Self;

    /// Makes a thread's reader. It is called once for each thread.
    fn reader(&self) -> Self::Reader;

    /// Binds the map to a thread's reader. It is called once for each run of operations.
    fn bind<'a>(&'a self, reader: &'a mut Self::Reader) -> Self::Bound<'a>;

    /// Makes a handle. It is called once for each thread that keeps its handle.
    fn handle(map: &Arc<Self>) -> Self::Handle;

    /// As [`TableContender::lookup_bursts`].
    fn lookup_bursts(&self, keys: &[K]) -> Option<u64> {
        let _ = keys;
        None
    }
}

/// A map as one thread uses it.
pub trait Bound<K, V> {
    /// The number in the value of a key.
    fn get(&mut self, key: &K) -> Option<u64>;

    /// Inserts a key. Returns whether it was new.
    fn insert(&mut self, key: K, value: V) -> bool;

    /// Removes a key. Returns whether it was there.
    fn remove(&mut self, key: &K) -> bool;

    /// Gives a key a new value. Returns whether the key was there.
    fn update(&mut self, key: &K, value: impl Fn(&V) -> V) -> bool;

    /// The number in the value of a key. The key is inserted if it is not there.
    fn get_or_insert(&mut self, key: K, value: V) -> u64;
}

/// The loops over a map.
pub struct Looped<M>(pub M);

impl<K: TableKey, M: Map<K, u64>> TableContender<K> for Looped<M> {
    fn insert_all(&self, keys: &[K]) -> usize {
        insert_all(&self.0, keys)
    }

    fn lookup(&self, keys: &[K]) -> u64 {
        bound(&self.0, |map| keys.iter().fold(0u64, |sum, key| sum.wrapping_add(map.get(key).unwrap_or(0))))
    }

    fn lookup_bursts(&self, keys: &[K]) -> Option<u64> {
        self.0.lookup_bursts(keys)
    }

    fn get_or_insert(&self, keys: &[K]) -> Option<u64> {
        let value = |map: &mut M::Bound<'_>, key: &K| map.get_or_insert(key.clone(), 0);
        Some(bound(&self.0, |map| keys.iter().fold(0u64, |sum, key| sum.wrapping_add(value(map, key)))))
    }

    fn update(&self, keys: &[K]) -> Option<u64> {
        // `black_box` hides from the compiler that the value stays the same.
        let update = |map: &mut M::Bound<'_>, key| u64::from(map.update(key, |value| black_box(*value)));
        Some(bound(&self.0, |map| keys.iter().map(|key| update(map, key)).sum()))
    }

    fn churn(&self, pairs: &[(K, u64)]) -> Option<u64> {
        Some(bound(&self.0, |map| pairs.iter().map(|pair| churn_one(map, pair)).sum()))
    }

    fn mix(&self, lookups: &[K], pairs: &[(K, u64)]) -> Option<u64> {
        let look_up = |map: &mut M::Bound<'_>, key: &K| map.get(key).unwrap_or(0);
        Some(bound(&self.0, |map| mixed(map, lookups, pairs, look_up, churn_one)))
    }
}

/// A run of operations of one thread, on a map that is bound to its reader.
#[inline(always)]
fn bound<K: TableKey, M: Map<K, u64>, R>(map: &M, run: impl FnOnce(&mut M::Bound<'_>) -> R) -> R {
    let mut reader = map.reader();
    run(&mut map.bind(&mut reader))
}

#[inline(always)]
fn churn_one<K: TableKey>(map: &mut impl Bound<K, u64>, (key, value): &(K, u64)) -> u64 {
    let there = map.remove(key);
    u64::from(there & map.insert(key.clone(), *value))
}

fn insert_all<K: TableKey>(map: &impl Map<K, u64>, keys: &[K]) -> usize {
    bound(map, |map| (0..).zip(keys).filter(|&(number, key)| map.insert(key.clone(), number)).count())
}

/// Another way to look up in a map.
pub struct ReadBy<K, M> {
    /// The map.
    pub map: M,
    /// As [`TableContender::lookup`].
    pub lookup: fn(&M, &[K]) -> u64,
}

impl<K: TableKey, M: Map<K, u64>> TableContender<K> for ReadBy<K, M> {
    fn insert_all(&self, keys: &[K]) -> usize {
        insert_all(&self.map, keys)
    }

    fn lookup(&self, keys: &[K]) -> u64 {
        (self.lookup)(&self.map, keys)
    }
}

#[cfg(test)]
mod tests {
    use bustle::{Mix, Workload};

    use super::*;
    use crate::table::{Collected, Dash, Locked, Papaya, Scc};

    fn follows_the_contract<K: TableKey, V: TableValue, M: Map<K, V>>() {
        let map = M::with_capacity(0);
        let mut reader = map.reader();
        let mut bound = map.bind(&mut reader);
        let (key, other) = (K::of(1), K::of(2));
        assert!(bound.get(&key).is_none() && !bound.remove(&key));
        assert!(!bound.update(&key, V::clone) && bound.get(&key).is_none(), "an update inserts nothing");
        assert!(bound.insert(key.clone(), V::holding(10)) && !bound.insert(key.clone(), V::holding(11)));
        assert_eq!(bound.get(&key), Some(11), "an insertion replaces");
        assert!(bound.update(&key, |value| V::holding(value.number() + 1)));
        assert_eq!(bound.get_or_insert(key.clone(), V::holding(0)), 12);
        assert_eq!(bound.get_or_insert(other.clone(), V::holding(20)), 20);
        assert!(bound.remove(&key) && bound.get(&key).is_none());
        assert_eq!(bound.get(&other), Some(20));
    }

    fn takes_part_in_the_harness<K: TableKey, V: TableValue, M: Map<K, V>>() {
        // The harness checks the result of each operation.
        let mut workload = Workload::new(2, Mix::uniform());
        workload.initial_capacity_log2(8).prefill_fraction(0.5).operations(2.0).seed([7; 32]);
        assert_eq!(workload.run_silently::<Collected<K, V, M>>().total_ops, 512);
    }

    #[test]
    fn every_map_follows_the_contract_with_every_kind_of_pairs() {
        fn with<K: TableKey, V: TableValue>() {
            follows_the_contract::<K, V, Papaya<K, V>>();
            follows_the_contract::<K, V, Dash<K, V>>();
            follows_the_contract::<K, V, Scc<K, V>>();
            follows_the_contract::<K, V, Locked<K, V>>();
            takes_part_in_the_harness::<K, V, Papaya<K, V>>();
            takes_part_in_the_harness::<K, V, Dash<K, V>>();
            takes_part_in_the_harness::<K, V, Scc<K, V>>();
            takes_part_in_the_harness::<K, V, Locked<K, V>>();
        }
        with::<u64, u64>();
        with::<String, [u64; 8]>();
    }

    #[test]
    fn the_loops_find_what_was_inserted() {
        let keys: Vec<u64> = (0..1000).map(TableKey::of).collect();
        let pairs: Vec<(u64, u64)> = keys.iter().copied().zip(0..100).collect();
        let sum = (0..1000).sum();
        let table = Looped(Papaya::<u64, u64>::with_capacity(0));
        assert_eq!((table.insert_all(&keys), table.insert_all(&keys)), (1000, 0));
        assert_eq!((table.churn(&pairs), table.mix(&keys, &pairs)), (Some(100), Some(100)));
        assert_eq!(table.update(&keys), Some(1000));
        assert_eq!((table.lookup(&keys), table.get_or_insert(&keys)), (sum, Some(sum)));
        let guarded = ReadBy { map: table.0, lookup: Papaya::lookup_guarded };
        assert_eq!((guarded.lookup(&keys), guarded.churn(&pairs)), (sum, None));
    }
}
