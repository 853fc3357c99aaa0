//! A reader that never runs again: which bound memory has then, and what it depends on. Each test is about a line of the
//! table in `docs/design/rcu.md`.

#![cfg(not(miri))] // no signals there

use std::sync::atomic::{AtomicBool, Ordering};

use stillpoint::rcu::limits::RetireErrorKind;
use stillpoint::rcu::{Domain, RcuCell, Reclaimer, Region};

use super::retired;
use crate::modes::in_each_mode;
use crate::parked::{with_thread, Parked};
use crate::LONG;

const OBJECTS: u64 = 200_000;
/// The number of objects that wait for a fence in a reclaimer with default settings: 32 batches.
const GATHERED: u64 = 32 * 128;
const CAPACITY: usize = 1000;

/// Retires this many objects with a poll after each, and checks each time how many wait in the domain.
fn retire_many(domain: &Domain, reclaimer: &mut Reclaimer, objects: u64, bound: u64) {
    let cell = domain.cell(0);
    for number in 0..objects {
        reclaimer.retire(cell.replace(number).expect("never empty")).expect("there is room");
        let pending = domain.stats().pending;
        assert!(pending <= bound, "{pending} objects wait after {number}, and not {bound} at the most");
        reclaimer.poll();
    }
}

fn repeat(done: &AtomicBool, mut round: impl FnMut()) {
    // Relaxed: a flag that orders nothing.
    while !done.load(Ordering::Relaxed) {
        round();
    }
}

fn go_on(parked: &Parked<'_>) {
    parked.end();
    parked.go_on();
}

/// A reader holds `count` objects: waiting objects are bounded by these and 32 batches, for any length of time.
fn parked_with_protected_objects(count: u64) {
    in_each_mode(|domain| {
        let cells: Vec<_> = (0..count).map(|number| domain.cell(number)).collect();
        let mut reclaimer = domain.reclaimer();
        let reads = |done: &AtomicBool, ready: &dyn Fn()| {
            let reader = domain.reader();
            let held: Vec<_> = cells.iter().map(|cell| cell.protect(&reader).expect("never empty")).collect();
            ready();
            repeat(done, || assert!((0..).zip(&held).all(|(number, held)| **held == number)));
        };
        with_thread(reads, |parked| {
            parked.stop();
            for cell in &cells {
                reclaimer.retire(cell.take().expect("the cell is full")).expect("there is room");
            }
            retire_many(&domain, &mut reclaimer, OBJECTS / count, count + GATHERED);
            assert!(reclaimer.flush_timeout(crate::SHORT).is_err());
            assert_eq!(domain.stats().pending, count, "what it holds and nothing else");
            go_on(parked);
            reclaimer.flush_timeout(LONG).expect("the parked reader goes on");
            assert_eq!(domain.stats().pending, 0);
        });
    });
}

#[test]
fn parked_with_a_protected_object_it_holds_up_that_one() {
    parked_with_protected_objects(1);
}

/// More objects than a record has slots for: the others are in chained blocks.
#[test]
fn parked_with_many_protected_objects_it_holds_up_those() {
    parked_with_protected_objects(40);
}

/// The bound holds wherever the signal stops the reader: before, within or after a protected load.
#[test]
fn parked_anywhere_around_a_protected_load_it_holds_up_one_object_at_the_most() {
    in_each_mode(|domain| {
        let cell = domain.cell(0);
        let mut reclaimer = domain.reclaimer();
        let reads = |done: &AtomicBool, ready: &dyn Fn()| {
            let reader = domain.reader();
            ready();
            repeat(done, || assert!(*cell.protect(&reader).expect("never empty") < 100));
        };
        with_thread(reads, |parked| {
            for turn in 0..100 {
                parked.stop();
                reclaimer.retire(cell.replace(turn % 100).expect("never empty")).expect("there is room");
                reclaimer.poll();
                retire_many(&domain, &mut reclaimer, 1000, 1 + GATHERED);
                parked.go_on();
            }
        });
    });
}

/// A writer retires without end while a reader is parked in a region. The limit holds, objects beyond it are handed
/// back, and all are freed when the reader goes on.
fn held_up_to_the_limit(domain: &Domain, parked: &Parked<'_>) {
    let mut reclaimer = domain.reclaimer_builder().max_pending(CAPACITY).build();
    let cell = domain.cell(0);
    parked.stop();
    let mut kept = None;
    for number in 0..OBJECTS / 10 {
        let next = kept.take().unwrap_or_else(|| cell.replace(number).expect("never empty"));
        if let Err(error) = reclaimer.retire(next) {
            assert_eq!((error.kind(), reclaimer.pending()), (RetireErrorKind::Full, CAPACITY));
            kept = Some(error.into_inner());
        }
        reclaimer.poll();
        assert_eq!(domain.stats().pending, (number + 1).min(CAPACITY as u64));
    }
    assert_eq!(domain.stats().freed, 0);
    assert_eq!(domain.stats().handed_back, OBJECTS / 10 - CAPACITY as u64);

    go_on(parked);
    reclaimer.retire_timeout(kept.expect("the queue was full"), LONG).expect("there is room again");
    reclaimer.flush_timeout(LONG).expect("the parked reader goes on");
    assert_eq!(domain.stats().pending, 0);
}

/// Loads from a cell again and again, in a section that does not end before `done`.
fn stays(cell: &RcuCell<u64>, region: &impl Region, done: &AtomicBool, ready: &dyn Fn()) {
    let object = cell.load(region).expect("never empty");
    ready();
    repeat(done, || assert_eq!(*object, 7));
}

#[test]
fn parked_in_a_guard_it_holds_everything_up_to_the_limit() {
    in_each_mode(|domain| {
        let cell = domain.cell(7);
        let reads = |done: &AtomicBool, ready: &dyn Fn()| {
            let reader = domain.reader();
            stays(&cell, &reader.pin(), done, ready);
        };
        with_thread(reads, |parked| held_up_to_the_limit(&domain, parked));
    });
}

#[test]
fn parked_as_a_qsbr_reader_it_holds_everything_up_to_the_limit() {
    in_each_mode(|domain| {
        let cell = domain.cell(7);
        let reads = |done: &AtomicBool, ready: &dyn Fn()| stays(&cell, &domain.qsbr_reader(), done, ready);
        with_thread(reads, |parked| held_up_to_the_limit(&domain, parked));
    });
}

/// A reader that is offline, or outside any guard, delays nothing.
#[test]
fn parked_outside_it_holds_up_nothing() {
    in_each_mode(|domain| {
        let mut reclaimer = domain.reclaimer();
        let reads = |done: &AtomicBool, ready: &dyn Fn()| {
            let (_reader, mut qsbr) = (domain.reader(), domain.qsbr_reader());
            qsbr.offline(|| {
                ready();
                repeat(done, std::hint::spin_loop);
            });
        };
        with_thread(reads, |parked| {
            parked.stop();
            retire_many(&domain, &mut reclaimer, OBJECTS / 10, GATHERED);
            reclaimer.flush_timeout(LONG).expect("nothing is in the way");
            assert_eq!(domain.stats().pending, 0);
        });
    });
}

/// Each writer stays within its own limit, and all of them together within that of the domain.
#[test]
fn parked_in_a_guard_it_holds_everything_up_to_the_limit_of_the_domain() {
    in_each_mode(|domain| {
        let domain =
            Domain::builder().fence(domain.fence_mode()).max_pending(CAPACITY).build().expect("probed");
        let cell = domain.cell(7);
        let reads = |done: &AtomicBool, ready: &dyn Fn()| {
            let reader = domain.reader();
            stays(&cell, &reader.pin(), done, ready);
        };
        with_thread(reads, |parked| {
            parked.stop();
            let (mut first, mut second) = (domain.reclaimer(), domain.reclaimer());
            let mut background = domain.background();
            let handle = background.retire_handle();
            let mut taken_in = 0;
            for number in 0..OBJECTS / 100 {
                let next = retired(&domain, number);
                let answer = match number % 3 {
                    0 => first.retire(next),
                    1 => second.retire(next),
                    _ => handle.retire(next),
                };
                match answer {
                    Ok(()) => taken_in += 1,
                    // No reader refers to it any more, so it need not wait in the domain.
                    Err(error) => {
                        assert_eq!(error.kind(), RetireErrorKind::DomainFull);
                        std::mem::forget(error.into_inner());
                    }
                }
                assert_eq!(domain.stats().pending, taken_in);
            }
            assert_eq!((taken_in, domain.stats().beyond_limits), (CAPACITY as u64, 0));

            go_on(parked);
            handle.stop();
            background.run();
            first.flush_timeout(LONG).expect("the parked reader goes on");
            second.flush_timeout(LONG).expect("the parked reader goes on");
            assert_eq!(domain.stats().pending, 0);
        });
    });
}

/// A drop cannot be refused: it is the only way past the limit, and it is counted.
#[test]
fn parked_in_a_guard_it_holds_up_what_is_dropped_beyond_any_limit() {
    let domain =
        Domain::builder().max_pending(CAPACITY).build().expect("the default mode is always available");
    let cell = domain.cell(7);
    let reads = |done: &AtomicBool, ready: &dyn Fn()| {
        let reader = domain.reader();
        stays(&cell, &reader.pin(), done, ready);
    };
    with_thread(reads, |parked| {
        parked.stop();
        for number in 0..3 * CAPACITY {
            drop(retired(&domain, number));
        }
        let stats = domain.stats();
        assert_eq!((stats.pending, stats.beyond_limits), (3 * CAPACITY as u64, 2 * CAPACITY as u64));
        go_on(parked);
        domain.synchronize_timeout(LONG).expect("the parked reader goes on");
        assert_eq!(domain.stats().pending, 0);
    });
}
