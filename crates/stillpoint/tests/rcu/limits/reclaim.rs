//! Retirements that free objects which others have retired.

use std::panic::panic_any;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use stillpoint::rcu::limits::{RetireErrorKind, WhenFull};
use stillpoint::rcu::{BackgroundReclaimer, Domain, RetireHandle};

use super::{limited, retired, troubles};
use crate::census::Census;
use crate::then::Then;
use crate::{panic_of, LONG};

/// The largest number of others' objects that one retirement frees.
const SHARE: usize = 64;

fn helpful(domain: &Domain, capacity: usize) -> (BackgroundReclaimer, RetireHandle) {
    let background =
        domain.reclaimer_builder().max_pending(capacity).when_full(WhenFull::Reclaim).build_background();
    let handle = background.retire_handle();
    (background, handle)
}

/// Fills a domain that has room for `objects` more.
fn fill(domain: &Domain, census: &Census, handle: &RetireHandle, objects: usize) {
    for _ in 0..objects {
        handle.retire(retired(domain, census.object())).expect("there is room");
    }
}

#[test]
fn a_reclaimer_frees_a_share_of_what_was_left_to_a_full_domain() {
    let (domain, census) = (limited(300), Census::default());
    for _ in 0..300 {
        drop(retired(&domain, census.object()));
    }
    let mut reclaimer = domain.reclaimer();
    reclaimer.retire(retired(&domain, census.object())).expect("it makes room");
    assert_eq!((census.freed(), troubles(&domain.stats())), (SHARE, [0, 0, 1]));
    for _ in 1..SHARE {
        reclaimer.retire(retired(&domain, census.object())).expect("there is room");
    }
    assert_eq!(
        (domain.stats().reclaims_by_retirers, domain.stats().pending),
        (1, 300),
        "no more than need be"
    );
    assert_eq!(domain.stats().beyond_limits, 0);
}

/// A reader is in the way: adopted objects stay adopted, and no more are.
#[test]
fn a_reclaimer_waits_for_nobody() {
    let (domain, census) = (limited(200), Census::default());
    let reader = domain.reader();
    let guard = reader.pin();
    for _ in 0..200 {
        drop(retired(&domain, census.object()));
    }
    let mut helpful = domain.reclaimer();
    let mut next = retired(&domain, census.object());
    for _ in 0..5 {
        next = helpful.retire(next).expect_err("a reader is in the way").into_inner();
        assert_eq!((helpful.pending(), census.freed()), (SHARE, 0));
    }
    assert_eq!(troubles(&domain.stats()), [5, 0, 0]);
    let fences = domain.stats().grace_periods;
    next = helpful.retire(next).expect_err("a reader is in the way").into_inner();
    assert_eq!(domain.stats().grace_periods, fences, "nothing new, no new grace period");
    drop(guard);
    helpful.retire(next).expect("nothing is in the way");
    assert_eq!(census.freed(), SHARE);
}

#[test]
fn a_handle_frees_a_share_on_its_own_thread() {
    let domain = Domain::new();
    let (background, handle) = helpful(&domain, 200);
    let threads: Arc<Mutex<Vec<ThreadId>>> = Arc::default();
    for _ in 0..200 {
        let threads = Arc::clone(&threads);
        let tells = Then::new(move || threads.lock().expect("no thread panics").push(thread::current().id()));
        handle.retire(retired(&domain, tells)).expect("there is room");
    }
    handle.retire(retired(&domain, ())).expect("it makes room");
    let own = thread::current().id();
    assert_eq!(*threads.lock().expect("no thread panics"), [own; SHARE]);
    assert_eq!((handle.pending(), troubles(&domain.stats())), (200 - SHARE + 1, [0, 0, 1]));
    drop((handle, background));
    domain.synchronize().expect("nothing is in the way");
    assert_eq!((threads.lock().expect("no thread panics").len(), domain.stats().pending), (200, 0));
}

#[test]
fn a_handle_frees_what_was_left_to_a_full_domain() {
    let (domain, census) = (limited(10), Census::default());
    let (_background, handle) = helpful(&domain, 100);
    for _ in 0..10 {
        drop(retired(&domain, census.object()));
    }
    handle.retire(retired(&domain, census.object())).expect("it makes room");
    assert_eq!((census.freed(), handle.pending(), domain.stats().pending), (10, 1, 1));
}

/// Objects that a reader delays go back to the domain, where barriers find them. There is no further attempt before the
/// reader has left.
#[test]
fn a_handle_keeps_nothing_that_was_left_to_a_full_domain() {
    let (domain, census) = (limited(10), Census::default());
    let (_background, handle) = helpful(&domain, 100);
    let reader = domain.reader();
    let guard = reader.pin();
    for _ in 0..10 {
        drop(retired(&domain, census.object()));
    }
    let mut next = retired(&domain, census.object());
    let mut periods = Vec::new();
    for _ in 0..5 {
        next = handle.retire(next).expect_err("a reader is in the way").into_inner();
        periods.push(domain.stats().grace_periods);
        assert_eq!((handle.pending(), domain.stats().pending, census.freed()), (0, 10, 0));
    }
    assert!(periods.windows(2).all(|two| two[0] == two[1]), "{periods:?}");
    drop(guard);
    let (other, other_next) = (handle.clone(), retired(&domain, census.object()));
    other.retire(other_next).expect("it makes room");
    assert_eq!(census.freed(), 10);
    drop(next);

    let guard = reader.pin();
    let error = (0..20).find_map(|_| handle.retire(retired(&domain, census.object())).err());
    drop(error.expect("the domain is full")); // left to the domain
    let left = domain.stats().pending as usize - handle.pending();
    assert!(left > 0);
    let before = census.freed();
    drop(guard);
    domain.barrier().expect("nothing is in the way");
    assert_eq!(census.freed() - before, left);
}

/// Objects that a reader delays keep their grace period for the next retire handle, and are freed once the reader has
/// left.
#[test]
fn a_handle_waits_for_no_reader() {
    let (domain, census) = (Domain::new(), Census::default());
    let (_background, handle) = helpful(&domain, 100);
    let reader = domain.reader();
    let guard = reader.pin();
    fill(&domain, &census, &handle, 100);
    let mut next = retired(&domain, census.object());
    for _ in 0..5 {
        next = handle.retire(next).expect_err("a reader is in the way").into_inner();
    }
    assert_eq!(domain.stats().grace_periods, 1, "one for the share, and no more");
    assert_eq!((handle.pending(), census.freed()), (100, 0));
    drop(guard);
    let again = reader.pin(); // later than the share: in the way of others
    handle.retire(next).expect("the share is free");
    assert_eq!((handle.pending(), census.freed()), (100 - SHARE + 1, SHARE));
    drop(again);
}

/// Protected objects stay, and the others are freed.
#[test]
fn a_handle_frees_what_no_hazard_slot_holds() {
    let (domain, census) = (Domain::new(), Census::default());
    let (mut background, handle) = helpful(&domain, 10);
    let reader = domain.reader();
    let cell = domain.cell(census.object());
    let held = cell.protect(&reader).expect("never empty");
    handle.retire(cell.take().expect("never empty")).expect("there is room");
    fill(&domain, &census, &handle, 9);
    fill(&domain, &census, &handle, 9);
    held.verify();
    assert_eq!((census.freed(), handle.pending()), (9, 10));
    drop(held);
    handle.stop();
    background.run();
    assert_eq!(census.alive(), 0);
}

/// Objects that a retirement took over and could not free go back to the background reclaimer.
#[test]
fn the_background_reclaimer_takes_over_what_is_left() {
    let (domain, census) = (Domain::new(), Census::default());
    let (mut background, handle) = helpful(&domain, 20);
    let reader = domain.reader();
    let guard = reader.pin();
    fill(&domain, &census, &handle, 20);
    let next =
        handle.retire(retired(&domain, census.object())).expect_err("a reader is in the way").into_inner();
    thread::scope(|scope| {
        scope.spawn(move || background.run());
        drop(guard);
        handle.retire_timeout(next, LONG).expect("the reclaimer makes room");
        handle.stop();
    });
    assert_eq!((census.alive(), domain.stats().pending), (0, 0));
}

/// If the background reclaimer is dropped, these objects go to the domain.
#[test]
fn a_dropped_background_reclaimer_leaves_to_the_domain_what_assistants_left() {
    let (domain, census) = (limited(20), Census::default());
    let (background, handle) = helpful(&domain, 20);
    let reader = domain.reader();
    let guard = reader.pin();
    fill(&domain, &census, &handle, 20);
    let error = handle.retire(retired(&domain, census.object())).expect_err("a reader is in the way");
    drop(background);
    assert_eq!((handle.pending(), domain.stats().pending), (0, 20));
    drop((guard, error));
    assert_eq!(domain.reclaimer().poll(), 21);
    assert_eq!((census.alive(), domain.stats().pending), (0, 0));
}

/// One retire handle reclaims at a time. Retirements through others are handed back at once, even from destructors that
/// the first one runs.
#[test]
fn a_handle_waits_for_no_other_handle() {
    let domain = Domain::new();
    let (_background, handle) = helpful(&domain, 1);
    let (entered, has_entered) = mpsc::channel();
    let (leave, may_leave) = mpsc::channel::<()>();
    let (inner, may_leave) = (handle.clone(), Mutex::new(may_leave));
    let of_inner = domain.clone();
    let blocks = Then::new(move || {
        let error = inner.retire(retired(&of_inner, 1)).expect_err("it is this handle's turn already");
        assert!(error.into_inner().try_free().is_ok());
        entered.send(()).expect("the test waits for it");
        may_leave.lock().expect("no thread panics").recv_timeout(LONG).expect("the test ends it");
    });
    handle.retire(retired(&domain, blocks)).expect("there is room");
    thread::scope(|scope| {
        let retires = scope.spawn(|| handle.retire(retired(&domain, 2)).expect("it makes room"));
        has_entered.recv_timeout(LONG).expect("the destructor runs");
        let error = handle.retire(retired(&domain, 3)).expect_err("another one is at it");
        assert_eq!(error.kind(), RetireErrorKind::Full);
        leave.send(()).expect("the destructor waits for it");
        retires.join().expect("it makes room");
    });
    assert_eq!((handle.pending(), domain.stats().reclaims_by_retirers), (1, 1));
}

/// An object without a size has no room either beside bytes beyond the limit.
#[test]
fn an_object_of_no_size_does_not_wait_for_its_own_threads_guard() {
    let domain = Domain::new();
    let mut background = domain.reclaimer_builder().max_pending_bytes(8).build_background();
    let handle = background.retire_handle().when_full(WhenFull::Wait(Duration::MAX));
    let (answers, answer) = mpsc::channel();
    let retiring = (domain.clone(), handle.clone());
    thread::spawn(move || {
        let (domain, handle) = retiring;
        let reader = domain.reader();
        let _guard = reader.pin();
        let large = [1_u64; 8];
        handle.defer(move || assert_eq!(large[7], 1));
        let refused = handle.retire(retired(&domain, ())).expect_err("there is no room");
        answers.send(refused.kind()).expect("the test waits for it");
    });
    let run = thread::spawn(move || background.run());
    assert_eq!(answer.recv_timeout(LONG), Ok(RetireErrorKind::WouldDeadlock));
    handle.stop();
    run.join().expect("no destructor panics");
}

#[test]
fn a_panic_of_a_destructor_reaches_the_handle_and_nothing_is_lost() {
    let (domain, census) = (limited(10), Census::default());
    let (background, handle) = helpful(&domain, 10);
    for number in 0..10_u32 {
        let object = census.object();
        let bomb = Then::new(move || {
            drop(object);
            if number % 2 == 0 {
                panic_any(number);
            }
        });
        handle.retire(retired(&domain, bomb)).expect("there is room");
    }
    let next = retired(&domain, census.object());
    let panic = panic_of(|| handle.retire(next));
    assert!(panic.downcast_ref::<u32>().is_some_and(|number| number % 2 == 0));
    assert_eq!(
        (census.freed(), census.alive()),
        (10, 1),
        "the others were freed, the new one is with the domain"
    );
    assert_eq!((handle.pending(), domain.stats().pending), (0, 1));
    fill(&domain, &census, &handle, 9);
    handle.retire(retired(&domain, census.object())).expect("the turn is free, and there are ten");
    drop((handle, background));
    domain.synchronize().expect("nothing is in the way");
    assert_eq!((census.alive(), domain.stats().pending), (0, 0));
}

#[test]
fn a_panic_of_an_orphans_destructor_reaches_the_reclaimer_and_nothing_is_lost() {
    let (domain, census) = (limited(2), Census::default());
    let object = census.object();
    drop(retired(&domain, census.object()));
    drop(retired(
        &domain,
        Then::new(move || {
            drop(object);
            panic_any(3_u32);
        }),
    ));
    let mut helpful = domain.reclaimer_builder().when_full(WhenFull::Reclaim).build();
    let next = retired(&domain, census.object());
    assert_eq!(panic_of(|| helpful.retire(next)).downcast_ref(), Some(&3_u32));
    assert_eq!((census.freed(), census.alive(), domain.stats().pending), (2, 1, 1));
    helpful.flush().expect("nothing is in the way");
    assert_eq!((census.alive(), domain.stats().pending), (0, 0));
}

/// `retire_timeout` reclaims while it waits.
#[test]
fn a_handle_that_waits_reclaims_meanwhile() {
    let (domain, census) = (Domain::new(), Census::default());
    let (_background, handle) = helpful(&domain, 10);
    fill(&domain, &census, &handle, 10);
    thread::scope(|scope| {
        let (held, is_held) = mpsc::channel();
        let domain = &domain;
        scope.spawn(move || {
            let reader = domain.reader();
            let guard = reader.pin();
            held.send(()).expect("the test waits for it");
            thread::sleep(Duration::from_millis(5));
            drop(guard);
        });
        is_held.recv().expect("the guard is taken");
        // No thread runs the reclaimer: only this thread makes room.
        handle.retire_timeout(retired(domain, census.object()), LONG).expect("the guard is dropped in time");
    });
    assert_eq!((census.freed(), handle.pending()), (10, 1));
    assert_eq!(domain.stats().reclaims_by_retirers, 1);
}
