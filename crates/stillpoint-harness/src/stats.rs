//! Figures from samples and from rounds.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The distribution of the delays of one round, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// The mean.
    pub mean: f64,
    /// Half of the samples are not above this.
    pub p50: f64,
    /// 99 % of them are not above this.
    pub p99: f64,
    /// 99.9 % of them are not above this.
    pub p999: f64,
    /// The largest.
    pub max: f64,
}

impl Distribution {
    /// The distribution of samples given in nanoseconds; `None` when there are none.
    pub fn of(nanoseconds: &[u64]) -> Option<Self> {
        if nanoseconds.is_empty() {
            return None;
        }
        // Three digits are more than the machine can repeat. Such a histogram grows as needed, so recording cannot fail.
        let mut histogram = Histogram::<u64>::new(3).ok()?;
        for &sample in nanoseconds {
            histogram.record(sample).ok()?;
        }
        let most = nanoseconds.iter().copied().max()?;
        let micros = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        // A quantile is the upper end of its bucket, which may lie above the largest sample.
        let quantile = |q| micros(histogram.value_at_quantile(q).min(most));
        Some(Self {
            mean: nanoseconds.iter().sum::<u64>() as f64 / nanoseconds.len() as f64 / 1e3,
            p50: quantile(0.5),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: micros(most),
        })
    }
}

/// The median; the mean of the two in the middle if the number of values is even.
///
/// # Panics
/// If there is no value.
pub fn median(mut values: Vec<f64>) -> f64 {
    assert!(!values.is_empty(), "the median of no values");
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_does_not_follow_an_outlier() {
        assert_eq!(median(vec![3.0, 1000.0, 1.0]), 3.0);
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(vec![7.0]), 7.0);
    }

    #[test]
    fn percentiles_are_those_of_the_samples() {
        let samples: Vec<u64> = (1..=10_000).map(|i| i * 1_000).collect();
        let delays = Distribution::of(&samples).unwrap();
        assert_eq!(delays.mean, 5_000.5);
        assert_eq!(delays.max, 10_000.0);
        for (found, expected) in [(delays.p50, 5_000.0), (delays.p99, 9_900.0), (delays.p999, 9_990.0)] {
            assert!((found / expected - 1.0f64).abs() < 0.002, "{found} instead of {expected}");
        }
    }

    #[test]
    fn no_samples_have_no_distribution() {
        assert_eq!(Distribution::of(&[]), None);
    }

    #[test]
    fn one_stall_shows_in_the_maximum_and_not_in_the_median() {
        let mut samples = vec![5_000; 999];
        samples.push(90_000_000);
        let delays = Distribution::of(&samples).unwrap();
        assert!((delays.p50 - 5.0).abs() < 0.01 && delays.max == 90_000.0, "{delays:?}");
    }
}
