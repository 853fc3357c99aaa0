//! Single operations.

use stillpoint::rcu::Domain;
use stillpoint::table::{Full, Table};

use crate::census::Census;
use crate::free_all;

#[test]
fn an_insertion_returns_what_it_replaced() {
    let table = Table::new_in(&Domain::new());
    assert!(table.insert("a", 1).unwrap().is_none());
    let old = table.insert("a", 2).unwrap().unwrap();
    assert_eq!((*old.key(), *old.value(), table.len()), ("a", 1, 1));
}

#[test]
fn a_removed_entry_can_still_be_read() {
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    table.insert(1, "one".to_owned()).unwrap();
    let mut reader = domain.reader();
    let mut lookup = table.reader(&mut reader);
    let entry = lookup.get(&1).unwrap();
    let removed = table.remove(&1).unwrap();
    assert_eq!((entry.as_str(), removed.as_str()), ("one", "one"));
    drop(removed);
    table.poll();
    assert_eq!((entry.as_str(), table.pending()), ("one", 1));
    drop(entry);
    free_all(&table);
    assert!(lookup.get(&1).is_none());
}

#[test]
fn every_kind_of_reader_finds_the_same() {
    let domain = Domain::new();
    let table: Table<String, usize> = Table::new_in(&domain);
    for number in 0..500 {
        table.insert(number.to_string(), number).unwrap();
    }
    let (mut reader, other, qsbr) = (domain.reader(), domain.reader(), domain.qsbr_reader());
    let mut lookup = table.reader(&mut reader);
    let pin = other.pin();
    for number in 0..600 {
        let key = number.to_string();
        let expected = (number < 500).then_some(number);
        assert_eq!(lookup.copied(key.as_str()), expected);
        assert_eq!(lookup.contains_key(&key), expected.is_some());
        assert_eq!(lookup.get(&key).map(|entry| entry.key().clone()), expected.map(|_| key.clone()));
        assert_eq!(lookup.pin().get(key.as_str()).copied(), expected);
        assert_eq!(table.within(&pin).get(key.as_str()).copied(), expected);
        let pair = table.within(&pin).get_key_value(key.as_str()).map(|(own, value)| (own.clone(), *value));
        assert_eq!(pair, expected.map(|value| (key.clone(), value)));
        assert_eq!(table.within(&qsbr).get(key.as_str()).copied(), expected);
    }
    let keys: [String; 32] = std::array::from_fn(|at| (at * 20).to_string());
    let found = lookup.pin().get_many(&keys).map(|value| value.copied());
    assert_eq!(found, std::array::from_fn(|at| (at * 20 < 500).then_some(at * 20)));
}

#[test]
fn a_value_is_made_for_an_absent_key_alone() {
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    let mut reader = domain.reader();
    let mut lookup = table.reader(&mut reader);
    assert_eq!(*lookup.get_or_insert_with(1, || "made").unwrap().0, "made");
    assert_eq!(*lookup.get_or_insert_with(1, || unreachable!()).unwrap().0, "made");
    // The entry is pinned although it was never looked up.
    let (entry, _) = lookup.get_or_insert_with(2, || "two").unwrap();
    table.remove(&2);
    table.poll();
    assert_eq!((*entry, table.pending()), ("two", 1));
}

#[test]
fn an_update_is_made_from_the_latest_value() {
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    table.insert(1, 10).unwrap();
    let mut reader = domain.reader();
    let mut lookup = table.reader(&mut reader);
    let mut seen = Vec::new();
    let old = lookup
        .update(&1, |value| {
            seen.push(*value);
            if seen.len() == 1 {
                table.insert(1, 20).unwrap(); // another writer changes the entry first
            }
            value + 1
        })
        .unwrap();
    assert_eq!(old.as_deref(), Some(&20));
    drop(old);
    assert_eq!((seen, lookup.copied(&1)), (vec![10, 20], Some(21)));
    assert!(lookup.update(&2, |_| unreachable!()).unwrap().is_none());
}

#[test]
fn a_condition_is_asked_about_what_is_removed() {
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    table.insert(1, 10).unwrap();
    let mut reader = domain.reader();
    let mut lookup = table.reader(&mut reader);
    let mut asked = 0;
    let removed = lookup.remove_if(&1, |_, value| {
        asked += 1;
        if asked == 1 {
            table.insert(1, 20).unwrap();
        }
        *value >= 10
    });
    let removed = removed.expect("it is above 10");
    assert_eq!((removed.as_deref(), asked), (Some(&20), 2));
    drop(removed);
    assert!(table.is_empty());
}

#[test]
fn entries_are_kept_or_removed_by_their_contents() {
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    for key in 0..1_000 {
        table.insert(key, key).unwrap();
    }
    table.within(&domain.reader().pin()).retain(|key, value| key == value && key % 3 == 0);
    assert_eq!(table.len(), 334);
    table.clear();
    let reader = domain.reader();
    assert_eq!((table.len(), table.within(&reader.pin()).iter().count()), (0, 0));
}

#[test]
fn a_full_table_hands_the_pair_back() {
    let domain = Domain::new();
    let table = Table::builder_in(&domain).max_len(100).build().unwrap();
    for key in 0..100u32 {
        assert!(table.insert(key, key.to_string()).unwrap().is_none());
    }
    let Err(Full(key, value)) = table.insert(100, "spare".to_owned()) else { panic!("there was room") };
    assert_eq!((key, value.as_str(), table.len()), (100, "spare", 100));
    table.remove(&50).unwrap();
    // The slot of the removed entry is used again, since no reader holds it.
    assert!(table.insert(100, value).unwrap().is_none());

    let reader = domain.reader();
    let guard = reader.pin();
    table.remove(&51).unwrap();
    assert!(table.insert(101, String::new()).is_err(), "the guard holds the slot up");
    drop(guard);
    assert!(table.insert(101, String::new()).is_ok(), "the refused insertion has lost no slot");
}

#[test]
fn a_table_within_its_capacity_does_not_grow() {
    let table = Table::with_capacity_in(&Domain::new(), 20_000);
    let before = table.stats();
    assert!(table.capacity() >= 20_000);
    for key in 0..20_000u64 {
        table.insert(key, key).unwrap();
    }
    let after = table.stats();
    assert_eq!(
        (after.growths, after.growing, after.buckets, after.bytes),
        (0, false, before.buckets, before.bytes)
    );
}

#[test]
fn room_that_was_reserved_is_there() {
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    for key in 0..3_000u64 {
        table.insert(key, key).unwrap();
    }
    table.reserve(50_000).unwrap();
    let before = table.stats();
    assert!(!before.growing && table.capacity() >= 53_000);
    for key in 3_000..53_000 {
        table.insert(key, key).unwrap();
    }
    let after = table.stats();
    assert_eq!((after.growths, after.buckets, after.bytes), (before.growths, before.buckets, before.bytes));
    let reader = domain.reader();
    let guard = reader.pin();
    assert!((0..53_000).all(|key| table.within(&guard).get(&key) == Some(&key)));
}

#[test]
fn a_guard_of_the_table_is_a_region() {
    let domain = Domain::new();
    let table: Table<u64, u64> = Table::new_in(&domain);
    let cell = domain.cell(5);
    table.insert(1, 1).unwrap();
    let mut reader = domain.reader();
    let mut lookup = table.reader(&mut reader);
    let guard = lookup.pin();
    let old = cell.replace(6).unwrap().try_free().expect_err("the guard holds the object");
    assert_eq!((guard.iter().count(), cell.load(&guard)), (1, Some(&6)));
    drop(guard);
    assert!(old.try_free().is_ok());
}

/// Another writer inserts the key while the value is made. That writer's entry is returned, pinned, and the value is
/// dropped.
#[test]
fn of_two_values_for_a_key_the_first_one_stays() {
    let census = Census::default();
    let domain = Domain::new();
    let table = Table::builder_in(&domain).max_len(2).build().unwrap();
    let mut reader = domain.reader();
    let mut lookup = table.reader(&mut reader);
    for round in 0..5 {
        let make = || {
            assert!(table.insert(1, census.value(10)).unwrap().is_none());
            census.value(20)
        };
        let (entry, _) = lookup.get_or_insert_with(1, make).expect("there are two slots");
        assert_eq!((entry.value, census.alive(), table.len()), (10, 1, 1), "round {round}");
        drop(table.remove(&1));
        table.reserve(0).unwrap(); // frees what readers do not hold
        assert_eq!((entry.value, table.pending()), (10, 1), "the entry is pinned");
        drop(entry);
        table.reserve(0).unwrap();
        assert_eq!((census.alive(), table.pending()), (0, 0));
    }
}

/// A value that came too late is dropped, and its slot is used again.
#[test]
fn an_update_that_is_made_again_loses_nothing() {
    let census = Census::default();
    let domain = Domain::new();
    let table = Table::builder_in(&domain).max_len(3).build().unwrap();
    table.insert(1, census.value(0)).unwrap();
    let mut reader = domain.reader();
    let mut lookup = table.reader(&mut reader);
    for round in 0..100 {
        let mut first = true;
        let old = lookup.update(&1, |old| {
            if std::mem::take(&mut first) {
                drop(table.insert(1, census.value(old.value + 1)).unwrap());
            }
            census.value(old.value + 1)
        });
        assert_eq!(old.unwrap().map(|old| old.value), Some(2 * round + 1));
    }
    table.reserve(2).unwrap();
    assert_eq!((census.alive(), table.len()), (1, 1));
}

#[test]
fn an_entry_that_is_replaced_after_the_question_stays() {
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    for key in 0..100 {
        table.insert(key, 0).unwrap();
    }
    table.within(&domain.reader().pin()).retain(|key, value| {
        if key % 2 == 0 {
            assert_eq!(table.insert(*key, 1).unwrap().as_deref(), Some(value));
        }
        false
    });
    let reader = domain.reader();
    let guard = reader.pin();
    assert_eq!(table.len(), 50);
    assert!(table.within(&guard).iter().all(|(key, value)| key % 2 == 0 && *value == 1));
}

#[test]
fn a_poll_says_how_many_it_has_freed() {
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    let reader = domain.reader();
    let guard = reader.pin();
    for number in 0..500 {
        table.insert(number % 5, number).unwrap();
    }
    assert_eq!((table.pending(), table.poll()), (495, 0));
    drop(guard);
    let mut freed = 0;
    while table.pending() > 0 {
        freed += table.poll();
    }
    assert_eq!((freed, table.poll()), (495, 0));
}

/// This holds for any order of the builder's calls.
#[test]
fn a_builder_forgets_nothing() {
    let domain = Domain::new();
    let background = domain.background();
    let handle = background.retire_handle();
    let hasher = std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default();
    let table = Table::builder_in(&domain)
        .capacity(5_000)
        .max_len(6_000)
        .attach(handle.clone())
        .hasher(hasher)
        .build()
        .unwrap();
    assert!(table.capacity() >= 5_000 && table.reserve(6_001).is_err());
    table.insert(1, 1).unwrap();
    drop(table.remove(&1));
    assert_eq!((handle.pending(), table.pending()), (1, 0));
}
