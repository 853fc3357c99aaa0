use std::marker::PhantomData;
use std::sync::Arc;

use super::engine::store::Store;
use super::engine::{Inner, Shape};
use super::foreign::verify_reclaimer;
use super::full::OutOfMemory;
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
/// let hasher = std::hash::RandomState::new(); // the standard library's; any other hasher works, too
/// let names: Table<String, u32, _> = Table::builder_in(&domain).hasher(hasher).build()?;
/// assert!(names.is_empty());
/// # Ok::<(), stillpoint::table::OutOfMemory>(())
/// ```
#[derive(Debug, Clone)]
pub struct TableBuilder<K, V, S = RandomState> {
    domain: Domain,
    name: String,
    capacity: usize,
    max_len: Option<usize>,
    hasher: S,
    mixes: bool,
    handle: Option<RetireHandle>,
    entries: PhantomData<fn(K, V)>,
}

impl<K, V> Table<K, V> {
    /// As [`new_in`](Table::new_in), with a choice of capacity, limit, hasher and background reclaimer.
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let table: Table<u32, String> = Table::builder_in(&Domain::new()).max_len(10_000).build()?;
    /// # Ok::<(), stillpoint::table::OutOfMemory>(())
    /// ```
    pub fn builder_in(domain: &Domain) -> TableBuilder<K, V> {
        TableBuilder {
            domain: domain.clone(),
            name: String::new(),
            capacity: 0,
            max_len: None,
            hasher: RandomState::default(),
            mixes: true,
            handle: None,
            entries: PhantomData,
        }
    }
}

impl<K, V, S> TableBuilder<K, V, S> {
    /// A name for [`Table::name`], and for the events of the feature `tracing`. By default, it is empty.
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let flows: Table<u32, String> = Table::builder_in(&Domain::new()).name("flows").build()?;
    /// assert_eq!(flows.name(), "flows");
    /// # Ok::<(), stillpoint::table::OutOfMemory>(())
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Entries that the table takes without growing. Their memory is allocated by [`build`](TableBuilder::build), in
    /// huge pages where the system has some. Never more than [`max_len`](TableBuilder::max_len) needs is allocated.
    pub fn capacity(mut self, entries: usize) -> Self {
        self.capacity = entries;
        self
    }

    /// The most entries, including removed ones that readers still keep alive; at least 1. By default, memory is the only
    /// limit.
    ///
    /// A table has 64 more slots, which are only for replacements ([`Table::insert`] of a key that is in the table,
    /// [`TableReader::update`](super::TableReader::update)). A replacement needs another slot, because the old entry
    /// keeps its own until no reader can hold it. When 64 replaced entries wait for readers, a full table refuses the
    /// next replacement, too.
    pub fn max_len(mut self, entries: usize) -> Self {
        self.max_len = Some(entries.max(1));
        self
    }

    /// The hasher, in place of [`RandomState`]. It may be weak, even the identity: the table mixes its hashes by one
    /// multiplication. Different keys should still have different hashes, since keys with one hash share a chain.
    pub fn hasher<T>(self, hasher: T) -> TableBuilder<K, V, T> {
        let Self { domain, name, capacity, max_len, mixes, handle, entries, .. } = self;
        TableBuilder { domain, name, capacity, max_len, hasher, mixes, handle, entries }
    }

    /// Uses the results of the [hasher](TableBuilder::hasher) as they are, without the multiplication: for a hasher whose
    /// lower bits and upper 16 bits are well distributed. The hashes of [`RandomState`] are never mixed.
    ///
    /// ```
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let hasher = std::hash::RandomState::new(); // SipHash: every bit is as good as any other
    /// let names: Table<String, u32, _> = Table::builder_in(&Domain::new()).hasher(hasher).unmixed().build()?;
    /// assert!(names.is_empty());
    /// # Ok::<(), stillpoint::table::OutOfMemory>(())
    /// ```
    pub fn unmixed(mut self) -> Self {
        self.mixes = false;
        self
    }

    /// Sends removed entries to a background reclaimer, which frees them in place of the writers. Writers still free
    /// the old arrays, the entries that the reclaimer has no room for, and the entries that are removed after it is
    /// gone.
    ///
    /// An entry that waits there counts towards the [limit](TableBuilder::max_len). It also keeps the memory of all the
    /// table's entries allocated, even after the table is dropped. The table counts as a retire handle until it is
    /// dropped.
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
    #[track_caller]
    pub fn attach(mut self, handle: RetireHandle) -> Self {
        verify_reclaimer(self.domain.core(), handle.core(), "attached to");
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
        let (capacity, limit, mixes) = (self.capacity, self.max_len, self.mixes);
        let shape = Shape { name: self.name.into(), capacity, limit, mixes };
        let inner = Inner::new(Arc::clone(self.domain.core()), self.hasher, shape, self.handle);
        inner.map(Table::from_inner).ok_or(OutOfMemory { entries: capacity, each: Store::<K, V>::BYTES })
    }
}
