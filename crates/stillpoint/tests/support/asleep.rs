//! Waits for threads to sleep.

/// Waits until a thread of this process sleeps.
pub(crate) fn wait_until_asleep(thread: libc::pid_t) {
    let sleeps = || {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        stat.rsplit(')').next().unwrap().trim_start().starts_with('S')
    };
    while !sleeps() {
        std::thread::yield_now();
    }
}

/// The calling thread's id, for [`wait_until_asleep`].
pub(crate) fn own() -> libc::pid_t {
    // SAFETY: `gettid` has no preconditions.
    unsafe { libc::gettid() }
}
