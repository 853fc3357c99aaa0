//! Waits for room that the waiting thread itself takes up: an error at once if nothing else could give room, a wait otherwise.

use std::thread;
use std::time::Duration;

use stillpoint::rcu::limits::{RetireErrorKind, WhenFull};
use stillpoint::rcu::{BackgroundReclaimer, Domain, RetireHandle, Retired};

use super::until;
use crate::eager;
use crate::ending::Ending;

const ENDLESS: WhenFull = WhenFull::Wait(Duration::MAX);

fn retired(domain: &Domain) -> Retired<u64> {
    domain.cell(1).take().expect("the cell is full")
}

fn limited(objects: usize) -> Domain {
    Domain::builder().max_pending(objects).build().expect("it needs no right")
}

/// Runs a background reclaimer during a test.
fn while_run(mut background: BackgroundReclaimer, test: impl FnOnce(&RetireHandle)) {
    let handle = background.retire_handle();
    thread::scope(|scope| {
        scope.spawn(move || background.run());
        let _ending = Ending(|| handle.abandon());
        test(&handle);
    });
}

fn background(domain: &Domain, objects: usize) -> BackgroundReclaimer {
    domain.reclaimer_builder().max_pending(objects).when_full(ENDLESS).build_background()
}

/// The object is in the list of the background thread, which alone knows that it is retired.
#[test]
fn a_handle_does_not_wait_for_a_protected_load_of_its_own_thread() {
    for (domain, objects) in [(Domain::new(), 1), (limited(1), 9)] {
        let (reader, cell) = (domain.reader(), domain.cell(7));
        let held = cell.protect(&reader);
        while_run(background(&domain, objects), |handle| {
            handle.retire(cell.take().expect("it is there")).expect("there is room");
            let error = handle.retire(retired(&domain)).expect_err("its own load has the room");
            assert_eq!(error.kind(), RetireErrorKind::WouldDeadlock);
            drop(held);
            handle.retire(error.into_inner()).expect("the load is released");
        });
    }
}

/// As above, with limits in bytes: it does not matter that another small object could be freed.
#[test]
fn a_handle_does_not_wait_if_all_others_together_leave_no_room() {
    let domain = Domain::builder().max_pending_bytes(24).build().expect("it needs no right");
    let (reader, large, small) = (domain.reader(), domain.cell([1_u64; 2]), domain.cell(1_u64));
    let (held, others) = (large.protect(&reader), small.protect_owned());
    while_run(background(&domain, 9), |handle| {
        handle.retire(large.take().expect("it is there")).expect("there is room");
        handle.retire(small.take().expect("it is there")).expect("there is room");
        let old = domain.cell([2_u64; 2]).take().expect("it is there");
        let error = handle.retire(old).expect_err("16 of 24 bytes are its own");
        assert_eq!(error.kind(), RetireErrorKind::WouldDeadlock);
        drop((held, others));
        handle.retire(error.into_inner()).expect("they are released");
    });
}

/// What fills the domain is in the list of another thread, was left to the domain, or waits in another reclaimer of this thread.
#[test]
fn a_reclaimer_does_not_wait_for_the_room_of_the_domain_that_its_own_thread_takes_up() {
    let domain = limited(1);
    let (reader, cell) = (domain.reader(), domain.cell(1));
    let refused = || {
        let mut patient = domain.reclaimer_builder().when_full(ENDLESS).build();
        let error = patient.retire(retired(&domain)).expect_err("its own thread has the room");
        assert_eq!(error.kind(), RetireErrorKind::WouldDeadlock);
        error.into_inner()
    };

    let held = cell.protect(&reader);
    while_run(background(&domain, 9), |handle| {
        handle.retire(cell.replace(2).expect("it is there")).expect("there is room");
        refused().free().expect("no reader holds it");
        drop(held);
        until("the first one is freed", || handle.pending() == 0);
    });

    let held = cell.protect(&reader);
    drop(cell.replace(3)); // left to the domain
    refused().free().expect("no reader holds it");
    drop(held);
    domain.barrier().expect("nothing is in the way");

    let guard = reader.pin();
    let mut other = domain.reclaimer();
    other.retire(cell.replace(4).expect("it is there")).expect("there is room");
    let old = refused();
    drop(guard);
    old.free().expect("no reader holds it");
    other.flush().expect("nothing is in the way");
}

/// Own protections do not matter if others have the room: of other objects, of one of two, of an older grace period.
#[test]
fn a_wait_for_others_goes_on_although_the_thread_holds_something_itself() {
    for (domain, objects) in [(Domain::new(), 2), (limited(2), 9)] {
        let (reader, own, other, linked) = (domain.reader(), domain.cell(1), domain.cell(2), domain.cell(3));
        let (held, _linked) = (own.protect(&reader), linked.protect(&reader));
        let others = other.protect_owned();
        while_run(background(&domain, objects), |handle| {
            handle.retire(own.take().expect("it is there")).expect("there is room");
            handle.retire(other.take().expect("it is there")).expect("there is room");
            until("both are found pinned", || domain.stats().pinned == 2);
            thread::scope(|scope| {
                scope.spawn(|| {
                    until("the other one waits", || domain.stats().waits == 1);
                    thread::sleep(Duration::from_millis(25)); // it has looked more than once
                    drop(others);
                });
                handle.retire(retired(&domain)).expect("the other thread releases its own");
            });
            drop(held);
        });
        assert_eq!(domain.stats().handed_back, 0);
    }
}

/// The grace period of what fills the queue is older than the region of the thread that waits.
#[test]
fn a_wait_for_an_older_region_goes_on_within_a_region() {
    for (domain, objects) in [(Domain::new(), 1), (limited(1), 9)] {
        let (started, is_started) = std::sync::mpsc::channel::<()>();
        while_run(background(&domain, objects), |handle| {
            thread::scope(|scope| {
                let (held, is_held) = std::sync::mpsc::channel();
                let other = domain.clone();
                scope.spawn(move || {
                    let reader = other.reader();
                    let guard = reader.pin();
                    held.send(()).expect("the test waits for it");
                    is_started.recv().expect("the test sends it");
                    until("the other one waits", || other.stats().waits == 1);
                    thread::sleep(Duration::from_millis(25)); // it has looked more than once
                    drop(guard);
                });
                is_held.recv().expect("the thread runs");
                handle.retire(retired(&domain)).expect("there is room");
                until("its grace period has started", || domain.stall().is_some());
                let reader = domain.reader();
                let guard = reader.pin();
                started.send(()).expect("the thread waits for it");
                handle.retire(retired(&domain)).expect("the other thread leaves its region");
                // This one waits for the thread's own region.
                let error = handle.retire(retired(&domain)).expect_err("the guard is its own");
                assert_eq!(error.kind(), RetireErrorKind::WouldDeadlock);
                drop(guard);
            });
        });
    }
}

/// What the thread holds takes up room in another queue, and the domain has no limit.
#[test]
fn a_load_that_takes_up_the_room_of_another_queue_is_in_nobodys_way() {
    let domain = Domain::new();
    let (reader, cell) = (domain.reader(), domain.cell(1));
    let held = cell.protect(&reader);
    let mut own = eager(&domain);
    own.retire(cell.take().expect("it is there")).expect("there is room");
    while_run(background(&domain, 1), |handle| {
        for _ in 0..3 {
            handle.retire(retired(&domain)).expect("the thread frees the one before");
        }
    });
    assert_eq!((own.poll(), domain.stats().handed_back), (0, 0));
    drop(held);
    assert_eq!(own.poll(), 1);
}

/// The list of another thread has drawn room for more than it holds, and gives the rest back in its next poll.
#[test]
fn a_wait_for_room_that_another_list_keeps_is_no_deadlock() {
    let domain = limited(2_000);
    let (told, tells) = std::sync::mpsc::channel();
    let reader = domain.reader();
    thread::scope(|scope| {
        let _guard = reader.pin();
        let other = &domain;
        scope.spawn(move || {
            let mut keeps = other.reclaimer();
            keeps.retire(retired(other)).expect("there is room");
            told.send(()).expect("the test waits for it");
            until("the other thread waits", || other.stats().waits > 0);
            // Long enough for the waiting thread to look twice.
            thread::sleep(Duration::from_millis(20));
            assert_eq!(keeps.poll(), 0);
        });
        tells.recv().expect("it retires first");
        let mut fills = domain.reclaimer_builder().when_full(ENDLESS).build();
        while domain.stats().waits == 0 {
            fills.retire(retired(&domain)).expect("the other list gives its room back");
        }
        assert!(fills.pending() < 2_000);
    });
}

/// The list that keeps the room is that of a reclaimer of the same thread: nobody else gives it back.
#[test]
fn a_thread_does_not_wait_for_room_that_its_own_list_keeps() {
    let domain = limited(2_000);
    let reader = domain.reader();
    let _guard = reader.pin();
    let mut keeps = domain.reclaimer();
    keeps.retire(retired(&domain)).expect("there is room");
    let mut fills = domain.reclaimer_builder().when_full(ENDLESS).build();
    let error = (0..2_000).find_map(|_| fills.retire(retired(&domain)).err()).expect("it is full");
    assert_eq!(error.kind(), RetireErrorKind::WouldDeadlock);
    assert!(fills.pending() < 1_999, "the other list keeps some");
}
