//! Several threads on one table.

use std::sync::atomic::{AtomicUsize, Ordering};

use stillpoint::rcu::Domain;
use stillpoint::table::Table;

use crate::census::Census;

const THREADS: u64 = 4;

/// Each thread finds under its own keys what a map would hold, while threads with other keys write.
#[test]
fn threads_with_keys_of_their_own_do_not_notice_each_other() {
    let census = Census::default();
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (census, domain, table) = (&census, &domain, &table);
            scope.spawn(move || {
                let mut reader = domain.reader();
                let mut lookup = table.reader(&mut reader);
                let mut map = std::collections::HashMap::new();
                let mut random = thread + 1;
                for _ in 0..20_000 {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let key = (random >> 40) % 3_000 * THREADS + thread;
                    match random >> 60 {
                        0..8 => {
                            let old = table.insert(key, census.value(random >> 8)).unwrap();
                            assert_eq!(old.map(|old| old.value().value), map.insert(key, random >> 8));
                        }
                        8..12 => {
                            let old = table.remove(&key);
                            assert_eq!(old.map(|old| old.value().value), map.remove(&key));
                        }
                        _ => {
                            let found = lookup.get(&key).map(|entry| entry.value().value);
                            assert_eq!(found, map.get(&key).copied());
                        }
                    }
                }
                for (key, value) in map {
                    assert_eq!(lookup.get(&key).map(|entry| entry.value().value), Some(value));
                }
            });
        }
    });
    domain.barrier().unwrap();
    assert_eq!(census.alive(), table.len());
    drop(table);
    assert_eq!(census.alive(), 0);
}

#[test]
fn of_many_inserters_one_comes_first() {
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    let wins = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (domain, table, wins) = (&domain, &table, &wins);
            scope.spawn(move || {
                let mut reader = domain.reader();
                let mut lookup = table.reader(&mut reader);
                for key in 0..5_000u64 {
                    let first = *lookup.get_or_insert_with(key, || thread).unwrap().0;
                    wins.fetch_add(usize::from(first == thread), Ordering::Relaxed);
                    assert_eq!(lookup.copied(&key), Some(first), "the first one stays");
                }
            });
        }
    });
    assert_eq!((wins.into_inner(), table.len()), (5_000, 5_000));
}

#[test]
fn no_update_is_lost() {
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    for key in 0..4u64 {
        table.insert(key, 0u64).unwrap();
    }
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut reader = domain.reader();
                let mut lookup = table.reader(&mut reader);
                for number in 0..5_000 {
                    assert!(lookup.update(&(number % 4), |value| value + 1).unwrap().is_some());
                }
            });
        }
    });
    let reader = domain.reader();
    let guard = reader.pin();
    assert!((0..4).all(|key| table.within(&guard).get(&key) == Some(&(THREADS * 1_250))));
}
