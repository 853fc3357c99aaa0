//! The error number of the calling thread, `errno(3)`.

/// When dropped, restores the number, for calls in a signal handler: the interrupted code may not have read the number yet.
#[derive(Debug)]
#[must_use = "the number is restored when this is dropped"]
pub struct Errno(i32);

impl Errno {
    /// The number as it is now.
    #[allow(clippy::new_without_default, reason = "it looks at the thread")]
    pub fn new() -> Self {
        // SAFETY: the address belongs to the calling thread, and is valid.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: the address belongs to the calling thread, and is valid.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_meanwhile_is_not_seen_afterwards() {
        let read = || std::io::Error::last_os_error().raw_os_error();
        // SAFETY: the address belongs to the calling thread, and is valid.
        unsafe { *libc::__errno_location() = libc::EAGAIN };
        let kept = Errno::new();
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = libc::EPERM };
        assert_eq!(read(), Some(libc::EPERM));
        drop(kept);
        assert_eq!(read(), Some(libc::EAGAIN));
    }
}
