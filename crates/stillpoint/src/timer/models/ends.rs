//! Threads that end a timer, and threads that arm it again.

use std::num::NonZeroU64;
use std::sync::Arc;

use loom::thread;

use super::{
    add, armed, cancel, explore, fires, on_thread, reset, revoke, run, turn, with_mailbox, Object, Service,
    Timer, Watched, ENDS, PILED_UP,
};
use crate::timer::shared::{ArmError, Cause, Outcome};
use crate::timer::{Limit, Schedule};

/// Closes the service. Returns how many values it passes on.
fn closed(service: Service) -> usize {
    let mut handed_out = 0;
    service.close(|object| {
        object.deadline();
        handed_out += 1;
    });
    handed_out
}

/// A service is closed while another thread adds a timer, through a mailbox that lives on. The deadline is one that wakes
/// no owner.
#[test]
fn a_service_is_closed_while_a_timer_is_added() {
    explore(3, || {
        let service = Service::new(0).sleeping();
        let timer = service.remote().timer();
        let mut mailbox = service.remote().mailbox(1);
        let thread = on_thread(&timer, move |source| (add(&mut mailbox, &source, u64::MAX), mailbox));
        turn();
        let handed_out = closed(service);
        let (added, mailbox) = thread.join().unwrap();
        assert_eq!((added, timer.is_armed()), (handed_out, false), "{ENDS}");
        assert_eq!(cancel(&timer), 0, "{ENDS}");
        drop(mailbox);
    });
}

/// A service is closed while another thread resets a timer that is in the wheel: the owner gets its value.
fn a_service_is_closed_while_another_thread_resets(armed_for: u64, reset_to: u64, run_at: Option<u64>) {
    explore(3, move || {
        let (mut service, timer) = armed(armed_for);
        let mut mailbox = service.remote().mailbox(1);
        let thread = on_thread(&timer, move |other| {
            let _ = reset(&mut mailbox, &other, reset_to);
            mailbox
        });
        let fired = run_at.map_or(0, |now| run(&mut service, now).0);
        turn();
        let handed_out = closed(service);
        let mailbox = thread.join().unwrap();
        assert_eq!((fired + handed_out, cancel(&timer)), (1, 0), "{ENDS}");
        drop(mailbox);
    });
}

#[test]
fn a_service_is_closed_while_a_timer_is_reset() {
    a_service_is_closed_while_another_thread_resets(9, 1, None);
}

/// The timer becomes due while it is being reset.
#[test]
fn a_service_is_closed_while_a_timer_that_was_due_is_reset() {
    a_service_is_closed_while_another_thread_resets(1, 9, Some(1));
}

/// The value of a timer that is revoked is the owner's, until its service is closed, although the hint has not come.
#[test]
fn a_service_is_closed_while_a_timer_that_was_due_is_revoked() {
    explore(3, || {
        let (mut service, timer) = armed(1);
        let thread = on_thread(&timer, |timer| _ = timer.revoke());
        let (fired, revoked) = run(&mut service, 1);
        turn();
        let handed_out = closed(service);
        thread.join().unwrap();
        assert_eq!(fired + revoked + handed_out, 1, "{ENDS}");
    });
}

/// The owner fires a timer while two other threads cancel it.
#[test]
fn cancel_against_expiry() {
    explore(3, || {
        let (mut service, timer) = armed(1);
        let others = [(); 2].map(|()| on_thread(&timer, |timer| cancel(&timer)));
        let (fired, _) = run(&mut service, 1);
        let cancelled: usize = others.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(fired + cancelled, 1, "{ENDS}");
    });
}

/// A thread cancels a timer that another thread has just armed, and gets its value.
#[test]
fn a_timer_is_cancelled_while_it_is_armed() {
    explore(3, || {
        let (mut service, timer, mut mailbox) = with_mailbox(2);
        let thread = on_thread(&timer, move |source| add(&mut mailbox, &source, 1));
        let cancelled = cancel(&timer);
        assert_eq!(thread.join().unwrap(), 1);
        let (fired, _) = run(&mut service, 1);
        assert_eq!(fired + cancelled, 1, "{ENDS}");
    });
}

/// If `is_armed` returns true while another thread arms the timer, the timer can be cancelled.
#[test]
fn a_timer_that_is_armed_is_cancelled() {
    explore(3, || {
        let (_service, timer, mut mailbox) = with_mailbox(2);
        let thread = on_thread(&timer, move |source| add(&mut mailbox, &source, 1));
        turn();
        if timer.is_armed() {
            assert_eq!(cancel(&timer), 1, "{ENDS}");
        }
        assert_eq!(thread.join().unwrap(), 1);
    });
}

/// A thread that gets the error `Armed` can cancel the timer.
#[test]
fn a_timer_that_is_not_armed_twice_is_there_to_be_cancelled() {
    explore(3, || {
        let service = Service::new(0);
        let timer = service.remote().timer();
        let [mut here, mut there] = [service.remote().mailbox(2), service.remote().mailbox(2)];
        let thread = on_thread(&timer, move |source| add(&mut there, &source, 1));
        turn();
        if let Err(refused) = here.add(&timer, 1, Object::new(1)) {
            if matches!(refused, ArmError::Armed(_)) {
                assert_eq!(cancel(&timer), 1, "{ENDS}");
            }
        }
        thread.join().unwrap();
    });
}

/// One thread cancels a timer, and another thread arms it again as soon as possible.
#[test]
fn a_timer_is_armed_after_another_thread_has_cancelled_it() {
    explore(3, || {
        let (mut service, timer) = armed(1);
        let mut mailbox = service.remote().mailbox(2);
        let thread = on_thread(&timer, move |source| add(&mut mailbox, &source, 1));
        let cancelled = cancel(&timer);
        let added = thread.join().unwrap();
        let (fired, _) = run(&mut service, 1);
        assert_eq!(1 + added, cancelled + fired, "{ENDS}");
    });
}

/// Another thread arms a timer that has fired.
#[test]
fn a_timer_is_armed_after_it_has_fired() {
    explore(3, || {
        let (mut service, timer, mut mailbox) = with_mailbox(2);
        let place = Arc::new(Object::new(0));
        service.arm(&timer, 1, Object::new(1)).expect("at rest");
        let (source, seen) = (timer.clone(), Watched(Arc::clone(&place)));
        let thread = thread::spawn(move || {
            let added = add(&mut mailbox, &source, 1);
            if added == 1 {
                // This write is ordered after the callback's.
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

/// Explores a thread that asks what became of the timer. If it has fired, the thread sees what the callback did.
fn a_callback_has_run_when_it_is_said_so(ask: fn(&Timer) -> bool) {
    explore(3, move || {
        let (mut service, timer) = armed(1);
        let place = Arc::new(Object::new(0));
        let seen = Watched(Arc::clone(&place));
        let thread = thread::spawn(move || {
            turn();
            if ask(&timer) {
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

#[test]
fn a_callback_has_run_when_a_cancellation_says_so() {
    a_callback_has_run_when_it_is_said_so(|timer| matches!(timer.cancel(), Outcome::Fired));
}

#[test]
fn a_callback_has_run_when_a_revocation_says_so() {
    a_callback_has_run_when_it_is_said_so(|timer| matches!(timer.revoke(), Outcome::Fired));
}

/// Two threads revoke a timer that is due. The timer has one end, and the owner gets it once.
#[test]
fn two_threads_revoke_a_timer() {
    explore(3, || {
        let (mut service, timer) = armed(1);
        let others = [(); 2].map(|()| on_thread(&timer, |timer| revoke(&timer)));
        let (fired, first) = run(&mut service, 1);
        let revoked: usize = others.into_iter().map(|thread| thread.join().unwrap()).sum();
        let (later, second) = run(&mut service, 2);
        assert_eq!((fired + revoked, first + second, later), (1, revoked, 0), "{ENDS}");
    });
}

/// A thread revokes a timer, and arms it again as soon as the owner has taken its value.
#[test]
fn a_timer_is_armed_after_the_owner_has_ended_it() {
    explore(3, || {
        let (mut service, timer) = armed(9);
        let mut mailbox = service.remote().mailbox(2);
        let thread = thread::spawn(move || {
            let revoked = usize::from(timer.revoke().is_cancelled());
            (revoked, add(&mut mailbox, &timer, 1))
        });
        let (fired, first) = run(&mut service, 1);
        let (revoked, added) = thread.join().unwrap();
        let (later, second) = run(&mut service, 2);
        assert_eq!((revoked, first + second, fired + later), (1, 1, added), "{ENDS}");
        assert_eq!(service.stats().timers, 0, "{PILED_UP}");
    });
}

/// A thread cancels a periodic timer during a beat.
#[test]
fn cancel_against_a_beat() {
    explore(3, || {
        let mut service = Service::new(0);
        let timer = service.remote().timer();
        let schedule = Schedule::at(1).every(NonZeroU64::MIN);
        service.arm(&timer, schedule, Object::new(1)).expect("at rest");
        let thread = on_thread(&timer, move |other| {
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

/// The service is dropped while another thread adds and cancels.
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

/// A service is closed while another thread adds: each value has one end.
#[test]
fn a_service_closes_beside_an_addition() {
    explore(3, || {
        let (service, timer, mut mailbox) = with_mailbox(2);
        let thread = on_thread(&timer, move |source| {
            let added = add(&mut mailbox, &source, 1);
            (mailbox, added)
        });
        turn();
        let handed_out = closed(service);
        let (mailbox, added) = thread.join().unwrap();
        let cancelled = cancel(&timer);
        drop(mailbox);
        assert_eq!(added, handed_out + cancelled, "{ENDS}");
    });
}

/// Runs a service with a beat at time 1, whose callback gives the service away, and then reads the value.
fn beat_and_give_away(mut service: Service, give: impl FnOnce(Service)) {
    let mut give = Some(give);
    turn();
    let progress = service.run(1, Limit::NONE, |service, mut event| {
        (give.take().expect("one beat"))(std::mem::replace(service, Service::new(1)));
        event.value().deadline();
    });
    assert_eq!(progress.expired(), 1);
}

/// A callback gives its service away to another thread, which runs it and closes it: the timer has one end.
#[test]
fn a_service_is_closed_on_another_thread_during_a_beat() {
    explore(3, || {
        let mut service = Service::new(0);
        let timer = service.remote().timer();
        service.arm(&timer, Schedule::at(1).every(NonZeroU64::MIN), Object::new(1)).expect("at rest");
        let mut other = None;
        beat_and_give_away(service, |mut old| {
            other = Some(thread::spawn(move || {
                turn();
                let _ = old.manage(2, Limit::NONE, |_, mut event| _ = event.value().deadline());
                closed(old)
            }));
        });
        let handed_out = other.expect("one beat").join().unwrap();
        assert!(handed_out == 0 && !timer.is_armed());
        assert_eq!(cancel(&timer), 0, "{ENDS}");
    });
}
