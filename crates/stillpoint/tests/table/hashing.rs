//! The default hasher of tables spreads keys over buckets with every seed.

use std::any::TypeId;
use std::hash::BuildHasher;

use foldhash::quality::{RandomState, SeedableRandomState};
use foldhash::SharedSeed;

const SEEDS: u64 = if cfg!(miri) { 2 } else { 300 };
const KEYS: u64 = if cfg!(miri) { 4_096 } else { 20_000 };
const BUCKETS: usize = 4_096;
/// Entries of a bucket before an overflow bucket is appended to it.
const ROOM: usize = 8;

/// With random hashes, 20,000 keys need about 250 overflow buckets.
#[test]
fn keys_in_steps_are_spread_by_every_seed() {
    assert_eq!(TypeId::of::<stillpoint::table::RandomState>(), TypeId::of::<RandomState>());
    for seed in 0..SEEDS {
        let shared: &SharedSeed = Box::leak(Box::new(SharedSeed::from_u64(seed)));
        let hasher = SeedableRandomState::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), shared);
        for step in [1, 8, 64, 4_096, 65_536, 1 << 32] {
            let mut lengths = vec![0; BUCKETS];
            (0..KEYS).for_each(|key| lengths[hasher.hash_one(key * step) as usize % BUCKETS] += 1);
            let further: usize = lengths.iter().map(|&length: &usize| length.saturating_sub(1) / ROOM).sum();
            let longest = lengths.iter().max().unwrap();
            assert!(further < 400 && *longest < 30, "seed {seed}, steps of {step}: {further}, {longest}");
        }
    }
}

/// Tables with weak hashers have chains as short as with random hashes: 20,000 keys in 8,192 buckets or fewer.
mod weak {
    use std::hash::{BuildHasherDefault, Hasher};

    use stillpoint::rcu::Domain;
    use stillpoint::table::Table;

    use super::KEYS;
    use crate::identity::Identity;

    /// The product by an odd number whose upper bits are good and whose lower bits are those of the key: what `fxhash`
    /// does with one word.
    #[derive(Default)]
    struct Product(u64);

    impl Hasher for Product {
        fn finish(&self) -> u64 {
            self.0
        }
        fn write(&mut self, _: &[u8]) {
            unreachable!("keys are numbers")
        }
        fn write_u64(&mut self, number: u64) {
            self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
    }

    /// The buckets of the longest chain, and the number of overflow buckets.
    fn chains<H: Hasher + Default>(keys: impl Iterator<Item = u64>, is_mixed: bool) -> (usize, usize) {
        let builder = Table::builder_in(&Domain::new()).hasher(BuildHasherDefault::<H>::default());
        let table = if is_mixed { builder } else { builder.unmixed() }.build().unwrap();
        keys.for_each(|key| drop(table.insert(key, ()).unwrap()));
        while table.stats().growing {
            table.reserve(0).unwrap();
        }
        let stats = table.stats();
        (stats.longest_chain, stats.overflow_buckets)
    }

    /// Identifiers of one machine, a few in each millisecond: time in the upper bits, and a counter in the lower 12.
    fn snowflakes() -> impl Iterator<Item = u64> {
        (0..KEYS).map(|number| ((1_700_000_000_000 + number / 2) << 22) | (77 << 12) | (number % 2))
    }

    #[test]
    fn keys_of_weak_hashers_are_spread() {
        for step in [1, 8, 64, 4_096, 65_536, 1 << 32, 1 << 48] {
            let (longest, more) =
                chains::<Identity>((0..KEYS.min(u64::MAX / step)).map(|key| key * step), true);
            assert!(longest <= 3 && more < 400, "steps of {step}: {longest}, {more}");
        }
        let (longest, more) = chains::<Product>(snowflakes(), true);
        assert!(longest <= 3 && more < 400, "snowflakes: {longest}, {more}");
        let (longest, more) = chains::<Identity>(snowflakes(), true);
        assert!(longest <= 3 && more < 400, "snowflakes as they are: {longest}, {more}");
    }

    /// Without mixing, these keys share few chains, and the statistics show it.
    #[cfg(not(miri))]
    #[test]
    fn a_table_that_was_told_so_takes_hashes_as_they_are() {
        let keys = || (0..2_000).map(|key| key * 4_096);
        assert_eq!(chains::<Identity>(keys(), false).0, 2_000_usize.div_ceil(8));
        assert!(chains::<Identity>(keys(), true).0 <= 3);
    }
}
