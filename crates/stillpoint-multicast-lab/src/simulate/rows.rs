//! The points of the figures, as rows.

use serde_json::Value;
use stillpoint_harness::error::Stop;
use stillpoint_harness::interrupt;
use stillpoint_harness::output::json::{Row, number};

use super::Options;
use super::contender::{self, Contender};
use super::experiment::{self, Setup};
use super::machine::Machine;
use super::reach;
use super::sensitivity::{Analysis, SENSITIVITY};

/// The three figures.
pub(super) const RECEIVERS: &str = "receivers";
pub(super) const INITIATORS: &str = "initiators";
pub(super) const SYNCHRONIZE: &str = "synchronize";
/// The scenarios: the figures, and the conclusions with changed inputs.
pub(super) const SCENARIOS: [&str; 4] = [RECEIVERS, INITIATORS, SYNCHRONIZE, SENSITIVITY];

/// The contender that the others are compared to.
pub(super) const BASE: &str = "flat";
/// The parameter of `synchronize`; 0 means as often as possible.
pub(super) const HERTZ: &str = "hertz";

/// Operations of each initiator. A few operations after a common start would not give a sustained rate.
const OPERATIONS: usize = 100;
const FREQUENCIES: [f64; 9] = [100.0, 300.0, 1e3, 2e3, 3e3, 5e3, 1e4, 3e4, 0.0];

/// What is simulated.
#[derive(Debug)]
pub(super) struct Plan {
    contenders: Vec<Contender>,
    /// The scenario of each point, and its number of receivers or initiators, or its frequency.
    points: Vec<(&'static str, f64)>,
    operations: usize,
    seed: u64,
    sensitivity: bool,
}

impl Plan {
    /// # Errors
    /// If there are more receivers or initiators than the machine has room for.
    pub(super) fn new(options: &Options, machine: &Machine) -> Result<Self, Stop> {
        let cpus = machine.cpus();
        let wanted =
            |scenario: &str| options.scenarios.is_empty() || options.scenarios.iter().any(|s| s == scenario);
        let mut points: Vec<(&str, f64)> = Vec::new();
        let counts = [
            (RECEIVERS, &options.receivers, cpus - 1, usual_receivers as fn(usize) -> Vec<usize>),
            (INITIATORS, &options.initiators, cpus, usual_initiators),
        ];
        for (scenario, asked, most, usual) in counts.into_iter().filter(|of| wanted(of.0)) {
            if let Some(count) = asked.iter().find(|&&count| count as usize > most) {
                return Err(Stop::usage(format!(
                    "{count} {scenario} are too many: {} has {cpus} CPUs, so give at most {most}",
                    machine.name
                )));
            }
            let asked: Vec<usize> = asked.iter().map(|&count| count as usize).collect();
            let counts = if asked.is_empty() { usual(most) } else { asked };
            points.extend(counts.into_iter().map(|count| (scenario, count as f64)));
        }
        if wanted(SYNCHRONIZE) {
            let asked = options.frequencies.as_slice();
            let all = if asked.is_empty() { &FREQUENCIES } else { asked };
            points.extend(all.iter().map(|&hertz| (SYNCHRONIZE, hertz)));
        }
        let named = |contender: &&Contender| {
            options.contenders.is_empty() || options.contenders.iter().any(|name| name == contender.name)
        };
        Ok(Self {
            contenders: contender::CONTENDERS.iter().filter(named).copied().collect(),
            points,
            operations: options.operations.map_or(OPERATIONS, |count| count as usize),
            seed: options.seed,
            sensitivity: wanted(SENSITIVITY),
        })
    }

    /// Whether the contender of this name is simulated.
    pub(super) fn has(&self, name: &str) -> bool {
        self.contenders.iter().any(|contender| contender.name == name)
    }

    /// All rows of the figures; after Ctrl-C, the rows that are complete. Simulates as many contenders at a time as
    /// there are CPUs.
    pub(super) fn run(&self, machine: &Machine) -> Vec<Row> {
        experiment::in_parallel(&self.contenders, |&contender| self.of(machine, contender)).concat()
    }

    /// The conclusions with changed inputs, if they were asked for; `None` after Ctrl-C.
    pub(super) fn analyse(&self, machine: &Machine) -> Option<Analysis> {
        if self.sensitivity { Analysis::of(machine, self.seed) } else { None }
    }

    /// What would let the flat order reach the poster's frequency, if conclusions were asked for; empty after Ctrl-C.
    pub(super) fn reach(&self, machine: &Machine) -> Vec<Row> {
        if self.sensitivity { reach::rows(machine, self.seed) } else { Vec::new() }
    }

    /// The rows of a contender, up to Ctrl-C.
    fn of(&self, machine: &Machine, contender: Contender) -> Vec<Row> {
        // Grace periods need barriers, not flushes.
        let points =
            self.points.iter().filter(|(scenario, _)| *scenario != SYNCHRONIZE || !contender.flushes);
        let rows = points.map(|&(scenario, at)| self.row(machine, contender, scenario, at));
        rows.take_while(|_| !interrupt::requested()).collect()
    }

    fn row(&self, machine: &Machine, contender: Contender, scenario: &'static str, at: f64) -> Row {
        let setup = Setup { machine, contender, count: self.operations, seed: self.seed };
        if scenario == SYNCHRONIZE {
            let outcome = setup.grace_periods(at);
            let base = contender::find(BASE).map(|contender| Setup { contender, ..setup }.grace_periods(at));
            let beside = base.and_then(|base| outcome.loss_beside(&base)).unwrap_or(f64::NAN);
            let metrics = [
                ("reached_hertz", outcome.hertz),
                ("reader_throughput_percent", outcome.reading * 100.0),
                ("reader_loss_beside_flat_percent", beside * 100.0),
                ("reader_ns_per_grace_period", outcome.taken),
            ];
            return row(scenario, contender, (HERTZ, number(at)), &metrics, outcome.broken);
        }
        let count = at as usize;
        let outcome = if scenario == RECEIVERS { setup.receivers(count) } else { setup.initiators(count) };
        let metrics = [
            ("latency_us_p10", outcome.quantile(0.1) / 1e3),
            ("latency_us_p50", outcome.quantile(0.5) / 1e3),
            ("latency_us_p90", outcome.quantile(0.9) / 1e3),
            ("ops_per_s", outcome.per_second),
            ("interrupt_commands_per_op", outcome.commands),
        ];
        row(scenario, contender, (scenario, count.into()), &metrics, outcome.broken)
    }
}

fn row(
    scenario: &str,
    contender: Contender,
    (param, value): (&str, Value),
    metrics: &[(&str, f64)],
    void: Option<String>,
) -> Row {
    let mut row = Row { void, ..Row::new("simulate", scenario, contender.name).with(param, value) };
    if row.void.is_none() {
        metrics.iter().for_each(|&(name, value)| row.put(name, value, 3));
    }
    row
}

/// Every eighth number, more of the small ones, and those around the point where the second threads of the cores
/// begin.
fn usual_receivers(most: usize) -> Vec<usize> {
    let few = [1, 2, 4, 8, 12].into_iter();
    let mut counts: Vec<usize> = few.chain((16..most).step_by(8)).filter(|&count| count < most).collect();
    counts.push(most);
    counts
}

/// Powers of two up to half of the CPUs, half of the CPUs, and all of them.
fn usual_initiators(most: usize) -> Vec<usize> {
    let powers = std::iter::successors(Some(1), |count| Some(count * 2));
    let mut counts: Vec<usize> =
        powers.take_while(|&count| count == 1 || count < most / 2).chain([most.div_ceil(2), most]).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_points_end_with_the_whole_machine() {
        for most in [1, 2, 3, 9, 79, 143] {
            for counts in [usual_receivers(most), usual_initiators(most)] {
                assert_eq!(counts.last(), Some(&most));
                assert!(counts.is_sorted_by(|a, b| a < b) && counts[0] == 1, "{counts:?}");
            }
        }
        assert!(usual_initiators(144).contains(&72));
    }

    #[test]
    fn a_row_that_broke_an_invariant_has_no_figures() {
        let contender = contender::CONTENDERS[0];
        let whole = row(RECEIVERS, contender, (RECEIVERS, 3.into()), &[("ops_per_s", 1.23456)], None);
        assert_eq!(whole.metric("ops_per_s"), Some(1.235));
        let broken = Some("a receiver executed its barrier 2 times".to_owned());
        let void = row(RECEIVERS, contender, (RECEIVERS, 3.into()), &[("ops_per_s", 1.0)], broken);
        assert!(void.metrics.is_empty() && stillpoint_harness::output::json::judge(&[whole, void]).is_err());
    }
}
