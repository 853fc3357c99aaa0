//! What a thread's block has for the drop-ins of DPDK. The block imports this file, and the drop-ins import the block.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of lcores: `RTE_MAX_LCORE` of `still_rte.h`.
pub(super) const LCORES: u32 = 128;

/// The number of a thread that has no lcore: `LCORE_ID_ANY`.
pub(super) const ANY: u32 = u32::MAX;

/// A bit for each lcore that a thread has. Relaxed: the bits order nothing.
pub(super) static TAKEN: [AtomicU64; LCORES as usize / 64] =
    [const { AtomicU64::new(0) }; LCORES as usize / 64];

/// The lcore of a thread.
pub(crate) struct Number(pub(super) Cell<u32>);

impl Number {
    pub(crate) const fn new() -> Self {
        Self(Cell::new(ANY))
    }

    /// When the thread ends.
    pub(crate) fn give_up(&self) {
        self.set(ANY);
    }

    /// In a child of `fork`, on its only thread: the other threads' lcores are free.
    pub(crate) fn reset_after_fork(own: Option<&Self>) {
        for (at, word) in TAKEN.iter().enumerate() {
            let lcore = own.map_or(ANY, |own| own.0.get()) as usize;
            word.store(if lcore / 64 == at { 1 << (lcore % 64) } else { 0 }, Ordering::Relaxed);
        }
    }

    pub(super) fn set(&self, lcore: u32) {
        for (lcore, taken) in [(self.0.replace(lcore), false), (lcore, true)] {
            let Some(word) = TAKEN.get(lcore as usize / 64) else { continue };
            let bit = 1 << (lcore % 64);
            match taken {
                true => word.fetch_or(bit, Ordering::Relaxed),
                false => word.fetch_and(!bit, Ordering::Relaxed),
            };
        }
    }
}

/// A call that reclaims the elements of a defer queue.
pub(crate) struct Reclaim {
    /// The queue's address, which is only compared.
    pub(super) queue: *const c_void,
    /// The call in whose free function this one is nested.
    pub(super) outer: *const Reclaim,
}

/// A call that manages a list, and the timer whose function it is calling.
pub(crate) struct Call {
    /// The timer; null once its function has stopped or reset it. The address is only compared, never followed.
    pub(super) timer: Cell<*const c_void>,
    /// The call in whose function this one is nested.
    pub(super) outer: *const Call,
}
