//! Sleeps without a limit: no thread wakes by itself, so a lost wake-up makes the test hang, and the process is killed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{mpsc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use stillpoint_multicast::{signals, Group};

use crate::asleep;
use crate::child::in_child;
use crate::{ways, LONG};

/// Runs the test in a separate process, which is killed if it hangs.
pub(crate) fn or_hang(name: &str, body: impl FnOnce()) {
    in_child(name, || {
        // SAFETY: no pointers are passed. The signal ends the process.
        unsafe { libc::alarm(2 * LONG.as_secs() as u32) };
        body();
    });
}

#[test]
fn every_message_wakes_its_receiver_and_the_last_one_the_initiator() {
    or_hang("waking::every_message_wakes_its_receiver_and_the_last_one_the_initiator", || {
        const MEMBERS: usize = 7;
        const ROUNDS: usize = 10;
        let (group, there) = (Group::new(), Barrier::new(MEMBERS + 1));
        thread::scope(|scope| {
            for _ in 0..MEMBERS {
                scope.spawn(|| {
                    let (member, mut served) = (group.join(), 0);
                    there.wait();
                    while served < ROUNDS * ways().len() {
                        let messages = member.wait();
                        assert!(messages > 0, "without a limit it returns for messages only");
                        served += messages;
                    }
                    assert_eq!((served, member.poll()), (ROUNDS * ways().len(), 0), "each message once");
                });
            }
            there.wait();
            for round in 0..ROUNDS {
                for (strategy, acknowledgement, helps) in ways() {
                    let multicast = group.multicast().strategy(strategy).acknowledgement(acknowledgement);
                    let report = multicast.helping(helps).run(|| {});
                    assert_eq!(report.receivers, MEMBERS);
                    if round == 0 {
                        // The members fall asleep again.
                        thread::sleep(Duration::from_millis(2));
                    }
                }
            }
        });
    });
}

#[test]
fn a_wait_with_a_limit_ends_when_it_is_over_and_not_before() {
    let group = Group::new();
    let member = group.join();
    for limit in [Duration::ZERO, Duration::from_millis(30)] {
        let begun = Instant::now();
        assert_eq!(member.wait_timeout(limit), 0);
        assert!(begun.elapsed() >= limit);
    }
    // Other signals do not end the wait. A limit beyond the range of the clock is no limit.
    thread::scope(|scope| {
        for limit in [LONG, Duration::MAX] {
            scope.spawn(|| assert_eq!(group.multicast().run(|| {}).receivers, 1));
            assert_eq!(member.wait_timeout(limit), 1);
        }
    });
    assert_eq!((member.poll(), member.wait_timeout(Duration::ZERO)), (0, 0));
}

/// An initiator that is a member sleeps until it is answered, and messages from others wake it: two initiators wait for each other,
/// and neither helps.
#[test]
fn an_initiator_that_sleeps_is_woken_by_its_mail() {
    or_hang("waking::an_initiator_that_sleeps_is_woken_by_its_mail", || {
        let (group, runs) = (Group::new(), AtomicUsize::new(0));
        let (late, joined) = (Barrier::new(2), Barrier::new(3));
        thread::scope(|scope| {
            scope.spawn(|| {
                let member = group.join();
                joined.wait();
                late.wait();
                let mut served = 0;
                while served < 2 {
                    served += member.wait();
                }
            });
            scope.spawn(|| {
                let member = group.join();
                joined.wait();
                let report = member.group().multicast().helping(false).run(|| {});
                assert_eq!((report.receivers, report.ran_here), (1, true));
            });
            joined.wait();
            thread::sleep(Duration::from_millis(20));
            let (told, ran) = mpsc::channel();
            let here = scope.spawn(|| {
                let told = std::sync::Mutex::new(told);
                group.multicast().helping(false).run(|| {
                    runs.fetch_add(1, Ordering::Relaxed);
                    told.lock().unwrap().send(()).expect("the test waits for it");
                })
            });
            // The initiator that sleeps in its own multicast runs the function before the other one processes a message.
            let answer = ran.recv_timeout(LONG);
            late.wait();
            assert_eq!(here.join().expect("it does not panic").receivers, 2);
            assert_eq!(answer, Ok(()));
        });
        assert_eq!(runs.into_inner(), 2);
    });
}

/// The initiator's mailbox is closed, so no message wakes it: the last acknowledgement does.
#[test]
fn an_initiator_that_leaves_sleeps_until_it_is_answered() {
    or_hang("waking::an_initiator_that_leaves_sleeps_until_it_is_answered", || {
        let (group, (begins, begun)) = (Group::new(), mpsc::channel());
        let (joined, late) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            let leaver = scope.spawn(|| {
                let member = group.join();
                joined.wait();
                joined.wait();
                drop(member);
            });
            joined.wait();
            let inside = group.clone();
            let posted = group.multicast().run_timeout(Duration::ZERO, move || {
                begins.send(asleep::own()).expect("the test waits for it");
                assert_eq!(inside.multicast().run(|| {}).receivers, 1);
            });
            assert!(posted.is_err(), "it does not poll");
            scope.spawn(|| {
                let member = group.join();
                joined.wait();
                late.wait();
                assert_eq!(member.wait(), 1);
            });
            asleep::wait_until_asleep(begun.recv().expect("it leaves"));
            late.wait();
            leaver.join().expect("it does not panic");
        });
    });
}

/// The same for threads that are interrupted. No signal is sent again before the time is up, so a signal that was not sent is an
/// error.
#[test]
fn every_message_is_announced_by_a_signal() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    or_hang("waking::every_message_is_announced_by_a_signal", || {
        let (joined, over) = (Barrier::new(6), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..5 {
                scope.spawn(|| {
                    let _member = signals::join().expect("the signal is free");
                    joined.wait();
                    while !over.load(Ordering::Relaxed) {
                        // Interrupted, and restarted.
                        thread::sleep(Duration::from_millis(10));
                    }
                });
            }
            joined.wait();
            for round in 1..=10 {
                for (strategy, acknowledgement, helps) in ways() {
                    let multicast = signals::multicast().expect("it has been started").strategy(strategy);
                    let multicast = multicast.acknowledgement(acknowledgement).helping(helps);
                    // SAFETY: an atomic addition may be done anywhere.
                    let report =
                        unsafe { multicast.run_timeout(LONG, &|| _ = RUNS.fetch_add(1, Ordering::Relaxed)) };
                    assert_eq!(report.expect("all threads answer").receivers, 5);
                }
                assert_eq!(RUNS.load(Ordering::Relaxed), 5 * round * ways().len());
            }
            over.store(true, Ordering::Relaxed);
        });
    });
}
