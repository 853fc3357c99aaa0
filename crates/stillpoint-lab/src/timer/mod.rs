//! The experiment `timer`: stillpoint's wheel beside rte_timer and the wheels of other crates.
//!
//! All contenders get the same random delays, each in its own ticks, in a child process. Short slices of each
//! contender follow each other in rotated order. Every timer that was added must fire or be cancelled.

mod connections;
mod cycles;
mod figures;
mod measure;
mod ours;
mod queues;
mod remote;
mod steady;

use serde::{Deserialize, Serialize};
use stillpoint_harness::error::Stop;
use stillpoint_harness::experiment::child;
use stillpoint_harness::experiment::control::contender;
use stillpoint_harness::output::figures::Figure;
use stillpoint_harness::output::json::Row;

use crate::experiment::{self, BenchArgs, Experiment, Measured, asked_for, in_scenario};
use crate::peers;

/// The contenders, in the order of the tables: first those that get the time as an integer, then those that get it in
/// the types of the standard library, then those that read a clock at each call.
pub(crate) const CONTENDERS: &[&str] = &[
    WHEEL,
    HTIMER,
    "stillpoint/wheel+instant",
    DELAY_QUEUE,
    "nexus-timer",
    "tokio-util",
    "hierarchical_hash_wheel_timer",
    "stillpoint/wheel+clock",
    "nexus-timer+clock",
    "dpdk/rte_timer",
    DROP_IN,
];

/// Our wheel.
const WHEEL: &str = "stillpoint/wheel";

/// Our queue of delays, in the scenario `queues`.
const DELAY_QUEUE: &str = "stillpoint/delay-queue";

/// Our timers with functions, in C.
const HTIMER: &str = "c/htimer";

/// The same program as `dpdk/rte_timer`, compiled against our `rte_timer.h`.
const DROP_IN: &str = "drop-in/rte_timer";

/// The source of a contender's time. Only contenders with the same source are compared.
fn time(name: &str) -> &'static str {
    match contender(name) {
        WHEEL | HTIMER => "integer",
        name if name.ends_with("+clock") || name.ends_with("/rte_timer") => "clock",
        _ => "std",
    }
}

/// One thread and its own timers; the same with timeouts of one length that are renewed for ever; two threads, one of
/// which adds to the other's wheel; an application; and queues of delays that a task reads.
pub(crate) const SCENARIOS: &[&str] = &["own", "steady", "remote", "connections", "queues"];

/// The longest delay, in ticks.
const SPAN: u64 = 1_000_000;
/// An hour in nanoseconds: a multiple of `SPAN`.
const HOUR: u64 = 3_600_000_000_000;

/// What to measure. It travels to the child process as JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    scenarios: Vec<String>,
    contenders: Vec<String>,
    timers: Vec<usize>,
    /// How many timers the wheels have in which timers never end.
    steady: Vec<usize>,
    connections: usize,
    rounds: u32,
    cpus: Vec<usize>,
    seed: u64,
}

/// DPDK can be initialised only once in a process.
impl child::Order for Plan {
    const VARIABLE: &'static str = "STILLPOINT_BENCH_TIMER";
    const WORK: &'static str = "measures timers";

    type Answer = Vec<Row>;

    fn obey(self) -> Result<Vec<Row>, String> {
        measure::run(&self)
    }
}

impl experiment::Plan for Plan {
    const EXPERIMENT: Experiment = Experiment::Timer;
    const CONTENDERS: &'static [&'static str] = CONTENDERS;
    const SCENARIOS: &'static [&'static str] = SCENARIOS;
    const TIMED: &'static [&'static str] = &[];
    const OPTIONS: &'static [&'static str] = &["connections"];
    const FIGURES: &'static [&'static Figure] = figures::FIGURES;

    fn new(args: &BenchArgs, cpus: &[usize], scenarios: &[String]) -> Result<Self, Stop> {
        let contenders = experiment::contenders::<Self>(&args.contenders, peers::hint)?;
        let timers: &[usize] = args.length.pick(
            &[10_000],
            &[10, 10_000, 1_000_000],
            &[10, 100, 1_000, 10_000, 100_000, 1_000_000],
        );
        let asked = SCENARIOS.iter().filter(|name| in_scenario(name, scenarios));
        Ok(Self {
            scenarios: asked.map(|&name| name.to_owned()).collect(),
            contenders,
            timers: timers.to_vec(),
            steady: args.length.pick(&steady::TIMERS[..1], &steady::TIMERS, &steady::TIMERS).to_vec(),
            connections: args.connections.unwrap_or(args.length.pick(100_000, 1_000_000, 1_000_000)),
            rounds: args.length.rounds_or(5, 7, 21),
            cpus: cpus.to_vec(),
            seed: args.seed,
        })
    }

    fn run(&self) -> Result<Measured, Stop> {
        Ok((child::ask(self)?.unwrap_or_default(), Vec::new()))
    }
}

impl Plan {
    /// The plan for ten thousand timers of one thread, with those of `contenders` that were asked for and are built
    /// in.
    pub(crate) fn of(args: &BenchArgs, cpus: &[usize], contenders: &[&str]) -> Option<Self> {
        let is_here = |name: &&&str| asked_for(name, &args.contenders) && peers::hint(name).is_none();
        let contenders: Vec<String> =
            contenders.iter().filter(is_here).map(|&name| name.to_owned()).collect();
        (!contenders.is_empty()).then(|| Self {
            scenarios: vec!["own".to_owned()],
            contenders,
            timers: vec![10_000],
            steady: Vec::new(),
            connections: 0,
            rounds: args.length.rounds_or(5, 7, 21),
            cpus: cpus.to_vec(),
            seed: args.seed,
        })
    }

    fn has(&self, scenario: &str) -> bool {
        self.scenarios.iter().any(|name| name == scenario)
    }
}
