//! The writers' locks: one for each stripe of the buckets.
//!
//! A bucket belongs to the stripe of its lower index bits. An array has at least as many buckets as there are
//! stripes, so that a key belongs to the same stripe in every array, and a bucket's entries move within their
//! stripe. With the lock go the stripe's own idea of the array, its share of a growth, and its count of entries:
//! a writer reads the array under the lock alone, so an array that every stripe has left has no writer.

use std::cell::UnsafeCell;

use super::array::Array;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::spin;

pub(crate) const STRIPES: usize = if cfg!(loom) { 1 } else { 256 };

/// Turns of a waiter before it yields its core: a holder that runs is done by then.
const SPINS: u32 = 128;

#[derive(Debug)]
#[repr(align(32))]
pub(crate) struct Stripe {
    locked: AtomicBool,
    /// Not modelled: a count for readers of statistics, written by the holder of the lock alone.
    entries: std::sync::atomic::AtomicU32,
    most_moved: std::sync::atomic::AtomicU32,
    progress: UnsafeCell<Progress>,
}

/// For the holder of the lock.
#[derive(Debug)]
struct Progress {
    array: *const Array,
    /// Buckets of this stripe before this one have moved; counted in steps of [`STRIPES`].
    cursor: usize,
}

// SAFETY: `progress` is used by the holder of the lock alone; what it points to is `Sync`.
unsafe impl Sync for Stripe {}
// SAFETY: as above.
unsafe impl Send for Stripe {}

impl Stripe {
    pub(crate) fn new(array: *const Array) -> Self {
        Self {
            locked: AtomicBool::new(false),
            entries: Default::default(),
            most_moved: Default::default(),
            progress: UnsafeCell::new(Progress { array, cursor: 0 }),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Held<'_> {
        let mut turns = 0;
        loop {
            if let Some(held) = self.try_lock() {
                return held;
            }
            spin();
            turns += 1;
            if turns % SPINS == 0 && !cfg!(loom) {
                std::thread::yield_now();
            }
        }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Held<'_>> {
        // Acquire: pairs with the release in the drop of `Held`. Relaxed on failure: nothing was learned.
        let locked = self.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        // Not `then_some`: a lock that is made and dropped unlocks.
        locked.is_ok().then(|| Held { stripe: self })
    }

    pub(crate) fn entries(&self) -> usize {
        // Relaxed: a count that may be old by the time it is read.
        self.entries.load(std::sync::atomic::Ordering::Relaxed) as usize
    }

    /// The most buckets that one call has moved under this lock.
    pub(crate) fn most_moved(&self) -> usize {
        // Relaxed: for statistics.
        self.most_moved.load(std::sync::atomic::Ordering::Relaxed) as usize
    }
}

/// A locked stripe; unlocked when dropped, also by a panic of the user's `Eq` or `Hash`.
pub(crate) struct Held<'s> {
    stripe: &'s Stripe,
}

impl<'s> Held<'s> {
    /// The array of this stripe. Its buckets are there until the stripe has left it, and is counted as moved.
    pub(crate) fn array(&self) -> &'s Array {
        // SAFETY: the lock is held; every array stays as long as the table.
        unsafe { &*(*self.stripe.progress.get()).array }
    }

    /// The array that this stripe's entries are in, or move to.
    pub(crate) fn newest(&self) -> &'s Array {
        let array = self.array();
        array.next().unwrap_or(array)
    }

    pub(crate) fn cursor(&self) -> usize {
        // SAFETY: the lock is held.
        unsafe { (*self.stripe.progress.get()).cursor }
    }

    pub(crate) fn set_cursor(&mut self, cursor: usize) {
        // SAFETY: the lock is held.
        unsafe { (*self.stripe.progress.get()).cursor = cursor };
    }

    /// Leaves the array for the next one.
    pub(crate) fn leave_for(&mut self, next: *const Array) {
        // SAFETY: the lock is held.
        unsafe { *self.stripe.progress.get() = Progress { array: next, cursor: 0 } };
    }

    pub(crate) fn count(&mut self, more: i32) {
        // Relaxed: written under the lock.
        let entries = self.stripe.entries.load(std::sync::atomic::Ordering::Relaxed);
        self.stripe.entries.store(entries.wrapping_add_signed(more), std::sync::atomic::Ordering::Relaxed);
    }

    pub(crate) fn entries(&self) -> usize {
        self.stripe.entries()
    }

    pub(crate) fn note_moved(&mut self, buckets: usize) {
        if buckets > self.stripe.most_moved() {
            self.stripe.most_moved.store(buckets as u32, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `try_lock`.
        self.stripe.locked.store(false, Ordering::Release);
    }
}
