//! `int membarrier(int cmd, unsigned int flags, int cpu_id)`
//!
//! The private expedited command works only after the process has registered for it. Registration belongs to
//! the address space: a child made by `fork` has it; a program started by `exec` does not.

#![cfg(not(any(loom, miri)))]

use std::sync::atomic::{AtomicI32, Ordering};

use rustix::io::Errno;
use rustix::thread::{membarrier, MembarrierCommand};

use super::{Backend, FenceError};

impl From<Errno> for FenceError {
    fn from(errno: Errno) -> Self {
        Self::new(Backend::Membarrier, errno.raw_os_error())
    }
}

/// Registers the process, tries one barrier, and keeps the kernel's answer. Threads that do so at the same time get the same
/// answer. No thread waits for another, so the child of a `fork` during this call does not wait for ever.
pub(super) fn register() -> Result<(), FenceError> {
    /// The answer: `UNKNOWN`, an errno, or 0.
    static ANSWER: AtomicI32 = AtomicI32::new(UNKNOWN);
    const UNKNOWN: i32 = -1;

    // Relaxed, both: only the number matters.
    let known = match ANSWER.load(Ordering::Relaxed) {
        UNKNOWN => {
            // A filter may allow the registration but not the barrier.
            let answer = membarrier(MembarrierCommand::RegisterPrivateExpedited)
                .and_then(|()| membarrier(MembarrierCommand::PrivateExpedited));
            let answer = answer.err().map_or(0, Errno::raw_os_error);
            ANSWER.store(answer, Ordering::Relaxed);
            answer
        }
        known => known,
    };
    match known {
        0 => Ok(()),
        errno => Err(FenceError::new(Backend::Membarrier, errno)),
    }
}

/// A full barrier on every thread of the process.
pub(super) fn private_expedited() -> Result<(), FenceError> {
    register()?;
    Ok(membarrier(MembarrierCommand::PrivateExpedited)?)
}
