use std::marker::PhantomData;
use std::sync::Arc;

use super::engine::{Inner, Shape};
use super::error::OutOfMemory;
use super::table::Table;
use super::RandomState;
use crate::rcu::Domain;

/// Makes a [`Table`].
///
/// ```
/// use stillpoint::{rcu::Domain, table::Table};
///
/// let domain = Domain::new();
/// let sessions: Table<u32, String> = Table::builder(&domain).capacity(1_000).maximum(10_000).build()?;
/// assert!(sessions.capacity() >= 1_000);
/// # Ok::<(), stillpoint::table::OutOfMemory>(())
/// ```
#[derive(Debug, Clone)]
pub struct TableBuilder<K, V, S = RandomState> {
    domain: Domain,
    capacity: usize,
    maximum: Option<usize>,
    hasher: S,
    entries: PhantomData<fn(K, V)>,
}

impl<K, V> TableBuilder<K, V> {
    pub(super) fn new(domain: &Domain) -> Self {
        Self {
            domain: domain.clone(),
            capacity: 0,
            maximum: None,
            hasher: RandomState::default(),
            entries: PhantomData,
        }
    }
}

impl<K, V, S> TableBuilder<K, V, S> {
    /// Entries that the table takes without growing. Their memory is asked for at once, in huge pages where the system
    /// has some.
    pub fn capacity(mut self, entries: usize) -> Self {
        self.capacity = entries;
        self
    }

    /// The most entries, removed ones that readers still hold up included; at least 1. Without this call there is no
    /// limit but memory.
    pub fn maximum(mut self, entries: usize) -> Self {
        self.maximum = Some(entries.max(1));
        self
    }

    /// Another hasher. It has to distribute keys well in the lower bits and in the upper 16 bits of its result.
    pub fn hasher<T>(self, hasher: T) -> TableBuilder<K, V, T> {
        let Self { domain, capacity, maximum, entries, .. } = self;
        TableBuilder { domain, capacity, maximum, hasher, entries }
    }

    /// Makes the table.
    ///
    /// # Errors
    /// When there is no memory for the capacity.
    pub fn build(self) -> Result<Table<K, V, S>, OutOfMemory>
    where
        K: Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let shape = Shape { capacity: self.capacity, limit: self.maximum };
        let inner = Inner::new(Arc::clone(self.domain.core()), self.hasher, &shape);
        inner.map(Table::from_inner).ok_or(OutOfMemory { entries: self.capacity })
    }
}
