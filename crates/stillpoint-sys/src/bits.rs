//! Sets of numbers below 64, as the bits of a word.

/// The numbers of the bits that are set, from the lowest.
#[inline]
pub fn bits(mut set: u64) -> impl Iterator<Item = u32> + Clone {
    core::iter::from_fn(move || {
        let lowest = set.trailing_zeros();
        set &= set.wrapping_sub(1);
        (lowest < 64).then_some(lowest)
    })
}

#[cfg(test)]
mod tests {
    use super::bits;

    #[test]
    fn every_bit_is_found() {
        assert!(bits(0).next().is_none());
        assert!(bits(1 << 63 | 0b101).eq([0, 2, 63]));
        assert!(bits(u64::MAX).eq(0..64));
    }
}
