//! Messages to a service that come late or twice, or that find no room.

use std::num::NonZeroU64;
use std::sync::Arc;

use stillpoint::timer::shared::{ArmError, Outcome, Sleep, TimerService};
use stillpoint::timer::{Limit, Progress, Schedule};

use crate::{with_mailbox, with_timer};

const NONE: Limit = Limit::NONE;
const TEN: NonZeroU64 = NonZeroU64::new(10).unwrap();

#[test]
fn a_message_of_a_cancelled_arming_does_not_rewind_a_periodic_timer() {
    let (mut service, timer, mut mailbox) = with_mailbox(4);
    mailbox.add(&timer, 1_000, 0).unwrap();
    assert!(timer.cancel().is_cancelled());
    service.arm(&timer, Schedule::at(10).every(TEN), 1).unwrap();
    let mut beats = Vec::new();
    for now in [10, 20] {
        let _ = service.manage(now, NONE, |_, event| beats.push((now, event.deadline())));
    }
    let _ = service.process(usize::MAX, |_, _| {});
    let _ = service.manage(21, NONE, |_, event| beats.push((21, event.deadline())));
    assert_eq!(beats, [(10, 10), (20, 20)]);
    assert_eq!(timer.cancel(), Outcome::Cancelled(1));
}

#[test]
fn two_routes_to_one_timer_arm_it_once() {
    let (mut service, timer) = with_timer();
    let mut mailboxes = [service.remote().mailbox(8), service.remote().mailbox(8)];
    mailboxes[0].add(&timer, 1_000, 0).unwrap();
    assert!(timer.cancel().is_cancelled());
    mailboxes[1].add(&timer, Schedule::at(10).every(TEN), 1).unwrap();
    let mut beats = Vec::new();
    // Processes the hint, and one of the two messages. Either message stands for the present arming.
    let _ = service.process(2, |_, _| {});
    for now in [10, 20, 30] {
        let _ = service.manage(now, NONE, |_, event| beats.push(event.deadline()));
    }
    let _ = service.process(2, |_, _| {});
    while !service.manage(31, NONE, |_, event| beats.push(event.deadline())).is_done() {}
    assert_eq!(beats, [10, 20, 30]);
    assert_eq!(
        (timer.cancel(), service.run(40, NONE, |_, _| {})),
        (Outcome::Cancelled(1), Progress::Done(0))
    );
    assert_eq!(service.stats().timers, 0);
}

#[test]
fn a_mailbox_that_is_dropped_hides_no_other_one() {
    for dropped in 0..5 {
        for used in (0..5).filter(|used| *used != dropped) {
            let mut service = TimerService::new(0);
            let mut mailboxes: Vec<_> = (0..5).map(|_| service.remote().mailbox(4)).collect();
            let timer = service.remote().timer();
            mailboxes[used].add(&timer, 5, 1).unwrap();
            mailboxes.remove(dropped);
            assert_eq!(service.run(5, NONE, |_, _| {}), Progress::Done(1), "{dropped} {used}");
        }
    }
}

#[test]
fn several_mailboxes_are_dropped_between_others() {
    let mut service = TimerService::new(0);
    let mut mailboxes: Vec<_> = (0..9).map(|_| Some(service.remote().mailbox(4))).collect();
    for round in 1..=9u64 {
        let mut timers = Vec::new();
        for mailbox in mailboxes.iter_mut().flatten() {
            let timer = service.remote().timer();
            mailbox.add(&timer, round, ()).unwrap();
            timers.push(timer);
        }
        // A mailbox's messages are delivered even if the mailbox is gone.
        mailboxes[(round * 5 % 9) as usize] = None;
        assert_eq!(service.run(round, NONE, |_, _| {}), Progress::Done(timers.len()));
    }
}

/// A call that takes none of its messages, or only some, does not lose the others.
#[test]
fn what_a_mailbox_has_sent_that_is_gone_waits_for_its_turn() {
    let mut service = TimerService::new(0);
    let mut mailbox = service.remote().mailbox(4);
    for _ in 0..3 {
        mailbox.add(&service.remote().timer(), 5, 1).unwrap();
    }
    drop(mailbox);
    assert_eq!(service.process(0, |_, _| {}), Progress::More(0));
    assert_eq!(service.process(1, |_, _| {}), Progress::More(1));
    assert_eq!(service.process(0, |_, _| {}), Progress::More(0));
    assert_eq!(service.run(5, NONE, |_, _| {}), Progress::Done(3));
}

#[test]
fn a_cancelled_timer_is_armed_again_in_a_full_wheel() {
    let mut service = TimerService::with_max_len(0, 1);
    let timer = service.remote().timer();
    let other = service.remote().timer();
    let mut mailbox = service.remote().mailbox(4);
    service.arm(&timer, 10, 1).unwrap();
    assert!(timer.cancel().is_cancelled());
    service.arm(&timer, 20, 2).unwrap();
    assert_eq!(service.arm(&other, 20, 3), Err(ArmError::Full(3)));
    assert_eq!(service.arm(&timer, 20, 3), Err(ArmError::Armed(3)));
    let _ = service.process(usize::MAX, |_, _| {});
    assert!(timer.cancel().is_cancelled());
    // The message is processed before the hint.
    mailbox.add(&timer, 30, 4).unwrap();
    assert!(service.process(usize::MAX, |_, _| {}).is_done());
    let mut fired = Vec::new();
    let progress = service.run(30, NONE, |service, event| {
        let own = event.timer().unwrap().clone();
        fired.extend(event.into_value());
        service.arm(&own, Schedule::at(40).every(TEN), 5).unwrap();
    });
    assert_eq!((fired, progress), (vec![4], Progress::Done(1)));
    let progress = service.run(40, NONE, |service, event| {
        // The beat's own place is the only one.
        service.arm(event.timer().unwrap(), 50, 6).unwrap();
    });
    assert_eq!((progress, timer.cancel()), (Progress::Done(1), Outcome::Cancelled(6)));
}

#[test]
fn a_cancelled_timer_has_not_fired() {
    let mut service = TimerService::new(0);
    let timers: Vec<_> = (0..3).map(|_| service.remote().timer()).collect();
    service.arm(&timers[0], 5, 1).unwrap();
    service.arm(&timers[1], Schedule::at(5).every(TEN), 2).unwrap();
    service.arm(&timers[2], 5, 3).unwrap();
    assert!(timers[0].cancel().is_cancelled() && timers[1].cancel().is_cancelled());
    assert_eq!(service.manage(5, Limit::expiries(2), |_, _| unreachable!("cancelled")), Progress::More(0));
    assert_eq!(service.manage(5, Limit::expiries(2), |_, _| {}), Progress::Done(1));
    assert_eq!(service.stats().timers, 0);
}

#[test]
fn a_burst_that_fills_the_mailbox_is_seen() {
    let mut service = TimerService::new(0);
    let timers: Vec<_> = (0..5).map(|_| service.remote().timer()).collect();
    let mut mailbox = service.remote().mailbox(2);
    let mut burst = mailbox.burst();
    burst.add(&timers[0], 1, 0).unwrap();
    assert_eq!(service.process(usize::MAX, |_, _| {}), Progress::Done(0));
    for (number, timer) in timers.iter().enumerate().skip(1) {
        if burst.add(timer, 1, number).is_err() {
            assert_eq!(service.process(usize::MAX, |_, _| {}), Progress::Done(2));
            burst.add(timer, 1, number).unwrap();
        }
    }
    drop(burst);
    assert_eq!(service.run(1, NONE, |_, _| {}), Progress::Done(5));
}

/// The owner sees the messages of a forgotten burst when the mailbox is dropped, at the latest.
#[test]
fn a_burst_that_is_forgotten_is_seen_when_the_mailbox_goes() {
    let mut service = TimerService::new(0);
    let timers: Vec<_> = (0..3).map(|_| service.remote().timer()).collect();
    let mut mailbox = service.remote().mailbox(4);
    let mut burst = mailbox.burst();
    for timer in &timers {
        burst.add(timer, 5, 1).unwrap();
    }
    std::mem::forget(burst);
    assert_eq!(service.process(usize::MAX, |_, _| {}), Progress::Done(0));
    drop(mailbox);
    assert_eq!(service.run(5, NONE, |_, _| {}), Progress::Done(3));
}

/// A mailbox works after a forgotten burst.
#[test]
fn a_burst_that_is_forgotten_is_seen_with_the_next_addition() {
    let mut service = TimerService::new(0);
    let timers: Vec<_> = (0..3).map(|_| service.remote().timer()).collect();
    let mut mailbox = service.remote().mailbox(4);
    let mut burst = mailbox.burst();
    burst.add(&timers[0], 5, 1).unwrap();
    burst.add(&timers[1], 5, 1).unwrap();
    std::mem::forget(burst);
    mailbox.add(&timers[2], 5, 1).unwrap();
    assert_eq!(service.run(5, NONE, |_, _| {}), Progress::Done(3));
}

#[test]
fn a_mailbox_too_large_is_refused() {
    let remote = TimerService::<u8>::new(0).remote();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| remote.mailbox(usize::MAX))).is_err());
    assert_eq!(remote.mailbox(0).capacity(), 1);
}

#[test]
fn a_revoked_periodic_timer_says_when_its_next_beat_was_due() {
    let (mut service, timer, mut mailbox) = with_mailbox(2);
    let revoke = |service: &mut TimerService<i32>| {
        assert!(timer.revoke().is_cancelled());
        let mut deadline = 0;
        let _ = service.process(9, |_, event| deadline = event.deadline());
        deadline
    };
    service.arm(&timer, Schedule::at(10).every(TEN), 1).unwrap();
    for now in [10, 20, 30] {
        let _ = service.run(now, NONE, |_, _| {});
    }
    assert_eq!(revoke(&mut service), 40);
    // An arming that the service has not taken in yet, while an entry of an earlier arming exists.
    service.arm(&timer, 90, 1).unwrap();
    assert!(timer.cancel().is_cancelled());
    mailbox.add(&timer, 50, 2).unwrap();
    assert_eq!(revoke(&mut service), 50);
}

/// The wheel gives the entry up before the owner takes the revocation in.
#[test]
fn a_revoked_timer_that_has_become_due_says_when() {
    let (mut service, timer, mut mailbox) = with_mailbox(2);
    let revoked_until = |service: &mut TimerService<i32>, now| {
        assert!(timer.revoke().is_cancelled());
        for now in [now, now + 100] {
            let _ = service.manage(now, NONE, |_, _| panic!("it was revoked"));
        }
        let mut deadline = 0;
        let _ = service.process(9, |_, event| deadline = event.deadline());
        deadline
    };
    service.arm(&timer, Schedule::at(10).every(TEN), 1).unwrap();
    for now in [10, 20] {
        let _ = service.run(now, NONE, |_, _| {});
    }
    assert_eq!(revoked_until(&mut service, 30), 30);
    mailbox.add(&timer, Schedule::after(10), 2).unwrap();
    let _ = service.run(200, NONE, |_, _| {}); // the delay begins
    assert_eq!(revoked_until(&mut service, 215), 210);
}

/// A revoked timer has no room in the wheel, and so holds up the message behind it, until its hint is taken.
#[test]
fn an_owner_does_not_sleep_behind_a_message_of_a_revoked_timer() {
    let mut service = TimerService::with_max_len(0, 1).sleeping();
    let (first, revoked) = (service.remote().timer(), service.remote().timer());
    let mut mailbox = service.remote().mailbox(4);
    service.arm(&first, 1_000, 1).unwrap();
    let _ = service.process(1, |_, _| {});
    mailbox.add(&revoked, 50, 2).unwrap();
    assert!(mailbox.reset(&first, 10).is_ok());
    assert!(revoked.revoke().is_cancelled());
    while !service.process(1, |_, _| {}).is_done() {}
    assert_eq!(service.sleep(std::thread::current()), Sleep::Until(10));
}

#[test]
fn the_place_of_a_revoked_timer_is_free_in_its_callback() {
    let mut service = TimerService::with_max_len(0, 1);
    let timer = service.remote().timer();
    service.arm(&timer, 10, 1).unwrap();
    assert!(timer.revoke().is_cancelled());
    let progress = service.process(usize::MAX, |service, event| {
        service.add(20, event.into_value().unwrap()).unwrap();
    });
    assert_eq!((progress, service.stats().timers), (Progress::Done(1), 1));
}

#[test]
fn a_panic_while_a_service_closes_leaves_no_timer_armed() {
    let mut service = TimerService::new(0);
    let remote = service.remote();
    let mut mailboxes: Vec<_> = (0..3).map(|_| remote.mailbox(4)).collect();
    let timers: Vec<_> = (0..8).map(|_| remote.timer()).collect();
    for timer in &timers[..4] {
        service.arm(timer, 5, 1).unwrap();
    }
    assert!(timers[0].revoke().is_cancelled());
    for (timer, mailbox) in timers[4..].iter().zip(&mut mailboxes) {
        mailbox.add(timer, 5, 1).unwrap();
    }
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        service.close(|_| panic!("on purpose"));
    }));
    assert!(panic.is_err());
    for timer in &timers {
        assert_eq!(timer.cancel(), Outcome::Gone);
    }
    for mailbox in &mut mailboxes {
        assert_eq!(mailbox.add(&timers[7], 5, 1), Err(ArmError::Gone(1)));
    }
}

/// The mailbox lives on, and is not used again.
#[test]
fn a_burst_into_a_service_that_is_closed_meanwhile_leaves_no_timer_armed() {
    for is_sleeping in [false, true] {
        let service = TimerService::new(0);
        let service = if is_sleeping { service.sleeping() } else { service };
        let timers: Vec<_> = (0..4).map(|_| service.remote().timer()).collect();
        let mut mailbox = service.remote().mailbox(8);
        let value = Arc::new(());
        mailbox.add(&timers[0], 10, Arc::clone(&value)).unwrap();
        let mut burst = mailbox.burst();
        for timer in &timers[1..3] {
            burst.add(timer, 10, Arc::clone(&value)).unwrap();
        }
        let mut handed_out = 0;
        service.close(|_| handed_out += 1);
        assert!(!timers.iter().any(|timer| timer.is_armed()));
        drop(burst);
        assert_eq!((handed_out, Arc::strong_count(&value)), (1, 1), "two are dropped with the burst");
        assert!(timers.iter().all(|timer| matches!(timer.cancel(), Outcome::Gone)));
        let refused = mailbox.add(&timers[3], 10, Arc::clone(&value)).unwrap_err();
        assert!(matches!(refused, ArmError::Gone(_)) && mailbox.capacity() == 8, "{refused}");
    }
}

/// The old deadline comes before the owner has seen the message of the reset. The wheel keeps the timer, also if it is full.
#[test]
fn a_timer_that_was_due_when_it_was_reset_stays_in_the_wheel() {
    for schedule in [Schedule::at(10), Schedule::after(10), Schedule::at(10).every(TEN)] {
        for is_cancelled in [false, true] {
            let mut service = TimerService::with_max_len(0, 1);
            let (timer, mut mailbox) = (service.remote().timer(), service.remote().mailbox(1));
            service.arm(&timer, schedule, 1).unwrap();
            mailbox.reset(&timer, 40).unwrap();
            for now in [10, 15, 20] {
                assert_eq!((service.manage(now, NONE, |_, _| {}).expired(), service.stats().timers), (0, 1));
            }
            if is_cancelled {
                assert!(timer.cancel().is_cancelled());
                let _ = service.process(usize::MAX, |_, _| {});
                assert_eq!(service.stats().timers, 0);
            }
            assert_eq!(service.run(39, NONE, |_, _| {}).expired(), 0);
            assert_eq!(service.run(40, NONE, |_, _| {}).expired(), usize::from(!is_cancelled));
        }
    }
}

/// The burst ends after the owner has looked at its ring, which is then in the way of no other value: it also has a message
/// of an arming that is over, about a timer that is in the wheel.
#[test]
fn a_burst_that_ends_while_its_service_is_closed_takes_no_value_away() {
    let mut service = TimerService::new(0);
    service.add(10, 1).unwrap();
    let (timer, other) = (service.remote().timer(), service.remote().timer());
    let mut mailbox = service.remote().mailbox(4);
    let mut burst = mailbox.burst();
    burst.add(&timer, 10, 2).unwrap();
    assert!(timer.cancel().is_cancelled());
    let _ = service.process(usize::MAX, |_, _| {}); // takes the hint
    service.arm(&timer, 10, 3).unwrap();
    burst.add(&other, 10, 4).unwrap();
    let (mut burst, mut values) = (Some(burst), Vec::new());
    service.close(|value| {
        burst = None;
        values.push(value);
    });
    assert_eq!(values, [1, 3, 4]);
}

/// The burst itself finds out, when it goes on.
#[test]
fn a_burst_that_goes_on_after_its_service_is_closed_is_refused() {
    let service = TimerService::new(0);
    let (timer, other) = (service.remote().timer(), service.remote().timer());
    let mut mailbox = service.remote().mailbox(1);
    let mut burst = mailbox.burst();
    burst.add(&timer, 10, 1).unwrap();
    drop(service);
    let refused = burst.add(&other, 10, 2).unwrap_err();
    assert_eq!(refused, ArmError::Gone(2));
    assert_eq!((timer.is_armed(), timer.cancel()), (false, Outcome::Gone));
}

/// Each value is handed out by `close`, or comes back to the thread that adds. All mailboxes live on.
#[test]
fn a_service_that_is_closed_while_threads_add_strands_no_timer() {
    for _ in 0..if cfg!(miri) { 3 } else { 200 } {
        let service = TimerService::new(0).sleeping();
        let timers: Vec<_> = (0..8).map(|_| service.remote().timer()).collect();
        let mut mailbox = service.remote().mailbox(8);
        let start = std::sync::Barrier::new(2);
        let (mut added, mut handed_out) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                added = timers.iter().filter(|timer| mailbox.add(timer, 10, 1).is_ok()).count();
            });
            start.wait();
            service.close(|_| handed_out += 1);
        });
        assert_eq!(added, handed_out);
        assert!(timers.iter().all(|timer| !timer.is_armed() && timer.cancel() == Outcome::Gone));
        drop(mailbox);
    }
}

/// A value that panics when it is dropped, if the field is true.
struct Fragile(bool);

impl Drop for Fragile {
    fn drop(&mut self) {
        assert!(!self.0, "on purpose");
    }
}

#[test]
fn a_value_that_panics_when_it_is_dropped_leaves_no_timer_armed() {
    let mut service = TimerService::new(0);
    let timers: Vec<_> = (0..3).map(|_| service.remote().timer()).collect();
    for (number, timer) in timers.iter().enumerate() {
        service.arm(timer, 5, Fragile(number == 0)).unwrap();
    }
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(service))).is_err());
    assert!(timers.iter().all(|timer| matches!(timer.cancel(), Outcome::Gone)));
}

#[test]
fn a_panic_in_the_last_beat_takes_the_timer_out_of_the_wheel() {
    let (mut service, timer) = with_timer();
    service.arm(&timer, Schedule::at(10).every(TEN), 1).unwrap();
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = service.run(10, NONE, |_, _| {
            assert_eq!(timer.cancel(), Outcome::Running);
            panic!("on purpose");
        });
    }));
    assert!(panic.is_err());
    assert_eq!((timer.cancel(), service.stats().timers), (Outcome::Fired, 0));
}

#[test]
fn a_service_that_is_replaced_in_a_beat_leaves_no_timer_armed() {
    let (mut service, timer) = with_timer();
    service.arm(&timer, Schedule::at(10).every(TEN), 1).unwrap();
    let progress = service.run(10, NONE, |service, _| *service = TimerService::new(0));
    assert_eq!((progress.expired(), timer.is_armed()), (1, false));
    assert_eq!(timer.cancel(), Outcome::Fired);
    assert_eq!(service.arm(&timer, 20, 2), Err(ArmError::Foreign(2)));
}

#[test]
fn a_message_that_waits_for_room_keeps_nobody_busy() {
    let mut service = TimerService::with_max_len(0, 1);
    service.add(10, 0).unwrap();
    let timers = [service.remote().timer(), service.remote().timer()];
    let mut mailbox = service.remote().mailbox(2);
    for timer in &timers {
        mailbox.add(timer, 10, 1).unwrap();
    }
    assert_eq!(service.run(5, NONE, |_, _| {}), Progress::Done(0));
    assert_eq!(service.next_deadline(), Some(10));
    // There is room now. So `run` reports that there is more to do at once, not only at the next deadline.
    assert_eq!(service.run(10, NONE, |_, _| {}), Progress::More(1));
    assert_eq!(service.run(10, NONE, |_, _| {}), Progress::More(1));
    assert_eq!(service.run(10, NONE, |_, _| {}), Progress::Done(1));
    assert_eq!(service.next_deadline(), None);
}

/// Only those behind a message that has no room wait: a reset by another mailbox, sent between the two calls, is seen.
#[test]
fn a_mailbox_that_is_held_up_hides_no_other() {
    let mut service = TimerService::with_max_len(0, 1).sleeping();
    let remote = service.remote();
    let (mut first, mut second) = (remote.mailbox(2), remote.mailbox(2));
    let timers = [remote.timer(), remote.timer()];
    first.add(&timers[0], 100, 0).unwrap();
    assert_eq!(service.process(usize::MAX, |_, _| {}), Progress::Done(1));
    second.add(&timers[1], 100, 1).unwrap();
    assert_eq!(service.process(usize::MAX, |_, _| {}), Progress::Done(0));
    first.reset(&timers[0], 10).unwrap();
    assert_eq!(service.sleep(std::thread::current()), Sleep::Not);
    assert_eq!(service.process(usize::MAX, |_, _| {}), Progress::Done(1));
    assert_eq!(service.sleep(std::thread::current()), Sleep::Until(10));
}

/// A cancellation has made room since the message was held up.
#[test]
fn an_owner_does_not_sleep_over_a_message_that_has_room_by_now() {
    let mut service = TimerService::with_max_len(0, 1).sleeping();
    let (timer, mut mailbox) = (service.remote().timer(), service.remote().mailbox(4));
    let key = service.add(1_000, 0).unwrap();
    mailbox.add(&timer, 10, 1).unwrap();
    assert_eq!(service.run(0, NONE, |_, _| {}), Progress::Done(0));
    assert!(matches!(service.sleep(std::thread::current()), Sleep::Until(_)), "there is no room");
    assert!(service.cancel(key).is_some());
    assert_eq!(service.sleep(std::thread::current()), Sleep::Not);
    assert_eq!(service.run(0, NONE, |_, _| {}), Progress::Done(0));
    assert_eq!(service.sleep(std::thread::current()), Sleep::Until(10));
}

#[test]
fn hints_and_messages_share_a_limit() {
    for limit in [1, 2, 3] {
        let mut service = TimerService::new(0);
        let mut mailbox = service.remote().mailbox(64);
        let timers: Vec<_> = (0..40).map(|_| service.remote().timer()).collect();
        for timer in &timers[..20] {
            service.arm(timer, 50, 0).unwrap();
        }
        for timer in &timers[..20] {
            assert!(timer.cancel().is_cancelled());
        }
        for timer in &timers[20..] {
            mailbox.add(timer, 60, 1).unwrap();
        }
        let mut calls = 0;
        while !service.process(limit, |_, _| {}).is_done() {
            calls += 1;
            // The number of timers taken in and the number taken out differ by at most one.
            assert!(
                calls <= 40 && service.stats().timers.abs_diff(20) <= 1,
                "after {calls} calls with limit {limit}: {:?}",
                service.stats()
            );
        }
        assert_eq!(service.stats().timers, 20);
    }
}

/// The handles, the mailbox and the remote are dropped after the first beat; only the service is left.
#[test]
fn a_timer_whose_handles_go_between_its_beats_goes_on_until_its_service_goes() {
    let value = std::rc::Rc::new(());
    let mut service = TimerService::new(0);
    let remote = service.remote();
    let mut handles = Some((remote.timer(), remote.mailbox(2)));
    if let Some((timer, mailbox)) = &mut handles {
        mailbox.add(timer, Schedule::at(10).every(TEN), value.clone()).unwrap();
    }
    drop(remote);
    let mut beats = 0;
    for now in [10, 20, 30] {
        let progress = service.run(now, NONE, |service, event| {
            beats += 1;
            match beats {
                // During the second beat, while the record is in use.
                2 => drop(handles.take()),
                // A handle made only from the event.
                3 => {
                    assert!(matches!(event.timer().cloned().map(|own| own.cancel()), Some(Outcome::Running)))
                }
                _ => {}
            }
            assert_eq!(service.stats().timers, 1);
        });
        assert_eq!(progress, Progress::Done(1));
    }
    assert_eq!((beats, service.stats().timers), (3, 0));
    assert_eq!(std::rc::Rc::strong_count(&value), 1, "its value was dropped after the last beat");

    let timer = service.remote().timer();
    service.arm(&timer, Schedule::at(40).every(TEN), value.clone()).unwrap();
    drop(timer);
    assert_eq!(service.run(40, NONE, |_, _| {}), Progress::Done(1));
    drop(service);
    assert_eq!(std::rc::Rc::strong_count(&value), 1);
}
