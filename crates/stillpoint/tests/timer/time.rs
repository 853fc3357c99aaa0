//! Setting the time, and freeing memory.

use std::num::NonZeroU64;

use stillpoint::timer::shared::TimerService;
use stillpoint::timer::{Limit, Progress, Schedule, Wheel};

const NONE: Limit = Limit::NONE;

fn fired(wheel: &mut Wheel<u64>, now: u64) -> Vec<u64> {
    let mut values = Vec::new();
    let progress = wheel.poll(now, NONE, |_, expired| values.extend(expired.into_value()));
    assert_eq!(progress, Progress::Done(values.len()));
    values.sort_unstable();
    values
}

/// `set_time` corrects one wrong reading of a clock.
#[test]
fn a_wheel_whose_clock_has_said_the_end_of_time_goes_on() {
    let mut wheel = Wheel::new(1_000);
    wheel.add(2_000, 1).unwrap();
    assert_eq!(fired(&mut wheel, u64::MAX), [1]);
    wheel.add(5_000, 2).unwrap();
    assert_eq!(wheel.next_deadline(), Some(u64::MAX), "the next poll is due at once");
    wheel.set_time(3_000);
    assert_eq!((wheel.now(), wheel.next_deadline()), (3_000, Some(4_992)));
    wheel.add(Schedule::after(10), 3).unwrap();
    assert!(fired(&mut wheel, 3_009).is_empty());
    assert_eq!(fired(&mut wheel, 3_010), [3]);
    assert!(fired(&mut wheel, 4_999).is_empty());
    assert_eq!(fired(&mut wheel, 5_000), [2]);
    assert_eq!(wheel.stats().time_went_back, 0);
}

#[test]
fn what_was_due_is_not_due_at_an_earlier_time() {
    let mut wheel = Wheel::new(0);
    for number in 0..200u64 {
        let schedule = Schedule::at(100 + number * 77);
        wheel.add(if number % 3 == 0 { schedule.coarse() } else { schedule }, number).unwrap();
    }
    // Now timers are ready, overdue, and in slots of all kinds.
    assert_eq!(wheel.poll(9_000, Limit::expiries(3).moves(2), |_, _| {}), Progress::More(3));
    wheel.set_time(50);
    assert!(fired(&mut wheel, 99).is_empty());
    let mut last = wheel.len();
    assert_eq!(last, 197);
    for now in (100..20_000).step_by(50) {
        for number in fired(&mut wheel, now) {
            let deadline = 100 + number * 77;
            assert!(deadline <= now && now - deadline < 50 + deadline / 7, "{number} at {now}");
            last -= 1;
        }
    }
    assert_eq!(last, 0);
}

#[test]
fn what_is_not_in_the_future_is_due_at_a_later_time() {
    let mut wheel = Wheel::new(0);
    for number in 0..100 {
        wheel.add(1_000 + number, number).unwrap();
    }
    wheel.set_time(1_049);
    assert_eq!(wheel.next_deadline(), Some(1_049));
    assert_eq!(fired(&mut wheel, 1_049).len(), 50);
    assert_eq!(fired(&mut wheel, 2_000).len(), 50);
}

#[test]
fn the_time_is_set_in_a_callback() {
    let mut wheel = Wheel::new(0);
    let ten = NonZeroU64::new(10).unwrap();
    let key = wheel.add(Schedule::at(10).every(ten), 1).unwrap();
    wheel.add(500, 2).unwrap();
    let progress = wheel.poll(1_000, NONE, |wheel, _| wheel.set_time(40));
    assert_eq!(progress, Progress::Done(1), "neither the other timer nor the next beat is due any more");
    assert_eq!((wheel.deadline(key), wheel.get(key)), (Some(1_010), Some(&1)));
    assert!(wheel.reset(key, 50));
    assert_eq!(wheel.poll(50, NONE, |_, _| {}), Progress::Done(1));
    assert_eq!(wheel.deadline(key), Some(60));
}

#[test]
fn what_is_due_by_a_time_that_is_set_in_a_callback_fires_in_the_next_poll() {
    let mut wheel = Wheel::new(0);
    wheel.add(10, 1).unwrap();
    wheel.add(500, 2).unwrap();
    assert_eq!(wheel.poll(10, NONE, |wheel, _| wheel.set_time(600)), Progress::More(1));
    assert_eq!(fired(&mut wheel, 600), [2]);
}

#[test]
fn a_service_s_time_is_set_and_its_memory_given_back() {
    let mut service = TimerService::with_capacity(0, 1_000);
    let timer = service.remote().timer();
    service.add(10, 1).unwrap();
    assert_eq!(service.run(u64::MAX, NONE, |_, _| {}), Progress::Done(1));
    service.set_time(100);
    service.arm(&timer, 150, 2).unwrap();
    assert_eq!(service.run(149, NONE, |_, _| {}), Progress::Done(0));
    service.shrink();
    assert_eq!(service.stats().capacity, 1);
    assert_eq!(service.run(150, NONE, |_, _| {}), Progress::Done(1));
    // Mailboxes still work.
    let mut mailbox = service.remote().mailbox(1);
    for value in [3, 4] {
        mailbox.add(&timer, 150, value).unwrap();
        assert_eq!(service.run(150, NONE, |_, _| {}), Progress::Done(1));
        service.shrink();
    }
    assert_eq!(service.stats().capacity, 0);
}

#[test]
fn a_wheel_is_shrunk_in_a_callback() {
    let mut wheel = Wheel::new(0);
    let one = NonZeroU64::MIN;
    let keys: Vec<_> = (0..100).map(|number| wheel.add(10, number).unwrap()).collect();
    let beat = wheel.add(Schedule::at(10).every(one), 100).unwrap();
    let mut seen = 0;
    let progress = wheel.poll(10, NONE, |wheel, _| {
        wheel.shrink();
        seen += 1;
    });
    assert_eq!((progress, seen, wheel.len()), (Progress::Done(101), 101, 1));
    assert!(keys.iter().all(|key| wheel.cancel(*key).is_none()));
    assert_eq!(wheel.cancel(beat), Some(100));
    wheel.shrink();
    assert_eq!(wheel.stats().capacity, 0);
    assert!(keys.iter().all(|key| wheel.cancel(*key).is_none() && wheel.get(*key).is_none()));
}

#[test]
fn a_bounded_wheel_that_is_shrunk_has_its_bound() {
    let mut wheel = Wheel::with_max_len(0, 3);
    wheel.shrink();
    assert_eq!(wheel.stats().capacity, 0);
    for number in 0..3 {
        wheel.add(10, number).unwrap();
    }
    assert!(wheel.add(10, 3).is_err());
    assert_eq!(fired(&mut wheel, 10), [0, 1, 2]);
}
