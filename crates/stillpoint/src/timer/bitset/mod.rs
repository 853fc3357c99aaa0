//! Sets of small numbers, one bit each.

mod words;

use alloc::boxed::Box;
use alloc::vec;
use core::fmt;
use core::ops::{Bound, Range, RangeBounds};

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
/// let mut ports = Bitset::new(100);
/// ports.set(7);
/// ports.set_range(90..);
/// assert_eq!(ports.next_set(8), Some(90));
/// assert_eq!(ports.next_set_around(99), Some(99));
/// assert_eq!(ports.first_clear(), Some(0));
/// assert_eq!(ports.count(), 11);
/// ```
///
/// Ranges, and the searches in a ring:
///
/// ```
/// use stillpoint::timer::Bitset;
///
/// let mut used = Bitset::new(100);
/// used.set_range(..10); // reserved ports
/// let port = used.next_clear(0).expect("some are free");
/// used.assign(port, true);
/// assert!(used.test(10) && used.first_set() == Some(0));
///
/// used.set_range(50..);
/// used.clear(3); // this port is given back
/// assert_eq!((used.next_clear(50), used.next_clear_around(50)), (None, Some(3)));
/// assert_eq!(used.count_range(..10), 9);
///
/// used.flip(3);
/// used.flip_range(..); // now the set of free ports
/// assert_eq!(used.first_set(), Some(11));
/// used.clear_range(11..50);
/// assert!(used.is_empty() && used.size() == 100);
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
    /// If there is no memory.
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

    #[track_caller]
    fn range(&self, range: impl RangeBounds<usize>) -> Range<usize> {
        let begin = match range.start_bound() {
            Bound::Included(&begin) => begin,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.bits,
        };
        assert!(
            begin <= end && end <= self.bits,
            "range {begin}..{end} is not within the {} bits of the bitset",
            self.bits
        );
        begin..end
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

    /// Sets a bit that is clear, and clears one that is set.
    ///
    /// # Panics
    /// If the bit is beyond the size.
    #[inline]
    pub fn flip(&mut self, bit: usize) {
        let (word, mask) = self.place(bit);
        self.words[word] ^= mask;
    }

    /// Sets or clears a bit.
    ///
    /// # Panics
    /// If the bit is beyond the size.
    #[inline]
    pub fn assign(&mut self, bit: usize, value: bool) {
        let (word, mask) = self.place(bit);
        self.words[word] = self.words[word] & !mask | if value { mask } else { 0 };
    }

    /// Sets all bits of a range.
    ///
    /// # Panics
    /// If the range goes beyond the size, or ends before it begins.
    pub fn set_range(&mut self, range: impl RangeBounds<usize>) {
        self.change(range, |word, mask| word | mask);
    }

    /// Clears all bits of a range.
    ///
    /// # Panics
    /// If the range goes beyond the size, or ends before it begins.
    pub fn clear_range(&mut self, range: impl RangeBounds<usize>) {
        self.change(range, |word, mask| word & !mask);
    }

    /// Flips all bits of a range.
    ///
    /// # Panics
    /// If the range goes beyond the size, or ends before it begins.
    pub fn flip_range(&mut self, range: impl RangeBounds<usize>) {
        self.change(range, |word, mask| word ^ mask);
    }

    #[track_caller]
    fn change(&mut self, range: impl RangeBounds<usize>, change: fn(u64, u64) -> u64) {
        let range = self.range(range);
        for index in words::span(&range) {
            self.words[index] = change(self.words[index], words::mask(index, &range));
        }
    }

    /// The number of bits that are set.
    pub fn count(&self) -> usize {
        words::count(&self.words, &(0..self.bits))
    }

    /// The number of bits of a range that are set.
    ///
    /// # Panics
    /// If the range goes beyond the size, or ends before it begins.
    pub fn count_range(&self, range: impl RangeBounds<usize>) -> usize {
        words::count(&self.words, &self.range(range))
    }

    /// Whether no bit is set.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// The first bit that is set.
    #[inline]
    pub fn first_set(&self) -> Option<usize> {
        self.next_set(0)
    }

    /// The first bit that is clear.
    #[inline]
    pub fn first_clear(&self) -> Option<usize> {
        self.next_clear(0)
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
