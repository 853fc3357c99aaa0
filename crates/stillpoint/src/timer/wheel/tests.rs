//! What cannot be reached from outside: places whose generations are used up.

use alloc::vec::Vec;

use super::level::{self, Place};
use super::{Key, Limit, Wheel};

#[test]
fn a_place_whose_generations_are_used_up_is_never_used_again() {
    let mut wheel = Wheel::bounded(0, 2);
    let first = wheel.add(10, "first").unwrap();
    let last = wheel.slab.wear_out(first);
    assert_eq!(wheel.cancel(first), None, "the key of another generation");
    assert_eq!(wheel.cancel(last), Some("first"));
    wheel.add(20, "second").unwrap();
    let third = wheel.add(30, "third").unwrap();
    assert_ne!(third.index(), first.index(), "the worn place is not used, but replaced");
    assert_eq!(wheel.add(30, "fourth"), Err(super::Full("fourth")));
    assert_eq!((wheel.cancel(first), wheel.cancel(last)), (None, None));
    assert_eq!(wheel.stats().capacity, 2);
    assert_eq!(wheel.poll(20, Limit::NONE, |_, _| {}).expired(), 1);
}

#[test]
fn a_timer_that_fires_in_the_last_generation_retires_its_place() {
    let mut wheel = Wheel::new(0);
    let key = wheel.add(10, ()).unwrap();
    let last = wheel.slab.wear_out(key);
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
        assert!(generations[..at].iter().all(|other| one.abs_diff(*other) > 1 << 10), "{generations:?}");
        assert!(*one < 1 << 31, "half of the generations are left to each wheel");
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
}

#[test]
fn a_place_is_reached_at_its_start_and_not_before() {
    for now in edges() {
        for deadline in edges().filter(|deadline| *deadline > now) {
            for place in [level::exact, level::coarse] {
                let Place { head, start } = place(now, deadline);
                let (row, slot) = (head / level::SLOTS, head % level::SLOTS);
                assert!(start > now, "{now} {deadline}");
                assert_eq!(level::next_start(row, 1 << slot, now), start, "{now} {deadline} row {row}");
                let reached = level::crossing(row, now, start);
                let entered = reached.entered == Some(slot);
                assert!(entered || reached.due >> slot & 1 == 1, "{now} {deadline}");
                if start - 1 > now {
                    let before = level::crossing(row, now, start - 1);
                    assert!(before.due >> slot & 1 == 0 && before.entered != Some(slot));
                }
                let late = deadline.saturating_sub(now) / 63 * 8 + 8;
                assert!(start <= deadline || (!level::is_exact(row) && start - deadline <= late));
                assert!(start >= deadline || level::is_exact(row), "{now} {deadline}: early");
            }
        }
    }
}
