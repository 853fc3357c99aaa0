//! The shared store of whole buckets: a stack that gives and takes several buckets at once.
//!
//! After R. K. Treiber, "Systems Programming: Coping with Parallelism", IBM RJ 5118, 1986. A number beside the head
//! changes with every exchange, so that an exchange fails if the head was removed and came back meanwhile (ABA).

use crossbeam_utils::CachePadded;

use super::row::{Row, NONE};
use crate::pool::busted::{is, Variant};
use crate::pool::orders;
use stillpoint_sys::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// An element of a store: it has room for the index of the next one.
pub(crate) trait Linked {
    fn below(&self) -> &AtomicU32;
}

/// Buckets without an owner, or magazines.
#[derive(Debug)]
pub(crate) struct Store {
    /// The top bucket in the lower half, the number of exchanges in the upper half.
    head: CachePadded<AtomicU64>,
}

/// Buckets that are linked through `below`, from the first to the last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chain {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) len: u32,
}

impl Linked for Row {
    #[inline(always)]
    fn below(&self) -> &AtomicU32 {
        &self.below
    }
}

impl Store {
    pub(crate) fn new() -> Self {
        Self { head: CachePadded::new(AtomicU64::new(u64::from(NONE))) }
    }

    /// Gives a chain of buckets that only the caller has.
    pub(crate) fn give(&self, rows: &[impl Linked], chain: Chain) {
        // Relaxed: the exchange below confirms it.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // Relaxed: published by the exchange.
            rows[chain.last as usize].below().store(head as u32, Ordering::Relaxed);
            let new = next(head, chain.first);
            match self.head.compare_exchange_weak(head, new, orders::give(), Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes up to `most` buckets.
    pub(crate) fn take(&self, rows: &[impl Linked], most: u32) -> Option<Chain> {
        let mut head = self.head.load(orders::take());
        loop {
            let first = head as u32;
            if first == NONE {
                return None;
            }
            let (mut last, mut len) = (first, 1);
            // Relaxed: if another thread changes this link meanwhile, the exchange fails. Any value read is a bucket or
            // `NONE`.
            let below = |bucket: u32| rows[bucket as usize].below().load(Ordering::Relaxed);
            let mut rest = below(first);
            while len < most && rest != NONE {
                (last, len) = (rest, len + 1);
                rest = below(last);
            }
            let take = orders::take();
            match self.head.compare_exchange_weak(head, next(head, rest), take, take) {
                Ok(_) => return Some(Chain { first, last, len }),
                Err(now) => head = now,
            }
        }
    }

    /// Its elements, from the top. Exact when no other thread uses the store.
    pub(crate) fn elements<'s>(&self, rows: &'s [impl Linked]) -> impl Iterator<Item = u32> + 's {
        let some = |index: u32| (index != NONE).then_some(index);
        // Relaxed: published with the top.
        let below = move |&index: &u32| some(rows.get(index as usize)?.below().load(Ordering::Relaxed));
        // Acquire: pairs with the release in `give`.
        std::iter::successors(some(self.head.load(Ordering::Acquire) as u32), below)
    }
}

fn next(head: u64, first: u32) -> u64 {
    let number = if is(Variant::Untagged) { 0 } else { (head >> 32).wrapping_add(1) << 32 };
    number | u64::from(first)
}
