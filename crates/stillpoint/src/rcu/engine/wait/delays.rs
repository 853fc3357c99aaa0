//! How long objects have waited from their retirement until they were freed, for the domain's statistics: a sample of one in
//! [`EVERY`] of the objects that a retire list frees. Lists count on where the last one ended, so threads that free few objects are
//! sampled as others.

use std::time::Duration;

// Not modelled: statistics, which order nothing. So all accesses are relaxed.
use std::sync::atomic::{AtomicU64, Ordering};

/// One in this many objects is sampled.
pub(crate) const EVERY: u64 = 64;

/// Buckets of an octave: a bucket's ends differ by a fourth of the lower one, or less.
const SUB: usize = 4;
const SUB_BITS: u32 = SUB.trailing_zeros();
/// The first octave begins at 256 ns, and the last one ends at 18 minutes. The buckets at both ends are open.
const FIRST: u32 = 8;
const BUCKETS: usize = 32 * SUB;

#[derive(Debug)]
pub(crate) struct Counts([AtomicU64; BUCKETS]);

impl Counts {
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    pub(crate) fn count(&self, delay: Duration) {
        self.0[bucket_of(delay)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Delays {
        Delays { counts: std::array::from_fn(|bucket| self.0[bucket].load(Ordering::Relaxed)) }
    }
}

fn bucket_of(delay: Duration) -> usize {
    let nanoseconds = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX).max(1 << FIRST);
    let octave = nanoseconds.ilog2();
    let sub = (nanoseconds >> (octave - SUB_BITS)) as usize % SUB;
    ((octave - FIRST) as usize * SUB + sub).min(BUCKETS - 1)
}

/// Where the bucket ends.
fn end_of(bucket: usize) -> Duration {
    let octave = FIRST + (bucket / SUB) as u32;
    Duration::from_nanos(((SUB + bucket % SUB + 1) as u64) << (octave - SUB_BITS))
}

/// A histogram of delays from retirement to free, of one in 64 objects that the domain has freed: see
/// [`Stats::delays`](crate::rcu::Stats::delays). The destructor's own time is included.
#[derive(Clone, PartialEq, Eq)]
pub struct Delays {
    counts: [u64; BUCKETS],
}

impl Delays {
    /// Number of samples.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// A delay that `percent` of the samples did not exceed, at most a fourth too high; `None` without samples. At most 18 minutes.
    ///
    /// ```
    /// use stillpoint::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let mut reclaimer = domain.reclaimer();
    /// for number in 0..64 {
    ///     reclaimer.retire(domain.cell(number).take().expect("never empty here"))?;
    ///     reclaimer.poll();
    /// }
    /// assert!(domain.stats().delays.percentile(99.0).is_some());
    /// # Ok::<(), stillpoint::rcu::RetireError<i32>>(())
    /// ```
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        let count = self.count();
        // Without `f64::ceil`, for which some compilers need the mathematical library of C.
        let rank = count as f64 * percent / 100.0;
        let whole = rank as u64;
        let rank = whole.saturating_add(u64::from((whole as f64) < rank)).clamp(1, count.max(1));
        let mut left = rank;
        let bucket = self.counts.iter().position(|&count| {
            let is_here = left <= count;
            left = left.saturating_sub(count);
            is_here
        });
        bucket.map(end_of)
    }

    /// The buckets that have samples, from the shortest delay on: where each ends, and how many samples it has. For histograms of other
    /// libraries.
    ///
    /// ```
    /// let delays = stillpoint::rcu::default_domain().stats().delays;
    /// assert_eq!(delays.buckets().map(|(_, samples)| samples).sum::<u64>(), delays.count());
    /// ```
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let counts = self.counts.iter().enumerate().filter(|(_, &count)| count > 0);
        counts.map(|(bucket, &count)| (end_of(bucket), count))
    }
}

stillpoint_sys::debug!(|this| Delays {
    count: this.count(),
    median: this.percentile(50.0),
    p99: this.percentile(99.0),
    ..
});

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    /// Each delay is below the end of its bucket, and not below the end of the one before.
    #[test]
    fn buckets_meet() {
        for shift in 0..63 {
            for offset in [0, 1, 2, 3] {
                let delay = Duration::from_nanos((1 << shift) + (offset << shift) / 4);
                let bucket = bucket_of(delay);
                assert!(delay < end_of(bucket) || bucket == BUCKETS - 1, "{delay:?}");
                assert!(bucket == 0 || delay >= end_of(bucket - 1), "{delay:?}");
            }
        }
        assert_eq!(bucket_of(Duration::ZERO), 0);
        assert_eq!(bucket_of(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_upper_ends() {
        let counts = Counts::new();
        assert_eq!(counts.read().percentile(50.0), None);
        for millisecond in 1..=100 {
            counts.count(Duration::from_millis(millisecond));
        }
        let delays = counts.read();
        assert_eq!(delays.count(), 100);
        for percent in [1.0, 50.0, 90.0, 99.0, 100.0] {
            let exact = Duration::from_secs_f64(percent / 1000.0);
            let found = delays.percentile(percent).expect("there are samples");
            assert!(found >= exact && found <= exact.mul_f64(1.25), "{percent}: {found:?}");
        }
        assert_eq!(delays.percentile(0.0), delays.percentile(1.0), "the shortest");
        assert_eq!(delays.percentile(200.0), delays.percentile(100.0));
        assert_eq!(delays.buckets().map(|(_, count)| count).sum::<u64>(), 100);
        assert!(format!("{delays:?}").starts_with("Delays { count: 100, median: Some("));
    }
}
