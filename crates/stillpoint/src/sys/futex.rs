//! `long syscall(SYS_futex, uint32_t *uaddr, int op, uint32_t val, ...)`, process-private.

use std::time::Duration;

use crate::sync::atomic::AtomicU32;

/// Sleeps until woken, but not if `word` no longer holds `seen`, and not longer than `limit`. May return
/// early for no reason.
#[cfg(not(any(loom, miri)))]
pub(crate) fn wait(word: &AtomicU32, seen: u32, limit: Option<Duration>) {
    use rustix::thread::futex;
    let limit = limit.map(|limit| futex::Timespec {
        tv_sec: limit.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    // Every error (the value has changed, a signal, the limit) means: look again.
    let _ = futex::wait(word, futex::Flags::PRIVATE, seen, limit.as_ref());
}

/// Wakes every thread that sleeps on `word`.
#[cfg(not(any(loom, miri)))]
pub(crate) fn wake_all(word: &AtomicU32) {
    use rustix::thread::futex;
    // It fails for a bad address only.
    let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
}

/// A model has no futex: the waiter lets others run and looks again.
#[cfg(any(loom, miri))]
pub(crate) fn wait(_word: &AtomicU32, _seen: u32, _limit: Option<Duration>) {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(miri)]
    std::thread::yield_now();
}

#[cfg(any(loom, miri))]
pub(crate) fn wake_all(_word: &AtomicU32) {}
