//! `int membarrier(int cmd, unsigned int flags, int cpu_id)`
//!
//! The private expedited command works only after the process has registered for it. Registration belongs to
//! the address space: a child made by `fork` has it, a program started by `exec` has not.

#![cfg(not(any(loom, miri)))]

use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::thread::{membarrier, MembarrierCommand};

use super::{Backend, FenceError};

impl From<Errno> for FenceError {
    fn from(errno: Errno) -> Self {
        Self::new(Backend::Membarrier, errno.raw_os_error())
    }
}

/// Registers the process and tries one barrier, once; remembers the kernel's answer.
pub(super) fn register() -> Result<(), FenceError> {
    static ANSWER: OnceLock<Result<(), FenceError>> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        membarrier(MembarrierCommand::RegisterPrivateExpedited)?;
        // A filter may let the registration through and not the barrier.
        membarrier(MembarrierCommand::PrivateExpedited)?;
        Ok(())
    })
}

/// A full barrier on every thread of the process.
pub(super) fn private_expedited() -> Result<(), FenceError> {
    register()?;
    Ok(membarrier(MembarrierCommand::PrivateExpedited)?)
}
