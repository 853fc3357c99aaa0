//! Maps as the collections of the harness `bustle`.

use std::marker::PhantomData;
use std::sync::Arc;

use bustle::{Collection, CollectionHandle};

use super::{Bound, Map, TableKey, TableValue};

/// A map as a collection.
pub struct Collected<K, V, M> {
    map: Arc<M>,
    pairs: PhantomData<fn(K, V)>,
}

/// The state of a thread of the harness during its run.
pub struct Handle<K, V, H> {
    map: H,
    pairs: PhantomData<fn(K, V)>,
}

/// A key as the harness makes it, from a random number.
#[derive(Debug)]
pub struct Key<K>(K);

impl<K: TableKey> From<u64> for Key<K> {
    fn from(number: u64) -> Self {
        Self(K::of(number))
    }
}

impl<K: TableKey, V: TableValue, M: Map<K, V>> Collection for Collected<K, V, M> {
    type Handle = Handle<K, V, M::Handle>;

    fn with_capacity(capacity: usize) -> Self {
        Self { map: Arc::new(M::with_capacity(capacity)), pairs: PhantomData }
    }

    fn pin(&self) -> Self::Handle {
        Handle { map: M::handle(&self.map), pairs: PhantomData }
    }
}

impl<K: TableKey, V: TableValue, H: Bound<K, V>> CollectionHandle for Handle<K, V, H> {
    type Key = Key<K>;

    fn get(&mut self, Key(key): &Key<K>) -> bool {
        self.map.get(key).is_some()
    }

    fn insert(&mut self, Key(key): &Key<K>) -> bool {
        self.map.insert(key.clone(), V::holding(0))
    }

    fn remove(&mut self, Key(key): &Key<K>) -> bool {
        self.map.remove(key)
    }

    fn update(&mut self, Key(key): &Key<K>) -> bool {
        self.map.update(key, |value| V::holding(value.number() + 1))
    }
}
