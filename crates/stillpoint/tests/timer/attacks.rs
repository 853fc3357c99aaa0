//! Attempts at undefined behaviour through the safe interface; run under Miri as well.

use std::num::NonZeroU64;
use std::rc::Rc;

use stillpoint::timer::shared::{ArmError, Outcome, SharedTimer, TimerService};
use stillpoint::timer::{Key, Limit, Progress, Schedule, Wheel};

use crate::with_timer;

const NONE: Limit = Limit::NONE;

fn beating() -> Schedule {
    Schedule::at(10).every(NonZeroU64::MIN)
}

#[test]
fn keys_made_of_numbers() {
    let mut wheel = Wheel::new(0);
    let real = wheel.add(10, String::from("real")).unwrap();
    let free = wheel.add(10, String::from("free")).unwrap();
    wheel.cancel(free);
    let interesting = [0, 1, 3, 64, 2_047, 2_048, 2_049, 2_050, 2_111, 2_112, u64::from(u32::MAX)];
    let generations = [0, 1, 2, real.to_bits() >> 32, (real.to_bits() >> 32) + 1, u64::from(u32::MAX)];
    for index in interesting {
        for generation in generations {
            let bits = generation << 32 | index;
            let Some(key) = Key::from_bits(bits).filter(|key| *key != real) else { continue };
            assert!(wheel.get(key).is_none() && wheel.get_mut(key).is_none());
            assert!(wheel.deadline(key).is_none() && !wheel.reset(key, 5));
            assert_eq!(wheel.cancel(key), None, "{bits:x}");
        }
    }
    assert_eq!(wheel.len(), 1);
    assert_eq!(
        wheel.poll(10, NONE, |_, expired| assert_eq!(expired.into_value().unwrap(), "real")).expired(),
        1
    );
}

#[test]
fn keys_of_other_wheels() {
    let mut wheels: Vec<Wheel<Box<usize>>> = (0..20).map(|_| Wheel::new(0)).collect();
    let keys: Vec<Key> = wheels
        .iter_mut()
        .enumerate()
        .map(|(number, wheel)| wheel.add(10, Box::new(number)).unwrap())
        .collect();
    for (number, wheel) in wheels.iter_mut().enumerate() {
        for (other, key) in keys.iter().enumerate().filter(|(other, _)| *other != number) {
            assert_eq!(wheel.cancel(*key), None, "{other} in {number}");
        }
        assert_eq!(wheel.cancel(keys[number]).as_deref(), Some(&number));
        // Now the place is free, and has the generation of its next key.
        for key in &keys {
            assert_eq!(wheel.cancel(*key), None);
        }
    }
}

#[test]
fn a_key_that_was_made_up_names_a_shared_timer() {
    let mut service = TimerService::new(0);
    let own = service.add(10, "own").unwrap();
    assert_eq!(service.cancel(own), Some("own"));
    // The key that the next timer in the same place will have.
    let made_up = Key::from_bits(own.to_bits() + (1 << 32)).unwrap();
    let timer = service.remote().timer();
    service.arm(&timer, beating(), "shared").unwrap();
    assert!(service.cancel(made_up).is_none() && !service.reset(made_up, 99));
    // While its value is lent, the entry looks like that of a local timer. The timer goes on, or is over.
    let first = service.manage(10, NONE, |service, _| assert!(service.reset(made_up, 15)));
    assert_eq!((first.expired(), timer.is_armed()), (1, true));
    assert_eq!(service.manage(14, NONE, |_, _| {}).expired(), 0);
    let second = service.manage(15, NONE, |service, _| assert_eq!(service.cancel(made_up), None));
    assert_eq!((second.expired(), service.stats().timers), (1, 0));
    assert!(!timer.is_armed(), "no wheel would fire it");
    assert_eq!(timer.cancel(), Outcome::Fired);
    service.arm(&timer, 20, "again").unwrap();
    assert_eq!(service.manage(20, NONE, |_, _| {}).expired(), 1);
}

/// The timers of messages that are published after the service is gone are ended with the ring, which the burst gives up.
#[test]
fn a_value_in_an_abandoned_ring_panics_when_it_is_dropped() {
    struct Panics(bool);

    impl Drop for Panics {
        fn drop(&mut self) {
            assert!(!self.0, "on purpose");
        }
    }

    let service = TimerService::new(0);
    let timers = [(); 3].map(|()| service.remote().timer());
    let mut mailbox = service.remote().mailbox(4);
    let mut burst = mailbox.burst();
    for (number, timer) in timers.iter().enumerate() {
        burst.add(timer, Schedule::at(10), Panics(number == 0)).unwrap();
    }
    drop(service);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(burst))).is_err());
    for timer in &timers {
        assert!(!timer.is_armed() && matches!(timer.cancel(), Outcome::Gone));
        assert!(matches!(mailbox.add(timer, 10, Panics(false)), Err(ArmError::Gone(_))));
    }
}

#[test]
fn a_callback_puts_another_wheel_in_place() {
    let mut wheel = Wheel::new(0);
    wheel.add(beating(), String::from("old")).unwrap();
    wheel.add(10, String::from("next")).unwrap();
    let mut kept = None;
    let progress = wheel.poll(10, NONE, |wheel, mut beat| {
        let mut other = Wheel::new(0);
        other.add(beating(), String::from("other")).unwrap();
        kept = Some(std::mem::replace(wheel, other));
        beat.value().push('!');
    });
    assert_eq!((progress, wheel.now()), (Progress::Done(1), 0), "the wheel in place has not advanced");
    assert_eq!(wheel.poll(10, NONE, |_, mut beat| assert_eq!(beat.value(), "other")), Progress::Done(1));
    let mut old = kept.unwrap();
    let mut fired = Vec::new();
    let progress = old.poll(12, NONE, |_, mut expired| fired.push(expired.value().clone()));
    assert_eq!((progress, fired), (Progress::Done(1), vec!["next".into()]));
    assert_eq!((old.len(), wheel.len()), (0, 1));
}

/// The key of a beat, and a wheel with the beat and another timer, "next". The callback of the beat has moved the wheel away,
/// done this with it, and changed the value.
fn moved_away(also: impl FnOnce(&mut Wheel<String>, Key)) -> (Key, Wheel<String>) {
    let mut wheel = Wheel::new(0);
    let key = wheel.add(beating(), String::from("old")).unwrap();
    wheel.add(20, String::from("next")).unwrap();
    let (mut kept, mut also) = (None, Some(also));
    let progress = wheel.poll(10, NONE, |wheel, mut beat| {
        let mut old = std::mem::replace(wheel, Wheel::new(10));
        also.take().unwrap()(&mut old, beat.key());
        kept = Some(old);
        beat.value().push('!');
    });
    assert_eq!((progress, wheel.len()), (Progress::Done(1), 0));
    (key, kept.unwrap())
}

#[test]
fn a_periodic_timer_ends_with_the_callback_that_moves_its_wheel_away() {
    let nothing = |_: &mut Wheel<String>, _| {};
    let (key, mut old) = moved_away(nothing);
    assert!(old.get(key).is_none() && old.get_mut(key).is_none());
    assert_eq!(old.poll(11, NONE, |_, _| unreachable!("its value is gone")), Progress::Done(0));
    assert_eq!((old.len(), old.deadline(key)), (1, None));

    let (key, mut old) = moved_away(nothing);
    assert_eq!((old.cancel(key), old.len()), (None, 1));

    let (_, mut old) = moved_away(nothing);
    assert_eq!((old.drain().collect::<Vec<_>>(), old.len()), (vec!["next".into()], 0));

    let (key, mut old) = moved_away(nothing);
    old.advance(11);
    let last = old.pop().unwrap();
    assert_eq!((last.key, last.deadline, last.value), (key, 11, None));
    assert_eq!((old.pop(), old.len(), old.deadline(key)), (None, 1, None));

    // The beat is reset in its callback, as it may be in place.
    let (_, mut old) = moved_away(|wheel, key| assert!(wheel.get(key).is_none() && wheel.reset(key, 15)));
    assert_eq!((old.poll(14, NONE, |_, _| {}), old.len()), (Progress::Done(0), 2));
    assert_eq!((old.poll(15, NONE, |_, _| {}), old.len()), (Progress::Done(0), 1));
}

/// A beat that is due while its callback runs is left out, also in a wheel that has lost other values.
#[test]
fn a_value_that_is_lent_is_not_lost() {
    let (_, mut wheel) = moved_away(|_, _| {});
    let key = wheel.add(beating(), String::from("lent")).unwrap();
    let progress = wheel.poll(12, NONE, |wheel, mut beat| {
        assert_eq!(beat.key(), key);
        assert_eq!(wheel.poll(15, NONE, |_, _| unreachable!("its value is lent")), Progress::Done(0));
        assert_eq!(wheel.deadline(key), Some(16));
        beat.value().push('!');
    });
    assert_eq!((progress, wheel.get(key).map(|value| &**value)), (Progress::Done(1), Some("lent!")));
    assert_eq!(wheel.poll(16, NONE, |_, mut beat| assert_eq!(beat.value(), "lent!")), Progress::Done(1));
}

#[test]
fn callbacks_swap_the_wheels_of_two_polls() {
    let mut wheels = [Wheel::new(0), Wheel::new(0)];
    let [one, two] = ["one", "two"].map(String::from);
    let keys = [wheels[0].add(beating(), one).unwrap(), wheels[1].add(beating(), two).unwrap()];
    let [first, second] = &mut wheels;
    let _ = first.poll(10, NONE, |first, mut outer| {
        let _ = second.poll(10, NONE, |second, mut inner| {
            std::mem::swap(first, second);
            inner.value().push('i');
        });
        outer.value().push('o');
    });
    let [first, second] = &mut wheels;
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_eq!((first.cancel(keys[0]), second.cancel(keys[1])), (None, None));
    assert_eq!((first.cancel(keys[1]), second.cancel(keys[0])), (None, None));
    assert!(first.is_empty() && second.is_empty());
    // Swapped there and back.
    let key = first.add(beating(), String::from("three")).unwrap();
    let _ = first.poll(20, NONE, |first, mut beat| {
        std::mem::swap(first, second);
        beat.value().push('!');
        std::mem::swap(first, second);
    });
    assert_eq!(first.get(key).map(|value| &**value), Some("three!"));
}

#[test]
fn a_poll_goes_on_with_the_wheel_that_its_callback_has_put_in_place() {
    let (mut wheel, mut other) = (Wheel::new(0), Wheel::new(0));
    let first = wheel.add(beating(), String::from("first")).unwrap();
    let second = other.add(beating(), String::from("second")).unwrap();
    other.advance(10);
    let progress = wheel.poll(10, NONE, |wheel, mut beat| {
        if beat.key() == first {
            std::mem::swap(wheel, &mut other);
        }
        beat.value().push('!');
    });
    assert_eq!(progress, Progress::Done(2));
    assert_eq!(wheel.get(second).map(|value| &**value), Some("second!"));
    assert!(other.get_mut(first).is_none());
}

#[test]
fn a_value_is_lost_after_a_panic_and_across_threads() {
    let mut wheel = Wheel::new(0);
    let key = wheel.add(beating(), String::from("old")).unwrap();
    let (there, old) = std::sync::mpsc::channel::<Wheel<String>>();
    let (ended, callback) = std::sync::mpsc::channel();
    let (looked, answer) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        let mut old = old.recv().unwrap();
        assert!(old.get_mut(key).is_none() && old.len() == 1);
        looked.send(()).unwrap();
        callback.recv().unwrap();
        assert_eq!(old.poll(20, NONE, |_, _| unreachable!("its value is gone")), Progress::Done(0));
        old.len()
    });
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = wheel.poll(10, NONE, |wheel, mut beat| {
            there.send(std::mem::replace(wheel, Wheel::new(0))).unwrap();
            answer.recv().unwrap();
            beat.value().push('!');
            panic!("on purpose");
        });
    }));
    ended.send(()).unwrap();
    assert!(panic.is_err());
    assert_eq!(other.join().unwrap(), 0);
}

#[test]
fn a_value_that_cannot_come_back_is_dropped_with_the_callback() {
    let dropped_after = |also: fn(&mut Wheel<Rc<()>>, Key)| {
        let (value, mut wheel, mut kept) = (Rc::new(()), Wheel::new(0), None);
        let schedule = Schedule::at(10).every(NonZeroU64::new(u64::MAX / 2).unwrap());
        wheel.add(schedule, value.clone()).unwrap();
        let _ = wheel.poll(10, NONE, |wheel, beat| {
            let mut old = std::mem::replace(wheel, Wheel::new(10));
            also(&mut old, beat.key());
            kept = Some(old);
            assert_eq!(Rc::strong_count(&value), 2, "the callback has it");
        });
        assert_eq!(Rc::strong_count(&value), 1);
        let mut old = kept.unwrap();
        let _ = old.poll(u64::MAX, NONE, |_, _| unreachable!("the timer is gone"));
        assert!(old.is_empty());
    };
    dropped_after(|_, _| {});
    dropped_after(|wheel, key| assert_eq!(wheel.cancel(key), None));
    dropped_after(|wheel, _| assert_eq!(wheel.drain().count(), 0));
    // Its last beat comes while the callback of an earlier one runs.
    dropped_after(
        |wheel, _| {
            while !wheel.poll(u64::MAX, NONE, |_, _| unreachable!("its value is lent")).is_done() {}
        },
    );
}

#[test]
fn a_wheel_with_a_lent_value_is_drained_and_dropped() {
    for drain in [true, false] {
        let (value, mut wheel) = (Rc::new(()), Wheel::new(0));
        wheel.add(beating(), value.clone()).unwrap();
        wheel.add(30, Rc::new(())).unwrap();
        let progress = wheel.poll(10, NONE, |wheel, _| {
            let mut taken = std::mem::replace(wheel, Wheel::new(10));
            assert!(!drain || taken.drain().count() == 1 && taken.is_empty());
            drop(taken);
            assert_eq!(Rc::strong_count(&value), 2, "the callback has it");
        });
        assert_eq!((progress, Rc::strong_count(&value)), (Progress::Done(1), 1));
    }
}

/// A value whose drop panics, if the field is true.
struct Bomb(bool);

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(!self.0, "on purpose");
    }
}

#[test]
fn a_destructor_of_a_value_that_is_lost_panics() {
    let mut wheel = Wheel::new(0);
    wheel.add(beating(), Bomb(true)).unwrap();
    let other = wheel.add(Schedule::at(11).every(NonZeroU64::MIN), Bomb(false)).unwrap();
    let mut kept = None;
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = wheel.poll(10, NONE, |wheel, _| kept = Some(std::mem::replace(wheel, Wheel::new(11))));
    }));
    assert!(panic.is_err());
    let mut old = kept.unwrap();
    assert_eq!(old.poll(11, NONE, |_, beat| assert!(beat.key() == other)), Progress::Done(1));
    assert!(old.len() == 1 && old.get_mut(other).is_some_and(|value| !value.0));
}

#[test]
fn a_drain_that_is_forgotten_leaves_a_valid_wheel() {
    let mut wheel = Wheel::new(0);
    for number in 0..3 {
        wheel.add(10, Box::new(number)).unwrap();
    }
    let mut drain = wheel.drain();
    drain.next();
    std::mem::forget(drain);
    assert_eq!(wheel.len(), 2);
    assert_eq!(wheel.poll(10, NONE, |_, _| {}).expired(), 2);
}

#[test]
fn a_destructor_panics() {
    let mut wheel = Wheel::new(0);
    wheel.add(10, Bomb(true)).unwrap();
    wheel.add(10, Bomb(false)).unwrap();
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = wheel.poll(10, NONE, |_, _| {});
    }));
    assert!(panic.is_err());
    assert_eq!(wheel.poll(10, NONE, |_, _| {}).expired(), 1);
}

#[test]
fn a_callback_puts_another_service_in_place() {
    let (mut service, timer) = with_timer();
    service.arm(&timer, beating(), String::from("old")).unwrap();
    let mut kept = None;
    let _ = service.run(10, NONE, |service, mut beat| {
        kept = Some(std::mem::replace(service, TimerService::new(0)));
        // The old service is even used on another thread, to arm this timer.
        let refused = std::thread::scope(|scope| {
            let old = kept.as_mut().unwrap();
            scope.spawn(|| old.arm(&timer, 20, String::from("new"))).join().unwrap()
        });
        assert!(refused.is_ok());
        beat.value().push('!');
    });
    let mut old = kept.unwrap();
    let mut fired = Vec::new();
    let _ = old.run(30, NONE, |_, event| fired.extend(event.into_value()));
    assert_eq!(fired, ["new"]);
}

/// Runs the service until its callback, which moves it away, does this with it, and changes the value.
fn moved_away_service<R>(
    mut service: TimerService<String>,
    also: impl FnOnce(TimerService<String>) -> R,
) -> R {
    let (mut result, mut also) = (None, Some(also));
    let progress = service.run(10, NONE, |service, mut beat| {
        let old = std::mem::replace(service, TimerService::new(10));
        result = also.take().map(|also| also(old));
        beat.value().push('!');
    });
    assert_eq!((progress, service.stats().timers), (Progress::Done(1), 0));
    result.unwrap()
}

/// A service with a periodic timer that is shared, the timer, and the key of its entry, which is not given out.
fn beating_service() -> (TimerService<String>, SharedTimer<String>, Key) {
    let mut service = TimerService::new(0);
    let own = service.add(10, String::new()).unwrap();
    service.cancel(own).unwrap();
    let timer = service.remote().timer();
    service.arm(&timer, beating(), String::from("old")).unwrap();
    (service, timer, Key::from_bits(own.to_bits() + (1 << 32)).unwrap())
}

/// The values that a service hands out as it closes.
fn closed(service: TimerService<String>) -> Vec<String> {
    let mut values = Vec::new();
    service.close(|value| values.push(value));
    values
}

#[test]
fn periodic_timers_end_in_a_service_that_their_callback_has_moved_away() {
    let (service, timer, _) = beating_service();
    let mut old = moved_away_service(service, |old| old);
    assert_eq!((timer.is_armed(), timer.cancel()), (false, Outcome::Fired));
    assert_eq!(old.run(11, NONE, |_, _| unreachable!("its value is gone")), Progress::Done(0));
    assert_eq!(old.stats().timers, 0);
    old.arm(&timer, 20, "again".into()).unwrap();
    assert_eq!(old.run(20, NONE, |_, mut event| assert_eq!(event.value(), "again")), Progress::Done(1));

    // It may be armed again before its entry is gone.
    let (service, timer, _) = beating_service();
    let mut old = moved_away_service(service, |old| old);
    old.arm(&timer, 20, "again".into()).unwrap();
    assert_eq!(old.run(20, NONE, |_, mut event| assert_eq!(event.value(), "again")), Progress::Done(1));
    assert_eq!(old.stats().timers, 0);

    let mut service = TimerService::new(0);
    let key = service.add(beating(), String::from("own")).unwrap();
    let mut old = moved_away_service(service, |old| old);
    assert_eq!((old.cancel(key), old.stats().timers), (None, 0));

    let mut service = TimerService::new(0);
    service.add(beating(), String::from("own")).unwrap();
    assert!(closed(moved_away_service(service, |old| old)).is_empty());
}

#[test]
fn a_shared_timer_ends_in_a_service_that_its_callback_has_moved_away() {
    let (service, timer, _) = beating_service();
    let values = moved_away_service(service, |old| (closed(old), timer.is_armed()));
    assert_eq!(values, (vec![], false), "the callback has the value");
    assert_eq!((timer.is_armed(), timer.cancel()), (false, Outcome::Fired));

    let (service, timer, _) = beating_service();
    let mut old = moved_away_service(service, |old| {
        assert_eq!(timer.cancel(), Outcome::Running);
        old
    });
    assert_eq!((timer.is_armed(), timer.cancel()), (false, Outcome::Fired));
    assert_eq!(old.run(11, NONE, |_, _| unreachable!("its value is gone")), Progress::Done(0));
    assert_eq!(old.stats().timers, 0);

    // Its entry goes: no wheel would fire it.
    for to_the_end in [false, true] {
        let (service, timer, made_up) = beating_service();
        let mut old = moved_away_service(service, |mut old| {
            match to_the_end {
                true => {
                    while !old.manage(u64::MAX, NONE, |_, _| unreachable!("its value is lent")).is_done() {}
                }
                false => assert_eq!(old.cancel(made_up), None),
            }
            assert_eq!(old.stats().timers, 0);
            old
        });
        assert_eq!((timer.is_armed(), timer.cancel()), (false, Outcome::Fired));
        old.arm(&timer, 20, "again".into()).unwrap();
        assert_eq!(closed(old), ["again"]);
    }
}

#[test]
fn handles_outlive_everything() {
    let mut service = TimerService::new(0);
    let remote = service.remote();
    let timer = remote.timer();
    let mut mailbox = remote.mailbox(2);
    service.arm(&timer, 10, Box::new(1)).unwrap();
    assert!(timer.cancel().is_cancelled());
    std::mem::forget(mailbox.burst());
    mailbox.add(&timer, 10, Box::new(2)).unwrap();
    drop(service);
    drop(remote);
    assert_eq!(timer.cancel(), Outcome::Gone);
    drop(mailbox);
    assert_eq!(timer.clone().revoke(), Outcome::Gone);
}
