//! Threads that come and go leave no memory behind, whatever they did.

use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use stillpoint_multicast::{signals, Group, Member};

use crate::allocated::allocated;
use crate::child::in_child;
use crate::ways;

/// Threads at a time.
const AT_ONCE: usize = 8;
const THREADS: usize = 5_000;

thread_local! {
    /// A thread that uses this first drops it after its record of registrations.
    static LATE: RefCell<Option<Member>> = const { RefCell::new(None) };
}

/// The work of one of the threads with its registrations.
fn live(number: usize, group: &Group, there: &Barrier) {
    LATE.with(|late| *late.borrow_mut() = None);
    let (member, interrupted) = (group.join(), signals::join().expect("the signal is free"));
    there.wait();
    // Until all members have got the message.
    while member.wait() == 0 {}
    match number % 5 {
        0 => std::mem::forget((member, interrupted)),
        1 => drop((group.join(), signals::join(), interrupted, member)),
        2 => LATE.with(|late| *late.borrow_mut() = Some(member)),
        3 => _ = group.multicast().run_timeout(Duration::ZERO, || {}),
        _ => {}
    }
}

/// Batches of threads come and go, while one thread multicasts to them.
fn batches(group: &Group, count: usize) {
    for batch in 0..count {
        let there = Barrier::new(AT_ONCE + 1);
        thread::scope(|scope| {
            let threads: Vec<_> = (0..AT_ONCE)
                .map(|number| {
                    let there = &there;
                    scope.spawn(move || live(batch + number, group, there))
                })
                .collect();
            there.wait();
            let (strategy, acknowledgement, helps) = ways()[batch % ways().len()];
            let fence = signals::multicast().expect("it has been started").strategy(strategy).helping(helps);
            assert_eq!(fence.fence().expect("no thread blocks the signal").receivers, AT_ONCE);
            let multicast = group.multicast().strategy(strategy).acknowledgement(acknowledgement);
            // Each member panics; one of these panics is resumed here.
            let panicking = || std::panic::resume_unwind(Box::new([batch; 100]));
            let panic = catch_unwind(AssertUnwindSafe(|| multicast.helping(helps).run(panicking)));
            assert_eq!(panic.expect_err("it panics").downcast_ref(), Some(&[batch; 100]));
            for thread in threads {
                thread.join().expect("it does not panic");
            }
        });
        // A scope does not wait for the destructors of thread-local values.
        while group.members() + signals::members() > 0 {
            thread::yield_now();
        }
    }
}

#[test]
fn threads_that_come_and_go_leave_nothing_behind() {
    in_child("memory::threads_that_come_and_go_leave_nothing_behind", || {
        let group = Group::new();
        // Makes all places and operations that are ever needed at the same time.
        batches(&group, 100);
        let before = allocated();
        batches(&group, THREADS / AT_ONCE);
        let after = allocated();
        // Allows, for example, another chunk of places; a leak of one word for each thread is more.
        assert!(after <= before + 20_000, "{before} bytes, and {after} after {THREADS} threads");
    });
}

/// A dropped group frees everything, also if it was large, and if multicasts were given up.
#[test]
fn a_group_gives_everything_back() {
    in_child("memory::a_group_gives_everything_back", || {
        let round = || {
            let group = Group::new();
            let there = Barrier::new(65);
            thread::scope(|scope| {
                for _ in 0..64 {
                    scope.spawn(|| {
                        let member = group.join();
                        there.wait();
                        there.wait();
                        drop(member);
                    });
                }
                there.wait();
                for _ in 0..10 {
                    let owned = vec![0u8; 1000];
                    let late =
                        group.multicast().run_timeout(Duration::ZERO, move || assert!(!owned.is_empty()));
                    assert_eq!(late.expect_err("no member polls").receivers(), 64);
                }
                there.wait();
            });
        };
        round();
        let before = allocated();
        (0..20).for_each(|_| round());
        let after = allocated();
        assert!(after <= before + 10_000, "{before} bytes, and {after} after 20 groups");
    });
}
