//! How long it takes to free the idle workers of `call_rcu`, one after the other.

use stillpoint_harness::experiment::control::named_with_control;
use stillpoint_harness::experiment::rounds::in_turns;
use stillpoint_harness::output::json::Row;
use stillpoint_peers::Timed;

use super::WORKERS;
use crate::experiment::{BenchArgs, asked_for};

/// A program on a large machine has this many workers if it makes one for each CPU.
const FREED: u64 = 64;

pub(super) struct Workers {
    contenders: Vec<Timed>,
    rounds: u32,
}

impl Workers {
    /// `None` if no contender with workers was asked for.
    pub(super) fn new(args: &BenchArgs) -> Option<Self> {
        let is_asked =
            |timed: &Timed| timed.operation == WORKERS && asked_for(timed.contender, &args.contenders);
        let contenders: Vec<Timed> = stillpoint_peers::timed().into_iter().filter(is_asked).collect();
        (!contenders.is_empty()).then(|| Self { contenders, rounds: args.length.rounds_or(3, 5, 9) })
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        let named = named_with_control(&self.contenders, |timed| timed.contender);
        let measured = in_turns(&named, self.rounds, |_| (), |(_, timed), ()| Ok((timed.nanoseconds)(FREED)));
        let row = |((name, _), rounds): (&(String, &Timed), Result<Vec<u64>, String>)| {
            Row::new("capi", WORKERS, name).with("workers", FREED).measured(rounds, |row, rounds| {
                row.put_median("ms", 3, &rounds, |&nanoseconds| nanoseconds as f64 / 1e6);
            })
        };
        measured.into_iter().map(row).collect()
    }
}
