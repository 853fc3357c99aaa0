//! Attempts at undefined behaviour through the safe interface; run under Miri as well.

use std::num::NonZeroU64;

use stillpoint::timer::{ArmErrorKind, Key, Limit, Outcome, Schedule, TimerService, Wheel};

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
    service.arm_with(&timer, beating(), "shared").unwrap();
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
        burst.add_with(timer, Schedule::at(10), Panics(number == 0)).unwrap();
    }
    drop(service);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(burst))).is_err());
    for timer in &timers {
        assert!(!timer.is_armed() && matches!(timer.cancel(), Outcome::Gone));
        assert_eq!(mailbox.add(timer, 10, Panics(false)).unwrap_err().kind(), ArmErrorKind::Gone);
    }
}

#[test]
fn a_callback_puts_another_wheel_in_place() {
    let mut wheel = Wheel::new(0);
    let key = wheel.add_with(beating(), String::from("old")).unwrap();
    wheel.add(10, String::from("next")).unwrap();
    let mut kept = None;
    let progress = wheel.poll(10, NONE, |wheel, mut beat| {
        let mut other = Wheel::new(0);
        other.add_with(beating(), String::from("other")).unwrap();
        kept = Some(std::mem::replace(wheel, other));
        beat.value().push('!');
    });
    assert_eq!(progress.expired(), 1);
    let mut old = kept.unwrap();
    assert_eq!(old.get(key), None, "its value was dropped after the callback");
    assert_eq!(old.len(), 2);
    assert_eq!(old.poll(20, NONE, |_, _| {}).expired(), 1, "the beat whose value is lent is skipped");
    assert_eq!(old.cancel(key), None);
    assert_eq!((old.len(), wheel.len()), (0, 1));
    assert_eq!(old.drain().count(), 0);
}

#[test]
fn a_wheel_with_a_lent_value_is_drained_and_dropped() {
    for drain in [true, false] {
        let mut wheel = Wheel::new(0);
        wheel.add_with(beating(), Box::new(1)).unwrap();
        wheel.add(30, Box::new(2)).unwrap();
        let mut taken = None;
        let _ = wheel.poll(10, NONE, |wheel, _| taken = Some(std::mem::replace(wheel, Wheel::new(0))));
        let mut taken = taken.unwrap();
        if drain {
            assert_eq!(taken.drain().map(|value| *value).collect::<Vec<i32>>(), [2]);
            assert!(taken.is_empty());
        }
    }
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
    struct Bomb(bool);
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(!self.0, "on purpose");
        }
    }
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
    let mut service = TimerService::new(0);
    let timer = service.remote().timer();
    service.arm_with(&timer, beating(), String::from("old")).unwrap();
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
