//! Hash tables of others behind one trait, for the experiment `table`.

mod rust;

#[cfg(peer_dpdk)]
mod dpdk;
#[cfg(not(peer_dpdk))]
#[path = "no_dpdk.rs"]
mod dpdk;

#[cfg(peer_dpdk)]
mod reclaim;

#[cfg(peer_dpdk)]
pub(crate) use dpdk::ThreadNumber;

#[cfg(not(peer_dpdk))]
pub use dpdk::{RECLAIMING, rte_hash_reclaiming};
pub use dpdk::{initialise_dpdk, rte_hash};
#[cfg(peer_dpdk)]
pub use reclaim::{RECLAIMING, rte_hash_reclaiming};
pub use rust::{Dash, Papaya, PapayaGuard, Scc};

use std::hash::Hash;
use std::hint::black_box;

/// Whether this build has DPDK's `rte_hash`.
pub const HAS_DPDK: bool = cfg!(peer_dpdk);

/// Keys per burst of [`TableContender::lookup_bursts`].
pub const BURST: usize = 32;

/// A key of the experiment: some bytes without padding, made from a number.
pub trait TableKey: Copy + Eq + Hash + Send + Sync + 'static {
    /// The key of a number; different ones for different numbers.
    fn of(number: u64) -> Self;
}

impl TableKey for u64 {
    fn of(number: u64) -> Self {
        // Odd multiplication and shifts lose nothing: keys stay different.
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    }
}

/// 16 bytes, such as the addresses and ports of a flow.
impl TableKey for [u64; 2] {
    fn of(number: u64) -> Self {
        [u64::of(number), !number]
    }
}

/// The loop of [`TableContender::mix`]: `look_up` gives a value, `write` how many keys were there.
#[inline(always)]
pub fn mixed<K>(
    lookups: &[K],
    pairs: &[(K, u64)],
    mut look_up: impl FnMut(&K) -> u64,
    mut write: impl FnMut(&(K, u64)) -> u64,
) -> u64 {
    let share = lookups.len() / pairs.len().max(1);
    let mut there = 0;
    for (lookups, pair) in lookups.chunks_exact(share.max(1)).zip(pairs) {
        black_box(lookups.iter().fold(0u64, |sum, key| sum.wrapping_add(look_up(key))));
        there += write(pair);
    }
    there
}

/// A table under test, with values of 64 bits.
///
/// The loops are the contender's own, so that they are compiled into one, as its users would have them.
pub trait TableContender<K: TableKey>: Send + Sync {
    /// The stable name, such as `dpdk/rte_hash`.
    fn name(&self) -> &'static str;

    /// Handicaps and circumstances to print beside the figures.
    fn note(&self) -> &'static str {
        ""
    }

    /// Inserts a key that is not in the table. False when there is no room.
    fn insert(&self, key: K, value: u64) -> bool;

    /// Removes each key and inserts it again with the same value; returns how many were there.
    fn churn(&self, keys: &[(K, u64)]) -> u64;

    /// As [`churn`](TableContender::churn), with an equal share of the lookups before each key. Their values count for
    /// nothing, since another thread may have removed a key for the moment.
    fn mix(&self, lookups: &[K], pairs: &[(K, u64)]) -> u64;

    /// The sum of the values of keys, looked up one after the other.
    fn lookup(&self, keys: &[K]) -> u64;

    /// The same in bursts of [`BURST`], for tables that have such a call; the number of keys is a multiple.
    fn lookup_bursts(&self, keys: &[K]) -> Option<u64> {
        let _ = keys;
        None
    }

    /// Whether it is worth while to measure the writing side again: false for another way to read the same table.
    fn has_own_writers(&self) -> bool {
        true
    }

    /// Memory in bytes, where the resident set of the process does not tell.
    fn bytes(&self) -> Option<u64> {
        None
    }
}
