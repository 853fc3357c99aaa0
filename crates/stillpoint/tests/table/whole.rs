//! Operations on a whole table, and by its exclusive owner; sets and handles.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

use stillpoint::rcu::Domain;
use stillpoint::table::{Set, Table, TableHandle};

use crate::census::{Census, Counted};
use crate::free_all;

const KEYS: u64 = if cfg!(miri) { 40 } else { 5_000 };

/// A table in the middle of a growth: some entries are in the old array, and some in the new one.
fn in_growth(census: &Census) -> (Domain, Table<u64, Counted>) {
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    let mut key = 0;
    while !table.stats().growing && key < KEYS {
        table.insert(key, census.value(key)).unwrap();
        key += 1;
    }
    (domain, table)
}

#[test]
fn the_owner_changes_every_value_once() {
    let census = Census::default();
    let (domain, mut table) = in_growth(&census);
    let len = table.len();
    for (key, value) in &mut table {
        assert_eq!(value.value, *key);
        value.value += 1;
    }
    assert_eq!(table.iter_mut().count(), len);
    table.values_mut().for_each(|value| value.value += 1);
    table.get_mut(&7).unwrap().value += 10;
    assert!(table.get_mut(&(1 << 40)).is_none());
    let mut references: Vec<_> = table.iter_mut().map(|(_, value)| value).collect();
    references.iter_mut().for_each(|value| value.value += 1);
    drop(references);
    let reader = domain.reader();
    let guard = reader.pin();
    let view = table.within(&guard);
    assert!(view.iter().all(|(key, value)| value.value == key + if *key == 7 { 13 } else { 3 }));
    assert_eq!((view.keys().count(), view.values().count(), census.alive()), (len, len, len));
}

#[test]
fn a_table_is_taken_apart() {
    let census = Census::default();
    for taken in [0, 1, 30, usize::MAX] {
        let (_domain, table) = in_growth(&census);
        let len = table.len();
        drop(table.remove(&3));
        let mut entries = table.into_iter();
        let mut keys: Vec<u64> = entries.by_ref().take(taken).map(|(key, _)| key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), taken.min(len - 1));
        drop(entries);
        assert_eq!(census.alive(), 0, "entries not taken are dropped");
    }
}

#[test]
fn tables_and_sets_are_collected_and_printed() {
    let census = Census::default();
    let domain = Domain::new();
    let table = Table::from_iter_in(&domain, (0..KEYS).map(|key| (key / 2, census.value(key))));
    let reader = domain.reader();
    let guard = reader.pin();
    assert!(
        table.within(&guard).iter().all(|(key, value)| value.value == key * 2 + 1),
        "the later entry stays"
    );
    assert_eq!(table.len() as u64, KEYS / 2);
    let one = Table::from_iter_in(&domain, [("a", 1)]);
    let mut set = Set::new_in(&domain);
    set.extend(["a", "a"]);
    assert_eq!((format!("{one:?}"), format!("{set:?}")), ("{\"a\": 1}".to_owned(), "{\"a\"}".to_owned()));
    assert_eq!(Set::from([1, 2, 1]).len(), 2);
}

#[test]
fn entries_that_find_no_room_are_no_secret() {
    let mut table = Table::builder_in(&Domain::new()).max_len(2).build().unwrap();
    let extended = catch_unwind(AssertUnwindSafe(|| table.extend([(1, 1), (2, 2), (3, 3)])));
    let panic = extended.unwrap_err();
    assert!(panic.downcast_ref::<String>().unwrap().contains("no room for another entry"));
    assert_eq!(table.len(), 2);
    (&table).extend([(1, 5)]);
    assert_eq!(table.get_mut(&1), Some(&mut 5));
}

#[test]
fn a_set_keeps_the_key_that_it_has() {
    let census = Census::default();
    let domain = Domain::new();
    let set: Set<Counted> = Table::builder_in(&domain).max_len(2).build().unwrap().into();
    assert!(set.insert(census.value(1)).unwrap());
    assert!(set.insert(census.value(2)).unwrap());
    // A full set still finds its own keys.
    assert!(!set.insert(census.value(1)).unwrap());
    assert_eq!(set.insert(census.value(3)).unwrap_err().0.value, 3);
    assert_eq!(census.alive(), 2);
    let mut reader = domain.reader();
    let mut lookup = set.reader(&mut reader);
    assert!(lookup.contains_key(&1) && !lookup.contains_key(&3));
    drop(set.remove(&1));
    drop(lookup);
    assert_eq!(set.into_iter().map(|key| key.value).collect::<Vec<_>>(), [2]);
    assert_eq!(census.alive(), 0);
}

/// Entries without a value take only the memory of their keys.
#[test]
fn no_value_costs_nothing() {
    let keys = 10_000;
    let set = Set::<u64>::with_capacity_in(&Domain::new(), keys);
    let with_values = Table::<u64, u64>::with_capacity_in(&Domain::new(), keys);
    assert_eq!(with_values.stats().bytes - set.stats().bytes, 8 * (keys + 1024 + 65));
}

#[test]
fn a_handle_outlives_whoever_made_it() {
    let census = Census::default();
    let table = Arc::new(Table::new_in(&Domain::new()));
    let mut handle: TableHandle<u64, Counted> = table.handle();
    drop(table);
    for key in 0..KEYS {
        handle.insert(key, census.value(key)).unwrap();
        assert!(handle.reader().contains_key(&(key / 2)));
    }
    assert_eq!(handle.table().stats().growths > 0, !cfg!(miri));
    let mut lookup = handle.reader();
    let entry = lookup.get(&3).unwrap();
    assert_eq!(entry.value, 3);
    drop(entry);
    drop(lookup);
    assert!(handle.offline() && !handle.offline());
    assert!(handle.reader().contains_key(&3) && handle.offline(), "a lookup brings the reader back");
    drop(handle);
    assert_eq!(census.alive(), 0);
}

/// A value that is forgotten only holds something up.
#[test]
fn what_is_forgotten_of_a_handle_does_no_harm() {
    let census = Census::default();
    let table = Arc::new(Table::new_in(&Domain::new()));
    let mut handle = table.handle();
    for key in 0..12 {
        table.insert(key, census.value(key)).unwrap();
    }
    for round in 0..4 {
        let mut lookup = handle.reader();
        std::mem::forget(lookup.get(&1));
        if round % 2 == 0 {
            std::mem::forget(lookup.pin());
        }
        assert!(lookup.contains_key(&2));
        if round > 1 {
            std::mem::forget(lookup);
        } else {
            drop(lookup);
        }
        let growths = table.stats().growths;
        table.reserve(table.capacity() + 1 - table.len()).unwrap();
        assert_eq!(table.stats().growths, growths + 1);
        assert_eq!(handle.reader().get(&3).map(|value| value.value), Some(3));
    }
    drop(handle);
    free_all(&table);
    assert_eq!((census.alive(), Arc::strong_count(&table)), (12, 1));
}

/// The next lookup begins with the array that the slot of the handle pins. The one that was pinned before, and that is in whole pages, is
/// unmapped.
#[test]
fn a_lookup_that_is_forgotten_after_the_table_has_grown_leaves_the_handle_its_array() {
    let table = Arc::new(Table::<u64, u64>::new_in(&Domain::new()));
    let mut handle = table.handle();
    let keys = if cfg!(miri) { 200 } else { 20_000 };
    (0..keys).for_each(|key| drop(table.insert(key, key).unwrap()));
    for _ in 0..2 {
        let mut lookup = handle.reader();
        assert!(lookup.contains_key(&1));
        table.reserve(table.capacity() + 1 - table.len()).unwrap();
        assert!(lookup.contains_key(&1));
        std::mem::forget(lookup);
        free_all(&table);
        assert!((0..keys).all(|key| handle.reader().copied(&key) == Some(key)));
    }
}

/// Values that refer to their table, and use it when they are dropped, even when the table is taken apart.
#[test]
fn values_that_hold_their_table_are_dropped_in_order() {
    struct Node(Option<Arc<Table<u64, Node>>>);

    impl Drop for Node {
        fn drop(&mut self) {
            if let Some(table) = self.0.take() {
                drop(table.insert(99, Node(None)));
                table.shrink_to_fit();
            }
        }
    }

    let table = Arc::new(Table::new_in(&Domain::new()));
    let other = Arc::new(Table::new_in(&Domain::new()));
    for key in 0..10 {
        table.insert(key, Node(Some(Arc::clone(&other)))).ok().unwrap();
        other.insert(key, Node(None)).ok().unwrap();
    }
    let table = Arc::into_inner(table).unwrap();
    let mut entries = table.into_iter();
    drop(entries.next());
    assert_eq!((Arc::strong_count(&other), other.len()), (10, 11));
    drop(entries);
    assert_eq!(Arc::strong_count(&other), 1);
    other.clear();
}
