//! The experiment `membarrier`: how long it takes until every thread of the process has executed a barrier.
//!
//! The contenders are the system call, the `mprotect` trick, signals flat and along a tree, and the kernel module where it is
//! loaded. They are measured against the number of threads, and against the number of concurrent initiators. The third
//! scenario measures what readers of the library lose when a writer synchronizes at a given rate: the system call and the
//! module's ways are the heavy fence of its domain, beside readers with fences of their own.
//!
//! All contenders are measured in one child process, with the same threads, in slices that follow each other in rotated
//! order. Readers of the library on the module have a second child process, since a process has one back end.

mod barriers;
mod crowd;
mod figures;
mod measure;
mod readers;

use clap::ValueEnum;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stillpoint_harness::error::Stop;
use stillpoint_harness::experiment::child;
use stillpoint_harness::interrupt;
use stillpoint_harness::output::figures::Figure;
use stillpoint_harness::output::json::Row;
use stillpoint_multicast_lab::device;

use crate::experiment::{self, BenchArgs, Experiment, Measured, in_scenario};
use crate::peers::group;

/// The contenders, in the order of the tables.
pub(crate) const CONTENDERS: &[&str] = &[
    "syscall",
    "mprotect",
    "signal/flat",
    "signal/tree",
    "module/smp-call",
    "module/flat",
    "module/tree",
    "module/split",
    "module/hybrid",
    readers::SYMMETRIC,
];

/// What is varied: the number of threads, the number of initiators, and how often a writer synchronizes.
pub(crate) const SCENARIOS: &[&str] = &["receivers", "initiators", "readers"];

/// What the threads do during the barriers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum State {
    /// They sleep in the kernel.
    Paused,
    /// They compute.
    Spinning,
}

stillpoint_harness::named!(State);

/// One setting; every contender is measured in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scenario", rename_all = "kebab-case")]
enum Setting {
    /// Barriers one after the other: `threads` receivers, and `initiators` beside them.
    Barriers { threads: usize, initiators: usize, state: State },
    /// Readers on every CPU, and a writer that synchronizes at this rate: never at 0, without a pause at `u32::MAX`.
    Readers { per_second: u32 },
}

impl Setting {
    /// Whether a contender takes part in it, in the process whose back end is the module, or in the other one.
    fn has(self, contender: &str, on_module: bool) -> bool {
        match self {
            Self::Barriers { .. } => !on_module && contender != readers::SYMMETRIC,
            Self::Readers { .. } => readers::mode_of(contender, on_module).is_some(),
        }
    }
}

/// What to measure. It travels to the child process as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    settings: Vec<Setting>,
    contenders: Vec<String>,
    rounds: u32,
    /// The time of one contender in one round.
    slice: Duration,
    cpus: Vec<usize>,
    /// Whether the module is the back end of the library in this process.
    on_module: bool,
}

/// The number of receivers where the number of initiators is varied.
const AMONG: usize = 32;
const SLICE: Duration = Duration::from_millis(60);

/// How to get a contender that needs the kernel module.
fn missing(contender: &str) -> Option<String> {
    let place = device::DEVICE;
    (group(contender) == "module" && !Path::new(place).exists()).then(|| {
        format!("module/* left out ({place} is not there): load the module as kernel/README.md says")
    })
}

/// Runs in a child process: there, barriers reach only the threads of the plan.
impl child::Order for Plan {
    const VARIABLE: &'static str = "STILLPOINT_BENCH_MEMBARRIER";
    const WORK: &'static str = "measures barriers";

    type Answer = Vec<Row>;

    fn obey(self) -> Result<Vec<Row>, String> {
        measure::run(&self)
    }
}

impl Plan {
    /// The parts that separate processes measure: most of the plan is one part; readers beside a writer on the module are
    /// another, whose process has the module as its back end.
    fn parts(&self) -> Vec<Self> {
        let part = |on_module| {
            let mut part = Self { on_module, ..self.clone() };
            part.settings.retain(|setting| part.contenders.iter().any(|name| setting.has(name, on_module)));
            part
        };
        [false, true].map(part).into_iter().filter(|part| !part.settings.is_empty()).collect()
    }
}

impl experiment::Plan for Plan {
    const EXPERIMENT: Experiment = Experiment::Membarrier;
    const CONTENDERS: &'static [&'static str] = CONTENDERS;
    const SCENARIOS: &'static [&'static str] = SCENARIOS;
    const OPTIONS: &'static [&'static str] = &["readers", "initiators"];
    const FIGURES: &'static [&'static Figure] = figures::FIGURES;

    fn new(args: &BenchArgs, cpus: &[usize], scenarios: &[String]) -> Result<Self, Stop> {
        let contenders = experiment::contenders::<Self>(&args.contenders, missing)?;
        let has = |scenario: &str| in_scenario(scenario, scenarios);
        let length = &args.length;
        let all: &[usize] = &[2, 4, 8, 16, 32, 64, 72, 128, 144];
        let (paused, spinning): (&[usize], &[usize]) = match args.readers.as_slice() {
            [] => length.pick((&[8, 128], &[128]), (&[2, 8, 32, 72, 128, 144], &[2, 8, 72, 144]), (all, all)),
            asked => (asked, asked),
        };
        let several: &[usize] = &[1, 2, 4, 8, 16];
        let initiators: (&[usize], &[usize]) = match args.initiators.as_slice() {
            [] => length.pick((&[8], &[]), (several, &[1, 4, 16]), (several, several)),
            asked => (asked, asked),
        };
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
            let of = |state, several: &[usize]| -> Vec<Setting> {
                several.iter().map(|&n| Setting::Barriers { threads: AMONG, initiators: n, state }).collect()
            };
            let mut beside = [of(State::Paused, initiators.0), of(State::Spinning, initiators.1)].concat();
            beside.retain(|setting| !settings.contains(setting));
            settings.extend(beside);
        }
        if has("readers") {
            settings.extend(frequencies.iter().map(|&per_second| Setting::Readers { per_second }));
        }
        let rounds = length.rounds_or(3, 3, 7);
        let slice = length.slice(rounds, SLICE);
        Ok(Self { settings, contenders, rounds, slice, cpus: cpus.to_vec(), on_module: false })
    }

    fn run(&self) -> Result<Measured, Stop> {
        let mut rows = Vec::new();
        for plan in self.parts().iter().take_while(|_| !interrupt::requested()) {
            rows.extend(child::ask(plan)?.unwrap_or_default());
        }
        readers::relate(&mut rows);
        Ok((rows, Vec::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Plan as _;

    fn planned(line: &str) -> Vec<Setting> {
        let args = BenchArgs::read(&format!("membarrier {line}"));
        Plan::new(&args, &[0, 1], &args.scenarios).unwrap().settings
    }

    #[test]
    fn each_number_of_initiators_is_tried_beside_sleepers_and_beside_spinners() {
        let settings = planned("--scenarios initiators --initiators 2,3");
        let of = |initiators, state| Setting::Barriers { threads: AMONG, initiators, state };
        use State::{Paused, Spinning};
        assert_eq!(settings, [of(2, Paused), of(3, Paused), of(2, Spinning), of(3, Spinning)]);
        assert!(planned("--scenarios initiators").contains(&of(16, Spinning)));
    }

    #[test]
    fn the_back_end_of_a_process_is_that_of_all_its_contenders() {
        let plan = |names: &[&str]| Plan {
            settings: vec![
                Setting::Readers { per_second: 0 },
                Setting::Barriers { threads: 2, initiators: 1, state: State::Paused },
            ],
            contenders: names.iter().map(|&name| name.to_owned()).collect(),
            rounds: 1,
            slice: SLICE,
            cpus: vec![0],
            on_module: false,
        };
        let parts = plan(CONTENDERS).parts();
        let [rest, on_module] = parts.as_slice() else { panic!("{parts:?}") };
        assert!(!rest.on_module && rest.settings.len() == 2);
        assert!(on_module.on_module);
        assert_eq!(on_module.settings, [Setting::Readers { per_second: 0 }]);
        fn of(part: &Plan, setting: usize) -> Vec<&str> {
            let has = |name: &&String| part.settings[setting].has(name, part.on_module);
            part.contenders.iter().filter(has).map(String::as_str).collect()
        }
        assert_eq!(of(rest, 0), ["syscall", "symmetric"]);
        assert_eq!(of(rest, 1), CONTENDERS[..CONTENDERS.len() - 1]);
        assert_eq!(of(on_module, 0).len(), device::Way::ALL.len());
        assert_eq!(plan(&["module/tree"]).parts().iter().map(|part| part.settings.len()).sum::<usize>(), 2);
        assert_eq!(plan(&["symmetric"]).parts().len(), 1);
        assert_eq!(plan(&["mprotect"]).parts()[0].settings.len(), 1);
    }
}
