//! The keys that are looked up.

/// The numbers of the entries to look up, in this order.
pub(super) fn sequence(scenario: &str, entries: usize, len: usize, seed: u64) -> Vec<usize> {
    let mut random = fastrand::Rng::with_seed(seed);
    if scenario == "zipf" {
        let zipf = Zipf::new(entries);
        // The frequent entries are scattered, so that they were not inserted one after the other.
        return (0..len).map(|_| scatter(zipf.rank(random.f64()), entries)).collect();
    }
    (0..len).map(|_| random.usize(0..entries)).collect()
}

fn scatter(rank: usize, entries: usize) -> usize {
    ((rank as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % entries as u64) as usize
}

/// Zipf's distribution with the exponent 0.99, after Gray and others, "Quickly Generating Billion-Record Synthetic
/// Databases", SIGMOD 1994, as in the YCSB benchmark.
struct Zipf {
    entries: f64,
    zeta: f64,
    eta: f64,
}

const THETA: f64 = 0.99;

impl Zipf {
    fn new(entries: usize) -> Self {
        let zeta = |entries: usize| (1..=entries).map(|rank| (rank as f64).powf(-THETA)).sum::<f64>();
        let (all, two) = (zeta(entries), zeta(2));
        let entries = entries as f64;
        let eta = (1.0 - (2.0 / entries).powf(1.0 - THETA)) / (1.0 - two / all);
        Self { entries, zeta: all, eta }
    }

    /// The rank, from 0, of a random number from 0 to 1.
    fn rank(&self, random: f64) -> usize {
        let scaled = random * self.zeta;
        if scaled < 1.0 {
            0
        } else if scaled < 1.0 + 0.5f64.powf(THETA) {
            1
        } else {
            let rank = self.entries * (self.eta * random - self.eta + 1.0).powf(1.0 / (1.0 - THETA));
            (rank as usize).min(self.entries as usize - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_entries_have_most_lookups_in_zipf_alone() {
        let most_frequent = |scenario| {
            let mut counts = vec![0usize; 10_000];
            sequence(scenario, 10_000, 100_000, 7).into_iter().for_each(|entry| counts[entry] += 1);
            counts.sort_unstable();
            counts[9_900..].iter().sum::<usize>()
        };
        let (zipf, uniform) = (most_frequent("zipf"), most_frequent("uniform"));
        assert!((40_000..70_000).contains(&zipf), "{zipf} of the lookups at one entry in a hundred");
        assert!(uniform < 3_000, "{uniform}");
    }
}
