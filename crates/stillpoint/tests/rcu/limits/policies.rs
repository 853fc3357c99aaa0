//! What a retirement does when there is no room.

use std::sync::mpsc::{self, TryRecvError};
use std::thread;
use std::time::Instant;

use stillpoint::rcu::limits::{RetireErrorKind, WhenFull};
use stillpoint::rcu::Domain;

use super::{limited, retired, troubles};
use crate::census::Census;
use crate::{LONG, SHORT};

/// Runs `test` while another thread holds a guard. When `test` says so, that thread drops the guard once a
/// retirement waits.
fn while_held(domain: &Domain, test: impl FnOnce(&dyn Fn())) {
    let (held, is_held) = mpsc::channel();
    let (told, is_told) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let reader = domain.reader();
            let guard = reader.pin();
            held.send(()).expect("the test waits for it");
            let _ = is_told.recv();
            while domain.stats().waits == 0 && is_told.try_recv() == Err(TryRecvError::Empty) {
                thread::yield_now();
            }
            drop(guard);
        });
        is_held.recv().expect("the guard is taken");
        test(&|| told.send(()).expect("the thread waits for it"));
        drop(told);
    });
}

#[test]
fn the_default_hands_back_at_once_and_counts_it() {
    assert_eq!(WhenFull::default(), WhenFull::HandBack);
    for domain in [Domain::new(), limited(1)] {
        let census = Census::default();
        while_held(&domain, |_| {
            let mut reclaimer = domain.reclaimer_builder().max_pending(1).build();
            reclaimer.retire(retired(&domain, census.object())).expect("there is room");
            for turn in 1..=3 {
                let error = reclaimer.retire(retired(&domain, census.object())).expect_err("it is full");
                assert_eq!(error.kind(), RetireErrorKind::Full, "the nearest limit is named");
                let old = error.into_inner();
                old.verify();
                std::mem::forget(old);
                assert_eq!(troubles(&domain.stats()), [turn, 0, 0]);
            }
        });
    }
}

#[test]
fn a_patient_reclaimer_waits_for_room() {
    for domain in [Domain::new(), limited(1)] {
        let census = Census::default();
        while_held(&domain, |let_go| {
            let mut patient =
                domain.reclaimer_builder().max_pending(1).when_full(WhenFull::Wait(LONG)).build();
            patient.retire(retired(&domain, census.object())).expect("there is room");
            let_go();
            patient.retire(retired(&domain, census.object())).expect("the guard is dropped in time");
            assert_eq!((patient.pending(), census.freed()), (1, 1));
            assert_eq!(troubles(&domain.stats()), [0, 1, 0]);
        });
    }
}

/// Another reclaimer gives room in the domain back.
#[test]
fn a_patient_reclaimer_waits_for_the_room_of_others() {
    let (domain, census) = (limited(1), Census::default());
    let mut other = domain.reclaimer();
    other.retire(retired(&domain, census.object())).expect("there is room");
    let mut patient = domain.reclaimer_builder().when_full(WhenFull::Wait(LONG)).build();
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            patient.retire(retired(&domain, census.object())).expect("the other one polls in time");
        });
        while domain.stats().waits == 0 && !waits.is_finished() {
            thread::yield_now();
        }
        other.flush().expect("nothing is in the way");
    });
    assert_eq!(troubles(&domain.stats()), [0, 1, 0]);
}

#[test]
fn a_patient_reclaimer_hands_back_when_its_time_is_up() {
    let (domain, census) = (limited(1), Census::default());
    while_held(&domain, |_| {
        let mut patient = domain.reclaimer_builder().when_full(WhenFull::Wait(SHORT)).build();
        patient.retire(retired(&domain, census.object())).expect("there is room");
        let asked = Instant::now();
        let error = patient.retire(retired(&domain, census.object())).expect_err("the guard is held");
        assert!(asked.elapsed() >= SHORT);
        assert_eq!((error.kind(), troubles(&domain.stats())), (RetireErrorKind::DomainFull, [1, 1, 0]));
        error.into_inner().verify();
    });
}

#[test]
fn a_patient_handle_waits_and_hands_back_when_its_time_is_up() {
    for domain in [Domain::new(), limited(1)] {
        let census = Census::default();
        let mut background =
            domain.reclaimer_builder().max_pending(1).when_full(WhenFull::Wait(SHORT)).build_background();
        let handle = background.retire_handle();
        let hasty = handle.clone().when_full(WhenFull::HandBack);
        handle.retire(retired(&domain, census.object())).expect("there is room");

        let asked = Instant::now();
        let next =
            handle.retire(retired(&domain, census.object())).expect_err("no thread reclaims").into_inner();
        assert!(asked.elapsed() >= SHORT);
        assert_eq!(troubles(&domain.stats()), [1, 1, 0]);
        let next = hasty.retire(next).expect_err("no thread reclaims").into_inner();
        assert_eq!(troubles(&domain.stats()), [2, 1, 0]);

        thread::scope(|scope| {
            scope.spawn(move || background.run());
            let patient = hasty.when_full(WhenFull::Wait(LONG));
            patient.retire(next).expect("a thread reclaims");
            handle.stop();
        });
        assert_eq!((census.alive(), domain.stats().handed_back), (0, 2));
    }
}

/// A retirement waits only for room.
#[test]
fn nobody_waits_for_a_domain_or_a_reclaimer_that_cannot_take_the_object_in() {
    let (domain, other) = (Domain::new(), Domain::new());
    let mut patient = domain.reclaimer_builder().when_full(WhenFull::Wait(LONG)).build();
    let error = patient.retire(retired(&other, 1)).expect_err("it is of another domain");
    assert_eq!((error.kind(), error.kind().is_full()), (RetireErrorKind::ForeignDomain, false));
    let background = domain.reclaimer_builder().when_full(WhenFull::Wait(LONG)).build_background();
    let handle = background.retire_handle();
    drop(background);
    let error = handle.retire(retired(&domain, 1)).expect_err("the reclaimer is gone");
    assert_eq!((error.kind(), error.kind().is_full()), (RetireErrorKind::Closed, false));
    assert_eq!((troubles(&domain.stats()), troubles(&other.stats())), ([0; 3], [0; 3]));
}

/// There is no reader, and the objects that fill the domain belong to no reclaimer.
#[test]
fn whoever_waits_for_room_frees_what_was_left_to_the_domain() {
    let domain = limited(1);
    drop(retired(&domain, 1));
    let mut reclaimer = domain.reclaimer();
    reclaimer.retire_timeout(retired(&domain, 2), LONG).expect("the domain makes room");
    assert_eq!((domain.stats().freed, domain.stats().waits), (1, 0));

    let domain = limited(1);
    drop(retired(&domain, 1));
    let mut patient = domain.reclaimer_builder().when_full(WhenFull::Wait(LONG)).build();
    patient.retire(retired(&domain, 2)).expect("the domain makes room");

    // The object is left to the domain while another one waits.
    let domain = limited(1);
    let first = retired(&domain, 1);
    let mut holder = domain.reclaimer();
    holder.retire(first).expect("there is room");
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut reclaimer = domain.reclaimer();
            reclaimer.retire_timeout(retired(&domain, 2), LONG).expect("the holder leaves it");
        });
        while domain.stats().waits == 0 && !waits.is_finished() {
            thread::yield_now();
        }
        drop(holder);
        waits.join().expect("it does not panic");
    });
}

/// A loop that only retires comes to an end.
#[test]
fn a_retirement_that_is_repeated_makes_progress() {
    let domain = limited(100);
    for _ in 0..100 {
        drop(retired(&domain, 1));
    }
    let mut reclaimer = domain.reclaimer();
    for _ in 0..300 {
        let mut next = Some(retired(&domain, 1));
        while let Some(object) = next.take() {
            next = reclaimer.retire(object).err().map(|error| error.into_inner());
        }
    }
    assert_eq!(domain.stats().retired, 400);
}
