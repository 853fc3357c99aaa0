//! The experiment `micro`: what single operations cost, on one thread without contention, or on two.

mod figures;
mod ours;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use stillpoint_harness::error::Stop;
use stillpoint_harness::experiment::control::{contender, with_control};
use stillpoint_harness::experiment::rounds::in_turns;
use stillpoint_harness::experiment::threads::StopOnDrop;
use stillpoint_harness::interrupt;
use stillpoint_harness::machine::cpus;
use stillpoint_harness::output::figures::Figure;
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::progress::Progress;
use stillpoint_peers::{Micro, Timed};

use crate::experiment::{self, BenchArgs, Experiment, Measured, asked_for, in_scenario};
use crate::reclaim::names::CONTENDERS;

/// The operations, which are the scenarios of this experiment.
const OPERATIONS: &[&str] =
    &["quiescent", "pin", "protect", "keep", "start", "check", "retire", "retire-2", "heavy", "wait"];

/// The shortest time of one sample: long beside a clock read and an interrupt.
const LEAST_SAMPLE: Duration = Duration::from_millis(10);
/// The first guess at the number of iterations, doubled until a sample is long enough.
const FIRST_ITERATIONS: u64 = 64;
/// A sample takes at least this many times its fixed cost.
const FIXED_COST_SHARE: u32 = 10;
/// As often a sample must be long enough: a thread that is preempted once makes any sample long.
const LONG_SAMPLES: usize = 3;

/// One operation of one contender.
pub(crate) struct Operation {
    pub(crate) contender: &'static str,
    pub(crate) name: &'static str,
    /// Performs the operation this many times on the calling thread, and returns how long that took.
    pub(crate) time: Box<dyn Fn(u64) -> Duration + Send + Sync>,
}

impl Operation {
    /// An operation for which everything that `run` does counts.
    pub(crate) fn whole(
        contender: &'static str,
        name: &'static str,
        run: impl Fn(u64) + Send + Sync + 'static,
    ) -> Self {
        let time = move |iterations| {
            let begin = Instant::now();
            run(iterations);
            begin.elapsed()
        };
        Self { contender, name, time: Box::new(time) }
    }
}

/// A writer that waits beside a reader on `cpu`. `read` registers a reader, sets its second flag, and reads until the first flag is set. Only
/// the waits count.
fn waiting(
    contender: &'static str,
    cpu: usize,
    wait: impl Fn(u64) + Send + Sync + 'static,
    read: impl Fn(&AtomicBool, &AtomicBool) + Send + Sync + 'static,
) -> Operation {
    let time = move |iterations| {
        let (stop, begun) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let _stop = StopOnDrop(&stop);
            let reader = scope.spawn(|| {
                // If that fails, both threads share a CPU, which the figure shows.
                let _ = cpus::pin(cpu);
                read(&stop, &begun);
            });
            // Acquire: pairs with the release of the reader.
            while !begun.load(Ordering::Acquire) && !reader.is_finished() {
                std::thread::yield_now();
            }
            let begin = Instant::now();
            wait(iterations);
            begin.elapsed()
        })
    };
    Operation { contender, name: "wait", time: Box::new(time) }
}

impl From<Timed> for Operation {
    fn from(timed: Timed) -> Self {
        let time = move |count| Duration::from_nanos((timed.nanoseconds)(count));
        Self { contender: timed.contender, name: timed.operation, time: Box::new(time) }
    }
}

impl From<Micro> for Operation {
    fn from(micro: Micro) -> Self {
        Self::whole(micro.contender, micro.operation, micro.run)
    }
}

/// What to measure.
pub(crate) struct Plan {
    operations: Vec<Operation>,
    rounds: u32,
    sample: Duration,
    cpu: usize,
}

impl experiment::Plan for Plan {
    const EXPERIMENT: Experiment = Experiment::Micro;
    const SCENARIOS: &'static [&'static str] = OPERATIONS;
    const OPTIONS: &'static [&'static str] = &[];
    const FIGURES: &'static [&'static Figure] = figures::FIGURES;

    fn contenders() -> Vec<&'static str> {
        let known: Vec<&str> = CONTENDERS.iter().map(|entry| entry.name).collect();
        let mut names: Vec<&str> = all(None).map(|operation| operation.contender).collect();
        names.sort_by_key(|name| order(name, &known));
        names.dedup();
        names
    }

    fn new(args: &BenchArgs, cpus: &[usize], names: &[String]) -> Result<Self, Stop> {
        let cpu = *cpus.last().ok_or_else(|| Stop::usage("no CPU was chosen to measure on"))?;
        let other_cpu = cpus.iter().copied().find(|&other| other != cpu);
        let asked = |operation: &Operation| {
            in_scenario(operation.name, names) && asked_for(operation.contender, &args.contenders)
        };
        let operations: Vec<Operation> = all(other_cpu).filter(asked).collect();
        if operations.is_empty() {
            return Err(Stop::usage(
                "none of these contenders has any of these operations: `stillpoint bench EXPERIMENT --help` lists both",
            ));
        }
        Ok(Self::of(operations, args, cpu))
    }

    /// Measures, on a separate thread.
    fn run(&self) -> Result<Measured, Stop> {
        let rows = std::thread::scope(|scope| {
            scope.spawn(|| measure(self)).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        Ok((rows.map_err(Stop::usage)?, vec![format!("On CPU {}.", self.cpu)]))
    }
}

impl Plan {
    /// A plan for these operations.
    pub(crate) fn of(operations: Vec<Operation>, args: &BenchArgs, cpu: usize) -> Self {
        let rounds = args.length.rounds_or(5, 9, 21);
        Self { operations, rounds, sample: args.length.slice(rounds, LEAST_SAMPLE), cpu }
    }
}

/// Our operations in Rust that take one thread.
pub(crate) fn ours() -> Vec<Operation> {
    ours::operations()
}

/// All operations; those that take two threads only if there is another CPU.
fn all(other_cpu: Option<usize>) -> impl Iterator<Item = Operation> {
    // Our operations in C belong to the experiment `capi`.
    let is_peer = |micro: &Micro| CONTENDERS.iter().any(|entry| entry.name == micro.contender);
    let peers = stillpoint_peers::micro().into_iter().filter(is_peer).map(Operation::from);
    let of_two = other_cpu.map(|cpu| {
        let waits = stillpoint_peers::waits().into_iter();
        ours::of_two(cpu).into_iter().chain(waits.map(move |of| waiting(of.contender, cpu, of.wait, of.read)))
    });
    ours::operations().into_iter().chain(of_two.into_iter().flatten()).chain(peers)
}

fn measure(plan: &Plan) -> Result<Vec<Row>, String> {
    cpus::pin(plan.cpu)?;
    let first = plan.operations.first().map(|operation| operation.contender);
    let again = plan.operations.iter().filter(|operation| Some(operation.contender) == first);
    let progress = Progress::new((plan.operations.len() + again.clone().count()) * plan.rounds as usize);
    let begin = |operation: &Operation| {
        progress.begin(format!("{} {}", operation.name, operation.contender));
    };
    let calibrate = |operation| {
        begin(operation);
        let names = if Some(operation.contender) == first {
            with_control(vec![operation.contender.to_owned()])
        } else {
            vec![operation.contender.to_owned()]
        };
        let calibration = calibrate(operation, plan.sample);
        names.into_iter().map(move |name| (name, operation, calibration))
    };
    let calibrated: Vec<(String, &Operation, Calibration)> =
        plan.operations.iter().flat_map(calibrate).collect();
    let samples = in_turns(
        &calibrated,
        plan.rounds,
        |round| progress.stage(&format!("operations, round {} of {}", round + 1, plan.rounds)),
        |&(_, operation, calibration), ()| {
            begin(operation);
            let sample = nanoseconds(operation, calibration);
            progress.step();
            Ok(sample)
        },
    );
    samples
        .into_iter()
        .map(|((name, operation, calibration), samples)| {
            let row = Row::new("micro", operation.name, name);
            Ok(figures(row, &samples?, *calibration))
        })
        .collect()
}

/// How often an operation is repeated in one sample, and the fixed cost: a run without repetitions, which registers, and
/// frees what is left.
#[derive(Debug, Clone, Copy)]
struct Calibration {
    iterations: u64,
    fixed: Duration,
}

/// Finds the number of iterations that take at least `sample`, and much longer than the fixed cost, which varies.
fn calibrate(operation: &Operation, sample: Duration) -> Calibration {
    (operation.time)(0); // the first run of all may build what the others look up, and is no measure of what each run costs
    let fixed = (0..3).map(|_| (operation.time)(0)).max().unwrap_or_default();
    let enough = sample.max(fixed * FIXED_COST_SHARE) + fixed;
    let mut iterations = FIRST_ITERATIONS;
    let is_short = |iterations| (0..LONG_SAMPLES).any(|_| (operation.time)(iterations) < enough);
    while is_short(iterations) && !interrupt::requested() {
        iterations *= 2;
    }
    Calibration {
        iterations,
        fixed: (0..3).map(|_| (operation.time)(0)).min().unwrap_or_default().min(fixed),
    }
}

/// The cost of one iteration, without the fixed cost.
fn nanoseconds(operation: &Operation, calibration: Calibration) -> f64 {
    let time = (operation.time)(calibration.iterations).saturating_sub(calibration.fixed);
    time.as_secs_f64() * 1e9 / calibration.iterations as f64
}

fn figures(row: Row, samples: &[f64], calibration: Calibration) -> Row {
    let mut row = row.with("rounds", samples.len()).with("iterations", calibration.iterations);
    row.put_median("ns_per_op", 3, samples, |&sample| sample);
    row.put_spread("ns_per_op", samples.iter().copied());
    row
}

/// The position of a contender in the tables, the control behind its contender.
fn order(name: &str, contenders: &[&str]) -> (usize, usize) {
    let place = contenders.iter().position(|&entry| entry == contender(name));
    (place.unwrap_or(contenders.len()), name.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With few iterations, the cost of a cold start is taken for that of the operation.
    #[test]
    fn a_preemption_does_not_end_the_search_for_the_number_of_iterations() {
        let is_preempted = AtomicBool::new(true);
        let time = move |iterations: u64| {
            let preempted = iterations > 0 && is_preempted.swap(false, Ordering::Relaxed);
            Duration::from_nanos(iterations) + if preempted { Duration::from_secs(1) } else { Duration::ZERO }
        };
        let operation = Operation { contender: "a", name: "of a nanosecond", time: Box::new(time) };
        let found = calibrate(&operation, LEAST_SAMPLE);
        assert!(found.iterations >= LEAST_SAMPLE.as_nanos() as u64, "{found:?}");
    }

    /// With the time of the table that is built by the first run, each sample would take ten times that.
    #[test]
    fn what_the_first_run_builds_makes_no_sample_longer() {
        let is_first = AtomicBool::new(true);
        let time = move |iterations: u64| {
            let builds = is_first.swap(false, Ordering::Relaxed);
            Duration::from_nanos(iterations) + if builds { Duration::from_secs(1) } else { Duration::ZERO }
        };
        let operation = Operation { contender: "a", name: "looks up what it builds", time: Box::new(time) };
        let found = calibrate(&operation, LEAST_SAMPLE);
        assert!(found.iterations < 4 * LEAST_SAMPLE.as_nanos() as u64, "{found:?}");
    }
}
