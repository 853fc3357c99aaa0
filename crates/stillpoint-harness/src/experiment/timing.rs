//! How a run's time is divided among its rows.

use std::time::Duration;

use crate::flags::LengthFlags;

/// Time in which a usual run has to end, set-up and the ends of rounds included.
const USUAL: Duration = Duration::from_secs(105);
/// The same for a short run.
const QUICK: Duration = Duration::from_secs(78);
/// The shortest round of a usual run, however many rows there are.
const SHORTEST_ROUND: Duration = Duration::from_millis(50);
/// Some deletes fit into any round.
const LEAST_ROUND: Duration = Duration::from_millis(1);
const ROUNDS: u32 = 3;

/// The time that an experiment needs, beside the time that it measures.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Before the first round.
    pub set_up: Duration,
    /// For each round, beside its measured time.
    pub round_overhead: Duration,
    /// The measured time that is enough for a row of a usual run. If there are many rows, each gets less.
    pub usual_row: Duration,
    /// See `usual_row`.
    pub quick_row: Duration,
}

impl Budget {
    /// Rounds, and the time of each.
    pub fn timing(&self, length: &LengthFlags, rows: usize) -> (u32, Duration) {
        let rounds = length.rounds_or(ROUNDS, ROUNDS, 5);
        if let Some(row) = length.duration {
            return (rounds, (row / rounds).max(LEAST_ROUND));
        }
        if length.full {
            return (rounds, Duration::from_secs(10) / rounds);
        }
        let (row, budget) = if length.quick { (self.quick_row, QUICK) } else { (self.usual_row, USUAL) };
        let room = (budget - self.set_up) / (rows.max(1) as u32 * rounds);
        (rounds, (row / rounds).min(room.saturating_sub(self.round_overhead)).max(SHORTEST_ROUND))
    }

    /// Whether a usual run of this many rows, or a short one, ends in time.
    pub fn fits(&self, quick: bool, rows: usize) -> bool {
        let flags = LengthFlags { quick, full: false, duration: None, rounds: None };
        let (rounds, round) = self.timing(&flags, rows);
        let whole = self.set_up + (round + self.round_overhead) * rounds * rows as u32;
        whole <= if quick { QUICK } else { USUAL }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Budget = Budget {
        set_up: Duration::from_secs(5),
        round_overhead: Duration::from_millis(100),
        usual_row: Duration::from_secs(1),
        quick_row: Duration::from_secs(2),
    };

    fn length(quick: bool, full: bool) -> LengthFlags {
        LengthFlags { quick, full, duration: None, rounds: None }
    }

    #[test]
    fn more_rows_have_less_time_each_until_no_run_is_short_enough() {
        assert_eq!(BUDGET.timing(&length(false, false), 3), (3, Duration::from_secs(1) / 3));
        assert!(BUDGET.timing(&length(false, false), 100).1 < Duration::from_millis(300));
        assert!(BUDGET.fits(false, 100) && BUDGET.fits(true, 80));
        assert!(!BUDGET.fits(true, 1000));
    }

    #[test]
    fn a_full_run_measures_ten_seconds_a_row() {
        let (rounds, round) = BUDGET.timing(&length(false, true), 1000);
        assert_eq!(round * rounds, Duration::from_secs(10));
    }

    #[test]
    fn a_given_time_is_shared_by_the_rounds() {
        let flags =
            LengthFlags { duration: Some(Duration::from_secs(1)), rounds: Some(4), ..length(true, false) };
        assert_eq!(BUDGET.timing(&flags, 1000), (4, Duration::from_millis(250)));
    }
}
