//! The child process in which the tables are measured.

use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Plan;
use crate::child::{self, OnInterrupt};
use crate::error::Stop;
use crate::interrupt;
use crate::machine::huge_pages::HugePages;
use crate::output::json::Row;

/// Holds the plan, in the child alone.
const VARIABLE: &str = "STILLPOINT_BENCH_TABLE";

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

/// Runs a plan in a child. Returns its rows, and a sentence about the huge pages.
pub(super) fn run(plan: &Plan) -> Result<(Vec<Row>, String), Stop> {
    let failed = |what: &str, error: &dyn std::fmt::Display| Stop::Failed(format!("{what}: {error}"));
    // Buckets of 8 bytes an entry and slots of 32 bytes at the most, an eighth more entries, and as much to spare.
    let megabytes = ((plan.entries * 96) >> 20) + 64;
    let pages = plan.has_dpdk().then(|| HugePages::reserve(megabytes)).flatten();
    let _restore = pages.as_ref().map(|pages| interrupt::at_the_end(pages.restorer()));
    let order = Value::Object(Map::from_iter([
        (
            "plan".to_owned(),
            serde_json::to_value(plan).map_err(|error| failed("the plan has no form", &error))?,
        ),
        ("megabytes".to_owned(), megabytes.into()),
        ("huge_pages".to_owned(), pages.is_some().into()),
    ]));
    let rows: Option<Vec<ReadRow>> = child::ask(VARIABLE, "measures tables", &order, OnInterrupt::Wait)?;
    let rows = rows.unwrap_or_default().into_iter().map(|row| Row {
        experiment: "table",
        scenario: row.scenario,
        contender: row.contender,
        params: row.params,
        metrics: row.metrics,
        void: row.void,
    });
    let about = match &pages {
        Some(pages) => format!("rte_hash has {} reserved huge pages of 2 MiB", pages.count()),
        None if !plan.has_dpdk() => "no huge pages were reserved".to_owned(),
        None => {
            "rte_hash runs without huge pages: run as root, or reserve them in vm.nr_hugepages".to_owned()
        }
    };
    Ok((rows.collect(), about))
}

/// In the child: measures what the variable says. `None` in a process that is no such child.
pub(crate) fn run_if_child() -> Option<ExitCode> {
    child::answer(VARIABLE, |Order { plan, megabytes, huge_pages }: Order| {
        super::measure::run(&plan, megabytes, huge_pages)
    })
}
