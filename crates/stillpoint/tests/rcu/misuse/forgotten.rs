//! `mem::forget` and `Box::leak`: forgotten values keep what they protect, and nothing is freed too early.

use std::mem;

use stillpoint::rcu::{Domain, RcuCell, Reader};

use crate::census::{Census, Object};
use crate::{eager, SHORT};

fn replace(cell: &RcuCell<Object>, census: &Census) -> stillpoint::rcu::Retired<Object> {
    cell.replace(census.object()).expect("the cell is never empty here")
}

#[test]
fn what_is_forgotten_holds_up_what_it_protects_until_its_reader_is_dropped() {
    type Forget = fn(&Reader, &RcuCell<Object>);
    let ways: [(&str, usize, Forget); 4] = [
        ("a guard, and a nested one is dropped", 11, |reader, _| {
            mem::forget(reader.pin());
            drop(reader.pin()); // it does not end the region of the one forgotten
        }),
        ("nested guards", 11, |reader, _| {
            let _outer = reader.pin();
            (0..10).for_each(|_| mem::forget(reader.pin()));
        }),
        ("a protected load", 1, |reader, cell| mem::forget(cell.protect(reader))),
        ("nothing", 0, |_, _| ()),
    ];
    for (what, held, forget) in ways {
        let (domain, census) = (Domain::new(), Census::default());
        let cell = domain.cell(census.object());
        let (mut reclaimer, reader) = (eager(&domain), domain.reader());
        forget(&reader, &cell);
        for _ in 0..11 {
            reclaimer.retire(replace(&cell, &census)).expect("there is room");
        }
        assert_eq!((reclaimer.poll(), reclaimer.pending()), (11 - held, held), "{what}");
        cell.load(&reader.pin()).expect("never empty").verify();
        assert_eq!(reclaimer.poll(), 0, "{what}");
        drop(reader);
        assert_eq!(reclaimer.poll(), held, "{what}");
        reclaimer.retire(replace(&cell, &census)).expect("there is room");
        assert_eq!((reclaimer.poll(), census.alive()), (1, 1), "{what}: everything flows again");
    }
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
fn a_qsbr_reader_holds_its_domain_up_and_no_other_until_it_is_dropped() {
    for is_forgotten in [true, false] {
        let (domain, other, census) = (Domain::new(), Domain::new(), Census::default());
        let (cell, elsewhere) = (domain.cell(census.object()), other.cell(census.object()));
        let reader = domain.qsbr_reader();
        let (mut here, mut there) = (eager(&domain), eager(&other));
        here.retire(replace(&cell, &census)).expect("there is room");
        there.retire(replace(&elsewhere, &census)).expect("there is room");
        assert_eq!((here.poll(), there.poll()), (0, 1), "{is_forgotten}");
        assert!(here.flush_timeout(SHORT).is_err(), "{is_forgotten}");
        if is_forgotten {
            mem::forget(reader);
        } else {
            drop(reader);
        }
        assert_eq!(here.poll(), usize::from(!is_forgotten), "{is_forgotten}");
    }
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
