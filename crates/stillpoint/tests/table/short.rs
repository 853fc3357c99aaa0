//! Short tests for Miri: growths that complete, buckets that are freed beside readers of every kind, and replacements
//! at the maximum. The other tests do the same with more entries.

use std::sync::Barrier;

use stillpoint::rcu::Domain;
use stillpoint::table::Table;

use crate::census::{Census, Counted};
use crate::free_all;

const KEYS: u64 = 12;

/// Reserves more room: all chains move now, and the old buckets are retired.
fn grow(table: &Table<u64, Counted>) {
    let growths = table.stats().growths;
    table.reserve(table.capacity() + 1 - table.len()).unwrap();
    assert_eq!(table.stats().growths, growths + 1);
}

#[test]
fn growths_behind_one_thread_complete() {
    let census = Census::default();
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    let mut reader = domain.reader();
    let mut lookup = table.reader(&mut reader);
    for key in 0..KEYS {
        table.insert(key, census.value(key)).unwrap();
    }
    let held = lookup.get(&3).unwrap();
    grow(&table);
    drop(table.remove(&3));
    assert_eq!(held.value, 3);
    drop(held);
    let guard = lookup.pin();
    let value = guard.get(&5).unwrap();
    grow(&table);
    drop(table.insert(5, census.value(55)).unwrap());
    assert_eq!((value.value, guard.iter().count() as u64), (5, KEYS - 1));
    drop(guard);
    for key in (0..KEYS).filter(|key| *key != 3) {
        let expected = if key == 5 { 55 } else { key };
        assert_eq!(lookup.get(&key).map(|entry| entry.value), Some(expected));
    }
    drop(lookup.update(&6, |_| census.value(66)).unwrap());
    drop(lookup.remove_if(&7, |_, _| true));
    free_all(&table);
    assert_eq!(census.alive(), table.len());
    drop(table.remove(&8));
    drop(lookup);
    drop(table);
    assert_eq!(census.alive(), 0);
}

/// One thread looks up with each kind of reader, while another thread replaces, removes and grows the table.
#[test]
fn growths_behind_another_thread_complete() {
    let census = Census::default();
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    for key in 0..KEYS {
        table.insert(key, census.value(key)).unwrap();
    }
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut reader, other, mut qsbr) = (domain.reader(), domain.reader(), domain.qsbr_reader());
            let mut lookup = table.reader(&mut reader);
            barrier.wait();
            for key in (0..KEYS).chain(0..KEYS) {
                if key % 2 == 0 {
                    assert_eq!(lookup.get(&key).map(|entry| entry.value % 100), Some(key));
                    assert_eq!(table.protect(&other, &key).map(|entry| entry.value % 100), Some(key));
                    assert_eq!(lookup.pin().get(&key).map(|value| value.value % 100), Some(key));
                    assert_eq!(table.within(&qsbr).get(&key).map(|value| value.value % 100), Some(key));
                }
                qsbr.quiescent();
            }
        });
        scope.spawn(|| {
            barrier.wait();
            for round in 0..2 {
                for key in 0..KEYS {
                    match key % 4 {
                        0 => drop(table.insert(key, census.value(100 * (round + 1) + key)).unwrap()),
                        1 => drop(table.remove(&key)),
                        _ => _ = table.poll(),
                    }
                }
                grow(&table);
            }
        });
    });
    domain.barrier().unwrap();
    assert_eq!(census.alive(), table.len());
    drop(table);
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_full_table_replaces_and_empties() {
    let census = Census::default();
    let domain = Domain::new();
    let table: Table<u64, Counted> = Table::builder_in(&domain).max_len(3).build().unwrap();
    for key in 0..3 {
        table.insert(key, census.value(key)).unwrap();
    }
    for round in 0..3 {
        assert!(table.insert(round % 3, census.value(9)).unwrap().is_some());
    }
    assert!(table.insert(7, census.value(7)).is_err());
    table.clear();
    table.reserve(3).unwrap();
    drop(table);
    assert_eq!(census.alive(), 0);
}
