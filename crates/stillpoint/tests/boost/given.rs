//! Which readers are boosted, and which are not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use stillpoint::rcu::wait::SynchronizeError;
use stillpoint::rcu::{Boost, Domain};

use super::crowd::{beside, read, work};
use super::{asleep, domain, in_each_way, until};

#[test]
fn a_preempted_guard_is_boosted() {
    in_each_way(|domain| {
        beside(
            &domain,
            |domain, stage, _| read(domain, stage),
            |domain, stage, _| {
                stage.reader();
                until("boost", || {
                    domain.synchronize().unwrap();
                    domain.stats().boosted >= 3
                });
            },
        );
        assert_eq!(domain.stats().boost_refused, 0);
    });
}

#[test]
fn a_preempted_qsbr_reader_is_boosted() {
    in_each_way(|domain| {
        beside(
            &domain,
            |domain, stage, _| {
                let mut reader = domain.qsbr_reader();
                while !stage.go_on.load(Ordering::Relaxed) {
                    work();
                    reader.quiescent();
                }
            },
            |domain, stage, _| {
                stage.reader();
                let (cell, mut reclaimer) = (domain.cell(0), domain.reclaimer());
                until("boost", || {
                    let old = cell.replace(1).unwrap();
                    drop(reclaimer.retire(old));
                    reclaimer.poll();
                    domain.stats().boosted >= 3
                });
            },
        );
    });
}

/// The background reclaimer boosts as well, and what was retired is freed.
#[test]
fn a_background_reclaimer_boosts() {
    in_each_way(|domain| {
        let mut background = domain.background();
        let handle = background.retire_handle();
        beside(
            &domain,
            |domain, stage, _| read(domain, stage),
            |domain, stage, _| {
                stage.reader();
                thread::scope(|scope| {
                    scope.spawn(|| background.run());
                    let cell = domain.cell(0);
                    until("boost", || {
                        handle.retire_timeout(cell.replace(1).unwrap(), super::LONG).unwrap();
                        domain.stats().boosted >= 3
                    });
                    handle.stop();
                });
            },
        );
        assert_eq!(domain.stats().pending, 0);
    });
}

#[test]
fn a_reader_that_sleeps_is_not_boosted() {
    in_each_way(|domain| {
        let ((inside, is_inside), (wake, sleep)) = (channel(), channel::<()>());
        thread::scope(|scope| {
            scope.spawn(|| {
                let reader = domain.reader();
                let _guard = reader.pin();
                inside.send(asleep::own()).unwrap();
                let _ = sleep.into_iter().next();
            });
            // The reader may be boosted on its way into the sleep.
            asleep::wait_until_asleep(is_inside.recv().unwrap());
            let before = domain.stats().boosted;
            let answer = domain.synchronize_timeout(Duration::from_millis(20));
            assert!(matches!(answer, Err(SynchronizeError::Stalled(_))), "{answer:?}");
            assert_eq!(domain.stats().boosted, before);
            drop(wake);
        });
    });
}

#[test]
fn nobody_is_boosted_before_the_threshold() {
    let patient =
        Domain::builder().boost(Boost::Migrate).boost_after(Duration::from_secs(3600)).build().unwrap();
    beside(
        &patient,
        |domain, stage, _| {
            let reader = domain.reader();
            let _guard = reader.pin();
            stage.compute();
        },
        |domain, stage, _| {
            stage.reader();
            until("the reader is inside", || domain.synchronize_timeout(Duration::from_millis(5)).is_err());
        },
    );
    assert_eq!(patient.stats().boosted, 0);
}

/// Writers do not wait for a protected load, so its thread is never boosted.
#[test]
fn protected_loads_need_no_boost() {
    let Some(domain) = domain(Boost::Migrate) else { return };
    let cell = domain.cell(0);
    let done = AtomicBool::new(false);
    beside(
        &domain,
        |domain, stage, _| {
            let reader = domain.reader();
            let _object = cell.protect(&reader);
            done.store(true, Ordering::Relaxed);
            stage.compute();
        },
        |domain, _, _| {
            until("the reader is inside", || done.load(Ordering::Relaxed));
            domain.synchronize().unwrap();
        },
    );
    assert_eq!(domain.stats().boosted, 0);
}

/// Two domains boost the same thread, and neither takes the other's change for the state to restore.
#[test]
fn a_thread_may_be_boosted_in_two_domains() {
    in_each_way(|first| {
        let Some(second) = domain(first.boost()) else { return };
        beside(
            &first,
            |first, stage, _| {
                let (one, other) = (first.reader(), second.reader());
                while !stage.go_on.load(Ordering::Relaxed) {
                    let _outer = one.pin();
                    let _inner = other.pin();
                    work();
                }
            },
            |first, stage, _| {
                stage.reader();
                thread::scope(|scope| {
                    scope.spawn(|| {
                        while !stage.go_on.load(Ordering::Relaxed) {
                            second.synchronize().unwrap();
                        }
                    });
                    until("boost in both", || {
                        first.synchronize().unwrap();
                        first.stats().boosted >= 3 && second.stats().boosted >= 3
                    });
                    stage.go_on();
                });
            },
        );
    });
}
