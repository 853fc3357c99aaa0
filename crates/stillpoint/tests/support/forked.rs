//! The other side of a `fork`.

use std::io;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Forks, runs `body` in the child, and fails if the child fails or hangs.
pub(crate) fn in_fork(body: impl FnOnce()) {
    // SAFETY: the child calls the code under test, which handles forks, and the allocator, which does as well.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", io::Error::last_os_error());
    if child == 0 {
        // SAFETY: no pointers are passed. A child that hangs is ended by the signal.
        unsafe { libc::alarm(60) };
        let failed = catch_unwind(AssertUnwindSafe(body)).is_err();
        // SAFETY: no preconditions. No destructor runs: the values on the stack belong to the parent.
        unsafe { libc::_exit(failed.into()) }
    }
    let mut status = 0;
    // SAFETY: `status` is alive for the call.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child, "{}", io::Error::last_os_error());
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the child failed: {status:#x}");
}
