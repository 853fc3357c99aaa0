use std::time::Duration;

use super::engine::Core;
use crate::fence::FenceError;

/// What a domain has done so far, as the sum of counters that their owners write: exact when the domain is
/// quiet, and a little old otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Tokens started.
    pub grace_periods: u64,
    /// Heavy fences issued: each interrupts every core that runs the process.
    pub heavy_fences: u64,
    /// Objects and callbacks handed to reclaimers or to the domain.
    pub retired: u64,
    /// Objects freed and callbacks called.
    pub freed: u64,
    /// Objects that wait to be freed.
    pub pending: u64,
    /// Their size in bytes, without what they own elsewhere.
    pub pending_bytes: u64,
    /// How long the oldest grace period with pending objects has been going on.
    pub oldest: Option<Duration>,
    /// Registered readers of all kinds.
    pub readers: usize,
    /// How often a preempted reader was helped to run: see [`Help`](super::Help).
    pub helped: u64,
    /// How often the kernel refused to.
    pub help_refused: u64,
    /// Why the last heavy fence failed. Nothing is freed until one succeeds.
    pub fence_error: Option<FenceError>,
}

impl Stats {
    pub(super) fn of(core: &Core) -> Self {
        let sum = core.sum();
        let (helped, help_refused) = core.helping().map_or((0, 0), |helping| helping.counts());
        Self {
            grace_periods: core.started(),
            heavy_fences: core.heavy_fences(),
            retired: sum.retired,
            freed: sum.freed,
            pending: sum.pending,
            pending_bytes: sum.pending_bytes,
            oldest: sum.oldest.map(|oldest| core.age().saturating_sub(oldest)),
            readers: core.readers(),
            helped,
            help_refused,
            fence_error: core.fence_error(),
        }
    }
}
