//! A heavy fence of the program, in place of membarrier.

use std::fmt;

#[cfg(not(stillpoint_loom))]
use stillpoint_sys::sync::Lasting;

/// What fences in place of membarrier; returns an error number.
#[cfg(not(stillpoint_loom))]
type Heavy = fn() -> Result<(), i32>;

/// `None` if something has used membarrier first, or has asked for it.
#[cfg(not(stillpoint_loom))]
static SET: Lasting<Option<Heavy>> = Lasting::new();

/// The function that was [set](set_heavy). From then on, none can be set.
#[cfg(not(stillpoint_loom))]
pub(super) fn own_heavy() -> Option<Heavy> {
    *SET.get_or_make(|| None)
}

/// Whether a function was set, without an effect.
pub(super) fn is_own() -> bool {
    #[cfg(not(stillpoint_loom))]
    return matches!(SET.get(), Some(Some(_)));
    #[cfg(stillpoint_loom)]
    false
}

/// Lets [`heavy`](super::heavy), and so all asymmetric domains of the process, fence by this function in place of membarrier. Call it
/// once, before anything fences or asks for the fence: as the first thing in `main`.
///
/// For means that this library does not have, such as a kernel module that sends the interrupts along a tree
/// (`docs/guide/multicast.md`). The function returns an error number, as in `errno.h`, not 0, if it has not fenced.
///
/// # Errors
/// If a function was set before, or if something in the process has already fenced, or asked whether it can (`asymmetric_supported`,
/// `Mode::best`, a domain), even if membarrier was refused then.
///
/// # Safety
/// Each call of the function that returns `Ok` is a sequentially consistent fence of the calling thread, and lets every other thread of
/// the process execute a full memory barrier at some point in its instruction stream, after the start of the call and before its return.
/// A thread that is not running may have passed such a barrier when it was taken off its processor. The function does not unwind, and
/// may be called from any thread, also in the child of a `fork`.
///
/// This example does what the library does without it.
///
/// ```
/// use stillpoint::fence;
///
/// fn membarrier() -> Result<(), i32> {
///     const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
///     std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
///     // SAFETY: no pointers are passed.
///     match unsafe { libc::syscall(libc::SYS_membarrier, PRIVATE_EXPEDITED, 0, 0) } {
///         0 => Ok(()),
///         _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
///     }
/// }
///
/// // SAFETY: no pointers are passed.
/// unsafe { libc::syscall(libc::SYS_membarrier, 1 << 4, 0, 0) }; // registers the process
/// // SAFETY: the system call interrupts every processor that runs a thread of the process.
/// unsafe { fence::set_heavy(membarrier) }?;
/// assert!(unsafe { fence::set_heavy(membarrier) }.is_err()); // once
/// # Ok::<(), fence::SetHeavyError>(())
/// ```
pub unsafe fn set_heavy(function: fn() -> Result<(), i32>) -> Result<(), SetHeavyError> {
    #[cfg(not(stillpoint_loom))]
    return SET.set(Some(function)).map(drop).map_err(|_| SetHeavyError(()));
    #[cfg(stillpoint_loom)]
    {
        let _ = function;
        Err(SetHeavyError(()))
    }
}

/// Heavy fences are in use already, by membarrier or by another function: see [`set_heavy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetHeavyError(());

impl fmt::Display for SetHeavyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("heavy fences are in use already; set the function once, before the first domain is made")
    }
}

impl std::error::Error for SetHeavyError {}
