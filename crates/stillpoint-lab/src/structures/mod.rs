//! The experiment `structures`: our stack, queue and list beside the same structures over crossbeam-epoch and over haphazard,
//! and beside crossbeam's own structures.
//!
//! Short slices of each contender follow each other in rotated order. The values that come out must be those that
//! were put in.

mod figures;
mod measure;
mod ours;

use std::time::Duration;

use stillpoint_harness::error::Stop;
use stillpoint_harness::output::figures::Figure;

use crate::experiment::{self, BenchArgs, Experiment, Measured, in_scenario};

/// The contenders, in the order of the tables. `guard`: lookups in regions; all others protect nodes one by one.
const CONTENDERS: &[&str] = &[
    "stillpoint/protected",
    "stillpoint/guard",
    "crossbeam-epoch",
    "haphazard",
    "crossbeam-queue",
    "crossbeam-skiplist",
];

/// Each thread pushes and pops in turn; a list with this many lookups and writes in a hundred calls; and the memory that waits
/// to be freed while one reader of a list is stalled.
const SCENARIOS: &[&str] = &["stack", "queue", "list-90-10", "list-50-50", PARKED];
const PARKED: &str = "list-parked";

/// How many keys are in a list most of the time; threads choose from twice as many.
const KEYS: u64 = 128;

/// Whether a contender has the structure of a scenario.
fn takes_part(contender: &str, scenario: &str) -> bool {
    match contender {
        "stillpoint/guard" | "crossbeam-skiplist" => scenario.starts_with("list"),
        "crossbeam-queue" => scenario == "queue",
        _ => true,
    }
}

/// A scenario, and its contenders.
#[derive(Debug, Clone)]
struct Setting {
    scenario: &'static str,
    /// The threads; 1 where one thread writes.
    threads: usize,
    contenders: Vec<String>,
}

impl Setting {
    /// Lookups in a hundred calls.
    fn lookups(&self) -> u64 {
        if self.scenario == "list-90-10" { 90 } else { 50 }
    }
}

/// What to measure.
pub(crate) struct Plan {
    settings: Vec<Setting>,
    rounds: u32,
    /// The time of one slice of a contender.
    slice: Duration,
    /// Entries that are replaced beside a stalled reader.
    replacements: u64,
    cpus: Vec<usize>,
    seed: u64,
}

impl experiment::Plan for Plan {
    const EXPERIMENT: Experiment = Experiment::Structures;
    const CONTENDERS: &'static [&'static str] = CONTENDERS;
    const SCENARIOS: &'static [&'static str] = SCENARIOS;
    const OPTIONS: &'static [&'static str] = &["threads"];
    const FIGURES: &'static [&'static Figure] = figures::FIGURES;

    fn new(args: &BenchArgs, cpus: &[usize], scenarios: &[String]) -> Result<Self, Stop> {
        let contenders = experiment::contenders::<Self>(&args.contenders, |_| None)?;
        let threads = args.length.asked_or(&args.threads, &[1, 2], &[1, 2]);
        let mut settings = Vec::new();
        for &scenario in SCENARIOS.iter().filter(|name| in_scenario(name, scenarios)) {
            let of: Vec<String> =
                contenders.iter().filter(|name| takes_part(name, scenario)).cloned().collect();
            let threads = if scenario == PARKED { &[1] } else { threads.as_slice() };
            for &threads in threads.iter().filter(|&&threads| threads <= cpus.len() && !of.is_empty()) {
                settings.push(Setting { scenario, threads, contenders: of.clone() });
            }
        }
        if settings.is_empty() {
            return Err(Stop::usage(
                "none of these contenders has this structure, or there are more threads than CPUs",
            ));
        }
        let rounds = args.length.rounds_or(5, 9, 21);
        Ok(Self {
            settings,
            rounds,
            slice: args.length.slice(rounds, Duration::from_millis(args.length.pick(20, 40, 100))),
            replacements: args.length.pick(10_000, 100_000, 100_000),
            cpus: cpus.to_vec(),
            seed: args.seed,
        })
    }

    fn run(&self) -> Result<Measured, Stop> {
        Ok((measure::run(self).map_err(Stop::Failed)?, Vec::new()))
    }
}
