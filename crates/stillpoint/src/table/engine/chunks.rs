//! Arrays that grow without moving: a first slab of any length, and further ones of twice the size each.

use std::mem::ManuallyDrop;
use std::ptr;

use super::slab::{Slab, Touch, Zeroed};
use crate::sync::atomic::{AtomicPtr, Ordering};

/// Chunks beyond the first: enough for every index of 32 bits.
const LATER: usize = if cfg!(loom) { 2 } else { 32 };

#[derive(Debug)]
pub(crate) struct Chunks<T: Zeroed> {
    first: Slab<T>,
    later: [AtomicPtr<T>; LATER],
    /// The first of the later chunks has two to this power values.
    shift: u32,
}

impl<T: Zeroed> Chunks<T> {
    /// With a first chunk of `len` values; `None` when there is no memory for it.
    pub(crate) fn new(len: usize, touch: Touch) -> Option<Self> {
        let first = Slab::new(len, touch)?;
        Some(Self {
            first,
            later: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            shift: shift_of(len),
        })
    }

    /// Start and length of the first chunk.
    pub(crate) fn first(&self) -> (*mut T, usize) {
        (self.first.start(), self.first.len())
    }

    /// The value at `index`, for which [`ensure`](Chunks::ensure) has answered yes before, in this thread or in one
    /// that it has synchronized with.
    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> *mut T {
        let index = index as usize;
        if index < self.first.len() {
            self.first.start().wrapping_add(index)
        } else {
            self.get_later(index)
        }
    }

    #[inline]
    fn get_later(&self, index: usize) -> *mut T {
        let (chunk, offset) = self.place(index);
        // Acquire: pairs with the release in `ensure`.
        self.later[chunk].load(Ordering::Acquire).wrapping_add(offset)
    }

    /// Number of the later chunk that `index` falls into, and the position in it.
    #[inline]
    fn place(&self, index: usize) -> (usize, usize) {
        let beyond = index - self.first.len();
        let chunk = ((beyond >> self.shift) + 1).ilog2();
        (chunk as usize, beyond - (((1 << chunk) - 1) << self.shift))
    }

    fn len_of(&self, chunk: usize) -> usize {
        1 << (self.shift as usize + chunk)
    }

    /// Makes the chunk of `index`, if there is none yet. False when there is no memory for it.
    pub(crate) fn ensure(&self, index: u32) -> bool {
        self.ensure_touched(index, Touch::Lazily)
    }

    pub(crate) fn ensure_touched(&self, index: u32, touch: Touch) -> bool {
        let index = index as usize;
        if index < self.first.len() {
            return true;
        }
        let (chunk, _) = self.place(index);
        let Some(later) = self.later.get(chunk) else { return false };
        // Acquire: pairs with the release below.
        if !later.load(Ordering::Acquire).is_null() {
            return true;
        }
        let Some(new) = Slab::new(self.len_of(chunk), touch) else { return false };
        // Release: publishes the chunk. Relaxed on failure: another thread made the same.
        if later.compare_exchange(ptr::null_mut(), new.start(), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            std::mem::forget(new);
            if touch == Touch::Lazily {
                self.allow_huge_pages_before(chunk);
            }
        }
        true
    }

    /// Every page of the chunk before `chunk` is in use: the kernel may gather them. Earlier, the first touch of a huge
    /// page would take it milliseconds.
    fn allow_huge_pages_before(&self, chunk: usize) {
        match chunk.checked_sub(1) {
            None => self.first.allow_huge_pages(),
            Some(before) => {
                // Acquire: as in `get_later`. Whoever made that chunk may not have been seen by this thread.
                let start = self.later[before].load(Ordering::Acquire);
                if !start.is_null() {
                    // SAFETY: a chunk of this start and length, which is not dropped here.
                    let slab = ManuallyDrop::new(unsafe { Slab::from_raw(start, self.len_of(before)) });
                    slab.allow_huge_pages();
                }
            }
        }
    }

    /// Index of the first value behind the chunk of `index`.
    pub(crate) fn end_of_chunk(&self, index: u32) -> u32 {
        let index = index as usize;
        if index < self.first.len() {
            return self.first.len() as u32;
        }
        let (chunk, offset) = self.place(index);
        u32::try_from(index - offset + self.len_of(chunk)).unwrap_or(u32::MAX)
    }

    /// Index of the value at `address`.
    pub(crate) fn index_of(&self, address: *const T) -> u32 {
        let mut before = 0;
        let found = self.slabs().find_map(|(start, len)| {
            let offset = address.addr().wrapping_sub(start.addr()) / size_of::<T>();
            let here = address.addr() >= start.addr() && offset < len;
            before += len;
            here.then(|| (before - len + offset) as u32)
        });
        found.expect("the address is one of a chunk")
    }

    /// Start and length of each chunk there is, in order.
    fn slabs(&self) -> impl Iterator<Item = (*mut T, usize)> + '_ {
        let later = self.later.iter().enumerate().map_while(|(chunk, later)| {
            // Acquire: as in `get_later`.
            let start = later.load(Ordering::Acquire);
            (!start.is_null()).then(|| (start, self.len_of(chunk)))
        });
        std::iter::once((self.first.start(), self.first.len())).chain(later)
    }

    /// Memory reserved for values, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.slabs().map(|(_, len)| len * size_of::<T>()).sum()
    }

    /// The chunks.
    pub(crate) fn into_slabs(mut self) -> impl Iterator<Item = Slab<T>> {
        let later = self.take_later();
        let this = ManuallyDrop::new(self);
        // SAFETY: read once, from a value that is not dropped; `later` has no drop of its own.
        let first = unsafe { ptr::read(&raw const this.first) };
        std::iter::once(first).chain(later)
    }

    /// Takes the later chunks out.
    fn take_later(&mut self) -> Vec<Slab<T>> {
        let starts = self.later.iter().map(|later| later.swap(ptr::null_mut(), Ordering::Acquire));
        let chunks = starts.enumerate().take_while(|(_, start)| !start.is_null());
        // SAFETY: `ensure` forgot a slab of this start and length, and nothing refers to its values any more.
        chunks.map(|(chunk, start)| unsafe { Slab::from_raw(start, self.len_of(chunk)) }).collect()
    }
}

/// So that the second chunk is as large as the first, to the power of two below.
fn shift_of(len: usize) -> u32 {
    len.max(if cfg!(loom) { 2 } else { 64 }).ilog2()
}

impl<T: Zeroed> Drop for Chunks<T> {
    fn drop(&mut self) {
        drop(self.take_later());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::atomic::AtomicU32;

    #[test]
    fn every_index_has_a_place_of_its_own() {
        let chunks = Chunks::<AtomicU32>::new(100, Touch::Lazily).unwrap();
        let mut seen = std::collections::HashSet::new();
        for index in 0..5_000 {
            assert!(chunks.ensure(index));
            let place = chunks.get(index);
            assert!(seen.insert(place));
            assert_eq!(chunks.index_of(place), index);
        }
        assert_eq!(chunks.bytes(), 4 * (100 + 64 + 128 + 256 + 512 + 1024 + 2048 + 4096));
    }

    #[test]
    fn the_highest_index_has_a_chunk() {
        let chunks = Chunks::<AtomicU32>::new(1, Touch::Lazily).unwrap();
        let (chunk, offset) = chunks.place(u32::MAX as usize);
        assert!(chunk < LATER && offset < chunks.len_of(chunk));
    }
}
