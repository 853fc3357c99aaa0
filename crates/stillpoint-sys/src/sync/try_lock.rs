//! A lock for short work: a thread that finds it taken does something else, or spins.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use super::atomic::{AtomicBool, Ordering};

/// Spins of a waiter before it yields its core: a holder that runs has finished by then.
const SPINS: u32 = 128;

/// A value that one thread at a time may use.
#[derive(Debug, Default)]
pub struct TryLock<T> {
    is_locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder of the lock uses the value, one thread at a time.
unsafe impl<T: Send> Sync for TryLock<T> {}

impl<T> TryLock<T> {
    /// A free lock.
    pub fn new(value: T) -> Self {
        Self { is_locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// The value, unless another thread has it.
    #[inline]
    pub fn try_lock(&self) -> Option<Locked<'_, T>> {
        // Acquire: pairs with the release in the drop of `Locked`. Relaxed on failure: the caller relies on nothing.
        let answer = self.is_locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        // Not `then_some`: a `Locked` that is made and dropped would unlock.
        answer.is_ok().then(|| Locked(self))
    }

    /// The value, once no other thread has it. Only for locks that are held for a few instructions.
    #[inline]
    pub fn lock(&self) -> Locked<'_, T> {
        let mut turns = 0;
        loop {
            if let Some(locked) = self.try_lock() {
                return locked;
            }
            super::spin();
            turns += 1;
            if turns % SPINS == 0 && !cfg!(loom) {
                std::thread::yield_now();
            }
        }
    }

    /// Whether a thread has the value. If not, the caller comes after everything that was done with it.
    #[inline]
    pub fn is_locked(&self) -> bool {
        // Acquire: pairs with the release in the drop of `Locked`.
        self.is_locked.load(Ordering::Acquire)
    }

    /// The value, for a caller with exclusive access to the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// The right to use the value. Unlocks when it is dropped, also by a panic.
#[derive(Debug)]
pub struct Locked<'l, T>(&'l TryLock<T>);

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Locked<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and `self` borrowed exclusively.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Locked<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the acquire in `try_lock`.
        self.0.is_locked.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_has_the_value() {
        let lock = TryLock::new(1);
        let mut locked = lock.try_lock().unwrap();
        *locked += 1;
        assert!(lock.try_lock().is_none() && lock.is_locked());
        drop(locked);
        assert!(!lock.is_locked());
        assert_eq!(*lock.try_lock().unwrap(), 2);
    }

    #[test]
    fn a_panic_unlocks() {
        let lock = TryLock::new(1);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _locked = lock.try_lock();
            panic!("as expected");
        }));
        assert!(panicked.is_err() && lock.try_lock().is_some());
    }
}
