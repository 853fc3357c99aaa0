//! Waiting: a canceller for a callback, and the owner for messages.

use std::sync::Arc;
use std::task::{Wake, Waker};

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use super::{add, armed, explore, on_thread, revoke, run, turn, Object, Service, Timer, Watched, ENDS};
use crate::timer::shared::{Outcome, Sleep};
use crate::timer::Limit;

/// A model's message when an owner sleeps although there is a message.
pub(super) const SLEPT: &str = "the owner sleeps through a message";
/// Loom's message when no thread can go on.
pub(super) const DEADLOCK: &str = "deadlock";
/// A model's message when `cancel_wait` returns `Running` outside the callback.
pub(super) const ELSEWHERE: &str = "the callback does not run in this thread";

/// A thread that cancels the timer, waits, and then writes. It returns the number of timers that it has cancelled.
fn cancel_elsewhere(timer: &Timer, seen: Watched) -> thread::JoinHandle<usize> {
    on_thread(timer, move |other| {
        turn();
        let outcome = other.cancel_wait();
        assert!(!matches!(outcome, Outcome::Running), "{ELSEWHERE}");
        seen.write();
        usize::from(outcome.is_cancelled())
    })
}

/// A thread that waits for a callback sees what the callback did, does not get `Running`, and goes on.
#[test]
fn a_cancellation_waits_for_the_callback() {
    explore(3, || {
        let (mut service, timer) = armed(1);
        let watched = Arc::new(Object::new(0));
        let canceller = cancel_elsewhere(&timer, Watched(Arc::clone(&watched)));
        let mut fired = 0;
        let watched = Watched(watched);
        turn();
        let progress = service.run(1, Limit::NONE, |_, event| {
            turn();
            watched.write();
            drop(event);
            fired += 1;
        });
        assert!(progress.is_done());
        assert_eq!(fired + canceller.join().unwrap(), 1, "{ENDS}");
    });
}

/// The callback has armed its timer again: a canceller of that arming, too, sees what the callback did afterwards.
#[test]
fn a_cancellation_waits_for_a_callback_that_has_armed_its_timer_again() {
    explore(3, || {
        let (mut service, timer) = armed(1);
        let watched = Arc::new(Object::new(0));
        let canceller = cancel_elsewhere(&timer, Watched(Arc::clone(&watched)));
        let (mut fired, watched) = (0, Watched(watched));
        turn();
        let progress = service.run(1, Limit::NONE, |service, event| {
            // The canceller may have cancelled this arming, but not the next one.
            let armed = event.timer().map(|own| service.arm(own, 9, Object::new(9)).is_ok());
            watched.write();
            fired += usize::from(armed != Some(true));
        });
        assert!(progress.is_done());
        // Neither, if the canceller has met the arming.
        assert!(fired + canceller.join().unwrap() <= 1, "{ENDS}");
    });
}

/// The service has moved to another thread. The old thread is not mistaken for the one that runs the callback.
#[test]
fn a_canceller_is_not_taken_for_the_owner() {
    explore(3, || {
        let (mut service, timer) = armed(1);
        assert_eq!(run(&mut service, 1).0, 1);
        let owner = on_thread(&timer, move |other| {
            service.arm(&other, 2, Object::new(2)).expect("at rest");
            run(&mut service, 2);
        });
        turn();
        assert!(!matches!(timer.cancel_wait(), Outcome::Running), "{ELSEWHERE}");
        owner.join().unwrap();
    });
}

/// A waker that records that it was used.
struct Bell {
    rung: AtomicBool,
    object: Object,
}

// SAFETY: the object is only dropped, by the last owner, in an order that loom watches.
unsafe impl Sync for Bell {}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.object.deadline();
        // Relaxed: the service's own protocol orders everything else.
        self.rung.store(true, Ordering::Relaxed);
    }
}

fn bell() -> Arc<Bell> {
    Arc::new(Bell { rung: AtomicBool::new(false), object: Object::new(1) })
}

/// Either the owner sees the message before it sleeps, or it is woken.
#[test]
fn an_owner_does_not_sleep_through_a_message() {
    explore(3, || {
        let mut service = Service::new(0).sleeping();
        let timer = service.remote().timer();
        let mut mailbox = service.remote().mailbox(2);
        // Makes the ring known to the owner.
        run(&mut service, 0);
        let source = thread::spawn(move || add(&mut mailbox, &timer, 1));
        let bell = bell();
        turn();
        let sleep = service.sleep(Waker::from(Arc::clone(&bell)));
        assert_eq!(source.join().unwrap(), 1);
        let rung = bell.rung.load(Ordering::Relaxed);
        assert!(sleep == Sleep::Not || rung, "{SLEPT}");
        assert_eq!(run(&mut service, 1).0, 1, "{ENDS}");
    });
}

/// Either the owner sees the revocation, whose callback must run, before it sleeps, or it is woken.
#[test]
fn an_owner_does_not_sleep_through_a_revocation() {
    explore(3, || {
        let mut service = Service::new(0).sleeping();
        let timer = service.remote().timer();
        service.arm(&timer, 9, Object::new(9)).expect("at rest");
        let revoker = on_thread(&timer, |other| revoke(&other));
        let bell = bell();
        turn();
        let sleep = service.sleep(Waker::from(Arc::clone(&bell)));
        assert_eq!(revoker.join().unwrap(), 1);
        assert!(sleep == Sleep::Not || bell.rung.load(Ordering::Relaxed), "{SLEPT}");
        assert_eq!(run(&mut service, 1), (0, 1), "{ENDS}");
    });
}

/// A cancellation gives its hint late: the timer was armed and revoked since, and the revoker has left the hint to it.
#[test]
fn an_owner_does_not_sleep_through_a_revocation_behind_a_cancellation() {
    explore(3, || {
        let mut service = Service::new(0).sleeping();
        let timer = service.remote().timer();
        service.arm(&timer, 9, Object::new(9)).expect("at rest");
        let mut mailbox = service.remote().mailbox(1);
        let canceller = on_thread(&timer, |other| {
            turn();
            drop(other.cancel());
        });
        let revoker = on_thread(&timer, move |other| {
            turn();
            add(&mut mailbox, &other, 9) > 0 && revoke(&other) > 0
        });
        let (_, before) = run(&mut service, 1);
        let bell = bell();
        turn();
        let sleep = service.sleep(Waker::from(Arc::clone(&bell)));
        canceller.join().unwrap();
        let is_revoked = revoker.join().unwrap();
        assert!(
            !is_revoked || before > 0 || sleep == Sleep::Not || bell.rung.load(Ordering::Relaxed),
            "{SLEPT}"
        );
        assert_eq!(before + run(&mut service, 2).1, usize::from(is_revoked), "{ENDS}");
    });
}

/// Only one thread has the alarm at a time: the owner, which sleeps twice, or a thread that wakes it.
#[test]
fn an_owner_that_sleeps_again_has_another_alarm() {
    explore(3, || {
        let mut service = Service::new(0).sleeping();
        let timers = [service.remote().timer(), service.remote().timer()];
        let mut mailbox = service.remote().mailbox(2);
        let mut beside = service.remote().mailbox(2);
        let [one, other] = timers;
        let first = thread::spawn(move || add(&mut mailbox, &one, 1));
        let second = thread::spawn(move || add(&mut beside, &other, 1));
        for _ in 0..2 {
            turn();
            let _ = service.sleep(Waker::from(bell()));
        }
        let added = first.join().unwrap() + second.join().unwrap();
        assert_eq!(run(&mut service, 1).0, added, "{ENDS}");
    });
}
