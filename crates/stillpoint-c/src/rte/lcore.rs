//! The lcores of threads, for programs without DPDK.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering;

use super::block::{ANY, LCORES, TAKEN};
use crate::own;

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
