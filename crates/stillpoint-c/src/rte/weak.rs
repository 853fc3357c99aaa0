//! Functions that a program may have: the place of DPDK's `rte_errno`, and ThreadSanitizer's view of hand-overs.
//!
//! A weak reference cannot be written in stable Rust. So the assembler makes words that hold their addresses, or null.

use std::ffi::{c_int, c_void};

core::arch::global_asm!(
    ".weak still_rte_errno_",
    ".weak __tsan_acquire",
    ".weak __tsan_release",
    ".pushsection .data.rel.ro.still_rte_weak, \"aw\", %progbits",
    ".balign 8",
    ".globl still_rte_weak_errno_",
    ".hidden still_rte_weak_errno_",
    "still_rte_weak_errno_: .8byte still_rte_errno_",
    ".globl still_rte_weak_acquire_",
    ".hidden still_rte_weak_acquire_",
    "still_rte_weak_acquire_: .8byte __tsan_acquire",
    ".globl still_rte_weak_release_",
    ".hidden still_rte_weak_release_",
    "still_rte_weak_release_: .8byte __tsan_release",
    ".popsection",
);

extern "C" {
    static still_rte_weak_errno_: Option<unsafe extern "C" fn() -> *mut c_int>;
    static still_rte_weak_acquire_: Option<unsafe extern "C" fn(*mut c_void)>;
    static still_rte_weak_release_: Option<unsafe extern "C" fn(*mut c_void)>;
}

pub(super) fn set_rte_errno(errno: c_int) {
    // SAFETY: the word is constant, and holds null or the function of still_rte.h, which returns the address of a variable of
    // the calling thread.
    unsafe {
        if let Some(place) = still_rte_weak_errno_ {
            *place() = errno;
        }
    }
}

/// Tells ThreadSanitizer that what was released at this address was acquired.
#[inline]
pub(super) fn acquired<T>(place: *const T) {
    // SAFETY: the word is constant, and holds null or the sanitizer's function, which takes any address.
    unsafe {
        if let Some(acquire) = still_rte_weak_acquire_ {
            acquire(place.cast_mut().cast());
        }
    }
}

/// Tells ThreadSanitizer that what this thread has done is about to be released at this address.
#[inline]
pub(super) fn released<T>(place: *const T) {
    // SAFETY: as in `acquired`.
    unsafe {
        if let Some(release) = still_rte_weak_release_ {
            release(place.cast_mut().cast());
        }
    }
}
