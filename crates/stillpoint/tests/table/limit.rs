//! A table at its limit: what is there wins over "full", and a call that makes room runs few destructors.

use stillpoint::rcu::Domain;
use stillpoint::table::{Compute, Full, Operation, Set, Table, TryInsertError};

use crate::census::{Census, Counted};

/// The most destructors that a call runs.
const MOST: usize = 32;
/// Slots for replacements besides the maximum.
const SPARE: usize = 64;

/// The function that makes the value inserts the key, and so takes the last slot.
#[test]
fn a_key_that_came_meanwhile_is_found_in_a_full_table() {
    let domain = Domain::new();
    let (mut reader, other) = (domain.reader(), domain.reader());
    for guarded in [false, true] {
        let table: Table<u64, u64> = Table::builder_in(&domain).max_len(1).build().unwrap();
        let mut lookup = table.reader(&mut reader);
        let guard = other.pin();
        let view = table.within(&guard);
        let first = |value| {
            assert!(table.insert(1, value).unwrap().is_none());
            value + 1
        };
        let again = || {
            drop(table.remove(&1));
        };
        if guarded {
            // The region holds the removed entry up, and it fills the table. So there is one call.
            assert_eq!(view.get_or_insert_with(1, || first(7)), Ok((&7, false)));
            assert_eq!(view.get_or_insert(2, 9), Err(Full(2, 9)));
            assert_eq!(table.stats().refused, 1);
            continue;
        }
        drop(guard);
        let (found, is_new) = lookup.get_or_insert_with(1, || first(7)).unwrap();
        assert_eq!((*found, is_new), (7, false));
        drop(found);
        again();
        match lookup.try_insert_with(1, || first(17)) {
            Err(TryInsertError::Occupied { current, key: 1, value: Some(18) }) => assert_eq!(*current, 17),
            other => panic!("{other:?}"),
        }
        again();
        assert_eq!(*lookup.update_or_insert_with(1, |old| old + 100, || first(27)).unwrap(), 127);
        again();
        let decide = |present: Option<(&u64, &u64)>| {
            Operation::<_>::Insert(present.map_or_else(|| first(37), |(_, old)| old + 100))
        };
        match lookup.compute(1, decide).unwrap() {
            Compute::Updated { old, new } => assert_eq!((*old, *new), (37, 137)),
            other => panic!("{other:?}"),
        };
    }
    let set: Set<u64> = Table::builder_in(&domain).max_len(1).build().unwrap().into();
    assert_eq!((set.insert(1), set.insert(1)), (Ok(true), Ok(false)));
}

/// A full table whose spare slots are taken, too.
fn without_spare(domain: &Domain, census: &Census) -> Table<u64, Counted> {
    let table = Table::builder_in(domain).max_len(2).build().unwrap();
    for number in 0..2 + SPARE as u64 {
        drop(table.insert(number.min(1), census.value(number)).unwrap());
    }
    assert!(table.insert(1, census.value(0)).is_err());
    table
}

/// The function removes the entry. So there is nothing to update, and nothing that could be refused.
#[test]
fn a_key_that_went_meanwhile_is_not_refused() {
    let (domain, census) = (Domain::new(), Census::default());
    let (mut reader, holder) = (domain.reader(), domain.reader());
    let guard = holder.pin();
    let table = without_spare(&domain, &census);
    let mut lookup = table.reader(&mut reader);
    let mut calls = 0;
    let updated = lookup.update(&1, |_| {
        calls += 1;
        drop(table.remove(&1).unwrap());
        census.value(9)
    });
    assert!(updated.unwrap().is_none() && calls == 1);

    let mut seen = Vec::new();
    let done = lookup.compute(0, |present| {
        seen.push(present.is_some());
        match table.remove(&0) {
            Some(_) => Operation::Insert(census.value(9)),
            None => Operation::Abort(()),
        }
    });
    assert!(matches!(done, Ok(Compute::Aborted(()))), "{done:?}");
    assert_eq!(seen, [true, false]);
    drop(guard);
}

/// Each kind of insertion into a full table makes room by as many destructors as any other call may run.
#[test]
fn an_insertion_into_a_full_table_runs_few_destructors() {
    const ENTRIES: usize = if cfg!(miri) { 150 } else { 5_000 };
    let (domain, census) = (Domain::new(), Census::default());
    let (mut reader, holder) = (domain.reader(), domain.reader());
    let table: Table<u64, Counted> = Table::builder_in(&domain).max_len(ENTRIES).build().unwrap();
    let mut lookup = table.reader(&mut reader);
    for kind in 0..4 {
        let guard = holder.pin();
        (0..ENTRIES as u64).for_each(|key| drop(table.insert(key, census.value(key)).unwrap()));
        (0..ENTRIES as u64).for_each(|key| drop(table.remove(&key)));
        assert!(table.insert(1, census.value(1)).is_err());
        assert!(table.pending() >= ENTRIES, "old arrays may wait, too");
        drop(guard);
        for key in 0..ENTRIES as u64 / 64 {
            let (alive, made) = (census.alive(), census.made());
            match kind {
                0 => drop(table.insert(key, census.value(key)).unwrap()),
                1 => drop(lookup.get_or_insert_with(key, || census.value(key)).unwrap()),
                2 => {
                    drop(lookup.update_or_insert_with(key, |_| unreachable!(), || census.value(key)).unwrap())
                }
                _ => drop(lookup.compute(key, |_| Operation::<_>::Insert(census.value(key))).unwrap()),
            }
            let ran = alive + (census.made() - made) - census.alive();
            assert!(ran <= MOST && (key > 0 || ran > 0), "{ran} destructors in call {key} of kind {kind}");
        }
        table.clear();
        while table.pending() > 0 {
            // An idle `TableReader` pins the array that its last lookup saw.
            assert!(lookup.get(&0).is_none());
            table.poll();
        }
    }
}

/// While spare slots are owed, the slots that are freed first become spare ones: a call frees that many more.
#[test]
fn a_full_table_that_owes_spare_slots_pays_them_back_in_one_call() {
    let (domain, census) = (Domain::new(), Census::default());
    let holder = domain.reader();
    let guard = holder.pin();
    let table = without_spare(&domain, &census);
    drop(table.remove(&0));
    drop(guard);
    assert_eq!(table.pending(), SPARE + 1);
    let before = census.alive();
    assert!(table.insert(7, census.value(7)).unwrap().is_none());
    let ran = before + 1 - census.alive();
    assert!((SPARE + 1..=SPARE + MOST).contains(&ran), "{ran} destructors");
}

/// Removed entries that protected lookups hold do not hide those that can be freed.
#[test]
fn entries_that_are_held_do_not_stand_in_the_way_of_others() {
    const HELD: usize = 3 * MOST;
    let (domain, census) = (Domain::new(), Census::default());
    let table: Table<u64, Counted> = Table::builder_in(&domain).max_len(HELD + 1).build().unwrap();
    (0..=HELD as u64).for_each(|key| drop(table.insert(key, census.value(key)).unwrap()));
    let mut readers: Vec<_> = (0..HELD).map(|_| domain.reader()).collect();
    let mut lookups: Vec<_> = readers.iter_mut().map(|reader| table.reader(reader)).collect();
    let held: Vec<_> =
        lookups.iter_mut().zip(0..).map(|(lookup, key)| lookup.get(&key).expect("inserted above")).collect();
    (0..=HELD as u64).for_each(|key| drop(table.remove(&key)));
    assert!(table.insert(1_000, census.value(0)).unwrap().is_none(), "one entry is not held");
    assert!(table.insert(1_001, census.value(0)).is_err());
    drop(held);
    assert!(table.insert(1_001, census.value(0)).unwrap().is_none());
}

#[test]
fn an_empty_table_of_huge_values_says_what_it_lacks() {
    type Huge = [u8; 1 << 56];
    let error = Table::<u64, Huge>::builder_in(&Domain::new()).build().map(drop).unwrap_err().to_string();
    assert!(
        !error.contains(" 0 entries") && error.contains(&format!("{} bytes", (1_u64 << 56) + 8)),
        "{error}"
    );
}

/// What others have left to the domain is not freed in place of the table's own entry, whichever thread looks.
#[test]
fn what_others_have_left_does_not_keep_a_table_full() {
    let domain = Domain::new();
    let table: Table<u64, u64> = Table::builder_in(&domain).max_len(1).build().unwrap();
    for round in 0..16 {
        let insert_again = || {
            let reader = domain.reader();
            table.insert(round, 1).unwrap();
            let (guard, cell) = (reader.pin(), domain.cell(0));
            (0..200).for_each(|number| drop(cell.replace(number)));
            drop(table.remove(&round));
            drop(guard);
            table.insert(round, 2).expect("the entry can be freed");
            drop(table.remove(&round));
        };
        std::thread::scope(|scope| scope.spawn(insert_again).join().unwrap());
    }
}
