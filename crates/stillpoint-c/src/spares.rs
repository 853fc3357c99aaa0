//! Things in reserve for signal handlers, which may not allocate.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Things from `Box::into_raw`, for as many threads at a time as there are places.
pub(crate) struct Spares<T> {
    places: [AtomicPtr<T>; 32],
}

impl<T> Spares<T> {
    pub(crate) const fn new() -> Self {
        Self { places: [const { AtomicPtr::new(ptr::null_mut()) }; 32] }
    }

    /// Takes one; null if there is none. Neither allocates nor waits.
    pub(crate) fn take(&self) -> *mut T {
        // Relaxed load: a hint. Acquire: pairs with the release in `give`.
        let taken = |place: &AtomicPtr<T>| {
            (!place.load(Ordering::Relaxed).is_null()).then(|| place.swap(ptr::null_mut(), Ordering::Acquire))
        };
        self.places.iter().filter_map(taken).find(|spare| !spare.is_null()).unwrap_or(ptr::null_mut())
    }

    /// Puts one in, if there is room.
    pub(crate) fn give(&self, spare: *mut T) -> bool {
        // Release: pairs with the acquire in `take`. Relaxed on failure: another place is tried.
        self.places.iter().any(|place| {
            place.compare_exchange(ptr::null_mut(), spare, Ordering::Release, Ordering::Relaxed).is_ok()
        })
    }

    /// Makes those that are missing, until `make` returns null.
    pub(crate) fn fill(&self, mut make: impl FnMut() -> *mut T) {
        // Relaxed: a hint.
        let missing = self.places.iter().filter(|place| place.load(Ordering::Relaxed).is_null()).count();
        for _ in 0..missing {
            let spare = make();
            if spare.is_null() {
                return;
            }
            if !self.give(spare) {
                // SAFETY: `spare` came from a box, and nobody else has it.
                drop(unsafe { Box::from_raw(spare) });
            }
        }
    }
}
