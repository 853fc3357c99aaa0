//! stillpoint's table as a contender, through its public interface.

use std::sync::Arc;

use stillpoint::rcu::{Domain, Reader};
use stillpoint::table::{Table, TableHandle, TableReader};
use stillpoint_peers::table::{BURST, Bound, Map, TableKey, TableValue};

/// Protected lookups, through a reader that is bound to the table once.
pub(super) struct Ours<K: TableKey, V: TableValue> {
    domain: Domain,
    table: Arc<Table<K, V>>,
}

/// The table as one thread uses it.
pub(super) struct InHand<'a, K: TableKey, V: TableValue> {
    table: &'a Table<K, V>,
    lookup: TableReader<'a, K, V>,
}

/// As [`InHand`], for a thread that owns it.
pub(super) struct Kept<K: TableKey, V: TableValue>(TableHandle<K, V>);

impl<K: TableKey, V: TableValue> Map<K, V> for Ours<K, V> {
    type Reader = Reader;
    type Bound<'a> = InHand<'a, K, V>;
    type Handle = Kept<K, V>;

    fn with_capacity(entries: usize) -> Self {
        Self::of(Domain::new(), entries)
    }

    fn reader(&self) -> Reader {
        self.domain.reader()
    }

    fn bind<'a>(&'a self, reader: &'a mut Reader) -> InHand<'a, K, V> {
        InHand { table: &self.table, lookup: self.table.reader(reader) }
    }

    fn handle(map: &Arc<Self>) -> Kept<K, V> {
        Kept(map.table.handle())
    }

    fn lookup_bursts(&self, keys: &[K]) -> Option<u64> {
        let mut reader = self.domain.reader();
        let mut table = self.table.reader(&mut reader);
        Some(keys.as_chunks::<BURST>().0.iter().fold(0, |sum: u64, burst| {
            let guard = table.pin();
            let found = guard.get_many(burst);
            found.iter().fold(sum, |sum, value| sum.wrapping_add(value.map_or(0, V::number)))
        }))
    }
}

impl<K: TableKey, V: TableValue> Ours<K, V> {
    pub(super) fn of(domain: Domain, entries: usize) -> Self {
        let table = Arc::new(Table::with_capacity_in(&domain, entries));
        Self { domain, table }
    }

    /// The sum of the numbers in the values of keys, under one guard.
    pub(super) fn lookup_guarded(&self, keys: &[K]) -> u64 {
        let mut reader = self.domain.reader();
        let mut table = self.table.reader(&mut reader);
        let guard = table.pin();
        keys.iter().fold(0, |sum, key| sum.wrapping_add(guard.get(key).map_or(0, V::number)))
    }

    /// The same by [`Table::get`], if the table is of the default domain.
    pub(super) fn lookup_by_get(&self, keys: &[K]) -> u64 {
        let mut table = self;
        keys.iter().fold(0, |sum, key| sum.wrapping_add(table.get(key).unwrap_or(0)))
    }
}

/// A way to use the table: `$lookup` reads and updates, `$table` inserts and removes.
macro_rules! bound {
    ($($way:ty: |$this:ident| $lookup:expr, $table:expr;)*) => {$(
        impl<K: TableKey, V: TableValue> Bound<K, V> for $way {
            fn get(&mut self, key: &K) -> Option<u64> {
                let $this = self;
                $lookup.get(key).map(|value| value.number())
            }

            fn insert(&mut self, key: K, value: V) -> bool {
                let $this = self;
                $table.insert(key, value).is_ok_and(|replaced| replaced.is_none())
            }

            fn remove(&mut self, key: &K) -> bool {
                let $this = self;
                $table.remove(key).is_some()
            }

            fn update(&mut self, key: &K, value: impl Fn(&V) -> V) -> bool {
                let $this = self;
                $lookup.update(key, value).is_ok_and(|replaced| replaced.is_some())
            }

            fn get_or_insert(&mut self, key: K, value: V) -> u64 {
                let $this = self;
                $lookup.get_or_insert(key, value).map_or(0, |(there, _)| there.number())
            }
        }
    )*};
}
bound! {
    // The table is of the default domain: the thread names no reader.
    &Ours<K, V>: |ours| ours.table, ours.table;
    InHand<'_, K, V>: |own| own.lookup, own.table;
    Kept<K, V>: |kept| kept.0.reader(), kept.0;
}
