//! The child process in which the tables are measured.

use std::process::ExitCode;

use super::Plan;
use crate::child::{self, OnHugePages, OnInterrupt};
use crate::error::Stop;
use crate::interrupt;
use crate::machine::huge_pages::HugePages;
use crate::output::json::Row;

/// Holds the plan, in the child alone.
const VARIABLE: &str = "STILLPOINT_BENCH_TABLE";

/// Runs a plan in a child. Returns its rows, and a sentence about the huge pages.
pub(super) fn run(plan: &Plan) -> Result<(Vec<Row>, String), Stop> {
    // Buckets of 8 bytes an entry and slots of 32 bytes at the most, an eighth more entries, and as much to spare.
    let megabytes = ((plan.entries * 96) >> 20) + 64;
    let pages = plan.has_dpdk().then(|| HugePages::reserve(megabytes)).flatten();
    let _restore = pages.as_ref().map(|pages| interrupt::at_the_end(pages.restorer()));
    let order = OnHugePages { plan, megabytes, huge_pages: pages.is_some() };
    let rows: Option<Vec<Row>> = child::ask(VARIABLE, "measures tables", &order, OnInterrupt::Wait)?;
    let about = match &pages {
        Some(pages) => format!("rte_hash has {} reserved huge pages of 2 MiB", pages.count()),
        None if !plan.has_dpdk() => "no huge pages were reserved".to_owned(),
        None => {
            "rte_hash runs without huge pages: run as root, or reserve them in vm.nr_hugepages".to_owned()
        }
    };
    Ok((rows.unwrap_or_default(), about))
}

/// In the child: measures what the variable says. `None` in a process that is no such child.
pub(crate) fn run_if_child() -> Option<ExitCode> {
    child::answer(VARIABLE, |OnHugePages { plan, megabytes, huge_pages }: OnHugePages<Plan>| {
        super::measure::run(&plan, megabytes, huge_pages)
    })
}
