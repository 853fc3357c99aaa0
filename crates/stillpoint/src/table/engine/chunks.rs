//! Arrays that grow without moving: a first slab of any length, and later ones, each twice the size of the one before.

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::{self, NonNull};

use super::slab::{discard, Slab, Touch, Zeroed};
use crate::table::busted::{self, Variant};
use stillpoint_sys::sync::atomic::{AtomicPtr, Ordering};

/// The first of the later chunks has at least `1 << LEAST` values.
const LEAST: u32 = if cfg!(stillpoint_loom) { 1 } else { 6 };
/// Places for chunks beyond the first: enough for every index of 32 bits.
const LATER: usize = if cfg!(stillpoint_loom) { 3 } else { 33 - LEAST as usize };

#[derive(Debug)]
pub(crate) struct Chunks<T: Zeroed> {
    /// [`take`](Chunks::take) moves this out, and the later chunks.
    first: ManuallyDrop<Slab<T>>,
    /// A chunk of `1 << n` values is at `n - LEAST`. If the first chunk is long, chunks of fewer values are never made.
    later: [AtomicPtr<T>; LATER],
    /// What is added to an index beyond the first chunk, wrapping: the highest bit of the sum is then the length of the index's chunk, and
    /// the other bits are its position there. So a lookup needs no loop, and few instructions.
    bias: usize,
}

impl<T: Zeroed> Chunks<T> {
    /// Makes a first chunk of `len` values; `None` when there is no memory.
    pub(crate) fn new(len: usize, touch: Touch) -> Option<Self> {
        let first = ManuallyDrop::new(Slab::new(len, touch)?);
        Some(Self {
            first,
            later: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            bias: second_len_of(len).wrapping_sub(len),
        })
    }

    /// Start and length of the first chunk.
    pub(crate) fn first(&self) -> (*mut T, usize) {
        (self.first.start(), self.first.len())
    }

    /// The value at `index`. [`ensure`](Chunks::ensure) must have returned true for `index`, in this thread or in one
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

    /// The place of the first of the later chunks.
    fn first_place(&self) -> usize {
        self.place(self.first.len()).0
    }

    /// The place of the later chunk that has `index`, and the position in this chunk.
    #[inline(always)]
    fn place(&self, index: usize) -> (usize, usize) {
        let sum = index.wrapping_add(self.bias);
        let highest = usize::BITS - 1 - sum.leading_zeros();
        ((highest - LEAST) as usize, sum ^ (1 << highest))
    }

    /// Makes the chunk of `index`, if it does not exist yet. False when there is no memory.
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
        let Some(new) = Slab::new(len_of(chunk), touch) else { return false };
        // Release: publishes the chunk, and pairs with the acquire loads. Relaxed on failure: the chunk that another
        // thread made is not read here.
        if later.compare_exchange(ptr::null_mut(), new.start(), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            std::mem::forget(new);
            if touch == Touch::Lazily {
                self.allow_huge_pages_before(chunk);
            }
        }
        true
    }

    /// Allows huge pages for the chunk before `chunk`, all of whose pages are in use now. If they were allowed earlier,
    /// the first touch of a huge page would take the kernel milliseconds.
    fn allow_huge_pages_before(&self, chunk: usize) {
        if chunk == self.first_place() {
            self.first.allow_huge_pages();
            return;
        }
        let before = chunk - 1;
        // Acquire: as in `get_later`. May be null: this thread has not necessarily synchronized with the thread
        // that made that chunk.
        let start = self.later[before].load(Ordering::Acquire);
        if !start.is_null() {
            // SAFETY: a chunk has this start and length, and it is not dropped here.
            let slab = ManuallyDrop::new(unsafe { Slab::from_raw(start, len_of(before)) });
            slab.allow_huge_pages();
        }
    }

    /// Index of the first value after the chunk of `index`.
    pub(crate) fn end_of_chunk(&self, index: u32) -> u32 {
        let index = index as usize;
        if index < self.first.len() {
            return self.first.len() as u32;
        }
        let (chunk, offset) = self.place(index);
        u32::try_from(index - offset + len_of(chunk)).unwrap_or(u32::MAX)
    }

    /// Index of the value at `address`, which [`get`](Chunks::get) returned, in this thread or in one that it has
    /// synchronized with.
    pub(crate) fn index_of(&self, address: *const T) -> u32 {
        let found = self.chunks().find_map(|Chunk { before, start, len }| {
            let offset = address.addr().wrapping_sub(start.addr()) / size_of::<T>();
            let here = address.addr() >= start.addr() && offset < len;
            here.then(|| (before + offset) as u32)
        });
        found.expect("the address is one of a chunk")
    }

    /// Each chunk that this thread sees, in order.
    ///
    /// It does not stop at the first chunk that the thread does not see. A thread that has an index of a chunk has
    /// synchronized with the thread that made this chunk, but not necessarily with those that made the chunks before.
    /// See `docs/design/table.md`.
    fn chunks(&self) -> impl Iterator<Item = Chunk<T>> + '_ {
        let mut hole = false;
        let later =
            self.later.iter().enumerate().skip(self.first_place()).filter_map(move |(chunk, later)| {
                // Acquire: as in `get_later`.
                let start = later.load(Ordering::Acquire);
                hole |= start.is_null() && busted::is(Variant::StopAtHole);
                let before = len_of(chunk).wrapping_sub(self.bias);
                (!start.is_null() && !hole).then(|| Chunk { before, start, len: len_of(chunk) })
            });
        std::iter::once(Chunk { before: 0, start: self.first.start(), len: self.first.len() }).chain(later)
    }

    /// The [blocks](Slab::blocks) of all chunks that this thread sees: the indices of the values that are in each, if only in part, and what
    /// gives its memory back. Without blocks that go beyond all indices, as the last ones of the largest chunk do.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Block> + '_ {
        self.chunks().flat_map(|Chunk { before, start, len }| {
            // SAFETY: a chunk has this start and length, and it is not dropped here.
            let slab = ManuallyDrop::new(unsafe { Slab::from_raw(start, len) });
            let blocks = slab.blocks();
            blocks.filter_map(move |block| {
                let (from, to) = (block.start / size_of::<T>(), block.end.div_ceil(size_of::<T>()));
                let values = indices(before + from, before + to)?;
                Some(Block { values, start: start.wrapping_byte_add(block.start).cast(), bytes: block.len() })
            })
        })
    }

    /// Memory reserved for values, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.chunks().map(|chunk| chunk.len * size_of::<T>()).sum()
    }

    /// Moves the chunks out: the caller owns their memory from now on.
    ///
    /// # Safety
    /// Called once, by a thread that has synchronized with all threads that made chunks or used values. None does so
    /// later, and this value is not dropped.
    pub(crate) unsafe fn take(&self) -> impl Iterator<Item = Slab<T>> + '_ {
        // SAFETY: `new` and `ensure` forgot a slab of each start and length. Each is taken once, and nothing refers to
        // the values any more.
        self.chunks().map(|Chunk { start, len, .. }| unsafe { Slab::from_raw(start, len) })
    }
}

/// One chunk, and the number of values before it.
struct Chunk<T> {
    before: usize,
    start: *mut T,
    len: usize,
}

/// A [block](Slab::blocks) of a chunk.
pub(crate) struct Block {
    /// The indices of the values that are in the block, if only in part.
    pub(crate) values: Range<u32>,
    start: *mut u8,
    bytes: usize,
}

impl Block {
    /// Gives the memory of the block back. It holds zeroes from now on.
    ///
    /// # Safety
    /// The chunks still exist. No reference to a value that is in part in the block exists, and nobody else uses such a value meanwhile.
    pub(crate) unsafe fn discard(&self) {
        // SAFETY: the block is in a slab, which does not begin at null and whose mapping has whole pages. Nobody uses its values.
        unsafe { discard(NonNull::new_unchecked(self.start), self.bytes) };
    }
}

/// Length of the chunk at a place of `later`.
fn len_of(place: usize) -> usize {
    1 << (LEAST as usize + place)
}

/// Length of the first of the later chunks, behind a first chunk of `len` values: `len`, rounded down to a power of two, or `1 << LEAST`
/// if that is more.
fn second_len_of(len: usize) -> usize {
    1 << len.max(1 << LEAST).ilog2()
}

impl<T: Zeroed> Drop for Chunks<T> {
    fn drop(&mut self) {
        // SAFETY: the owner drops this value once, with exclusive access. `take` was not called before: by its
        // contract, the value would not be dropped.
        unsafe { self.take() }.for_each(drop);
    }
}

/// These places as indices; `None` if there are none for some of them.
fn indices(from: usize, to: usize) -> Option<Range<u32>> {
    Some(u32::try_from(from).ok()?..u32::try_from(to).ok()?)
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_goes_beyond_all_indices_has_none() {
        let most = u32::MAX as usize;
        assert_eq!(indices(most - 4, most), Some(u32::MAX - 4..u32::MAX));
        assert_eq!((indices(most - 4, most + 4), indices(most + 4, most + 8)), (None, None));
    }
    use stillpoint_sys::sync::atomic::AtomicU32;

    #[test]
    fn every_index_has_a_place_of_its_own() {
        for first in [1, 63, 64, 65, 100, 128, 1_000] {
            let chunks = Chunks::<AtomicU32>::new(first, Touch::Lazily).unwrap();
            let mut seen = std::collections::HashSet::new();
            for index in (0..5_000).step_by(if cfg!(miri) { 61 } else { 1 }) {
                assert!(chunks.ensure(index));
                let place = chunks.get(index);
                assert!(seen.insert(place), "{index} behind a chunk of {first}");
                assert_eq!(chunks.index_of(place), index, "behind a chunk of {first}");
            }
        }
    }

    #[test]
    fn each_chunk_is_twice_as_long_as_the_one_before() {
        let chunks = Chunks::<AtomicU32>::new(100, Touch::Lazily).unwrap();
        (0..5_000).for_each(|index| assert!(chunks.ensure(index)));
        assert_eq!(chunks.bytes(), 4 * (100 + 64 + 128 + 256 + 512 + 1024 + 2048 + 4096));
    }

    /// A thread may see a chunk and none of those before it. Chunks made in this order have the same effect.
    #[test]
    fn an_index_is_found_behind_chunks_that_are_not_seen() {
        let chunks = Chunks::<AtomicU32>::new(100, Touch::Lazily).unwrap();
        for (index, bytes) in [(5_000, 4096), (400, 256), (100, 64)] {
            let before = chunks.bytes();
            assert!(chunks.ensure(index));
            assert_eq!(chunks.bytes(), before + 4 * bytes);
            for index in [0, 99, index, index + 1] {
                assert_eq!(chunks.index_of(chunks.get(index)), index);
            }
        }
        assert_eq!(chunks.index_of(chunks.get(5_000)), 5_000);
    }

    #[test]
    fn chunks_end_where_the_next_ones_begin() {
        let chunks = Chunks::<AtomicU32>::new(100, Touch::Lazily).unwrap();
        for (index, end) in [(0, 100), (99, 100), (100, 164), (163, 164), (164, 292), (291, 292), (292, 548)]
        {
            assert_eq!(chunks.end_of_chunk(index), end, "{index}");
        }
        assert_eq!(chunks.end_of_chunk(u32::MAX), u32::MAX);
    }

    #[test]
    fn the_highest_index_has_a_chunk() {
        let chunks = Chunks::<AtomicU32>::new(1, Touch::Lazily).unwrap();
        let (chunk, offset) = chunks.place(u32::MAX as usize);
        assert!(chunk < LATER && offset < len_of(chunk));
    }
}
