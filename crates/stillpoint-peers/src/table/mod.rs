//! Other projects' hash tables behind one trait, for the experiment `table`, and as contenders of `reclaim`.

mod collection;
mod map;
mod rust;

#[cfg(peer_dpdk)]
mod dpdk;
#[cfg(not(peer_dpdk))]
#[path = "no_dpdk.rs"]
mod dpdk;

mod reclaim;

#[cfg(peer_dpdk)]
pub(crate) use dpdk::{ThreadNumber, initialise_eal};

pub use collection::Collected;
pub use dpdk::{initialise_dpdk, rte_hash};
pub use map::{Bound, Looped, Map, ReadBy, TableKey, TableValue};
pub use reclaim::{make_reclaiming, reclaiming};
pub use rust::{Dash, Locked, Papaya, Scc};

use std::hint::black_box;

/// Whether this build has DPDK's `rte_hash`.
pub const HAS_DPDK: bool = cfg!(peer_dpdk);

/// Keys per burst of [`TableContender::lookup_bursts`].
pub const BURST: usize = 32;

/// The loop of [`TableContender::mix`]. `look_up` returns a value; `write` returns how many keys were there.
#[inline(always)]
fn mixed<M, K>(
    map: &mut M,
    lookups: &[K],
    pairs: &[(K, u64)],
    look_up: impl Fn(&mut M, &K) -> u64,
    write: impl Fn(&mut M, &(K, u64)) -> u64,
) -> u64 {
    let share = lookups.len() / pairs.len().max(1);
    let mut there = 0;
    for (lookups, pair) in lookups.chunks_exact(share.max(1)).zip(pairs) {
        black_box(lookups.iter().fold(0u64, |sum, key| sum.wrapping_add(look_up(map, key))));
        there += write(map, pair);
    }
    there
}

/// A table under test, with values of 64 bits.
///
/// Each method is a whole loop of a thread, so that the table's functions are inlined into it, as in a user's program. A method returns
/// `None` if the table has no such call, or if the contender only reads another contender's table in a different way.
pub trait TableContender<K>: Send + Sync {
    /// Inserts keys that are not in the table, each with its number as the value. Returns how many were inserted.
    fn insert_all(&self, keys: &[K]) -> usize;

    /// The sum of the values of keys, looked up one after the other.
    fn lookup(&self, keys: &[K]) -> u64;

    /// The same in bursts of [`BURST`] keys. The number of keys is a multiple of that.
    fn lookup_bursts(&self, keys: &[K]) -> Option<u64> {
        let _ = keys;
        None
    }

    /// The same by a call that would insert a key that is not there.
    fn get_or_insert(&self, keys: &[K]) -> Option<u64> {
        let _ = keys;
        None
    }

    /// Replaces the value of each key by an equal one that is made from it. Returns how many keys were there.
    fn update(&self, keys: &[K]) -> Option<u64> {
        let _ = keys;
        None
    }

    /// Removes each key and inserts it again with the same value. Returns how many keys were there.
    fn churn(&self, pairs: &[(K, u64)]) -> Option<u64> {
        let _ = pairs;
        None
    }

    /// As [`churn`](TableContender::churn), with an equal share of the lookups before each key. The values that the lookups find are
    /// ignored, since another thread may have removed a key for a moment.
    fn mix(&self, lookups: &[K], pairs: &[(K, u64)]) -> Option<u64> {
        let _ = (lookups, pairs);
        None
    }

    /// The table's memory in bytes, if the resident set of the process does not include it.
    fn bytes(&self) -> Option<u64> {
        None
    }
}
