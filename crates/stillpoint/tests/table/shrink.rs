//! Tables that shrink, while there are readers of every kind, writers, and iterations.

use std::cell::Cell;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};

use stillpoint::rcu::Domain;
use stillpoint::table::Table;

use crate::census::Census;
use crate::identity::Identity;
use crate::other::silent;

const FEW: u64 = if cfg!(miri) { 30 } else { 900 };
const ROOM: usize = if cfg!(miri) { 3_000 } else { 40_000 };

#[test]
fn a_table_shrinks_and_grows_again() {
    let census = Census::default();
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    let (mut reader, other) = (domain.reader(), domain.reader());
    let mut lookup = table.reader(&mut reader);
    for key in 0..FEW {
        table.insert(key, census.value(key)).unwrap();
    }
    for round in 1..=3 {
        table.reserve(ROOM).unwrap();
        let large = table.stats();
        let held = lookup.get(&3).unwrap();
        let guard = other.pin();
        let value = table.within(&guard);
        let value = value.get(&5).unwrap();
        table.shrink_to_fit();
        let small = table.stats();
        assert!(small.buckets < large.buckets && !small.growing, "the table has not shrunk: {small:?}");
        assert_eq!((small.shrinks, table.len() as u64), (round, FEW));
        assert!(table.capacity() as u64 >= FEW);
        assert_eq!((held.value, value.value), (3, 5));
        drop((held, guard));
        for key in 0..FEW {
            assert_eq!(lookup.get(&key).map(|value| value.value), Some(key));
            assert!(lookup.pin().contains_key(&key));
        }
        assert!(!lookup.contains_key(&FEW));
    }
    // Keys are still found after a later growth.
    while table.pending() > 0 {
        lookup.contains_key(&0);
        table.poll();
    }
    for key in FEW..3 * FEW {
        table.insert(key, census.value(key)).unwrap();
        assert!(lookup.contains_key(&key) && lookup.contains_key(&(key - FEW)));
    }
    table.reserve(ROOM).unwrap();
    assert!((0..3 * FEW).all(|key| table.remove(&key).is_some()));
    table.shrink_to_fit();
    table.shrink_to_fit();
    assert!(table.is_empty());
    drop(lookup);
    drop(table);
    assert_eq!(census.alive(), 0);
}

/// It waits for no pace: the reader of another thread, which sleeps, holds nothing.
#[test]
fn what_no_reader_can_hold_is_freed_first() {
    let (domain, census) = (Domain::new(), Census::default());
    let _silent = silent(&domain);
    let table = Table::new_in(&domain);
    for key in 0..FEW {
        table.insert(key, census.value(key)).unwrap();
    }
    table.clear();
    table.shrink_to_fit();
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_table_that_fits_stays_as_it_is() {
    let table: Table<u64, u64> = Table::new_in(&Domain::new());
    let before = table.stats();
    table.shrink_to_fit();
    assert_eq!(table.stats(), before);
}

/// During shrinks, lookups find every entry that stays, and iterations see it once.
#[test]
fn readers_see_each_entry_once_while_a_table_shrinks_and_grows() {
    let rounds = if cfg!(miri) { 2 } else { 40 };
    let domain = Domain::new();
    let table: Table<u64, u64> = Table::new_in(&domain);
    for key in 0..FEW {
        table.insert(key, key).unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for kind in 0..2 {
            let (domain, table, done) = (&domain, &table, &done);
            scope.spawn(move || {
                let (mut reader, other) = (domain.reader(), domain.reader());
                let mut lookup = table.reader(&mut reader);
                // Relaxed: a flag; the thread is joined.
                while !done.load(Ordering::Relaxed) {
                    if kind == 0 {
                        for key in 0..FEW {
                            assert_eq!(lookup.copied(&key), Some(key));
                        }
                        continue;
                    }
                    let guard = other.pin();
                    let mut seen = vec![0; FEW as usize];
                    for (number, (key, value)) in table.within(&guard).iter().enumerate() {
                        assert_eq!(key, value);
                        if let Some(times) = seen.get_mut(*key as usize) {
                            *times += 1;
                        }
                        if number % 64 == 0 {
                            std::thread::yield_now();
                        }
                    }
                    assert!(seen.iter().all(|times| *times == 1), "an entry was missed, or seen twice");
                }
            });
        }
        for round in 0..rounds {
            table.reserve(ROOM / (round % 3 + 1)).unwrap();
            for key in 0..FEW {
                drop(table.insert(key + FEW, key + FEW).unwrap());
            }
            for key in 0..FEW {
                drop(table.remove(&(key + FEW)).unwrap());
            }
            table.shrink_to_fit();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(table.stats().shrinks, rounds);
}

/// An iteration sees each entry once, whatever array the table moves to between its steps.
#[test]
fn an_iteration_is_shrunk_and_grown_under() {
    let domain = Domain::new();
    let steps: &[&[usize]] =
        &[&[0], &[ROOM], &[0, ROOM], &[ROOM, 0], &[0, 4 * ROOM, 0], &[4 * ROOM, 0, ROOM, 0]];
    for (number, steps) in steps.iter().enumerate() {
        for after in [0, 1, FEW / 2, FEW - 1] {
            let table: Table<u64, u64> = Table::new_in(&domain);
            (0..FEW).for_each(|key| drop(table.insert(key, key).unwrap()));
            table.reserve(2 * ROOM).unwrap();
            let reader = domain.reader();
            let guard = reader.pin();
            let view = table.within(&guard);
            let mut entries = view.iter();
            let mut seen: Vec<u64> = entries.by_ref().take(after as usize).map(|(key, _)| *key).collect();
            for room in *steps {
                if *room == 0 {
                    table.shrink_to_fit();
                } else {
                    table.reserve(*room).unwrap();
                }
            }
            seen.extend(entries.map(|(key, _)| *key));
            seen.sort_unstable();
            assert_eq!(seen, (0..FEW).collect::<Vec<_>>(), "{number} after {after}");
        }
    }
}

/// `clear` and `retain` leave nothing behind, even if the table shrinks and grows meanwhile.
#[test]
fn what_was_there_is_cleared_whatever_moves() {
    let rounds = if cfg!(miri) { 2 } else { 200 };
    let domain = Domain::new();
    for round in 0..rounds {
        let table: Table<u64, u64> = Table::new_in(&domain);
        (0..FEW).for_each(|key| drop(table.insert(key, key).unwrap()));
        table.reserve(ROOM / 4).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                table.shrink_to_fit();
                table.reserve(ROOM / 8).unwrap();
                table.shrink_to_fit();
            });
            if round % 2 == 0 {
                table.clear();
            } else {
                table.within(&domain.reader().pin()).retain(|_, _| false);
            }
        });
        let reader = domain.reader();
        assert_eq!((table.len(), table.within(&reader.pin()).iter().count()), (0, 0), "round {round}");
    }
}

thread_local!(static HASHES: Cell<(usize, usize)> = const { Cell::new((0, usize::MAX)) });

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key(u64);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (calls, limit) = HASHES.get();
        HASHES.set((calls + 1, limit));
        assert!(calls < limit, "on purpose");
        state.write_u64(self.0);
    }
}

/// At any size, shrinking neither hashes nor compares keys, since all bits that a smaller array keeps are known.
/// Meanwhile, a writer moves at most three chains.
#[test]
fn to_shrink_hashes_nothing() {
    let domain = Domain::new();
    let builder = Table::builder_in(&domain).hasher(BuildHasherDefault::<Identity>::default()).unmixed();
    let table: Table<Key, u64, _> = builder.build().unwrap();
    for key in 0..FEW {
        table.insert(Key(key | key << 40), key).unwrap();
    }
    for room in [2_000, 10_000, if cfg!(miri) { 3_000 } else { 200_000 }] {
        table.reserve(room).unwrap();
        HASHES.set((0, usize::MAX));
        table.shrink_to_fit();
        assert_eq!(HASHES.get().0, 0);
        let keys: Vec<_> = (0..FEW).map(|key| Key(key | key << 40)).collect();
        let reader = domain.reader();
        assert!(keys.iter().all(|key| table.within(&reader.pin()).contains_key(key)));
    }
    assert!(table.stats().most_buckets_moved_by_a_call <= 3);
}

/// A panic of `Hash` while a growth is finished for a shrink, or in an iteration after a shrink, leaves the table
/// valid.
#[test]
fn a_panic_of_hash_around_a_shrink_leaves_the_table_valid() {
    let domain = Domain::new();
    let builder = Table::builder_in(&domain).hasher(BuildHasherDefault::<Identity>::default()).unmixed();
    let table: Table<Key, u64, _> = builder.build().unwrap();
    (0..FEW).for_each(|key| drop(table.insert(Key(key), key).unwrap()));
    table.reserve(ROOM).unwrap();
    let reader = domain.reader();
    let guard = reader.pin();
    let view = table.within(&guard);
    let mut entries = view.iter();
    let mut seen = vec![*entries.next().unwrap().1];
    table.shrink_to_fit();
    for _ in 0..3 {
        HASHES.set((0, 2));
        let panics =
            catch_unwind(AssertUnwindSafe(|| seen.extend(entries.by_ref().map(|(_, value)| *value))));
        HASHES.set((0, usize::MAX));
        assert!(panics.is_err());
    }
    seen.extend(entries.map(|(_, value)| *value));
    let found = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), found, "no entry is seen twice");
    assert!((0..FEW).all(|key| view.contains_key(&Key(key))));
}
