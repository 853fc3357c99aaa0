//! A lock for short work: a thread that finds it taken does something else, or spins.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::atomic::{AtomicBool, Ordering};
use super::{Patience, UnsafeCell};
use crate::busted::unless;
use busted::Variant;

/// In builds with `--cfg stillpoint_busted`, `STILLPOINT_BUSTED=lock:NAME` chooses one.
mod busted {
    crate::variants! {
        for models, "lock";
        LockRelaxed = "lock-relaxed": "The lock is taken by a relaxed operation.",
        UnlockRelaxed = "unlock-relaxed": "The lock is given back by a relaxed store.",
        FreeUnseen = "free-unseen": "A thread that finds the lock free, by a relaxed load, does not see what its last holder did.",
    }
}

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
        let order = unless(busted::is(Variant::LockRelaxed), Ordering::Acquire);
        let answer = self.is_locked.compare_exchange(false, true, order, Ordering::Relaxed);
        // Not `then_some`: a `Locked` that is made and dropped would unlock.
        answer.is_ok().then(|| Locked { lock: self, value: PhantomData })
    }

    /// The value, once no other thread has it. Only for locks that are held for short work.
    #[inline]
    pub fn lock(&self) -> Locked<'_, T> {
        let mut patience = Patience::default();
        loop {
            if let Some(locked) = self.try_lock() {
                return locked;
            }
            patience.turn();
        }
    }

    /// Whether a thread has the value. If not, the caller comes after everything that was done with it.
    #[inline]
    pub fn is_locked(&self) -> bool {
        // Acquire: pairs with the release in the drop of `Locked`.
        self.is_locked.load(unless(busted::is(Variant::FreeUnseen), Ordering::Acquire))
    }

    /// In the child of a `fork`: takes the value from a thread of the parent, if one had it. The value is as that thread left it.
    ///
    /// # Safety
    /// There is no other thread, and the calling thread does not have the value.
    pub unsafe fn unlock_after_fork(&self) {
        // Relaxed: there is no other thread.
        self.is_locked.store(false, Ordering::Relaxed);
    }

    /// The value, for a caller with exclusive access to the lock.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: `self` is borrowed exclusively.
        self.value.with_mut(|value| unsafe { &mut *value })
    }
}

/// The right to use the value. Unlocks when it is dropped, also by a panic.
#[derive(Debug)]
pub struct Locked<'l, T> {
    lock: &'l TryLock<T>,
    /// Suppresses the automatic `Send` and `Sync`, which would ask only for `T: Send`.
    value: PhantomData<*mut T>,
}

// SAFETY: a shared `Locked` gives shared access to the value.
unsafe impl<T: Sync> Sync for Locked<'_, T> {}

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held, and `self` borrowed.
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for Locked<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and `self` borrowed exclusively.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for Locked<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the acquire in `try_lock`.
        self.lock.is_locked.store(false, unless(busted::is(Variant::UnlockRelaxed), Ordering::Release));
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
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

    /// A holder without a real-time priority gets the core of a waiter that has one only while the waiter sleeps.
    #[cfg(all(target_os = "linux", not(any(miri, stillpoint_portable))))]
    #[test]
    fn a_waiter_sleeps_in_the_end() {
        let lock = TryLock::new(());
        let locked = lock.try_lock().unwrap();
        let (told, id) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                told.send(crate::linux::thread_id()).unwrap();
                drop(lock.lock());
            });
            let stat = format!("/proc/self/task/{}/stat", id.recv().unwrap());
            // Until then, it runs or is ready to.
            while !std::fs::read_to_string(&stat).unwrap().contains(") S ") {
                std::thread::yield_now();
            }
            drop(locked);
        });
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

#[cfg(all(test, stillpoint_loom))]
mod models {
    use super::*;
    use crate::sync::Arc;
    use loom::thread;

    #[test]
    fn one_at_a_time_has_the_value() {
        loom::model(|| {
            let lock = Arc::new(TryLock::new(0));
            let other = Arc::clone(&lock);
            let other = thread::spawn(move || *other.lock() += 1);
            *lock.lock() += 1;
            other.join().unwrap();
            assert_eq!(*lock.lock(), 2);
        });
        crate::busted::assert_reached();
    }

    #[test]
    fn whoever_finds_it_free_comes_after_the_last_holder() {
        loom::model(|| {
            let shared = Arc::new((TryLock::new(()), AtomicBool::new(false), UnsafeCell::new(0)));
            let other = Arc::clone(&shared);
            let holder = thread::spawn(move || {
                let (lock, is_taken, value) = &*other;
                let _locked = lock.lock();
                is_taken.store(true, Ordering::Release);
                // SAFETY: the lock is held.
                value.with_mut(|value| unsafe { *value += 1 });
            });
            let (lock, is_taken, value) = &*shared;
            if is_taken.load(Ordering::Acquire) && !lock.is_locked() {
                // SAFETY: the holder has given the lock back.
                value.with_mut(|value| unsafe { *value += 1 });
            }
            holder.join().unwrap();
        });
        crate::busted::assert_reached();
    }

    #[cfg(stillpoint_busted)]
    #[test]
    fn every_variant_is_caught_by_its_model() {
        let model = |variant| match variant {
            Variant::FreeUnseen => "whoever_finds_it_free_comes_after_the_last_holder",
            _ => "one_at_a_time_has_the_value",
        };
        let all = Variant::ALL.iter().map(|&variant| (variant, model(variant), vec!["Causality violation"]));
        busted::assert_caught("sync::try_lock::models", all);
    }
}
