//! The edge to Linux.

mod cancel;
mod errno;
mod futex;
pub mod page_map;
#[cfg(not(stillpoint_loom))]
pub mod pages;
pub mod region;
#[cfg(feature = "sched")]
pub mod sched;
/// The messages of unit tests that cannot show anything on this machine.
#[cfg(all(test, feature = "sched", not(any(stillpoint_loom, miri))))]
#[path = "../../../stillpoint/tests/support/skip.rs"]
mod skip;
mod thread;

pub use cancel::Uncancelled;
pub use errno::Errno;
pub use futex::{wait, wake, wake_all};
pub use thread::{look_at_thread, thread_handle, thread_id, time, yield_cpu};

/// What to make of a call to libc, just after it: whether it has succeeded, or the error number that it has left in `errno`.
pub fn outcome(has_succeeded: bool) -> Result<(), i32> {
    if has_succeeded {
        return Ok(());
    }
    Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL))
}
