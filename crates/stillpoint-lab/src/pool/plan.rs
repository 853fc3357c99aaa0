//! The plan of the experiment.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use stillpoint_harness::error::Stop;
use stillpoint_harness::flags::LengthFlags;
use stillpoint_harness::output::figures::Figure;
use stillpoint_peers::pool::Shape;

use super::{CONTENDERS, SCENARIOS, child, transmits};
use crate::experiment::{self, BenchArgs, Experiment, Measured, has_dpdk, in_scenario};
use crate::peers;

/// The most objects that a cache holds, DPDK's and ours.
pub(super) const CACHE: usize = 512;

/// Objects of a block in the RFC. Other blocks have 31.
pub(super) const SMALL_BLOCK: usize = 15;
/// Objects of the blocks that one call gets, if it gets many: 15 blocks of 31.
const MANY: usize = 465;

/// What is measured for a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Setting {
    pub(super) scenario: String,
    pub(super) keep: usize,
    /// The objects of one get. For blocks, a multiple of the objects of a block.
    pub(super) get: usize,
    /// The objects of one put; 0 for blocks that go back whole.
    pub(super) put: usize,
    pub(super) threads: usize,
}

impl Setting {
    pub(super) fn shape(&self) -> Shape {
        Shape { keep: self.keep, get: self.get, put: self.put }
    }
}

/// What to measure. It travels to the child process as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(super) settings: Vec<Setting>,
    pub(super) contenders: Vec<String>,
    pub(super) rounds: u32,
    /// The time of one slice of a contender.
    pub(super) slice: Duration,
    pub(super) cpus: Vec<usize>,
}

impl experiment::Plan for Plan {
    const EXPERIMENT: Experiment = Experiment::Pool;
    const CONTENDERS: &'static [&'static str] = CONTENDERS;
    const SCENARIOS: &'static [&'static str] = SCENARIOS;
    const OPTIONS: &'static [&'static str] = &[];
    const FIGURES: &'static [&'static Figure] = super::figures::FIGURES;

    fn new(args: &BenchArgs, cpus: &[usize], scenarios: &[String]) -> Result<Self, Stop> {
        let contenders = experiment::contenders::<Self>(&args.contenders, peers::missing_dpdk)?;
        let length = &args.length;
        let asked =
            |setting: &Setting| in_scenario(&setting.scenario, scenarios) && setting.threads <= cpus.len();
        let mut settings: Vec<Setting> = settings(length).into_iter().filter(asked).collect();
        if settings.is_empty() {
            return Err(Stop::usage("these scenarios need two CPUs: give --cpus at least two"));
        }
        if !has_dpdk(&contenders) {
            settings.retain(|setting| !transmits(&setting.scenario));
        }
        if settings.is_empty() {
            let why = peers::missing_dpdk("dpdk/ring").unwrap_or_else(|| "it was not asked for".to_owned());
            return Err(Stop::usage(format!("transmit needs DPDK: {why}")));
        }
        let rounds = length.rounds_or(3, 5, 15);
        let slice = length.slice(rounds, Duration::from_millis(if length.full { 20 } else { 5 }));
        Ok(Self { settings, contenders, rounds, slice, cpus: cpus.to_vec() })
    }

    fn run(&self) -> Result<Measured, Stop> {
        child::run(self)
    }
}

impl Plan {
    /// The same plan with only the settings whose scenarios are wanted.
    pub(super) fn only(&self, wanted: impl Fn(&str) -> bool) -> Self {
        let mut plan = self.clone();
        plan.settings.retain(|setting| wanted(&setting.scenario));
        plan
    }

    /// Whether its settings send packets.
    pub(super) fn transmits(&self) -> bool {
        self.settings.first().is_some_and(|setting| transmits(&setting.scenario))
    }

    /// Objects of each pool: as many as all threads keep, plus as many as caches may hold.
    pub(super) fn objects(&self) -> usize {
        let most = self.settings.iter().map(|setting| setting.keep * setting.threads).max().unwrap_or(0);
        most + 2 * (self.cpus.len().max(2)) * CACHE + 4096
    }
}

/// Every setting, those with a bar first. On several cores, a usual run keeps only one number of objects.
fn settings(length: &LengthFlags) -> Vec<Setting> {
    let keeps: &[usize] = length.pick(&[465], &[30, 60, 465, 4_030], &[30, 60, 465, 4_030, 32_767]);
    let mut all = Vec::new();
    let mut add = |scenario: usize, keep: usize, get: usize, put: usize, threads: usize| {
        all.push(Setting { scenario: SCENARIOS[scenario].to_owned(), keep, get, put, threads });
    };
    let cores = |keep: usize| -> &[usize] {
        let usual: &[usize] = if keep == 465 { &[1, 2, 4] } else { &[1] };
        length.pick(&[1], usual, &[1, 2, 4])
    };
    for &keep in keeps {
        for &threads in cores(keep) {
            for get in [15, 31] {
                [1, 15, 31].into_iter().for_each(|put| add(0, keep, get, put, threads));
            }
        }
    }
    for &keep in keeps {
        for &threads in cores(keep) {
            if keep >= 31 {
                [1, 15, 31, 0].into_iter().for_each(|put| add(1, keep, 31, put, threads));
            }
            // The RFC's blocks, and many blocks in one call.
            [1, 15, 0].into_iter().for_each(|put| add(1, keep, SMALL_BLOCK, put, threads));
            if keep == MANY {
                add(1, keep, MANY, 0, threads);
            }
        }
    }
    let bulks: &[usize] = length.pick(&[32], &[1, 32], &[1, 4, 8, 32]);
    let kept: &[usize] = length.pick(&[128], &[128], &[32, 128, 512]);
    for &keep in kept {
        for &threads in length.pick::<&[usize]>(&[1], &[1, 2, 4], &[1, 2, 4]) {
            for &get in bulks {
                bulks.iter().for_each(|&put| add(2, keep, get, put, threads));
            }
        }
    }
    add(3, 1, 1, 1, 1);
    for &keep in keeps {
        for threads in [1, 2] {
            add(4, keep, 31, 31, threads);
        }
    }
    add(5, 31, 31, 31, 2);
    for scenario in [6, 7] {
        [1, 2, 4].into_iter().for_each(|threads| add(scenario, 32, 32, 1, threads));
    }
    all
}
