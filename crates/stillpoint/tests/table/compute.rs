//! Writes that depend on the present entry, through both kinds of readers: their results, what their functions may do,
//! and panics in the functions.

use std::panic::{catch_unwind, AssertUnwindSafe};

use stillpoint::rcu::Domain;
use stillpoint::table::{Compute, Full, Operation, Table, TryInsertError};

use crate::census::{Census, Counted};
use crate::free_all;

#[test]
fn a_computation_says_what_it_has_done() {
    let domain = Domain::new();
    let table: Table<&str, u64> = Table::new_in(&domain);
    let mut reader = domain.reader();
    let mut lookup = table.reader(&mut reader);
    match lookup.compute("a", |present| Operation::<_>::Insert(present.map_or(1, |_| 9))) {
        Ok(Compute::Inserted(entry)) => assert_eq!((*entry.key(), *entry), ("a", 1)),
        other => panic!("{other:?}"),
    }
    match lookup.compute("a", |present| Operation::<_>::Insert(present.unwrap().1 + 1)) {
        Ok(Compute::Updated { old, new }) => assert_eq!((*old, *new), (1, 2)),
        other => panic!("{other:?}"),
    }

    let done = lookup.compute("a", |_| Operation::<u64>::Keep).unwrap();
    assert!(matches!(&done, Compute::Kept(Some(entry)) if **entry == 2), "{done:?}");
    drop(done);
    let done = lookup.compute("a", |present| Operation::Abort(*present.unwrap().1)).unwrap();
    assert!(matches!(done, Compute::Aborted(2)), "{done:?}");
    drop(done);
    let done = lookup.compute("a", |_| Operation::<u64>::Remove).unwrap();
    assert!(matches!(&done, Compute::Removed(old) if **old == 2), "{done:?}");
    drop(done);
    for operation in [Operation::<u64>::Remove, Operation::Keep] {
        assert!(matches!(lookup.compute("a", |_| operation), Ok(Compute::Kept(None))));
    }
    assert!(table.is_empty());
}

#[test]
fn an_entry_that_was_made_just_now_is_kept() {
    let census = Census::default();
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    let mut reader = domain.reader();
    let mut lookup = table.reader(&mut reader);
    for round in 0..3 {
        // Inserts in the first round, updates in the others.
        let done = lookup.compute(1, |_| Operation::<_>::Insert(census.value(round))).unwrap();
        let entry = match done {
            Compute::Inserted(entry) => entry,
            Compute::Updated { new, old } => {
                drop(old);
                new
            }
            other => panic!("{other:?}"),
        };
        let other = census.value(10);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                drop(table.insert(1, other).unwrap());
                table.reserve(0).unwrap(); // frees what readers do not hold
            });
        });
        assert_eq!((entry.value, census.alive()), (round, 2), "the entry is pinned");
        drop(entry);
        table.reserve(0).unwrap();
        assert_eq!(census.alive(), 1);
    }
    let entry = lookup.update_or_insert(1, |old| census.value(old.value + 1), census.value(0)).unwrap();
    drop(table.remove(&1));
    table.reserve(0).unwrap();
    assert_eq!((entry.value, census.alive()), (11, 1));
}

#[test]
fn what_is_there_is_shown_to_who_tries_to_insert() {
    let census = Census::default();
    let domain = Domain::new();
    let table: Table<u64, Counted> = Table::builder_in(&domain).max_len(1).build().unwrap();
    let (mut reader, other) = (domain.reader(), domain.reader());
    let mut lookup = table.reader(&mut reader);
    assert_eq!(lookup.try_insert(1, census.value(1)).unwrap().value, 1);
    match lookup.try_insert(1, census.value(2)) {
        Err(TryInsertError::Occupied { current, key, value }) => {
            assert_eq!((current.value, key, value.value), (1, 1, 2));
        }
        other => panic!("{other:?}"),
    }
    match lookup.try_insert(2, census.value(3)) {
        Err(TryInsertError::Full(Full(key, value))) => assert_eq!((key, value.value), (2, 3)),
        other => panic!("{other:?}"),
    }
    let guard = other.pin();
    let view = table.within(&guard);
    let again = view.try_insert_with(1, || unreachable!());
    assert!(matches!(again, Err(TryInsertError::Occupied { key: 1, value: None, .. })));
    assert!(matches!(view.try_insert(2, census.value(3)), Err(TryInsertError::Full(Full(2, _)))));
    assert_eq!(census.alive(), 1);
}

/// Another writer inserts first, and the unused value is handed back.
#[test]
fn a_value_that_comes_too_late_is_handed_back() {
    let census = Census::default();
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    let mut reader = domain.reader();
    let mut lookup = table.reader(&mut reader);
    let make = || {
        table.insert(1, census.value(10)).unwrap();
        census.value(20)
    };
    match lookup.try_insert_with(1, make) {
        Err(TryInsertError::Occupied { current, value: Some(value), .. }) => {
            assert_eq!((current.value, value.value), (10, 20));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(census.alive(), 1);
}

/// If the entry is inserted and removed meanwhile, the function that makes a value is called once, and no value is
/// lost.
#[test]
fn an_entry_that_comes_and_goes_meanwhile_costs_no_value() {
    let census = Census::default();
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    let mut reader = domain.reader();
    let mut lookup = table.reader(&mut reader);
    let mut updates = 0;
    let update = |old: &Counted| {
        updates += 1;
        assert_eq!(old.value, 10);
        drop(table.remove(&1));
        census.value(11)
    };
    let make = || {
        table.insert(1, census.value(10)).unwrap();
        census.value(20)
    };
    assert_eq!(lookup.update_or_insert_with(1, update, make).unwrap().value, 20);
    assert_eq!(updates, 1);
    free_all(&table);
    assert_eq!(census.alive(), 1);
}

/// The functions run without a lock: they may look up, write, and grow or shrink the table.
#[test]
fn functions_may_use_their_table() {
    let domain = Domain::new();
    let table: Table<u64, u64> = Table::new_in(&domain);
    let (mut reader, other) = (domain.reader(), domain.reader());
    let mut lookup = table.reader(&mut reader);
    let region = domain.reader();
    let busy = |key: u64| {
        // The same key, and other keys.
        for other in 0..40 {
            drop(table.insert(1_000 * (key + 1) + other, other).unwrap());
        }
        table.reserve(3_000).unwrap();
        table.shrink_to_fit();
        assert!(table.within(&other.pin()).get(&(1_000 * (key + 1))).is_some());
        let mut inner = domain.reader();
        let mut inner = table.reader(&mut inner);
        drop(inner.update_or_insert(key + 500, |old| old + 1, 0).unwrap());
    };
    for key in 0..4 {
        assert!(
            lookup
                .get_or_insert_with(key, || {
                    busy(key);
                    key
                })
                .unwrap()
                .1
        );
        drop(
            lookup
                .update(&key, |value| {
                    busy(key);
                    value + 1
                })
                .unwrap(),
        );
        drop(
            lookup
                .update_or_insert(
                    key,
                    |value| {
                        busy(key);
                        value + 1
                    },
                    0,
                )
                .unwrap(),
        );
        let done = lookup.compute(key, |present| {
            busy(key);
            Operation::<_>::Insert(present.unwrap().1 + 1)
        });
        assert!(matches!(&done, Ok(Compute::Updated { new, .. }) if **new == key + 3));
        drop(done);
        assert!(lookup
            .remove_if(&key, |_, _| {
                busy(key);
                false
            })
            .is_err());
        let pin = region.pin();
        let view = table.within(&pin);
        let done = view.compute(key, |present| {
            busy(key);
            Operation::<_>::Insert(present.unwrap().1 + 1)
        });
        assert!(matches!(done, Ok(Compute::Updated { new: (_, new), .. }) if *new == key + 4));
        assert_eq!(
            view.update_or_insert(
                key,
                |value| {
                    busy(key);
                    value + 1
                },
                0
            ),
            Ok(&(key + 5))
        );
        view.retain(|_, _| {
            drop(table.insert(key + 5_000, 1).unwrap());
            true
        });
    }
}

/// After the panic, nothing is lost, no lock stays locked, and the next call works.
#[test]
fn a_function_that_panics_has_done_nothing() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let census = Census::default();
    let domain = Domain::new();
    let table: Table<u64, Counted> = Table::new_in(&domain);
    let (mut reader, other) = (domain.reader(), domain.reader());
    let mut lookup = table.reader(&mut reader);
    table.insert(1, census.value(1)).unwrap();
    type Bang = fn() -> Counted;
    let bang: Bang = || panic!("on purpose");
    let guard = other.pin();
    let view = table.within(&guard);
    {
        let lookup = std::cell::RefCell::new(&mut lookup);
        let (lookup, view) = (&lookup, &view);
        let mut calls: Vec<Box<dyn FnMut() + '_>> = vec![
            Box::new(move || drop(lookup.borrow_mut().get_or_insert_with(2, bang))),
            Box::new(move || drop(lookup.borrow_mut().try_insert_with(2, bang))),
            Box::new(move || drop(lookup.borrow_mut().update(&1, |_| bang()))),
            Box::new(move || drop(lookup.borrow_mut().update_or_insert_with(1, |_| bang(), bang))),
            Box::new(move || drop(lookup.borrow_mut().update_or_insert_with(2, |_| bang(), bang))),
            Box::new(move || drop(lookup.borrow_mut().compute(1, |_| Operation::<_>::Insert(bang())))),
            Box::new(move || drop(lookup.borrow_mut().compute(2, |_| Operation::<_>::Insert(bang())))),
            Box::new(move || drop(lookup.borrow_mut().remove_if(&1, |_, _| bang().value == 0))),
            Box::new(move || drop(view.compute(1, |_| Operation::<_>::Insert(bang())))),
            Box::new(move || drop(view.compute(2, |_| Operation::<_>::Insert(bang())))),
            Box::new(move || drop(view.get_or_insert_with(2, bang))),
            Box::new(move || drop(view.try_insert_with(2, bang))),
            Box::new(move || drop(view.update(&1, |_| bang()))),
            Box::new(move || drop(view.update_or_insert_with(2, |_| bang(), bang))),
            Box::new(move || drop(view.remove_if(&1, |_, _| bang().value == 0))),
            Box::new(move || view.retain(|_, _| bang().value == 0)),
        ];
        for (number, call) in calls.iter_mut().enumerate() {
            assert!(catch_unwind(AssertUnwindSafe(call)).is_err(), "call {number} passed no panic on");
            assert_eq!((table.len(), census.alive()), (1, 1), "{number}");
            assert_eq!(lookup.borrow_mut().get(&1).map(|value| value.value), Some(1), "{number}");
        }
    }
    std::panic::set_hook(hook);
    drop(guard);
    // These keys are in all stripes: no stripe is still locked.
    for key in 0..600 {
        drop(lookup.update_or_insert(key, |_| census.value(7), census.value(7)).unwrap());
    }
    assert_eq!(table.len(), 600);
    table.clear();
    drop(lookup);
    drop(table);
    assert_eq!(census.alive(), 0);
}

/// Several threads compute on one key, while its entry is also replaced. Each call adds one, and no addition is lost.
#[test]
fn no_step_of_several_threads_is_lost() {
    const THREADS: u64 = 4;
    let steps: u64 = if cfg!(miri) { 20 } else { 20_000 };
    let domain = Domain::new();
    let table: Table<u64, u64> = Table::new_in(&domain);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (domain, table) = (&domain, &table);
            scope.spawn(move || {
                let (mut reader, other) = (domain.reader(), domain.reader());
                let mut lookup = table.reader(&mut reader);
                for step in 0..steps {
                    match (thread + step) % 4 {
                        0 => drop(lookup.update_or_insert(1, |old| old + 1, 1).unwrap()),
                        1 => _ = table.within(&other.pin()).update_or_insert(1, |old| old + 1, 1).unwrap(),
                        2 => {
                            let next = |present: Option<(&u64, &u64)>| {
                                Operation::<_>::Insert(present.map_or(0, |(_, old)| *old) + 1)
                            };
                            drop(lookup.compute(1, next).unwrap());
                        }
                        _ => {
                            if lookup.get_or_insert(1, 1).is_ok_and(|(_, inserted)| !inserted) {
                                drop(lookup.update(&1, |old| old + 1).unwrap());
                            }
                        }
                    }
                }
            });
        }
    });
    let reader = domain.reader();
    assert_eq!(table.within(&reader.pin()).get(&1), Some(&(THREADS * steps)));
}

/// A removed entry can be taken apart once, and only when no reader can hold it.
#[test]
fn a_removed_entry_is_had_back() {
    let census = Census::default();
    let domain = Domain::new();
    let table: Table<Counted, Counted> = Table::builder_in(&domain).max_len(2).build().unwrap();
    table.insert(census.value(1), census.value(10)).unwrap();
    table.insert(census.value(2), census.value(20)).unwrap();
    let (mut reader, other) = (domain.reader(), domain.reader());
    let mut lookup = table.reader(&mut reader);
    let (guard, entry) = (other.pin(), lookup.get(&1));
    let mut removed = table.remove(&1).unwrap();
    let token = removed.token();
    let removed = removed.try_into_entry().expect_err("a guard holds it");
    assert!(entry.is_some_and(|entry| entry.value().value == 10));
    drop(guard);
    domain.wait(token).unwrap();
    let (key, value) = removed.try_into_entry().expect("no reader holds it");
    assert_eq!((key.value, value.value, census.alive()), (1, 10, 4));
    // Its slot is used again.
    table.insert(census.value(3), value).unwrap();
    let held = lookup.get(&3);
    let removed = table.remove(&3).unwrap().try_into_entry().expect_err("a protected lookup holds it");
    drop(held);
    drop(removed.try_into_entry().unwrap());
    drop((key, lookup));
    assert_eq!((census.alive(), table.pending()), (2, 0));
    drop(table);
    assert_eq!(census.alive(), 0);
}
