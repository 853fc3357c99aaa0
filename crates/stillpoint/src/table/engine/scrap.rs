//! Old arrays of buckets that no thread can reach any more, until they are unmapped.
//!
//! The kernel takes milliseconds to unmap a large array, so each call of a writer unmaps only a slice.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::bucket::Bucket;
use super::slab::{Mapping, Slab};
use stillpoint_sys::sync::Place;

/// Bytes that one call unmaps: a few microseconds of the kernel's time.
pub(crate) const SLICE: usize = 64 << 10;

/// A thread that takes the list has exclusive access to it.
#[derive(Default)]
pub(crate) struct Scrap {
    mappings: Place<Vec<Mapping>>,
    /// Bytes that wait.
    waiting: AtomicUsize,
    /// The most bytes that one call has unmapped.
    most: AtomicUsize,
}

impl Scrap {
    /// Takes the memory of an array. Small slabs are freed at once.
    pub(crate) fn put(&self, slabs: impl Iterator<Item = Slab<Bucket>>) {
        let mappings: Vec<_> = slabs.filter_map(Slab::into_mapping).collect();
        // Relaxed: a hint for `release`.
        self.waiting.fetch_add(mappings.iter().map(Mapping::bytes).sum(), Ordering::Relaxed);
        self.add(Box::new(mappings));
    }

    /// Lock-free: if other threads have added mappings meanwhile, takes them too, and tries again.
    #[expect(clippy::box_collection, reason = "as it is stored")]
    fn add(&self, mappings: Box<Vec<Mapping>>) {
        if !mappings.is_empty() {
            self.mappings.put(mappings, |all, mut others| all.append(&mut others));
        }
    }

    /// Unmaps a slice, if any memory waits; false if none does.
    #[inline]
    pub(crate) fn release(&self) -> bool {
        // Relaxed: a hint. The next call finds what this one misses.
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

    /// Unmaps everything at once.
    pub(crate) fn clear(&self) {
        drop(self.mappings.take());
    }

    /// Bytes that wait.
    pub(crate) fn waiting(&self) -> usize {
        // Relaxed: for statistics.
        self.waiting.load(Ordering::Relaxed)
    }

    /// The most bytes that one call has unmapped.
    pub(crate) fn most(&self) -> usize {
        // Relaxed: for statistics.
        self.most.load(Ordering::Relaxed)
    }
}

// Other builds have no pages to unmap.
#[cfg(all(test, not(any(stillpoint_loom, miri, stillpoint_portable))))]
mod tests {
    use super::super::array::Array;
    use super::super::slab::Touch;
    use super::*;

    fn put_array(scrap: &Scrap, buckets: usize) {
        let array = Array::new(buckets, Touch::Lazily).unwrap();
        // SAFETY: only this function has the array, and its buckets are taken once.
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
