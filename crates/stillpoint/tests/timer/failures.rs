//! Cases in which other timer wheels have failed.

use std::cell::RefCell;

use stillpoint::timer::{Full, Key, Limit, Progress, Schedule, Wheel};

const NONE: Limit = Limit::NONE;

fn fired(wheel: &mut Wheel<u64>, now: u64) -> Vec<u64> {
    let mut values = Vec::new();
    let progress = wheel.poll(now, NONE, |_, expired| values.extend(expired.into_value()));
    assert_eq!(progress, Progress::Done(values.len()));
    values
}

#[test]
fn time_that_goes_back_counts_as_the_last_time() {
    let mut wheel = Wheel::new(1_000);
    wheel.add(1_100, 1).unwrap();
    assert!(fired(&mut wheel, 500).is_empty());
    assert_eq!((wheel.now(), wheel.stats().time_went_back), (1_000, 1));
    wheel.add(Schedule::after(50), 2).unwrap();
    wheel.advance(0);
    assert!(wheel.pop().is_none());
    assert_eq!(wheel.stats().time_went_back, 2);
    assert_eq!(fired(&mut wheel, 1_100), [2, 1]);
}

#[test]
fn an_hour_s_jump_costs_what_fires_and_not_what_passes() {
    const HOUR: u64 = 3_600_000_000_000;
    let mut wheel = Wheel::new(0);
    for number in 0..1_000 {
        wheel.add(1 + number * 1_000_003, number).unwrap();
    }
    wheel.add(HOUR + 1, 1_000).unwrap();
    let all = fired(&mut wheel, HOUR);
    assert_eq!(all.len(), 1_000);
    assert!(wheel.stats().moved <= 1_001, "{} moves", wheel.stats().moved);
    assert_eq!(fired(&mut wheel, HOUR + 1), [1_000]);
}

#[test]
fn the_end_of_every_level_is_passed() {
    for level in (0..11).step_by(if cfg!(miri) { 5 } else { 1 }) {
        let end = 1u64 << (6 * level).min(63);
        for begin in [end - 1, end.saturating_sub(64), end.saturating_sub(65)] {
            for delay in [1, 2, 63, 64, 65, 4_095, 4_096, 4_097, 1 << 20] {
                let mut wheel = Wheel::new(begin);
                wheel.add(Schedule::after(delay), 7).unwrap();
                assert!(
                    fired(&mut wheel, begin + delay - 1).is_empty(),
                    "early: begun at {begin}, delay {delay}"
                );
                assert_eq!(fired(&mut wheel, begin + delay), [7], "{begin} {delay}");
            }
        }
    }
}

#[test]
fn every_tick_by_itself() {
    let steps = if cfg!(miri) { 200 } else { 20_000 };
    for begin in [0, 4_000, (1 << 48) - 5_000] {
        let mut wheel = Wheel::new(begin);
        for number in 0..steps {
            wheel.add(begin + 1 + number, number).unwrap();
        }
        for number in 0..steps {
            assert_eq!(fired(&mut wheel, begin + 1 + number), [number]);
        }
    }
}

#[test]
fn a_wheel_has_no_age_beyond_which_it_fails() {
    let mut wheel = Wheel::new(0);
    let mut now = 0;
    for bits in 1..64 {
        wheel.add(1 << bits, bits).unwrap();
    }
    for bits in 1..64 {
        assert!(fired(&mut wheel, (1 << bits) - 1).is_empty());
        now = 1 << bits;
        assert_eq!(fired(&mut wheel, now), [bits]);
    }
    wheel.add(u64::MAX, 64).unwrap();
    wheel.add(Schedule::after(u64::MAX), 65).unwrap();
    assert!(fired(&mut wheel, u64::MAX - 1).is_empty());
    assert!(now < u64::MAX);
    assert_eq!(fired(&mut wheel, u64::MAX), [64, 65]);
    wheel.add(Schedule::after(1), 66).unwrap();
    assert_eq!(fired(&mut wheel, u64::MAX), [66], "at `u64::MAX` everything is due");
}

#[test]
fn a_coarse_timer_at_the_end_of_time_still_fires() {
    for before in [0, 1, 7, 1_000, 1 << 40] {
        let mut wheel = Wheel::new(1 << 50);
        let deadline = u64::MAX - before;
        wheel.add(Schedule::at(deadline).coarse(), 7).unwrap();
        assert!(fired(&mut wheel, deadline - 1).is_empty());
        assert_eq!(fired(&mut wheel, u64::MAX), [7]);
    }
}

#[test]
fn a_coarse_timer_is_an_eighth_late_at_most_and_never_moved() {
    // Each wheel takes a long time under Miri.
    for bits in (6..40).step_by(if cfg!(miri) { 17 } else { 1 }) {
        for delay in [1 << bits, (1 << bits) + 1, (1 << bits) * 3 / 2, (2 << bits) - 1] {
            for begin in [0, 12_345, (1 << 36) - 3] {
                let mut wheel = Wheel::new(begin);
                wheel.add(Schedule::at(begin + delay).coarse(), 7).unwrap();
                let at = wheel.next_deadline().unwrap();
                assert!(
                    at >= begin + delay && at - (begin + delay) <= delay * 8 / 63,
                    "a delay of {delay} from {begin} has fired at {at}"
                );
                assert!(fired(&mut wheel, at - 1).is_empty());
                assert_eq!(fired(&mut wheel, at), [7]);
                assert_eq!(wheel.stats().moved, 0);
            }
        }
    }
}

#[test]
fn a_coarse_timer_whose_deadline_begins_a_slot_is_exact() {
    // Each wheel takes a long time under Miri.
    for bits in (6..63).step_by(if cfg!(miri) { 17 } else { 1 }) {
        let mut wheel = Wheel::new(0);
        wheel.add(Schedule::at(1 << bits).coarse(), 7).unwrap();
        assert_eq!(wheel.next_deadline(), Some(1 << bits));
        assert_eq!(fired(&mut wheel, 1 << bits), [7]);
    }
}

#[test]
fn exact_timers_fire_before_coarse_ones_of_the_same_poll() {
    let mut wheel = Wheel::new(0);
    wheel.add(Schedule::at(1_000).coarse(), 3).unwrap();
    wheel.add(1_300, 2).unwrap();
    wheel.add(1_200, 1).unwrap();
    assert_eq!(fired(&mut wheel, 2_000), [1, 2, 3]);
}

#[test]
fn what_was_due_when_it_was_added_fires_first() {
    let mut wheel = Wheel::new(100);
    wheel.add(Schedule::at(200).coarse(), 4).unwrap();
    wheel.add(150, 3).unwrap();
    wheel.add(100, 1).unwrap();
    wheel.add(0, 2).unwrap();
    assert_eq!(fired(&mut wheel, 300), [1, 2, 3, 4]);
}

#[test]
fn coarse_timers_fire_by_granularity_and_then_by_slot() {
    let mut wheel = Wheel::new(0);
    // Their slots have 512, 64 and 8 ticks.
    for deadline in [9_000, 5_000, 3_000, 1_000, 300, 100] {
        wheel.add(Schedule::at(deadline).coarse(), deadline).unwrap();
    }
    assert_eq!(fired(&mut wheel, 20_000), [100, 300, 1_000, 3_000, 5_000, 9_000]);
}

/// The first timer is in a slot of 1,024 ticks, and the second one in a slot of 32.
#[test]
fn timers_of_one_deadline_fire_as_they_were_armed_whatever_their_levels() {
    let in_each = |timers: u64, deadline| {
        let mut wheel = Wheel::new(0);
        (0..timers).for_each(|number| _ = wheel.add(deadline, number).unwrap());
        assert!(fired(&mut wheel, 100).is_empty());
        (timers..2 * timers).for_each(|number| _ = wheel.add(deadline, number).unwrap());
        wheel
    };
    // Both slots begin at the deadline, and are in the past.
    assert_eq!(fired(&mut in_each(1, 2_048), 3_100), [0, 1]);
    // Both slots are the next ones of their levels, so one poll moves the timers of both to one slot.
    let mut wheel = in_each(2, 2_053);
    assert!(fired(&mut wheel, 2_030).is_empty());
    assert_eq!(wheel.stats().moved, 4);
    assert_eq!(fired(&mut wheel, 2_053), [0, 1, 2, 3]);
    // A timer with a slot to itself stays until that begins; then one poll moves both timers.
    let mut wheel = in_each(1, 2_053);
    assert!(fired(&mut wheel, 2_030).is_empty());
    assert_eq!((wheel.stats().moved, wheel.next_deadline()), (0, Some(2_048)));
    assert!(fired(&mut wheel, 2_050).is_empty());
    assert_eq!((wheel.stats().moved, wheel.next_deadline()), (2, Some(2_053)));
    assert_eq!(fired(&mut wheel, 2_053), [0, 1]);
}

#[test]
fn a_later_timer_does_not_hide_an_earlier_one() {
    let mut wheel = Wheel::new(0);
    wheel.add(5_000, 3).unwrap();
    wheel.add(4_100, 2).unwrap();
    wheel.add(4_096, 1).unwrap();
    // The time at which the timers of the slot of 1,024 ticks are moved, before their deadlines.
    assert_eq!(wheel.next_deadline(), Some(3_072));
    assert!(fired(&mut wheel, 4_095).is_empty());
    assert_eq!(wheel.next_deadline(), Some(4_096));
    assert_eq!(fired(&mut wheel, 4_096), [1]);
    assert_eq!(fired(&mut wheel, 4_100), [2]);
    assert_eq!(fired(&mut wheel, 5_000), [3]);
}

#[test]
fn who_sleeps_until_the_next_deadline_misses_nothing() {
    let mut wheel = Wheel::new(77);
    let mut state = 1u64;
    for _ in 0..300 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let deadline = 78 + (state >> 40);
        let schedule = Schedule::at(deadline);
        wheel.add(if state & 32 == 0 { schedule } else { schedule.coarse() }, deadline).unwrap();
    }
    let (mut polls, mut left) = (0, 300);
    while let Some(next) = wheel.next_deadline() {
        assert!(next > wheel.now(), "a poll makes progress");
        let late = fired(&mut wheel, next).into_iter().inspect(|_| left -= 1).map(|deadline| next - deadline);
        assert!(late.max().is_none_or(|late| late <= (1 << 24) * 8 / 63));
        polls += 1;
    }
    assert_eq!(left, 0);
    assert!(polls <= 300 * 11, "{polls} polls");
}

#[test]
fn a_due_timer_that_was_not_popped_can_be_reset_and_cancelled() {
    let mut wheel = Wheel::new(0);
    let keys: Vec<Key> = (0..3).map(|number| wheel.add(10, number).unwrap()).collect();
    wheel.advance(10);
    assert_eq!(wheel.cancel(keys[2]), Some(2), "the timer is ready, and was not popped");
    assert!(wheel.reset(keys[0], 20));
    assert_eq!(wheel.pop().and_then(|popped| popped.value), Some(1));
    assert_eq!(wheel.pop(), None);
    assert_eq!((wheel.cancel(keys[1]), wheel.reset(keys[1], 5)), (None, false));
    assert_eq!(fired(&mut wheel, 19), [0u64; 0]);
    assert_eq!(fired(&mut wheel, 20), [0]);
}

#[test]
fn the_only_ready_timer_is_cancelled() {
    let mut wheel = Wheel::new(0);
    let key = wheel.add(10, 1).unwrap();
    let far = wheel.add(1 << 30, 2).unwrap();
    wheel.advance(10);
    assert_eq!(wheel.cancel(key), Some(1));
    assert_eq!(wheel.pop(), None);
    assert!(wheel.next_deadline().is_some_and(|next| next > 10));
    assert_eq!(wheel.deadline(far), Some(1 << 30));
    assert_eq!(fired(&mut wheel, 1 << 30), [2]);
}

#[test]
fn a_callback_cancels_a_later_timer_of_its_batch() {
    let mut wheel = Wheel::new(0);
    let keys: Vec<Key> = (0..4).map(|number| wheel.add(10, number).unwrap()).collect();
    let mut values = Vec::new();
    let progress = wheel.poll(10, NONE, |wheel, expired| {
        let value = expired.into_value().unwrap();
        values.push(value);
        if value == 0 {
            assert_eq!(wheel.cancel(keys[0]), None, "the timer that is firing");
            assert_eq!(wheel.cancel(keys[1]), Some(1));
            assert!(wheel.reset(keys[2], 30));
        }
    });
    assert_eq!((values, progress), (vec![0, 3], Progress::Done(2)));
    assert_eq!(fired(&mut wheel, 30), [2]);
}

#[test]
fn a_poll_ends_although_its_callback_adds_due_timers() {
    let mut wheel = Wheel::new(0);
    wheel.add(5, 0u64).unwrap();
    for _ in 0..3 {
        let progress = wheel.poll(10, NONE, |wheel, expired| {
            wheel.add(expired.deadline(), 0).unwrap();
        });
        assert_eq!(progress, Progress::More(1));
    }
    assert_eq!(wheel.next_deadline(), Some(10), "the next poll is due at once");
}

#[test]
fn a_timer_in_the_past_fires_in_the_next_poll() {
    let mut wheel = Wheel::new(100);
    wheel.add(100, 1).unwrap();
    wheel.add(0, 2).unwrap();
    wheel.add(Schedule::at(7).coarse(), 3).unwrap();
    assert_eq!(wheel.next_deadline(), Some(100));
    assert_eq!(fired(&mut wheel, 100), [1, 2, 3]);
}

#[test]
fn limits_of_a_poll_leave_the_rest_for_the_next() {
    let mut wheel = Wheel::new(0);
    // All timers are in one slot of level 1. They are moved, and all are due when the slot is reached.
    for number in 0..100u64 {
        wheel.add(64 + number % 10, number).unwrap();
    }
    let mut seen = Vec::new();
    let mut polls = 0;
    loop {
        let progress =
            wheel.poll(80, Limit::expiries(7).moves(5), |_, expired| seen.extend(expired.into_value()));
        assert!(progress.expired() <= 7);
        polls += 1;
        if progress.is_done() {
            break;
        }
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..100) && polls >= 100 / 7, "{polls} polls");
}

#[test]
fn a_timer_whose_slot_is_being_moved_can_be_cancelled_and_reset() {
    let mut wheel = Wheel::new(0);
    let keys: Vec<Key> = (0..10).map(|number| wheel.add(70 + number, number).unwrap()).collect();
    assert_eq!(wheel.poll(66, NONE.moves(0), |_, _| {}), Progress::More(0));
    assert_eq!(wheel.cancel(keys[4]), Some(4));
    assert!(wheel.reset(keys[5], 90));
    assert_eq!(wheel.add(71, 11).map(|key| wheel.deadline(key)), Ok(Some(71)));
    let mut all = fired(&mut wheel, 89);
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3, 6, 7, 8, 9, 11]);
    assert_eq!(fired(&mut wheel, 90), [5]);
}

#[test]
fn a_wheel_at_its_limit_hands_the_value_back_and_goes_on() {
    let mut wheel = Wheel::with_max_len(0, 2);
    let first = wheel.add(10, 1).unwrap();
    wheel.add(20, 2).unwrap();
    assert_eq!(wheel.add(30, 3), Err(Full(3)));
    assert_eq!(wheel.add(Schedule::at(30).coarse(), 4), Err(Full(4)));
    assert_eq!(wheel.add(Schedule::after(30), 5).unwrap_err().into_inner(), 5);
    let text = Full(3).to_string();
    assert!(text.contains("no room") && text.contains("a higher limit"), "{text}");
    assert_eq!(wheel.cancel(first), Some(1));
    wheel.add(30, 3).unwrap();
    assert_eq!(fired(&mut wheel, 30), [2, 3]);
    assert_eq!(wheel.stats().capacity, 2);
    assert!(Wheel::with_max_len(0, 0).add(1, ()).is_err());
}

#[test]
fn a_wheel_that_is_full_doubles() {
    let mut wheel = Wheel::with_capacity(0, 100);
    for (timers, capacity) in [(100, 100), (101, 200), (200, 200), (201, 400), (401, 800)] {
        while wheel.len() < timers {
            wheel.add(10, ()).unwrap();
        }
        assert_eq!(wheel.stats().capacity, capacity, "{timers}");
    }
}

#[test]
fn a_stale_key_does_nothing_to_the_next_timer_in_its_place() {
    let mut wheel = Wheel::with_max_len(0, 1);
    let stale = wheel.add(10, 1).unwrap();
    wheel.cancel(stale);
    let key = wheel.add(10, 2).unwrap();
    assert_ne!(stale, key);
    assert_eq!(wheel.cancel(stale), None);
    assert!(!wheel.reset(stale, 99) && wheel.get(stale).is_none() && wheel.deadline(stale).is_none());
    assert_eq!(fired(&mut wheel, 10), [2]);
    assert_eq!(wheel.cancel(key), None);
}

#[test]
fn a_panic_of_a_callback_leaves_the_wheel_whole() {
    let mut wheel = Wheel::new(0);
    for number in 0..5u64 {
        wheel.add(10, number).unwrap();
    }
    let seen = RefCell::new(Vec::new());
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = wheel.poll(10, NONE, |_, expired| {
            let value = expired.into_value().unwrap();
            seen.borrow_mut().push(value);
            assert_ne!(value, 2, "on purpose");
        });
    }));
    assert!(panic.is_err());
    assert_eq!(wheel.len(), 2);
    assert_eq!(fired(&mut wheel, 10), [3, 4]);
    assert_eq!(seen.into_inner(), [0, 1, 2]);
}

#[test]
fn a_callback_may_poll_and_drain() {
    let mut wheel = Wheel::new(0);
    for number in 0..6u64 {
        wheel.add(10 + number, number).unwrap();
    }
    let mut inner = Vec::new();
    let progress = wheel.poll(10, NONE, |wheel, _| {
        let _ = wheel.poll(12, NONE, |_, expired| inner.extend(expired.into_value()));
        inner.extend(wheel.drain());
    });
    assert_eq!((inner, progress), (vec![1, 2, 3, 4, 5], Progress::Done(1)));
    assert!(wheel.is_empty());
}

#[test]
fn drain_hands_out_everything_and_its_drop_the_rest() {
    let mut wheel = Wheel::new(0);
    let key = wheel.add(1 << 40, 1).unwrap();
    wheel.add(0, 2).unwrap();
    wheel.add(Schedule::at(1 << 20).coarse(), 3).unwrap();
    assert_eq!(wheel.drain().next(), Some(1));
    assert!(wheel.is_empty() && wheel.cancel(key).is_none() && wheel.next_deadline().is_none());
    wheel.add(5, 4).unwrap();
    assert_eq!(fired(&mut wheel, 5), [4]);
}

#[test]
fn a_drain_says_how_many_values_it_has_at_most() {
    let mut wheel = Wheel::new(0);
    for number in 0..3 {
        wheel.add(number, number).unwrap();
    }
    let mut drain = wheel.drain();
    for left in (0..3).rev() {
        assert!(drain.next().is_some());
        assert_eq!(drain.size_hint(), (0, Some(left)));
    }
    assert_eq!(drain.next(), None);
}

#[test]
fn values_are_dropped_with_the_wheel_and_once() {
    let value = std::rc::Rc::new(());
    let mut wheel = Wheel::new(0);
    for deadline in [0, 10, 1 << 50] {
        wheel.add(deadline, value.clone()).unwrap();
    }
    let _ = wheel.poll(1, NONE, |_, _| {});
    assert_eq!(std::rc::Rc::strong_count(&value), 3);
    drop(wheel);
    assert_eq!(std::rc::Rc::strong_count(&value), 1);
}

#[test]
fn a_capacity_beyond_all_memory_is_refused() {
    // The last number is greater than the number of timers that keys can tell apart.
    for capacity in [usize::MAX, usize::MAX - 1_000, usize::MAX / 2, u32::MAX as usize] {
        assert!(std::panic::catch_unwind(|| Wheel::<u64>::with_capacity(0, capacity)).is_err());
        assert!(std::panic::catch_unwind(|| Wheel::<u64>::with_max_len(0, capacity)).is_err());
    }
}

#[test]
fn a_coarse_timer_that_is_near_is_exact() {
    for (begin, delay) in [(60, 15), (0, 62), (4_090, 40)] {
        let mut wheel = Wheel::new(begin);
        wheel.add(Schedule::at(begin + delay).coarse(), 7).unwrap();
        for now in begin + 1..begin + delay {
            assert!(fired(&mut wheel, now).is_empty());
        }
        assert_eq!(fired(&mut wheel, begin + delay), [7]);
        assert!(wheel.stats().moved <= 1);
    }
}

#[test]
fn a_value_that_is_lent_is_popped_without() {
    let mut wheel = Wheel::new(0);
    let every = std::num::NonZeroU64::MAX;
    wheel.add(Schedule::at(1).every(every), 7).unwrap();
    let mut popped = Vec::new();
    let _ = wheel.poll(1, NONE, |wheel, _| {
        wheel.advance(u64::MAX);
        popped.extend(wheel.pop());
    });
    assert_eq!(
        popped.iter().map(|popped| (popped.deadline, popped.value)).collect::<Vec<_>>(),
        [(u64::MAX, None)]
    );
    assert!(wheel.is_empty());
}

/// The jump is that of a clock that went on during a suspension.
#[test]
fn an_hour_s_jump_is_made_up_for_in_polls_as_short_as_their_limit() {
    const HOUR: u64 = 3_600_000_000_000;
    let timers: u64 = if cfg!(miri) { 300 } else { 100_000 };
    let mut wheel = Wheel::with_capacity(0, timers as usize);
    for number in 0..timers {
        // The delays are in all levels up to two hours, so that some timers are not due after the jump.
        let delay = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (2 * HOUR);
        let deadline = 1 + (delay >> (number % 5 * 8));
        wheel.add(deadline, deadline).unwrap();
    }
    let due = wheel.len();
    let (mut expired, mut polls, mut now) = (0, 0, HOUR);
    loop {
        let before = wheel.stats();
        let progress = wheel.poll(now, Limit::expiries(64), |wheel, expired| {
            assert!(expired.into_value().unwrap() <= wheel.now(), "early");
        });
        assert!(progress.expired() <= 64);
        assert!(wheel.stats().moved - before.moved <= 64 * u64::from(before.levels));
        expired += progress.expired();
        polls += 1;
        if progress.is_done() {
            break;
        }
        assert_eq!(wheel.next_deadline(), Some(now), "the next poll is due at once");
        // Time goes on meanwhile.
        now += 1_000;
    }
    assert!(expired > 0 && expired + wheel.len() == due);
    assert!(polls <= 2 + 2 * timers as usize / 64, "{polls} polls");
    let left: Vec<u64> = wheel.drain().collect();
    assert!(left.iter().all(|deadline| *deadline > now), "the timers left are not due");
}

/// A wheel knows only the time of its last poll or advance.
#[test]
fn a_coarse_timer_counts_its_delay_from_the_last_poll() {
    for (is_polled, due) in [(false, 1_015_808), (true, 1_000_104)] {
        let mut wheel = Wheel::new(0);
        if is_polled {
            assert!(fired(&mut wheel, 1_000_000).is_empty());
        }
        wheel.add(Schedule::at(1_000_100).coarse(), 7).unwrap();
        assert_eq!(wheel.next_deadline(), Some(due));
        assert_eq!(fired(&mut wheel, due), [7]);
    }
}
