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
