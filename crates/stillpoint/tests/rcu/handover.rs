//! Retired objects are freed: by a full reclaimer, by one that is dropped meanwhile, and when the domain is gone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Barrier;
use std::thread;

use stillpoint::rcu::{Domain, Retired};

fn retired(domain: &Domain) -> Retired<u64> {
    domain.cell(7).take().expect("the cell is full")
}

/// Objects past their grace period, and objects that protected loads hold, are taken over with the rest, and counted
/// once.
#[test]
fn a_reclaimer_takes_over_what_another_one_has() {
    let domain = Domain::new();
    let reader = domain.reader();
    let cell = domain.cell(7_u64);
    let held = cell.protect(&reader).expect("the cell is full");
    let (mut one, mut other) = (domain.reclaimer(), domain.reclaimer());
    other.retire(cell.take().expect("the cell is full")).expect("there is room");
    other.retire(retired(&domain)).expect("there is room");
    assert_eq!(other.poll_at_once(usize::MAX), 1, "the other one is held");
    let guard = reader.pin();
    for reclaimer in [&mut one, &mut other] {
        reclaimer.retire(retired(&domain)).expect("there is room");
        assert_eq!(reclaimer.poll_at_once(usize::MAX), 0);
    }
    one.take_over(&mut other);
    assert_eq!((one.pending(), one.pending_bytes(), other.pending(), other.pending_bytes()), (3, 24, 0, 0));
    drop(guard);
    assert_eq!((one.poll_at_once(usize::MAX), other.poll_at_once(usize::MAX), one.pending()), (2, 0, 1));
    drop(held);
    assert_eq!((one.poll_at_once(usize::MAX), domain.stats().pending, domain.stats().retired), (1, 0, 4));
}

#[test]
#[should_panic(expected = "a reclaimer of domain `one` cannot take over from a reclaimer of domain `other`")]
fn a_reclaimer_does_not_take_over_from_another_domain() {
    let named = |name| Domain::builder().name(name).build().expect("the default mode is always available");
    named("one").reclaimer().take_over(&mut named("other").reclaimer());
}

/// The pace does not matter when the queue is full and nothing is in the way.
#[test]
fn a_full_reclaimer_makes_room_whatever_its_pace() {
    let domain = Domain::new();
    let _idle = domain.reader();
    let mut reclaimer = domain.reclaimer_builder().max_pending(16).build();
    for _ in 0..1000 {
        reclaimer.retire(retired(&domain)).expect("no reader holds anything");
    }
}

/// A retirement that comes just too late leaves the object to the domain, where another reclaimer finds it at once.
#[test]
fn nothing_is_stranded_in_a_background_reclaimer_that_is_dropped() {
    let rounds = if cfg!(miri) { 5 } else { 500 };
    for _ in 0..rounds {
        let domain = Domain::new();
        let background = domain.background();
        let handle = background.retire_handle();
        let (object, together) = (retired(&domain), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                together.wait();
                drop(background);
            });
            together.wait();
            drop(handle.retire(object));
        });
        let mut other = domain.reclaimer();
        other.flush().expect("nothing is in the way");
        let stats = domain.stats();
        assert_eq!((stats.freed, stats.pending), (1, 0));
    }
}

/// Only the count of the domain's handles orders the read before the free. This test is for Miri, which would see the
/// race.
#[test]
fn a_free_without_a_domain_comes_after_the_reads_of_the_last_handle() {
    let domain = Domain::new();
    let cell = domain.cell(String::from("read"));
    let (read, gone) = (Barrier::new(2), AtomicBool::new(false));
    thread::scope(|scope| {
        let (cell, read, gone) = (&cell, &read, &gone);
        scope.spawn(move || {
            let reader = domain.reader();
            drop(domain);
            let object = cell.protect(&reader).expect("never empty");
            read.wait();
            assert_eq!(*object, "read");
            drop(object);
            drop(reader);
            // Relaxed, so that the flag orders nothing.
            gone.store(true, Ordering::Relaxed);
        });
        read.wait();
        let old = cell.take().expect("never empty");
        while !gone.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        assert_eq!(*old.try_into_box().expect("there is no reader"), "read");
    });
}
