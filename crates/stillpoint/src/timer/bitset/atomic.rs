use alloc::boxed::Box;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use super::{words, Bitset};

/// A [`Bitset`] whose bits can be set, cleared, flipped and tested by several threads at once.
///
/// The caller chooses the ordering of each operation, as with the standard library's atomics. Searches load one word
/// after the other. They may or may not see changes that other threads make meanwhile.
///
/// ```
/// use std::sync::atomic::Ordering;
/// use stillpoint::timer::AtomicBitset;
///
/// let claimed = AtomicBitset::new(128);
/// assert!(!claimed.set(70, Ordering::AcqRel)); // the bit was clear, so this thread has claimed it
/// assert!(claimed.test(70, Ordering::Acquire));
/// assert_eq!(claimed.next_set(0, Ordering::Relaxed), Some(70));
/// assert!(claimed.clear(70, Ordering::Release)); // the bit was set, and is given back
///
/// assert!(!claimed.flip(5, Ordering::AcqRel)); // the bit was clear
/// assert!(claimed.snapshot(Ordering::Relaxed).iter().eq([5]));
/// assert_eq!(claimed.size(), 128);
/// ```
pub struct AtomicBitset {
    words: Box<[AtomicU64]>,
    bits: usize,
}

impl AtomicBitset {
    /// An empty set of numbers below `bits`.
    ///
    /// # Panics
    /// If there is no memory.
    pub fn new(bits: usize) -> Self {
        Self { words: (0..words::count_for(bits)).map(|_| AtomicU64::new(0)).collect(), bits }
    }

    /// The size that the set was made with.
    pub fn size(&self) -> usize {
        self.bits
    }

    #[track_caller]
    #[inline]
    fn place(&self, bit: usize) -> (&AtomicU64, u64) {
        assert!(bit < self.bits, "bit {bit} is beyond the {} bits of the bitset", self.bits);
        (&self.words[bit / words::BITS], 1 << (bit % words::BITS))
    }

    /// Whether a bit is set.
    ///
    /// # Panics
    /// If the bit is beyond the size, or the ordering is not one for loads.
    #[inline]
    pub fn test(&self, bit: usize, ordering: Ordering) -> bool {
        let (word, mask) = self.place(bit);
        word.load(ordering) & mask != 0
    }

    /// Sets a bit, by one read-modify-write. Returns whether it was set before.
    ///
    /// # Panics
    /// If the bit is beyond the size.
    #[inline]
    pub fn set(&self, bit: usize, ordering: Ordering) -> bool {
        let (word, mask) = self.place(bit);
        word.fetch_or(mask, ordering) & mask != 0
    }

    /// Clears a bit, by one read-modify-write. Returns whether it was set before.
    ///
    /// # Panics
    /// If the bit is beyond the size.
    #[inline]
    pub fn clear(&self, bit: usize, ordering: Ordering) -> bool {
        let (word, mask) = self.place(bit);
        word.fetch_and(!mask, ordering) & mask != 0
    }

    /// Flips a bit, by one read-modify-write. Returns whether it was set before.
    ///
    /// # Panics
    /// If the bit is beyond the size.
    #[inline]
    pub fn flip(&self, bit: usize, ordering: Ordering) -> bool {
        let (word, mask) = self.place(bit);
        word.fetch_xor(mask, ordering) & mask != 0
    }

    /// The first bit that is set, at `from` or after it. `from` may be beyond the size.
    ///
    /// # Panics
    /// If the ordering is not one for loads.
    pub fn next_set(&self, from: usize, ordering: Ordering) -> Option<usize> {
        let range = from..self.bits;
        words::span(&range).find_map(|index| {
            let found = self.words[index].load(ordering) & words::mask(index, &range);
            (found != 0).then(|| index * words::BITS + found.trailing_zeros() as usize)
        })
    }

    /// A copy, made word by word.
    ///
    /// # Panics
    /// If the ordering is not one for loads.
    pub fn snapshot(&self, ordering: Ordering) -> Bitset {
        Bitset { words: self.words.iter().map(|word| word.load(ordering)).collect(), bits: self.bits }
    }
}

impl fmt::Debug for AtomicBitset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: for debug output.
        self.snapshot(Ordering::Relaxed).fmt(f)
    }
}
