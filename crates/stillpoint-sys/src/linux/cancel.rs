//! Cancellation of threads, by programs in C: `pthread_setcancelstate(3)`.

use std::ffi::c_int;

/// While this value lives, the calling thread is not cancelled. A cancellation within libc would unwind through Rust frames.
pub struct Uncancelled {
    before: c_int,
}

extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

impl Uncancelled {
    const DISABLE: c_int = 1;

    /// From now on.
    #[inline]
    #[allow(clippy::new_without_default, reason = "it acts on the thread")]
    pub fn new() -> Self {
        let mut before = 0;
        // SAFETY: the state is valid, and `before` is a place for the previous one.
        unsafe { pthread_setcancelstate(Self::DISABLE, &mut before) };
        Self { before }
    }
}

impl Drop for Uncancelled {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the previous state is valid. Enabling does not act on a pending cancellation, unless it is asynchronous.
        unsafe { pthread_setcancelstate(self.before, std::ptr::null_mut()) };
    }
}
