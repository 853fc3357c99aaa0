//! The experiment `pool`: stillpoint's object pool beside DPDK's mempool drivers, mimalloc, object-pool and sharded-slab.
//!
//! In the manner of DPDK's `mempool_perf_autotest`: a thread gets objects in bulks until it keeps some number, reads each
//! of them, and gives them back in bulks. All pools live in one process, a child of this one since DPDK can be initialised
//! once per process alone; short slices of each follow each other in rotated order.

pub(crate) mod child;
mod measure;
mod ours;
mod pipe;
mod plan;
mod show;

pub(crate) use plan::Plan;

use crate::error::Stop;
use crate::output::json::Row;
use crate::reclaim::names::asked_for;

/// The contenders, in the order of the tables.
pub(crate) const CONTENDERS: &[&str] = &[
    "stillpoint/pool",
    "stillpoint/pool+obj",
    "dpdk/bucket",
    "dpdk/ring",
    "dpdk/stack",
    "mimalloc",
    "object-pool",
    "sharded-slab",
];

/// What the threads do.
pub(crate) const SCENARIOS: &[&str] = &["plain", "contiguous", "single", "private", "producer-consumer"];

/// Whether one of the contenders asked for is a pool.
pub(crate) fn has_contender(asked: &[String]) -> bool {
    CONTENDERS.iter().any(|name| asked_for(name, asked))
}

/// Those of `asked` that are scenarios of this experiment; `None` when all of them belong to others.
pub(crate) fn own_scenarios(asked: &[String]) -> Option<Vec<String>> {
    let own: Vec<String> =
        asked.iter().filter(|asked| SCENARIOS.contains(&asked.as_str())).cloned().collect();
    (asked.is_empty() || !own.is_empty()).then_some(own)
}

/// Runs the experiment in a child process, and prints its tables unless told to be `silent`.
pub(crate) fn run(plan: &Plan, silent: bool) -> Result<Vec<Row>, Stop> {
    let (rows, notes) = child::run(plan)?;
    if !silent {
        show::tables(&rows, &notes);
    }
    Ok(rows)
}
