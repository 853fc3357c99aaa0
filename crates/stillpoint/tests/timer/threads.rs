//! Several threads: every timer has exactly one end.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Barrier;

use stillpoint::timer::shared::{ArmError, Cause, Mailbox, Outcome, Remote, TimerService};
use stillpoint::timer::Limit;

use crate::ending::Ending;
use crate::with_timer;

const TIMERS: usize = if cfg!(miri) { 20 } else { 2_000 };
const ROUNDS: usize = if cfg!(miri) { 2 } else { 20 };

/// A value that counts its drops.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        // Relaxed: the threads are joined before the count is read.
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Ends {
    cancelled: AtomicUsize,
    revoked: AtomicUsize,
    elsewhere: AtomicUsize,
}

/// Adds timers, and cancels or revokes most of them, while the owner advances the time.
fn add_and_cancel<'a>(
    remote: &Remote<Counted<'a>>,
    mut mailbox: Mailbox<Counted<'a>>,
    dropped: &'a AtomicUsize,
    ends: &Ends,
    stop: &AtomicBool,
    seed: u64,
) -> usize {
    let _ending = Ending(|| stop.store(true, Ordering::Release));
    let timers: Vec<_> = (0..TIMERS).map(|_| remote.timer()).collect();
    let mut state = seed;
    let mut added = 0;
    for round in 0..ROUNDS {
        for timer in &timers {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mut value = Counted(dropped);
            let deadline = (round as u64) * 50 + (state >> 58);
            loop {
                match mailbox.add(timer, deadline, value) {
                    Ok(()) => break,
                    Err(refused) => {
                        assert!(matches!(
                            refused,
                            ArmError::Full(_) | ArmError::Armed(_) | ArmError::Busy(_)
                        ));
                        if let ArmError::Armed(_) = refused {
                            // The timer is still armed from the last round.
                            let count = usize::from(timer.cancel().is_cancelled());
                            ends.cancelled.fetch_add(count, Ordering::Relaxed);
                        }
                        value = refused.into_inner();
                        std::thread::yield_now();
                    }
                }
            }
            added += 1;
            match state >> 32 & 3 {
                0 => match timer.revoke() {
                    Outcome::Cancelled(()) => _ = ends.revoked.fetch_add(1, Ordering::Relaxed),
                    _ => _ = ends.elsewhere.fetch_add(1, Ordering::Relaxed),
                },
                1 | 2 => match timer.cancel() {
                    Outcome::Cancelled(_) => _ = ends.cancelled.fetch_add(1, Ordering::Relaxed),
                    _ => _ = ends.elsewhere.fetch_add(1, Ordering::Relaxed),
                },
                _ => {}
            }
        }
    }
    added
}

#[test]
fn fired_and_cancelled_are_what_was_added() {
    let dropped = AtomicUsize::new(0);
    let ends = Ends::default();
    let (mut fired, mut revoked, mut now) = (0, 0, 0);
    let stops = [AtomicBool::new(false), AtomicBool::new(false)];
    let added: usize = std::thread::scope(|scope| {
        // If it panics, it is gone, which ends the threads.
        let mut service = TimerService::new(0);
        let threads: Vec<_> = stops
            .iter()
            .zip(1..)
            .map(|(stop, seed)| {
                let (remote, dropped, ends) = (service.remote(), &dropped, &ends);
                // The mailbox is made here, since the owner returns `More` while a thread is making one.
                let mailbox = remote.mailbox(64);
                scope.spawn(move || add_and_cancel(&remote, mailbox, dropped, ends, stop, seed))
            })
            .collect();
        let mut rounds = 0;
        while rounds < 2 {
            if stops.iter().all(|stop| stop.load(Ordering::Acquire)) {
                // The owner runs once more, after all threads have ended.
                now = u64::MAX;
                rounds += 1;
            }
            let progress = service.run(now, Limit::NONE, |_, event| match event.cause() {
                Cause::Expired => {
                    assert!(event.deadline() <= now, "early");
                    fired += 1;
                }
                Cause::Revoked => revoked += 1,
            });
            assert!(progress.is_done());
            now = now.saturating_add(1);
            std::thread::yield_now();
        }
        let added = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(service.stats().timers, 0, "nothing has piled up");
        assert_eq!(dropped.load(Ordering::Relaxed), added);
        added
    });
    let cancelled = ends.cancelled.into_inner();
    assert_eq!(revoked, ends.revoked.into_inner());
    assert_eq!(fired + cancelled + revoked, added);
    // Otherwise, the test has not tested all three ends.
    assert!(fired > 0 && cancelled > 0 && revoked > 0);
}

#[test]
fn of_many_cancellations_one_succeeds() {
    let mut service = TimerService::new(0);
    for round in 0..if cfg!(miri) { 5 } else { 500 } {
        let timer = service.remote().timer();
        service.arm(&timer, 10, round).unwrap();
        let begin = Barrier::new(3);
        let (outcomes, progress) = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let (timer, begin) = (timer.clone(), &begin);
                    scope.spawn(move || {
                        begin.wait();
                        timer.cancel()
                    })
                })
                .collect();
            begin.wait();
            let progress =
                service.run(10, Limit::NONE, |_, event| assert_eq!(event.into_value(), Some(round)));
            let outcomes = threads.into_iter().map(|thread| thread.join().unwrap());
            (outcomes.collect::<Vec<_>>(), progress)
        });
        let cancelled = outcomes.iter().filter(|outcome| **outcome == Outcome::Cancelled(round)).count();
        let fired = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Running | Outcome::Fired));
        assert!(cancelled <= 1 && progress.is_done());
        assert!(cancelled == 0 || fired.count() == 0, "more than one end: {outcomes:?}");
        assert_eq!(timer.cancel(), if cancelled == 1 { Outcome::Gone } else { Outcome::Fired });
    }
}

#[test]
fn a_service_may_go_while_others_add_and_cancel() {
    for _ in 0..if cfg!(miri) { 3 } else { 200 } {
        let dropped = AtomicUsize::new(0);
        let service: TimerService<Counted<'_>> = TimerService::new(0);
        let remote = service.remote();
        let begin = Barrier::new(2);
        let made = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let mut mailbox = remote.mailbox(16);
                begin.wait();
                for made in 1.. {
                    let timer = remote.timer();
                    match mailbox.add(&timer, 10, Counted(&dropped)) {
                        Ok(()) if made % 2 == 0 => drop(timer.cancel()),
                        Ok(()) => {}
                        Err(ArmError::Gone(_)) => return made,
                        Err(refused) => assert!(matches!(refused, ArmError::Full(_)), "{refused}"),
                    }
                }
                unreachable!("the service goes")
            });
            begin.wait();
            std::thread::yield_now();
            drop(service);
            thread.join().unwrap()
        });
        drop(remote);
        assert_eq!(dropped.into_inner(), made);
    }
}

#[test]
fn a_service_can_be_made_here_and_used_there() {
    let (mut service, timer) = with_timer();
    service.arm(&timer, 10, String::from("moved")).unwrap();
    let fired = std::thread::spawn(move || {
        let mut fired = Vec::new();
        let _ = service.run(10, Limit::NONE, |_, event| fired.extend(event.into_value()));
        fired
    });
    assert_eq!(fired.join().unwrap(), ["moved"]);
    assert_eq!(timer.cancel(), Outcome::Fired);
}

/// One thread arms a timer repeatedly, and only one thread cancels it: if `is_armed` returns true, the timer can be
/// cancelled.
#[test]
fn a_timer_that_is_armed_can_be_cancelled() {
    let mut service = TimerService::new(0);
    let remote = service.remote();
    let timer = remote.timer();
    let stop = AtomicBool::new(false);
    let rounds = if cfg!(miri) { 20 } else { 2_000 };
    std::thread::scope(|scope| {
        let _ending = Ending(|| stop.store(true, Ordering::Release));
        let arms = scope.spawn(|| {
            let mut mailbox = remote.mailbox(64);
            while !stop.load(Ordering::Acquire) {
                match mailbox.add(&timer, 1 << 40, [0u64; 32]) {
                    Ok(()) => {}
                    // The timer is still armed, or is being cancelled.
                    Err(refused) => {
                        assert!(matches!(
                            refused,
                            ArmError::Armed(_) | ArmError::Busy(_) | ArmError::Full(_)
                        ));
                        std::thread::yield_now();
                    }
                }
            }
        });
        let mut cancelled = 0;
        while cancelled < rounds && !arms.is_finished() {
            // Only this thread cancels, and no timer fires.
            if timer.is_armed() {
                assert!(timer.cancel().is_cancelled(), "it was armed");
                cancelled += 1;
            }
            let progress = service.process(16, |_, _| {});
            assert!(progress.expired() <= 16);
        }
    });
}
