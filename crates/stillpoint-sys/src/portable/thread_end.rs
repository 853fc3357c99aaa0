//! `int pthread_key_create(pthread_key_t *, void (*)(void *))`, `int pthread_setspecific(pthread_key_t, const void *)`; elsewhere
//! the destructor of a thread-local.
//!
//! <https://man7.org/linux/man-pages/man3/pthread_key_create.3p.html>

use std::ffi::c_void;

#[cfg(all(unix, not(stillpoint_portable)))]
use keys::Key;
#[cfg(any(not(unix), stillpoint_portable))]
use locals::Key;

/// A function that is called at the ends of threads, after the destructors of thread-locals, both of Rust and of C++.
///
/// It may ask to be called again. Then it is called in the next round, after the functions of other keys in this round. There are
/// at least four rounds. It is not called for a main thread that returns from `main`, or when the process exits.
///
/// Without POSIX threads, as on Windows, it is weaker: the function is called among the destructors of thread-locals.
/// Thread-locals that the thread used before its first call of [`call_with`](ThreadEnd::call_with) are destroyed after all
/// rounds, since the standard library destroys the last one first. The function may be called for a main thread.
#[derive(Debug)]
pub struct ThreadEnd {
    key: Key,
    function: unsafe extern "C" fn(*mut c_void),
}

impl ThreadEnd {
    /// For the end of each thread that calls [`call_with`](ThreadEnd::call_with).
    pub const fn new(function: unsafe extern "C" fn(*mut c_void)) -> Self {
        Self { key: Key::new(), function }
    }

    /// Takes the key that [`call_with`](ThreadEnd::call_with) needs, before others have taken all keys. Returns false if there
    /// is none.
    #[cfg(all(unix, not(stillpoint_portable)))]
    pub fn reserve(&self) -> bool {
        self.key.get(self.function).is_some()
    }

    /// The value with which the function is to be called at the end of the calling thread; null if it is not to be called.
    pub fn value(&self) -> *mut c_void {
        self.key.value(self.function)
    }

    /// Arranges that the function is called with `value`, which is not null, at the end of the calling thread. Returns false if that
    /// is impossible. A process has 1,024 keys. Without POSIX threads no keys are needed, and there are five rounds.
    ///
    /// # Safety
    /// The function may be called with `value` whenever the thread ends.
    pub unsafe fn call_with(&self, value: *mut c_void) -> bool {
        // SAFETY: the function may be called with `value`, by the caller's promise.
        unsafe { self.key.call_with(self.function, value) }
    }
}

#[cfg(all(unix, not(stillpoint_portable)))]
mod keys {
    use std::ffi::c_void;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// The key plus 1; 0 before the first use. It has no lock, which a child of a `fork` during the first use would find held.
    #[derive(Debug)]
    pub(super) struct Key(AtomicU64);

    impl Key {
        pub(super) const fn new() -> Self {
            Self(AtomicU64::new(0))
        }

        /// `None` if there are no more keys.
        pub(super) fn get(&self, function: unsafe extern "C" fn(*mut c_void)) -> Option<libc::pthread_key_t> {
            // Acquire, here and below: pairs with the release of the exchange. A thread that has the number must find the key made, too: another
            // thread made it.
            if let Some(key) = self.0.load(Ordering::Acquire).checked_sub(1) {
                return Some(key as libc::pthread_key_t);
            }
            let mut key = 0;
            // SAFETY: `key` is written.
            if unsafe { libc::pthread_key_create(&mut key, Some(function)) } != 0 {
                return None;
            }
            match self.0.compare_exchange(0, key as u64 + 1, Ordering::Release, Ordering::Acquire) {
                Ok(_) => Some(key),
                Err(first) => {
                    // SAFETY: nothing was stored under it.
                    unsafe { libc::pthread_key_delete(key) };
                    Some((first - 1) as libc::pthread_key_t)
                }
            }
        }

        pub(super) fn value(&self, _: unsafe extern "C" fn(*mut c_void)) -> *mut c_void {
            // Acquire: as in `get`.
            match self.0.load(Ordering::Acquire).checked_sub(1) {
                // SAFETY: the key was made, and is never deleted.
                Some(key) => unsafe { libc::pthread_getspecific(key as libc::pthread_key_t) },
                None => std::ptr::null_mut(),
            }
        }

        /// # Safety
        /// The function, which is always the same, may be called with `value` whenever the thread ends.
        pub(super) unsafe fn call_with(
            &self,
            function: unsafe extern "C" fn(*mut c_void),
            value: *mut c_void,
        ) -> bool {
            // SAFETY: the key was made, and is never deleted. The value is only passed to the function.
            self.get(function).is_some_and(|key| unsafe { libc::pthread_setspecific(key, value) } == 0)
        }
    }
}

#[cfg(any(not(unix), stillpoint_portable))]
mod locals {
    use std::cell::{Cell, RefCell};
    use std::ffi::c_void;
    use std::thread::LocalKey;

    type Call = (unsafe extern "C" fn(*mut c_void), *mut c_void);

    /// The functions to call at the end of the thread.
    struct Calls(RefCell<Vec<Call>>);

    impl Drop for Calls {
        fn drop(&mut self) {
            for (function, value) in self.0.take() {
                // SAFETY: the caller of `call_with` has promised that the function may be called.
                unsafe { function(value) };
            }
        }
    }

    macro_rules! rounds {
        ($($round:ident),*) => {
            std::thread_local! {
                $(static $round: Calls = const { Calls(RefCell::new(Vec::new())) };)*
            }
            const ROUNDS: &[&LocalKey<Calls>] = &[$(&$round),*];
        };
    }

    // A call that is requested in one round comes in the next.
    rounds!(FIRST, SECOND, THIRD, FOURTH, FIFTH);

    std::thread_local! {
        /// How many of them were used. A look at one that was not would arrange its end, which would come before the end of those
        /// that were used before.
        static USED: Cell<usize> = const { Cell::new(0) };
    }

    #[derive(Debug)]
    pub(super) struct Key;

    impl Key {
        pub(super) const fn new() -> Self {
            Self
        }

        pub(super) fn value(&self, function: unsafe extern "C" fn(*mut c_void)) -> *mut c_void {
            let value = |calls: &Calls| {
                let calls = calls.0.borrow();
                let call = calls.iter().find(|(of, _)| std::ptr::fn_addr_eq(*of, function));
                call.map(|(_, value)| *value)
            };
            let found = ROUNDS[..USED.get()].iter().find_map(|round| round.try_with(value).ok().flatten());
            found.unwrap_or(std::ptr::null_mut())
        }

        /// # Safety
        /// The function may be called with `value` whenever the thread ends.
        pub(super) unsafe fn call_with(
            &self,
            function: unsafe extern "C" fn(*mut c_void),
            value: *mut c_void,
        ) -> bool {
            let put = |calls: &Calls| {
                let mut calls = calls.0.borrow_mut();
                match calls.iter_mut().find(|(of, _)| std::ptr::fn_addr_eq(*of, function)) {
                    Some((_, old)) => *old = value,
                    None => calls.push((function, value)),
                }
            };
            let Some(round) = ROUNDS.iter().position(|round| round.try_with(put).is_ok()) else {
                return false;
            };
            USED.set(USED.get().max(round + 1));
            true
        }
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::sync::atomic::{AtomicU32, Ordering};

    static CALLS: AtomicU32 = AtomicU32::new(0);
    static END: ThreadEnd = ThreadEnd::new(count);

    unsafe extern "C" fn count(value: *mut c_void) {
        // It is not called before the destructor of the thread-local.
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
            assert!(END.value().is_null() && unsafe { END.call_with(std::ptr::without_provenance_mut(2)) });
            assert_eq!(END.value().addr(), 2);
            // SAFETY: as above. The value takes the place of the first.
            assert!(unsafe { END.call_with(std::ptr::without_provenance_mut(2)) });
            LOCAL.replace(Some(Local));
        });
        thread.join().unwrap();
        assert_eq!(CALLS.load(Ordering::Relaxed), 3);
    }
}
