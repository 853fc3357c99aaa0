//! The retire lists of threads that write to cells of the default domain.
//!
//! Each such thread has a list, behind a lock that no thread waits for: while another thread has the lock, the owner
//! leaves objects to the domain instead. The owner polls with nearly each of its writes. If it is silent for a while, or its
//! thread has ended, other threads poll for it. Each poll of the domain visits one list, in turn, and checks whether its owner
//! is silent. A retirement that finds the domain full visits several, silent or not.
//!
//! Threads come and go; what decides when a list is polled stays with the list. If a thread ends while objects wait in its list, the
//! list is *vacant*: the next thread that needs a list gets it, or a visiting thread that has emptied it gives its place back. So a
//! visit looks at lists that have an owner or objects, however many threads there once were.
//!
//! The argument is in `docs/design/rcu.md`.

use std::sync::Arc;
use std::time::Duration;

use super::account::Limits;
use super::retire_list::{Pace, RetireList, SHARE};
use crate::rcu::engine::core::garbage::Garbage;
use crate::rcu::engine::core::registry::{Claim, Registry};
use crate::rcu::engine::wait::counters::Round;
use crate::rcu::engine::wait::freeing::is_freeing;
use crate::rcu::engine::Core;
use stillpoint_sys::panics::{self, Panic};
use stillpoint_sys::sync::{Locked, TryLock};

// Not modelled: hints for visiting threads.
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// An owner that has not polled for this long is silent.
const SILENT: Duration = if cfg!(stillpoint_loom) { Duration::ZERO } else { Duration::from_millis(1) };

/// While at most this many objects wait, an owner polls with each write; beyond that, with one write of this many.
const EAGER: usize = 32;

/// Most objects that an owner's poll looks at. Even if protected loads hold a share of them, it frees more than have come since
/// the last poll.
const LOOKED_AT: usize = 2 * SHARE;

#[derive(Debug, Default)]
pub(crate) struct Shelf {
    content: TryLock<Content>,
    /// Whether the owner's thread has ended, and nobody has taken its place. Then the slot is claimed for whoever clears this.
    is_vacant: AtomicBool,
    round: Round,
    /// Age of the domain in nanoseconds at the owner's last poll; 0 while nothing waits.
    polled: AtomicU64,
    /// Whether the list was locked by a thread of the parent that does not exist in this child of a `fork`.
    is_lost: AtomicBool,
}

/// What the lock protects.
#[derive(Debug, Default)]
struct Content {
    list: Option<RetireList>,
    /// Number of writes since an owner polled the list, whichever threads made them.
    unpolled: usize,
}

impl Shelf {
    /// Takes the turn at the list, unless a thread has it.
    fn begin(&self) -> Option<Turn<'_>> {
        self.content.try_lock().map(|content| Turn { shelf: self, content })
    }

    /// Takes the place of an owner that has gone: from then on the caller has the claim. False if there is none.
    fn take_place(&self) -> bool {
        // Relaxed, first: a hint. Acquire: pairs with the release in `OwnShelf::end`, which the lock and the registry order as well.
        self.is_vacant.load(Ordering::Relaxed) && self.is_vacant.swap(false, Ordering::Acquire)
    }

    /// Whether objects wait here.
    fn is_in_use(&self) -> bool {
        // Relaxed: a hint, or ordered by the fences of the event.
        self.polled.load(Ordering::Relaxed) != 0 && !self.is_lost()
    }

    /// Whether the list stays locked for ever.
    fn is_lost(&self) -> bool {
        // Relaxed: set while there was only one thread.
        self.is_lost.load(Ordering::Relaxed)
    }

    /// In the child of a `fork`: gives up the list if it is locked. If the calling thread has the lock, because it is in a
    /// destructor, the end of the turn takes this back.
    fn reset_after_fork(&self) {
        self.is_lost.store(self.content.is_locked(), Ordering::Relaxed);
    }

    /// Whether the owner does not poll although objects wait here, or is gone.
    fn is_silent(&self, age: impl FnOnce() -> Duration) -> bool {
        // Relaxed, both: a hint.
        if self.is_vacant.load(Ordering::Relaxed) {
            return true;
        }
        let polled = self.polled.load(Ordering::Relaxed);
        polled != 0 && age().saturating_sub(Duration::from_nanos(polled)) >= SILENT
    }
}

/// The right to use the list. At its end, also after a panic, it records whether objects wait there.
struct Turn<'s> {
    shelf: &'s Shelf,
    content: Locked<'s, Content>,
}

impl Turn<'_> {
    /// Sets the time of the owner's last poll.
    fn polled(&mut self, age: Duration) {
        // Relaxed: see `Shelf`.
        self.shelf.polled.store(age.as_nanos() as u64 | 1, Ordering::Relaxed);
    }

    /// Whether no object waits here.
    fn is_empty(&self) -> bool {
        self.content.list.as_ref().is_none_or(|list| list.len() == 0)
    }

    /// Frees an empty list with its memory: the owner may be gone. Returns whether the list was empty.
    fn clean_up(&mut self) -> bool {
        let is_empty = self.is_empty();
        if is_empty {
            self.content.list = None;
        }
        is_empty
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.is_empty() {
            self.shelf.polled.store(0, Ordering::Relaxed);
        }
        if self.shelf.is_lost() {
            self.shelf.is_lost.store(false, Ordering::Relaxed);
        }
    }
}

/// A thread's list.
#[derive(Debug)]
pub(crate) struct OwnShelf {
    claim: Claim<Shelf>,
}

impl OwnShelf {
    /// A list that an ended thread has left, if there is one. Otherwise a new one.
    pub(crate) fn new(core: &Core) -> Self {
        Self { claim: core.claim_shelf() }
    }

    /// Takes in an object that was just unlinked, and frees what is ready. Looks at a bounded number of objects: in this
    /// list, in another one, and among the orphans.
    ///
    /// # Panics
    /// With the panic of a destructor; the object has been taken in.
    pub(crate) fn put(&mut self, core: &Arc<Core>, garbage: Garbage) {
        let shelf = self.shelf(core);
        let Some(mut turn) = shelf.begin() else {
            // Another thread has the lock, or this is a destructor that runs in a poll of the list.
            return core.leave_behind(garbage);
        };
        let new = || RetireList::new(Arc::clone(core), Pace::DEFAULT, Limits::NONE);
        let list = turn.content.list.get_or_insert_with(new);
        list.retire(garbage);
        let len = list.len();
        turn.content.unpolled += 1;
        if len > EAGER && turn.content.unpolled < EAGER {
            return;
        }
        // Read once: it costs as much as the rest of a poll that finds nothing.
        let now = core.age();
        if !is_freeing() || len == 1 {
            turn.polled(now);
        }
        if len == 1 {
            // Wakes a background reclaimer that sleeps.
            core.event().notify();
        }
        // Destructors do not nest: what one of them retires waits for the next poll.
        if !is_freeing() {
            turn.content.unpolled = 0;
            turn.content.list.as_mut().map(|list| {
                // Otherwise the list could grow without limit by what others leave.
                if list.is_short() {
                    list.adopt(SHARE);
                }
                list.poll_for_write(LOOKED_AT, now)
            });
            drop(turn);
            core.pass_by(&shelf.round, || now);
        }
    }

    /// The thread's list; a new one if that is lost.
    fn shelf<'c>(&mut self, core: &'c Core) -> &'c Shelf {
        loop {
            // SAFETY: the core is borrowed, and owns the registry.
            let shelf: &'c Shelf = unsafe { self.claim.slot() };
            if !shelf.is_lost() {
                return shelf;
            }
            // The slot stays claimed: no other thread gets it.
            self.claim = core.claim_shelf();
        }
    }

    /// Called at the end of the owner's thread. The objects stay in the list: other threads visit it, and the next thread that
    /// needs a list goes on with it.
    pub(crate) fn end(&mut self, core: &Core) {
        let shelf = self.shelf(core);
        let mut turn = shelf.begin();
        if let Some(list) = turn.as_mut().and_then(|turn| turn.content.list.as_mut()) {
            list.end_boost();
        }
        // Another thread that polls the list may be freeing the last object: then the place is vacant without need.
        if turn.is_some_and(|mut turn| turn.clean_up()) {
            core.shelves.release(&self.claim);
        } else {
            // Release: pairs with the acquire in `take_place`.
            shelf.is_vacant.store(true, Ordering::Release);
        }
    }
}

/// The lists of all threads.
pub(crate) type Shelves = Registry<Shelf>;

impl Core {
    /// A place for a thread's list: one that an ended thread has left, if there is one among the first, or a new one.
    fn claim_shelf(&self) -> Claim<Shelf> {
        let mut first = self.shelves.claims().take(SHARE);
        let vacant = first.find(|(shelf, _)| !shelf.is_lost() && shelf.take_place());
        vacant.map_or_else(|| self.shelves.claim(), |(_, claim)| claim)
    }

    /// Polls the list of a silent thread, if its turn has come. Does nothing in a domain without such lists. `round` is kept with
    /// what outlives the caller: callers that each come once would all visit the same list. `now` is the age of the domain.
    ///
    /// # Panics
    /// With the panic of a destructor.
    pub(crate) fn pass_by(&self, round: &Round, now: impl FnOnce() -> Duration) {
        let Some((shelf, claim)) = self.shelves.next_from(round.get()) else { return };
        round.set(claim.number() + 1);
        if shelf.is_silent(now) && !shelf.is_lost() {
            self.visit(shelf, &claim, |list| list.poll_own(SHARE));
        }
    }

    /// For a thread that finds no room in the domain: polls the lists of threads in turn, until something was freed, or a share of
    /// the lists was looked at. Does not ask whether an owner is silent: one list may be the caller's own, and nobody can retire
    /// much anyway. Returns the number of objects that were freed.
    ///
    /// # Panics
    /// With the panic of a destructor.
    pub(crate) fn pass_by_for_room(&self, round: &Round) -> usize {
        // Destructors do not nest.
        let most = if is_freeing() { 0 } else { SHARE };
        let mut first = None;
        for _ in 0..most {
            let Some((shelf, claim)) = self.shelves.next_from(round.get()) else { break };
            if first == Some(claim.number()) {
                break;
            }
            first.get_or_insert(claim.number());
            round.set(claim.number() + 1);
            if shelf.is_in_use() {
                let freed = self.visit(shelf, &claim, RetireList::hurry);
                if freed > 0 {
                    return freed;
                }
            }
        }
        0
    }

    /// Polls a list in place of its owner. Gives back a place that is vacant and empty.
    fn visit(
        &self,
        shelf: &Shelf,
        claim: &Claim<Shelf>,
        poll: impl FnOnce(&mut RetireList) -> usize,
    ) -> usize {
        let Some(mut turn) = shelf.begin() else { return 0 };
        let freed = turn.content.list.as_mut().map_or(0, poll);
        // With the lock: nobody who takes the place has put an object there since this look.
        let is_left = turn.clean_up() && shelf.take_place();
        drop(turn);
        if is_left {
            self.shelves.release(claim);
        }
        freed
    }

    /// Polls the lists of all silent threads. Returns whether anything was freed; the first panic is kept in `first`.
    pub(crate) fn pass_by_all(&self, first: &mut Option<Panic>) -> bool {
        let mut freed = 0;
        for (shelf, claim) in self.shelves.claims() {
            if shelf.is_silent(|| self.age()) && !shelf.is_lost() {
                match panics::catch(|| self.visit(shelf, &claim, |list| list.poll_own(usize::MAX))) {
                    Ok(objects) => freed += objects,
                    Err(panic) => panics::keep_first(first, panic),
                }
            }
        }
        freed > 0
    }

    /// Whether objects wait in the list of a thread.
    pub(crate) fn has_shelved(&self) -> bool {
        self.shelves.iter().any(Shelf::is_in_use)
    }

    /// In the child of a `fork`: gives up the lists that other threads of the parent had locked. A visitor may have locked a place
    /// that its owner has given back meanwhile, so this looks at all places.
    pub(crate) fn reset_shelves_after_fork(&self) {
        self.shelves.iter_all().for_each(Shelf::reset_after_fork);
    }

    /// Takes over the objects in the lists of all threads, each list once. Waits by `pause` while another thread has a list.
    /// Returns false if `pause` gives up.
    pub(crate) fn take_shelved(&self, list: &mut RetireList, mut pause: impl FnMut() -> bool) -> bool {
        for shelf in self.shelves.iter().filter(|shelf| !shelf.is_lost()) {
            let mut turn = shelf.begin();
            while turn.is_none() && pause() {
                turn = shelf.begin();
            }
            let Some(mut turn) = turn else { return false };
            turn.content.list.iter_mut().for_each(|other| list.take_over(other));
        }
        true
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests;
