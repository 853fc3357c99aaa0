//! `int pthread_key_create(pthread_key_t *, void (*)(void *))`, `int pthread_setspecific(pthread_key_t, const void *)`.
//!
//! <https://man7.org/linux/man-pages/man3/pthread_key_create.3p.html>

use std::ffi::c_void;
use std::sync::OnceLock;

/// A function that is called at the ends of threads, after the destructors of thread-locals, which those of Rust and of C++ are.
///
/// It may ask to be called again: then it comes in the next of (at least four) rounds, after the functions of other keys. It is
/// not called for a main thread that returns from `main`, nor for a process that exits.
#[derive(Debug)]
pub struct ThreadEnd {
    /// `None` where there are no more keys.
    key: OnceLock<Option<libc::pthread_key_t>>,
    function: unsafe extern "C" fn(*mut c_void),
}

impl ThreadEnd {
    /// Of each thread for which [`call_with`](ThreadEnd::call_with) is called.
    pub const fn new(function: unsafe extern "C" fn(*mut c_void)) -> Self {
        Self { key: OnceLock::new(), function }
    }

    /// Has the function called with `value`, which is not null, at the end of the calling thread. False when that is
    /// not possible: there are 1,024 keys for a process.
    ///
    /// # Safety
    /// The function may be called with `value` at any end of the thread.
    pub unsafe fn call_with(&self, value: *mut c_void) -> bool {
        let key = self.key.get_or_init(|| {
            let mut key = 0;
            // SAFETY: `key` is written.
            let answer = unsafe { libc::pthread_key_create(&mut key, Some(self.function)) };
            (answer == 0).then_some(key)
        });
        // SAFETY: the key was made, and is never deleted; the value is handed to the function and used for nothing else.
        key.is_some_and(|key| unsafe { libc::pthread_setspecific(key, value) } == 0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::sync::atomic::{AtomicU32, Ordering};

    static CALLS: AtomicU32 = AtomicU32::new(0);
    static END: ThreadEnd = ThreadEnd::new(count);

    unsafe extern "C" fn count(value: *mut c_void) {
        // Not before the thread-local.
        assert!(CALLS.load(Ordering::Relaxed) > 0);
        CALLS.fetch_add(1, Ordering::Relaxed);
        if value.addr() > 1 {
            // SAFETY: the function takes any number.
            assert!(unsafe { END.call_with(value.wrapping_byte_sub(1)) });
        }
    }

    #[test]
    fn the_end_comes_after_thread_locals_and_again_if_it_is_asked_for() {
        struct Local;

        impl Drop for Local {
            fn drop(&mut self) {
                assert_eq!(CALLS.swap(1, Ordering::Relaxed), 0);
            }
        }

        thread_local! {
            static LOCAL: RefCell<Option<Local>> = const { RefCell::new(None) };
        }
        let thread = std::thread::spawn(|| {
            // SAFETY: the function takes any number.
            assert!(unsafe { END.call_with(std::ptr::without_provenance_mut(2)) });
            LOCAL.replace(Some(Local));
        });
        thread.join().unwrap();
        assert_eq!(CALLS.load(Ordering::Relaxed), 3);
    }
}
