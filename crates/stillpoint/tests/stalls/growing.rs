//! A stall is reported again whenever its time has doubled, and once more when it has ended.

use std::time::Duration;

use stillpoint::rcu::ReaderKind;

use crate::{synchronizes, until, while_pinned, Reports, LONG, SHORT, THRESHOLD};

#[test]
fn the_intervals_double_until_the_stall_has_ended() {
    let reports = Reports::default();
    let domain = reports.of_domain(THRESHOLD).build().expect("the default mode is always to be had");
    let done = while_pinned(&domain, |_leave| {
        let done = synchronizes(&domain);
        until(|| (reports.len() >= 4).then_some(()));
        done
    });
    done.recv_timeout(LONG).expect("the reader has left");

    let all = reports.all();
    let (last, earlier) = all.split_last().expect("there were four");
    for (index, report) in earlier.iter().enumerate() {
        assert!(!report.ended, "{report}");
        assert_eq!(report.number as usize, index + 1);
        assert!(report.stall.waited >= THRESHOLD * 2_u32.pow(index as u32), "{report}");
        assert_eq!((report.stall.domain.as_str(), report.stall.reader), ("routes", ReaderKind::Guard));
        assert_eq!(report.stall.thread_name.as_deref(), Some("sleepy"));
        assert!(report.to_string().starts_with(&format!("stall report {}: ", report.number)));
    }
    assert!(last.ended && last.number as usize == all.len(), "{last}");
    assert!(last.stall.waited >= earlier.last().expect("there were four").stall.waited);
    assert_eq!((last.stall.thread_name.as_deref(), last.stall.others), (Some("sleepy"), 0));
    assert!(last.to_string().contains("(`sleepy`) no longer stalls domain `routes`"), "{last}");
}

#[test]
fn a_stall_goes_on_when_whoever_waited_has_given_up() {
    let reports = Reports::default();
    let domain = reports.of_domain(THRESHOLD).build().expect("the default mode is always to be had");
    while_pinned(&domain, |_leave| {
        while reports.len() < 3 {
            domain.synchronize_timeout(SHORT).expect_err("a reader is in the way");
        }
        let all = reports.all();
        let numbers: Vec<_> = all.iter().map(|report| report.number).collect();
        assert!(numbers.iter().copied().eq(1..=numbers.len() as u32), "{numbers:?}");
        assert!(all.windows(2).all(|pair| pair[0].stall.waited < pair[1].stall.waited));
    });
    let before = reports.len();
    domain.synchronize_timeout(LONG).expect("the reader has left");
    let all = reports.all();
    assert_eq!(all.len(), before + 1);
    assert!(all[before].ended, "the end is noticed by the next wait");
    domain.synchronize_timeout(LONG).expect("the reader has left");
    assert_eq!(reports.len(), before + 1, "and once");
}

#[test]
fn the_next_reader_in_the_way_is_a_stall_of_its_own() {
    let reports = Reports::default();
    let domain = reports.of_domain(THRESHOLD).build().expect("the default mode is always to be had");
    while_pinned(&domain, |leave_first| {
        domain.start(); // so that the second one has a later token
        while_pinned(&domain, |leave_second| {
            let done = synchronizes(&domain);
            let first = until(|| reports.all().first().cloned());
            assert_eq!(first.stall.others, 1);
            drop(leave_first);
            until(|| {
                let all = reports.all();
                let end = all.iter().position(|report| report.ended)?;
                all.get(end + 1).map(|next| assert_eq!((next.number, next.ended), (1, false), "{next}"))
            });
            drop(leave_second);
            done.recv_timeout(LONG).expect("both readers have left");
        });
    });
    assert_eq!(reports.all().iter().filter(|report| report.ended).count(), 2);
}

#[test]
fn a_stall_is_reported_within_twice_the_threshold() {
    let threshold = Duration::from_millis(300);
    let first_report = || {
        let reports = Reports::default();
        let domain = reports.of_domain(threshold).build().expect("the default mode is always to be had");
        while_pinned(&domain, |_leave| {
            synchronizes(&domain);
            until(|| reports.all().first().map(|first| first.stall.waited))
        })
    };
    // A machine that is busy elsewhere may be late, though not always.
    assert!((0..10).any(|_| (threshold..2 * threshold).contains(&first_report())));
}
