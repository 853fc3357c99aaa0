//! Threads that were ended behind the C library's back, so that no destructor has run, and threads that get their ids.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use super::super::operation::Call;
use super::super::slots::Slot;
use super::super::{Core, Options};
use super::{serve, LONG};
use crate::transport::{Polled, Transport};

/// A place as a thread with the caller's id has left it behind, with this number of registrations.
fn left_behind<T: Transport>(core: &Core<T>, joins: u64) -> &Slot {
    let slot = core.slots.claim(stillpoint_sys::linux::thread_id(), u64::MAX);
    slot.set_joins(joins);
    slot.mailbox.open();
    slot
}

fn give_up(core: &Core<Polled>, function: impl Fn() + Send + Sync + 'static) {
    // SAFETY: the operation owns the function.
    let outcome = unsafe { core.run(Options::default(), Call::owned(function), Some(Instant::now())) };
    assert!(outcome.missing.is_some());
}

fn own<T: Transport>(core: &Core<T>) -> &Slot {
    // SAFETY: places live as long as their group.
    unsafe { core.join().as_ref() }
}

#[test]
fn who_inherits_an_id_is_found_by_it_and_leaves_when_it_says_so() {
    for joins in [1, 2, 100] {
        let core = &*Core::new(Polled);
        let left = left_behind(core, joins);
        // This thread has not joined, and is no member yet.
        assert!(!core.leave(left) && core.drain(left) == 0 && !core.doze(left, None));
        let runs = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&runs);
        give_up(core, move || _ = counter.fetch_add(1, Ordering::Relaxed));
        // Messages to the thread that is gone are processed now: otherwise later messages would not be announced.
        let slot = own(core);
        assert_eq!((runs.load(Ordering::Relaxed), core.members()), (1, 1));
        assert!(core.resume(None, |_| None).is_none(), "the place of an ended thread is waited for");
        assert!(std::ptr::eq(
            core.slots.find(stillpoint_sys::linux::thread_id()).expect("it is there"),
            slot
        ));
        // The thread's handler finds its messages.
        thread::scope(|scope| {
            let initiator = scope.spawn(|| {
                // SAFETY: the function needs nothing.
                unsafe { core.run(Options::default(), Call::owned(|| {}), Some(Instant::now() + LONG)) }
            });
            while !initiator.is_finished() {
                core.serve_thread(stillpoint_sys::linux::thread_id());
                thread::yield_now();
            }
            let outcome = initiator.join().expect("it does not panic");
            assert!(outcome.missing.is_none() && outcome.tally.receivers == 1);
        });
        // Registrations of the previous thread do not count.
        assert_eq!(slot.joins(), 1);
        assert!(core.leave(slot), "the thread has another registration");
        assert_eq!((core.members(), slot.tid()), (0, 0));
    }
}

/// The thread was ended while it slept: a message to its mailbox only rings the bell, and is not announced.
#[test]
fn a_place_whose_thread_slept_or_was_leaving_is_as_new() {
    for ended in [|slot: &Slot| assert!(slot.mailbox.doze()), |slot: &Slot| slot.mailbox.close()] {
        let core = &*Core::new(Polled);
        ended(left_behind(core, 1));
        let slot = own(core);
        assert!(slot.mailbox.is_open() && slot.mailbox.is_empty());
        assert!(slot.mailbox.doze(), "no thread sleeps on it");
        slot.mailbox.rouse();
        assert!(core.leave(slot));
    }
}

/// The functions that it runs then may join, leave and multicast.
#[test]
fn what_was_sent_to_the_one_before_may_join_and_multicast() {
    for forgets in [false, true] {
        let core = Core::new(Polled);
        left_behind(&core, 1);
        let inside = Arc::downgrade(&core);
        give_up(&core, move || {
            let core = inside.upgrade().expect("it is alive");
            let nested = own(&core);
            // SAFETY: the function needs nothing.
            let outcome = unsafe { core.run(Options::default(), Call::owned(|| {}), None) };
            assert!(outcome.tally.ran_here && outcome.tally.receivers == 0);
            if !forgets {
                assert!(!core.leave(nested), "the thread is about to join");
            }
        });
        let slot = own(&core);
        assert_eq!((slot.joins(), core.members()), (1 + u64::from(forgets), 1));
        give_up_to_nobody(&core);
        assert_eq!(core.leave(slot), !forgets);
        if forgets {
            assert!(core.leave(slot));
        }
        assert_eq!((core.members(), serve(&core, slot)), (0, 0));
    }
}

/// The only member is the calling thread.
fn give_up_to_nobody(core: &Core<Polled>) {
    // SAFETY: the function needs nothing.
    let outcome = unsafe { core.run(Options::default(), Call::owned(|| {}), None) };
    assert!(outcome.tally.ran_here && outcome.tally.receivers == 0);
}
