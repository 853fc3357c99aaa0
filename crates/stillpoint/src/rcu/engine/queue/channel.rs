//! What retire handles and a background reclaimer share.
//!
//! ```text
//!   retire handle --> stack --> the reclaimer's retire list
//!                       |             ^
//!                       +--> what retire handles free
//! ```
//!
//! An object is counted once, in the channel's account, from the moment at which room is taken up for it until its destructor has
//! run, wherever it is meanwhile. So the limits cover all three places together, and a run that finds nothing in the account has
//! nothing left to do.
//!
//! A retire handle that finds no room takes its turn at a retire list that all handles share; it does not wait for the turn. It
//! takes a share of what has been submitted, and frees it if no reader is in the way. What a reader keeps alive stays in the shared
//! list, with its grace period, for the next handle; the background reclaimer takes it over at its next turn. So the shared list
//! never has more than a share, and what protected loads hold of earlier ones: a retire handle that is preempted in its turn delays no
//! more than that.

use std::sync::Arc;

use super::account::{Account, Limits};
use super::handover::Stack;
use super::retire_list::{Full, Pace, RetireList, SHARE};
use crate::busted::{self, Variant};
use crate::frames::is_freeing;
use crate::rcu::engine::core::garbage::Garbage;
use crate::rcu::engine::core::grace::Grace;
use crate::rcu::engine::wait::counters::Counters;
use crate::rcu::engine::wait::own_holds::{sum_of_bytes, OwnHolds};
use crate::rcu::engine::Core;
use crate::rcu::orders;
use stillpoint_sys::sync::atomic::{fence, AtomicUsize, Ordering};
use stillpoint_sys::sync::{Locked, TryLock};

/// The retire list that handles share, each in turn.
#[derive(Default)]
struct Shared {
    /// Made in the first turn.
    list: Option<RetireList>,
    /// The token that the last share of orphans waited for.
    orphans: u64,
}

pub(crate) struct Channel {
    core: Arc<Core>,
    stack: Stack,
    /// Every object that waits here, in the shared retire list, or in the reclaimer's.
    account: Arc<Account>,
    /// Objects on the stack, or about to be there.
    submitted: AtomicUsize,
    /// Objects that were left in the shared retire list. Written with the lock.
    assisted: AtomicUsize,
    shared: TryLock<Shared>,
    /// The address of the counters of the reclaimer's retire list.
    counters: usize,
    /// Number of submitted objects at which the reclaimer should be woken.
    enough: AtomicUsize,
    handles: AtomicUsize,
    /// [`NONE`], [`ASKED`] or [`SEEN`]: whether a retirement was refused.
    request: AtomicUsize,
    /// One of the constants below; it only increases. The lack of retire handles is not a phase: handles come and go.
    phase: AtomicUsize,
}

/// No retirement was refused since something has moved; one was; and the reclaimer knows that.
const NONE: usize = 0;
const ASKED: usize = 1;
const SEEN: usize = 2;

pub(crate) const RUNNING: usize = 0;
/// A run should free everything, then return.
pub(crate) const STOPPING: usize = 1;
/// A run should return at once.
pub(crate) const ABANDONED: usize = 2;
/// The reclaimer is gone.
pub(crate) const CLOSED: usize = 3;

impl Channel {
    pub(crate) fn new(core: Arc<Core>, limits: Limits) -> Self {
        Self {
            core,
            stack: Stack::default(),
            account: Arc::new(Account::counting(limits)),
            submitted: AtomicUsize::new(0),
            assisted: AtomicUsize::new(0),
            shared: TryLock::new(Shared::default()),
            counters: 0,
            enough: AtomicUsize::new(1),
            handles: AtomicUsize::new(0),
            request: AtomicUsize::new(NONE),
            phase: AtomicUsize::new(RUNNING),
        }
    }

    /// The channel of a reclaimer with this retire list.
    pub(crate) fn of_list(mut self, list: &mut RetireList) -> Self {
        self.counters = list.counters().address();
        list.count_in(&self.account);
        self
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn phase(&self) -> usize {
        // Acquire: pairs with the release in `advance`, so that what was submitted before it is seen.
        self.phase.load(Ordering::Acquire)
    }

    /// What a run should do: the phase. Without retire handles, it should free everything, then return, as no thread can hand
    /// anything in meanwhile, or stop it.
    pub(crate) fn aim(&self) -> usize {
        let is_alone = self.handles.load(orders::handles()) == 0;
        self.phase().max(if is_alone { STOPPING } else { RUNNING })
    }

    pub(crate) fn advance(&self, phase: usize) {
        // Release: pairs with the acquire load in `phase`.
        self.phase.fetch_max(phase, Ordering::Release);
        self.core.event().notify();
    }

    /// Number of objects that were handed in, or adopted by the reclaimer, and are not freed yet.
    pub(crate) fn pending(&self) -> usize {
        self.account.objects.taken().expect("it counts objects")
    }

    /// Number of objects that were left in the shared retire list.
    fn assisted(&self) -> usize {
        // Relaxed: a hint, or as new as the end of a turn, which the caller has acquired.
        self.assisted.load(Ordering::Relaxed)
    }
}

/// The retire handles' side.
impl Channel {
    pub(crate) fn add_handle(&self) {
        // Relaxed: the count grows only through existing retire handles or the reclaimer. It never grows from 0 during a run,
        // which borrows the reclaimer exclusively.
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove_handle(&self) {
        if self.handles.fetch_sub(1, orders::handle_gone()) == 1 {
            self.core.event().notify();
        }
    }

    /// The size of the largest object for which there can be room.
    pub(crate) fn largest(&self) -> usize {
        self.core.largest(self.account.limits().bytes)
    }

    /// Takes up room for one object, unless a limit is reached, here or in the domain.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<(), Full> {
        if !self.account.reserve(bytes) {
            self.ask_for_room();
            return Err(Full::Queue);
        }
        if !self.core.reserve(bytes) {
            self.account.give_back(bytes);
            self.ask_for_room();
            return Err(Full::Domain);
        }
        Ok(())
    }

    /// Wakes the reclaimer, which then waits for no pace: what fills a limit may be less than a batch. Once, until something has moved: those
    /// who wait for room sleep where the reclaimer does.
    #[cold]
    fn ask_for_room(&self) {
        // Relaxed: a hint that keeps the exchange out of most refusals. Release: pairs with the acquire in `is_asked`, so that the reclaimer
        // sees what this thread has submitted.
        let is_new = self.request.load(Ordering::Relaxed) == NONE
            && self.request.compare_exchange(NONE, ASKED, Ordering::Release, Ordering::Relaxed).is_ok();
        if is_new {
            self.core.event().notify();
        }
    }

    /// Whether there is no room for an object even if everything is freed that the calling thread does not hold up. Also true if
    /// its region is in the way of all that waits.
    pub(crate) fn is_full_of_own(&self, own: &mut OwnHolds<'_>, bytes: usize) -> bool {
        let pinned = own.pinned();
        let here = pinned.iter().filter(|pinned| pinned.queue == Arc::as_ptr(&self.account).addr());
        if self.account.limits().is_full_with(here.clone().count(), sum_of_bytes(here), bytes) {
            return true;
        }
        // What is on the stack has no token yet. The reclaimer takes over what is in the shared list.
        let mut list = self.core.all_counters().filter(|counters| counters.address() == self.counters);
        let is_blocked = |counters: &Counters| own.is_in_the_way_of(counters, &pinned);
        // The order matters: who finds no turn sees what turns have left, and who sees in the counters that a poll has freed objects sees
        // their room.
        !self.is_in_turn() && self.assisted() == 0 && list.all(is_blocked) && !self.account.has_room(bytes)
    }

    /// Takes up room for one object that cannot be refused.
    pub(crate) fn charge(&self, bytes: usize) {
        self.account.charge(bytes);
        self.core.charge(bytes);
    }

    /// Hands over an object for which there is room.
    pub(crate) fn submit(&self, garbage: Garbage) {
        self.core.shared_counters().share_retired();
        self.core.shared_counters().pend(garbage.bytes());
        // Relaxed: a hint; comes before the push, after which another thread lowers it.
        self.submitted.fetch_add(1, Ordering::Relaxed);
        self.stack.push(garbage);
        // SeqCst: pairs with the fence in `Event::sleep_unless`: either the reclaimer sees this object before it
        // sleeps, or this thread sees `enough`. Pairs also with the fence in `Event::notify`, called by `advance`: either the
        // reclaimer's drop finds this object, or this thread sees its phase.
        if !busted::is(Variant::SubmitUnfenced) {
            fence(Ordering::SeqCst);
        }
        self.tell_of_submissions();
        if self.phase() == CLOSED {
            self.pass_on();
        }
    }

    /// Wakes the reclaimer if enough is submitted. What a handle has taken meanwhile is that handle's to free, or to tell of.
    pub(crate) fn tell_of_submissions(&self) {
        // Relaxed, both: ordered by the fence in `submit`.
        if self.submitted.load(Ordering::Relaxed) >= self.enough.load(Ordering::Relaxed) {
            self.core.event().notify();
        }
    }

    /// Frees a share of what was submitted, if no reader is in the way. In a full domain, also frees orphans, or else what waits in
    /// the lists of threads. Never waits: looks only at those lists if another retire handle has the turn. Returns the number of
    /// objects.
    ///
    /// # Panics
    /// With the panic of a destructor; what was ready has been freed.
    pub(crate) fn assist(&self, full: Full) -> usize {
        match (self.take_turn(full), full) {
            (0, Full::Domain) => self.core.visit_for_room(self.core.shared_counters().round()),
            (freed, _) => freed,
        }
    }

    fn take_turn(&self, full: Full) -> usize {
        // Destructors of others do not nest in one.
        if is_freeing() {
            return 0;
        }
        let Some(mut turn) = self.begin() else { return 0 };
        let list = turn.list();
        let freed = list.advance(SHARE);
        if freed > 0 || list.awaits_readers() {
            return freed;
        }
        self.move_to(list, SHARE);
        list.close();
        let freed = list.advance(SHARE);
        match full {
            Full::Domain => freed + turn.reclaim_orphans(SHARE - freed),
            Full::Queue => freed,
        }
    }
}

/// The reclaimer's side.
impl Channel {
    /// Moves what was submitted, and what handles left in the shared list, to the reclaimer's retire list. Returns whether anything
    /// was moved.
    pub(crate) fn take_in(&self, list: &mut RetireList) -> bool {
        let before = list.len();
        if self.has_leftovers() {
            if let Some(mut turn) = self.begin() {
                list.take_over(turn.list());
            }
        }
        self.move_to(list, usize::MAX);
        list.len() > before
    }

    /// Whether a retirement was refused, and nothing has moved since. Comes before [`take_in`](Channel::take_in).
    pub(crate) fn is_asked(&self) -> bool {
        // Acquire: pairs with the release in `ask_for_room`. Relaxed: only the reclaimer stores this.
        let request = self.request.load(Ordering::Acquire);
        if request == ASKED {
            self.request.store(SEEN, Ordering::Relaxed);
        }
        request != NONE
    }

    /// There may be room by now: who is refused asks again.
    pub(crate) fn end_request(&self) {
        // Relaxed: see `is_asked`.
        self.request.store(NONE, Ordering::Relaxed);
    }

    /// Whether the reclaimer, which waits for `enough` submitted objects, has something to take in.
    pub(crate) fn has_work(&self, enough: usize) -> bool {
        // Relaxed: ordered by the fences in `submit` and `Event::sleep_unless`.
        let is_enough = self.submitted.load(Ordering::Relaxed) >= enough;
        (is_enough && !self.stack.is_empty())
            || self.has_leftovers()
            || self.request.load(Ordering::Relaxed) == ASKED
    }

    /// Sets the number of submitted objects at which the reclaimer should be woken.
    pub(crate) fn set_enough(&self, objects: usize) {
        // Relaxed: ordered by the fences in `submit` and `Event::sleep_unless`.
        self.enough.store(objects, Ordering::Relaxed);
    }
}

impl Channel {
    /// Moves what was submitted, at most `limit` objects, to a retire list that counts in the same account.
    fn move_to(&self, list: &mut RetireList, limit: usize) {
        if self.stack.is_empty() {
            return;
        }
        let mut taken = self.stack.take();
        if limit == usize::MAX {
            taken = taken.oldest_first();
        }
        let mut objects = 0;
        for garbage in taken.by_ref().take(limit) {
            objects += 1;
            self.core.unpend(&garbage);
            list.push(garbage);
        }
        self.stack.give_back(taken);
        // Relaxed: a hint.
        self.submitted.fetch_sub(objects, Ordering::Relaxed);
    }

    /// Passes to the domain what no reclaimer will take in any more.
    pub(crate) fn pass_on(&self) {
        let core = &self.core;
        core.add_orphans(self.stack.take().oldest_first().inspect(|garbage| {
            // Relaxed: a hint.
            self.submitted.fetch_sub(1, Ordering::Relaxed);
            self.account.give_back(garbage.bytes());
            core.unpend(garbage);
        }));
        // A thread that has the turn does the same at its end.
        if let Some(mut shared) = self.shared.try_lock() {
            // A retire list that is dropped leaves what it has to the domain.
            drop(shared.list.take());
            self.assisted.store(0, Ordering::Relaxed);
        }
    }

    /// Takes the turn at the shared retire list, unless another thread has it.
    fn begin(&self) -> Option<Turn<'_>> {
        self.shared.try_lock().map(|shared| Turn { channel: self, shared: Some(shared) })
    }

    /// Whether objects are left in the shared retire list, and no thread has the turn.
    fn has_leftovers(&self) -> bool {
        self.assisted() > 0 && !self.is_in_turn()
    }

    /// Whether a retire handle has the turn.
    pub(crate) fn is_in_turn(&self) -> bool {
        self.shared.is_locked()
    }
}

/// Passes on what was submitted while the reclaimer was being dropped.
impl Drop for Channel {
    fn drop(&mut self) {
        self.pass_on();
    }
}

/// A turn at the shared retire list. What is left there is counted at the end.
struct Turn<'i> {
    channel: &'i Channel,
    /// `None` only during the drop.
    shared: Option<Locked<'i, Shared>>,
}

impl Turn<'_> {
    fn shared(&mut self) -> &mut Shared {
        self.shared.as_mut().expect("a turn has the lock until its drop")
    }

    /// The retire list. Its pace does not matter: the thread that has the turn starts the grace periods.
    fn list(&mut self) -> &mut RetireList {
        let channel = self.channel;
        let new = || {
            let mut list = RetireList::new(Arc::clone(&channel.core), Pace::DEFAULT, Limits::NONE);
            list.count_in(&channel.account);
            list
        };
        self.shared().list.get_or_insert_with(new)
    }

    /// Frees a share of the orphans. What a reader keeps alive goes back, since no thread serves the shared list, and a barrier
    /// would not find it there. The next share waits until that reader has passed.
    fn reclaim_orphans(&mut self, limit: usize) -> usize {
        let core = &self.channel.core;
        let shared = self.shared.as_mut().expect("a turn has the lock until its drop");
        let is_over = matches!(core.protocol.check(shared.orphans), Ok(Grace::Over));
        if limit == 0 || !core.has_orphans() || !is_over {
            return 0;
        }
        let mut list = RetireList::of_orphans(core, limit);
        shared.orphans = list.close().unwrap_or(shared.orphans);
        list.advance(limit)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let channel = self.channel;
        let left = self.shared().list.as_ref().map_or(0, RetireList::len);
        // Relaxed: the lock orders it.
        channel.assisted.store(left, Ordering::Relaxed);
        self.shared = None;
        // SeqCst, also within `notify`: pairs with the fence in `Event::notify`, called by `advance`. Either the reclaimer's drop finds
        // what is left, here or on the stack, or this thread sees its phase.
        let is_broken = busted::is(Variant::ClosedUnseen);
        if left > 0 && !is_broken {
            // The thread that submitted an object may have told nobody: it was no longer on the stack.
            channel.core.event().notify();
        } else if !is_broken {
            fence(Ordering::SeqCst);
        }
        if channel.phase() == CLOSED {
            channel.pass_on();
        }
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests;
