//! Old arrays of buckets that nobody can reach any more, on their way back to the kernel.
//!
//! To unmap a large array takes the kernel milliseconds: each call of a writer gives back a slice.

use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_utils::atomic::AtomicCell;

use super::bucket::Bucket;
use super::slab::{Mapping, Slab};

/// What one call gives back: some microseconds of the kernel's time.
pub(crate) const SLICE: usize = 64 << 10;

/// Not modelled: whoever takes the list has it to itself.
#[derive(Default)]
pub(crate) struct Scrap {
    #[expect(clippy::box_collection, reason = "one word, so that it is exchanged at once")]
    mappings: AtomicCell<Option<Box<Vec<Mapping>>>>,
    /// Bytes that wait.
    waiting: AtomicUsize,
    /// The most that one call has given back.
    most: AtomicUsize,
}

impl Scrap {
    /// Takes the memory of an array in. Its smaller parts are freed at once.
    pub(crate) fn put(&self, slabs: impl Iterator<Item = Slab<Bucket>>) {
        let mappings: Vec<_> = slabs.filter_map(Slab::into_mapping).collect();
        // Relaxed: a hint for `release`.
        self.waiting.fetch_add(mappings.iter().map(Mapping::bytes).sum(), Ordering::Relaxed);
        self.add(Box::new(mappings));
    }

    /// Lock-free: who finds what others have added meanwhile takes it along.
    #[expect(clippy::box_collection, reason = "as it is stored")]
    fn add(&self, mut mappings: Box<Vec<Mapping>>) {
        while !mappings.is_empty() {
            let Some(others) = self.mappings.swap(Some(mappings)) else { return };
            mappings = self.mappings.take().unwrap_or_default();
            mappings.extend(*others);
        }
    }

    /// Gives a slice back to the kernel, if anything waits. False when there is nothing.
    #[inline]
    pub(crate) fn release(&self) -> bool {
        // Relaxed: a hint; what is missed here is found by the next call.
        self.waiting.load(Ordering::Relaxed) > 0 && self.release_slice()
    }

    #[cold]
    fn release_slice(&self) -> bool {
        let Some(mut mappings) = self.mappings.take() else { return false };
        let Some(last) = mappings.last_mut() else { return false };
        let released = last.bytes().min(SLICE);
        last.release_end(released);
        if last.bytes() == 0 {
            mappings.pop();
        }
        // Relaxed, both: a hint and a figure for statistics.
        self.waiting.fetch_sub(released, Ordering::Relaxed);
        self.most.fetch_max(released, Ordering::Relaxed);
        self.add(mappings);
        true
    }

    /// Gives everything back at once.
    pub(crate) fn clear(&self) {
        drop(self.mappings.take());
    }

    /// Bytes that wait.
    pub(crate) fn waiting(&self) -> usize {
        // Relaxed: for statistics.
        self.waiting.load(Ordering::Relaxed)
    }

    /// The most bytes that one call has given back.
    pub(crate) fn most(&self) -> usize {
        // Relaxed: for statistics.
        self.most.load(Ordering::Relaxed)
    }
}

// Elsewhere there are no pages to give back.
#[cfg(all(test, not(any(loom, miri, stillpoint_portable))))]
mod tests {
    use super::super::array::Array;
    use super::super::slab::Touch;
    use super::*;

    fn put_array(scrap: &Scrap, buckets: usize) {
        let array = Array::new(buckets, Touch::Lazily).unwrap();
        // SAFETY: nobody else has the array, and its buckets are taken once.
        scrap.put(unsafe { array.take_slabs() });
    }

    #[test]
    fn an_array_goes_slice_by_slice() {
        let scrap = Scrap::default();
        assert!(!scrap.release());
        let buckets = 1 << 14;
        put_array(&scrap, buckets);
        put_array(&scrap, buckets);
        let (mut calls, all) = (0, scrap.waiting());
        assert!(all >= 2 * buckets * size_of::<Bucket>());
        while scrap.release() {
            calls += 1;
        }
        assert!(calls >= all / SLICE, "{calls} calls for {all} bytes");
        assert_eq!((scrap.waiting(), scrap.most()), (0, SLICE));
    }

    #[test]
    fn a_small_array_is_gone_at_once() {
        let scrap = Scrap::default();
        put_array(&scrap, 256);
        assert!(!scrap.release());
    }
}
