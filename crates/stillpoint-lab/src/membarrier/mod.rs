//! The experiment `membarrier`: how long it takes until every thread of the process has executed a barrier.
//!
//! The system call, the `mprotect` trick, signals flat and along a tree, and the kernel module where it is loaded; against
//! the number of threads, and against the number of initiators at a time. The third scenario measures what readers of
//! the library lose when somebody synchronizes so many times a second.
//!
//! All contenders are measured in one process, a child of this one, with the same threads, in slices that follow each
//! other in rotated order.

mod barriers;
mod crowd;
mod figures;
mod measure;
mod paces;
mod readers;
mod show;

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stillpoint::fence::module;
use stillpoint_harness::error::Stop;
use stillpoint_harness::experiment::child;
use stillpoint_harness::output::figures::Figure;
use stillpoint_harness::output::json::Row;

use crate::experiment::{self, BenchArgs, Experiment, in_scenario};
use crate::peers::group;

/// The contenders, in the order of the tables.
pub(crate) const CONTENDERS: &[&str] = &[
    "syscall",
    "mprotect",
    "signal/flat",
    "signal/tree",
    "signal/hybrid",
    "signal/tree-unhelped",
    "module/builtin",
    "module/flat",
    "module/tree",
    "module/hybrid",
    "mode/asymmetric",
    "mode/signals",
    "mode/symmetric",
    "pace/fence",
    "pace/0us",
    "pace/50us",
    "pace/200us",
    "pace/1000us",
];

/// What is varied: the number of threads, of initiators, how often a writer synchronizes, and its pace of fences.
pub(crate) const SCENARIOS: &[&str] = &["receivers", "initiators", "readers", "paces"];

/// What the threads do meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    /// They sleep in the kernel.
    Paused,
    /// They compute.
    Spinning,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Spinning => "spinning",
        }
    }
}

/// One setting; every contender is measured in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scenario", rename_all = "kebab-case")]
enum Setting {
    /// Barriers one after the other: `threads` receivers, and so many initiators beside them.
    Barriers { threads: usize, initiators: usize, state: State },
    /// Readers on every CPU, and a writer that synchronizes so often; never at 0, and without a pause at `u32::MAX`.
    Readers { per_second: u32 },
    /// The same readers, and a writer that retires objects at one pace of fences or another.
    Paces,
}

/// What to measure. It travels to the child process as JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    settings: Vec<Setting>,
    contenders: Vec<String>,
    rounds: u32,
    /// Of one contender in one round.
    slice: Duration,
    cpus: Vec<usize>,
}

/// Threads beside the initiators whose number is varied.
const AMONG: usize = 32;
const SLICE: Duration = Duration::from_millis(60);

/// What to do to have a contender that needs the kernel module.
fn missing(contender: &str) -> Option<String> {
    let device = module::DEVICE;
    let absent = group(contender) == "module" && !Path::new(device).exists();
    absent.then(|| {
        format!("module/* left out ({device} is not there): load the module as docs/guide/kernel.md says")
    })
}

/// Its threads are all that barriers have to reach there.
impl child::Order for Plan {
    const VARIABLE: &'static str = "STILLPOINT_BENCH_MEMBARRIER";
    const WORK: &'static str = "measures barriers";

    type Answer = Vec<Row>;

    fn obey(self) -> Result<Vec<Row>, String> {
        measure::run(&self)
    }
}

impl experiment::Plan for Plan {
    const EXPERIMENT: Experiment = Experiment::Membarrier;
    const SCENARIOS: &'static [&'static str] = SCENARIOS;
    const FIGURES: &'static [&'static Figure] = figures::FIGURES;

    fn contenders() -> Vec<&'static str> {
        CONTENDERS.to_vec()
    }

    fn new(args: &BenchArgs, cpus: &[usize], scenarios: &[String]) -> Result<Self, Stop> {
        let contenders = experiment::contenders::<Self>(&args.contenders, missing)?;
        let has = |scenario: &str| in_scenario(scenario, scenarios);
        let length = &args.length;
        let all: &[usize] = &[2, 4, 8, 16, 32, 64, 72, 128, 144];
        let (paused, spinning): (&[usize], &[usize]) = match args.readers.as_slice() {
            [] => length.pick((&[8, 128], &[128]), (&[2, 8, 32, 72, 128, 144], &[2, 8, 72, 144]), (all, all)),
            asked => (asked, asked),
        };
        let initiators: &[usize] = if length.quick { &[8] } else { &[1, 2, 4, 8, 16] };
        let frequencies: &[u32] = length.pick(
            &[0, 1_000, 10_000, u32::MAX],
            &[0, 100, 1_000, 10_000, u32::MAX],
            &[0, 100, 1_000, 3_000, 10_000, 30_000, u32::MAX],
        );
        let mut settings = Vec::new();
        if has("receivers") {
            let of = |state, threads: &[usize]| -> Vec<Setting> {
                threads.iter().map(|&threads| Setting::Barriers { threads, initiators: 1, state }).collect()
            };
            settings.extend(of(State::Paused, paused));
            settings.extend(of(State::Spinning, spinning));
        }
        if has("initiators") {
            let (threads, state) = (AMONG, State::Paused);
            let beside =
                initiators.iter().map(|&initiators| Setting::Barriers { threads, initiators, state });
            settings.extend(beside.filter(|setting| !settings.contains(setting)).collect::<Vec<_>>());
        }
        if has("readers") {
            settings.extend(frequencies.iter().map(|&per_second| Setting::Readers { per_second }));
        }
        if has("paces") {
            settings.push(Setting::Paces);
        }
        let rounds = length.rounds_or(3, 3, 7);
        let slice = length.slice(rounds, SLICE);
        Ok(Self { settings, contenders, rounds, slice, cpus: cpus.to_vec() })
    }

    fn run(&self, silent: bool) -> Result<Vec<Row>, Stop> {
        let rows = child::ask(self)?.unwrap_or_default();
        if !silent {
            show::tables(&rows);
        }
        Ok(rows)
    }
}
