//! Messages in rings, and hints.

use loom::thread;

use super::{
    add, add_periodic, armed, cancel, explore, fires, on_thread, reset, revoke, run, turn, with_mailbox,
    Mailbox, Object, Service, Timer, EARLY, ENDS, PILED_UP,
};
use crate::timer::{Limit, Schedule};

/// The owner sees what the source wrote.
#[test]
fn a_mailbox_hands_over() {
    explore(3, || {
        let (mut service, timer, mut mailbox) = with_mailbox(2);
        let thread = on_thread(&timer, move |source| add(&mut mailbox, &source, 1));
        let (first, _) = run(&mut service, 1);
        assert_eq!(thread.join().unwrap(), 1);
        let (second, _) = run(&mut service, 2);
        assert_eq!(first + second, 1, "{ENDS}");
    });
}

/// Explores a thread that `adds` two timers through a mailbox with one place.
fn two_timers_use_one_place(adds: fn(&mut Mailbox<Object>, &[Timer; 2]) -> usize) {
    explore(3, move || {
        let mut service = Service::new(0);
        let timers = [service.remote().timer(), service.remote().timer()];
        let mut mailbox = service.remote().mailbox(1);
        let thread = thread::spawn(move || adds(&mut mailbox, &timers));
        let (first, _) = run(&mut service, 1);
        let added = thread.join().unwrap();
        let (second, _) = run(&mut service, 2);
        assert_eq!(first + second, added, "{ENDS}");
    });
}

/// Two timers use the only place of a ring, one after the other.
#[test]
fn a_place_in_the_ring_is_used_again() {
    two_timers_use_one_place(|mailbox, timers| timers.iter().map(|timer| add(mailbox, timer, 1)).sum());
}

/// A mailbox is made and dropped while the owner looks for mailboxes. Its message still arrives.
#[test]
fn a_mailbox_is_made_beside_the_owner() {
    explore(3, || {
        let (mut service, timer, mut mailbox) = with_mailbox(2);
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
        let thread = on_thread(&timer, move |other| {
            add(&mut mailboxes[1], &other, 9);
            cancel(&other);
            add_periodic(&mut mailboxes[0], &other, 1)
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
        let (mut service, timer) = armed(1);
        let thread = on_thread(&timer, |other| revoke(&other));
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
        let (mut service, timer) = armed(9);
        let mut mailbox = service.remote().mailbox(2);
        let thread = on_thread(&timer, move |other| {
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
        let (mut service, timer, mut mailbox) = with_mailbox(2);
        let mut other_mailbox = service.remote().mailbox(2);
        add(&mut mailbox, &timer, 5);
        let thread = on_thread(&timer, move |other| cancel(&other) + 2 * add(&mut other_mailbox, &other, 1));
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
        let (mut service, timer, mut mailbox) = with_mailbox(2);
        let mut other_mailbox = service.remote().mailbox(2);
        add(&mut mailbox, &timer, 1);
        let thread = on_thread(&timer, move |other| {
            cancel(&other);
            add_periodic(&mut other_mailbox, &other, 5)
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
    two_timers_use_one_place(|mailbox, timers| {
        let mut burst = mailbox.burst();
        let add = |timer| {
            turn();
            usize::from(burst.add(timer, 1, Object::new(1)).is_ok())
        };
        timers.iter().map(add).sum()
    });
}

/// A timer is reset while the owner takes it in and another thread cancels it: it has one end, and does not fire early.
#[test]
fn a_reset_against_a_cancellation_and_an_expiry() {
    explore(3, || {
        let (mut service, timer, mut mailbox) = with_mailbox(2);
        add(&mut mailbox, &timer, 1);
        let mut beside = service.remote().mailbox(2);
        let resetter = on_thread(&timer, move |timer| reset(&mut beside, &timer, 5));
        let canceller = on_thread(&timer, |timer| cancel(&timer));
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
        let (mut service, timer, mut mailbox) = with_mailbox(4);
        add(&mut mailbox, &timer, 9);
        let mut beside = service.remote().mailbox(4);
        let thread = on_thread(&timer, move |other| reset(&mut beside, &other, 3));
        turn();
        let here = mailbox.reset(&timer, 4).is_ok();
        let there = thread.join().unwrap();
        assert!(here || there, "{ENDS}");
        assert_eq!((fires(&mut service, 2), fires(&mut service, 4)), (0, 1), "{ENDS}");
    });
}

/// A thread that resets a timer sees how it was armed: a periodic timer stays periodic.
#[test]
fn a_reset_keeps_the_period() {
    explore(3, || {
        let (mut service, timer, mut mailbox) = with_mailbox(2);
        let mut beside = service.remote().mailbox(2);
        let thread = on_thread(&timer, move |other| _ = reset(&mut beside, &other, 3));
        assert_eq!(add_periodic(&mut mailbox, &timer, 2), 1);
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
        let (mut service, timer) = armed(9);
        let mut mailbox = service.remote().mailbox(4);
        let mut beside = service.remote().mailbox(4);
        let resetter = on_thread(&timer, move |other| reset(&mut beside, &other, 1));
        let cancelled = cancel(&timer);
        // Refused while the other thread has the lock.
        let added = add(&mut mailbox, &timer, 7);
        let was_reset = resetter.join().unwrap();
        let early = fires(&mut service, 6);
        assert!(early == 0 || was_reset, "{EARLY}");
        assert_eq!(early + fires(&mut service, 9), 1 - cancelled + added, "{ENDS}");
    });
}
