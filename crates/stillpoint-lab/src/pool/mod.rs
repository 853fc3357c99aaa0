//! The experiment `pool`: stillpoint's object pool and our driver of DPDK's mempool beside DPDK's own, mimalloc, object-pool and sharded-slab.
//!
//! As in DPDK's `mempool_perf_autotest`, a thread gets objects in bulks until it keeps some number of them, reads
//! each object, and gives them back in bulks. All pools are in one child process, since DPDK can be initialised only
//! once in a process. Short slices of each follow each other in rotated order.

pub(crate) mod child;
mod figures;
mod measure;
mod ours;
mod pipe;
mod plan;
mod watch;

pub(crate) use plan::Plan;

/// The contenders, in the order of the tables.
pub(crate) const CONTENDERS: &[&str] = &[
    "stillpoint/pool",
    "stillpoint/pool+obj",
    "dpdk/stillpoint",
    "dpdk/bucket",
    "dpdk/ring",
    "dpdk/stack",
    "mimalloc",
    "object-pool",
    "sharded-slab",
];

/// What the threads do.
pub(crate) const SCENARIOS: &[&str] =
    &["plain", CONTIGUOUS, "bulks", "single", "private", "producer-consumer", TRANSMIT, TRANSMIT_HUGE];

/// Blocks of objects.
const CONTIGUOUS: &str = "contiguous";
/// The contenders that hand out blocks.
const HAVE_BLOCKS: &[&str] = &["stillpoint/pool", "dpdk/stillpoint", "dpdk/bucket"];

/// Packets from a mempool to DPDK's null device. This scenario has a separate child process, since it initialises
/// DPDK differently.
const TRANSMIT: &str = "transmit";
/// The same in reserved huge pages, in another separate process.
const TRANSMIT_HUGE: &str = "transmit-huge";

/// Whether a scenario sends packets.
fn transmits(scenario: &str) -> bool {
    [TRANSMIT, TRANSMIT_HUGE].contains(&scenario)
}
