//! `pid_t gettid(void)`, `pthread_t pthread_self(void)`, `/proc/self/task/TID/comm`

/// The kernel's id of the calling thread. A system call.
pub(crate) fn thread_id() -> u32 {
    #[cfg(not(any(loom, miri)))]
    return rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    #[cfg(any(loom, miri))]
    return 1;
}

/// A number that tells living threads apart, costs no system call, and survives `fork`.
pub(crate) fn thread_handle() -> usize {
    #[cfg(loom)]
    return {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        loom::thread::current().id().hash(&mut hasher);
        hasher.finish() as usize
    };
    #[cfg(not(loom))]
    // SAFETY: no preconditions.
    return unsafe { libc::pthread_self() } as usize;
}

/// `int sched_yield(void)`
pub(crate) fn yield_cpu() {
    #[cfg(not(any(loom, miri)))]
    rustix::thread::sched_yield();
}

/// The name of a thread of this process, if it is still alive.
pub(crate) fn thread_name(tid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/self/task/{tid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}
