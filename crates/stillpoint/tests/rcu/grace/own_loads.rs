//! Waits for an object that the calling thread itself holds in a protected load.

use std::sync::mpsc;
use std::thread;

use stillpoint::rcu::wait::{ReaderKind, SynchronizeError};
use stillpoint::rcu::Domain;

use super::holding::{Holder, Kind};
use crate::census::Census;
use crate::ending::Ending;
use crate::{eager, LONG};

fn is_own_load(error: &SynchronizeError) -> bool {
    matches!(error, SynchronizeError::WouldDeadlock { reader: ReaderKind::ProtectedLoad, .. })
}

#[test]
fn a_wait_for_a_protected_load_of_the_caller_is_an_error() {
    let (domain, census) = (Domain::new(), Census::default());
    let (cell, other) = (domain.cell(census.object()), domain.cell(census.object()));
    let reader = domain.reader();
    let object = cell.protect(&reader).expect("never empty");
    let retired = cell.take().expect("never empty");
    // Objects that the thread does not hold are freed as usual.
    let replaced = || other.replace(census.object()).expect("never empty");
    replaced().free().expect("it is not held");
    replaced().free_timeout(LONG).expect("it is not held");
    let error = retired.free().expect_err("this thread holds it");
    assert!(is_own_load(error.cause()), "{error}");
    assert!(error.to_string().contains("release the protected object first"), "{error}");
    let error = error.into_inner().free_timeout(LONG).expect_err("this thread holds it");
    assert!(is_own_load(error.cause()), "{error}");

    let mut reclaimer = eager(&domain);
    reclaimer.retire(error.into_inner()).expect("there is room");
    reclaimer.retire(other.take().expect("never empty")).expect("there is room");
    let before = census.freed();
    assert!(is_own_load(&reclaimer.flush().expect_err("this thread holds one")));
    assert_eq!((census.freed(), reclaimer.pending()), (before + 1, 1), "the other one is freed");
    assert!(is_own_load(&reclaimer.flush_timeout(LONG).expect_err("this thread holds one")));
    drop(object);
    reclaimer.flush().expect("it is not held");
    assert_eq!(census.alive(), 0);
}

/// The writer waits for another thread's load, and notices its release, although nothing signals it.
#[test]
fn a_wait_for_a_protected_load_of_another_thread_ends_with_it() {
    let (domain, census) = (Domain::new(), Census::default());
    for is_flushed in [false, true] {
        let cell = domain.cell(census.object());
        let (held, is_held) = std::sync::mpsc::channel();
        let (release, to_release) = std::sync::mpsc::channel::<()>();
        thread::scope(|scope| {
            let (domain, cell) = (&domain, &cell);
            scope.spawn(move || {
                let reader = domain.reader();
                let object = cell.protect(&reader).expect("never empty");
                held.send(()).expect("the test waits for it");
                let _ = to_release.recv();
                drop(object);
            });
            is_held.recv().expect("the thread runs");
            let retired = cell.take().expect("never empty");
            let waits = scope.spawn(move || {
                if is_flushed {
                    let mut reclaimer = eager(domain);
                    reclaimer.retire(retired).expect("there is room");
                    reclaimer.flush().expect("it is released");
                } else {
                    retired.free().expect("it is released");
                }
            });
            drop(release);
            waits.join().expect("it does not panic");
        });
        assert_eq!(census.alive(), 0);
    }
}

#[test]
fn a_background_reclaimer_does_not_wait_for_its_own_thread() {
    let (domain, census) = (Domain::new(), Census::default());
    let (cell, other) = (domain.cell(census.object()), domain.cell(census.object()));
    let mut background = domain.background();
    let handle = background.retire_handle();
    let reader = domain.reader();
    let object = cell.protect(&reader).expect("never empty");
    for cell in [&cell, &other] {
        handle.retire(cell.take().expect("never empty")).expect("there is room");
    }
    handle.stop();
    background.run();
    assert_eq!(
        (census.freed(), handle.pending(), domain.stats().pending),
        (1, 0, 1),
        "the domain has the other one"
    );
    drop(object);
    background.run();
    assert_eq!((census.freed(), domain.stats().pending), (2, 0));
}

/// It does not matter how many other objects are held by others: one own load is enough for a wait without end.
#[test]
fn a_load_of_the_caller_is_an_error_beside_those_of_others() {
    let (domain, census) = (Domain::new(), Census::default());
    let (cell, other) = (domain.cell(census.object()), domain.cell(census.object()));
    let reader = domain.reader();
    let object = cell.protect(&reader);
    let mut reclaimer = eager(&domain);
    thread::scope(|scope| {
        let holder = Holder::start(scope, &domain, &other, Kind::Protected);
        reclaimer.retire(cell.take().expect("never empty")).expect("there is room");
        reclaimer.retire(other.take().expect("never empty")).expect("there is room");
        assert!(is_own_load(&reclaimer.flush_timeout(LONG).expect_err("this thread holds one")));
        assert_eq!((census.freed(), reclaimer.pending()), (0, 2));
        holder.release();
    });
    drop(object);
    reclaimer.flush().expect("they are not held");
    assert_eq!(census.alive(), 0);
}

/// Runs a background reclaimer during a test.
fn while_reclaimed(domain: &Domain, test: impl FnOnce()) {
    let mut background = domain.background();
    let handle = background.retire_handle();
    thread::scope(|scope| {
        scope.spawn(move || background.run());
        let _ending = Ending(|| handle.abandon());
        test();
    });
}

/// The background reclaimer takes over what was left to the domain, and it alone knows what it has.
#[test]
fn a_barrier_that_would_wait_for_a_protected_load_of_the_caller_is_an_error() {
    let (domain, census) = (Domain::new(), Census::default());
    let cell = domain.cell(census.object());
    let reader = domain.reader();
    while_reclaimed(&domain, || {
        let object = cell.protect(&reader);
        drop(cell.replace(census.object())); // left to the domain
        assert!(is_own_load(&domain.barrier().expect_err("this thread holds one")));
        assert!(is_own_load(&domain.barrier_timeout(LONG).expect_err("this thread holds one")));
        drop(object);
        domain.barrier().expect("nothing is in the way");
        assert_eq!(census.freed(), 1);
    });
}

/// A load of an object that is linked, or that a barrier does not wait for, is in nobody's way.
#[test]
fn a_barrier_waits_for_the_loads_of_others_beside_a_load_of_the_caller() {
    let (domain, census) = (Domain::new(), Census::default());
    let (linked, other) = (domain.cell(census.object()), domain.cell(census.object()));
    let reader = domain.reader();
    let own = linked.protect(&reader);
    let object = other.protect_owned();
    while_reclaimed(&domain, || {
        drop(other.replace(census.object())); // left to the domain
        while domain.stats().pinned == 0 {
            thread::yield_now();
        }
        let error = domain.barrier_timeout(crate::SHORT).expect_err("another thread could release it");
        assert!(matches!(error, SynchronizeError::Pinned { objects: 1, owned: 1, .. }), "{error}");
        let waits = thread::scope(|scope| {
            let waits = scope.spawn(|| domain.barrier());
            drop(object);
            waits.join().expect("it does not panic")
        });
        waits.expect("it is released");
        assert_eq!(census.freed(), 1);
    });
    drop(own);
}

/// Each barrier would wait for an object that the other one's thread holds.
#[test]
fn a_barrier_that_another_barrier_of_the_callers_waits_for_is_an_error() {
    let (domain, census) = (Domain::new(), Census::default());
    let cells = [(); 2].map(|()| domain.cell(census.object()));
    let reader = domain.reader();
    let own = cells[0].protect(&reader);
    thread::scope(|scope| {
        let (sender, is_held) = mpsc::channel();
        let (domain, cells, census) = (&domain, &cells, &census);
        let other = scope.spawn(move || {
            let reader = domain.reader();
            let _held = cells[1].protect(&reader);
            drop(cells[0].replace(census.object())); // left to the domain
            sender.send(()).expect("the test waits");
            domain.barrier()
        });
        is_held.recv().expect("the other thread sends");
        while domain.stats().pinned == 0 {
            thread::yield_now();
        }
        drop(cells[1].replace(census.object()));
        let error = domain.barrier_timeout(LONG).expect_err("the other barrier waits for this thread");
        assert!(is_own_load(&error), "{error}");
        drop(own);
        other.join().expect("it does not panic").expect("nothing is in the way");
    });
}

/// It has no room for what was left to the domain, and will have none.
#[test]
fn a_background_reclaimer_that_is_full_of_what_its_thread_holds_returns() {
    let (domain, census) = (Domain::new(), Census::default());
    let (cell, reader) = (domain.cell(census.object()), domain.reader());
    let own = cell.protect(&reader);
    let mut background = domain.reclaimer_builder().max_pending(1).build_background();
    let handle = background.retire_handle();
    handle.retire(cell.take().expect("it is full")).expect("there is room");
    drop(domain.cell(census.object()).take()); // left to the domain
    handle.stop();
    background.run();
    assert_eq!(census.freed(), 0);
    drop((own, background));
    domain.barrier().expect("nothing is in the way");
    assert_eq!(census.freed(), 2);
}
