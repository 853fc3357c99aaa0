//! The child process in which the pools are measured.

use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stillpoint_peers::pool::OBJECT;

use super::Plan;
use crate::child::{self, OnInterrupt};
use crate::error::Stop;
use crate::interrupt;
use crate::machine::huge_pages::HugePages;
use crate::output::json::Row;

/// Holds the plan, in the child alone.
const VARIABLE: &str = "STILLPOINT_BENCH_POOL";

#[derive(Serialize, Deserialize)]
struct Order {
    plan: Plan,
    megabytes: usize,
    huge_pages: bool,
}

#[derive(Deserialize)]
struct ReadRow {
    scenario: String,
    contender: String,
    params: Map<String, Value>,
    metrics: Map<String, Value>,
    void: Option<String>,
}

#[derive(Deserialize)]
struct ReadAnswer {
    rows: Vec<ReadRow>,
    notes: Vec<String>,
}

/// What the child answers.
#[derive(Serialize)]
pub(super) struct Answer {
    pub(super) rows: Vec<Row>,
    /// A sentence about each pool.
    pub(super) notes: Vec<String>,
}

/// Runs a plan in a child. Returns its rows, and notes to print below them.
pub(super) fn run(plan: &Plan) -> Result<(Vec<Row>, Vec<String>), Stop> {
    let failed = |what: &str, error: &dyn std::fmt::Display| Stop::Failed(format!("{what}: {error}"));
    // Six pools of DPDK, whose objects have a header of a cache line, and an eighth more for their driver's blocks.
    let pool = plan.objects() * (OBJECT + 64);
    let for_dpdk = if plan.has_dpdk() { ((6 * (pool + pool / 8)) >> 20) + 64 } else { 0 };
    let ours = 2 * ((pool >> 20) + 8);
    let pages = HugePages::reserve(for_dpdk + ours);
    let _restore = pages.as_ref().map(|pages| interrupt::at_the_end(pages.restorer()));
    let order = Value::Object(Map::from_iter([
        (
            "plan".to_owned(),
            serde_json::to_value(plan).map_err(|error| failed("the plan has no form", &error))?,
        ),
        ("megabytes".to_owned(), for_dpdk.into()),
        ("huge_pages".to_owned(), pages.is_some().into()),
    ]));
    let answer: Option<ReadAnswer> = child::ask(VARIABLE, "measures pools", &order, OnInterrupt::Wait)?;
    let ReadAnswer { rows, mut notes } = answer.unwrap_or(ReadAnswer { rows: Vec::new(), notes: Vec::new() });
    let rows = rows.into_iter().map(|row| Row {
        experiment: "pool",
        scenario: row.scenario,
        contender: row.contender,
        params: row.params,
        metrics: row.metrics,
        void: row.void,
    });
    notes.push(match &pages {
        Some(pages) => format!("{} huge pages of 2 MiB were reserved for the run", pages.count()),
        None => {
            "No huge pages could be reserved, which cripples dpdk/bucket: run as root, or set vm.nr_hugepages"
                .to_owned()
        }
    });
    Ok((rows.collect(), notes))
}

/// In the child: measures what the variable says. `None` in a process that is no such child.
pub(crate) fn run_if_child() -> Option<ExitCode> {
    child::answer(VARIABLE, |Order { plan, megabytes, huge_pages }: Order| {
        super::measure::run(&plan, megabytes, huge_pages)
    })
}
