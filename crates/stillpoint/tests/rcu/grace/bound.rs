//! Bound arrays, which are arrays as one reader sees them, follow the same rules.

use std::mem;
use std::panic::{catch_unwind, AssertUnwindSafe};

use stillpoint::rcu::{Domain, RcuArray, Reclaimer};

use crate::census::{Census, Object};
use crate::eager;
use crate::modes::in_each_mode;

/// A domain's array with objects in all of its slots but the last one, and a writer that replaces them.
struct Setting {
    census: Census,
    array: RcuArray<Object>,
    reclaimer: Reclaimer,
}

impl Setting {
    fn new(domain: &Domain) -> Self {
        let census = Census::default();
        let array = RcuArray::new_in(domain, 4, |index| (index < 3).then(|| Box::new(census.object())));
        Self { census, array, reclaimer: eager(domain) }
    }
}

/// Retires what is at `index`, and returns how many objects can be freed then.
fn replace(array: &RcuArray<Object>, census: &Census, reclaimer: &mut Reclaimer, index: usize) -> usize {
    let old = array.swap(index, Some(Box::new(census.object()))).expect("the slot is full");
    reclaimer.retire(old).expect("there is room");
    reclaimer.poll()
}

#[test]
fn a_bound_protected_load_holds_up_its_object_alone() {
    in_each_mode(|domain| {
        let Setting { census, array, mut reclaimer } = Setting::new(&domain);
        let mut reader = domain.reader();
        let mut bound = array.bind(&mut reader);
        for index in [0, 1, 2, 0] {
            let object = bound.protect(index).expect("the slot is full");
            assert_eq!(replace(&array, &census, &mut reclaimer, index), 0);
            assert_eq!(replace(&array, &census, &mut reclaimer, index), 1);
            object.verify();
            drop(object);
            assert_eq!(reclaimer.poll(), 1);
        }
        assert!(bound.protect(3).is_none());
        assert_eq!(census.alive(), 3);
    });
}

#[test]
fn a_bound_guard_holds_up_everything_retired_since() {
    in_each_mode(|domain| {
        let Setting { census, array, mut reclaimer } = Setting::new(&domain);
        let other = domain.cell(census.object());
        let mut reader = domain.reader();
        let mut bound = array.bind(&mut reader);
        for _ in 0..3 {
            let guard = bound.pin();
            let object = guard.load(0).expect("the slot is full");
            let elsewhere = other.load(&guard).expect("the cell is full");
            assert_eq!(replace(&array, &census, &mut reclaimer, 0), 0);
            assert_eq!(replace(&array, &census, &mut reclaimer, 1), 0);
            object.verify();
            elsewhere.verify();
            assert!(guard.load(3).is_none());
            drop(guard);
            assert_eq!(reclaimer.poll(), 2);
        }
    });
}

#[test]
fn a_bound_qsbr_reader_holds_up_everything_retired_since_its_quiescent_state() {
    in_each_mode(|domain| {
        let Setting { census, array, mut reclaimer } = Setting::new(&domain);
        let other = domain.cell(census.object());
        let mut reader = domain.qsbr_reader();
        let mut bound = array.bind_qsbr(&mut reader);
        for _ in 0..3 {
            let object = bound.load(0).expect("the slot is full");
            let elsewhere = other.load(&bound).expect("the cell is full");
            assert_eq!(replace(&array, &census, &mut reclaimer, 0), 0);
            object.verify();
            elsewhere.verify();
            bound.quiescent();
            assert_eq!(reclaimer.poll(), 1);
        }
        assert_eq!(bound.offline(|| replace(&array, &census, &mut reclaimer, 1)), 1);
        let panic =
            catch_unwind(AssertUnwindSafe(|| bound.offline(|| std::panic::resume_unwind(Box::new(7)))));
        assert!(panic.is_err());
        assert!(bound.load(1).is_some());
        assert_eq!(replace(&array, &census, &mut reclaimer, 1), 0, "it is back online");
        drop(reader);
        assert_eq!(reclaimer.poll(), 1);
    });
}

/// Objects that were forgotten earlier are out of reach, so their slots are used again.
#[test]
fn a_forgotten_protected_load_does_no_harm_to_a_bound_array() {
    in_each_mode(|domain| {
        let Setting { census, array, mut reclaimer } = Setting::new(&domain);
        let mut reader = domain.reader();
        mem::forget(array.protect(0, &reader));
        let mut bound = array.bind(&mut reader);
        mem::forget(bound.protect(0));
        let object = bound.protect(1).expect("the slot is full");
        for _ in 0..3 {
            replace(&array, &census, &mut reclaimer, 1);
            object.verify();
        }
        drop(object);
        assert!(census.freed() >= 2);
        drop(reader);
        reclaimer.flush().expect("nothing is in the way");
        assert_eq!((census.freed(), census.alive()), (3, 3));
    });
}

/// Forgotten guards may hold objects up until the end of the reader. They must not let an object be freed too early.
#[test]
fn forgotten_guards_do_no_harm_to_a_bound_array() {
    in_each_mode(|domain| {
        let Setting { census, array, mut reclaimer } = Setting::new(&domain);
        let mut reader = domain.reader();
        mem::forget(reader.pin());
        mem::forget(reader.pin());
        let mut bound = array.bind(&mut reader);
        mem::forget(bound.pin());
        let guard = bound.pin();
        let object = guard.load(0).expect("the slot is full");
        assert_eq!(replace(&array, &census, &mut reclaimer, 0), 0);
        object.verify();
        drop(guard);
        let (outer, inner) = (reader.pin(), reader.pin());
        let object = array.load(1, &outer).expect("the slot is full");
        drop(inner);
        replace(&array, &census, &mut reclaimer, 1);
        replace(&array, &census, &mut reclaimer, 1);
        object.verify();
        drop(outer);
        drop(reader);
        reclaimer.flush().expect("nothing is in the way");
        assert_eq!((census.freed(), census.alive()), (3, 3));
    });
}

#[test]
fn a_reader_is_as_good_as_before_when_it_is_no_longer_bound() {
    in_each_mode(|domain| {
        let Setting { census, array, mut reclaimer } = Setting::new(&domain);
        let mut reader = domain.reader();
        for _ in 0..3 {
            drop(array.bind(&mut reader).protect(0));
            drop(array.bind(&mut reader).pin());
            assert_eq!(replace(&array, &census, &mut reclaimer, 0), 1);
            let guard = reader.pin();
            assert_eq!(replace(&array, &census, &mut reclaimer, 0), 0);
            drop(guard);
            assert_eq!(reclaimer.poll(), 1);
        }
    });
}
