//! A place for one value, which threads take, change and put back.
//!
//! A thread that takes the value owns it, so no thread waits for another: if the owner is preempted, the others find the place
//! empty, and may put values of their own there. A thread that puts a value back and finds another one merges the two.
//!
//! Each value is put by one compare-and-exchange, and taken by one swap, which reads what was put. So whoever takes a value comes
//! after everything that was done with it, and no two threads own it.

use std::marker::PhantomData;
use std::ptr;

use super::atomic::{AtomicPtr, Ordering};
use crate::busted::unless;
use busted::Variant;

/// In builds with `--cfg stillpoint_busted`, `STILLPOINT_BUSTED=place:NAME` chooses one.
mod busted {
    crate::variants! {
        for models, "place";
        TakeRelaxed = "take-relaxed": "A thread takes a value by a relaxed operation.",
        PutRelaxed = "put-relaxed": "A thread puts a value back by a relaxed operation.",
        PutOver = "put-over": "A thread that puts a value back overwrites what another thread has put there.",
    }
}

/// A place for one value. See the module.
pub struct Place<T> {
    /// A value from `Box::into_raw`, or null.
    value: AtomicPtr<T>,
    /// The place gives values to other threads, as a mutex does, and shares none of them.
    gives: PhantomData<std::sync::Mutex<T>>,
}

impl<T> Place<T> {
    /// An empty place.
    pub fn new() -> Self {
        Self { value: AtomicPtr::new(ptr::null_mut()), gives: PhantomData }
    }

    /// Takes the value, unless the place is empty or another thread has the value. Never waits.
    pub fn take(&self) -> Option<Box<T>> {
        // Acquire: pairs with the release in `put`.
        let order = unless(busted::is(Variant::TakeRelaxed), Ordering::Acquire);
        let value = self.value.swap(ptr::null_mut(), order);
        // SAFETY: the value came from a box, and the swap has taken it out of the place, so nobody else has it.
        (!value.is_null()).then(|| unsafe { Box::from_raw(value) })
    }

    /// Whether the place is empty at this moment.
    pub fn is_empty(&self) -> bool {
        // Relaxed: a hint. A thread that uses the value takes it.
        self.value.load(Ordering::Relaxed).is_null()
    }

    /// Puts a value into the place. Whenever another value is there, takes that one, and merges the two. Lock-free: each further
    /// attempt means that another thread has put a value.
    pub fn put(&self, mut value: Box<T>, mut merge: impl FnMut(&mut T, Box<T>)) {
        loop {
            let new = Box::into_raw(value);
            if busted::is(Variant::PutOver) {
                return self.value.store(new, Ordering::Release);
            }
            // Release: pairs with the acquire in `take`. Relaxed on failure: `take` below acquires.
            let order = unless(busted::is(Variant::PutRelaxed), Ordering::Release);
            if self.value.compare_exchange(ptr::null_mut(), new, order, Ordering::Relaxed).is_ok() {
                return;
            }
            // SAFETY: the value came from the box above, and is not in the place.
            value = unsafe { Box::from_raw(new) };
            if let Some(other) = self.take() {
                merge(&mut value, other);
            }
        }
    }
}

impl<T> Default for Place<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for Place<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

crate::debug!([T] Place<T> { .. });

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn values_are_merged_and_dropped_once() {
        let counted = std::sync::Arc::new(());
        let value = || Box::new(vec![std::sync::Arc::clone(&counted)]);
        let place = Place::new();
        assert!(place.is_empty() && place.take().is_none());
        for _ in 0..3 {
            place.put(value(), |value, mut other| value.append(&mut other));
        }
        assert!(!place.is_empty());
        let taken = place.take().unwrap();
        assert!(taken.len() == 3 && place.take().is_none());
        place.put(taken, |_, _| unreachable!());
        assert_eq!(std::sync::Arc::strong_count(&counted), 4);
        drop(place);
        assert_eq!(std::sync::Arc::strong_count(&counted), 1);
    }
}

#[cfg(all(test, stillpoint_loom))]
mod models {
    use super::*;
    use crate::sync::{Arc, UnsafeCell};
    use loom::thread;

    /// A number that loom watches.
    struct Number(UnsafeCell<u32>);

    // SAFETY: the model checks that one thread at a time uses the number.
    unsafe impl Send for Number {}

    impl Number {
        fn add(&self, number: u32) -> u32 {
            // SAFETY: the caller owns this value.
            self.0.with_mut(|value| unsafe {
                *value += number;
                *value
            })
        }
    }

    #[test]
    fn whoever_takes_a_value_has_it_whole() {
        loom::model(|| {
            let place = Arc::new(Place::new());
            let add = |place: &Place<Number>| {
                let value = place.take().unwrap_or_else(|| Box::new(Number(UnsafeCell::new(0))));
                value.add(1);
                place.put(value, |value, other| {
                    value.add(other.add(0));
                });
            };
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let place = Arc::clone(&place);
                    thread::spawn(move || add(&place))
                })
                .collect();
            add(&place);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(place.take().expect("somebody has put it back").add(0), 3);
        });
        crate::busted::assert_reached();
    }

    #[cfg(stillpoint_busted)]
    #[test]
    fn every_variant_is_caught_by_its_model() {
        let model = "whoever_takes_a_value_has_it_whole";
        let signs = vec!["Causality violation", "assertion `left == right` failed"];
        let all = Variant::ALL.iter().map(|&variant| (variant, model, signs.clone()));
        busted::assert_caught("sync::place::models", all);
    }
}
