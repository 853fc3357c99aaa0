//! Bitsets, compared with a sorted set.

use std::collections::BTreeSet;

use proptest::prelude::*;
use stillpoint::timer::Bitset;

fn set_of(bits: usize, numbers: &BTreeSet<usize>) -> Bitset {
    let mut set = Bitset::new(bits);
    numbers.iter().filter(|number| **number < bits).for_each(|&number| set.set(number));
    set
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 10 } else { 1_000 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_bitset_finds_what_a_sorted_set_finds(
        bits in 1..300usize,
        numbers in prop::collection::btree_set(0..300usize, 0..60),
        from in 0..320usize,
    ) {
        let numbers: BTreeSet<usize> = numbers.into_iter().filter(|number| *number < bits).collect();
        let set = set_of(bits, &numbers);
        let clear = |number: &usize| !numbers.contains(number);
        prop_assert!(set.iter().eq(numbers.iter().copied()));
        prop_assert_eq!(set.count(), numbers.len());
        prop_assert_eq!(set.is_empty(), numbers.is_empty());
        prop_assert_eq!(set.next_set(from), numbers.range(from..).next().copied());
        prop_assert_eq!(set.next_clear(from), (from..bits).find(clear));
        let around = numbers.range(from..).chain(numbers.range(..from)).next().copied();
        prop_assert_eq!(set.next_set_around(from), around);
        prop_assert_eq!(set.next_clear_around(from), (from..bits).find(clear).or_else(|| (0..bits).find(clear)));
    }
}

#[test]
fn single_bits() {
    let mut set = Bitset::new(65);
    set.set(64);
    assert!(set.test(64) && !set.test(0));
    set.set(0);
    set.set(1);
    set.clear(64);
    set.clear(0);
    assert_eq!(format!("{set:?}"), "{1}");
}

#[test]
fn the_last_bit_is_found_whatever_the_size() {
    for bits in 1..200 {
        let mut set = Bitset::new(bits);
        set.set(bits - 1);
        assert_eq!((set.next_set(0), set.next_set(bits)), (Some(bits - 1), None));
    }
}

#[test]
fn the_empty_bitset() {
    let set = Bitset::new(0);
    assert!(set.is_empty());
    assert_eq!((set.next_set(0), set.next_clear_around(9), set.count()), (None, None, 0));
    assert_eq!(set.size(), 0);
}

#[test]
fn a_bit_beyond_the_size_is_an_error_of_the_program() {
    for attempt in [
        (|| _ = Bitset::new(64).test(64)) as fn(),
        || Bitset::new(64).set(64),
        || Bitset::new(0).clear(0),
        // In the last word, but beyond the size.
        || Bitset::new(10).set(10),
    ] {
        assert!(std::panic::catch_unwind(attempt).is_err());
    }
}
