//! loom models of timers across threads, on the engine itself.
//!
//! `RUSTFLAGS="--cfg loom --cfg stillpoint_busted" cargo test -p stillpoint --release --lib timer::models`

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

#[cfg(stillpoint_busted)]
use super::busted::{self, Variant};
use super::{Cause, Limit, Mailbox, Outcome, SharedTimer, TimerService};

/// What loom says when two accesses are not ordered.
const UNORDERED: &str = "Causality violation";
/// What a model says when a timer has two ends, or none.
const ENDS: &str = "a timer does not have one end";
/// What a model says when a timer fires before its deadline.
const EARLY: &str = "a timer is early";
/// What a model says when a cancelled timer stays in the wheel.
const PILED_UP: &str = "a cancelled timer is still there";

/// A value that loom watches, with the deadline that it was armed with.
struct Object(UnsafeCell<u64>);

// SAFETY: written by `new` and by `drop` alone; that both are ordered with every read is what the models check.
unsafe impl Send for Object {}

impl Object {
    fn new(deadline: u64) -> Self {
        let cell = UnsafeCell::new(0);
        // SAFETY: not shared yet.
        cell.with_mut(|place| unsafe { *place = deadline });
        Self(cell)
    }

    fn deadline(&self) -> u64 {
        // SAFETY: the protocol under test gives the object to one thread at a time; loom reports it where it does not.
        self.0.with(|place| unsafe { *place })
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: as in `deadline`.
        self.0.with_mut(|place| unsafe { *place = u64::MAX });
    }
}

loom::lazy_static! {
    static ref TURNS: AtomicUsize = AtomicUsize::new(0);
}

/// Lets loom try the operation that follows before and after those of the other threads.
///
/// It looks at the last access to an atomic alone: a thread that loads and then exchanges has made the last access itself,
/// so that loom would not try the exchange before another thread's earlier load.
fn turn() {
    // Relaxed: orders nothing.
    TURNS.fetch_add(1, Ordering::Relaxed);
}

type Service = TimerService<Object>;
type Timer = SharedTimer<Object>;

fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(model);
}

/// Runs the service at a time, and returns how many have fired and how many were revoked.
fn run(service: &mut Service, now: u64) -> (usize, usize) {
    let (mut fired, mut revoked) = (0, 0);
    turn();
    let progress = service.run(now, Limit::NONE, |_, event| {
        let cause = event.cause();
        let object = event.into_value().expect("not periodic");
        match cause {
            Cause::Expired => {
                assert!(object.deadline() <= now, "{EARLY}");
                fired += 1;
            }
            Cause::Revoked => {
                object.deadline();
                revoked += 1;
            }
        }
    });
    assert!(progress.is_done());
    (fired, revoked)
}

/// Whether the timer was cancelled by this call; its value is looked at then.
fn cancel(timer: &Timer) -> usize {
    turn();
    match timer.cancel() {
        Outcome::Cancelled(object) => {
            object.deadline();
            1
        }
        _ => 0,
    }
}

fn add(mailbox: &mut Mailbox<Object>, timer: &Timer, deadline: u64) -> usize {
    turn();
    usize::from(mailbox.add(timer, deadline, Object::new(deadline)).is_ok())
}

/// The owner fires a timer while another thread cancels it, and a third one, too.
#[test]
fn cancel_against_expiry() {
    explore(3, || {
        let mut service = Service::new(0);
        let timer = service.remote().timer();
        service.arm(&timer, 1, Object::new(1)).expect("at rest");
        let others: Vec<_> = (0..2)
            .map(|_| {
                let timer = timer.clone();
                thread::spawn(move || cancel(&timer))
            })
            .collect();
        let (fired, _) = run(&mut service, 1);
        let cancelled: usize = others.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(fired + cancelled, 1, "{ENDS}");
    });
}

/// The owner sees what the source wrote, whether the timer was cancelled or not.
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

/// A thread cancels what another one has just armed, and has the value that was armed.
#[test]
fn a_timer_is_cancelled_while_it_is_armed() {
    explore(3, || {
        let mut service = Service::new(0);
        let timer = service.remote().timer();
        let mut mailbox = service.remote().mailbox(2);
        let source = timer.clone();
        let thread = thread::spawn(move || add(&mut mailbox, &source, 1));
        let cancelled = cancel(&timer);
        assert_eq!(thread.join().unwrap(), 1);
        let (fired, _) = run(&mut service, 1);
        assert_eq!(fired + cancelled, 1, "{ENDS}");
    });
}

/// A ring with one place is used twice, by two timers.
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

/// A timer is cancelled by one thread, and armed again by another one as soon as it can be.
#[test]
fn a_timer_is_armed_after_another_thread_has_cancelled_it() {
    explore(3, || {
        let mut service = Service::new(0);
        let timer = service.remote().timer();
        let mut mailbox = service.remote().mailbox(2);
        service.arm(&timer, 1, Object::new(1)).expect("at rest");
        let source = timer.clone();
        let thread = thread::spawn(move || add(&mut mailbox, &source, 1));
        let cancelled = cancel(&timer);
        let added = thread.join().unwrap();
        let (fired, _) = run(&mut service, 1);
        assert_eq!(1 + added, cancelled + fired, "{ENDS}");
    });
}

/// A timer that has fired is armed again by another thread.
#[test]
fn a_timer_is_armed_after_it_has_fired() {
    explore(3, || {
        let mut service = Service::new(0);
        let timer = service.remote().timer();
        let mut mailbox = service.remote().mailbox(2);
        let place = Arc::new(Object::new(0));
        service.arm(&timer, 1, Object::new(1)).expect("at rest");
        let (source, seen) = (timer.clone(), Watched(Arc::clone(&place)));
        let thread = thread::spawn(move || {
            let added = add(&mut mailbox, &source, 1);
            if added == 1 {
                // What the callback did is before this.
                seen.write();
            }
            added
        });
        let watched = Watched(place);
        let mut fired = 0;
        turn();
        let progress = service.run(1, Limit::NONE, |_, _| {
            if fired == 0 {
                watched.write();
            }
            fired += 1;
        });
        assert!(progress.is_done());
        let added = thread.join().unwrap();
        let (later, _) = run(&mut service, 2);
        assert_eq!(1 + added, fired + later, "{ENDS}");
    });
}

/// Something that is written by two threads in turn.
struct Watched(Arc<Object>);

// SAFETY: that the writes are ordered is what the model checks.
unsafe impl Send for Watched {}

impl Watched {
    fn write(&self) {
        // SAFETY: as above.
        self.0 .0.with_mut(|place| unsafe { *place += 1 });
    }
}

/// Who is told that a timer has fired sees what its callback did.
#[test]
fn a_callback_has_run_when_a_cancellation_says_so() {
    explore(3, || {
        let mut service = Service::new(0);
        let timer = service.remote().timer();
        let place = Arc::new(Object::new(0));
        service.arm(&timer, 1, Object::new(1)).expect("at rest");
        let seen = Watched(Arc::clone(&place));
        let thread = thread::spawn(move || {
            turn();
            if matches!(timer.cancel(), Outcome::Fired) {
                seen.write();
            }
        });
        let watched = Watched(place);
        turn();
        let progress = service.run(1, Limit::NONE, |_, _| watched.write());
        assert!(progress.is_done());
        thread.join().unwrap();
    });
}

/// The same for who revokes it.
#[test]
fn a_callback_has_run_when_a_revocation_says_so() {
    explore(3, || {
        let mut service = Service::new(0);
        let timer = service.remote().timer();
        let place = Arc::new(Object::new(0));
        service.arm(&timer, 1, Object::new(1)).expect("at rest");
        let seen = Watched(Arc::clone(&place));
        let thread = thread::spawn(move || {
            turn();
            if matches!(timer.revoke(), Outcome::Fired) {
                seen.write();
            }
        });
        let watched = Watched(place);
        turn();
        let progress = service.run(1, Limit::NONE, |_, event| {
            if event.cause() == Cause::Expired {
                watched.write();
            }
        });
        assert!(progress.is_done());
        thread.join().unwrap();
    });
}

/// Two threads revoke a timer that is due: it has one end, and comes to the owner once.
#[test]
fn two_threads_revoke_a_timer() {
    explore(3, || {
        let mut service = Service::new(0);
        let timer = service.remote().timer();
        service.arm(&timer, 1, Object::new(1)).expect("at rest");
        let others: Vec<_> = (0..2)
            .map(|_| {
                let timer = timer.clone();
                thread::spawn(move || {
                    turn();
                    usize::from(timer.revoke().is_cancelled())
                })
            })
            .collect();
        let (fired, first) = run(&mut service, 1);
        let revoked: usize = others.into_iter().map(|thread| thread.join().unwrap()).sum();
        let (later, second) = run(&mut service, 2);
        assert_eq!((fired + revoked, first + second, later), (1, revoked, 0), "{ENDS}");
    });
}

/// A mailbox is made and dropped while the owner looks for mailboxes: what it has sent arrives.
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
        // Not done when the mailbox is just being made.
        let _ = service.run(1, Limit::NONE, |_, _| first += 1);
        let added = thread.join().unwrap();
        let (second, _) = run(&mut service, 2);
        assert_eq!(first + second, 1 + added, "{ENDS}");
    });
}

/// The message of a cancelled arming comes while a periodic timer beats, from a mailbox that is served before that of the
/// present arming: no beat comes twice.
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
            let schedule = super::Schedule::at(1).every(std::num::NonZeroU64::MIN);
            usize::from(mailboxes[0].add_with(&other, schedule, Object::new(1)).is_ok())
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

/// What is revoked comes to the owner, once.
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

/// A timer is armed and cancelled twice beside the owner: nothing of it stays in the wheel.
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

/// The same with a hint that the owner takes in time: it must see the cancellation that the hint is about.
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

/// A timer is cancelled and armed with a later deadline while the owner takes it in: it has either deadline, and that of
/// its value.
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

/// The same with a later deadline, which is not taken for the earlier one, and a period, which is not taken for none.
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
            let schedule = super::Schedule::at(5).every(std::num::NonZeroU64::MIN);
            usize::from(other_mailbox.add_with(&other, schedule, Object::new(5)).is_ok())
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

/// A periodic timer is cancelled while it beats.
#[test]
fn cancel_against_a_beat() {
    explore(3, || {
        let mut service = Service::new(0);
        let timer = service.remote().timer();
        let schedule = super::Schedule::at(1).every(std::num::NonZeroU64::MIN);
        service.arm_with(&timer, schedule, Object::new(1)).expect("at rest");
        let other = timer.clone();
        let thread = thread::spawn(move || {
            turn();
            match other.cancel() {
                Outcome::Cancelled(object) => _ = object.deadline(),
                Outcome::Running => {}
                Outcome::Fired | Outcome::Gone => panic!("{ENDS}"),
            }
        });
        turn();
        let _ = service.run(1, Limit::NONE, |_, mut event| {
            event.value().deadline();
        });
        thread.join().unwrap();
        let progress = service.run(2, Limit::NONE, |_, _| panic!("{ENDS}"));
        assert!(progress.is_done());
        assert_eq!(service.stats().timers, 0, "{PILED_UP}");
    });
}

/// The service goes while another thread adds and cancels.
#[test]
fn a_service_goes() {
    explore(3, || {
        let service = Service::new(0);
        let timers = [service.remote().timer(), service.remote().timer()];
        let mut mailbox = service.remote().mailbox(2);
        let thread = thread::spawn(move || {
            add(&mut mailbox, &timers[0], 1);
            cancel(&timers[0]);
            add(&mut mailbox, &timers[1], 1);
        });
        turn();
        drop(service);
        thread.join().unwrap();
    });
}

/// A service hands its values out while another thread adds: each has one end.
#[test]
fn a_service_closes_beside_an_addition() {
    explore(3, || {
        let service = Service::new(0);
        let timer = service.remote().timer();
        let mut mailbox = service.remote().mailbox(2);
        let source = timer.clone();
        let thread = thread::spawn(move || {
            let added = add(&mut mailbox, &source, 1);
            (mailbox, added)
        });
        let mut handed_out = 0;
        turn();
        service.close(|object| {
            object.deadline();
            handed_out += 1;
        });
        let (mailbox, added) = thread.join().unwrap();
        let cancelled = cancel(&timer);
        drop(mailbox);
        assert_eq!(added, handed_out + cancelled, "{ENDS}");
    });
}

/// A burst that finds the mailbox full has shown the owner what is in it.
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

/// Which model catches which variant, and how.
#[cfg(stillpoint_busted)]
const CAUGHT: &[(Variant, &str, &str)] = &[
    (Variant::ClaimRelaxed, "a_timer_is_armed_after_another_thread_has_cancelled_it", UNORDERED),
    (Variant::ArmRelaxed, "a_timer_is_cancelled_while_it_is_armed", UNORDERED),
    (Variant::FindRelaxed, "a_callback_has_run_when_a_cancellation_says_so", UNORDERED),
    (Variant::FindRelaxed, "a_callback_has_run_when_a_revocation_says_so", UNORDERED),
    (Variant::CancelRelaxed, "cancel_against_a_beat", UNORDERED),
    (Variant::CancelByStore, "cancel_against_expiry", UNORDERED),
    (Variant::TakeLate, "a_timer_is_armed_after_another_thread_has_cancelled_it", UNORDERED),
    (Variant::TakenRelaxed, "a_timer_is_armed_after_another_thread_has_cancelled_it", UNORDERED),
    (Variant::FinishRelaxed, "a_timer_is_armed_after_it_has_fired", UNORDERED),
    (Variant::PublishRelaxed, "a_mailbox_hands_over", UNORDERED),
    (Variant::RoomRelaxed, "a_place_in_the_ring_is_used_again", UNORDERED),
    (Variant::TakeTwice, "a_late_message_rewinds_no_beat", ENDS),
    (Variant::HintRelaxed, "two_threads_give_hints", PILED_UP),
    (Variant::HintByStore, "a_hint_is_not_lost", PILED_UP),
    (Variant::HintMarkLate, "a_hint_is_not_lost", PILED_UP),
];

#[cfg(stillpoint_busted)]
#[test]
fn every_variant_is_caught_by_its_model() {
    let models = CAUGHT.iter().map(|&(variant, model, sign)| (variant, model, vec![sign]));
    busted::assert_caught("timer::models", models);
}
