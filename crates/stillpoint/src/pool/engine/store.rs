//! The shared store of whole buckets: a stack, from which several are taken, and to which several are given, at once.
//!
//! After R. K. Treiber, "Systems Programming: Coping with Parallelism", IBM RJ 5118, 1986; a number beside the head that
//! changes with every exchange tells a head from one that has come back meanwhile.

use crossbeam_utils::CachePadded;

use super::row::NONE;
use crate::pool::busted::{is, Variant};
use crate::pool::orders;
use stillpoint_sys::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What is kept in a store: it holds the index of the next one.
pub(crate) trait Linked {
    fn below(&self) -> &AtomicU32;
}

/// Buckets that belong to nobody, or magazines.
#[derive(Debug)]
pub(crate) struct Store {
    /// The uppermost bucket in the lower half, the number of the exchange in the upper one.
    head: CachePadded<AtomicU64>,
}

/// Buckets that are linked through `below`, from the first to the last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chain {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) len: u32,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self { head: CachePadded::new(AtomicU64::new(u64::from(NONE))) }
    }

    /// Gives a chain of buckets that are the caller's alone.
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
            // Relaxed: what others change here meanwhile makes the exchange fail; it is some bucket, or none.
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

    /// The uppermost bucket, for a walk that is exact when nobody else uses the store.
    pub(crate) fn first(&self) -> u32 {
        // Acquire: pairs with the release in `give`.
        self.head.load(Ordering::Acquire) as u32
    }
}

fn next(head: u64, first: u32) -> u64 {
    let number = if is(Variant::Untagged) { 0 } else { (head >> 32).wrapping_add(1) << 32 };
    number | u64::from(first)
}
