//! The service of one thread.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use stillpoint::timer::shared::{ArmError, Cause, Outcome, TimerService};
use stillpoint::timer::{Full, Limit, Progress, Schedule, WheelStats};

use crate::{with_mailbox, with_timer};

const NONE: Limit = Limit::NONE;

fn run<T>(service: &mut TimerService<T>, now: u64) -> Vec<T> {
    let mut values = Vec::new();
    let progress = service.run(now, NONE, |_, event| values.extend(event.into_value()));
    assert!(progress.is_done());
    values
}

#[test]
fn its_own_timers_are_those_of_a_wheel() {
    let mut service = TimerService::with_capacity(0, 10);
    let key = service.add(10, 1).unwrap();
    let other = service.add(Schedule::after(20), 2).unwrap();
    service.add(Schedule::at(30).coarse(), 3).unwrap();
    assert!(service.reset(key, 15));
    assert_eq!(service.cancel(other), Some(2));
    assert_eq!((service.cancel(other), service.stats().timers), (None, 2));
    assert_eq!(service.next_deadline(), Some(15));
    let mut keys = Vec::new();
    let progress = service.manage(16, NONE, |_, event| {
        assert!(event.timer().is_none() && event.cause() == Cause::Expired);
        keys.push((event.key(), event.deadline()));
    });
    assert_eq!((keys, progress), (vec![(Some(key), 15)], Progress::Done(1)));
    assert_eq!(service.now(), 16);
    assert_eq!(run(&mut service, 40), [3]);
}

#[test]
fn processing_fires_nothing_and_managing_takes_nothing_in() {
    let (mut service, timer, mut mailbox) = with_mailbox(4);
    service.add(5, 1).unwrap();
    mailbox.add(&timer, 5, 2).unwrap();
    assert_eq!(service.manage(6, NONE, |_, event| assert_eq!(event.into_value(), Some(1))).expired(), 1);
    assert_eq!(service.stats().timers, 0);
    assert_eq!(service.process(9, |_, _| unreachable!("nothing fires")), Progress::Done(1));
    assert_eq!(service.manage(6, NONE, |_, event| assert_eq!(event.into_value(), Some(2))).expired(), 1);
}

#[test]
fn a_limit_of_messages_is_kept() {
    let mut service = TimerService::new(0);
    let mut mailboxes = [service.remote().mailbox(4), service.remote().mailbox(4)];
    let timers: Vec<_> = (0..8).map(|_| service.remote().timer()).collect();
    for (number, timer) in timers.iter().enumerate() {
        mailboxes[number % 2].add(timer, 100, number).unwrap();
    }
    assert_eq!(service.process(0, |_, _| {}), Progress::More(0));
    assert_eq!(service.process(3, |_, _| {}), Progress::More(3));
    assert_eq!(service.process(5, |_, _| {}), Progress::Done(5));
    for timer in &timers {
        assert!(timer.cancel().is_cancelled());
    }
    assert_eq!(service.process(7, |_, _| {}), Progress::More(7));
    assert_eq!(service.stats().timers, 1);
    assert_eq!(service.process(7, |_, _| {}), Progress::Done(1));
    assert_eq!(service.process(7, |_, _| {}), Progress::Done(0));
}

#[test]
fn a_full_mailbox_hands_the_value_back_and_leaves_the_timer_as_it_was() {
    let mut service = TimerService::new(0);
    let remote = service.remote();
    let mut mailbox = remote.mailbox(3);
    assert_eq!(mailbox.capacity(), 4);
    let timers: Vec<_> = (0..5).map(|_| remote.timer()).collect();
    for timer in &timers[..4] {
        mailbox.add(timer, 10, "in").unwrap();
    }
    let refused = mailbox.add(&timers[4], 10, "out").unwrap_err();
    assert_eq!(refused, ArmError::Full("out"));
    assert!(refused.to_string().contains("is full"), "{refused}");
    assert!(!timers[4].is_armed() && timers[4].cancel() == Outcome::Gone);
    let _ = service.process(1, |_, _| {});
    mailbox.add(&timers[4], 10, "in").unwrap();
    assert_eq!(run(&mut service, 10).len(), 5);
}

#[test]
fn a_bounded_wheel_leaves_in_the_mailbox_what_it_has_no_room_for() {
    let mut service = TimerService::with_max_len(0, 1);
    let mut mailbox = service.remote().mailbox(4);
    let (first, second) = (service.remote().timer(), service.remote().timer());
    let key = service.add(50, "own").unwrap();
    assert_eq!(service.add(60, "more"), Err(Full("more")));
    let refused = service.arm(&first, 10, "first").unwrap_err();
    assert_eq!(refused, ArmError::Full("first"));
    mailbox.add(&first, 10, "first").unwrap();
    mailbox.add(&second, 20, "second").unwrap();
    assert_eq!(service.process(9, |_, _| {}), Progress::Done(0));
    assert_eq!(first.cancel(), Outcome::Cancelled("first"), "cancelled while its message is in the mailbox");
    assert_eq!(
        service.process(9, |_, _| {}),
        Progress::Done(2),
        "the hint, and the cancelled timer's message"
    );
    assert_eq!(service.cancel(key), Some("own"));
    assert_eq!(run(&mut service, 20), ["second"]);
}

#[test]
fn keys_of_shared_timers_cannot_be_had() {
    let (mut service, timer) = with_timer();
    service.arm(&timer, 10, 1).unwrap();
    let progress = service.manage(10, NONE, |_, event| {
        assert!(event.key().is_none());
        assert!(event.timer().is_some_and(|own| own.is_same(&timer)));
    });
    assert_eq!(progress.expired(), 1);
}

#[test]
fn an_armed_timer_is_not_armed_again() {
    let (mut service, timer, mut mailbox) = with_mailbox(4);
    mailbox.add(&timer, 10, 1).unwrap();
    assert_eq!(mailbox.add(&timer, 20, 2), Err(ArmError::Armed(2)));
    assert_eq!(service.arm(&timer, 20, 3).unwrap_err().into_inner(), 3);
    assert_eq!(timer.cancel(), Outcome::Cancelled(1));
    service.arm(&timer, 20, 4).unwrap();
    assert!(run(&mut service, 19).is_empty());
    assert_eq!(run(&mut service, 20), [4]);
    assert_eq!(timer.cancel(), Outcome::Fired);
}

#[test]
fn a_timer_that_is_armed_and_cancelled_again_and_again_does_not_pile_up() {
    let (mut service, timer, mut mailbox) = with_mailbox(1024);
    for round in 0..100u64 {
        for step in 0..5 {
            mailbox.add(&timer, 1_000_000 + round, round).unwrap();
            if step < 4 || round % 2 == 0 {
                assert_eq!(timer.cancel(), Outcome::Cancelled(round));
            }
            if round % 3 == 0 {
                let _ = service.process(1, |_, _| {});
            }
        }
        assert!(service.process(usize::MAX, |_, _| {}).is_done());
        assert_eq!(service.stats().timers as u64, round % 2);
        let _ = timer.cancel();
    }
}

#[test]
fn a_timer_of_another_service_is_refused() {
    let mut service = TimerService::new(0);
    let other = TimerService::new(0);
    let foreign = other.remote().timer();
    let refused = service.arm(&foreign, 10, 1).unwrap_err();
    assert_eq!(refused, ArmError::Foreign(1));
    let refused = service.remote().mailbox(1).add(&foreign, 10, 2).unwrap_err();
    assert_eq!(refused, ArmError::Foreign(2));
}

#[test]
fn a_service_that_is_gone() {
    let service = TimerService::new(0);
    let remote = service.remote();
    let mut mailbox = remote.mailbox(4);
    let [sent, unsent, unused] = [(); 3].map(|()| remote.timer());
    mailbox.add(&sent, 10, "sent").unwrap();
    drop(service);
    assert_eq!(sent.cancel(), Outcome::Gone);
    assert_eq!(unused.cancel(), Outcome::Gone);
    let refused = mailbox.add(&unsent, 10, "unsent").unwrap_err();
    assert_eq!(refused, ArmError::Gone("unsent"));
    assert_eq!(remote.mailbox(4).add(&unsent, 10, "unsent"), Err(ArmError::Gone("unsent")));
    assert_eq!(unsent.revoke(), Outcome::Gone);
}

#[test]
fn closing_hands_every_value_out() {
    let mut service = TimerService::new(0);
    let mut mailbox = service.remote().mailbox(4);
    let [in_the_wheel, in_the_ring, revoked, cancelled] = [(); 4].map(|()| service.remote().timer());
    service.add(10, 1).unwrap();
    service.arm(&in_the_wheel, 10, 2).unwrap();
    service.arm(&revoked, 10, 4).unwrap();
    service.arm(&cancelled, 10, 5).unwrap();
    let _ = service.process(usize::MAX, |_, _| {});
    mailbox.add(&in_the_ring, 10, 3).unwrap();
    assert_eq!(revoked.revoke(), Outcome::Cancelled(()));
    assert_eq!(cancelled.cancel(), Outcome::Cancelled(5));
    let mut values = Vec::new();
    service.close(|value| values.push(value));
    values.sort_unstable();
    assert_eq!(values, [1, 2, 3, 4]);
    assert_eq!(in_the_wheel.cancel(), Outcome::Gone);
}

/// The messages of the revoked timers were dropped, so only a hint leads to each.
#[test]
fn closing_hands_out_what_only_a_hint_leads_to() {
    for calls_before in 0..2 {
        let mut service = TimerService::new(0);
        let mut mailbox = service.remote().mailbox(4);
        let mut values = Vec::new();
        for _ in 0..calls_before {
            let _ = service.process(0, |_, _| {});
        }
        for number in 0..2 {
            let timer = service.remote().timer();
            mailbox.add(&timer, 10, number).unwrap();
            assert!(timer.revoke().is_cancelled());
        }
        for _ in 0..3 {
            assert_eq!(service.process(1, |_, event| values.extend(event.into_value())), Progress::More(1));
        }
        service.close(|value| values.push(value));
        values.sort_unstable();
        assert_eq!(values, [0, 1]);
    }
}

#[test]
fn a_mailbox_that_is_gone_has_delivered() {
    let (mut service, timer) = with_timer();
    for number in 0..100 {
        let mut mailbox = service.remote().mailbox(2);
        mailbox.add(&timer, 10, number).unwrap();
        drop(mailbox);
        assert_eq!(run(&mut service, 10), [number]);
    }
}

#[test]
fn a_timer_whose_handles_are_gone_fires() {
    let mut service = TimerService::new(0);
    service.arm(&service.remote().timer(), 10, 7).unwrap();
    assert_eq!(run(&mut service, 10), [7]);
}

#[test]
fn bursts_are_seen_when_they_end() {
    let mut service = TimerService::new(0);
    let mut mailbox = service.remote().mailbox(8);
    let timers: Vec<_> = (0..5).map(|_| service.remote().timer()).collect();
    let mut burst = mailbox.burst();
    for timer in &timers {
        burst.add(timer, Schedule::at(10), 1).unwrap();
    }
    assert_eq!(service.process(9, |_, _| {}), Progress::Done(0));
    drop(burst);
    assert_eq!(service.process(9, |_, _| {}), Progress::Done(5));
}

#[test]
fn a_periodic_shared_timer_beats_until_it_is_cancelled() {
    let (mut service, timer, mut mailbox) = with_mailbox(8);
    let ten = NonZeroU64::new(10).unwrap();
    mailbox.add(&timer, Schedule::at(10).every(ten), vec![]).unwrap();
    for now in [10, 20, 45] {
        let progress = service.run(now, NONE, |_, mut event| {
            assert!(event.is_periodic());
            let missed = event.missed();
            event.value().push((now, missed));
        });
        assert_eq!(progress, Progress::Done(1));
    }
    assert_eq!(timer.cancel(), Outcome::Cancelled(vec![(10, 0), (20, 0), (45, 1)]));
    assert_eq!(service.run(60, NONE, |_, _| unreachable!("cancelled")), Progress::Done(0));
    assert_eq!(service.stats().timers, 0);
}

#[test]
fn a_periodic_shared_timer_that_its_callback_cancels_is_over() {
    let (mut service, timer) = with_timer();
    let ten = NonZeroU64::new(10).unwrap();
    let value = std::rc::Rc::new(());
    service.arm(&timer, Schedule::at(10).every(ten), value.clone()).unwrap();
    let progress = service.run(10, NONE, |_, event| {
        let own = event.timer().unwrap();
        assert_eq!((own.cancel(), own.cancel()), (Outcome::Running, Outcome::Running));
        assert_eq!(own.revoke(), Outcome::Running);
    });
    assert_eq!(progress, Progress::Done(1));
    assert_eq!(std::rc::Rc::strong_count(&value), 1);
    assert_eq!((service.stats().timers, timer.cancel()), (0, Outcome::Fired));
}

#[test]
fn a_periodic_shared_timer_that_its_callback_revokes_is_over() {
    let (mut service, timer) = with_timer();
    let ten = NonZeroU64::new(10).unwrap();
    service.arm(&timer, Schedule::at(10).every(ten), 1).unwrap();
    let progress = service.run(10, NONE, |_, _| assert_eq!(timer.revoke(), Outcome::Running));
    assert_eq!(progress, Progress::Done(1));
    assert_eq!((service.stats().timers, timer.revoke()), (0, Outcome::Fired));
}

#[test]
fn a_coarse_shared_timer_is_never_moved() {
    let mut service = TimerService::new(0);
    let mut mailbox = service.remote().mailbox(1);
    let timers = [service.remote().timer(), service.remote().timer()];
    service.arm(&timers[0], Schedule::at(1 << 30).coarse(), 1).unwrap();
    mailbox.add(&timers[1], Schedule::at(1 << 30).coarse(), 2).unwrap();
    assert_eq!(service.process(usize::MAX, |_, _| {}), Progress::Done(1));
    assert_eq!((service.stats().timers, service.stats().levels), (2, 0));
    assert_eq!(run(&mut service, 1 << 30), [1, 2]);
}

#[test]
fn a_periodic_timer_of_its_own_says_what_it_has_missed() {
    let mut service = TimerService::new(0);
    let ten = NonZeroU64::new(10).unwrap();
    let key = service.add(Schedule::at(10).every(ten), 7).unwrap();
    let progress = service.manage(45, NONE, |_, event| {
        assert!(event.is_periodic());
        assert_eq!((event.key(), event.deadline(), event.missed()), (Some(key), 10, 3));
    });
    assert_eq!((progress, service.cancel(key)), (Progress::Done(1), Some(7)));
}

#[test]
fn a_timer_whose_last_beat_comes_while_its_callback_runs_is_over() {
    let (mut service, timer) = with_timer();
    service.arm(&timer, Schedule::at(1).every(NonZeroU64::MAX), "periodic").unwrap();
    let progress = service.manage(1, NONE, |service, event| {
        assert!(event.is_periodic());
        let inner = service.manage(u64::MAX, NONE, |_, _| unreachable!("its value is lent"));
        assert_eq!(inner, Progress::Done(0));
    });
    assert_eq!((progress, service.stats().timers), (Progress::Done(1), 0));
    assert!(!timer.is_armed(), "no wheel would fire it");
    assert_eq!(timer.cancel(), Outcome::Fired);
    service.arm(&timer, 2, "again").unwrap();
    assert_eq!(run(&mut service, u64::MAX), ["again"]);
}

#[test]
fn a_callback_arms_its_own_timer_again() {
    let (mut service, timer, mut mailbox) = with_mailbox(1);
    service.arm(&timer, 10, 0).unwrap();
    for now in [10, 20, 30] {
        let progress = service.run(now, NONE, |service, event| {
            let own = event.timer().unwrap().clone();
            let value = event.into_value().unwrap();
            assert_eq!(mailbox.add(&own, now + 10, 99), Err(ArmError::Busy(99)));
            service.arm(&own, now + 10, value + 1).unwrap();
        });
        assert_eq!(progress, Progress::Done(1));
    }
    assert_eq!(timer.cancel(), Outcome::Cancelled(3));
}

#[test]
fn a_timer_cancelled_in_its_callback_is_not_armed_there() {
    let (mut service, timer) = with_timer();
    service.arm(&timer, 10, 0).unwrap();
    let progress = service.run(10, NONE, |service, _| {
        assert_eq!(timer.cancel(), Outcome::Running);
        assert_eq!(service.arm(&timer, 20, 1), Err(ArmError::Busy(1)));
    });
    assert_eq!((progress, timer.cancel()), (Progress::Done(1), Outcome::Fired));
    service.arm(&timer, 20, 2).unwrap();
}

#[test]
fn a_periodic_timer_that_its_callback_arms_anew_takes_the_new_schedule() {
    let (mut service, timer) = with_timer();
    let ten = NonZeroU64::new(10).unwrap();
    service.arm(&timer, Schedule::at(10).every(ten), "old").unwrap();
    let progress = service.run(10, NONE, |service, _| service.arm(&timer, 15, "new").unwrap());
    assert_eq!((progress, service.stats().timers), (Progress::Done(1), 1));
    assert_eq!(run(&mut service, 100), ["new"]);
    assert_eq!(service.stats().timers, 0);
}

#[test]
fn a_revoked_timer_is_the_owner_s_to_end() {
    let (mut service, timer, mut mailbox) = with_mailbox(4);
    mailbox.add(&timer, 10, "session").unwrap();
    assert_eq!(timer.revoke(), Outcome::Cancelled(()));
    assert_eq!(timer.revoke(), Outcome::Gone);
    assert_eq!(mailbox.add(&timer, 10, "new"), Err(ArmError::Busy("new")));
    let mut seen = Vec::new();
    let _ = service.process(9, |_, event| seen.push((event.cause(), event.deadline(), event.into_value())));
    assert_eq!(seen, [(Cause::Revoked, 10, Some("session"))]);
    mailbox.add(&timer, 20, "new").unwrap();
    assert_eq!(run(&mut service, 20), ["new"]);
}

#[test]
fn a_panic_of_a_callback_leaves_the_service_whole() {
    let mut service = TimerService::new(0);
    let timers: Vec<_> = (0..3).map(|_| service.remote().timer()).collect();
    let ten = NonZeroU64::new(10).unwrap();
    service.arm(&timers[0], 10, 0).unwrap();
    service.arm(&timers[1], Schedule::at(11).every(ten), 1).unwrap();
    service.arm(&timers[2], 12, 2).unwrap();
    let mut attempt = |now| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            service.run(now, NONE, |_, _| panic!("on purpose"))
        }))
    };
    assert!(attempt(10).is_err());
    assert_eq!(timers[0].cancel(), Outcome::Fired);
    assert!(attempt(11).is_err());
    assert_eq!(timers[1].cancel(), Outcome::Cancelled(1), "the timer is still armed");
    assert_eq!(timers[2].revoke(), Outcome::Cancelled(()));
    assert!(attempt(11).is_err());
    assert_eq!(timers[2].cancel(), Outcome::Gone);
    assert!(attempt(100).is_ok_and(|progress| progress == Progress::Done(0)));
}

#[test]
fn several_services_live_on_one_thread() {
    let mut services: Vec<TimerService<usize>> = (0..3).map(|_| TimerService::new(0)).collect();
    for (number, service) in services.iter_mut().enumerate() {
        let timer = service.remote().timer();
        service.remote().mailbox(1).add(&timer, 10, number).unwrap();
    }
    for (number, service) in services.iter_mut().enumerate() {
        assert_eq!(run(service, 10), [number]);
    }
}

#[test]
fn other_threads_see_the_counts() {
    let mut service = TimerService::with_capacity(0, 10);
    let remote = service.remote();
    assert_eq!(remote.stats(), WheelStats::default(), "no call has shown any");
    service.add(5, 1).expect("there is room");
    let late = service.add(1 << 20, 2).expect("there is room");
    remote.mailbox(4).add(&remote.timer(), 10, 3).expect("there is room");
    for (now, timers) in [(0, 3), (7, 2), (20, 1)] {
        run(&mut service, now);
        let stats =
            std::thread::scope(|scope| scope.spawn(|| remote.stats()).join().expect("it does not panic"));
        assert_eq!(stats, service.stats());
        assert_eq!(stats.timers, timers);
    }
    assert!(service.cancel(late).is_some());
    let _ = service.manage(20, Limit::NONE, |_, _| {});
    assert_eq!(remote.stats().timers, 0, "a call that fires nothing shows what the owner has cancelled");
    service.add(30, 4).expect("there is room");
    run(&mut service, 21);
    run(&mut service, 20);
    assert_eq!(remote.stats().time_went_back, 1, "a call that does nothing else shows that time went back");
    service.close(drop);
    assert_eq!(remote.stats().timers, 0);
}

/// In a mutex, whoever has time serves it, and each timer fires once.
#[test]
fn any_thread_may_serve() {
    let service = Mutex::new(TimerService::new(0));
    let remote = service.lock().unwrap().remote();
    let (fired, served) = (AtomicUsize::new(0), [const { AtomicUsize::new(0) }; 2]);
    std::thread::scope(|scope| {
        for own in &served {
            scope.spawn(|| {
                while fired.load(Ordering::Relaxed) < 2_000 || own.load(Ordering::Relaxed) == 0 {
                    let Ok(mut service) = service.try_lock() else {
                        std::thread::yield_now();
                        continue;
                    };
                    own.fetch_add(1, Ordering::Relaxed);
                    let progress = service.run(1, Limit::expiries(10), |_, _| {});
                    fired.fetch_add(progress.expired(), Ordering::Relaxed);
                }
            });
        }
        let mut mailbox = remote.mailbox(4_096);
        for value in 0..2_000 {
            mailbox.add(&remote.timer(), 1, value).expect("there is room");
        }
    });
    assert_eq!(fired.into_inner(), 2_000);
    assert_eq!(remote.stats().timers, 0);
}
