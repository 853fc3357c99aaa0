//! The writers' locks: one for each stripe of the buckets.
//!
//! The lower index bits of a bucket give its stripe. An array has at least as many buckets as there are stripes, so a
//! key belongs to the same stripe in every array, and a bucket's entries move within their stripe. The lock protects
//! the stripe's pointer to its array, its progress in a growth, and its count of entries. A writer reads this pointer
//! only under the lock, so no writer uses an array that every stripe has left.

// Not modelled: statistics.
use std::sync::atomic::{AtomicU32, Ordering};

use super::array::Array;
use stillpoint_sys::sync::{Locked, TryLock};

#[derive(Debug)]
#[repr(align(32))]
pub(crate) struct Stripe {
    progress: TryLock<Progress>,
    /// Number of entries. Written only by the holder of the lock, as is `most_moved`.
    entries: AtomicU32,
    most_moved: AtomicU32,
}

#[derive(Debug)]
struct Progress {
    array: *const Array,
    /// All buckets of this stripe before this index have moved. A multiple of [`STRIPES`](super::array::STRIPES).
    cursor: usize,
}

// SAFETY: `Array` is `Sync`.
unsafe impl Send for Progress {}

impl Stripe {
    pub(crate) fn new(array: *const Array) -> Self {
        Self {
            progress: TryLock::new(Progress { array, cursor: 0 }),
            entries: Default::default(),
            most_moved: Default::default(),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Held<'_> {
        Held { stripe: self, progress: self.progress.lock() }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Held<'_>> {
        self.progress.try_lock().map(|progress| Held { stripe: self, progress })
    }

    pub(crate) fn entries(&self) -> usize {
        // Relaxed: a count that may be old by the time it is read.
        self.entries.load(Ordering::Relaxed) as usize
    }

    /// The most buckets that one call has moved under this lock.
    pub(crate) fn most_moved(&self) -> usize {
        // Relaxed: for statistics.
        self.most_moved.load(Ordering::Relaxed) as usize
    }
}

/// A locked stripe. Dropping it releases the lock, even during a panic of the user's `Eq` or `Hash`.
pub(crate) struct Held<'s> {
    stripe: &'s Stripe,
    progress: Locked<'s, Progress>,
}

impl<'s> Held<'s> {
    /// The array of this stripe. Its buckets exist until the stripe has left it and is counted as moved.
    pub(crate) fn array(&self) -> &'s Array {
        // SAFETY: every array stays as long as the table.
        unsafe { &*self.progress.array }
    }

    /// The array that this stripe's entries are in, or move to.
    pub(crate) fn newest(&self) -> &'s Array {
        let array = self.array();
        array.next().unwrap_or(array)
    }

    pub(crate) fn cursor(&self) -> usize {
        self.progress.cursor
    }

    pub(crate) fn set_cursor(&mut self, cursor: usize) {
        self.progress.cursor = cursor;
    }

    /// Leaves the array for the next one.
    pub(crate) fn leave_for(&mut self, next: *const Array) {
        *self.progress = Progress { array: next, cursor: 0 };
    }

    pub(crate) fn count(&mut self, more: i32) {
        // Relaxed: written only under the lock.
        let entries = self.stripe.entries.load(Ordering::Relaxed);
        self.stripe.entries.store(entries.wrapping_add_signed(more), Ordering::Relaxed);
    }

    pub(crate) fn entries(&self) -> usize {
        self.stripe.entries()
    }

    pub(crate) fn note_moved(&mut self, buckets: usize) {
        if buckets > self.stripe.most_moved() {
            self.stripe.most_moved.store(buckets as u32, Ordering::Relaxed);
        }
    }
}
