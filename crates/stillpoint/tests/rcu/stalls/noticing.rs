//! Which calls report a stall to the hook: every call whose grace period is under way.

use std::future::Future;
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use stillpoint::fence::Mode;
use stillpoint::rcu::{Domain, Reclaimer};

use super::{until, while_pinned, Reports, THRESHOLD};
use crate::ending::Ending;
use crate::modes::modes;
use crate::{LONG, SHORT};

/// A reader is in the way while `notice` runs. There should be one report.
fn is_noticed_by(notice: impl Fn(&Domain, &Reports)) {
    let reports = Reports::default();
    let domain = reports.of_domain(THRESHOLD).build().expect("the default mode is always available");
    while_pinned(&domain, |_leave| {
        notice(&domain, &reports);
        assert_eq!(reports.len(), 1, "{:?}", reports.all());
    });
    domain.synchronize_timeout(LONG).expect("the reader has left");
    assert_eq!(reports.len(), 1, "{:?}", reports.all());
}

fn full(domain: &Domain) -> Reclaimer {
    let cell = domain.cell(0_u64);
    let mut reclaimer = domain.reclaimer_builder().max_pending(3).fence_interval(Duration::ZERO).build();
    while reclaimer.pending() < 3 {
        reclaimer.retire(cell.replace(1).expect("never empty")).expect("there is room");
    }
    reclaimer
}

#[test]
fn by_waits() {
    let limit = 4 * THRESHOLD;
    is_noticed_by(|domain, _| drop(domain.synchronize_timeout(limit)));
    is_noticed_by(|domain, _| drop(domain.wait_timeout(domain.start(), limit)));
    is_noticed_by(|domain, _| drop(domain.cell(1).take().expect("never empty").free_timeout(limit)));
    is_noticed_by(|domain, _| drop(full(domain).flush_timeout(limit)));
    is_noticed_by(|domain, _| {
        let mut reclaimer = full(domain);
        let old = domain.cell(1_u64).take().expect("never empty");
        drop(reclaimer.retire_timeout(old, limit).expect_err("a reader is in the way"));
    });
}

/// A wait that ends before it would sleep reports all the same.
#[test]
fn by_waits_without_any_time() {
    let reports = Reports::default();
    let domain = reports.of_domain(Duration::ZERO).build().expect("the default mode is always available");
    while_pinned(&domain, |_leave| {
        domain.synchronize_timeout(Duration::ZERO).expect_err("a reader is in the way");
        assert_eq!(reports.len(), 1, "{:?}", reports.all());
    });
}

#[test]
fn by_polls_and_by_retirements_that_find_no_room() {
    is_noticed_by(|domain, reports| {
        let mut reclaimer = full(domain);
        until(|| {
            assert_eq!(reclaimer.poll(), 0);
            (reports.len() > 0).then_some(())
        });
        let stall = &reports.all()[0];
        assert_eq!((stall.pending, stall.pending_bytes), (3, 24));
    });
    is_noticed_by(|domain, reports| {
        let mut reclaimer = full(domain);
        until(|| {
            let old = domain.cell(1_u64).take().expect("never empty");
            drop(reclaimer.retire(old).expect_err("it is full"));
            (reports.len() > 0).then_some(())
        });
    });
}

#[test]
fn by_futures_that_are_polled() {
    is_noticed_by(|domain, reports| {
        let mut over = pin!(domain.grace_period(domain.start()));
        until(|| {
            assert!(over.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            (reports.len() > 0).then_some(())
        });
    });
}

#[test]
fn by_a_background_reclaimer_that_has_nothing_else_to_do() {
    let reports = Reports::default();
    let domain = reports.of_domain(THRESHOLD).build().expect("the default mode is always available");
    let mut background = domain.background();
    let handle = background.retire_handle();
    thread::scope(|scope| {
        let _ending = Ending(|| handle.stop());
        scope.spawn(move || background.run());
        while_pinned(&domain, |_leave| {
            handle.retire(domain.cell(1).take().expect("never empty")).expect("there is room");
            until(|| (reports.len() > 0).then_some(()));
        });
    });
}

#[test]
fn by_one_thread_of_many_that_wait() {
    let reports = Reports::default();
    let domain = reports.of_domain(THRESHOLD).build().expect("the default mode is always available");
    thread::scope(|scope| {
        while_pinned(&domain, |_leave| {
            let waits = [(); 6].map(|()| {
                scope.spawn(|| domain.synchronize_timeout(8 * THRESHOLD).expect_err("a reader is in the way"))
            });
            waits.into_iter().for_each(|wait| drop(wait.join().expect("no call panics")));
        });
    });
    assert_eq!(reports.len(), 1);
}

#[test]
fn not_by_checks_nor_without_a_stall() {
    let reports = Reports::default();
    let domain = reports.of_domain(THRESHOLD).build().expect("the default mode is always available");
    while_pinned(&domain, |_leave| {
        let token = domain.start();
        thread::sleep(4 * THRESHOLD);
        assert!(!domain.check(token));
        assert!(domain.cell(1).take().expect("never empty").try_free().is_err());
    });
    let mut reclaimer = domain.reclaimer();
    for _ in 0..100 {
        reclaimer.retire(domain.cell(1).take().expect("never empty")).expect("there is room");
        reclaimer.flush().expect("there is no reader");
        domain.synchronize().expect("there is no reader");
    }
    assert_eq!(reports.all(), []);
}

#[test]
fn not_for_protected_loads() {
    let reports = Reports::default();
    let domain = reports.of_domain(THRESHOLD).build().expect("the default mode is always available");
    let cell = domain.cell(1);
    let reader = domain.reader();
    let object = cell.protect(&reader);
    let mut reclaimer = domain.reclaimer_builder().fence_interval(Duration::ZERO).build();
    reclaimer.retire(cell.take().expect("never empty")).expect("there is room");
    reclaimer.poll();
    thread::sleep(4 * THRESHOLD);
    reclaimer.flush_timeout(SHORT).expect_err("the object is held");
    assert_eq!((domain.stats().pinned, domain.stats().pending), (1, 1));
    assert_eq!(domain.stall(), None);
    drop(object);
    reclaimer.flush_timeout(LONG).expect("nothing is held");
    assert_eq!((domain.stats().pinned, domain.stats().pending), (0, 0));
    assert_eq!(reports.all(), []);
}

const HOUR: Duration = Duration::from_secs(3600);

/// In each mode with heavy fences, beside a thread that has loaded something and sleeps: nothing vouches for what it holds but a fence.
fn beside_a_silent_reader(test: impl Fn(&Domain, &Reports)) {
    for mode in modes().filter(|&mode| mode != Mode::Symmetric) {
        let reports = Reports::default();
        let domain = reports.of_domain(THRESHOLD).fence(mode).build().expect("the mode was probed");
        let (go_on, next) = mpsc::channel::<()>();
        let (done, is_done) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let (done, next) = (done, next);
                let reader = domain.reader();
                drop(reader.pin());
                done.send(()).expect("the test waits for it");
                let _ = next.recv();
            });
            is_done.recv().expect("the thread runs");
            test(&domain, &reports);
            drop(go_on);
        });
    }
}

/// The fence for the silent reader is an hour away; the region is in the way now.
#[test]
fn by_polls_although_the_fence_for_another_reader_is_put_off() {
    beside_a_silent_reader(|domain, reports| {
        let mut reclaimer = domain.reclaimer_builder().batch(usize::MAX).fence_interval(HOUR).build();
        let object = || domain.cell(1).take().expect("never empty");
        reclaimer.retire(object()).expect("there is room");
        // The first fence. From now on, the silent reader is the first that is looked at.
        until(|| (reclaimer.poll() == 1).then_some(()));
        while_pinned(domain, |_leave| {
            reclaimer.retire(object()).expect("there is room");
            let report = until(|| {
                assert_eq!(reclaimer.poll(), 0);
                reports.all().pop()
            });
            assert_eq!(report.thread_name.as_deref(), Some("sleepy"));
        });
    });
}

#[test]
fn by_a_background_reclaimer_although_the_fence_for_another_reader_is_put_off() {
    beside_a_silent_reader(|domain, reports| {
        let builder = domain.reclaimer_builder().batch(usize::MAX).fence_interval(HOUR);
        let mut background = builder.build_background();
        let handle = background.retire_handle();
        thread::scope(|scope| {
            let _ending = Ending(|| handle.stop());
            let retire =
                || handle.retire(domain.cell(1).take().expect("never empty")).expect("there is room");
            scope.spawn(move || background.run());
            retire();
            until(|| (handle.pending() == 0).then_some(()));
            while_pinned(domain, |_leave| {
                retire();
                let report = until(|| reports.all().pop());
                assert_eq!(report.thread_name.as_deref(), Some("sleepy"));
            });
        });
    });
}
