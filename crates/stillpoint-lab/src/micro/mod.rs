//! The experiment `micro`: what single operations cost, on one thread with nobody in the way.

mod ours;
mod show;

use std::time::{Duration, Instant};

use stillpoint_harness::error::Stop;
use stillpoint_harness::experiment::rounds::in_turns;
use stillpoint_harness::interrupt;
use stillpoint_harness::machine::cpus;
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::progress::Progress;
use stillpoint_peers::Micro;

use crate::experiment::{self, BenchArgs, Experiment, asked_for, in_scenario};
use crate::reclaim::names::CONTENDERS;

/// The operations, which are the scenarios of this experiment.
const OPERATIONS: &[&str] = &["quiescent", "pin", "protect", "start", "check", "retire", "heavy"];

/// The shortest time of one sample: long beside a clock read and an interrupt.
const LEAST_SAMPLE: Duration = Duration::from_millis(10);
/// The first guess at the number of iterations, doubled until a sample is long enough.
const FIRST_ITERATIONS: u64 = 64;
/// A sample is at least so many times as long as its fixed cost.
const FIXED_COST_SHARE: u32 = 10;

/// What to measure.
#[derive(Debug)]
pub(crate) struct Plan {
    operations: Vec<Micro>,
    rounds: u32,
    sample: Duration,
    cpu: usize,
}

impl experiment::Plan for Plan {
    const EXPERIMENT: Experiment = Experiment::Micro;
    const SCENARIOS: &'static [&'static str] = OPERATIONS;

    fn contenders() -> Vec<&'static str> {
        let mut names: Vec<&str> = all().map(|micro| micro.contender).collect();
        names.sort_by_key(|name| order(name));
        names.dedup();
        names
    }

    fn new(args: &BenchArgs, cpus: &[usize], names: &[String]) -> Result<Self, Stop> {
        let asked = |micro: &Micro| {
            in_scenario(micro.operation, names) && asked_for(micro.contender, &args.contenders)
        };
        let operations: Vec<Micro> = all().filter(asked).collect();
        if operations.is_empty() {
            return Err(Stop::usage("none of these contenders has one of these operations"));
        }
        let rounds = args.length.rounds_or(5, 9, 21);
        let sample = args.length.slice(rounds, LEAST_SAMPLE);
        let cpu = *cpus.last().ok_or_else(|| Stop::usage("no CPU was chosen to measure on"))?;
        Ok(Self { operations, rounds, sample, cpu })
    }

    /// On a thread of its own.
    fn run(&self, silent: bool) -> Result<Vec<Row>, Stop> {
        let rows = std::thread::scope(|scope| {
            scope.spawn(|| measure(self)).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
        .map_err(Stop::usage)?;
        if !silent {
            show::table(&rows, self.cpu);
        }
        Ok(rows)
    }
}

fn all() -> impl Iterator<Item = Micro> {
    ours::operations().into_iter().chain(stillpoint_peers::micro())
}

fn measure(plan: &Plan) -> Result<Vec<Row>, String> {
    cpus::pin(plan.cpu)?;
    let progress = Progress::new(plan.operations.len() * plan.rounds as usize);
    let begin = |micro: &Micro| progress.begin(format!("micro {} {}", micro.operation, micro.contender));
    let calibrate = |micro| {
        begin(micro);
        (micro, calibrate(micro.run, plan.sample))
    };
    let calibrated: Vec<(&Micro, Calibration)> = plan.operations.iter().map(calibrate).collect();
    let samples = in_turns(
        &calibrated,
        plan.rounds,
        |round| progress.stage(&format!("micro, round {} of {}", round + 1, plan.rounds)),
        |&(micro, calibration), ()| {
            begin(micro);
            let sample = nanoseconds(micro.run, calibration);
            progress.step();
            Ok(sample)
        },
    );
    samples
        .into_iter()
        .map(|((micro, calibration), samples)| Ok(row(micro, &samples?, *calibration)))
        .collect()
}

/// How often an operation is repeated in one sample, and what a run of no repetition takes: registering, and
/// freeing what is left.
#[derive(Debug, Clone, Copy)]
struct Calibration {
    iterations: u64,
    fixed: Duration,
}

/// Finds the number of iterations that take at least `sample`, and long beside the fixed cost, which varies.
fn calibrate(run: fn(u64), sample: Duration) -> Calibration {
    let fixed = (0..3).map(|_| time(run, 0)).max().unwrap_or_default();
    let enough = sample.max(fixed * FIXED_COST_SHARE) + fixed;
    let mut iterations = FIRST_ITERATIONS;
    while time(run, iterations) < enough && !interrupt::requested() {
        iterations *= 2;
    }
    Calibration { iterations, fixed: (0..3).map(|_| time(run, 0)).min().unwrap_or_default().min(fixed) }
}

fn time(run: fn(u64), iterations: u64) -> Duration {
    let begin = Instant::now();
    run(iterations);
    begin.elapsed()
}

/// The cost of one iteration, without the fixed cost.
fn nanoseconds(run: fn(u64), calibration: Calibration) -> f64 {
    let time = time(run, calibration.iterations).saturating_sub(calibration.fixed);
    time.as_secs_f64() * 1e9 / calibration.iterations as f64
}

fn row(micro: &Micro, samples: &[f64], calibration: Calibration) -> Row {
    let mut row = Row::new("micro", micro.operation, micro.contender)
        .with("rounds", samples.len())
        .with("iterations", calibration.iterations);
    row.put_median("ns_per_op", 3, samples, |&sample| sample);
    row.put_spread("ns_per_op", samples.iter().copied());
    row
}

/// The position of a contender in the tables.
fn order(contender: &str) -> usize {
    CONTENDERS.iter().position(|entry| entry.name == contender).unwrap_or(CONTENDERS.len())
}
