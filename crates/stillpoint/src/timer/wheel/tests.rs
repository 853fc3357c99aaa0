//! Tests of private state: generations, memory, the arithmetic of levels, and the work of each call.

use alloc::vec::Vec;

use super::level::{self, Place};
use super::{Key, Limit, Wheel};
use stillpoint_sys::bits::bits;

#[test]
fn a_place_whose_generations_are_used_up_is_never_used_again() {
    let mut wheel = Wheel::with_max_len(0, 2);
    let first = wheel.add(10, "first").unwrap();
    let last = wheel.core.store.wear_out(first);
    assert_eq!(wheel.cancel(first), None, "a stale key cancels nothing");
    assert_eq!(wheel.cancel(last), Some("first"));
    wheel.add(20, "second").unwrap();
    let third = wheel.add(30, "third").unwrap();
    assert_ne!(third.index(), first.index(), "the worn-out place is replaced");
    assert_eq!(wheel.add(30, "fourth"), Err(super::Full("fourth")));
    assert_eq!((wheel.cancel(first), wheel.cancel(last)), (None, None));
    assert_eq!(wheel.stats().capacity, 2);
    assert_eq!(wheel.poll(20, Limit::NONE, |_, _| {}).expired(), 1);
}

#[test]
fn a_timer_that_fires_in_the_last_generation_retires_its_place() {
    let mut wheel = Wheel::new(0);
    let key = wheel.add(10, ()).unwrap();
    let last = wheel.core.store.wear_out(key);
    assert_eq!(wheel.poll(10, Limit::NONE, |_, _| {}).expired(), 1);
    assert!(!wheel.reset(last, 20));
    let next: Vec<Key> = (0..200).map(|_| wheel.add(20, ()).unwrap()).collect();
    assert!(next.iter().all(|other| other.index() != key.index()));
}

#[test]
fn wheels_begin_with_generations_far_apart() {
    let generations: Vec<u32> =
        (0..8).map(|_| Wheel::new(0).add(1, ()).map(Key::generation).unwrap()).collect();
    for (at, one) in generations.iter().enumerate() {
        assert!(
            generations[..at].iter().all(|other| one.abs_diff(*other) > 1 << 10),
            "first generations are too close: {generations:?}"
        );
        assert!((1..1 << 31).contains(one), "each wheel has half of the generations left, and 0 is not used");
    }
}

/// Powers of two, of eight and of 64, their neighbours, and the ends.
fn edges() -> impl Iterator<Item = u64> + Clone {
    (0..64)
        .flat_map(|bit| {
            let power = 1u64 << bit;
            [power - 1, power, power.saturating_add(1), power.saturating_mul(63), !power]
        })
        .chain([u64::MAX])
        .step_by(if cfg!(miri) { 37 } else { 1 })
}

/// Slots of one tick and coarse slots are reached at the deadline or later. Timers of other slots are moved before it.
#[test]
fn a_place_is_reached_when_it_begins_and_not_before() {
    for now in edges() {
        for deadline in edges().filter(|deadline| *deadline > now) {
            for place in [level::exact, level::coarse] {
                let Place { head, due } = place(now, deadline);
                let (row, slot) = (head / level::SLOTS, head % level::SLOTS);
                let is_moved = level::is_moved(row);
                let further = (1..=64)
                    .find(|further| level::head(row, level::index(row, now).wrapping_add(*further)) == head);
                let index = level::index(row, now) + further.expect("one of the next 64");
                let start = level::start(row, index);
                assert!(start > now && due >= now, "at {now}, for {deadline}");
                // The slot is neither the present one nor the next one, whose timers are being moved.
                assert!(!is_moved || level::index(row, now) + 2 <= index, "at {now}, for {deadline}");
                let next = level::next_due(row, 1 << slot, |list| list == head, now);
                assert!(due <= next && next - due <= u64::from(row == 0), "{now} {deadline} row {row}");
                assert!(!is_moved || next == level::start(row, index - 1));
                assert_eq!(level::next_due(row, 1 << slot, |_| false, now), start, "it is alone in its slot");
                let at = index - level::index(row, now) - 1;
                assert_eq!(level::reached(row, 1 << slot, now, start), 1 << at, "at {now}, for {deadline}");
                assert_eq!(level::reached(row, 1 << slot, now, start - 1), 0, "at {now}, for {deadline}");
                assert_eq!(
                    level::reached(row, 1 << slot, now, u64::MAX),
                    1 << at,
                    "at {now}, for {deadline}"
                );
                let is_coarse = level::coarse_rows(1 << row) != 0;
                let late = deadline.saturating_sub(now) / 63 * 8 + 8;
                assert!(if is_coarse {
                    start >= deadline && start - deadline <= late
                } else {
                    start <= deadline
                });
                assert!(is_moved || start >= deadline, "{now} {deadline}: early");
                assert!(!is_moved || level::index(row, deadline) == index, "at {now}, for {deadline}");
            }
        }
    }
}

#[test]
fn a_slot_before_which_timers_are_moved_has_something_to_do_at_once() {
    for row in bits(level::MOVED) {
        let width = level::start(row, 1);
        let (now, slot) = (2 * width + 1, |index: u64| 1 << (index % 64));
        assert_eq!(level::next_due(row, slot(3), |_| true, now), 0);
        assert_eq!(level::next_due(row, slot(3) | slot(9), |_| true, now), 0);
        assert_eq!(level::next_due(row, slot(4), |_| true, now), 3 * width);
        let single = |list| list != level::head(row, 3);
        assert_eq!(level::next_due(row, slot(3) | slot(4), single, now), 3 * width);
    }
}

#[test]
fn a_wheel_that_is_shrunk_keeps_nothing() {
    let mut wheel = Wheel::new(0);
    let keys: Vec<Key> = (0..1_000).map(|number| wheel.add(10, number).unwrap()).collect();
    assert!(wheel.core.store.memory().iter().all(|places| *places >= 1_000));
    let _ = wheel.poll(10, Limit::NONE, |_, _| {});
    wheel.shrink();
    assert_eq!(wheel.core.store.memory(), [0, 0, 0]);
    // The same places are used again, with other keys.
    let again: Vec<Key> = (0..1_000).map(|number| wheel.add(20, number).unwrap()).collect();
    for (old, new) in keys.iter().zip(&again) {
        assert_eq!(old.index(), new.index());
        assert_eq!((wheel.cancel(*old), wheel.deadline(*new)), (None, Some(20)));
    }
}

#[test]
fn what_is_in_use_is_kept_by_a_shrink_and_what_is_free_is_used_again() {
    let mut wheel = Wheel::new(0);
    let keys: Vec<Key> = (0..1_000).map(|number| wheel.add(10 + number, number).unwrap()).collect();
    for key in keys.iter().filter(|key| ![keys[10], keys[300]].contains(key)) {
        assert!(wheel.cancel(*key).is_some());
    }
    wheel.shrink();
    assert_eq!((wheel.stats().capacity, wheel.core.store.memory()), (301, [301; 3]));
    assert_eq!((wheel.get(keys[10]), wheel.get(keys[300])), (Some(&10), Some(&300)));
    let again: Vec<Key> = (0..299).map(|number| wheel.add(9, number).unwrap()).collect();
    assert_eq!(wheel.stats().capacity, 301, "the free places are used first");
    assert!(again[0].index() == keys[0].index() && again.iter().all(|key| !keys.contains(key)));
    assert_eq!(wheel.poll(310, Limit::NONE, |_, _| {}).expired(), 301);
}

#[test]
fn a_place_with_many_generations_is_kept_by_a_shrink() {
    for (generation, kept) in [(0xBFFF_FFFF, 0), (0xC000_0000, 64), (u32::MAX, 64)] {
        let mut wheel = Wheel::new(0);
        let keys: Vec<Key> = (0..64).map(|_| wheel.add(10, ()).unwrap()).collect();
        let last = wheel.core.store.use_up(keys[63], generation);
        keys[..63].iter().for_each(|key| assert!(wheel.cancel(*key).is_some()));
        // A free place has the generation of its next key.
        assert!(wheel.cancel(last).is_some());
        wheel.shrink();
        let worn = usize::from(generation == u32::MAX);
        assert_eq!(wheel.stats().capacity, kept - worn, "{generation:x}");
        for _ in 0..64 {
            let key = wheel.add(20, ()).unwrap();
            assert!(!keys.contains(&key) && key != last);
        }
    }
}

#[test]
fn places_that_come_again_have_later_generations() {
    let mut wheel = Wheel::new(0);
    let key = wheel.add(10, ()).unwrap();
    let used = wheel.core.store.use_up(key, 0xA000_0000);
    assert!(wheel.cancel(used).is_some());
    wheel.shrink();
    for _ in 0..100 {
        assert!(wheel.add(10, ()).is_ok_and(|key| key.generation() == 0xA000_0001));
    }
}

/// Counts work as accesses to links and timers.
mod work {
    use super::super::lists::touched;
    use super::super::{Limit, Node, NodeWheel, Schedule, Wheel};
    use alloc::boxed::Box;
    use alloc::vec::Vec;
    use core::ptr::NonNull;

    fn of<R>(work: impl FnOnce() -> R) -> (u64, R) {
        let before = touched();
        let result = work();
        (touched() - before, result)
    }

    /// A wheel with timers in all levels, and room for more.
    fn wheel(timers: u64) -> Wheel<u64> {
        let mut wheel = Wheel::with_capacity(0, timers as usize + 10);
        for number in 0..timers {
            let delay = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (number % 60);
            let schedule = Schedule::at(delay.max(1_000_000));
            let schedule = if number % 7 == 0 { schedule.coarse() } else { schedule };
            wheel.add(schedule, number).unwrap();
        }
        wheel
    }

    #[test]
    fn single_operations_touch_a_fixed_number_of_places() {
        for timers in [0, 1, 100, if cfg!(miri) { 300 } else { 100_000 }] {
            let mut wheel = wheel(timers);
            for delay in [0, 1, 63, 64, 1 << 20, 1 << 50] {
                let (work, key) = of(|| wheel.add(delay, 7).unwrap());
                assert!(work <= 6, "add: {work}");
                let (work, _) = of(|| wheel.reset(key, delay + 3));
                assert!(work <= 9, "reset: {work}");
                let (work, _) = of(|| (wheel.deadline(key), wheel.stats(), wheel.now()));
                assert!(work <= 2, "look: {work}");
                let (work, next) = of(|| wheel.next_deadline());
                assert!(
                    work <= 12 && next.is_some(),
                    "next_deadline: {work}, the head of a slot in each level"
                );
                let (work, value) = of(|| wheel.cancel(key));
                assert!(work <= 7 && value == Some(7), "cancel: {work}");
            }
        }
    }

    #[test]
    fn a_poll_with_a_limit_touches_as_many_places_as_it_says() {
        for n in [1usize, 8, 64] {
            let mut wheel = wheel(if cfg!(miri) { 300 } else { 100_000 });
            let mut now = 0;
            for jump in [5_000_000u64, 1 << 30, 1 << 45, 1 << 45, 0, 0, 1 << 60] {
                now += jump;
                let levels = u64::from(wheel.stats().levels);
                let (work, _) = of(|| wheel.poll(now, Limit::expiries(n), |_, _| {}));
                // Each move and each expiry makes at most twelve accesses, a timer of the list `SIFTED` twice that; each
                // splice makes six.
                let bound = n as u64 * (levels + 1) * 24 + 2_112 * 6;
                assert!(work <= bound, "{work} of {bound} in a poll of {n} after {jump}");
            }
        }
    }

    #[test]
    fn an_advance_and_a_pop_touch_as_many_places_as_they_say() {
        let mut wheel = wheel(if cfg!(miri) { 300 } else { 100_000 });
        for now in [5_000_000u64, 1 << 30, 1 << 45, 1 << 60] {
            let levels = u64::from(wheel.stats().levels);
            let (work, ()) = of(|| wheel.advance(now));
            assert!(work <= 64 * levels * 24 + 2_112 * 6, "advance: {work}");
            for _ in 0..1_000 {
                let levels = u64::from(wheel.stats().levels);
                let (work, _) = of(|| wheel.pop());
                assert!(work <= 64 * levels * 24 + 24, "pop: {work}");
            }
        }
    }

    /// A wheel with `count` nodes, and the nodes.
    fn nodes(count: u64) -> (NodeWheel, Vec<NonNull<Node>>) {
        let mut wheel = NodeWheel::new(0);
        let node = |number: u64| {
            let node = NonNull::from(Box::leak(Box::new(Node::new())));
            let delay = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (number % 60);
            // SAFETY: the node is leaked until `free`, and only the wheel uses it.
            unsafe { wheel.add(node, Schedule::at(delay.max(1_000_000))) };
            node
        };
        let all = (0..count).map(node).collect();
        (wheel, all)
    }

    fn free(wheel: NodeWheel, nodes: Vec<NonNull<Node>>) {
        drop(wheel);
        // SAFETY: the node was leaked in `nodes`, and the wheel is gone.
        nodes.into_iter().for_each(|node| drop(unsafe { Box::from_raw(node.as_ptr()) }));
    }

    #[test]
    fn operations_on_nodes_touch_a_fixed_number_of_places() {
        for count in [0, 1, 100, if cfg!(miri) { 300 } else { 100_000 }] {
            let (mut wheel, mut all) = nodes(count);
            let node = NonNull::from(Box::leak(Box::new(Node::new())));
            all.push(node);
            for delay in [0, 1, 63, 64, 1 << 20, 1 << 50] {
                // SAFETY: the node is valid until `free`, and in this wheel or in none.
                let (work, ()) = of(|| unsafe { wheel.add(node, Schedule::at(delay)) });
                assert!(work <= 6, "add: {work}");
                // SAFETY: the node is valid until `free`, and in this wheel or in none.
                let (work, was_in) = of(|| unsafe { wheel.reset(node, delay + 3) });
                assert!(work <= 9 && was_in, "reset: {work}");
                let (work, next) = of(|| (wheel.next_deadline(), wheel.stats(), wheel.len()));
                assert!(work <= 12 && next.0.is_some(), "look at the head of a slot in each level: {work}");
                // SAFETY: the node is valid until `free`, and in this wheel or in none.
                let (work, was_in) = of(|| unsafe { wheel.cancel(node) });
                assert!(work <= 5 && was_in, "cancel: {work}");
                // SAFETY: the node is valid until `free`, and in this wheel or in none.
                let (work, was_in) = of(|| unsafe { wheel.cancel(node) });
                assert!(work == 0 && !was_in, "cancel again: {work}");
            }
            let (work, any) = of(|| wheel.take_any());
            assert!(work <= 6 && any.is_some() == (count > 0), "take_any: {work}");
            free(wheel, all);
        }
    }

    #[test]
    fn an_advance_over_nodes_and_a_pop_touch_as_many_places_as_they_say() {
        let (mut wheel, all) = nodes(if cfg!(miri) { 300 } else { 100_000 });
        for now in [5_000_000u64, 1 << 30, 1 << 45, 1 << 60] {
            let levels = u64::from(wheel.stats().levels);
            let (work, ()) = of(|| wheel.advance(now));
            assert!(work <= 64 * levels * 24 + 2_112 * 6, "advance: {work}");
            for _ in 0..1_000 {
                let levels = u64::from(wheel.stats().levels);
                let (work, _) = of(|| wheel.pop());
                assert!(work <= 64 * levels * 24 + 24, "pop: {work}");
            }
        }
        free(wheel, all);
    }

    /// Timers in later slots are not read, nor slots that begin after the earliest deadline found so far.
    #[test]
    fn the_earliest_deadline_looks_at_the_first_slots() {
        let mut wheel = Wheel::new(0);
        // Level 1 has slots of 32 ticks: 10 timers in the first one, 1,000 in later ones; 1,000 in one of level 3.
        (0..10).for_each(|more| assert!(wheel.add(100 + more, 0).is_ok()));
        (0..1_000).for_each(|more| assert!(wheel.add(200 + more, 0).is_ok()));
        (0..1_000).for_each(|more| assert!(wheel.add((5 << 15) + more, 0).is_ok()));
        let (work, earliest) = of(|| wheel.earliest_deadline());
        assert_eq!(earliest, Some(100));
        assert!(work <= 10 * 3 + 4, "{work} accesses");
        // If all are in one slot, all are read.
        let mut wheel = Wheel::new(0);
        (0..1_000).for_each(|more| assert!(wheel.add((5 << 15) + more, 0).is_ok()));
        let (work, earliest) = of(|| wheel.earliest_deadline());
        assert!(
            earliest == Some(5 << 15) && (1_000..=3_010).contains(&work),
            "{work} accesses; {earliest:?}"
        );
    }

    #[test]
    fn a_poll_with_nothing_due_touches_nothing() {
        let mut wheel = wheel(1_000);
        let next = wheel.next_deadline().unwrap();
        let _ = wheel.poll(0, Limit::NONE, |_, _| {});
        for now in [1, next / 2, next - 1] {
            let (work, progress) = of(|| wheel.poll(now, Limit::NONE, |_, _| {}));
            assert!(work == 0 && progress.is_done(), "{work} at {now} of {next}");
        }
    }

    #[test]
    fn a_poll_after_the_last_pop_or_a_set_time_touches_nothing() {
        let mut wheel = Wheel::new(0);
        wheel.add(10, 1).unwrap();
        wheel.add(1 << 40, 2).unwrap();
        wheel.advance(20);
        assert!(wheel.pop().is_some() && wheel.pop().is_none());
        let poll = |wheel: &mut Wheel<u64>, now| of(|| wheel.poll(now, Limit::NONE, |_, _| {})).0;
        assert_eq!(poll(&mut wheel, 30), 0);
        let key = wheel.add(50, 3).unwrap();
        assert_eq!(wheel.cancel(key), Some(3));
        wheel.set_time(40);
        assert_eq!(poll(&mut wheel, 60), 0);
    }
}
