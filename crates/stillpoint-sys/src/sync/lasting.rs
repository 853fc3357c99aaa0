//! A value that its first use makes, and that stays as long as its place.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A value that its first use makes, and that is dropped with its place: that of a static is never dropped.
///
/// Takes no lock, unlike `OnceLock`: the child of a `fork` by another thread during the first use would find it held, and
/// wait for ever. Threads that make the value at the same time each make one. The first one is kept, and the others are dropped.
///
/// Not modelled, because loom's atomics cannot be in statics, which outlive the model: here they are the standard library's.
#[derive(Debug)]
pub struct Lasting<T>(AtomicPtr<T>);

impl<T: Send + Sync> Lasting<T> {
    #[expect(clippy::new_without_default, reason = "it is for statics and arrays")]
    /// No value yet.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The value, if there is one.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // Acquire: pairs with the release in `set_boxed`. SAFETY: null, or from the box that `set_boxed` has taken apart, which stays
        // until this is dropped; only shared references are made before.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// The value. Makes it if there is none.
    #[inline]
    pub fn get_or_make(&self, make: impl FnOnce() -> T) -> &T {
        self.get().unwrap_or_else(|| self.make(make))
    }

    #[cold]
    fn make(&self, make: impl FnOnce() -> T) -> &T {
        self.set(make()).unwrap_or_else(|(first, own)| {
            drop(own);
            first
        })
    }

    /// Sets the value.
    ///
    /// # Errors
    /// There is a value already. Returns that value, and the one that was passed.
    pub fn set(&self, value: T) -> Result<&T, (&T, T)> {
        self.set_boxed(Box::new(value)).map_err(|(first, own)| (first, *own))
    }

    /// As [`set`](Lasting::set), for a caller that has got memory without ending the process when there is none.
    ///
    /// # Errors
    /// As for `set`.
    pub fn set_boxed(&self, value: Box<T>) -> Result<&T, (&T, Box<T>)> {
        let own = Box::into_raw(value);
        // Release on success: pairs with the acquire in `get`, and with the one on failure. Acquire on failure: pairs with the release
        // of the thread that was first.
        match self.0.compare_exchange(ptr::null_mut(), own, Ordering::Release, Ordering::Acquire) {
            // SAFETY: the box stays until this is dropped; only shared references are made before.
            Ok(_) => Ok(unsafe { &*own }),
            // SAFETY: `first` is from a box that was passed before, and stays; `own` is from the box above, and was not published.
            Err(first) => Err(unsafe { (&*first, Box::from_raw(own)) }),
        }
    }
}

impl<T> Drop for Lasting<T> {
    fn drop(&mut self) {
        let value = *self.0.get_mut();
        if !value.is_null() {
            // SAFETY: from the box that `set_boxed` has taken apart; all references to it are gone.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::{Arc, Barrier};
    use std::thread;

    /// The number of values that were dropped.
    static DROPPED: AtomicUsize = AtomicUsize::new(0);

    struct Value(Box<usize>);

    impl Drop for Value {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_first_value_is_kept_and_the_others_are_dropped() {
        static VALUE: Lasting<Value> = Lasting::new();
        const THREADS: usize = 4;

        assert!(VALUE.get().is_none());
        let (there, made) = (Barrier::new(THREADS), Barrier::new(THREADS));
        let seen: Vec<_> = thread::scope(|scope| {
            let begin = |number| {
                let (there, made) = (&there, &made);
                let make = move || {
                    // Each thread makes a value before any thread sets one.
                    made.wait();
                    Value(Box::new(number))
                };
                scope.spawn(move || {
                    there.wait();
                    VALUE.get_or_make(make)
                })
            };
            let threads: Vec<_> = (0..THREADS).map(begin).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(seen.iter().all(|value| ptr::eq(*value, seen[0])));
        assert_eq!(DROPPED.load(Ordering::Relaxed), THREADS - 1);
        let Err((first, own)) = VALUE.set(Value(Box::new(9))) else { panic!("there is a value already") };
        assert!(ptr::eq(first, seen[0]) && *own.0 == 9 && *first.0 < THREADS);
        assert!(ptr::eq(VALUE.get_or_make(|| unreachable!("there is a value")), first));
    }

    #[test]
    fn a_value_is_dropped_with_its_place_and_only_then() {
        let alive = Arc::new(());
        let places = [const { Lasting::new() }; 2];
        let first = places[0].get_or_make(|| Arc::clone(&alive));
        assert!(Arc::ptr_eq(first, &alive) && places[0].set(Arc::clone(&alive)).is_err());
        assert_eq!(Arc::strong_count(&alive), 2);
        drop(places);
        assert_eq!(Arc::strong_count(&alive), 1);
    }

    /// As in the child of a `fork`, where the thread that was about to make the value does not exist.
    #[test]
    fn nobody_waits_for_a_thread_that_makes_the_value() {
        static VALUE: Lasting<u32> = Lasting::new();

        let value = VALUE.get_or_make(|| {
            assert_eq!(thread::spawn(|| *VALUE.get_or_make(|| 1)).join().unwrap(), 1);
            2
        });
        assert_eq!(*value, 1);
    }
}
