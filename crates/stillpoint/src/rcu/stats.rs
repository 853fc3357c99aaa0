use std::time::Duration;

use super::engine::queue::account::{Account, Count};
use super::engine::wait::delays::Delays;
use super::engine::Core;
use crate::fence::FenceError;

/// What a domain has done so far, and what is held now: see [`Domain::stats`](super::Domain::stats). Most numbers are sums of
/// counters that their owners write. The sums are exact when the domain is quiet, and slightly out of date otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Tokens started.
    pub grace_periods: u64,
    /// Heavy fences issued: each interrupts every core that runs the process.
    pub heavy_fences: u64,
    /// How often a grace period ended without a heavy fence, since every reader had vouched for it, was in a region, or was
    /// [offline](super::Reader::offline). 0 in domains that need no such fences.
    pub vouched: u64,
    /// Readers of other threads that have loaded nothing since the newest token was started, and are not
    /// [offline](super::Reader::offline). While there is one that sleeps, each grace period needs a heavy fence, and
    /// [`Domain::silent`](super::Domain::silent) names its thread. 0 in domains that need no such fences.
    pub silent: usize,
    /// Objects and callbacks handed to reclaimers or to the domain.
    pub retired: u64,
    /// Objects freed and callbacks called.
    pub freed: u64,
    /// Objects that wait to be freed. In a domain with a [limit](super::DomainBuilder::max_pending) of objects, this is the number
    /// that counts against the limit, exact at any time. Far below the limit, it includes up to 127 unused places for each
    /// reclaimer in which objects wait.
    pub pending: u64,
    /// Size in bytes of the objects that wait, without what they own elsewhere. In a domain with a limit of bytes, this is the
    /// number that counts against the limit.
    pub pending_bytes: u64,
    /// The domain's limit of objects, if it has one.
    pub max_pending: Option<usize>,
    /// The domain's limit of bytes, if it has one.
    pub max_pending_bytes: Option<usize>,
    /// Objects that were taken in although the domain was full, since they could not be refused: dropped
    /// [`Retired`](super::Retired)s, deferred calls, entries of tables.
    pub beyond_limits: u64,
    /// Stalls that were found: sections of readers, and refused fences, that were in the way for the threshold of the domain's
    /// [stall hook](super::DomainBuilder::stall_hook). Without a hook, the threshold is 100 ms with one of the features `metrics` and
    /// `tracing`, and with neither of them this is 0.
    pub stalls: u64,
    /// How often an object was handed back because its reclaimer or the domain was full.
    pub handed_back: u64,
    /// How often a retirement waited for room.
    pub waits: u64,
    /// How often a retirement that found no room freed objects that others had retired: through a retire handle with
    /// [`WhenFull::Reclaim`](super::limits::WhenFull::Reclaim), or through a [`Reclaimer`](super::Reclaimer) of a full domain.
    pub reclaims_by_retirers: u64,
    /// Pending objects that nobody holds, so that the next poll may free them. Of objects that no poll has compared with the
    /// protected loads, only regions are known: some of them may turn out to be pinned. Pending objects that are neither ready nor
    /// pinned are kept alive by regions, or wait for a poll that starts their grace period while regions are under way.
    pub ready: u64,
    /// Pending objects that protected loads hold, although their grace period is over. As found by the last poll of their
    /// reclaimer; 0 for a reclaimer if no protected load holds any of its objects any more.
    pub pinned: u64,
    /// How long readers have held a pending object: the age of the oldest grace period that a region is in the way of, or that of the
    /// oldest object that a protected load holds. `None` if nobody holds anything, whether or not the program polls. If a reclaimer has
    /// not been polled since some of its objects were let go of, this may be the age of one of those. Callbacks whose object a protected
    /// load holds are not dated.
    pub oldest: Option<Duration>,
    /// How long objects have waited from their retirement until they were freed. Objects in a reclaimer count from its first poll after
    /// their retirement (a write in the default domain polls), and those that one poll frees as the oldest of them. Objects that were
    /// left to the domain count from when another thread took them over, and so do those that a protected load held when their list was
    /// taken over. Callbacks, and objects that [`Retired::try_free`](super::Retired::try_free) frees, are not sampled.
    pub delays: Delays,
    /// Registered readers of all kinds.
    pub readers: usize,
    /// Protected loads that are bound to no thread: see [`OwnedProtected`](super::OwnedProtected).
    pub owned: usize,
    /// How often a preempted reader was boosted: see [`Boost`](super::Boost).
    pub boosted: u64,
    /// How often a boost was not possible: the kernel refused it, or had no file in `/proc` for the thread.
    pub boost_refused: u64,
    /// Why the last heavy fence failed. Nothing is freed until a fence succeeds. Seccomp filters are per thread, so another thread's
    /// fence may succeed. The [stall hook](super::DomainBuilder::stall_hook) is called if that does not happen for long.
    pub fence_error: Option<FenceError>,
}

impl Stats {
    pub(super) fn of(core: &Core) -> Self {
        let sum = core.sum();
        let (boosted, boost_refused) = core.boosting().map_or((0, 0), |boosting| boosting.counts());
        let (readers, owned) = core.protocol.readers();
        let objects = core.account().map(|account| &account.objects);
        let bytes = core.account().map(|account| &account.bytes);
        let exact =
            |count: Option<&Count>, sum| count.and_then(Count::taken).map_or(sum, |taken| taken as u64);
        Self {
            grace_periods: core.protocol.started(),
            heavy_fences: core.protocol.heavy_fences(),
            vouched: core.protocol.vouched(),
            silent: core.protocol.silent().count(),
            retired: sum.retired,
            freed: sum.freed,
            pending: exact(objects, sum.pending),
            pending_bytes: exact(bytes, sum.pending_bytes),
            ready: sum.ready,
            pinned: sum.pinned,
            max_pending: objects.and_then(Count::limit),
            max_pending_bytes: bytes.and_then(Count::limit),
            beyond_limits: core.account().map_or(0, Account::beyond),
            stalls: sum.stalls,
            handed_back: sum.handed_back,
            waits: sum.waits,
            reclaims_by_retirers: sum.assists,
            oldest: sum.oldest.map(|oldest| core.age().saturating_sub(oldest)),
            delays: core.delays().read(),
            readers,
            owned,
            boosted,
            boost_refused,
            fence_error: core.protocol.fence_error(),
        }
    }
}
