//! Sets of small numbers, one bit each.

mod words;

use alloc::boxed::Box;
use alloc::vec;
use core::fmt;

/// A set of numbers below a fixed size, one bit each, searched by words of 64 bits.
///
/// Each level of a [`Wheel`](super::Wheel) has one such word. This type is the general form, for queues, slots, ports
/// and the like.
///
/// Operations on numbers beyond the size panic, as with slices.
///
/// ```
/// use stillpoint::timer::Bitset;
///
/// let mut used = Bitset::new(100);
/// (0..10).chain(50..100).for_each(|port| used.set(port));
/// let port = used.next_clear(0).expect("some are free");
/// used.set(port);
/// assert!(used.test(10) && used.next_set(0) == Some(0) && used.next_set(11) == Some(50));
///
/// used.clear(3); // this port is given back
/// assert_eq!((used.next_clear(50), used.next_clear_around(50)), (None, Some(3)));
/// assert_eq!((used.count(), used.next_set_around(99)), (60, Some(99)));
/// assert!(!used.is_empty() && used.size() == 100);
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Bitset {
    /// Bits of the last word that are beyond the size are clear.
    words: Box<[u64]>,
    bits: usize,
}

impl Bitset {
    /// An empty set of numbers below `bits`.
    ///
    /// # Panics
    /// If the set would have more than `isize::MAX` bytes. Without memory, it ends as `Vec` does.
    pub fn new(bits: usize) -> Self {
        Self { words: vec![0; words::count_for(bits)].into_boxed_slice(), bits }
    }

    /// The size that the set was made with.
    pub fn size(&self) -> usize {
        self.bits
    }

    #[track_caller]
    #[inline]
    fn place(&self, bit: usize) -> (usize, u64) {
        assert!(bit < self.bits, "bit {bit} is beyond the {} bits of the bitset", self.bits);
        (bit / words::BITS, 1 << (bit % words::BITS))
    }

    /// Whether a bit is set.
    ///
    /// # Panics
    /// If the bit is beyond the size.
    #[inline]
    pub fn test(&self, bit: usize) -> bool {
        let (word, mask) = self.place(bit);
        self.words[word] & mask != 0
    }

    /// Sets a bit.
    ///
    /// # Panics
    /// If the bit is beyond the size.
    #[inline]
    pub fn set(&mut self, bit: usize) {
        let (word, mask) = self.place(bit);
        self.words[word] |= mask;
    }

    /// Clears a bit.
    ///
    /// # Panics
    /// If the bit is beyond the size.
    #[inline]
    pub fn clear(&mut self, bit: usize) {
        let (word, mask) = self.place(bit);
        self.words[word] &= !mask;
    }

    /// The number of bits that are set.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether no bit is set.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// The first bit that is set, at `from` or after it. `from` may be beyond the size.
    #[inline]
    pub fn next_set(&self, from: usize) -> Option<usize> {
        words::find(&self.words, 0, from..self.bits)
    }

    /// The first bit that is clear, at `from` or after it. `from` may be beyond the size.
    #[inline]
    pub fn next_clear(&self, from: usize) -> Option<usize> {
        words::find(&self.words, u64::MAX, from..self.bits)
    }

    /// The first bit that is set, searched from `from` on and then from 0.
    #[inline]
    pub fn next_set_around(&self, from: usize) -> Option<usize> {
        words::find_around(&self.words, 0, self.bits, from.min(self.bits))
    }

    /// The first bit that is clear, searched from `from` on and then from 0.
    #[inline]
    pub fn next_clear_around(&self, from: usize) -> Option<usize> {
        words::find_around(&self.words, u64::MAX, self.bits, from.min(self.bits))
    }

    /// The bits that are set, in order. Complexity: proportional to the number of words and of bits that are set.
    ///
    /// ```
    /// use stillpoint::timer::Bitset;
    ///
    /// let mut bits = Bitset::new(131);
    /// [3, 64, 130].map(|bit| bits.set(bit));
    /// assert_eq!(bits.iter().collect::<Vec<_>>(), [3, 64, 130]);
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            let rest = core::iter::successors(Some(word), |word| Some(word & word.wrapping_sub(1)));
            rest.take_while(|&word| word != 0)
                .map(move |word| index * words::BITS + word.trailing_zeros() as usize)
        })
    }
}

impl fmt::Debug for Bitset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
