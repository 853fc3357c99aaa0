//! Destructors that panic: the rest of the batch is freed, and the panic goes on to the caller.

use std::any::Any;
use std::mem;
use std::panic::panic_any;
use std::sync::mpsc;

use stillpoint::rcu::wait::SynchronizeError;
use stillpoint::rcu::{Domain, RcuArray, RcuCell, Retired};

use crate::census::Census;
use crate::child::in_child;
use crate::then::Then;
use crate::{eager, panic_of, LONG};

use super::until;

/// An object that panics with `number` when it is dropped, after it was counted.
fn bomb(census: &Census, number: u32) -> Then {
    let object = census.object();
    Then::new(move || {
        drop(object);
        panic_any(number);
    })
}

fn number_of<R>(function: impl FnOnce() -> R) -> u32 {
    *panic_of(function).downcast().expect("a bomb panics with its number")
}

fn retired<T: Send + Sync + 'static>(domain: &Domain, object: T) -> Retired<T> {
    domain.cell(object).take().expect("the cell is full")
}

#[test]
fn poll_frees_the_rest_of_the_batch_and_resumes_the_first_panic() {
    let (domain, census) = (Domain::new(), Census::default());
    let mut reclaimer = eager(&domain);
    for number in 0..5 {
        if number % 2 == 1 {
            reclaimer.retire(retired(&domain, bomb(&census, number))).expect("there is room");
        } else {
            reclaimer.retire(retired(&domain, census.object())).expect("there is room");
        }
    }
    assert_eq!(number_of(|| reclaimer.poll()), 1);
    assert_eq!((census.freed(), census.alive(), reclaimer.pending()), (5, 0, 0));
    assert_eq!(reclaimer.pending_bytes(), 0);
    let stats = domain.stats();
    assert_eq!((stats.retired, stats.freed, stats.pending), (5, 5, 0));

    reclaimer.retire(retired(&domain, census.object())).expect("there is room");
    assert_eq!(reclaimer.poll(), 1, "the reclaimer is as good as before");
}

#[test]
fn poll_at_most_counts_a_panicking_destructor_as_one() {
    let (domain, census) = (Domain::new(), Census::default());
    let mut reclaimer = eager(&domain);
    for number in 0..4 {
        reclaimer.retire(retired(&domain, bomb(&census, number))).expect("there is room");
    }
    assert_eq!(number_of(|| reclaimer.poll_at_most(3)), 0);
    assert_eq!((census.freed(), reclaimer.pending()), (3, 1));
    assert_eq!(number_of(|| reclaimer.poll_at_most(3)), 3);
}

#[test]
fn a_held_object_that_panics_leaves_the_others_alone() {
    let (domain, census) = (Domain::new(), Census::default());
    let reader = domain.reader();
    let cells: Vec<_> = (0..4).map(|number| domain.cell(bomb(&census, number))).collect();
    let held: Vec<_> = cells.iter().map(|cell| cell.protect(&reader)).collect();
    let mut reclaimer = eager(&domain);
    for cell in &cells {
        reclaimer.retire(cell.take().expect("the cell is full")).expect("there is room");
    }
    assert_eq!(reclaimer.poll(), 0);
    drop(held);
    panic_of(|| reclaimer.poll());
    assert_eq!((census.freed(), census.alive(), reclaimer.pending()), (4, 0, 0));
}

#[test]
fn flush_frees_all_and_resumes_the_panic() {
    let (domain, census) = (Domain::new(), Census::default());
    let mut reclaimer = domain.reclaimer();
    for number in 0..3 {
        reclaimer.retire(retired(&domain, bomb(&census, number))).expect("there is room");
    }
    assert_eq!(number_of(|| reclaimer.flush()), 0);
    assert_eq!((census.freed(), reclaimer.pending()), (3, 0));
    assert_eq!(reclaimer.flush(), Ok(()));
}

#[test]
fn retire_that_polls_leaves_the_new_object_to_the_domain_when_that_panics() {
    let (domain, census) = (Domain::new(), Census::default());
    let mut reclaimer = domain.reclaimer_builder().max_pending(1).build();
    reclaimer.retire(retired(&domain, bomb(&census, 7))).expect("there is room");
    let next = retired(&domain, census.object());
    assert_eq!(number_of(|| reclaimer.retire(next)), 7);
    assert_eq!((census.freed(), census.alive()), (1, 1));
    assert_eq!(reclaimer.poll(), 1);
}

#[test]
fn a_background_run_resumes_the_panic_and_can_be_run_again() {
    let (domain, census) = (Domain::new(), Census::default());
    let mut background = domain.background();
    let handle = background.retire_handle();
    for number in 0..4 {
        handle.retire(retired(&domain, bomb(&census, number))).expect("there is room");
        handle.retire(retired(&domain, census.object())).expect("there is room");
    }
    handle.stop();
    panic_of(|| background.run());
    assert_eq!((census.freed(), census.alive()), (8, 0), "all that was ready");
    handle.retire(retired(&domain, census.object())).expect("there is room");
    background.run();
    assert_eq!((census.freed(), handle.pending()), (9, 0));
}

#[test]
fn a_deferred_call_that_panics_is_called_once() {
    let (domain, census) = (Domain::new(), Census::default());
    let mut reclaimer = eager(&domain);
    let (object, other) = (census.object(), census.object());
    reclaimer.defer(move || {
        drop(object);
        panic_any(3_u32);
    });
    reclaimer.defer(move || drop(other));
    assert_eq!(number_of(|| reclaimer.poll()), 3);
    assert_eq!((census.freed(), reclaimer.pending()), (2, 0));
}

/// A run keeps the first panic. The payload of a later one is dropped in its middle, so its destructor must not wait either.
#[test]
fn the_destructor_of_a_payload_may_not_wait() {
    let (domain, (answers, answer)) = (Domain::new(), mpsc::channel());
    let (handle, run) = domain.background().spawn().expect("a thread starts");
    for _ in 0..2 {
        let (domain_, answers) = (domain.clone(), answers.clone());
        let bomb = Then::new(move || {
            let payload = Then::new(move || answers.send(domain_.barrier()).expect("the test waits"));
            panic_any(payload);
        });
        handle.retire(retired(&domain, bomb)).expect("there is room");
        until("it is freed", || handle.pending() == 0);
    }
    let refused = answer.recv_timeout(LONG).expect("the second payload is dropped");
    assert!(matches!(refused, Err(SynchronizeError::Reentrant { .. })), "{refused:?}");
    handle.stop();
    // Here the first payload is dropped, which may wait.
    drop(run.join().expect_err("the first panic"));
    answer.recv_timeout(LONG).expect("it is dropped").expect("no reader is in the way");
}

type MakeHandle = fn(&Domain) -> Box<dyn Any>;

/// Each kind of handle may be the last one.
#[test]
fn the_last_handle_frees_the_rest_and_resumes_the_first_panic() {
    let last_handles: [MakeHandle; 6] = [
        |domain| Box::new(domain.clone()),
        |domain| Box::new(domain.reader()),
        |domain| Box::new(domain.qsbr_reader()),
        |domain| Box::new(domain.reclaimer()),
        |domain| Box::new(domain.background()),
        |domain| Box::new(domain.background().retire_handle()),
    ];
    for last_handle in last_handles {
        let (domain, census) = (Domain::new(), Census::default());
        drop(retired(&domain, census.object()));
        drop(retired(&domain, bomb(&census, 4)));
        drop(retired(&domain, bomb(&census, 4)));
        drop(retired(&domain, census.object()));
        let last = last_handle(&domain);
        drop(domain);
        assert_eq!(census.freed(), 0);
        assert_eq!(number_of(|| drop(last)), 4);
        assert_eq!((census.freed(), census.alive()), (4, 0));
    }
}

#[test]
fn a_retirement_without_a_domain_resumes_the_panic_of_its_object() {
    let census = Census::default();
    let retired = retired(&Domain::new(), bomb(&census, 5));
    assert_eq!(number_of(|| drop(retired)), 5);
    assert_eq!(census.alive(), 0);
}

#[test]
fn try_free_passes_the_panic_on() {
    let (domain, census) = (Domain::new(), Census::default());
    let retired = retired(&domain, bomb(&census, 6));
    assert_eq!(number_of(|| retired.try_free()), 6);
    assert_eq!((census.freed(), census.alive(), domain.stats().pending), (1, 0, 0));
}

#[test]
fn a_cell_passes_the_panic_of_its_object_on() {
    let (domain, census) = (Domain::new(), Census::default());
    let cell = domain.cell(bomb(&census, 8));
    assert_eq!(number_of(|| drop(cell)), 8);
    let array = RcuArray::new_in(&domain, 3, |_| Some(Box::new(bomb(&census, 9))));
    assert_eq!(number_of(|| drop(array.swap(1, None).map(Retired::try_free))), 9);
    let rest = RcuCell::new_in(&domain, census.object());
    drop(rest);
    assert_eq!((census.freed(), census.alive()), (3, 2));
    mem::forget(array); // a second panic while the first one unwinds would abort, as in any array
}

/// A second panic while the first one unwinds would end the process, so it is caught and dropped.
#[test]
fn handles_dropped_by_a_panic_do_not_abort() {
    let census = Census::default();
    let number = number_of(|| {
        let domain = Domain::new();
        let orphan = retired(&domain, bomb(&census, 1));
        let homeless = retired(&Domain::new(), bomb(&census, 2));
        let mut reclaimer = domain.reclaimer();
        reclaimer.retire(retired(&domain, bomb(&census, 3))).expect("there is room");
        let background = domain.background();
        background.retire_handle().retire(retired(&domain, bomb(&census, 4))).expect("there is room");
        let _dropped_in_this_order = (homeless, orphan, reclaimer, background, domain);
        panic_any(99_u32)
    });
    assert_eq!(number, 99);
    assert_eq!((census.freed(), census.alive()), (4, 0));
}

#[test]
fn a_panicking_constructor_leaves_nothing_behind() {
    let (domain, census) = (Domain::new(), Census::default());
    panic_of(|| {
        RcuArray::new_in(&domain, 8, |index| {
            assert!(index < 5, "the test lets the constructor of the sixth object panic");
            Some(Box::new(census.object()))
        })
    });
    assert_eq!((census.freed(), census.alive()), (5, 0));
}

/// The payload of a panic is a value with its own destructor, which may panic as well.
fn doubly_nasty(census: &Census) -> Then {
    let object = census.object();
    Then::new(move || {
        drop(object);
        panic_any(Then::new(|| panic_any(11_u32)));
    })
}

/// In its own process, since a panic during another one ends the process.
#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn a_panic_whose_payload_panics_costs_no_other_object() {
    in_child("misuse::panics::a_panic_whose_payload_panics_costs_no_other_object", || {
        let (domain, census) = (Domain::new(), Census::default());
        let mut reclaimer = eager(&domain);
        for _ in 0..3 {
            reclaimer.retire(retired(&domain, doubly_nasty(&census))).expect("there is room");
            reclaimer.retire(retired(&domain, census.object())).expect("there is room");
        }
        // It is the test that must not drop the payload that arrives here.
        mem::forget(panic_of(|| reclaimer.poll()));
        assert_eq!((census.freed(), census.alive(), reclaimer.pending()), (6, 0, 0));
    });
}

#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn a_panic_whose_payload_panics_costs_nothing_at_the_end_of_the_domain() {
    in_child("misuse::panics::a_panic_whose_payload_panics_costs_nothing_at_the_end_of_the_domain", || {
        let (domain, census) = (Domain::new(), Census::default());
        for _ in 0..3 {
            drop(retired(&domain, doubly_nasty(&census)));
            drop(retired(&domain, census.object()));
        }
        mem::forget(panic_of(|| drop(domain)));
        assert_eq!((census.freed(), census.alive()), (6, 0));
    });
}
