//! Everything may be dropped in any order: the last handle frees what is left, exactly once.

use std::any::Any;
use std::cell::RefCell;
use std::mem;
use std::sync::{Arc, Mutex};

use stillpoint::rcu::{Domain, RcuCell, Reader, Reclaimer, Retired};

use crate::census::{Census, Object};
use crate::eager;

/// The `number`th order of the numbers below `count`, by the digits of `number` to mixed bases.
fn order(mut number: usize, count: usize) -> Vec<usize> {
    let mut rest: Vec<_> = (0..count).collect();
    let mut take = |left| {
        let digit = number % left;
        number /= left;
        rest.remove(digit)
    };
    (1..=count).rev().map(&mut take).collect()
}

/// The number of orders.
fn orders(count: usize) -> usize {
    (1..=count).product()
}

/// One of everything, each with its own object.
fn parts(census: &Census) -> Vec<Option<Box<dyn Any>>> {
    let domain = Domain::new();
    let cell = domain.cell(census.object());
    let replace = || cell.replace(census.object()).expect("the cell is full");

    let mut reclaimer = domain.reclaimer();
    reclaimer.retire(replace()).expect("there is room");
    let background = domain.background();
    let handle = background.retire_handle();
    handle.retire(replace()).expect("there is room");
    let retired = replace();
    let (reader, qsbr) = (domain.reader(), domain.qsbr_reader());
    mem::forget(reader.pin());

    fn part<T: 'static>(part: T) -> Option<Box<dyn Any>> {
        Some(Box::new(part))
    }
    vec![
        part(domain),
        part(cell),
        part(reader),
        part(qsbr),
        part(reclaimer),
        part(background),
        part(handle),
        part(retired),
    ]
}

#[test]
fn the_orders_differ() {
    let all: std::collections::HashSet<_> = (0..orders(5)).map(|number| order(number, 5)).collect();
    assert_eq!(all.len(), 120);
}

#[test]
fn everything_may_be_dropped_in_any_order() {
    let stride = if cfg!(miri) { 2003 } else { 1 };
    for number in (0..orders(8)).step_by(stride) {
        let order = order(number, 8);
        let census = Census::default();
        let mut parts = parts(&census);
        assert_eq!((census.freed(), census.alive()), (0, 4));
        for &index in &order {
            parts[index] = None;
        }
        assert_eq!((census.freed(), census.alive()), (4, 0), "dropped in the order {order:?}");
    }
}

#[test]
fn a_background_reclaimer_that_ran_may_be_dropped_in_any_order() {
    for number in 0..orders(4) {
        let order = order(number, 4);
        let census = Census::default();
        let domain = Domain::new();
        let cell = domain.cell(census.object());
        let mut background = domain.background();
        let handle = background.retire_handle();
        handle.retire(cell.replace(census.object()).expect("the cell is full")).expect("there is room");
        handle.stop();
        background.run();
        assert_eq!(census.freed(), 1);
        // Accepted, but nothing runs any more.
        handle.retire(cell.replace(census.object()).expect("the cell is full")).expect("there is room");

        let mut parts: [Option<Box<dyn Any>>; 4] = [
            Some(Box::new(domain)),
            Some(Box::new(cell)),
            Some(Box::new(background)),
            Some(Box::new(handle)),
        ];
        for &index in &order {
            parts[index] = None;
        }
        assert_eq!((census.freed(), census.alive()), (3, 0), "dropped in the order {order:?}");
    }
}

#[test]
fn a_cell_outlives_its_domain() {
    let census = Census::default();
    let cell = Domain::new().cell(census.object());
    let old = cell.replace(census.object()).expect("the cell is full");
    old.verify();
    old.try_free().expect("without a handle there is no reader");
    assert_eq!(census.freed(), 1);
    drop(cell.replace(census.object()));
    assert_eq!(census.freed(), 2);
    let boxed = cell.take().map(Retired::try_into_box).expect("the cell is full");
    boxed.expect("without a handle there is no reader").verify();
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_retirement_outlives_its_domain() {
    let census = Census::default();
    let domain = Domain::new();
    let old = domain.cell(census.object()).take().expect("the cell is full");
    let old = {
        let reader = domain.reader();
        let _guard = reader.pin();
        old.try_free().expect_err("a guard is held")
    };
    drop(domain);
    old.verify();
    assert_eq!(census.freed(), 0);
    drop(old);
    assert_eq!(census.freed(), 1);
}

#[test]
fn a_dropped_reclaimer_frees_nothing_that_is_held_and_another_adopts_it() {
    let census = Census::default();
    let domain = Domain::new();
    let (cell, other) = (domain.cell(census.object()), domain.cell(census.object()));
    let reader = domain.reader();
    let object = cell.protect(&reader).expect("the cell is full");
    let guard = reader.pin();
    let mut first = eager(&domain);
    first.retire(cell.take().expect("the cell is full")).expect("there is room");
    drop(first);
    drop(other.take());
    let mut second = eager(&domain);
    assert_eq!(second.poll(), 0);
    drop(second);
    drop(guard);
    let mut third = eager(&domain);
    assert_eq!(third.poll(), 1, "the one that is not protected");
    object.verify();
    drop(object);
    assert_eq!(third.poll(), 1);
    assert_eq!(census.alive(), 0);
}

struct Node {
    _object: Object,
    next: RcuCell<Node>,
}

fn node(domain: &Domain, census: &Census) -> Node {
    Node { _object: census.object(), next: RcuCell::empty_in(domain) }
}

/// Cells have weak references to their domain.
#[test]
fn pending_objects_with_cells_of_their_own_domain_form_no_cycle() {
    let census = Census::default();
    let domain = Domain::new();
    let list = domain.cell(node(&domain, &census));
    for _ in 0..10 {
        let longer = node(&domain, &census);
        let rest = list.take().expect("the list is not empty");
        let _ = longer.next.swap(Some(rest.try_into_box().ok().expect("there is no reader")));
        assert!(list.swap(Some(Box::new(longer))).is_none());
    }
    let mut reclaimer = domain.reclaimer();
    reclaimer.retire(list.take().expect("the list is not empty")).expect("there is room");
    drop((list, reclaimer));
    assert_eq!(census.freed(), 0, "there was no poll");
    drop(domain);
    assert_eq!((census.freed(), census.alive()), (11, 0));
}

#[test]
fn a_pending_object_may_own_a_reclaimer_of_another_domain() {
    let census = Census::default();
    let (domain, inner) = (Domain::new(), Domain::new());
    let mut reclaimer = inner.reclaimer();
    reclaimer.retire(inner.cell(census.object()).take().expect("the cell is full")).expect("there is room");
    drop(inner);

    let cell = domain.cell(Mutex::new(reclaimer));
    let mut outer = domain.reclaimer();
    outer.retire(cell.take().expect("the cell is full")).expect("there is room");
    assert_eq!(census.freed(), 0);
    assert_eq!(outer.poll(), 1);
    assert_eq!(census.freed(), 1, "it held the last handle of its domain");
}

#[test]
fn a_pending_object_may_own_handles_of_its_own_domain() {
    let census = Census::default();
    let domain = Domain::new();
    let cell = domain.cell((census.object(), domain.clone(), Mutex::new(domain.reclaimer())));
    let mut reclaimer = domain.reclaimer();
    reclaimer.retire(cell.take().expect("the cell is full")).expect("there is room");
    assert_eq!(reclaimer.poll(), 1);
    assert_eq!(census.alive(), 0);
}

/// Thread-local destructors run late, in an arbitrary order.
#[test]
fn handles_in_thread_locals_are_dropped_at_thread_exit() {
    thread_local! {
        static READER: RefCell<Option<Reader>> = const { RefCell::new(None) };
        static RECLAIMER: RefCell<Option<Reclaimer>> = const { RefCell::new(None) };
        static CELL: RefCell<Option<RcuCell<Object>>> = const { RefCell::new(None) };
    }
    let census = Census::default();
    let domain = Domain::new();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let cell = domain.cell(census.object());
            let mut reclaimer = eager(&domain);
            let reader = domain.reader();
            mem::forget(reader.pin());
            reclaimer
                .retire(cell.replace(census.object()).expect("the cell is full"))
                .expect("there is room");
            assert_eq!(reclaimer.poll(), 0);
            READER.set(Some(reader));
            RECLAIMER.set(Some(reclaimer));
            CELL.set(Some(cell));
        });
        // The end of the scope alone does not wait for thread-local destructors.
        thread.join().expect("it does not panic");
    });
    assert_eq!(domain.stats().readers, 0);
    assert_eq!(eager(&domain).poll(), 1, "left by the reclaimer of the thread");
    assert_eq!(census.alive(), 0);
}

/// The last handle may be dropped on any thread, even while others retire objects.
#[test]
fn objects_dropped_while_the_last_handle_goes_are_freed_once() {
    let rounds = if cfg!(miri) { 20 } else { 2000 };
    for _ in 0..rounds {
        let census = Census::default();
        let domain = Domain::new();
        let cell = Arc::new(domain.cell(census.object()));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..3 {
                    drop(cell.replace(census.object()));
                }
            });
            drop(domain);
        });
        assert_eq!((census.freed(), census.alive()), (3, 1));
    }
}
