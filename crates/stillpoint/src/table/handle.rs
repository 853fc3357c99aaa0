use std::ops::Deref;
use std::sync::Arc;

use super::engine::search::Home;
use super::reader::TableReader;
use super::table::Table;
use super::RandomState;
use crate::rcu::Reader;

/// A table and a reader of its domain in one value, for one thread: made by [`Table::handle`], on the thread that uses it.
///
/// It keeps the table alive, and borrows nothing. It dereferences to the table for writes; everything else goes through
/// its [`reader`](TableHandle::reader).
///
/// Like a [`TableReader`], it pins the array of buckets that its last lookup saw, as long as it exists.
///
/// ```
/// use std::sync::Arc;
/// use stillpoint::{rcu::Domain, table::Table};
///
/// let table: Arc<Table<&str, u64>> = Arc::new(Table::new_in(&Domain::new()));
/// let mut table = table.handle();
/// table.insert("a", 1).unwrap();
/// assert_eq!(table.reader().copied("a"), Some(1));
/// table.reader().update("a", |value| value + 1).unwrap();
/// assert_eq!(table.remove("a").as_deref(), Some(&2));
/// ```
///
/// It stays on its thread:
///
/// ```compile_fail,E0277
/// # use std::sync::Arc;
/// # use stillpoint::{rcu::Domain, table::Table};
/// # let table: Arc<Table<u64, u64>> = Arc::new(Table::new_in(&Domain::new()));
/// let handle = table.handle();
/// std::thread::spawn(move || handle.len()); // `TableHandle` cannot be sent
/// ```
/// ```
/// # use std::sync::Arc;
/// # use stillpoint::{rcu::Domain, table::Table};
/// # let table: Arc<Table<u64, u64>> = Arc::new(Table::new_in(&Domain::new()));
/// std::thread::spawn(move || table.handle().len());
/// ```
pub struct TableHandle<K, V, S = RandomState> {
    /// The array that the reader has pinned. Dropping this field unpins nothing: the drop of the reader does.
    home: Home,
    reader: Reader,
    table: Arc<Table<K, V, S>>,
}

impl<K, V, S> Table<K, V, S> {
    /// The table and a reader in one value, for the thread that calls this. It borrows nothing.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let table: Arc<Table<u64, u64>> = Arc::new(Table::new_in(&Domain::new()));
    /// let threads = (0..2).map(|thread| {
    ///     let table = Arc::clone(&table);
    ///     std::thread::spawn(move || {
    ///         let mut table = table.handle();
    ///         table.insert(thread, 10 * thread).unwrap();
    ///         let found = table.reader().copied(&thread);
    ///         found
    ///     })
    /// });
    /// let found: Vec<_> = threads.map(|thread| thread.join().unwrap()).collect();
    /// assert_eq!(found, [Some(0), Some(10)]);
    /// ```
    pub fn handle(self: &Arc<Self>) -> TableHandle<K, V, S> {
        let reader = Reader::new(Arc::clone(self.inner().core()));
        TableHandle { home: Home::default(), reader, table: Arc::clone(self) }
    }
}

impl<K, V, S> TableHandle<K, V, S> {
    /// For lookups, and for writes that depend on the present entry. A call costs a few loads and stores in the
    /// thread's own memory: it continues with the array that the last call pinned.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use stillpoint::{rcu::Domain, table::Table};
    ///
    /// let table: Arc<Table<u64, u64>> = Arc::new(Table::new_in(&Domain::new()));
    /// let mut handle = table.handle();
    /// let mut lookup = handle.reader();
    /// assert_eq!(*lookup.get_or_insert(1, 10).unwrap().0, 10);
    /// assert_eq!(lookup.pin().iter().count(), 1);
    /// ```
    #[inline(always)]
    pub fn reader(&mut self) -> TableReader<'_, K, V, S> {
        // SAFETY: the reader is of the table's domain, and is used only here, with this table.
        unsafe { TableReader::new(self.table.inner(), &mut self.reader, Some(&mut self.home)) }
    }

    /// The table.
    pub fn table(&self) -> &Arc<Table<K, V, S>> {
        &self.table
    }

    /// Lets writers ignore this reader until its next lookup: see [`Reader::offline`]. The array of buckets stays pinned.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use stillpoint::table::Table;
    ///
    /// let table: Arc<Table<u64, u64>> = Arc::new(Table::new());
    /// let mut handle = table.handle();
    /// assert!(handle.reader().get(&1).is_none());
    /// assert!(handle.offline()); // before the thread sleeps
    /// assert!(handle.reader().get(&1).is_none());
    /// ```
    pub fn offline(&self) -> bool {
        self.reader.offline()
    }
}

impl<K, V, S> Deref for TableHandle<K, V, S> {
    type Target = Table<K, V, S>;

    #[inline(always)]
    fn deref(&self) -> &Table<K, V, S> {
        &self.table
    }
}

stillpoint_sys::debug!([K, V, S] |this| TableHandle<K, V, S> {
    domain: this.table.inner().core().name(), ..
});
