//! The child process in which the pools are measured.

use serde::{Deserialize, Serialize};
use stillpoint_harness::error::Stop;
use stillpoint_harness::experiment::child;
use stillpoint_harness::interrupt;
use stillpoint_harness::machine::huge_pages::HugePages;
use stillpoint_harness::output::each_once;
use stillpoint_harness::output::format::plain;
use stillpoint_harness::output::json::Row;
use stillpoint_peers::pool::{OBJECT, TRANSMISSION_MEGABYTES};

use super::{Plan, TRANSMIT, TRANSMIT_HUGE, transmits};
use crate::experiment::{OnHugePages, has_dpdk};

#[derive(Serialize, Deserialize)]
pub(crate) struct Order {
    pub(super) on: OnHugePages<Plan>,
    /// The number of the setting to begin with.
    pub(super) first: usize,
    /// Contenders that hung in an earlier child process, by name and cache.
    pub(super) without: Vec<(String, Option<u64>)>,
}

/// What the child answers.
#[derive(Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(super) rows: Vec<Row>,
    /// A sentence about each pool.
    pub(super) notes: Vec<String>,
    /// The setting in which a contender hung, and its row. Nothing was measured after that.
    pub(super) unfinished: Option<(usize, Row)>,
}

impl child::Order for Order {
    const VARIABLE: &'static str = "STILLPOINT_BENCH_POOL";
    const WORK: &'static str = "measures pools";
    /// Pools that get their memory from an allocator have huge pages, too. These variables make mimalloc ask the kernel for them, as the program
    /// does for glibc; the name of the option depends on mimalloc's version.
    const ENVIRONMENT: &'static [(&'static str, &'static str)] =
        &[("MIMALLOC_LARGE_OS_PAGES", "1"), ("MIMALLOC_ALLOW_LARGE_OS_PAGES", "1")];

    type Answer = Answer;

    fn obey(self) -> Result<Answer, String> {
        let limit = super::watch::limit(&self.on.plan);
        super::watch::over(limit, move |report| super::measure::run(&self, report))
    }
}

/// Runs a plan in a child. Returns its rows, and notes to print below them.
pub(super) fn run(plan: &Plan) -> Result<(Vec<Row>, Vec<String>), Stop> {
    let (mut rows, mut notes) = on_huge_pages(&plan.only(|scenario| !transmits(scenario)))?;
    for (scenario, huge_pages) in [(TRANSMIT, false), (TRANSMIT_HUGE, true)] {
        let transmission = plan.only(|of| of == scenario);
        if transmission.settings.is_empty() || interrupt::requested() {
            continue;
        }
        // The huge pages are given back when the child has ended.
        let pages = if huge_pages { HugePages::reserve(TRANSMISSION_MEGABYTES) } else { None };
        if huge_pages && pages.is_none() {
            notes.push(format!(
                "{scenario}: left out, no huge pages could be reserved: run as root, or set vm.nr_hugepages"
            ));
            continue;
        }
        let on = OnHugePages { plan: transmission, megabytes: TRANSMISSION_MEGABYTES, huge_pages };
        let (further, more) = until_all_end(on)?;
        rows.extend(further);
        notes.extend(more.into_iter().map(|note| format!("{scenario}: {note}")));
    }
    Ok((rows, notes))
}

fn on_huge_pages(plan: &Plan) -> Result<(Vec<Row>, Vec<String>), Stop> {
    if plan.settings.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    // At most eight pools of DPDK, whose objects have a header of one cache line, plus an eighth for the driver's
    // blocks; or four pools of objects that are twice as large.
    let pool = plan.objects() * (OBJECT + 64);
    let for_dpdk = if has_dpdk(&plan.contenders) { ((8 * (pool + pool / 8)) >> 20) + 64 } else { 0 };
    let ours = 4 * ((pool >> 20) + 8);
    let pages = HugePages::reserve(for_dpdk + ours);
    let on = OnHugePages { plan: plan.clone(), megabytes: for_dpdk, huge_pages: pages.is_some() };
    let (rows, mut notes) = until_all_end(on)?;
    let settings = <Order as child::Order>::ENVIRONMENT.iter().map(|(name, value)| format!("{name}={value}"));
    let settings = settings.collect::<Vec<_>>().join(", ");
    notes.push(format!("Huge pages for every allocator of the process: {settings}"));
    notes.push(match &pages {
        Some(pages) => format!("{} reserved huge pages of 2 MiB were available to the run", pages.count()),
        None => {
            "No huge pages could be reserved, which slows dpdk/bucket down: run as root, or set vm.nr_hugepages"
                .to_owned()
        }
    });
    Ok((rows, notes))
}

/// Runs one child after the other, each without the contenders that hung in an earlier one.
fn until_all_end(on: OnHugePages<Plan>) -> Result<(Vec<Row>, Vec<String>), Stop> {
    let (mut rows, mut notes): (Vec<Row>, Vec<String>) = (Vec::new(), Vec::new());
    let mut order = Order { on, first: 0, without: Vec::new() };
    while let Some(answer) = child::ask(&order)? {
        rows.extend(answer.rows);
        notes = each_once(notes.into_iter().chain(answer.notes));
        let Some((setting, row)) = answer.unfinished else { break };
        // The child has ended, and the hung contender with it. The next child leaves that contender out.
        order.without.push((row.contender.clone(), row.param("cache")));
        order.first = setting;
        if let Some(reason) = row.metrics.get("unfinished") {
            notes.push(format!("{}, {}: {}", row.scenario, row.contender, plain(reason)));
        }
        rows.push(row);
        if interrupt::requested() {
            break;
        }
    }
    Ok((rows, notes))
}
