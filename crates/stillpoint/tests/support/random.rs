//! Random numbers that can be repeated from their seed.

/// Marsaglia's xorshift, "Xorshift RNGs", Journal of Statistical Software 8(14), 2003.
pub(crate) struct Random(u64);

impl Random {
    /// Seeds may be close to each other, but not 0.
    pub(crate) fn new(seed: u64) -> Self {
        // Far apart, since neighbours would begin alike; odd, so that nothing but 0 becomes 0.
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}
