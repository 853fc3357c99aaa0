//! stillpoint's table as a contender, through its public interface.

use stillpoint::rcu::Domain;
use stillpoint::table::Table;
use stillpoint_peers::table::{BURST, TableContender, TableKey, mixed};

/// Protected lookups.
pub(super) struct Protected<K: TableKey> {
    domain: Domain,
    table: Table<K, u64>,
}

/// Lookups under one guard for a whole run of them.
pub(super) struct Guarded<K: TableKey>(Protected<K>);

impl<K: TableKey> Protected<K> {
    pub(super) fn with_capacity(entries: usize) -> Self {
        let domain = Domain::new();
        let table = Table::with_capacity_in(&domain, entries);
        Self { domain, table }
    }
}

impl<K: TableKey> Guarded<K> {
    pub(super) fn with_capacity(entries: usize) -> Self {
        Self(Protected::with_capacity(entries))
    }
}

impl<K: TableKey> TableContender<K> for Protected<K> {
    fn name(&self) -> &'static str {
        "stillpoint/table"
    }

    fn insert(&self, key: K, value: u64) -> bool {
        self.table.insert(key, value).is_ok()
    }

    fn churn(&self, keys: &[(K, u64)]) -> u64 {
        let there = keys.iter().filter(|(key, value)| {
            let there = self.table.remove(key).is_some();
            there & self.table.insert(*key, *value).is_ok()
        });
        there.count() as u64
    }

    fn lookup(&self, keys: &[K]) -> u64 {
        let mut reader = self.domain.reader();
        let mut table = self.table.reader(&mut reader);
        keys.iter().fold(0, |sum, key| sum.wrapping_add(table.copied(key).unwrap_or(0)))
    }

    fn mix(&self, lookups: &[K], pairs: &[(K, u64)]) -> u64 {
        let mut reader = self.domain.reader();
        let mut table = self.table.reader(&mut reader);
        mixed(
            lookups,
            pairs,
            |key| table.copied(key).unwrap_or(0),
            |pair| self.churn(std::slice::from_ref(pair)),
        )
    }

    fn lookup_bursts(&self, keys: &[K]) -> Option<u64> {
        let mut reader = self.domain.reader();
        let mut table = self.table.reader(&mut reader);
        Some(keys.as_chunks::<BURST>().0.iter().fold(0, |sum: u64, burst| {
            let guard = table.pin();
            let found = guard.get_many(burst);
            found.iter().fold(sum, |sum, value| sum.wrapping_add(value.copied().unwrap_or(0)))
        }))
    }
}

impl<K: TableKey> TableContender<K> for Guarded<K> {
    fn name(&self) -> &'static str {
        "stillpoint/table+guard"
    }

    fn note(&self) -> &'static str {
        "one guard for a run of lookups"
    }

    fn insert(&self, key: K, value: u64) -> bool {
        self.0.insert(key, value)
    }

    fn churn(&self, keys: &[(K, u64)]) -> u64 {
        self.0.churn(keys)
    }

    fn mix(&self, lookups: &[K], pairs: &[(K, u64)]) -> u64 {
        self.0.mix(lookups, pairs)
    }

    fn lookup(&self, keys: &[K]) -> u64 {
        let mut reader = self.0.domain.reader();
        let mut table = self.0.table.reader(&mut reader);
        let guard = table.pin();
        keys.iter().fold(0, |sum, key| sum.wrapping_add(guard.get(key).copied().unwrap_or(0)))
    }

    fn has_own_writers(&self) -> bool {
        false
    }
}
