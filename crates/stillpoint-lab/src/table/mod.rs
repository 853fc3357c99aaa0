//! The experiment `table`: stillpoint's hash table beside rte_hash, papaya, dashmap and scc.
//!
//! - Lookups and writes (`uniform`, `zipf`): all contenders are filled with the same keys in one process. It is a child
//!   process, since DPDK can be initialised only once in a process. Short slices of each follow each other in rotated
//!   order, with the same sequence of keys; the values that they find must be those of the keys.
//! - [`growth`], the [`mixes`] of two harnesses by others, and the map of a web [`service`]: each contender by itself, in a new process for each round.

mod figures;
mod growth;
mod keys;
mod measure;
mod mixes;
mod ours;
mod service;
mod single;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use stillpoint_harness::error::Stop;
use stillpoint_harness::experiment::child;
use stillpoint_harness::experiment::control::with_control;
use stillpoint_harness::machine::huge_pages::HugePages;
use stillpoint_harness::machine::proc::available_memory;
use stillpoint_harness::output::figures::Figure;
use stillpoint_harness::output::json::Row;
use stillpoint_peers::table::BURST;

use crate::experiment::{
    self, BenchArgs, ELEMENTS, Experiment, Measured, OnHugePages, has_dpdk, in_scenario,
};
use crate::peers::{self, group};

pub(crate) use single::Single;

/// The contenders, in the order of the table.
pub(crate) const CONTENDERS: &[&str] = &[
    "stillpoint/table",
    "stillpoint/table+guard",
    "stillpoint/table+get",
    "dpdk/rte_hash",
    "papaya",
    "papaya+guard",
    "dashmap",
    "scc",
    service::LOCKED,
];

/// How the keys of lookups are chosen; memory; the mixes of other harnesses; and a web service's map.
pub(crate) const SCENARIOS: &[&str] =
    &["uniform", "zipf", "growth", mixes::BUSTLE, mixes::CONC_MAP_BENCH, service::SERVICE];

/// A table that fits into the caches next to the processor.
const FEW: usize = 1_000;
/// How long a round of a service lasts.
const ROUND: Duration = Duration::from_millis(400);
/// The fewest lookups of a slice. Builds without optimisation are for tests, which look at the form of the results.
const LEAST: usize = if cfg!(debug_assertions) { 1 << 11 } else { 1 << 16 };

/// What is measured for one kind of keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Setting {
    key_bytes: usize,
    entries: usize,
    scenario: String,
    threads: usize,
}

impl Setting {
    /// Lookups in one slice of a contender.
    fn slice(&self) -> usize {
        (self.entries / 8).max(LEAST).next_multiple_of(BURST)
    }
}

/// What to measure. It travels to the child process as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    settings: Vec<Setting>,
    singles: Vec<single::Setting>,
    contenders: Vec<String>,
    rounds: u32,
    cpus: Vec<usize>,
    seed: u64,
}

impl experiment::Plan for Plan {
    const EXPERIMENT: Experiment = Experiment::Table;
    const CONTENDERS: &'static [&'static str] = CONTENDERS;
    const SCENARIOS: &'static [&'static str] = SCENARIOS;
    const TIMED: &'static [&'static str] = &[service::SERVICE];
    const OPTIONS: &'static [&'static str] = &["threads", "elements"];
    const FIGURES: &'static [&'static Figure] = figures::FIGURES;

    fn new(args: &BenchArgs, cpus: &[usize], scenarios: &[String]) -> Result<Self, Stop> {
        let contenders = experiment::contenders::<Self>(&args.contenders, peers::missing_dpdk)?;
        let (quick, full) = (args.length.quick, args.length.full);
        let rounds = args.length.rounds_or(3, 3, 15);
        let mut threads = args.length.asked_or(&args.threads, &[1, 2], &[1, 2]);
        // Only the threads of a service share CPUs.
        let is_service = !scenarios.is_empty() && scenarios.iter().all(|name| name == service::SERVICE);
        if !is_service && args.threads.iter().any(|&threads| threads > cpus.len()) {
            let (most, cpus) = (threads.iter().max().unwrap_or(&0), cpus.len());
            return Err(Stop::usage(format!(
                "{most} threads are more than the {cpus} CPUs to measure on: give --threads fewer"
            )));
        }
        threads.retain(|&threads| threads <= cpus.len());

        let asked = |scenario: &str| in_scenario(scenario, scenarios);
        let mut settings = Vec::new();
        let elements = args.elements.unwrap_or(ELEMENTS);
        for (key_bytes, entries) in [(8, FEW.min(elements)), (8, elements), (16, elements)] {
            for scenario in ["uniform", "zipf"].into_iter().filter(|scenario| asked(scenario)) {
                // Under Zipf's law, a large table behaves like a small one. A short run has only one kind of keys.
                let is_left_out =
                    if scenario == "zipf" { quick || entries <= FEW } else { quick && key_bytes > 8 };
                settings.extend(threads.iter().filter(|_| !is_left_out).map(|&threads| Setting {
                    key_bytes,
                    entries,
                    scenario: scenario.to_owned(),
                    threads,
                }));
            }
        }
        settings.dedup();
        let mut singles = Vec::new();
        for texts in [false, true].into_iter().filter(|texts| !(quick && *texts)) {
            // A run with numbers as keys takes some tenths of a second, and a run with texts twice as long.
            let part = |share: usize| if full { elements } else { (elements / share).max(FEW) };
            let (entries, capacity) = (part(if quick { 4 } else { 1 }), part(if texts { 4 } else { 2 }));
            if asked("growth") {
                singles.push(single::Setting { texts, work: single::Work::Growth { entries } });
            }
            for mix in mixes::all().into_iter().filter(|mix| asked(mix.harness)) {
                let of = |&threads| single::Work::Mix { mix: mix.name.to_owned(), threads, capacity };
                singles.extend(threads.iter().map(|threads| single::Setting { texts, work: of(threads) }));
            }
        }
        if asked(service::SERVICE) {
            let round = args.length.slice(rounds, args.length.pick(ROUND / 2, ROUND, ROUND));
            let work = service::settings(&args.threads, elements, round)?;
            let work = work.into_iter().map(single::Work::Service);
            singles.extend(work.map(|work| single::Setting { texts: true, work }));
        }
        singles.retain(|of| contenders.iter().any(|name| of.contenders().contains(&name.as_str())));
        if contenders.iter().all(|name| name == service::LOCKED) {
            settings.clear();
        }
        if settings.is_empty() && singles.is_empty() {
            return Err(Stop::usage(
                "--quick, or these contenders, leave nothing to measure here: `stillpoint bench EXPERIMENT --help` lists the choices",
            ));
        }
        let together = settings.iter().map(|of| of.entries * (of.key_bytes + 8) * contenders.len());
        let single = singles.iter().map(single::Setting::least_bytes);
        let needed = together.chain(single).max().unwrap_or(0) as u64;
        experiment::elements_within(available_memory(), Some(elements), |_| needed)?;
        Ok(Self { settings, singles, contenders, rounds, cpus: cpus.to_vec(), seed: args.seed })
    }

    fn run(&self) -> Result<Measured, Stop> {
        let (mut rows, notes) =
            if self.settings.is_empty() { Default::default() } else { run_in_child(self)? };
        rows.extend(single::run(self));
        Ok((rows, notes))
    }
}

impl child::Order for OnHugePages<Plan> {
    const VARIABLE: &'static str = "STILLPOINT_BENCH_TABLE";
    const WORK: &'static str = "measures tables";

    type Answer = Vec<Row>;

    fn obey(self) -> Result<Vec<Row>, String> {
        measure::run(&self.plan, self.megabytes, self.huge_pages)
    }
}

/// Runs a plan in a child. Returns its rows, and a line about the huge pages.
fn run_in_child(plan: &Plan) -> Result<Measured, Stop> {
    // Buckets of 8 bytes an entry and slots of at most 32 bytes, an eighth more entries, and as much to spare.
    let mut plan = plan.clone();
    plan.contenders.retain(|name| name != service::LOCKED);
    let entries = plan.settings.iter().map(|setting| setting.entries).max().unwrap_or_default();
    let tables = with_control(plan.contenders.clone()).iter().filter(|name| group(name) == "dpdk").count();
    let megabytes = tables * ((entries * 96) >> 20) + 64;
    let has_dpdk = has_dpdk(&plan.contenders);
    let pages = has_dpdk.then(|| HugePages::reserve(megabytes)).flatten();
    let order = OnHugePages { plan, megabytes, huge_pages: pages.is_some() };
    let rows = child::ask(&order)?;
    let about = match &pages {
        Some(pages) => format!("rte_hash has {} reserved huge pages of 2 MiB", pages.count()),
        None if !has_dpdk => "no huge pages were reserved".to_owned(),
        None => {
            "rte_hash runs without huge pages: run as root, or reserve them in vm.nr_hugepages".to_owned()
        }
    };
    let about = format!("{about}; malloc and stillpoint ask for transparent ones, for every contender.");
    Ok((rows.unwrap_or_default(), vec![about]))
}
