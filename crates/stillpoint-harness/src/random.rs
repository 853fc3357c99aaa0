//! Random keys, the same for every contender.

/// Marsaglia's xorshift with 64 bits of state and the shifts 13, 7 and 17.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator whose seed may be any number.
    pub fn new(seed: u64) -> Self {
        // Seeds that differ in one bit must not begin with similar keys, and a state of 0 would stay 0:
        // the finisher of splitmix64 spreads the bits, and is 0 for only one seed.
        let mut state = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self::from_state(state ^ (state >> 31))
    }

    /// A generator that begins right at `state`.
    fn from_state(state: u64) -> Self {
        Self { state: state.max(1) }
    }

    /// The next number; never 0.
    #[inline(always)]
    pub fn draw(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    /// The numbers below `count` in a random order.
    pub fn shuffled(&mut self, count: usize) -> Vec<u32> {
        let mut shuffled: Vec<u32> = (0..count as u32).collect();
        for last in (1..count).rev() {
            shuffled.swap(last, (self.draw() % (last as u64 + 1)) as usize);
        }
        shuffled
    }

    /// The number after `skipped` others.
    pub fn nth(mut self, skipped: usize) -> u64 {
        for _ in 0..skipped {
            self.draw();
        }
        self.draw()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_seed_gets_stuck() {
        for seed in [0, 1, u64::MAX, 0u64.wrapping_sub(0x9e37_79b9_7f4a_7c15)] {
            let mut random = Random::new(seed);
            let first = random.draw();
            assert!(first != 0 && random.draw() != first, "seed {seed}");
        }
    }

    #[test]
    fn near_seeds_give_different_keys() {
        let first = |seed| Random::new(seed).draw() & 0xffff;
        assert!(first(1) != first(2) && first(2) != first(3));
    }

    #[test]
    fn keys_reach_every_index() {
        let mut random = Random::new(7);
        let mut seen = [false; 64];
        for _ in 0..4096 {
            seen[random.draw() as usize & 63] = true;
        }
        assert!(seen.iter().all(|&seen| seen));
    }
}
