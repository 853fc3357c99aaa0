//! Maps as the collections of `bustle`, a harness that others have written.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use bustle::{Collection, CollectionHandle};

use super::{Bound, Map, TableKey, TableValue};

/// A map as a collection.
pub struct Collected<K, V, M> {
    map: Arc<M>,
    pairs: PhantomData<fn(K, V)>,
}

/// What a thread of the harness has for the whole of its run: the map, and its own reader, bound to each other.
pub struct Handle<K: TableKey, V: TableValue, M: Map<K, V>> {
    /// Borrows what the other two fields keep.
    bound: ManuallyDrop<M::Bound<'static>>,
    /// From `Box::into_raw`.
    reader: NonNull<M::Reader>,
    _map: Arc<M>,
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
    type Handle = Handle<K, V, M>;

    fn with_capacity(capacity: usize) -> Self {
        Self { map: Arc::new(M::with_capacity(capacity)), pairs: PhantomData }
    }

    fn pin(&self) -> Self::Handle {
        let map = Arc::clone(&self.map);
        let reader = NonNull::from(Box::leak(Box::new(map.reader())));
        // SAFETY: the handle keeps the map, at one address, and drops what borrows it first.
        let kept: &'static M = unsafe { &*Arc::as_ptr(&map) };
        // SAFETY: nothing else refers to the reader, which is freed after what borrows it.
        let bound = kept.bind(unsafe { &mut *reader.as_ptr() });
        Handle { bound: ManuallyDrop::new(bound), reader, _map: map }
    }
}

impl<K: TableKey, V: TableValue, M: Map<K, V>> Drop for Handle<K, V, M> {
    fn drop(&mut self) {
        // SAFETY: dropped here only, before what it borrows.
        unsafe { ManuallyDrop::drop(&mut self.bound) };
        // SAFETY: from a box, and nothing refers to it any more.
        drop(unsafe { Box::from_raw(self.reader.as_ptr()) });
    }
}

impl<K: TableKey, V: TableValue, M: Map<K, V>> CollectionHandle for Handle<K, V, M> {
    type Key = Key<K>;

    fn get(&mut self, Key(key): &Key<K>) -> bool {
        self.bound.get(key).is_some()
    }

    fn insert(&mut self, Key(key): &Key<K>) -> bool {
        self.bound.insert(key.clone(), V::holding(0))
    }

    fn remove(&mut self, Key(key): &Key<K>) -> bool {
        self.bound.remove(key)
    }

    fn update(&mut self, Key(key): &Key<K>) -> bool {
        self.bound.update(key, |value| V::holding(value.number() + 1))
    }
}
