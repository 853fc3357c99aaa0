//! `long syscall(SYS_futex, uint32_t *uaddr, int op, uint32_t val, ...)`, process-private.

#[cfg(not(any(stillpoint_loom, miri)))]
use std::ptr;
#[cfg(not(stillpoint_loom))]
use std::time::Duration;

use crate::sync::atomic::AtomicU32;

/// Sleeps until woken, for at most `limit`. Does not sleep if `word` no longer holds `seen`. May return
/// early without a wake-up.
#[cfg(not(any(stillpoint_loom, miri)))]
pub fn wait(word: &AtomicU32, seen: u32, limit: Option<Duration>) {
    let limit = limit.map(|limit| libc::timespec {
        // The most that every system can express: 68 years.
        tv_sec: limit.as_secs().try_into().unwrap_or(i32::MAX.into()),
        tv_nsec: limit.subsec_nanos() as _,
    });
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // Every error (the value has changed, a signal, the limit) means that the caller must look again.
    // SAFETY: the kernel only reads: the word, and the limit, which is null or a local variable.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), wait, seen, limit) };
}

/// Wakes every thread that sleeps on `word`.
pub fn wake_all(word: &AtomicU32) {
    wake(word, i32::MAX as u32);
}

/// Wakes at most `most` threads that sleep on `word`. Among threads of the same priority, those that have slept longest are woken
/// first.
#[cfg(not(any(stillpoint_loom, miri)))]
pub fn wake(word: &AtomicU32, most: u32) {
    // It fails only for a bad address.
    // SAFETY: the kernel only uses the address of the word.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, most)
    };
}

/// Miri has no such system call: the waiter lets others run and looks again.
#[cfg(miri)]
pub fn wait(_word: &AtomicU32, _seen: u32, _limit: Option<Duration>) {
    std::thread::yield_now();
}

/// In Miri, no thread is asleep.
#[cfg(miri)]
pub fn wake(_word: &AtomicU32, _most: u32) {}

/// A sleep without a limit that no thread ends is a deadlock, which loom reports.
#[cfg(stillpoint_loom)]
pub use crate::portable::{wait, wake};
