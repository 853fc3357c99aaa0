//! A function that a program may define, which returns the address of DPDK's `rte_errno`.
//!
//! Stable Rust has no weak references, so the assembler makes a word that holds the function's address, or null.

use std::ffi::c_int;

core::arch::global_asm!(
    ".weak still_rte_errno_",
    ".pushsection .data.rel.ro.still_rte_weak, \"aw\", %progbits",
    ".balign 8",
    ".globl still_rte_weak_errno_",
    ".hidden still_rte_weak_errno_",
    "still_rte_weak_errno_: .8byte still_rte_errno_",
    ".popsection",
);

extern "C" {
    static still_rte_weak_errno_: Option<unsafe extern "C" fn() -> *mut c_int>;
}

pub(super) fn set_rte_errno(errno: c_int) {
    // SAFETY: the word is constant, and holds null or the address of the function in still_rte.h, which returns the address of a variable of
    // the calling thread.
    unsafe {
        if let Some(place) = still_rte_weak_errno_ {
            *place() = errno;
        }
    }
}
