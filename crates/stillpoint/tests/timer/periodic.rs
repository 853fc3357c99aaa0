//! Periodic timers.

use std::num::NonZeroU64;
use std::rc::Rc;

use stillpoint::timer::{Limit, Progress, Schedule, Wheel};

fn every(period: u64) -> NonZeroU64 {
    NonZeroU64::new(period).unwrap()
}

#[test]
fn beats_do_not_drift() {
    let mut wheel = Wheel::new(0);
    wheel.add(Schedule::at(10).every(every(10)), ()).unwrap();
    let mut beats = Vec::new();
    for now in [13, 27, 30, 39, 41] {
        let _ = wheel.poll(now, Limit::NONE, |_, beat| beats.push(beat.deadline()));
    }
    assert_eq!(beats, [10, 20, 30, 40]);
}

#[test]
fn missed_beats_are_left_out_and_counted() {
    let mut wheel = Wheel::new(0);
    wheel.add(Schedule::at(10).every(every(10)), ()).unwrap();
    let mut seen = Vec::new();
    let progress = wheel.poll(3_600_000_000_005, Limit::NONE, |_, beat| {
        seen.push((beat.deadline(), beat.missed()));
    });
    assert_eq!((seen, progress), (vec![(10, 359_999_999_999)], Progress::Done(1)));
    assert_eq!(wheel.next_deadline(), Some(3_600_000_000_010));
}

#[test]
fn the_value_is_lent_and_kept() {
    let mut wheel = Wheel::new(0);
    let key = wheel.add(Schedule::at(1).every(every(1)), vec![0]).unwrap();
    for now in 1..5 {
        let _ = wheel.poll(now, Limit::NONE, |wheel, mut beat| {
            assert!(beat.is_periodic() && wheel.get(key).is_none());
            beat.value().push(now);
            assert!(beat.into_value().is_none());
        });
    }
    assert_eq!(wheel.cancel(key), Some(vec![0, 1, 2, 3, 4]));
}

#[test]
fn a_timer_that_its_own_callback_cancels_is_over() {
    let value = Rc::new(());
    let mut wheel = Wheel::new(0);
    let key = wheel.add(Schedule::at(1).every(every(1)), value.clone()).unwrap();
    let progress = wheel.poll(5, Limit::NONE, |wheel, beat| {
        assert_eq!(beat.key(), key);
        assert_eq!(wheel.cancel(key), None, "the timer has fired");
        assert!(wheel.is_empty());
        // This timer takes the same place.
        wheel.add(9, Rc::new(())).unwrap();
    });
    assert_eq!(progress, Progress::Done(1));
    assert_eq!(Rc::strong_count(&value), 1, "its value is dropped after the callback");
    assert_eq!((wheel.len(), wheel.cancel(key)), (1, None));
}

#[test]
fn a_timer_that_its_own_callback_resets_goes_on_from_there() {
    let mut wheel = Wheel::new(0);
    let key = wheel.add(Schedule::at(10).every(every(10)), ()).unwrap();
    let _ = wheel.poll(10, Limit::NONE, |wheel, _| assert!(wheel.reset(key, 15)));
    let mut beats = Vec::new();
    for now in [14, 15, 24, 25] {
        let _ = wheel.poll(now, Limit::NONE, |_, beat| beats.push((now, beat.deadline())));
    }
    assert_eq!(beats, [(15, 15), (25, 25)]);
}

#[test]
fn a_panic_of_its_callback_leaves_a_periodic_timer_armed() {
    let mut wheel = Wheel::new(0);
    let key = wheel.add(Schedule::at(10).every(every(10)), 7).unwrap();
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = wheel.poll(10, Limit::NONE, |_, _| panic!("on purpose"));
    }));
    assert!(panic.is_err());
    assert_eq!((wheel.get(key), wheel.deadline(key)), (Some(&7), Some(20)));
    assert_eq!(wheel.poll(20, Limit::NONE, |_, _| {}), Progress::Done(1));
}

#[test]
fn the_last_beat_is_at_the_end_of_time() {
    let mut wheel = Wheel::new(u64::MAX - 5);
    let key = wheel.add(Schedule::at(u64::MAX - 3).every(every(2)), 7).unwrap();
    let mut beats = Vec::new();
    for now in [u64::MAX - 3, u64::MAX - 1, u64::MAX, u64::MAX] {
        let _ = wheel.poll(now, Limit::NONE, |_, beat| beats.push((beat.deadline(), beat.is_periodic())));
    }
    assert_eq!(beats, [(u64::MAX - 3, true), (u64::MAX - 1, true), (u64::MAX, false)]);
    assert!(wheel.is_empty() && wheel.cancel(key).is_none());
}

#[test]
fn a_beat_that_is_due_while_the_value_is_lent_is_left_out() {
    let mut wheel = Wheel::new(0);
    let key = wheel.add(Schedule::at(10).every(every(10)), 7).unwrap();
    let progress = wheel.poll(10, Limit::NONE, |wheel, _| {
        assert_eq!(wheel.poll(25, Limit::NONE, |_, _| unreachable!("its value is lent")).expired(), 0);
    });
    assert_eq!(progress, Progress::Done(1));
    assert_eq!((wheel.get(key), wheel.deadline(key)), (Some(&7), Some(30)));
}

#[test]
fn all_of_time_can_be_missed() {
    let mut wheel = Wheel::new(0);
    let key = wheel.add(Schedule::at(0).every(every(1)), 7).unwrap();
    let mut beats = Vec::new();
    let progress = wheel.poll(u64::MAX, Limit::NONE, |_, beat| beats.push((beat.deadline(), beat.missed())));
    assert_eq!((progress, wheel.deadline(key)), (Progress::More(1), Some(u64::MAX)));
    let progress = wheel.poll(u64::MAX, Limit::NONE, |_, beat| beats.push((beat.deadline(), beat.missed())));
    assert_eq!((progress, beats), (Progress::Done(1), vec![(0, u64::MAX), (u64::MAX, 0)]));
    assert!(wheel.is_empty() && wheel.cancel(key).is_none());
}
