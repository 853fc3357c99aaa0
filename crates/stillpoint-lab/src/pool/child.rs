//! The child process in which the pools are measured.

use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use stillpoint_peers::pool::OBJECT;

use super::Plan;
use crate::child::{self, OnHugePages, OnInterrupt};
use crate::error::Stop;
use crate::interrupt;
use crate::machine::huge_pages::HugePages;
use crate::output::json::Row;

/// Holds the plan, in the child alone.
const VARIABLE: &str = "STILLPOINT_BENCH_POOL";

/// What the child answers.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) rows: Vec<Row>,
    /// A sentence about each pool.
    pub(super) notes: Vec<String>,
}

/// Runs a plan in a child. Returns its rows, and notes to print below them.
pub(super) fn run(plan: &Plan) -> Result<(Vec<Row>, Vec<String>), Stop> {
    // Six pools of DPDK, whose objects have a header of a cache line, and an eighth more for their driver's blocks.
    let pool = plan.objects() * (OBJECT + 64);
    let for_dpdk = if plan.has_dpdk() { ((6 * (pool + pool / 8)) >> 20) + 64 } else { 0 };
    let ours = 2 * ((pool >> 20) + 8);
    let pages = HugePages::reserve(for_dpdk + ours);
    let _restore = pages.as_ref().map(|pages| interrupt::at_the_end(pages.restorer()));
    let order = OnHugePages { plan, megabytes: for_dpdk, huge_pages: pages.is_some() };
    let answer = child::ask(VARIABLE, "measures pools", &order, OnInterrupt::Wait)?;
    let Answer { rows, mut notes } = answer.unwrap_or_default();
    notes.push(match &pages {
        Some(pages) => format!("{} huge pages of 2 MiB were reserved for the run", pages.count()),
        None => {
            "No huge pages could be reserved, which cripples dpdk/bucket: run as root, or set vm.nr_hugepages"
                .to_owned()
        }
    });
    Ok((rows, notes))
}

/// In the child: measures what the variable says. `None` in a process that is no such child.
pub(crate) fn run_if_child() -> Option<ExitCode> {
    child::answer(VARIABLE, |OnHugePages { plan, megabytes, huge_pages }: OnHugePages<Plan>| {
        super::measure::run(&plan, megabytes, huge_pages)
    })
}
