//! Scans over words of 64 bits; bit 0 is the lowest of the first word.

use core::ops::Range;

pub(super) const BITS: usize = 64;

pub(super) fn count_for(bits: usize) -> usize {
    bits.div_ceil(BITS)
}

/// The bits of word `index` that are in `range`.
pub(super) fn mask(index: usize, range: &Range<usize>) -> u64 {
    let begin = range.start.saturating_sub(index * BITS).min(BITS);
    let end = range.end.saturating_sub(index * BITS).min(BITS);
    if begin >= end {
        return 0;
    }
    (u64::MAX << begin) & (u64::MAX >> (BITS - end))
}

/// The words that have bits of `range`.
pub(super) fn span(range: &Range<usize>) -> Range<usize> {
    if range.start >= range.end {
        return 0..0;
    }
    range.start / BITS..count_for(range.end)
}

/// The first bit of `range` that is set; if `invert` is all ones instead of 0, the first that is clear.
pub(super) fn find(words: &[u64], invert: u64, range: Range<usize>) -> Option<usize> {
    span(&range).find_map(|index| {
        let found = (words[index] ^ invert) & mask(index, &range);
        (found != 0).then(|| index * BITS + found.trailing_zeros() as usize)
    })
}

/// As [`find`], searched from `from` on and then from 0.
pub(super) fn find_around(words: &[u64], invert: u64, bits: usize, from: usize) -> Option<usize> {
    find(words, invert, from..bits).or_else(|| find(words, invert, 0..from))
}
