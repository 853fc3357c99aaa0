//! Heavy fences that fail, or take long, for the unit tests of their callers. Each thread has its own settings.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::FenceError;

thread_local! {
    static REFUSES: Cell<bool> = const { Cell::new(false) };
    static TAKES: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static FENCES: Cell<usize> = const { Cell::new(0) };
}

/// Whether the heavy fences of this thread are refused, with `EPERM`.
pub(crate) fn refuse(refuses: bool) {
    REFUSES.set(refuses);
}

/// How long each heavy fence of this thread takes at least.
pub(crate) fn slow_down(takes: Duration) {
    TAKES.set(takes);
}

/// The number of heavy fences that this thread has asked for.
pub(crate) fn fences() -> usize {
    FENCES.get()
}

/// Each heavy fence of the thread comes here first.
pub(super) fn meet() -> Result<(), FenceError> {
    FENCES.set(FENCES.get() + 1);
    let begun = Instant::now();
    while begun.elapsed() < TAKES.get() {
        std::hint::spin_loop();
    }
    match REFUSES.get() {
        true => Err(FenceError::new(libc::EPERM)),
        false => Ok(()),
    }
}
