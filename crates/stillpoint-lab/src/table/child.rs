//! The child process in which the tables are measured.

use super::Plan;
use crate::child::{self, OnHugePages};
use crate::error::Stop;
use crate::experiment::has_dpdk;
use crate::machine::huge_pages::HugePages;
use crate::output::json::Row;

impl child::Order for OnHugePages<Plan> {
    const VARIABLE: &'static str = "STILLPOINT_BENCH_TABLE";
    const WORK: &'static str = "measures tables";

    type Answer = Vec<Row>;

    fn obey(self) -> Result<Vec<Row>, String> {
        super::measure::run(&self.plan, self.megabytes, self.huge_pages)
    }
}

/// Runs a plan in a child. Returns its rows, and a sentence about the huge pages.
pub(super) fn run(plan: &Plan) -> Result<(Vec<Row>, String), Stop> {
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
