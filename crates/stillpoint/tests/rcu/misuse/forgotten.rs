//! `mem::forget` and `Box::leak`: forgotten values keep what they protect, and nothing is freed too early.

use std::mem;

use stillpoint::rcu::{Domain, RcuCell};

use crate::census::{Census, Object};
use crate::{eager, SHORT};

fn replace(cell: &RcuCell<Object>, census: &Census) -> stillpoint::rcu::Retired<Object> {
    cell.replace(census.object()).expect("the cell is never empty here")
}

#[test]
fn a_forgotten_guard_holds_everything_up_until_its_reader_is_dropped() {
    let (domain, census) = (Domain::new(), Census::default());
    let cell = domain.cell(census.object());
    let mut reclaimer = eager(&domain);
    let reader = domain.reader();

    mem::forget(reader.pin());
    drop(reader.pin()); // a nested one: it does not end the region of the one forgotten
    reclaimer.retire(replace(&cell, &census)).expect("there is room");
    assert_eq!(reclaimer.poll(), 0);
    cell.load(&reader.pin()).expect("never empty").verify();
    assert_eq!(reclaimer.poll(), 0);

    drop(reader);
    assert_eq!(reclaimer.poll(), 1);
    reclaimer.retire(replace(&cell, &census)).expect("there is room");
    assert_eq!(reclaimer.poll(), 1, "everything flows again");
}

#[test]
fn forgotten_nested_guards_hold_everything_up_until_their_reader_is_dropped() {
    let (domain, census) = (Domain::new(), Census::default());
    let cell = domain.cell(census.object());
    let mut reclaimer = eager(&domain);
    let reader = domain.reader();
    let outer = reader.pin();
    for _ in 0..10 {
        mem::forget(reader.pin());
    }
    drop(outer);
    reclaimer.retire(replace(&cell, &census)).expect("there is room");
    assert_eq!(reclaimer.poll(), 0);
    drop(reader);
    assert_eq!(reclaimer.poll(), 1);
}

#[test]
fn a_forgotten_protected_holds_its_object_alone_until_its_reader_is_dropped() {
    let (domain, census) = (Domain::new(), Census::default());
    let cell = domain.cell(census.object());
    let mut reclaimer = eager(&domain);
    let reader = domain.reader();

    mem::forget(cell.protect(&reader));
    reclaimer.retire(replace(&cell, &census)).expect("there is room");
    for _ in 0..10 {
        reclaimer.retire(replace(&cell, &census)).expect("there is room");
    }
    assert_eq!(reclaimer.poll(), 10);
    assert_eq!(reclaimer.pending(), 1);

    drop(reader);
    assert_eq!(reclaimer.poll(), 1);
    assert_eq!(census.alive(), 1, "the one in the cell");
}

#[test]
fn any_number_of_forgotten_protected_loads_ends_with_their_reader() {
    let (domain, census) = (Domain::new(), Census::default());
    let cells: Vec<_> = (0..100).map(|_| domain.cell(census.object())).collect();
    let mut reclaimer = eager(&domain);
    let reader = domain.reader();
    for cell in &cells {
        mem::forget(cell.protect(&reader));
        reclaimer.retire(cell.take().expect("it was full")).expect("there is room");
    }
    assert_eq!(reclaimer.poll(), 0);
    drop(reader);
    assert_eq!(reclaimer.poll(), 100);

    // The next reader reuses the slots, and holds nothing.
    let _reader = domain.reader();
    let cell = domain.cell(census.object());
    reclaimer.retire(cell.take().expect("it was full")).expect("there is room");
    assert_eq!(reclaimer.poll(), 1);
}

#[test]
fn a_forgotten_reader_that_holds_nothing_holds_nothing_up() {
    let (domain, census) = (Domain::new(), Census::default());
    let cell = domain.cell(census.object());
    mem::forget(domain.reader());
    let mut reclaimer = eager(&domain);
    reclaimer.retire(replace(&cell, &census)).expect("there is room");
    assert_eq!(reclaimer.poll(), 1);
    assert_eq!(domain.stats().readers, 1);
}

/// A reader and a guard that live for ever return references that live for ever.
#[test]
fn what_a_leaked_guard_refers_to_is_never_freed() {
    let (domain, census) = (Domain::new(), Census::default());
    let cell: &'static RcuCell<Object> = Box::leak(Box::new(domain.cell(census.object())));
    let object: &'static Object = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let reader: &'static _ = Box::leak(Box::new(domain.reader()));
            let guard: &'static _ = Box::leak(Box::new(reader.pin()));
            cell.load(guard).expect("the cell is full")
        });
        thread.join().expect("it does not panic")
    });

    let mut reclaimer = eager(&domain);
    reclaimer.retire(replace(cell, &census)).expect("there is room");
    assert_eq!(reclaimer.poll(), 0);
    drop(reclaimer);
    drop(domain);
    object.verify();
    assert_eq!(census.freed(), 0);
}

#[test]
fn what_a_leaked_protected_refers_to_is_never_freed() {
    let (domain, census) = (Domain::new(), Census::default());
    let cell: &'static RcuCell<Object> = Box::leak(Box::new(domain.cell(census.object())));
    let reader: &'static _ = Box::leak(Box::new(domain.reader()));
    let object: &'static Object = Box::leak(Box::new(cell.protect(reader).expect("the cell is full")));

    let mut reclaimer = eager(&domain);
    reclaimer.retire(replace(cell, &census)).expect("there is room");
    reclaimer.retire(replace(cell, &census)).expect("there is room");
    assert_eq!(reclaimer.poll(), 1, "the second one, which is not held");
    drop(reclaimer);
    drop(domain);
    object.verify();
}

#[test]
fn a_forgotten_qsbr_reader_holds_its_domain_up_and_no_other() {
    let (domain, other, census) = (Domain::new(), Domain::new(), Census::default());
    let (cell, elsewhere) = (domain.cell(census.object()), other.cell(census.object()));
    mem::forget(domain.qsbr_reader());
    let (mut here, mut there) = (eager(&domain), eager(&other));
    here.retire(replace(&cell, &census)).expect("there is room");
    there.retire(replace(&elsewhere, &census)).expect("there is room");
    assert_eq!(here.poll(), 0);
    assert_eq!(there.poll(), 1);
    assert!(here.flush_timeout(SHORT).is_err());
}

#[test]
fn a_dropped_qsbr_reader_holds_nothing_up() {
    let (domain, census) = (Domain::new(), Census::default());
    let cell = domain.cell(census.object());
    let reader = domain.qsbr_reader();
    let mut reclaimer = eager(&domain);
    reclaimer.retire(replace(&cell, &census)).expect("there is room");
    assert_eq!(reclaimer.poll(), 0);
    drop(reader);
    assert_eq!(reclaimer.poll(), 1);
}

#[test]
fn a_forgotten_retirement_leaks_its_object_alone() {
    let (domain, census) = (Domain::new(), Census::default());
    let cell = domain.cell(census.object());
    mem::forget(replace(&cell, &census));
    let mut reclaimer = eager(&domain);
    reclaimer.retire(replace(&cell, &census)).expect("there is room");
    assert_eq!(reclaimer.poll(), 1);
    drop((cell, reclaimer, domain));
    assert_eq!((census.freed(), census.alive()), (2, 1));
}

#[test]
fn a_forgotten_reclaimer_leaks_what_it_holds_and_holds_nothing_else_up() {
    let (domain, census) = (Domain::new(), Census::default());
    let cell = domain.cell(census.object());
    let mut lost = eager(&domain);
    lost.retire(replace(&cell, &census)).expect("there is room");
    mem::forget(lost);
    let mut reclaimer = eager(&domain);
    reclaimer.retire(replace(&cell, &census)).expect("there is room");
    assert_eq!(reclaimer.poll(), 1);
    assert_eq!(census.freed(), 1);
}
