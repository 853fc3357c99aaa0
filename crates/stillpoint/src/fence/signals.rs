//! Fences by signals, and the registration of the threads that they reach.

#![cfg(not(any(loom, miri)))]

use super::{Backend, FenceError};
use crate::multicast::signals::{self, SignalError, SignalMember};
use crate::multicast::Late;

impl From<SignalError> for FenceError {
    fn from(error: SignalError) -> Self {
        let errno = match error {
            SignalError::Taken { .. } => libc::EBUSY,
            SignalError::Blocked { .. } => libc::EDEADLK,
            SignalError::Ending => libc::ESRCH,
            SignalError::Refused { errno, .. } => errno,
            SignalError::Started { .. } | SignalError::Unsuitable { .. } => libc::EINVAL,
        };
        Self::new(Backend::Signals, errno)
    }
}

impl From<Late> for FenceError {
    fn from(late: Late) -> Self {
        Self::new(Backend::Signals, late.raw_os_error())
    }
}

/// Whether signals can be used.
pub(super) fn probe() -> Result<(), FenceError> {
    Ok(signals::probe()?)
}

/// A full barrier on every registered thread.
pub(super) fn barrier() -> Result<(), FenceError> {
    signals::multicast()?.fence()?;
    Ok(())
}

/// Whether fences have ceased to reach the calling thread, although it was registered.
#[inline(always)]
pub(super) fn has_left() -> bool {
    signals::has_left()
}

/// Registers the calling thread.
pub(super) fn join() -> Result<SignalMember, FenceError> {
    Ok(signals::join()?)
}
