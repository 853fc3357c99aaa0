//! The lcores of threads, for programs without DPDK.

use std::cell::Cell;
use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::own;

/// The number of lcores: `RTE_MAX_LCORE` of `still_rte.h`.
const LCORES: u32 = 128;
/// The number of a thread that has no lcore: `LCORE_ID_ANY`.
pub(super) const ANY: u32 = u32::MAX;

/// A bit for each lcore that a thread has. Relaxed: the bits order nothing.
static TAKEN: [AtomicU64; LCORES as usize / 64] = [const { AtomicU64::new(0) }; LCORES as usize / 64];

/// The lcore of a thread.
pub(crate) struct Number(Cell<u32>);

impl Number {
    pub(crate) const fn new() -> Self {
        Self(Cell::new(ANY))
    }

    /// When the thread ends.
    pub(crate) fn give_up(&self) {
        self.set(ANY);
    }

    fn set(&self, lcore: u32) {
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

#[no_mangle]
pub extern "C" fn still_rte_lcore_id() -> c_uint {
    own::find().map_or(ANY, |own| own.lcore.0.get())
}

#[no_mangle]
pub extern "C" fn still_rte_lcore_set(lcore: c_uint) -> c_int {
    if lcore >= LCORES && lcore != ANY {
        return -libc::EINVAL;
    }
    own::try_own().map_or(-libc::ENOMEM, |own| {
        own.lcore.set(lcore);
        0
    })
}

#[no_mangle]
pub extern "C" fn still_rte_lcore_next(lcore: c_uint) -> c_uint {
    let is_taken = |lcore: &u32| TAKEN[*lcore as usize / 64].load(Ordering::Relaxed) >> (lcore % 64) & 1 == 1;
    let start = lcore.wrapping_add(1);
    (start..LCORES).chain(0..start.min(LCORES)).find(is_taken).unwrap_or(ANY)
}
