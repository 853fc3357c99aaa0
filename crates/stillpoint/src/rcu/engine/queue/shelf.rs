//! The retire lists of threads that write to cells of the default domain.
//!
//! Each such thread has a list, behind a lock that nobody waits for: while another thread is at the list, its owner
//! leaves objects to the domain instead. The owner polls with nearly each of its writes. When it is silent for a while,
//! those polls come from others: each poll of the domain passes by one list, in turn, and looks whether it has to.
//!
//! The argument is in `docs/design/rcu.md`.

use std::sync::Arc;
use std::time::Duration;

use super::retire_list::{is_freeing, Limits, Pace, RetireList, SHARE};
use crate::rcu::engine::core::garbage::Garbage;
use crate::rcu::engine::core::registry::{Claim, Registry};
use crate::rcu::engine::Core;
use stillpoint_sys::panics::{self, Panic};
use stillpoint_sys::sync::{Locked, TryLock};

// Not modelled: a hint for who passes by.
use std::sync::atomic::{AtomicU64, Ordering};

/// An owner that has not polled for so long is silent.
const SILENT: Duration = if cfg!(loom) { Duration::ZERO } else { Duration::from_millis(1) };

/// An owner polls with each write while so few objects wait, and then with one write of so many.
const EAGER: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct Shelf {
    list: TryLock<Option<RetireList>>,
    /// Age of the domain in nanoseconds at the owner's last poll; 0 while nothing waits.
    polled: AtomicU64,
}

impl Shelf {
    /// Takes the turn at the list, unless somebody has it.
    fn begin(&self) -> Option<Turn<'_>> {
        self.list.try_lock().map(|list| Turn { shelf: self, list })
    }

    /// Whether something waits here.
    fn is_in_use(&self) -> bool {
        // Relaxed: a hint, or ordered by the fences of the event.
        self.polled.load(Ordering::Relaxed) != 0
    }

    /// Whether something waits here, and the owner does not poll, or is gone.
    fn is_silent(&self, age: Duration) -> bool {
        // Relaxed: a hint.
        let polled = self.polled.load(Ordering::Relaxed);
        polled != 0 && age.saturating_sub(Duration::from_nanos(polled)) >= SILENT
    }
}

/// The right to use the list. Says at its end whether something waits there, after a panic, too.
struct Turn<'s> {
    shelf: &'s Shelf,
    list: Locked<'s, Option<RetireList>>,
}

impl Turn<'_> {
    /// Sets the time of the owner's last poll.
    fn polled(&mut self, age: Duration) {
        // Relaxed: see `Shelf`.
        self.shelf.polled.store(age.as_nanos() as u64 | 1, Ordering::Relaxed);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.list.as_ref().is_none_or(|list| list.len() == 0) {
            self.shelf.polled.store(0, Ordering::Relaxed);
        }
    }
}

/// Where a thread's list is, and where the thread is in its round.
#[derive(Debug)]
pub(crate) struct OwnShelf {
    claim: Claim<Shelf>,
    writes: usize,
    round: Round,
}

/// Which list comes next.
#[derive(Debug, Default)]
pub(crate) struct Round(usize);

impl OwnShelf {
    pub(crate) fn new(core: &Core) -> Self {
        Self { claim: core.shelves.claim(), writes: 0, round: Round::default() }
    }

    /// Takes in an object that was unlinked just now, and frees what is ready: looks at no more than a share of the objects in
    /// the list, of those in another one, and of those that nobody looks after.
    ///
    /// # Panics
    /// With the panic of a destructor; the object has been taken in.
    pub(crate) fn put(&mut self, core: &Arc<Core>, garbage: Garbage) {
        // SAFETY: the core is alive.
        let shelf: &Shelf = unsafe { self.claim.slot() };
        let Some(mut turn) = shelf.begin() else {
            // Somebody is at it, or this is a destructor that runs in a poll of the list.
            return core.leave_behind(garbage);
        };
        let new = || RetireList::new(Arc::clone(core), Pace::DEFAULT, Limits::NONE);
        let list = turn.list.get_or_insert_with(new);
        list.retire(garbage);
        let len = list.len();
        self.writes = self.writes.wrapping_add(1);
        if len > EAGER && self.writes % EAGER != 0 {
            return;
        }
        if !is_freeing() || len == 1 {
            turn.polled(core.age());
        }
        if len == 1 {
            // For a background reclaimer that sleeps.
            core.event().notify();
        }
        // Destructors do not nest: what one of them retires waits for the next poll.
        if !is_freeing() {
            turn.list.as_mut().map(|list| list.poll(SHARE));
            drop(turn);
            core.pass_by(&mut self.round);
        }
    }

    /// The owner's thread ends, and passes on what waits; or whoever is at the list goes on with it.
    pub(crate) fn end(&mut self, core: &Core) {
        // SAFETY: the core is alive.
        let shelf: &Shelf = unsafe { self.claim.slot() };
        if let Some(mut turn) = shelf.begin() {
            // A retire list that is dropped leaves what it has to the domain.
            drop(turn.list.take());
        }
        core.shelves.release(&self.claim);
    }
}

/// The lists of all threads.
pub(crate) type Shelves = Registry<Shelf>;

impl Core {
    /// Polls the list of a thread that is silent, if it is its turn. Does nothing in a domain without such lists.
    ///
    /// # Panics
    /// With the panic of a destructor.
    pub(crate) fn pass_by(&self, round: &mut Round) {
        let Some(shelf) = self.shelves.any(round.0) else { return };
        round.0 = round.0.wrapping_add(1);
        if shelf.is_in_use() && shelf.is_silent(self.age()) {
            if let Some(list) = shelf.begin().as_mut().and_then(|turn| turn.list.as_mut()) {
                list.poll(SHARE);
            }
        }
    }

    /// Polls the lists of all threads that are silent. Whether something was freed; the first panic is kept in `first`.
    pub(crate) fn pass_by_all(&self, first: &mut Option<Panic>) -> bool {
        let mut freed = 0;
        for shelf in self.shelves.iter_all().filter(|shelf| shelf.is_in_use()) {
            if shelf.is_silent(self.age()) {
                let answer = panics::catch(|| {
                    let mut turn = shelf.begin();
                    let list = turn.as_mut().and_then(|turn| turn.list.as_mut());
                    list.map_or(0, |list| list.poll(usize::MAX))
                });
                match answer {
                    Ok(objects) => freed += objects,
                    Err(panic) => panics::keep_first(first, panic),
                }
            }
        }
        freed > 0
    }

    /// Whether something waits in the list of a thread.
    pub(crate) fn has_shelved(&self) -> bool {
        self.shelves.iter_all().any(Shelf::is_in_use)
    }

    /// Takes over what waits in the lists of all threads, each once, and waits by `pause` while somebody is at one. False when that
    /// gives up.
    pub(crate) fn take_shelved(&self, list: &mut RetireList, mut pause: impl FnMut() -> bool) -> bool {
        for shelf in self.shelves.iter_all() {
            let mut turn = shelf.begin();
            while turn.is_none() && pause() {
                turn = shelf.begin();
            }
            let Some(mut turn) = turn else { return false };
            turn.list.iter_mut().for_each(|other| list.take_over(other));
        }
        true
    }
}
