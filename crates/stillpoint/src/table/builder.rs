use std::marker::PhantomData;
use std::sync::Arc;

use super::engine::{Inner, Shape};
use super::error::OutOfMemory;
use super::removed::verify;
use super::table::Table;
use super::RandomState;
use crate::rcu::{Domain, RetireHandle};

/// Makes a [`Table`].
///
/// ```
/// use stillpoint::{rcu::Domain, table::Table};
///
/// let domain = Domain::new();
/// let sessions: Table<u32, String> = Table::builder_in(&domain).capacity(1_000).max_len(10_000).build()?;
/// assert!(sessions.capacity() >= 1_000);
///
/// let hasher = std::hash::RandomState::new(); // that of the standard library, as any other
/// let names: Table<String, u32, _> = Table::builder_in(&domain).hasher(hasher).build()?;
/// assert!(names.is_empty());
/// # Ok::<(), stillpoint::table::OutOfMemory>(())
/// ```
#[derive(Debug, Clone)]
pub struct TableBuilder<K, V, S = RandomState> {
    domain: Domain,
    capacity: usize,
    max_len: Option<usize>,
    hasher: S,
    handle: Option<RetireHandle>,
    entries: PhantomData<fn(K, V)>,
}

impl<K, V> TableBuilder<K, V> {
    pub(super) fn new(domain: &Domain) -> Self {
        Self {
            domain: domain.clone(),
            capacity: 0,
            max_len: None,
            hasher: RandomState::default(),
            handle: None,
            entries: PhantomData,
        }
    }
}

impl<K, V, S> TableBuilder<K, V, S> {
    /// For a table like another one, with room for as many entries as the other one has.
    pub(super) fn like(table: &Table<K, V, S>) -> Self
    where
        K: Send + Sync + 'static,
        V: Send + Sync + 'static,
        S: Clone,
    {
        let inner = table.inner();
        Self {
            domain: Domain::of(Arc::clone(inner.core())),
            capacity: table.len(),
            max_len: Some(inner.arena().max_len()),
            hasher: table.hasher().clone(),
            handle: inner.handle().cloned(),
            entries: PhantomData,
        }
    }

    /// Entries that the table takes without growing. Their memory is asked for at once, in huge pages where the system
    /// has some.
    pub fn capacity(mut self, entries: usize) -> Self {
        self.capacity = entries;
        self
    }

    /// The most entries, removed ones that readers still hold up included; at least 1. Without this call there is no
    /// limit but memory.
    ///
    /// Beside them there are 64 spare slots for replacements ([`Table::insert`] of a key that is there,
    /// [`TableReader::update`](super::TableReader::update)): the old entry keeps its slot until readers have passed. When
    /// 64 replaced ones wait for readers, a full table refuses the next replacement, too.
    pub fn max_len(mut self, entries: usize) -> Self {
        self.max_len = Some(entries.max(1));
        self
    }

    /// Another hasher. It has to distribute keys well in the lower bits and in the upper 16 bits of its result.
    pub fn hasher<T>(self, hasher: T) -> TableBuilder<K, V, T> {
        let Self { domain, capacity, max_len, handle, entries, .. } = self;
        TableBuilder { domain, capacity, max_len, hasher, handle, entries }
    }

    /// Removed entries go to a background reclaimer, so that no destructor runs on the calls of writers. What it has no
    /// room for, and what is removed after it is gone, is freed by writers as usual; old arrays always are.
    ///
    /// Entries that wait there count for the [limit](TableBuilder::max_len), and keep their memory when the table is
    /// dropped. The table counts as a retire handle until then.
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let domain = Domain::new();
    /// let mut background = domain.background();
    /// let table = Table::builder_in(&domain).attach(background.retire_handle()).build()?;
    /// std::thread::scope(|scope| {
    ///     scope.spawn(move || background.run());
    ///     table.insert("a", 1).unwrap();
    ///     table.remove("a");
    ///     drop(table); // the last retire handle: `run` returns when everything is freed
    /// });
    /// assert_eq!(domain.stats().freed, 1);
    /// # Ok::<(), stillpoint::table::OutOfMemory>(())
    /// ```
    ///
    /// # Panics
    /// If the reclaimer belongs to another domain.
    pub fn attach(mut self, handle: RetireHandle) -> Self {
        verify(self.domain.core(), handle.core(), "attached to");
        self.handle = Some(handle);
        self
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
        let shape = Shape { capacity: self.capacity, limit: self.max_len };
        let inner = Inner::new(Arc::clone(self.domain.core()), self.hasher, &shape, self.handle);
        inner.map(Table::from_inner).ok_or(OutOfMemory { entries: self.capacity })
    }
}
