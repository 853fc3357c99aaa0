//! `compare_exchange`, and objects that are turned back into boxes.

use std::ptr;
use std::thread;

use stillpoint::rcu::{Domain, RcuArray, RcuCell};

use crate::census::Census;
use crate::{eager, with_cell};

#[test]
fn an_exchange_succeeds_for_the_very_object_alone() {
    let domain = Domain::new();
    let (cell, twin) = (domain.cell(1), domain.cell(1));
    let reader = domain.reader();
    let guard = reader.pin();
    for current in [twin.load(&guard), Some(&1), None] {
        let error = cell.compare_exchange(current, Some(Box::new(2))).expect_err("equal, but not the same");
        assert_eq!(error.new, Some(Box::new(2)), "handed back");
        assert_eq!(error.to_string(), "the link did not hold the expected pointer");
    }
    let old =
        cell.compare_exchange(cell.load(&guard), Some(Box::new(2))).expect("it holds the expected object");
    assert_eq!(old.as_deref(), Some(&1));
    assert_eq!(cell.load(&guard), Some(&2));
}

#[test]
fn an_exchange_fills_and_empties_a_cell() {
    let domain = Domain::new();
    let cell = RcuCell::<u32>::empty_in(&domain);
    let reader = domain.reader();
    let guard = reader.pin();
    assert!(cell
        .compare_exchange(None, None)
        .expect("an empty cell may be exchanged for an empty one")
        .is_none());
    assert!(cell.compare_exchange(None, Some(Box::new(1))).expect("it is empty").is_none());
    assert!(cell.compare_exchange(None, Some(Box::new(2))).is_err(), "it is full");
    let old = cell.compare_exchange(cell.load(&guard), None).expect("it holds the expected object");
    assert_eq!(old.as_deref(), Some(&1));
    assert!(cell.load(&guard).is_none());
}

#[test]
fn a_protected_object_serves_as_the_expected_one() {
    let domain = Domain::new();
    let array = RcuArray::new_in(&domain, 2, |index| Some(Box::new(index)));
    let reader = domain.reader();
    let object = array.protect(1, &reader);
    let old = array.compare_exchange(1, object.as_deref(), None).expect("it holds the expected object");
    assert_eq!(old.as_deref(), Some(&1));
    assert!(array.compare_exchange(1, object.as_deref(), None).is_err(), "it is no longer linked");
    assert!(array.compare_exchange(0, object.as_deref(), None).is_err(), "it never was linked here");
    drop(object);
}

/// It returns an address, which may go to other threads, or a reference within a region.
#[test]
fn an_exchange_that_fails_tells_what_it_found() {
    fn assert_send_and_sync(_: &(impl Send + Sync + 'static)) {}

    let domain = Domain::new();
    let (cell, empty) = (domain.cell(1), RcuCell::empty_in(&domain));
    let array = RcuArray::new_in(&domain, 2, |index| (index == 1).then(|| Box::new(5)));
    let (reader, qsbr) = (domain.reader(), domain.qsbr_reader());
    let guard = reader.pin();
    let address = |object: Option<&i32>| object.map_or(0, |object| ptr::from_ref(object).addr());

    let error = cell.compare_exchange(None, Some(Box::new(2))).expect_err("it is full");
    assert_eq!(error.found, address(cell.load(&guard)));
    assert_send_and_sync(&error);
    assert_eq!(empty.compare_exchange(cell.load(&guard), None).expect_err("it is empty").found, 0);
    let error = array.compare_exchange(1, None, None).expect_err("it is full");
    assert_eq!(error.found, address(array.load(1, &guard)));

    let error = cell.compare_exchange_in(&guard, None, Some(Box::new(2))).expect_err("it is full");
    assert_eq!((error.found, error.new), (Some(&1), Some(Box::new(2))));
    assert_eq!(address(error.found), address(cell.load(&guard)));
    let error = empty.compare_exchange_in(&qsbr, cell.load(&qsbr), None).expect_err("it is empty");
    assert_eq!(error.found, None);
    let error = array.compare_exchange_in(1, &guard, None, None).expect_err("it is full");
    assert_eq!(error.found, Some(&5));

    let found = error.found;
    let old =
        array.compare_exchange_in(1, &guard, found, Some(Box::new(6))).expect("it holds the expected object");
    assert_eq!((old.as_deref(), array.load(1, &guard), found), (Some(&5), Some(&6), Some(&5)));
    assert!(empty.compare_exchange_in(&guard, None, Some(Box::new(7))).expect("it is empty").is_none());
    assert_eq!(empty.load(&guard), Some(&7));
}

/// The object that was found is not freed within the region, although it is replaced at once.
#[test]
fn what_an_exchange_found_stays_alive_within_the_region() {
    let domain = Domain::new();
    let (census, cell, mut reclaimer) = with_cell(&domain);
    let reader = domain.reader();
    let guard = reader.pin();
    let found = cell.compare_exchange_in(&guard, None, None).expect_err("it is full").found;
    reclaimer.retire(cell.take().expect("it is full")).expect("there is room");
    assert_eq!(reclaimer.poll(), 0);
    found.expect("it was full").verify();
    drop(guard);
    assert_eq!((reclaimer.poll(), census.freed()), (1, 1));
}

/// ABA: the object is replaced and freed, and its memory is used again, while another thread still compares with it.
#[test]
fn an_address_is_not_used_again_while_somebody_compares_with_it() {
    let replacements = if cfg!(miri) { 20 } else { 1000 };
    let (domain, census) = (Domain::new(), Census::default());
    let cell = domain.cell(census.object());
    let reader = domain.reader();
    let guard = reader.pin();
    let protected = cell.protect(&reader);
    let seen = cell.load(&guard);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut reclaimer = eager(&domain);
            for _ in 0..replacements {
                reclaimer.retire(cell.replace(census.object()).expect("never empty")).expect("there is room");
                assert_eq!(reclaimer.poll(), 0, "a guard is held");
            }
        });
    });
    let new = Some(Box::new(census.object()));
    let error = cell.compare_exchange(seen, new).expect_err("it was replaced many times");
    drop(guard);
    // A protected load is also enough to keep the address.
    let mut reclaimer = eager(&domain);
    while reclaimer.poll() > 0 {}
    assert_eq!(reclaimer.pending(), 1);
    for _ in 0..replacements {
        reclaimer.retire(cell.replace(census.object()).expect("never empty")).expect("there is room");
        reclaimer.poll();
    }
    assert!(cell.compare_exchange(protected.as_deref(), error.new).is_err());
}

#[test]
fn exchanges_of_many_threads_lose_no_update() {
    let (threads, rounds) = (4, if cfg!(miri) { 20 } else { 5000 });
    let domain = Domain::new();
    let counter = domain.cell(0_u64);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let reader = domain.reader();
                let mut reclaimer = domain.reclaimer();
                for _ in 0..rounds {
                    let old = loop {
                        let current = counter.protect(&reader).expect("never empty");
                        let next = Box::new(*current + 1);
                        if let Ok(old) = counter.compare_exchange(Some(&current), Some(next)) {
                            break old.expect("never empty");
                        }
                    };
                    reclaimer.retire(old).expect("nothing is held up for long");
                    reclaimer.poll();
                }
            });
        }
    });
    assert_eq!(counter.into_inner(), Some(Box::new(threads * rounds)));
}

#[test]
fn a_box_is_handed_out_only_when_nobody_reads() {
    let (domain, census) = (Domain::new(), Census::default());
    let cell = domain.cell(census.object());
    let reader = domain.reader();
    let object = cell.protect(&reader);
    let guard = reader.pin();
    let old = cell.take().expect("the cell is full").try_into_box().expect_err("a guard is held");
    drop(guard);
    let old = old.try_into_box().expect_err("it is protected");
    drop(object);
    let boxed = old.try_into_box().expect("there is no reader");
    assert_eq!(census.freed(), 0);
    assert!(cell.swap(Some(boxed)).is_none(), "linked once more");
    cell.load(&reader.pin()).expect("the cell is full").verify();
    drop(cell);
    assert_eq!((census.freed(), census.alive()), (1, 0));
}

/// The grace period starts with the first attempt, so a later attempt does not wait for readers that came since.
#[test]
fn a_later_attempt_does_not_wait_for_later_readers() {
    let (domain, census) = (Domain::new(), Census::default());
    let cell = domain.cell(census.object());
    let (first, second) = (domain.reader(), domain.reader());
    let early = first.pin();
    let old = cell.take().expect("the cell is full").try_free().expect_err("a guard is held");
    let late = second.pin();
    drop(early);
    assert!(old.try_free().is_ok());
    drop(late);
}

/// The token is the same however often it is asked for, and whichever call asks first.
#[test]
fn a_retired_object_has_one_grace_period() {
    let domain = Domain::new();
    let cell = domain.cell(1);
    let reader = domain.reader();
    let guard = reader.pin();
    let mut old = cell.take().expect("the cell is full");
    let token = old.token(&domain);
    assert_eq!(old.token(&domain), token);
    let mut old = old.try_free().expect_err("a guard is held");
    assert_eq!((old.token(&domain), domain.stats().grace_periods), (token, 1));
    drop(guard);
    assert!(old.try_free().is_ok() && domain.check(token));
}

/// A reader that comes back online in any way holds what it loads.
#[test]
fn a_reader_that_has_been_offline_holds_what_it_loads() {
    let (domain, census) = (Domain::new(), Census::default());
    let mut reclaimer = eager(&domain);
    let mut reader = domain.qsbr_reader();
    for round in 0..2 {
        let cell = domain.cell(census.object());
        if round == 0 {
            reader = reader.go_offline().go_online();
        } else {
            reader.offline(|| ());
        }
        let object = cell.load(&reader).expect("never empty");
        // A fresh object, so that the cell is not dropped while it is borrowed.
        reclaimer.retire(cell.replace(census.object()).expect("never empty")).expect("there is room");
        assert_eq!(reclaimer.poll(), 0, "round {round}: the reader is online");
        object.verify();
        reader.quiescent();
        assert_eq!(reclaimer.poll(), 1);
    }
}

#[test]
fn exclusive_access_needs_no_grace_period() {
    let (domain, census) = (Domain::new(), Census::default());
    let mut cell = domain.cell((census.object(), 1));
    cell.get_mut().expect("the cell is full").1 = 2;
    let boxed = cell.into_inner().expect("the cell is full");
    assert_eq!((boxed.1, census.freed()), (2, 0));
    assert!(RcuCell::<u32>::empty_in(&domain).get_mut().is_none());
    assert!(RcuCell::<u32>::empty_in(&domain).into_inner().is_none());
    let mut array = RcuArray::new_in(&domain, 2, |index| (index == 1).then(|| Box::new(5)));
    assert_eq!((array.get_mut(0).copied(), array.get_mut(1).copied()), (None, Some(5)));
}
