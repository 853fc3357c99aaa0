//! Systems other than Linux have no heavy fence: each is refused.

/// The explanation of a refusal.
pub(super) const WHY: &str =
    "heavy fences exist only on Linux: other systems have no membarrier; set a heavy fence of your own, or build the domain in \
                              symmetric mode, the default here";

pub(super) mod membarrier {
    use crate::fence::FenceError;

    pub(in crate::fence) fn register() -> Result<(), FenceError> {
        Err(FenceError::new(libc::ENOSYS))
    }

    pub(in crate::fence) fn confirm() -> Result<(), FenceError> {
        register()
    }

    pub(in crate::fence) fn private_expedited() -> Result<(), FenceError> {
        register()
    }
}
