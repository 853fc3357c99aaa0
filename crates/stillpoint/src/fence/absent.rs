//! On systems other than Linux there is no heavy fence: each is refused.

/// What its refusal means.
pub(super) const WHY: &str =
    "heavy fences are there on Linux only: other systems have no membarrier; build the domain with \
                              fence::Mode::Symmetric, which Mode::best() is here";

pub(super) mod membarrier {
    use crate::fence::{Backend, FenceError};

    pub(in crate::fence) fn register() -> Result<(), FenceError> {
        Err(FenceError::new(Backend::Membarrier, libc::ENOSYS))
    }

    pub(in crate::fence) fn private_expedited() -> Result<(), FenceError> {
        register()
    }
}

pub(super) mod module {
    use crate::fence::{Backend, FenceError};

    pub(in crate::fence) fn open() -> Result<(), FenceError> {
        Err(FenceError::new(Backend::Module, libc::ENOSYS))
    }

    pub(in crate::fence) fn barrier() -> Result<(), FenceError> {
        open()
    }
}
