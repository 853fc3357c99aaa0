//! The lcores of threads, for programs without DPDK.

use std::cell::Cell;
use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of lcores: `RTE_MAX_LCORE` of `still_rte.h`.
const LCORES: u32 = 128;
/// The number of a thread that has no lcore: `LCORE_ID_ANY`.
pub(super) const ANY: u32 = u32::MAX;

/// A bit for each lcore that a thread has. Relaxed: the bits order nothing.
static TAKEN: [AtomicU64; LCORES as usize / 64] = [const { AtomicU64::new(0) }; LCORES as usize / 64];

struct Number(Cell<u32>);

impl Number {
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

impl Drop for Number {
    fn drop(&mut self) {
        self.set(ANY);
    }
}

thread_local! {
    static NUMBER: Number = const { Number(Cell::new(ANY)) };
}

#[no_mangle]
pub extern "C" fn still_rte_lcore_id() -> c_uint {
    NUMBER.try_with(|number| number.0.get()).unwrap_or(ANY)
}

#[no_mangle]
pub extern "C" fn still_rte_lcore_set(lcore: c_uint) -> c_int {
    if lcore >= LCORES && lcore != ANY {
        return -libc::EINVAL;
    }
    NUMBER.try_with(|number| number.set(lcore)).map_or(-libc::EINVAL, |()| 0)
}

#[no_mangle]
pub extern "C" fn still_rte_lcore_next(lcore: c_uint) -> c_uint {
    let is_taken = |lcore: &u32| TAKEN[*lcore as usize / 64].load(Ordering::Relaxed) >> (lcore % 64) & 1 == 1;
    let start = lcore.wrapping_add(1);
    (start..LCORES).chain(0..start.min(LCORES)).find(is_taken).unwrap_or(ANY)
}
