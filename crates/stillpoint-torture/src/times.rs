//! Histograms of times: one column for each power of ten.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stillpoint_harness::output::format::micros;
use stillpoint_harness::output::say;

/// The columns. Each ends below its time.
const COLUMNS: [(&str, u64); 8] = [
    ("<1µs", 1_000),
    ("<10µs", 10_000),
    ("<100µs", 100_000),
    ("<1ms", 1_000_000),
    ("<10ms", 10_000_000),
    ("<100ms", 100_000_000),
    ("<1s", 1_000_000_000),
    ("longer", u64::MAX),
];

fn column(nanos: u64) -> usize {
    COLUMNS.iter().position(|&(_, end)| nanos < end).unwrap_or(COLUMNS.len() - 1)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A histogram of durations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Times {
    numbers: [u64; COLUMNS.len()],
    longest: u64,
}

impl Times {
    pub(crate) fn add(&mut self, time: Duration) {
        let nanos = nanos(time);
        self.numbers[column(nanos)] += 1;
        self.longest = self.longest.max(nanos);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.numbers.iter_mut().zip(other.numbers).for_each(|(sum, part)| *sum += part);
        self.longest = self.longest.max(other.longest);
    }

    fn row(&self) -> String {
        let numbers: String = self.numbers.iter().map(|number| format!("{number:>10}")).collect();
        format!("{numbers}{:>12}", micros(self.longest as f64 / 1e3))
    }
}

/// As [`Times`], for many threads at a time.
#[derive(Debug, Default)]
pub(crate) struct SharedTimes {
    numbers: [AtomicU64; COLUMNS.len()],
    longest: AtomicU64,
}

// Relaxed throughout: counts, read when the threads are joined.
impl SharedTimes {
    pub(crate) fn add(&self, time: Duration) {
        let nanos = nanos(time);
        self.numbers[column(nanos)].fetch_add(1, Ordering::Relaxed);
        self.longest.fetch_max(nanos, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Times {
        Times {
            numbers: std::array::from_fn(|column| self.numbers[column].load(Ordering::Relaxed)),
            longest: self.longest.load(Ordering::Relaxed),
        }
    }
}

/// Prints histograms below each other.
pub(crate) fn show(rows: &[(&str, &Times)]) {
    let rows = rows.iter().filter(|(_, times)| times.numbers.iter().any(|&number| number != 0));
    if rows.clone().next().is_none() {
        return;
    }
    let columns: String = COLUMNS.iter().map(|(text, _)| format!("{text:>10}")).collect();
    say(format!("  {:<26}{columns}{:>12}", "times", "longest"));
    for (title, times) in rows {
        say(format!("  {title:<26}{}", times.row()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_powers_of_ten() {
        let mut times = Times::default();
        for nanos in [0, 999, 1_000, 9_999, 20_000_000_000] {
            times.add(Duration::from_nanos(nanos));
        }
        assert_eq!(times.numbers, [2, 2, 0, 0, 0, 0, 0, 1]);
        assert_eq!(times.longest, 20_000_000_000);
        assert!(times.row().ends_with("20.0 s"));
    }

    #[test]
    fn shared_times_count_the_same() {
        let (mut times, shared) = (Times::default(), SharedTimes::default());
        for nanos in [1, 5_000, 70_000_000] {
            times.add(Duration::from_nanos(nanos));
            shared.add(Duration::from_nanos(nanos));
        }
        assert_eq!(shared.get(), times);
        let mut sum = times.clone();
        sum.merge(&times);
        assert_eq!(sum.numbers.iter().sum::<u64>(), 6);
        assert_eq!(sum.longest, 70_000_000);
    }
}
