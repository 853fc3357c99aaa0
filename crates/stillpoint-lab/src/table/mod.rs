//! The experiment `table`: stillpoint's hash table beside rte_hash, papaya, dashmap and scc.
//!
//! All contenders are filled with the same keys in one process, a child of this one since DPDK can be initialised once
//! per process alone. Short slices of each follow each other in rotated order, with the same sequence of keys; the sums
//! of the values found must agree.

mod keys;
mod measure;
mod ours;
mod show;

use serde::{Deserialize, Serialize};
use stillpoint_harness::error::Stop;
use stillpoint_harness::experiment::child;
use stillpoint_harness::machine::huge_pages::HugePages;
use stillpoint_harness::output::json::Row;
use stillpoint_peers::table::BURST;

use crate::experiment::{self, BenchArgs, Experiment, OnHugePages, has_dpdk, in_scenario};
use crate::peers;

/// The contenders, in the order of the table.
pub(crate) const CONTENDERS: &[&str] = &[
    "stillpoint/table",
    "stillpoint/table+guard",
    "dpdk/rte_hash",
    "papaya",
    "papaya+guard",
    "dashmap",
    "scc",
];

/// How the keys of lookups are chosen.
pub(crate) const SCENARIOS: &[&str] = &["uniform", "zipf"];

/// What is measured for one kind of keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Setting {
    key_bytes: usize,
    scenario: String,
    threads: usize,
}

/// What to measure. It travels to the child process as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    settings: Vec<Setting>,
    contenders: Vec<String>,
    entries: usize,
    rounds: u32,
    /// Lookups in one slice of a contender.
    slice: usize,
    cpus: Vec<usize>,
    seed: u64,
    /// Whether to time each insertion into a table that grows from nothing.
    growth: bool,
}

impl experiment::Plan for Plan {
    const EXPERIMENT: Experiment = Experiment::Table;
    const SCENARIOS: &'static [&'static str] = SCENARIOS;

    fn contenders() -> Vec<&'static str> {
        CONTENDERS.to_vec()
    }

    fn new(args: &BenchArgs, cpus: &[usize], scenarios: &[String]) -> Result<Self, Stop> {
        let contenders = experiment::contenders::<Self>(&args.contenders, peers::missing_dpdk)?;
        let (quick, full) = (args.length.quick, args.length.full);
        let asked = |setting: &Setting| {
            let named = in_scenario(&setting.scenario, scenarios);
            let simple = setting.key_bytes == 8 && setting.scenario == "uniform";
            named && setting.threads <= cpus.len() && (full || !quick || simple)
        };
        let settings = [8, 16].into_iter().flat_map(|key_bytes| {
            SCENARIOS.iter().flat_map(move |scenario| {
                [1, 2].map(|threads| Setting { key_bytes, scenario: (*scenario).to_owned(), threads })
            })
        });
        let settings: Vec<Setting> = settings.filter(asked).collect();
        if settings.is_empty() {
            return Err(Stop::usage("nothing of this is measured with --quick: leave it out"));
        }
        let rounds = args.length.rounds_or(3, 3, 15);
        Ok(Self {
            settings,
            contenders,
            entries: args.elements,
            rounds,
            slice: (args.elements / 8).next_multiple_of(BURST),
            cpus: cpus.to_vec(),
            seed: args.seed,
            growth: !quick || full,
        })
    }

    fn run(&self, silent: bool) -> Result<Vec<Row>, Stop> {
        let (rows, pages) = run_in_child(self)?;
        if !silent {
            show::tables(&rows, &pages);
        }
        Ok(rows)
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

/// Runs a plan in a child. Returns its rows, and a sentence about the huge pages.
fn run_in_child(plan: &Plan) -> Result<(Vec<Row>, String), Stop> {
    // Buckets of 8 bytes an entry and slots of 32 bytes at the most, an eighth more entries, and as much to spare.
    let megabytes = ((plan.entries * 96) >> 20) + 64;
    let has_dpdk = has_dpdk(&plan.contenders);
    let pages = has_dpdk.then(|| HugePages::reserve(megabytes)).flatten();
    let order = OnHugePages { plan: plan.clone(), megabytes, huge_pages: pages.is_some() };
    let rows = child::ask(&order)?;
    let about = match &pages {
        Some(pages) => format!("rte_hash has {} reserved huge pages of 2 MiB", pages.count()),
        None if !has_dpdk => "no huge pages were reserved".to_owned(),
        None => {
            "rte_hash runs without huge pages: run as root, or reserve them in vm.nr_hugepages".to_owned()
        }
    };
    Ok((rows.unwrap_or_default(), about))
}
