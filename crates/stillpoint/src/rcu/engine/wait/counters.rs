//! What a retire list counts, for the domain's statistics.
//!
//! Only the owner of a retire list writes its counters, without read-modify-writes. The shared counters
//! change by read-modify-writes. Counters survive their retire list, and the next list continues them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::rcu::engine::core::grace::Holders;
use stillpoint_sys::sync::atomic::{AtomicBool as ModelledBool, AtomicU64 as ModelledU64};

// Relaxed unless stated otherwise: statistics order nothing. For the same reason loom does not model them, except for those that
// barriers rely on.
const RELAXED: Ordering = Ordering::Relaxed;

#[derive(Default)]
pub(crate) struct Counters {
    retired: AtomicU64,
    freed: ModelledU64,
    pending: ModelledU64,
    pending_bytes: AtomicU64,
    /// Whether a thread looks after the list until it is empty.
    is_served: ModelledBool,
    /// How often the list has passed its objects on, or lost its thread while objects waited in it.
    left: ModelledU64,
    handed_back: AtomicU64,
    stalls: AtomicU64,
    waits: AtomicU64,
    assists: AtomicU64,
    /// Number of pending objects that were past their grace period, and pinned, at the last poll.
    pinned: AtomicU64,
    /// The [bits](crate::rcu::engine::core::grace::bit_of) of their addresses. Other bits may be set, too.
    pinned_bits: AtomicU64,
    /// No pinned object has waited since before this age of the domain, in nanoseconds; 0 if there is none.
    held_since: ModelledU64,
    /// The oldest token that the owner waits for; 0 if there is none.
    token: AtomicU64,
    /// Age of the domain in nanoseconds since which the owner waits for this token.
    since: AtomicU64,
    /// The newest token that pending objects wait for; 0 if there is none.
    newest: AtomicU64,
    /// Number of pending objects that wait for a token.
    dated: AtomicU64,
    /// Number of callbacks that any thread pushed to a queue.
    pushed: Apart<AtomicU64>,
    /// Number of pushed callbacks that are no longer in the queue. Written by the thread that has its turn.
    removed: AtomicU64,
    /// The round of the polls through the lists of threads.
    round: Round,
}

/// In a cache line of its own: threads that push would share the line with the thread that counts what it calls.
#[derive(Default)]
#[repr(align(64))]
struct Apart<T>(T);

#[cfg(not(stillpoint_loom))]
impl Counters {
    /// For debuggers.
    pub(crate) const LAYOUT: [usize; 6] = [
        std::mem::offset_of!(Self, retired),
        std::mem::offset_of!(Self, freed),
        std::mem::offset_of!(Self, pending),
        std::mem::offset_of!(Self, pending_bytes),
        std::mem::offset_of!(Self, pushed.0),
        std::mem::offset_of!(Self, removed),
    ];
}

/// The number from which the next list of a thread to be visited is looked for. Changed by the owner of the slot that it is a
/// part of.
#[derive(Default)]
pub(crate) struct Round(AtomicU64);

impl Round {
    pub(crate) fn get(&self) -> usize {
        // Relaxed: each list has its turn sooner or later.
        self.0.load(RELAXED) as usize
    }

    pub(crate) fn set(&self, number: usize) {
        self.0.store(number as u64, RELAXED);
    }
}

/// The sum of several sets of counters.
#[derive(Default, Clone, Copy)]
pub(crate) struct Sum {
    pub(crate) retired: u64,
    pub(crate) freed: u64,
    pub(crate) pending: u64,
    pub(crate) pending_bytes: u64,
    /// Pending objects that are held by nobody, as far as is known.
    pub(crate) ready: u64,
    pub(crate) pinned: u64,
    /// Age of the domain since which an object has been held.
    pub(crate) oldest: Option<Duration>,
    pub(crate) handed_back: u64,
    pub(crate) stalls: u64,
    pub(crate) waits: u64,
    pub(crate) assists: u64,
}

/// An object past its grace period that a protected load holds.
#[derive(Clone, Copy)]
pub(crate) struct Pinned {
    pub(crate) bytes: usize,
    /// The list in which it was found: the address of the list's counters.
    pub(crate) list: usize,
    /// What has the limits that the list counts for.
    pub(crate) queue: usize,
    /// As in its batch: an age of the domain.
    pub(crate) started: Duration,
}

/// Counts of stalls, and of retirements that found no room, in the shared counters of a domain.
impl Counters {
    /// Returns how many there were, this one included.
    pub(crate) fn count_handed_back(&self) -> u64 {
        self.handed_back.fetch_add(1, RELAXED) + 1
    }

    pub(crate) fn count_stall(&self) {
        self.stalls.fetch_add(1, RELAXED);
    }

    pub(crate) fn count_wait(&self) {
        self.waits.fetch_add(1, RELAXED);
    }

    pub(crate) fn count_assist(&self) {
        self.assists.fetch_add(1, RELAXED);
    }
}

/// An age in nanoseconds; 0 for `None`.
fn nanoseconds(age_of_domain: Option<Duration>) -> u64 {
    age_of_domain.map_or(0, |age| age.as_nanos() as u64 | 1)
}

/// For the owner of a retire list.
impl Counters {
    #[inline]
    pub(crate) fn count_retired(&self) {
        self.retired.store(self.retired.load(RELAXED) + 1, RELAXED);
    }

    pub(crate) fn freed(&self) -> u64 {
        // Relaxed: the owner reads its own store.
        self.freed.load(RELAXED)
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

    /// Counts that the objects were left elsewhere. Called after they were left, and before the counts say that nothing waits.
    pub(crate) fn count_left(&self) {
        // Release: pairs with the acquire loads in `served` and in `Served::is_left`.
        self.left.store(self.left.load(RELAXED) + 1, Ordering::Release);
    }

    pub(crate) fn set_served(&self, is_served: bool) {
        // Release: pairs with the acquire load in `served`: a thread that finds the list not served comes after what was freed
        // there.
        self.is_served.store(is_served, Ordering::Release);
    }

    pub(crate) fn round(&self) -> &Round {
        &self.round
    }

    /// Sets the number of pinned objects, and the bits of their addresses. Called before freed objects are counted. `since` is an age
    /// of the domain.
    pub(crate) fn set_pinned(&self, objects: usize, bits: u64, since: Option<Duration>) {
        self.pinned.store(objects as u64, RELAXED);
        self.pinned_bits.store(bits, RELAXED);
        // Release: pairs with the acquire load in `Served::is_held`.
        self.held_since.store(nanoseconds(since), Ordering::Release);
    }

    /// The number that was [set](Counters::set_pinned) last.
    pub(crate) fn pinned(&self) -> u64 {
        // Relaxed: the owner reads its own store.
        self.pinned.load(RELAXED)
    }

    /// Announces that the owner starts a token while it has none under way.
    pub(crate) fn set_starting(&self) {
        // No region is older than this token. Release: `Protocol::start`, which follows, releases it, too; here it pairs as in
        // `set_under_way`.
        self.token.store(1, Ordering::Release);
    }

    /// Sets how many objects wait for a token, and the newest of these tokens.
    pub(crate) fn set_dated(&self, objects: usize, newest: Option<u64>) {
        self.dated.store(objects as u64, RELAXED);
        self.newest.store(newest.unwrap_or_default(), RELAXED);
    }

    /// Sets the oldest token that the owner waits for, and the age of the domain since which it waits.
    pub(crate) fn set_under_way(&self, oldest: Option<(u64, Duration)>) {
        let (token, since) = oldest.unwrap_or_default();
        self.since.store(since.as_nanos() as u64, RELAXED);
        // Release: pairs with the acquire load in `in_the_way_since`, so that a token is not paired with the earlier `since` of
        // another token.
        self.token.store(token, Ordering::Release);
    }

    /// Nothing is under way, dated or held.
    pub(crate) fn set_idle(&self) {
        self.set_dated(0, None);
        self.set_pinned(0, 0, None);
        self.set_under_way(None);
    }
}

/// The objects that were in a served list at one moment.
pub(crate) struct Served<'c> {
    counters: &'c Counters,
    /// The list's count of freed objects at which all of these have been freed, or passed over as pinned.
    freed: u64,
    left: u64,
    /// Age of the domain when that count was reached.
    passed: Option<Duration>,
}

impl Served<'_> {
    /// Whether all of these objects are gone. A list frees in order, and passes over only pinned objects. `age` returns the age of the
    /// domain.
    pub(crate) fn is_over(&mut self, age: impl FnOnce() -> Duration) -> bool {
        // Acquire: pairs with the release in `set_pending`, for callers that rely on what was freed.
        if self.counters.pending.load(Ordering::Acquire) == 0 {
            return true;
        }
        // Acquire: pairs with the release in `set_served`. A list that is no longer served is empty, or has left its objects, which
        // `is_left` tells. Another list may use the counters now.
        if !self.counters.is_served.load(Ordering::Acquire) {
            return true;
        }
        // Acquire: pairs with the release in `count_freed`: objects that were passed over before it are counted as pinned.
        if self.passed.is_none() && self.counters.freed.load(Ordering::Acquire) >= self.freed {
            self.passed = Some(age());
        }
        self.passed.is_some() && !self.is_held()
    }

    /// Whether all of them have been freed, or passed over as pinned, at the last look.
    pub(crate) fn has_passed(&self) -> bool {
        self.passed.is_some()
    }

    /// Whether protected loads hold some of these objects, or others that have waited as long.
    fn is_held(&self) -> bool {
        // Acquire: pairs with the release in `set_pinned`, for callers that rely on what was freed.
        let since = self.counters.held_since.load(Ordering::Acquire);
        since != 0 && (self.passed.is_none() || since <= nanoseconds(self.passed))
    }

    /// Whether they are not over as long as a protected load holds this object. That may be another one that has waited as long.
    pub(crate) fn wait_for(&self, pinned: &Pinned) -> bool {
        let is_as_old = self.passed.is_none_or(|passed| pinned.started <= passed);
        pinned.list == self.counters.address() && is_as_old
    }

    /// The oldest token that the list waits for; 0 if there is none.
    pub(crate) fn token(&self) -> u64 {
        // Acquire: pairs with the release in `set_under_way`.
        self.counters.token.load(Ordering::Acquire)
    }

    /// Whether some of these objects may be elsewhere. Must be called after [`is_over`](Served::is_over), whose loads
    /// make this one new enough.
    pub(crate) fn is_left(&self) -> bool {
        // Acquire: pairs with the release in `count_left`: the caller then finds what was left.
        self.counters.left.load(Ordering::Acquire) != self.left
    }

    /// Number of objects that protected loads hold, these and others.
    pub(crate) fn pinned(&self) -> usize {
        self.counters.pinned.load(RELAXED) as usize
    }
}

/// For a queue of callbacks: any thread counts its pushes; the thread that has the turn counts the rest.
impl Counters {
    #[inline]
    pub(crate) fn count_pushed(&self) {
        self.pushed.0.fetch_add(1, RELAXED);
    }

    /// Counts one called callback.
    pub(crate) fn count_called(&self) {
        self.count_freed(1);
        self.count_removed(1);
    }

    /// Counts a callback that has gone to another queue, which counts it as pushed.
    pub(crate) fn count_passed(&self) {
        self.pushed.0.fetch_sub(1, RELAXED);
    }

    /// Counts callbacks that have gone elsewhere.
    pub(crate) fn count_removed(&self, callbacks: u64) {
        self.removed.store(self.removed.load(RELAXED) + callbacks, RELAXED);
    }

    /// Number of callbacks that were called or have gone elsewhere.
    pub(crate) fn removed(&self) -> u64 {
        self.removed.load(RELAXED)
    }

    /// Number of callbacks that were pushed and not removed.
    pub(crate) fn in_queue(&self) -> u64 {
        let removed = self.removed.load(RELAXED);
        self.pushed.0.load(RELAXED).saturating_sub(removed)
    }
}

/// For any thread.
impl Counters {
    /// The objects in the list, if a thread serves it and its counters are not `own`.
    pub(crate) fn served(&self, own: &Self) -> Option<Served<'_>> {
        // Comes first: what is passed on after this is announced. Acquire: pairs with the release in `count_left`, so that what
        // was passed on before is found where it was left.
        let left = self.left.load(Ordering::Acquire);
        // The order matters: objects that are freed between the two loads are counted twice, so the caller may wait too long, but
        // never too briefly. Acquire: pairs with the release in `set_pending`: the second count is at least as new as the first.
        let pending = self.pending.load(Ordering::Acquire);
        let freed = self.freed.load(RELAXED) + pending;
        // Acquire: pairs with the release in `set_served`.
        let is_another = self.is_served.load(Ordering::Acquire) && !std::ptr::eq(self, own);
        (pending > 0 && is_another).then_some(Served { counters: self, freed, left, passed: None })
    }

    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Whether nothing in the list can be freed before a region in this state ends, if that region's thread holds `own` of the
    /// pinned objects. Exact if the caller is that thread; false while the owner starts a token.
    pub(crate) fn is_blocked(&self, state: u64, own: u64) -> bool {
        // Acquire: pairs with the release in `set_under_way`, which follows the count of pinned objects. Without a token under way,
        // no object has one: each gets a token that is later than the region.
        let token = self.token.load(Ordering::Acquire);
        (token == 0 || state < token) && self.pinned.load(RELAXED) <= own
    }

    /// The age of the domain since which the owner waits for a reader in this state, if it does.
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

/// What is held and what is not.
impl Counters {
    /// Of the pending objects: the number of those that nobody holds, and of those that protected loads hold; and the age of the domain
    /// since which one has been held.
    fn held_by(&self, holders: &Holders) -> (u64, u64, Option<Duration>) {
        let (pending, found) = (self.pending.load(RELAXED), self.pinned.load(RELAXED));
        let is_pinned = self.pinned_bits.load(RELAXED) & holders.bits != 0;
        let pinned = if is_pinned { found } else { 0 };
        let dated = self.dated.load(RELAXED);
        let is_blocked = holders.block(self.newest.load(RELAXED));
        // Objects that have no token yet: any region may hold them.
        let is_free = holders.oldest.is_none();
        let open = (pending + self.in_queue()).saturating_sub(found + dated);
        let ready = (found - pinned) + if is_blocked { 0 } else { dated } + if is_free { open } else { 0 };
        let date = |age: u64, is_held: bool| (is_held && age != 0).then(|| Duration::from_nanos(age));
        let since = date(self.since.load(RELAXED), is_blocked);
        // Relaxed, here as elsewhere for statistics.
        let held_since = date(self.held_since.load(RELAXED), is_pinned);
        (ready, pinned, since.into_iter().chain(held_since).min())
    }
}

impl Sum {
    pub(crate) fn over<'l>(counters: impl Iterator<Item = &'l Counters>, holders: &Holders) -> Self {
        counters.fold(Self::default(), |sum, counters| {
            let (ready, pinned, oldest) = counters.held_by(holders);
            Self {
                retired: sum.retired + counters.retired.load(RELAXED) + counters.pushed.0.load(RELAXED),
                freed: sum.freed + counters.freed.load(RELAXED),
                pending: sum.pending + counters.pending.load(RELAXED) + counters.in_queue(),
                pending_bytes: sum.pending_bytes + counters.pending_bytes.load(RELAXED),
                ready: sum.ready + ready,
                pinned: sum.pinned + pinned,
                oldest: sum.oldest.into_iter().chain(oldest).min(),
                handed_back: sum.handed_back + counters.handed_back.load(RELAXED),
                stalls: sum.stalls + counters.stalls.load(RELAXED),
                waits: sum.waits + counters.waits.load(RELAXED),
                assists: sum.assists + counters.assists.load(RELAXED),
            }
        })
    }
}
