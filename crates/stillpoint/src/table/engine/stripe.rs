//! The writers' locks: one for each stripe of the buckets.
//!
//! The lower index bits of a bucket give its stripe. An array has at least as many buckets as there are stripes, so a
//! key belongs to the same stripe in every array, and a bucket's entries move within their stripe. The lock protects
//! the stripe's pointer to its array, its progress in a growth, and its count of entries. A writer reads this pointer
//! only under the lock, so no writer uses an array that every stripe has left.
//!
//! A small table has few stripes, and as many buckets. The growth from there ends with all of them locked, and gives the table
//! the many stripes that it has from then on.

use std::ptr;
// Not modelled: statistics.
use std::sync::atomic::{AtomicI32, AtomicU32};

use super::array::{many, Array, FEW};
use crate::table::busted::{self, Variant};
use stillpoint_sys::sync::atomic::{AtomicPtr, Ordering};
use stillpoint_sys::sync::{Locked, TryLock};

/// The stripes of a table: those of a small table first, then those that come with a larger array.
#[derive(Debug)]
pub(crate) struct Stripes {
    /// None if the table began with many.
    few: Box<[Stripe]>,
    /// The first of the many, from the beginning of the growth on that they come with; null before. This owns them, as a box that was
    /// made a pointer: a box may not move while others use what is in it.
    coming: AtomicPtr<Stripe>,
    /// The same, once the few are not used any more.
    many: AtomicPtr<Stripe>,
}

impl Stripes {
    /// Those of a table whose first array this is. `None` when there is no memory. The array stays where it is, and as long as the
    /// table.
    pub(crate) fn new(array: &Array) -> Option<Self> {
        let stripes = Stripe::several(array.stripe_count(), array)?;
        let none = || AtomicPtr::new(ptr::null_mut());
        let mut this = Self { few: Box::default(), coming: none(), many: none() };
        if array.len() < many() {
            this.few = stripes;
        } else {
            this.keep(stripes);
            this.publish();
        }
        Some(this)
    }

    /// Keeps the many for the end of a growth that has just begun: the caller holds one of the few, so it cannot end yet.
    pub(crate) fn keep(&self, stripes: Box<[Stripe]>) {
        assert_eq!(stripes.len(), many());
        // Release: pairs with the acquire in `kept`.
        let before = self.coming.swap(Box::into_raw(stripes).cast(), Ordering::Release);
        assert!(before.is_null(), "a table is small once");
    }

    fn publish(&self) {
        // Relaxed: this thread has seen them, by `kept` or `keep`. Release: pairs with the acquire in `many`. Publishes the stripes, and
        // all that was done under the few.
        self.many.store(self.coming.load(Ordering::Relaxed), Ordering::Release);
    }

    #[inline(always)]
    fn many(&self) -> Option<&[Stripe]> {
        // Acquire: pairs with the release in `publish`.
        self.slice(self.many.load(Ordering::Acquire))
    }

    /// The many, even if the few are still used.
    fn kept(&self) -> Option<&[Stripe]> {
        // Acquire: pairs with the release in `keep`.
        self.slice(self.coming.load(Ordering::Acquire))
    }

    #[inline(always)]
    fn slice(&self, first: *mut Stripe) -> Option<&[Stripe]> {
        // SAFETY: `keep` had that many stripes here; they stay as long as this.
        (!first.is_null()).then(|| unsafe { std::slice::from_raw_parts(first, many()) })
    }

    /// Number of stripes: few, or many.
    pub(crate) fn count(&self) -> usize {
        self.many().map_or(self.few.len(), <[_]>::len)
    }

    /// Locks the stripe that a hash, or the index of a bucket, belongs to.
    #[inline(always)]
    pub(crate) fn lock(&self, index: usize) -> Held<'_> {
        match self.many() {
            Some(many) => of(many, index).lock(),
            None => self.lock_few(index),
        }
    }

    #[inline]
    fn lock_few(&self, index: usize) -> Held<'_> {
        let held = of(&self.few, index).lock();
        // Under the lock: whoever makes them many has all the few.
        match self.many() {
            Some(many) if !busted::is(Variant::FewForGood) => {
                drop(held);
                of(many, index).lock()
            }
            _ => held,
        }
    }

    /// As [`lock`](Stripes::lock). `None` if the stripe is locked.
    pub(crate) fn try_lock(&self, index: usize) -> Option<Held<'_>> {
        if let Some(many) = self.many() {
            return of(many, index).try_lock();
        }
        let held = of(&self.few, index).try_lock()?;
        self.many().is_none().then_some(held)
    }

    /// Replaces the few stripes by the many, when all of the few have left for the next array. The caller holds the stripe
    /// of the few that the hash belongs to; waits for the holders of the others. Returns the stripe of the many, locked, since
    /// the caller goes on.
    pub(crate) fn become_many(&self, hash: usize) -> Held<'_> {
        let stripes = self.kept().expect("they came with the growth that ends");
        let own = of(&self.few, hash);
        let is_other = |stripe: &&Stripe| !ptr::eq(*stripe, own) && !busted::is(Variant::FewUnlocked);
        let _others: [_; FEW] =
            std::array::from_fn(|number| self.few.get(number).filter(is_other).map(Stripe::lock));
        let held = of(stripes, hash).lock();
        self.publish();
        held
    }

    fn all(&self) -> impl Iterator<Item = &Stripe> {
        self.few.iter().chain(self.many().into_iter().flatten())
    }

    /// Number of entries of the table.
    pub(crate) fn entries(&self) -> usize {
        // Relaxed: counts that may be old by the time they are read. Wrapping: a stripe of many has not counted the entries that
        // were linked under one of the few.
        self.all().fold(0_u32, |sum, stripe| sum.wrapping_add_signed(stripe.entries.load(Ordering::Relaxed)))
            as usize
    }

    /// The most buckets that one call has moved under one lock.
    pub(crate) fn most_moved(&self) -> usize {
        self.all().map(Stripe::most_moved).max().unwrap_or(0)
    }
}

/// The stripe that a hash, or the index of a bucket, belongs to, of stripes whose number is a power of two.
#[inline(always)]
fn of(stripes: &[Stripe], index: usize) -> &Stripe {
    &stripes[index & (stripes.len() - 1)]
}

impl Drop for Stripes {
    fn drop(&mut self) {
        // Relaxed: the owner has synchronized with all threads that used the table.
        let first = self.coming.load(Ordering::Relaxed);
        if !first.is_null() {
            // SAFETY: `keep` made the pointer from a box of that many, and nothing refers to them any more.
            drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(first, many())) });
        }
    }
}

#[derive(Debug)]
#[repr(align(32))]
pub(crate) struct Stripe {
    progress: TryLock<Progress>,
    /// Entries that were linked under this lock, less those that were unlinked. Written only by the holder of the lock, as is
    /// `most_moved`.
    entries: AtomicI32,
    most_moved: AtomicU32,
}

#[derive(Debug)]
struct Progress {
    array: *const Array,
    /// All buckets of this stripe before this index have moved. A multiple of the array's number of stripes.
    cursor: usize,
}

// SAFETY: `Array` is `Sync`.
unsafe impl Send for Progress {}

impl Stripe {
    /// Stripes that are in this array. `None` when there is no memory.
    pub(crate) fn several(count: usize, array: &Array) -> Option<Box<[Self]>> {
        let mut stripes = Vec::new();
        stripes.try_reserve_exact(count).ok()?;
        stripes.extend((0..count).map(|_| Self {
            progress: TryLock::new(Progress { array, cursor: 0 }),
            entries: Default::default(),
            most_moved: Default::default(),
        }));
        Some(stripes.into_boxed_slice())
    }

    #[inline]
    pub(crate) fn lock(&self) -> Held<'_> {
        Held { stripe: self, progress: self.progress.lock() }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Held<'_>> {
        self.progress.try_lock().map(|progress| Held { stripe: self, progress })
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

    #[inline]
    pub(crate) fn count(&mut self, more: i32) {
        // Relaxed: written only under the lock.
        let entries = self.stripe.entries.load(Ordering::Relaxed);
        self.stripe.entries.store(entries.wrapping_add(more), Ordering::Relaxed);
    }

    /// Entries that were linked under this lock, less those that were unlinked.
    #[inline]
    pub(crate) fn entries(&self) -> i32 {
        // Relaxed: written only under the lock.
        self.stripe.entries.load(Ordering::Relaxed)
    }

    pub(crate) fn note_moved(&mut self, buckets: usize) {
        if buckets > self.stripe.most_moved() {
            self.stripe.most_moved.store(buckets as u32, Ordering::Relaxed);
        }
    }
}
