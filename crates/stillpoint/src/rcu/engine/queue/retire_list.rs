//! The objects of one owner that wait for their grace period, in the order in which they were retired.
//!
//! ```text
//!   queue:   [ batch: token 7 | batch: token 9 | open ]      held: objects that a hazard slot holds
//! ```
//!
//! New objects join the *open* end. A poll starts a token for all open objects, unless the last start was too
//! recent. So a burst of retirements shares one token and one fence. Objects whose token is over are
//! compared with the hazard slots, which are gathered once for all of them. Pinned objects move to `held` and
//! are compared again at later polls. Such a poll reads every hazard slot of the domain. A poll with a limit looks
//! at that many objects, of the queue and of `held` in turn, so that neither keeps the other waiting.

use std::collections::{TryReserveError, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::busted::{self, Variant};
use crate::frames::{self, is_freeing, Foreign};
use crate::rcu::engine::core::garbage::Garbage;
use crate::rcu::engine::core::grace::{bit_of, Terms};
use crate::rcu::engine::core::registry::Claim;
use crate::rcu::engine::queue::account::{Account, Limits, RoomCache};
use crate::rcu::engine::queue::line::{Line, Obstacle};
use crate::rcu::engine::wait::counters::Counters;
use crate::rcu::engine::wait::counters::Pinned;
use crate::rcu::engine::wait::delays::EVERY;
use crate::rcu::engine::wait::park::LONGEST_SLEEP;
use crate::rcu::engine::wait::report::Behind;
use crate::rcu::engine::Core;
use stillpoint_sys::panics::{self, Panic};
use stillpoint_sys::{probe, tsan, work};

/// Most orphans that one call adopts, and most objects of others that a retirer without room frees.
pub(crate) const SHARE: usize = 64;

/// Most full batches that gather for one heavy fence, if [fences](super::super::core::grace) would otherwise come too often.
pub(crate) const GATHERED: usize = 32;

/// The number of batches for which a token is started whatever the domain's pace.
const LONG: usize = 8;

/// When a poll starts a token for the open objects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// So many objects fill a batch: at the domain's pace, unless [`LONG`] batches are open.
    pub(crate) batch: usize,
    /// Least time between two heavy fences for batches that are not full. If zero, nothing is put off: polls start and fence at once.
    pub(crate) interval: Duration,
}

impl Pace {
    /// At most one heavy fence every 50 µs: it takes some 10 µs, so less than a quarter of the time.
    pub(crate) const DEFAULT: Self = Self {
        batch: 128,
        interval: if cfg!(stillpoint_loom) { Duration::ZERO } else { Duration::from_micros(50) },
    };
}

/// The limit that is in the way of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    Queue,
    Domain,
}

pub(crate) struct RetireList {
    core: Arc<Core>,
    counters: Claim<Counters>,
    pace: Pace,
    limits: Limits,
    /// Where the list's objects are counted, if that is shared with other places.
    account: Option<Arc<Account>>,
    /// While fewer objects than this wait, a retirement need not ask the domain for room: 0 if the domain has limits of its own.
    at_once: usize,
    /// In a domain with limits: the room that the list keeps.
    cache: RoomCache,
    /// Whether objects that are taken in here reserve their room.
    reserves: bool,
    queue: VecDeque<Garbage>,
    /// The front of the queue, in groups with one token each.
    batches: VecDeque<Batch>,
    /// Objects at the back of the queue that have no token yet.
    open: usize,
    /// Whether the next look ignores the pace: the queue was [closed](RetireList::close) since the last one, or the caller does.
    hurries: bool,
    /// Age of the domain at the first poll after the first of these was taken in. `None` before it, and if there is none.
    opened: Option<Duration>,
    line: Line,
    held: Vec<Held>,
    /// The index in `held` of the next object to be compared. After the last one, polls begin again with the first.
    next_held: usize,
    /// No held object has waited since before this age of the domain.
    held_since: Option<Duration>,
    /// The bits of the addresses of held objects, for statistics.
    held_bits: u64,
    /// The same two for the objects that were found pinned in this round.
    round_since: Option<Duration>,
    round_bits: u64,
    pub(crate) bytes: usize,
}

struct Batch {
    token: u64,
    objects: usize,
    /// Age of the domain when the first object of the batch came.
    opened: Duration,
    /// Age of the domain at the start.
    started: Duration,
}

/// An object whose token is over, and that a hazard slot held when it was last compared.
struct Held {
    garbage: Garbage,
    /// As in its batch.
    started: Duration,
}

// SAFETY: the claim points into the core, which the retire list keeps alive, and everything else is `Send`. Nothing
// is bound to the thread.
unsafe impl Send for RetireList {}

impl RetireList {
    pub(crate) fn new(core: Arc<Core>, pace: Pace, limits: Limits) -> Self {
        let counters = core.counters.claim();
        Self {
            counters,
            account: None,
            at_once: if core.account().is_some() { 0 } else { limits.objects },
            cache: RoomCache::default(),
            reserves: false,
            core,
            pace,
            limits,
            queue: VecDeque::new(),
            batches: VecDeque::new(),
            open: 0,
            opened: None,
            hurries: false,
            line: Line::default(),
            held: Vec::new(),
            next_held: 0,
            held_since: None,
            held_bits: 0,
            round_since: None,
            round_bits: 0,
            bytes: 0,
        }
    }

    /// A list that a barrier sees, with at most `limit` orphans, the latest ones. Its drop gives back what was not freed.
    pub(crate) fn of_orphans(core: &Arc<Core>, limit: usize) -> Self {
        let mut list = Self::new(Arc::clone(core), Pace::DEFAULT, Limits::NONE);
        list.set_served(true);
        list.adopt(limit);
        list
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len() + self.held.len()
    }

    /// Number of objects past their grace period that hazard slots hold.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Sets where the list's objects are counted, which is empty so far.
    pub(crate) fn count_in(&mut self, account: &Arc<Account>) {
        self.account = Some(Arc::clone(account));
    }

    /// Whether the list has no room for an object even if everything is freed that the calling thread does not hold up: by a region
    /// in this state, or by its protected loads.
    pub(crate) fn is_full_of_own(&self, region: Option<u64>, bytes: usize) -> bool {
        let mut own = self.core.protocol.hazards_of_caller();
        own.sort_unstable();
        let is_behind = |state: u64| self.batches.front().is_none_or(|batch| state < batch.token);
        let is_blocked = region.is_some_and(is_behind);
        let is_own = |garbage: &&Garbage| own.binary_search(&garbage.address()).is_ok();
        let held = self.held.iter().map(|held| &held.garbage).filter(is_own);
        let queue = self.queue.iter().filter(|garbage| is_blocked || is_own(garbage));
        let (objects, taken) = held.chain(queue).fold((0, 0_usize), |(objects, taken), garbage| {
            (objects + 1, taken.saturating_add(garbage.bytes()))
        });
        self.limits.is_full_with(objects, taken, bytes)
    }

    /// Number of objects that protected loads of the calling thread hold: a wait for one of them would never end.
    pub(crate) fn held_by_caller(&self) -> usize {
        if self.held.is_empty() {
            return 0;
        }
        let own = self.core.protocol.hazards_of_caller();
        self.held.iter().filter(|held| own.contains(&held.garbage.address())).count()
    }

    /// The size of the largest object for which there can be room.
    pub(crate) fn largest(&self) -> usize {
        self.core.largest(self.limits.bytes)
    }

    /// Whether one more object of this size fits within the queue's own limits.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.len() < self.limits.objects && self.fits(bytes)
    }

    /// Takes up room for one more object, if that needs no access to the domain.
    #[inline]
    pub(crate) fn reserve_at_once(&mut self, bytes: usize) -> bool {
        let is_free = self.len() < self.at_once && self.fits(bytes);
        is_free || (self.has_room(bytes) && self.cache.take(bytes))
    }

    fn fits(&self, bytes: usize) -> bool {
        self.bytes.saturating_add(bytes) <= self.limits.bytes
    }

    /// Whether the domain has limits of its own.
    fn shares_room(&self) -> bool {
        self.at_once == 0
    }

    /// Takes up room for one more object.
    pub(crate) fn reserve(&mut self, bytes: usize) -> Result<(), Full> {
        self.reserves = true;
        if !self.has_room(bytes) {
            Err(Full::Queue)
        } else if self.core.account().is_none_or(|account| self.cache.reserve(account, bytes)) {
            Ok(())
        } else {
            Err(Full::Domain)
        }
    }

    /// As [`reserve`](RetireList::reserve), but first frees what is ready, if need be. It frees its own objects, batch by batch,
    /// until there is room, or readers hold a whole batch. If the domain is full, it also frees a share of the
    /// orphans, and then what is ready in the lists of threads, which nobody may visit otherwise.
    ///
    /// # Panics
    /// With the panic of a destructor; then no room is taken up.
    pub(crate) fn make_room(&mut self, bytes: usize) -> Result<(), Full> {
        let mut answer = self.reserve(bytes);
        if answer.is_ok() {
            return answer;
        }
        self.close();
        while answer.is_err() && self.advance(self.pace.batch.max(SHARE)) > 0 {
            answer = self.reserve(bytes);
        }
        for reclaim in [Self::reclaim_orphans, Self::reclaim_shelved] {
            if answer == Err(Full::Domain) && reclaim(self) > 0 {
                self.counters().count_assist();
                answer = self.reserve(bytes);
            }
        }
        answer
    }

    /// Adopts a share of the orphans and frees what is ready of it. Adopts nothing while objects of this list already wait
    /// for a reader: the orphans would wait for the same reader. Nor within a destructor: destructors of others do not nest in it.
    fn reclaim_orphans(&mut self) -> usize {
        if self.awaits_readers() || is_freeing() {
            return 0;
        }
        self.adopt(SHARE.min(self.limits.objects.saturating_sub(self.len())));
        self.close();
        self.advance(SHARE)
    }

    fn reclaim_shelved(&mut self) -> usize {
        self.core.visit_for_room(self.counters().round())
    }

    /// Frees what is ready, whatever the pace, and starts a grace period for the rest unless one is under way. Looks at two shares of
    /// objects at most.
    ///
    /// # Panics
    /// As [`advance`](RetireList::advance).
    pub(crate) fn hurry(&mut self) -> usize {
        let freed = self.advance(SHARE);
        if freed > 0 || self.awaits_readers() {
            return freed;
        }
        self.close();
        self.advance(SHARE)
    }

    /// Whether a grace period of this list had not ended at the last look.
    pub(crate) fn awaits_readers(&self) -> bool {
        !self.batches.is_empty()
    }

    pub(crate) fn counters(&self) -> &Counters {
        // SAFETY: the core is alive, as the retire list holds it.
        unsafe { self.counters.slot() }
    }

    /// Allocates memory for this many more objects.
    pub(crate) fn try_reserve(&mut self, objects: usize) -> Result<(), TryReserveError> {
        self.queue.try_reserve(objects)
    }

    /// Whether one more object fits in memory that is there.
    #[inline(always)]
    pub(crate) fn has_memory(&self) -> bool {
        self.queue.len() < self.queue.capacity()
    }

    /// Takes in an object that was just retired and cannot be refused.
    pub(crate) fn retire(&mut self, garbage: Garbage) {
        if self.shares_room() && !self.cache.take(garbage.bytes()) {
            self.core.charge(garbage.bytes());
        }
        self.retire_reserved(garbage);
    }

    /// Takes in an object that was just retired and has its room.
    #[inline]
    pub(crate) fn retire_reserved(&mut self, garbage: Garbage) {
        self.counters().count_retired();
        self.push(garbage);
    }

    /// Sets whether a thread looks after the list until it is empty.
    pub(crate) fn set_served(&self, is_served: bool) {
        self.counters().set_served(is_served);
    }

    /// Takes over the objects of another list. Their grace periods start anew.
    pub(crate) fn take_over(&mut self, other: &mut Self) {
        self.take_over_some(other, Ok);
    }

    /// As [`take_over`](RetireList::take_over), but what `let_go` hands back stays in the other list, where its grace period starts
    /// anew. Ends what the other list has boosted: this one boosts by itself.
    pub(crate) fn take_over_some(
        &mut self,
        other: &mut Self,
        let_go: impl Fn(Garbage) -> Result<Garbage, Garbage>,
    ) {
        let (begun, begun_there) = (self.opened, other.begun());
        let objects = other.take_all();
        other.count_nothing();
        other.end_boost();
        for garbage in objects {
            work::step();
            match let_go(garbage) {
                Ok(garbage) => self.push(garbage),
                Err(garbage) => other.push(garbage),
            }
        }
        self.opened = oldest(begun, begun_there).filter(|_| self.open > 0);
        other.opened = begun_there.filter(|_| other.open > 0);
    }

    /// Replaces each object by one with the same memory.
    pub(crate) fn replace_each(&mut self, replace: impl Fn(Garbage) -> Garbage) {
        let begun = self.begun();
        for garbage in self.take_all() {
            work::step();
            self.push(replace(garbage));
        }
        self.opened = begun;
    }

    /// As [`take_over`](RetireList::take_over), but grace periods that are under way go on: those of objects that are not held,
    /// unless objects of this list have none yet. A token of the other list that is older than the newest of this list gives way
    /// to that one. So tokens remain in order.
    pub(crate) fn append(&mut self, other: &mut Self) {
        let mut under_way = 0;
        if self.batches.is_empty() {
            // Those that come may have older tokens than the regions of this moment.
            self.counters().set_starting();
        }
        if self.open == 0 {
            for batch in other.batches.drain(..) {
                under_way += batch.objects;
                match self.batches.back_mut() {
                    Some(newest) if newest.token >= batch.token => {
                        newest.objects += batch.objects;
                        newest.opened = newest.opened.min(batch.opened);
                    }
                    _ => self.batches.push_back(batch),
                }
            }
        }
        let held = std::mem::take(&mut other.held);
        self.take_over(other);
        for held in held {
            work::step();
            self.push(held.garbage);
        }
        self.open -= under_way;
        self.opened = self.opened.filter(|_| self.open > 0);
        self.count_under_way();
        // The room that the other list has drawn for its next objects.
        if other.core.account().is_some_and(|account| other.cache.give_back(account)) {
            self.core.event().notify();
        }
    }

    /// Leaves the objects to the domain. From then on no thread looks after the list.
    pub(crate) fn pass_on(&mut self) {
        let (objects, bytes) = (self.len(), self.bytes);
        let (is_left, is_early) = (objects > 0, busted::is(Variant::LeftEarly));
        if is_left && is_early {
            self.counters().count_left();
        }
        let pending = self.take_all();
        if busted::is(Variant::DropFrees) {
            // SAFETY: none. This is the broken variant.
            pending.for_each(|garbage| drop(unsafe { garbage.free() }));
        } else {
            self.core.add_orphans(pending);
        }
        if let Some(account) = &self.account {
            account.give_back_all(objects, bytes);
            if is_left {
                self.core.event().notify();
            }
        }
        // A barrier that has looked at the list before this starts again; one that looks at it after this finds the objects.
        if is_left && !is_early {
            self.counters().count_left();
        }
        self.count_nothing();
        self.set_served(false);
    }

    /// Takes all objects. The list is empty afterwards.
    fn take_all(&mut self) -> impl Iterator<Item = Garbage> {
        self.batches.clear();
        (self.open, self.opened, self.bytes) = (0, None, 0);
        (self.next_held, self.held_since, self.round_since) = (0, None, None);
        (self.held_bits, self.round_bits) = (0, 0);
        let held = std::mem::take(&mut self.held).into_iter().map(|held| held.garbage);
        held.chain(std::mem::take(&mut self.queue))
    }

    /// Updates the counters for an empty list.
    fn count_nothing(&self) {
        self.counters().set_pending(0, 0);
        self.counters().set_idle();
    }

    /// Takes in an object that was counted before and has its room.
    #[inline(always)]
    pub(crate) fn push(&mut self, garbage: Garbage) {
        self.bytes += garbage.bytes();
        self.queue.push_back(garbage);
        self.open += 1;
        self.counters().set_pending(self.len(), self.bytes);
    }

    /// Adopts at most `limit` orphans, the latest ones: the others are not looked at.
    pub(crate) fn adopt(&mut self, limit: usize) {
        if limit > 0 && self.core.has_orphans() {
            let core = Arc::clone(&self.core);
            core.adopt_orphans(limit, |garbage| {
                if let Some(account) = &self.account {
                    account.charge(garbage.bytes());
                }
                self.push(garbage);
            });
        }
    }

    /// Adopts a bounded share of orphans, up to the limits, and then does as [`poll_own`](RetireList::poll_own). Adopts nothing within a
    /// destructor.
    ///
    /// # Panics
    /// As [`poll_own`](RetireList::poll_own).
    pub(crate) fn poll(&mut self, limit: usize) -> usize {
        if self.has_room(0) && !is_freeing() {
            self.adopt(SHARE.min(self.limits.objects - self.len()));
        }
        self.poll_own(limit)
    }

    /// Frees what is ready: looks at `limit` objects at most. Returns how many it has freed. Never waits for a reader. Adopts
    /// nothing: a list that barriers do not see must not adopt.
    ///
    /// # Panics
    /// With the first panic of a destructor, after all that was ready has been freed.
    pub(crate) fn poll_own(&mut self, limit: usize) -> usize {
        let is_timed = self.open > 0 || self.line.looks.are_put_off();
        let now = if is_timed { self.core.protocol.age() } else { Duration::ZERO };
        // Without a limit, it finds all that is free now.
        self.poll_with(limit, now, true, limit < usize::MAX)
    }

    /// As [`poll_own`](RetireList::poll_own), for each write of a thread, which knows the age of the domain: a token needs a full batch, or
    /// a while.
    pub(crate) fn poll_for_write(&mut self, limit: usize, now: Duration) -> usize {
        self.poll_at(limit, now, self.open >= self.pace.batch)
    }

    /// As [`poll_own`](RetireList::poll_own), for a caller that knows the age of the domain. `has_enough`: whether the open objects are
    /// enough for a token at the domain's pace.
    ///
    /// # Panics
    /// As [`poll_own`](RetireList::poll_own).
    pub(crate) fn poll_at(&mut self, limit: usize, now: Duration, has_enough: bool) -> usize {
        self.poll_with(limit, now, has_enough, true)
    }

    fn poll_with(&mut self, limit: usize, now: Duration, has_enough: bool, may_reuse: bool) -> usize {
        if self.open > 0 {
            self.opened.get_or_insert(now);
            if self.is_time(now, has_enough) {
                self.start(now);
            }
        }
        let is_early = self.look_later(now).is_some();
        self.go_on(limit, usize::MAX, is_early, may_reuse)
    }

    /// As [`advance`](RetireList::advance), but looks at all objects, and runs at most `limit` destructors.
    ///
    /// # Panics
    /// As [`advance`](RetireList::advance).
    pub(crate) fn free_some(&mut self, limit: usize) -> usize {
        self.hurries = true;
        self.go_on(usize::MAX, limit, false, false)
    }

    /// As [`poll_own`](RetireList::poll_own), but starts nothing, and ignores the pace.
    ///
    /// # Panics
    /// Also with a panic of the stall hook.
    pub(crate) fn advance(&mut self, limit: usize) -> usize {
        self.hurries = true;
        self.go_on(limit, usize::MAX, false, false)
    }

    /// Looks at `limit` objects at most, and frees at most `most` of them. With `may_reuse`, a scan that was costly
    /// [serves again](super::line::Line::serves_again), unless the reclaimer waits for nothing.
    fn go_on(&mut self, limit: usize, most: usize, is_early: bool, may_reuse: bool) -> usize {
        let is_patient = !self.hurries && (cfg!(stillpoint_loom) || !self.pace.interval.is_zero());
        let may_reuse = may_reuse && is_patient;
        if busted::is(Variant::HazardsFirst) {
            self.line.gather(&self.core, 0);
        }
        Line::poll_boosts(&self.core);
        let ready = if is_early { 0 } else { self.ready(limit) };
        self.hurries &= is_early;
        if ready + self.open == self.queue.len() {
            // No grace period is under way any more.
            self.end_boost();
        }
        let freed = self.sweep(ready, limit, most, may_reuse);
        // This may look at all readers, so polls that come early skip it.
        if !is_early {
            let behind = || Behind { objects: self.len() as u64, bytes: self.bytes as u64 };
            self.line.report_stall(&self.core, self.under_way(), behind);
        }
        freed
    }

    /// The oldest token that is not known to be over, and the age of the domain at its start.
    fn under_way(&self) -> Option<(u64, Duration)> {
        self.batches.front().map(|batch| (batch.token, batch.started))
    }

    /// Age of the domain since which the oldest object waits, as far as is known. Held objects do not count.
    fn begun(&self) -> Option<Duration> {
        self.batches.front().map(|batch| batch.opened).or(self.opened)
    }

    /// When a sleep must end so that a stall is reported in time.
    pub(crate) fn stall_is_due(&self) -> Option<Instant> {
        self.core.stall_is_due(self.under_way().map(|(_, started)| started))
    }

    /// For how long at most to sleep, so that a stall is reported, although a poll may come too early for it, and although this thread may
    /// not have run when it was due; `None` if nobody wants reports, or nothing is under way.
    pub(crate) fn until_stall(&self) -> Option<Duration> {
        let due = self.core.stall_due(self.under_way().map(|(_, started)| started))?;
        let left = due.saturating_sub(self.core.protocol.age());
        Some(if left.is_zero() { LONGEST_SLEEP } else { left })
    }

    /// Ends what remains of the boosts that readers got for these objects.
    pub(crate) fn end_boost(&mut self) {
        self.line.end_boost(&self.core);
    }

    /// Number of objects that the open batch lacks.
    pub(crate) fn missing(&self) -> usize {
        self.pace.batch.saturating_sub(self.open)
    }

    /// Whether the queue has fewer objects than may gather for one heavy fence. Held objects do not count.
    pub(crate) fn is_short(&self) -> bool {
        self.queue.len() < GATHERED.saturating_mul(self.pace.batch)
    }

    /// Until when the fence for a batch at the front, started at this age of the domain, is put off; `None` if the next call fences at
    /// once.
    fn terms(&self, begun: Duration) -> Option<Terms> {
        let next_attempt = self.line.next_attempt();
        let is_refused_lately = next_attempt.is_some_and(|again| again > self.core.protocol.age());
        let is_patient = (!self.hurries && !self.pace.interval.is_zero()) || is_refused_lately;
        // All that waits counts: the batch at the front may be a small one, which one fence frees together with those behind it.
        let is_full = self.queue.len() >= self.pace.batch;
        is_patient.then(|| Terms {
            begun,
            interval: if is_full { Duration::ZERO } else { self.pace.interval },
            gathers: is_full && self.is_short(),
            earliest: next_attempt.unwrap_or_default(),
        })
    }

    /// The age of the domain at which to look again at a reader that is silent, if that is still to come.
    fn look_later(&self, now: Duration) -> Option<Duration> {
        self.line.looks.later(now).filter(|_| !self.hurries)
    }

    /// As [`Line::gathers_until`](super::line::Line::gathers_until).
    fn gathers_until(&self) -> Option<Duration> {
        self.line.gathers_until(self.open).filter(|_| !self.pace.interval.is_zero())
    }

    fn is_time(&self, now: Duration, has_enough: bool) -> bool {
        // The fence for a silent reader comes when the list is full, and serves what has a token by then: so all of the batch has one.
        if self.gathers_until().is_some_and(|until| now < until) {
            return false;
        }
        let (waiting, batch) = (self.queue.len(), self.pace.batch);
        let becomes_full = waiting >= batch && waiting - self.open < batch;
        (becomes_full && self.line.looks.are_put_off())
            || self.open >= LONG.saturating_mul(batch)
            || self.pace.interval.is_zero()
            || !self.core.protocol.needs_heavy()
            || self.core.protocol.may_start(now, self.line.started, has_enough)
    }

    /// Starts a token for the open objects, whatever the pace, which the next poll ignores, too. Returns the token that
    /// the newest object waits for.
    pub(crate) fn close(&mut self) -> Option<u64> {
        if self.open > 0 {
            self.start(self.core.protocol.age());
        }
        self.hurries = true;
        self.batches.back().map(|batch| batch.token)
    }

    /// `started` is the age of the domain, or an earlier one.
    fn start(&mut self, started: Duration) {
        if self.batches.is_empty() {
            // Comes before the token: see `Protocol::region_of_caller`.
            self.counters().set_starting();
        }
        let token = self.core.protocol.start();
        self.line.started = Some(started);
        if self.queue.len() >= self.pace.batch {
            // The fence may be due sooner than at the last look.
            self.line.look_soon();
        }
        let opened = self.opened.take().unwrap_or(started);
        self.batches.push_back(Batch { token, objects: self.open, opened, started });
        self.open = 0;
    }

    /// Counts the objects at the front whose token is over, until there are `limit` or more.
    ///
    /// A batch is not fenced before the batches in front of it are over, since it could not be freed sooner. Its fence then
    /// serves all tokens that have been started.
    fn ready(&mut self, limit: usize) -> usize {
        let mut ready = 0;
        for batch in &self.batches {
            let (oldest, terms) = ((batch.token, batch.started), self.terms(batch.started));
            let is_over = match self.line.look(&self.core, oldest, terms) {
                Obstacle::Nothing => true,
                Obstacle::Reader(..) => busted::is(Variant::IgnoreRegions),
                _ => false,
            };
            if !is_over || ready >= limit {
                break;
            }
            ready += batch.objects;
        }
        ready
    }

    /// The token of the last of the first `ready` objects; 0 if there are none.
    fn newest_of(&self, ready: usize) -> u64 {
        let (mut left, mut token) = (ready, 0);
        for batch in &self.batches {
            if left == 0 {
                break;
            }
            token = batch.token;
            left = left.saturating_sub(batch.objects);
        }
        token
    }

    /// Frees the first `ready` objects of the queue, and the held objects, unless a hazard slot holds them. Looks at `limit`
    /// objects at most: half of them of each kind, and more of one kind if the other has fewer. Frees at most `most`.
    fn sweep(&mut self, ready: usize, limit: usize, most: usize, may_reuse: bool) -> usize {
        let (mut freed, bytes) = (Freed { most, ..Freed::default() }, self.bytes);
        // The oldest of what this call may free: one look for all objects, which are many.
        let since = if ready > 0 { self.begun() } else { self.held_since };
        if ready > 0 || !self.held.is_empty() {
            let _foreign = Foreign::begin();
            let token = self.newest_of(ready);
            let is_gathered = may_reuse && self.line.serves_again(&self.core, token, self.held.len());
            if busted::is(Variant::IgnoreHazards) {
                self.line.ignore_hazards();
            } else if !busted::is(Variant::HazardsFirst) && !is_gathered {
                self.line.gather(&self.core, token);
            }
            let held = self.held.len();
            let (of_held, of_queue) = self.line.share(limit, self.line.not_compared(held), ready);
            // Decided once for all objects: in a domain without limits, they have no room to give back.
            if self.shares_room() {
                self.sweep_held::<true>(of_held, &mut freed);
                self.sweep_queue::<true>(of_queue, &mut freed);
            } else {
                self.sweep_held::<false>(of_held, &mut freed);
                self.sweep_queue::<false>(of_queue, &mut freed);
            }
            // What has joined, and what has gone, was compared as well.
            self.line.count_compared(of_held, held, self.held.len());
        }
        // Pairs with the acquire of a barrier.
        tsan::release(&*self.core);
        self.sample(freed.objects, since);
        self.count_freed(freed.objects, bytes - self.bytes);
        panics::resume(freed.panic);
        freed.objects
    }

    /// Samples the delays of each 64th object, before these are counted as freed. `since` is the age of the domain since which the oldest
    /// of them has waited.
    fn sample(&self, freed: usize, since: Option<Duration>) {
        let samples = self.counters().freed() % EVERY + freed as u64;
        if let Some(since) = since.filter(|_| samples >= EVERY) {
            let delay = self.core.age().saturating_sub(since);
            (0..samples / EVERY).for_each(|_| self.core.delays().count(delay));
        }
    }

    /// Looks at `number` of the held objects. The next call goes on with the next ones.
    fn sweep_held<const ROOM: bool>(&mut self, number: usize, freed: &mut Freed) {
        for _ in 0..number {
            if freed.objects >= freed.most {
                break;
            }
            let held = &self.held[self.next_held];
            if self.is_pinned(&held.garbage) {
                if self.core.is_asked() {
                    self.answer(&held.garbage, held.started);
                }
                self.round_since = oldest(self.round_since, Some(held.started));
                self.round_bits |= bit_of(held.garbage.address());
                self.next_held += 1;
            } else {
                let held = self.held.swap_remove(self.next_held);
                self.free::<ROOM>(held.garbage, freed);
            }
            if self.next_held == self.held.len() {
                self.next_held = 0;
                self.held_since = self.round_since.take();
                self.held_bits = std::mem::take(&mut self.round_bits);
            }
        }
    }

    fn sweep_queue<const ROOM: bool>(&mut self, number: usize, freed: &mut Freed) {
        for _ in 0..number {
            if freed.objects >= freed.most {
                break;
            }
            let (garbage, started) = self.pop_ready();
            if self.is_pinned(&garbage) {
                if self.core.is_asked() {
                    self.answer(&garbage, started);
                }
                self.held_since = oldest(self.held_since, Some(started));
                self.held_bits |= bit_of(garbage.address());
                self.held.push(Held { garbage, started });
            } else {
                self.free::<ROOM>(garbage, freed);
            }
        }
    }

    /// Removes the object at the front, whose batch is over.
    fn pop_ready(&mut self) -> (Garbage, Duration) {
        let batch = self.batches.front_mut().expect("ready objects belong to a batch");
        let started = batch.started;
        batch.objects -= 1;
        if batch.objects == 0 {
            self.batches.pop_front();
        }
        (self.queue.pop_front().expect("batches count the objects of the queue"), started)
    }

    #[cold]
    fn answer(&self, garbage: &Garbage, started: Duration) {
        let list = self.counters().address();
        // What has the limits that the list counts for.
        let queue = self.account.as_ref().map_or(list, |account| Arc::as_ptr(account).addr());
        let pinned = Pinned { bytes: garbage.bytes(), list, queue, started };
        self.core.tell_who_asks(garbage.address(), pinned);
    }

    fn is_pinned(&self, garbage: &Garbage) -> bool {
        work::step();
        self.line.is_pinned(garbage.address())
    }

    fn free<const ROOM: bool>(&mut self, garbage: Garbage, freed: &mut Freed) {
        self.bytes -= garbage.bytes();
        // SAFETY: the object's token is over, so every region reader has passed; its address was in no hazard
        // slot gathered after that.
        unsafe { self.destroy::<ROOM>(garbage, freed) };
    }

    /// Runs the destructor, then gives the object's room back (if it may have any: `ROOM`). The order matters: the destructor
    /// happens before whatever the next owner of the room does.
    ///
    /// # Safety
    /// No reader can hold the object any more.
    unsafe fn destroy<const ROOM: bool>(&mut self, garbage: Garbage, freed: &mut Freed) {
        let bytes = garbage.bytes();
        if ROOM && busted::is(Variant::RoomBeforeFree) {
            self.core.give_room_back(bytes);
        }
        freed.objects += 1;
        // SAFETY: no reader can hold the object, by the caller's promise.
        if let Err(panic) = unsafe { garbage.free() } {
            frames::keep_first(&mut freed.panic, panic);
        }
        if ROOM && !busted::is(Variant::RoomBeforeFree) {
            if let Some(account) = self.core.account() {
                self.cache.add(account, bytes);
            }
        }
    }

    fn count_freed(&mut self, freed: usize, bytes: usize) {
        let idle = !self.reserves || self.len() == 0;
        let is_given =
            self.shares_room() && self.core.account().is_some_and(|account| self.cache.trim(account, idle));
        let counters = self.counters();
        counters.set_pinned(self.held.len(), self.held_bits, self.held_since);
        if freed > 0 {
            probe!("free", self.core.protocol.address(), freed as u64, bytes as u64);
            counters.count_freed(freed);
            counters.set_pending(self.len(), self.bytes);
        }
        // Comes after the count of what was freed, which a run that finds the account empty has told, and before the count of what is
        // under way, which `Channel::is_full_of_own` reads before it looks for room.
        let account = self.account.as_ref().filter(|_| freed > 0);
        account.iter().for_each(|account| account.give_back_all(freed, bytes));
        self.count_under_way();
        if is_given || account.is_some() || (freed > 0 && self.shares_room()) {
            // Wakes threads that wait for room.
            self.core.event().notify();
        }
    }

    fn count_under_way(&self) {
        let counters = self.counters();
        counters.set_dated(self.queue.len() - self.open, self.batches.back().map(|batch| batch.token));
        counters.set_under_way(self.under_way());
    }

    /// Frees at once the objects whose owner is gone. Returns the first panic of a destructor.
    ///
    /// # Safety
    /// No reader can hold an object for which `is_unreachable` is true.
    pub(crate) unsafe fn free_unreachable(
        &mut self,
        is_unreachable: impl Fn(&Garbage) -> bool,
    ) -> Option<Panic> {
        let mut freed = Freed::default();
        let _foreign = Foreign::begin();
        for garbage in self.take_all() {
            if is_unreachable(&garbage) {
                // SAFETY: no reader can hold the object, by the caller's promise.
                unsafe { self.destroy::<true>(garbage, &mut freed) };
            } else {
                self.push(garbage);
            }
        }
        self.count_freed(freed.objects, 0);
        freed.panic
    }

    /// What is in the way of the next object.
    pub(crate) fn obstacle(&self) -> Obstacle<'_> {
        if let Some(oldest) = self.under_way() {
            return match self.look_later(self.core.protocol.age()) {
                Some(next) => self.line.put_off(next),
                None => self.line.obstacle(&self.core, oldest, self.terms(oldest.1)),
            };
        }
        if !self.held.is_empty() {
            Obstacle::Hazard
        } else if self.open > 0 && self.core.protocol.needs_heavy() {
            let next = self.core.protocol.next_start();
            Obstacle::Pace(self.gathers_until().map_or(next, |until| until.max(next)))
        } else if self.open > 0 {
            let until = self.gathers_until().filter(|until| self.core.protocol.age() < *until);
            until.map_or(Obstacle::Nothing, Obstacle::Pace)
        } else {
            Obstacle::Empty
        }
    }
}

/// The earlier of two ages of the domain, each of which may be missing.
fn oldest(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

#[derive(Default)]
struct Freed {
    /// At most this many objects are to be freed.
    most: usize,
    objects: usize,
    panic: Option<Panic>,
}

/// Passes what is pending to the domain.
impl Drop for RetireList {
    fn drop(&mut self) {
        self.end_boost();
        self.pass_on();
        if self.core.account().is_some_and(|account| self.cache.give_back(account)) {
            self.core.event().notify();
        }
        self.core.counters.release(&self.counters);
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests;
