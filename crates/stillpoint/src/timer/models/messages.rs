//! Messages in rings, and hints.

use loom::thread;

use super::{add, cancel, explore, run, turn, Object, Service, EARLY, ENDS, PILED_UP};
use crate::timer::{Limit, Schedule};

/// The owner sees what the source wrote.
#[test]
fn a_mailbox_hands_over() {
    explore(3, || {
        let mut service = Service::new(0);
        let timer = service.remote().timer();
        let mut mailbox = service.remote().mailbox(2);
        let source = timer.clone();
        let thread = thread::spawn(move || add(&mut mailbox, &source, 1));
        let (first, _) = run(&mut service, 1);
        assert_eq!(thread.join().unwrap(), 1);
        let (second, _) = run(&mut service, 2);
        assert_eq!(first + second, 1, "{ENDS}");
    });
}

/// Two timers use the only place of a ring, one after the other.
#[test]
fn a_place_in_the_ring_is_used_again() {
    explore(3, || {
        let mut service = Service::new(0);
        let timers = [service.remote().timer(), service.remote().timer()];
        let mut mailbox = service.remote().mailbox(1);
        let thread =
            thread::spawn(move || timers.iter().map(|timer| add(&mut mailbox, timer, 1)).sum::<usize>());
        let (first, _) = run(&mut service, 1);
        let added = thread.join().unwrap();
        let (second, _) = run(&mut service, 2);
        assert_eq!(first + second, added, "{ENDS}");
    });
}

/// A mailbox is made and dropped while the owner looks for mailboxes. Its message still arrives.
#[test]
fn a_mailbox_is_made_beside_the_owner() {
    explore(3, || {
        let mut service = Service::new(0);
        let timer = service.remote().timer();
        let mut mailbox = service.remote().mailbox(2);
        let remote = service.remote();
        let other = remote.timer();
        let thread = thread::spawn(move || {
            turn();
            add(&mut remote.mailbox(2), &other, 1)
        });
        add(&mut mailbox, &timer, 1);
        drop(mailbox);
        let mut first = 0;
        turn();
        // The result may be `More`, while the mailbox is being made.
        let _ = service.run(1, Limit::NONE, |_, _| first += 1);
        let added = thread.join().unwrap();
        let (second, _) = run(&mut service, 2);
        assert_eq!(first + second, 1 + added, "{ENDS}");
    });
}

/// The message of a cancelled arming comes while a periodic timer fires. It comes from a mailbox that is served before
/// that of the present arming. No beat is repeated.
#[test]
fn a_late_message_rewinds_no_beat() {
    explore(3, || {
        let mut service = Service::new(0);
        let timer = service.remote().timer();
        let mut mailboxes = [service.remote().mailbox(2), service.remote().mailbox(2)];
        let other = timer.clone();
        let thread = thread::spawn(move || {
            add(&mut mailboxes[1], &other, 9);
            cancel(&other);
            turn();
            let schedule = Schedule::at(1).every(std::num::NonZeroU64::MIN);
            usize::from(mailboxes[0].add(&other, schedule, Object::new(1)).is_ok())
        });
        let mut last = 0;
        let mut beat = |service: &mut Service, now| {
            turn();
            let progress = service.run(now, Limit::NONE, |_, event| {
                assert!(event.deadline() > last, "{ENDS}");
                last = event.deadline();
            });
            assert!(progress.is_done());
        };
        beat(&mut service, 1);
        let added = thread.join().unwrap();
        beat(&mut service, 2);
        beat(&mut service, 2);
        assert_eq!(service.stats().timers, added, "{ENDS}");
        assert_eq!(cancel(&timer), added, "{ENDS}");
    });
}

/// The owner gets a revoked timer once.
#[test]
fn a_revoked_timer_comes_to_the_owner() {
    explore(3, || {
        let mut service = Service::new(0);
        let timer = service.remote().timer();
        service.arm(&timer, 1, Object::new(1)).expect("at rest");
        let other = timer.clone();
        let thread = thread::spawn(move || {
            turn();
            usize::from(other.revoke().is_cancelled())
        });
        let (fired, first) = run(&mut service, 1);
        let revoked = thread.join().unwrap();
        let (later, second) = run(&mut service, 2);
        assert_eq!((fired + revoked, first + second, later), (1, revoked, 0), "{ENDS}");
    });
}

/// A timer is armed and cancelled twice while the owner runs: no entry stays in the wheel.
#[test]
fn a_hint_is_not_lost() {
    explore(5, || {
        let mut service = Service::new(0);
        let timer = service.remote().timer();
        service.arm(&timer, 9, Object::new(9)).expect("at rest");
        let mut mailbox = service.remote().mailbox(2);
        let other = timer.clone();
        let thread = thread::spawn(move || {
            cancel(&other);
            add(&mut mailbox, &other, 9);
            cancel(&other);
        });
        run(&mut service, 1);
        thread.join().unwrap();
        run(&mut service, 2);
        assert_eq!(service.stats().timers, 0, "{PILED_UP}");
    });
}

/// Two threads cancel a timer each while the owner runs: no entry stays in the wheel. An owner that takes a hint must
/// see its cancellation.
#[test]
fn two_threads_give_hints() {
    explore(4, || {
        let mut service = Service::new(0);
        let timers = [service.remote().timer(), service.remote().timer()];
        for timer in &timers {
            service.arm(timer, 9, Object::new(9)).expect("at rest");
        }
        let threads = timers.map(|timer| thread::spawn(move || cancel(&timer)));
        run(&mut service, 1);
        let cancelled: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(cancelled, 2, "{ENDS}");
        run(&mut service, 2);
        assert_eq!(service.stats().timers, 0, "{PILED_UP}");
    });
}

/// A timer is cancelled and armed with another deadline while the owner takes it in. It fires at the deadline that its
/// value was armed with.
#[test]
fn a_deadline_is_that_of_its_arming() {
    explore(3, || {
        let mut service = Service::new(0);
        let timer = service.remote().timer();
        let mut mailbox = service.remote().mailbox(2);
        let mut other_mailbox = service.remote().mailbox(2);
        add(&mut mailbox, &timer, 5);
        let other = timer.clone();
        let thread = thread::spawn(move || cancel(&other) + 2 * add(&mut other_mailbox, &other, 1));
        run(&mut service, 1);
        thread.join().unwrap();
        run(&mut service, 2);
        run(&mut service, 5);
        assert_eq!(service.stats().timers, 0, "{ENDS}");
    });
}

/// A timer is cancelled and armed with a later deadline and a period while the owner takes it in. Its schedule is not
/// mixed from the two armings.
#[test]
fn a_schedule_is_not_one_of_two_armings() {
    explore(3, || {
        let mut service = Service::new(0);
        let timer = service.remote().timer();
        let mut mailbox = service.remote().mailbox(2);
        let mut other_mailbox = service.remote().mailbox(2);
        add(&mut mailbox, &timer, 1);
        let other = timer.clone();
        let thread = thread::spawn(move || {
            cancel(&other);
            turn();
            let schedule = Schedule::at(5).every(std::num::NonZeroU64::MIN);
            usize::from(other_mailbox.add(&other, schedule, Object::new(5)).is_ok())
        });
        let beat = |service: &mut Service, now| {
            turn();
            let progress = service.run(now, Limit::NONE, |_, mut event| {
                assert!(event.value().deadline() <= now, "{EARLY}");
            });
            assert!(progress.is_done());
        };
        beat(&mut service, 1);
        let added = thread.join().unwrap();
        beat(&mut service, 4);
        beat(&mut service, 5);
        assert_eq!(service.stats().timers, added, "{ENDS}");
        assert_eq!(cancel(&timer), added, "{ENDS}");
    });
}

/// A burst that finds the mailbox full has published its messages.
#[test]
fn a_burst_goes_on_when_the_owner_has_made_room() {
    explore(3, || {
        let mut service = Service::new(0);
        let timers = [service.remote().timer(), service.remote().timer()];
        let mut mailbox = service.remote().mailbox(1);
        let thread = thread::spawn(move || {
            let mut burst = mailbox.burst();
            let add = |timer| {
                turn();
                usize::from(burst.add(timer, 1, Object::new(1)).is_ok())
            };
            timers.iter().map(add).sum::<usize>()
        });
        let (first, _) = run(&mut service, 1);
        let added = thread.join().unwrap();
        let (second, _) = run(&mut service, 2);
        assert_eq!(first + second, added, "{ENDS}");
    });
}

/// A timer is reset while the owner takes it in and another thread cancels it: it has one end, and does not fire early.
#[test]
fn a_reset_against_a_cancellation_and_an_expiry() {
    explore(3, || {
        let mut service = Service::new(0);
        let timer = service.remote().timer();
        let mut mailbox = service.remote().mailbox(2);
        add(&mut mailbox, &timer, 1);
        let mut beside = service.remote().mailbox(2);
        let (one, other) = (timer.clone(), timer.clone());
        let resetter = thread::spawn(move || {
            turn();
            beside.reset(&one, 5).is_ok()
        });
        let canceller = thread::spawn(move || cancel(&other));
        let (first, _) = run(&mut service, 1);
        let (was_reset, cancelled) = (resetter.join().unwrap(), canceller.join().unwrap());
        let (second, _) = run(&mut service, 4);
        assert!(first + second == 0 || !was_reset, "{EARLY}");
        let (last, _) = run(&mut service, 5);
        assert_eq!(first + second + last + cancelled, 1, "{ENDS}");
        assert_eq!(service.stats().timers, 0, "{PILED_UP}");
        assert_eq!(add(&mut mailbox, &timer, 9), 1, "{ENDS}");
    });
}

/// Two threads reset a timer, which keeps its value. At least one of them succeeds.
#[test]
fn two_threads_reset_a_timer() {
    explore(3, || {
        let mut service = Service::new(0);
        let timer = service.remote().timer();
        let mut mailbox = service.remote().mailbox(4);
        add(&mut mailbox, &timer, 9);
        let other = timer.clone();
        let mut beside = service.remote().mailbox(4);
        let thread = thread::spawn(move || {
            turn();
            beside.reset(&other, 3).is_ok()
        });
        turn();
        let here = mailbox.reset(&timer, 4).is_ok();
        let there = thread.join().unwrap();
        assert!(here || there, "{ENDS}");
        let mut fired = 0;
        let progress = service.run(2, Limit::NONE, |_, _| fired += 2);
        assert!(progress.is_done());
        let progress = service.run(4, Limit::NONE, |_, _| fired += 1);
        assert!(progress.is_done());
        assert_eq!(fired, 1, "{ENDS}");
    });
}

/// A thread that resets a timer sees how it was armed: a periodic timer stays periodic.
#[test]
fn a_reset_keeps_the_period() {
    explore(3, || {
        let mut service = Service::new(0);
        let timer = service.remote().timer();
        let mut mailbox = service.remote().mailbox(2);
        let mut beside = service.remote().mailbox(2);
        let other = timer.clone();
        let thread = thread::spawn(move || {
            turn();
            let _ = beside.reset(&other, 3);
        });
        turn();
        let schedule = Schedule::at(2).every(std::num::NonZeroU64::MIN);
        assert!(mailbox.add(&timer, schedule, Object::new(2)).is_ok());
        thread.join().unwrap();
        turn();
        let progress = service.run(3, Limit::NONE, |_, _| {});
        assert_eq!((progress.expired(), service.stats().timers), (1, 1), "{ENDS}");
    });
}

/// A reset comes too late and releases its lock; another thread arms the timer again meanwhile.
#[test]
fn a_late_reset_does_not_write_to_a_later_arming() {
    explore(3, || {
        let mut service = Service::new(0);
        let timer = service.remote().timer();
        service.arm(&timer, 9, Object::new(9)).expect("at rest");
        let mut mailbox = service.remote().mailbox(4);
        let mut beside = service.remote().mailbox(4);
        let other = timer.clone();
        let resetter = thread::spawn(move || {
            turn();
            beside.reset(&other, 1).is_ok()
        });
        let cancelled = cancel(&timer);
        // Refused while the other thread has the lock.
        let armed = add(&mut mailbox, &timer, 7);
        let was_reset = resetter.join().unwrap();
        let mut fired = 0;
        let progress = service.run(6, Limit::NONE, |_, _| fired += 1);
        assert!(progress.is_done());
        assert!(fired == 0 || was_reset, "{EARLY}");
        let progress = service.run(9, Limit::NONE, |_, _| fired += 1);
        assert!(progress.is_done());
        assert_eq!(fired, 1 - cancelled + armed, "{ENDS}");
    });
}
