//! Hooks that panic or use the domain, and senseless thresholds.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stillpoint::rcu::wait::{Stall, SynchronizeError};
use stillpoint::rcu::Domain;

use super::{until, while_pinned, Reports, THRESHOLD};
use crate::{LONG, SHORT};

#[test]
fn a_panic_of_the_hook_is_one_of_the_call_and_the_next_call_goes_on() {
    let reports = Reports::default();
    let hook = {
        let reports = reports.clone();
        move |stall: &Stall| {
            reports.push(stall);
            panic!("no");
        }
    };
    let built = Domain::builder().stall_hook(THRESHOLD, hook).build();
    let domain = built.expect("the default mode is always available");
    let mut reclaimer = domain.reclaimer_builder().fence_interval(Duration::ZERO).build();
    while_pinned(&domain, |_leave| {
        let wait = catch_unwind(AssertUnwindSafe(|| domain.synchronize_timeout(LONG)));
        assert!(wait.is_err(), "it panics at the report, and does not wait on");
        domain.synchronize_timeout(SHORT).expect_err("a reader is in the way");
    });
    while_pinned(&domain, |_leave| {
        reclaimer.retire(domain.cell(1).take().expect("never empty")).expect("there is room");
        until(|| catch_unwind(AssertUnwindSafe(|| reclaimer.poll())).err());
        assert_eq!((reclaimer.poll(), reports.len()), (0, 2));
    });
    assert_eq!(reclaimer.poll(), 1, "nothing was lost");
}

/// The wait that calls the hook has taken the objects that were left to the domain, and a barrier would wait for these.
#[test]
fn a_hook_that_would_wait_for_its_own_call_is_told_so() {
    let answers = Arc::new(Mutex::new(Vec::new()));
    let domain = Arc::new(Mutex::new(None::<Domain>));
    let hook = {
        let (domain, answers) = (Arc::clone(&domain), Arc::clone(&answers));
        move |_: &Stall| {
            let domain = domain.lock().expect("no call panics").clone().expect("it was put here");
            answers.lock().expect("no call panics").push(domain.barrier_timeout(SHORT));
        }
    };
    let built = Domain::builder().stall_hook(THRESHOLD, hook).build();
    let own = built.expect("the default mode is always available");
    *domain.lock().expect("no call panics") = Some(own.clone());
    while_pinned(&own, |_leave| {
        drop(own.cell(1).take()); // left to the domain
        own.synchronize_timeout(4 * THRESHOLD).expect_err("the reader is in the way");
    });
    *domain.lock().expect("no call panics") = None;
    let answers = answers.lock().expect("no call panics");
    assert!(matches!(answers[..], [Err(SynchronizeError::Reentrant { .. })]), "{answers:?}");
    own.barrier().expect("outside the hook, a barrier is allowed");
}

#[test]
fn a_hook_may_use_the_domain_and_is_not_called_from_within_for_the_same_section() {
    let (depth, calls) = (AtomicU32::new(0), Arc::new(AtomicU32::new(0)));
    let domain = Arc::new(Mutex::new(None::<Domain>));
    let hook = {
        let (domain, calls) = (Arc::clone(&domain), Arc::clone(&calls));
        move |_: &Stall| {
            assert_eq!(depth.fetch_add(1, Ordering::Relaxed), 0, "called from within");
            let domain = domain.lock().expect("no call panics").clone().expect("it was put here");
            let answer = domain.synchronize_timeout(2 * THRESHOLD);
            assert!(matches!(answer, Err(SynchronizeError::Reentrant { .. })), "{answer:?}");
            let mut reclaimer = domain.reclaimer();
            reclaimer.retire(domain.cell(1).take().expect("never empty")).expect("there is room");
            assert_eq!(reclaimer.poll(), 0);
            assert!(domain.stall().is_some());
            calls.fetch_add(1, Ordering::Relaxed);
            depth.fetch_sub(1, Ordering::Relaxed);
        }
    };
    let built = Domain::builder().stall_hook(THRESHOLD, hook).build();
    let own = built.expect("the default mode is always available");
    *domain.lock().expect("no call panics") = Some(own.clone());
    while_pinned(&own, |_leave| {
        own.synchronize_timeout(4 * THRESHOLD).expect_err("a reader is in the way");
        own.synchronize_timeout(4 * THRESHOLD).expect_err("a reader is in the way");
    });
    own.synchronize_timeout(LONG).expect("the reader has left");
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    *domain.lock().expect("no call panics") = None; // or the domain would keep itself alive
}

#[test]
fn every_threshold_is_one() {
    let reports = Reports::default();
    let domain = reports.of_domain(Duration::ZERO).build().expect("the default mode is always available");
    while_pinned(&domain, |_leave| {
        domain.synchronize_timeout(SHORT).expect_err("a reader is in the way");
    });
    assert_eq!(reports.len(), 1);

    let reports = Reports::default();
    let domain = reports.of_domain(Duration::MAX).build().expect("the default mode is always available");
    while_pinned(&domain, |_leave| {
        domain.synchronize_timeout(SHORT).expect_err("a reader is in the way");
    });
    assert_eq!(reports.all(), []);
}
