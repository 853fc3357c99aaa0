//! What a retire list counts, for the domain's statistics.
//!
//! The counters of a retire list are written by its owner alone, without read-modify-writes; those shared by all
//! are changed by read-modify-writes. They stay when their retire list goes, and the next one counts on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stillpoint_sys::sync::atomic::{AtomicBool as ModelledBool, AtomicU64 as ModelledU64};

// Relaxed but where it says otherwise: statistics order nothing. Not modelled by loom for the same reason, but for what a barrier
// relies on.
const RELAXED: Ordering = Ordering::Relaxed;

#[derive(Debug, Default)]
pub(crate) struct Counters {
    retired: AtomicU64,
    freed: ModelledU64,
    pending: ModelledU64,
    pending_bytes: AtomicU64,
    /// Age of the domain in nanoseconds when the oldest pending batch was started; 0 for none.
    oldest: AtomicU64,
    /// Whether a thread looks after the list until it is empty.
    is_served: ModelledBool,
    /// How often the list has passed on what it had, or was no longer looked after while something waited in it.
    left: ModelledU64,
    handed_back: AtomicU64,
    waits: AtomicU64,
    assists: AtomicU64,
    /// Pending objects that were past their grace period at the last poll, and pinned.
    pinned: AtomicU64,
    /// Age of the domain in nanoseconds since when none of them has waited longer; 0 for none.
    held_since: ModelledU64,
    /// The oldest token that the owner waits for; 0 for none.
    token: AtomicU64,
    /// Age of the domain in nanoseconds since when it does.
    since: AtomicU64,
    /// Callbacks that were pushed to a queue, by any thread.
    pushed: AtomicU64,
    /// Those of them that the queue does not have any more, written by who has its turn.
    settled: AtomicU64,
}

/// The sum over the counters of several.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Sum {
    pub(crate) retired: u64,
    pub(crate) freed: u64,
    pub(crate) pending: u64,
    pub(crate) pending_bytes: u64,
    pub(crate) pinned: u64,
    pub(crate) oldest: Option<Duration>,
    pub(crate) handed_back: u64,
    pub(crate) waits: u64,
    pub(crate) assists: u64,
}

/// What a retirement went through that found no room. By read-modify-writes even for the owner of a retire list: they are
/// rare, and cost little beside what they count.
impl Counters {
    pub(crate) fn count_handed_back(&self) {
        self.handed_back.fetch_add(1, RELAXED);
    }

    pub(crate) fn count_wait(&self) {
        self.waits.fetch_add(1, RELAXED);
    }

    pub(crate) fn count_assist(&self) {
        self.assists.fetch_add(1, RELAXED);
    }
}

/// 0 for none.
fn nanoseconds(age_of_domain: Option<Duration>) -> u64 {
    age_of_domain.map_or(0, |age| age.as_nanos() as u64 | 1)
}

/// For the owner of a retire list.
impl Counters {
    #[inline]
    pub(crate) fn count_retired(&self) {
        self.retired.store(self.retired.load(RELAXED) + 1, RELAXED);
    }

    pub(crate) fn count_freed(&self, objects: usize) {
        // Release: pairs with the acquire load in `Served::is_over`.
        self.freed.store(self.freed.load(RELAXED) + objects as u64, Ordering::Release);
    }

    #[inline]
    pub(crate) fn set_pending(&self, objects: usize, bytes: usize) {
        // Release: pairs with the acquire load in `Served::is_over`. The rest is relaxed.
        self.pending.store(objects as u64, Ordering::Release);
        self.pending_bytes.store(bytes as u64, RELAXED);
    }

    /// After what waited has been left elsewhere, and before the counts say that nothing waits.
    pub(crate) fn count_left(&self) {
        // Release: pairs with the acquire loads in `served` and in `Served::is_left`.
        self.left.store(self.left.load(RELAXED) + 1, Ordering::Release);
    }

    pub(crate) fn set_served(&self, is_served: bool) {
        // Release: pairs with the acquire load in `served`: who finds the list given up comes after what was freed there.
        self.is_served.store(is_served, Ordering::Release);
    }

    pub(crate) fn set_oldest(&self, age_of_domain: Option<Duration>) {
        self.oldest.store(nanoseconds(age_of_domain), RELAXED);
    }

    /// Before what is freed is counted. `since` is an age of the domain.
    pub(crate) fn set_pinned(&self, objects: usize, since: Option<Duration>) {
        self.pinned.store(objects as u64, RELAXED);
        // Release: pairs with the acquire load in `Served::is_held`.
        self.held_since.store(nanoseconds(since), Ordering::Release);
    }

    /// What was [set](Counters::set_pinned) last.
    pub(crate) fn pinned(&self) -> u64 {
        // Relaxed: for an owner that looks itself.
        self.pinned.load(RELAXED)
    }

    /// The oldest token that the owner waits for, and the age of the domain since when it does.
    pub(crate) fn set_under_way(&self, oldest: Option<(u64, Duration)>) {
        let (token, since) = oldest.unwrap_or_default();
        self.since.store(since.as_nanos() as u64, RELAXED);
        // Release: pairs with the acquire load in `in_the_way_since`, so that a token is not taken for one that is
        // waited for longer.
        self.token.store(token, Ordering::Release);
    }
}

/// What was in a list that a thread looks after.
#[derive(Debug)]
pub(crate) struct Served<'c> {
    counters: &'c Counters,
    /// Objects freed when all of that are but those that are pinned.
    freed: u64,
    left: u64,
    /// Age of the domain when that was seen.
    passed: Option<Duration>,
}

impl Served<'_> {
    /// Whether all of that has gone. What was retired before is passed over only if it is pinned. `age` tells the age of the domain.
    pub(crate) fn is_over(&mut self, age: impl FnOnce() -> Duration) -> bool {
        // Acquire: pairs with the release in `set_pending`, for those who rely on what was freed.
        if self.counters.pending.load(Ordering::Acquire) == 0 {
            return true;
        }
        // Acquire: pairs with the release in `count_freed`: what was passed over since is counted as pinned.
        if self.passed.is_none() && self.counters.freed.load(Ordering::Acquire) >= self.freed {
            self.passed = Some(age());
        }
        self.passed.is_some() && !self.is_held()
    }

    /// Whether protected loads hold some of it, or something else that has waited as long.
    fn is_held(&self) -> bool {
        // Acquire: pairs with the release in `set_pinned`, for those who rely on what was freed.
        let since = self.counters.held_since.load(Ordering::Acquire);
        since != 0 && (self.passed.is_none() || since <= nanoseconds(self.passed))
    }

    /// Whether the rest of it cannot go before a protected load is released.
    pub(crate) fn is_pinned(&self) -> bool {
        let is_all = self.pinned() as u64 >= self.counters.pending.load(RELAXED);
        (self.passed.is_some() || is_all) && self.is_held()
    }

    /// Whether what was in the list, or some of it, may be elsewhere. To be asked after [`is_over`](Served::is_over), whose loads
    /// make this one new enough.
    pub(crate) fn is_left(&self) -> bool {
        // Acquire: pairs with the release in `count_left`: what was left is found.
        self.counters.left.load(Ordering::Acquire) != self.left
    }

    /// How many objects protected loads hold, of those and others.
    pub(crate) fn pinned(&self) -> usize {
        self.counters.pinned.load(RELAXED) as usize
    }
}

/// For a queue of callbacks: any thread pushes, and who has the turn counts the rest.
impl Counters {
    #[inline]
    pub(crate) fn count_pushed(&self) {
        self.pushed.fetch_add(1, RELAXED);
    }

    /// One of them is called.
    pub(crate) fn count_called(&self) {
        self.count_freed(1);
        self.settle(1);
    }

    /// That many of them have gone elsewhere.
    pub(crate) fn settle(&self, callbacks: u64) {
        self.settled.store(self.settled.load(RELAXED) + callbacks, RELAXED);
    }

    /// Those that were called, or have gone elsewhere.
    pub(crate) fn settled(&self) -> u64 {
        self.settled.load(RELAXED)
    }

    /// Callbacks that were pushed and not settled.
    pub(crate) fn in_queue(&self) -> u64 {
        let settled = self.settled.load(RELAXED);
        self.pushed.load(RELAXED).saturating_sub(settled)
    }
}

/// For everybody.
impl Counters {
    /// What waits in the list, if a thread looks after it, other than the one with the counters `own`.
    pub(crate) fn served(&self, own: &Self) -> Option<Served<'_>> {
        // First: what is passed on after this is told of. Acquire: pairs with the release in `count_left`: what was passed on before
        // is where it was left.
        let left = self.left.load(Ordering::Acquire);
        // In this order: what is freed in between is counted twice, and the list is waited for until it is empty. Acquire: pairs with
        // the release in `set_pending`: the second count is at least as new as the first.
        let pending = self.pending.load(Ordering::Acquire);
        let freed = self.freed.load(RELAXED) + pending;
        let is_another = self.is_served.load(Ordering::Acquire) && !std::ptr::eq(self, own);
        (pending > 0 && is_another).then_some(Served { counters: self, freed, left, passed: None })
    }

    /// The age of the domain since when the owner waits for a reader in this state, if it does.
    pub(crate) fn in_the_way_since(&self, state: u64) -> Option<Duration> {
        // Acquire: pairs with the release in `set_under_way`.
        let token = self.token.load(Ordering::Acquire);
        (state < token).then(|| Duration::from_nanos(self.since.load(RELAXED)))
    }

    pub(crate) fn share_retired(&self) {
        self.retired.fetch_add(1, RELAXED);
    }

    pub(crate) fn share_freed(&self) {
        self.freed.fetch_add(1, RELAXED);
    }

    pub(crate) fn pend(&self, bytes: usize) {
        self.pending.fetch_add(1, RELAXED);
        self.pending_bytes.fetch_add(bytes as u64, RELAXED);
    }

    pub(crate) fn unpend(&self, bytes: usize) {
        self.pending.fetch_sub(1, RELAXED);
        self.pending_bytes.fetch_sub(bytes as u64, RELAXED);
    }
}

impl Sum {
    pub(crate) fn over<'l>(counters: impl Iterator<Item = &'l Counters>) -> Self {
        counters.fold(Self::default(), |sum, counters| {
            let oldest = counters.oldest.load(RELAXED);
            let oldest = (oldest != 0).then(|| Duration::from_nanos(oldest));
            Self {
                retired: sum.retired + counters.retired.load(RELAXED) + counters.pushed.load(RELAXED),
                freed: sum.freed + counters.freed.load(RELAXED),
                pending: sum.pending + counters.pending.load(RELAXED) + counters.in_queue(),
                pending_bytes: sum.pending_bytes + counters.pending_bytes.load(RELAXED),
                pinned: sum.pinned + counters.pinned.load(RELAXED),
                oldest: sum.oldest.into_iter().chain(oldest).min(),
                handed_back: sum.handed_back + counters.handed_back.load(RELAXED),
                waits: sum.waits + counters.waits.load(RELAXED),
                assists: sum.assists + counters.assists.load(RELAXED),
            }
        })
    }
}
