//! The hook is called once for each section that is in the way for long.

use std::time::Duration;

use stillpoint::rcu::wait::ReaderKind;

use super::{synchronizes, until, while_pinned, Reports, THRESHOLD};
use crate::{LONG, SHORT};

#[test]
fn a_section_is_told_of_once_however_often_it_is_waited_for() {
    let reports = Reports::default();
    let domain = reports.of_domain(THRESHOLD).build().expect("the default mode is always available");
    let done = while_pinned(&domain, |_leave| {
        let done = synchronizes(&domain);
        until(|| (reports.len() > 0).then_some(()));
        let mut reclaimer = domain.reclaimer_builder().fence_interval(Duration::ZERO).build();
        reclaimer.retire(domain.cell(1).take().expect("never empty")).expect("there is room");
        for _ in 0..10 {
            domain.synchronize_timeout(SHORT).expect_err("a reader is in the way");
            assert_eq!(reclaimer.poll(), 0);
        }
        done
    });
    done.recv_timeout(LONG).expect("the reader has left");
    let all = reports.all();
    let [stall] = &all[..] else { panic!("{all:?}") };
    assert!(stall.waited >= THRESHOLD, "{stall}");
    assert_eq!((stall.domain.as_str(), stall.reader), ("routes", ReaderKind::Guard));
    assert_eq!((stall.thread_name.as_deref(), stall.others), (Some("sleepy"), 0));
    assert_eq!(domain.stats().stalls, 1);
}

#[test]
fn the_next_section_of_a_reader_is_told_of_as_well() {
    let reports = Reports::default();
    let domain = reports.of_domain(THRESHOLD).build().expect("the default mode is always available");
    let reader = domain.reader();
    for sections in 1..=3 {
        let guard = reader.pin();
        let done = synchronizes(&domain);
        until(|| (reports.len() == sections).then_some(()));
        drop(guard);
        done.recv_timeout(LONG).expect("the guard is dropped");
    }
    assert_eq!((reports.len(), domain.stats().stalls), (3, 3));
}

/// A record that changes owners is not confused with one that was reported.
#[test]
fn the_section_of_another_reader_is_told_of_as_well() {
    let reports = Reports::default();
    let domain = reports.of_domain(THRESHOLD).build().expect("the default mode is always available");
    let mut reclaimer = domain.reclaimer_builder().fence_interval(Duration::ZERO).build();
    reclaimer.retire(domain.cell(1).take().expect("never empty")).expect("there is room");
    for readers in 1..=3 {
        let reader = domain.reader();
        let guard = reader.pin();
        reclaimer.retire(domain.cell(1).take().expect("never empty")).expect("there is room");
        until(|| {
            reclaimer.poll();
            (reports.len() == readers).then_some(())
        });
        drop(guard);
    }
}

#[test]
fn the_next_reader_in_the_way_is_told_of_when_the_first_one_has_left() {
    let reports = Reports::default();
    let domain = reports.of_domain(THRESHOLD).build().expect("the default mode is always available");
    while_pinned(&domain, |leave_first| {
        while_pinned(&domain, |leave_second| {
            let done = synchronizes(&domain);
            let first = until(|| reports.all().first().cloned());
            assert_eq!(first.others, 1);
            drop(leave_first);
            drop(leave_second);
            done.recv_timeout(LONG).expect("both readers have left");
        });
    });
    // It is unspecified which of the two is found first, and whether the other one is still there afterwards.
    assert!((1..=2).contains(&reports.len()), "{:?}", reports.all());

    let reports = Reports::default();
    let domain = reports.of_domain(THRESHOLD).build().expect("the default mode is always available");
    let reader = domain.reader();
    while_pinned(&domain, |leave| {
        let guard = reader.pin();
        let done = synchronizes(&domain);
        let first = until(|| reports.all().first().cloned());
        // The reported one leaves first.
        let (mut leave, mut guard) = (Some(leave), Some(guard));
        let mut other_leaves = || match first.thread_name.as_deref() {
            Some("sleepy") => drop(leave.take()),
            _ => drop(guard.take()),
        };
        other_leaves();
        let second = until(|| reports.all().get(1).cloned());
        assert_ne!(first.thread_id, second.thread_id);
        drop((leave, guard));
        done.recv_timeout(LONG).expect("both readers have left");
    });
    assert_eq!(reports.len(), 2);
}

#[test]
fn a_stall_is_reported_within_twice_the_threshold() {
    let threshold = Duration::from_millis(300);
    let first_report = || {
        let reports = Reports::default();
        let domain = reports.of_domain(threshold).build().expect("the default mode is always available");
        while_pinned(&domain, |_leave| {
            synchronizes(&domain);
            until(|| reports.all().first().map(|first| first.waited))
        })
    };
    // A busy machine may be late, but not always.
    assert!((0..10).any(|_| (threshold..2 * threshold).contains(&first_report())));
}
