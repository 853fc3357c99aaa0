//! Retire lists that anybody may serve.
//!
//! A shelf is a retire list behind a lock that no thread waits for. It belongs to a thread that writes to cells of the default
//! domain, or to a table. Its owner polls it with its writes. If the owner is silent for a while, or gone, others poll it: each
//! poll of the domain visits one shelf, in turn, and checks whether its owner is silent. A retirement that finds the domain full
//! visits several, silent or not. Who finds a shelf locked leaves the object to the domain instead.
//!
//! Owners come and go; what decides when a list is polled stays with the shelf. If a thread ends while objects wait in its list, the
//! shelf is *vacant*: the next thread that needs one gets it, or a visitor that has emptied it gives its place back. A table has a
//! *lease*: a visitor that finds the list empty, and the table silent, ends it, and the next removal begins another one. So a
//! visit looks at shelves of living threads and of busy tables, however many there once were.
//!
//! The argument is in `docs/design/rcu.md`.

use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use super::account::Limits;
use super::retire_list::{Pace, RetireList, SHARE};
use crate::busted::{self, Variant};
use crate::frames::{self, is_freeing};
use crate::rcu::engine::core::garbage::Garbage;
use crate::rcu::engine::core::registry::{Claim, Registry};
use crate::rcu::engine::wait::counters::Round;
use crate::rcu::engine::Core;
use stillpoint_sys::os::coarse;
use stillpoint_sys::panics::{self, Panic};
use stillpoint_sys::sync::atomic::{fence, AtomicPtr, Ordering};
use stillpoint_sys::sync::{Locked, TryLock};

// Not modelled: hints for visiting threads.
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

/// An owner that has not polled for this long is silent.
const SILENT: Duration = if cfg!(stillpoint_loom) { Duration::ZERO } else { Duration::from_millis(1) };

/// While at most this many objects wait, an owner polls with each write; beyond that, with one write in this many, or in [`TIMED`] if the
/// coarse time has changed since the last poll: otherwise what is free would wait for a writer that writes once a day.
const EAGER: usize = 32;
const TIMED: usize = 8;

/// Most objects that an owner's poll looks at. Even if protected loads hold a share of them, it frees more than have come since
/// the last poll.
const LOOKED_AT: usize = 2 * SHARE;

/// Most free shelves that a lease passes over because a thread has them locked.
const LOCKED_PASSED: usize = 3;

#[derive(Default)]
pub(crate) struct Shelf {
    content: TryLock<Content>,
    /// Number of objects that wait here. Written with the lock.
    len: AtomicUsize,
    /// Age of the domain in nanoseconds at the owner's last poll.
    polled: AtomicU64,
    /// Whether the owner's thread has ended, and nobody has taken its place. Then the slot is claimed for whoever clears this.
    is_vacant: AtomicBool,
    /// The name of the tenant and its place, if there is a lease: see [`name_of`]. Written with the lock.
    tenant: AtomicUsize,
    /// Whether the tenant has gone while another thread had the turn: then that thread clears up.
    is_abandoned: AtomicBool,
    /// Whether the list was locked by a thread of the parent that does not exist in this child of a `fork`.
    is_lost: AtomicBool,
    round: Round,
}

/// What the lock protects.
#[derive(Default)]
struct Content {
    list: Option<RetireList>,
    /// Number of writes since an owner polled the list, whichever threads made them.
    unpolled: usize,
    /// The coarse time when a write polled last while many objects waited.
    polled: u64,
    lease: Option<Lease>,
}

impl Content {
    /// Whether a write polls while more than [`EAGER`] objects wait.
    fn is_due(&mut self) -> bool {
        if self.unpolled % TIMED != 0 {
            return false;
        }
        let now = coarse();
        let is_due = self.unpolled >= EAGER || now != self.polled;
        if is_due {
            self.polled = now;
        }
        is_due
    }
}

/// What a table's objects need to be freed. It is alive as long as the lease of a shelf.
pub(crate) trait Tenant: Send + Sync {
    /// Whether the object needs this tenant.
    fn has(&self, garbage: &Garbage) -> bool;

    /// Whether the object needs this tenant, and a barrier waits for it.
    fn is_awaited(&self, garbage: &Garbage) -> bool;

    /// Makes an object that needs this tenant independent of the lease.
    fn detach(self: Arc<Self>, garbage: Garbage) -> Garbage;

    /// Whether the table is gone: then no reader can hold one of its objects.
    fn is_gone(&self) -> bool;
}

struct Lease {
    tenant: Arc<dyn Tenant>,
    claim: Claim<Shelf>,
}

/// Tells the places apart of all tenants that exist at the same time. A shelf has one place: otherwise two places would share one for ever,
/// once the first has leased it, and then, when that lease has ended, the second. `place` is less than the alignment of the tenant.
pub(crate) fn name_of(tenant: &Arc<dyn Tenant>, place: usize) -> usize {
    debug_assert!(place < align_of_val(&**tenant));
    Arc::as_ptr(tenant).cast::<()>().addr() + place
}

// SAFETY: the claim points into the core, which the list beside it keeps alive, and tenants are `Send` and `Sync`.
unsafe impl Send for Lease {}

impl Shelf {
    /// Takes the turn at the list, unless a thread has it.
    #[inline]
    pub(crate) fn begin(&self) -> Option<Turn<'_>> {
        self.content.try_lock().map(|content| Turn { shelf: self, content })
    }

    /// Takes the place of an owner that has gone: from then on the caller has the claim. False if there is none.
    fn take_place(&self) -> bool {
        // Relaxed, first: a hint. Acquire: pairs with the release in `OwnShelf::end`, which the lock and the registry order as well.
        self.is_vacant.load(Ordering::Relaxed) && self.is_vacant.swap(false, Ordering::Acquire)
    }

    /// Called when the calling thread has just ended a turn. If a tenant has gone meanwhile, and found the shelf locked, leaves what
    /// is here to the domain. The tenant's drop has left this to one of those that had the lock.
    fn clear_up(&self, core: &Core) {
        loop {
            // SeqCst: pairs with the fence in `Place::evict`. Either this thread finds the shelf abandoned, or the tenant's drop finds the
            // lock free, or a thread that has taken it since.
            if !busted::is(Variant::GoneUnseen) {
                fence(Ordering::SeqCst);
            }
            // Relaxed: decided below.
            if !self.is_abandoned.load(Ordering::Relaxed) {
                return;
            }
            let Some(mut turn) = self.begin() else { return };
            // Acquire: pairs with the release in `Place::evict`, after the tenant has gone. It may be the mark of an earlier tenant.
            self.is_abandoned.swap(false, Ordering::Acquire);
            let Content { list, lease, .. } = &mut *turn.content;
            if let Some(tenant) = lease.as_ref().map(|lease| &lease.tenant).filter(|tenant| tenant.is_gone())
            {
                if let Some(mut list) = list.take() {
                    list.replace_each(|garbage| match tenant.has(&garbage) {
                        true => Arc::clone(tenant).detach(garbage),
                        false => garbage,
                    });
                }
                return turn.end_lease(core);
            }
        }
    }

    /// Number of objects that wait here.
    #[inline]
    fn len(&self) -> usize {
        // Relaxed: a hint, or ordered by the fences of the event.
        self.len.load(Ordering::Relaxed)
    }

    /// Whether objects wait here.
    fn is_in_use(&self) -> bool {
        self.len() > 0 && !self.is_lost()
    }

    /// Whether the list stays locked for ever.
    #[inline]
    fn is_lost(&self) -> bool {
        // Relaxed: set while there was only one thread.
        self.is_lost.load(Ordering::Relaxed)
    }

    /// In the child of a `fork`: gives up the list if it is locked. If the calling thread has the lock, because it is in a
    /// destructor, the end of the turn takes this back.
    fn reset_after_fork(&self) {
        self.is_lost.store(self.content.is_locked(), Ordering::Relaxed);
    }

    /// Whether the owner is gone, or does not poll although objects wait here, or has a lease.
    fn is_silent(&self, age: impl FnOnce() -> Duration) -> bool {
        // Relaxed, all: hints.
        if self.is_vacant.load(Ordering::Relaxed) {
            return true;
        }
        let polled = Duration::from_nanos(self.polled.load(Ordering::Relaxed));
        let is_leased = self.tenant.load(Ordering::Relaxed) != 0;
        (self.len() > 0 || is_leased) && age().saturating_sub(polled) >= SILENT
    }
}

/// The right to use the list. Its end, also after a panic, records how many objects wait there.
pub(crate) struct Turn<'s> {
    shelf: &'s Shelf,
    content: Locked<'s, Content>,
}

impl<'s> Turn<'s> {
    /// Sets the time of the owner's last poll.
    #[inline]
    pub(crate) fn polled(&mut self, age: Duration) {
        // Relaxed: see `Shelf`.
        self.shelf.polled.store(age.as_nanos() as u64, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.content.list.as_ref().map_or(0, RetireList::len)
    }

    /// Takes in an object that was just retired.
    #[inline(always)]
    pub(crate) fn retire(&mut self, core: &Arc<Core>, garbage: Garbage) {
        let list = self.list_in(core);
        list.retire(garbage);
        if list.len() == 1 {
            // Before the notification, which wakes a background reclaimer that sleeps.
            self.shelf.len.store(1, Ordering::Relaxed);
            core.event().notify();
        }
    }

    /// Adopts at most `limit` orphans.
    pub(crate) fn adopt(&mut self, core: &Arc<Core>, limit: usize) {
        let list = self.list_in(core);
        let was_empty = list.len() == 0;
        list.adopt(limit);
        let len = list.len();
        if was_empty && len > 0 {
            // As in `retire`: a background reclaimer that has looked meanwhile has found neither orphans nor these.
            self.shelf.len.store(len, Ordering::Relaxed);
            core.event().notify();
        }
    }

    /// The list. Makes one if there is none.
    #[inline(always)]
    fn list_in(&mut self, core: &Arc<Core>) -> &mut RetireList {
        self.content
            .list
            .get_or_insert_with(|| RetireList::new(Arc::clone(core), Pace::DEFAULT, Limits::NONE))
    }

    /// Where the visits of whoever has the shelf go on.
    pub(crate) fn round(&self) -> &'s Round {
        &self.shelf.round
    }

    /// The list, if there is one.
    #[inline]
    pub(crate) fn list(&mut self) -> Option<&mut RetireList> {
        self.content.list.as_mut()
    }

    #[inline]
    fn is_of(&self, name: usize) -> bool {
        // Relaxed: the lock orders it.
        self.shelf.tenant.load(Ordering::Relaxed) == name
    }

    /// Frees an empty list with its memory: the owner may be gone. Returns whether the list was empty.
    fn clean_up(&mut self) -> bool {
        let is_empty = self.len() == 0;
        if is_empty {
            self.content.list = None;
        }
        is_empty
    }

    /// Ends the turn of a thread other than the owner. If the list is empty, gives the place back, if its owner is gone or has a
    /// lease. Runs no destructor.
    #[cold]
    #[inline(never)]
    pub(crate) fn give_up(mut self, core: &Core) {
        let shelf = self.shelf;
        if self.clean_up() {
            return self.end_lease(core);
        }
        drop(self);
        shelf.clear_up(core);
    }

    /// Ends the turn, and the lease, if there is one.
    fn end_lease(mut self, core: &Core) {
        if let Some(lease) = self.content.lease.take() {
            self.shelf.tenant.store(0, Ordering::Relaxed);
            drop(self);
            // With the lock free, for the next holder of the place.
            core.shelves.release(&lease.claim);
        }
    }
}

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        self.shelf.len.store(self.len(), Ordering::Relaxed);
        if self.shelf.is_lost() {
            self.shelf.is_lost.store(false, Ordering::Relaxed);
        }
    }
}

/// A thread's list.
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
            return core.retire_orphan(garbage);
        };
        turn.retire(core, garbage);
        let len = turn.len();
        turn.content.unpolled += 1;
        if len > EAGER && !turn.content.is_due() {
            return;
        }
        // Read once: it costs as much as the rest of a poll that finds nothing.
        let now = core.protocol.age();
        if !is_freeing() || len == 1 {
            turn.polled(now);
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
            core.visit_silent(&shelf.round, SHARE, || now);
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

    /// Polls a silent shelf, if its turn has come. Looks at `limit` objects at most. Does nothing in a domain without shelves.
    /// `round` is kept with what outlives the caller: callers that each come once would all visit the same shelf. `now` is the
    /// age of the domain.
    ///
    /// # Panics
    /// With the panic of a destructor.
    pub(crate) fn visit_silent(&self, round: &Round, limit: usize, now: impl FnOnce() -> Duration) {
        let (found, next) = self.shelves.look_from(round.get());
        round.set(next);
        let Some((shelf, claim)) = found else { return };
        if shelf.is_silent(now) && !shelf.is_lost() {
            self.visit(shelf, &claim, |list| list.poll_own(limit));
        }
    }

    /// For a thread that finds no room in the domain: polls the lists of threads in turn, until something was freed, or a share of
    /// the lists was looked at. Does not ask whether an owner is silent: one list may be the caller's own, and nobody can retire
    /// much anyway. Returns the number of objects that were freed.
    ///
    /// # Panics
    /// With the panic of a destructor.
    pub(crate) fn visit_for_room(&self, round: &Round) -> usize {
        // Destructors do not nest.
        let most = if is_freeing() { 0 } else { SHARE };
        for (shelf, claim) in self.shelves.circle_from(round.get()).take(most) {
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
        let (mut freed, mut first) = (0, None);
        match panics::catch(|| turn.list().map_or(0, poll)) {
            Ok(objects) => freed = objects,
            Err(panic) => first = Some(panic),
        }
        // With the lock: nobody who takes the place has put an object there since this look.
        let is_left = turn.len() == 0 && shelf.take_place();
        turn.give_up(self);
        if is_left {
            self.shelves.release(claim);
        }
        panics::resume(first);
        freed
    }

    /// Polls the lists of all silent threads. Returns whether anything was freed; the first panic is kept in `first`.
    pub(crate) fn visit_all(&self, first: &mut Option<Panic>) -> bool {
        let mut freed = 0;
        for (shelf, claim) in self.shelves.claims() {
            if shelf.is_silent(|| self.protocol.age()) && !shelf.is_lost() {
                let visit = || self.visit(shelf, &claim, |list| list.poll_own(usize::MAX));
                freed += frames::keeping(first, visit).unwrap_or(0);
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

    /// Takes over the objects on all shelves, each shelf once. Waits by `pause` while another thread has a list.
    /// Returns false if `pause` gives up.
    pub(crate) fn take_shelved(&self, list: &mut RetireList, mut pause: impl FnMut() -> bool) -> bool {
        for shelf in self.shelves.iter().filter(|shelf| !shelf.is_lost()) {
            let mut turn = shelf.begin();
            while turn.is_none() && pause() {
                turn = shelf.begin();
            }
            let Some(mut turn) = turn else { return false };
            let Content { list: other, lease, .. } = &mut *turn.content;
            let let_go = |garbage| match lease.as_ref().map(|lease| &lease.tenant) {
                Some(tenant) if tenant.is_awaited(&garbage) => Ok(Arc::clone(tenant).detach(garbage)),
                Some(tenant) if tenant.has(&garbage) => Err(garbage),
                _ => Ok(garbage),
            };
            other.iter_mut().for_each(|other| list.take_over_some(other, let_go));
            turn.give_up(self);
        }
        true
    }
}

/// A place of a tenant: where it finds the shelf that it has leased.
pub(crate) struct Place {
    shelf: AtomicPtr<Shelf>,
    /// That of the shelf, as long as this is its place: see [`name_of`].
    name: usize,
}

impl Place {
    pub(crate) fn new(name: usize) -> Self {
        Self { shelf: AtomicPtr::new(ptr::null_mut()), name }
    }

    /// The shelf that was leased here last. Others may have it by now.
    #[inline]
    fn shelf<'c>(&self, core: &'c Core) -> Option<&'c Shelf> {
        let _ = core;
        // Acquire: pairs with the release in `lease`.
        // SAFETY: null, or a shelf in the registry of the core, which is borrowed.
        unsafe { self.shelf.load(Ordering::Acquire).as_ref() }
    }

    /// Number of objects that wait here.
    #[inline]
    pub(crate) fn len(&self, core: &Core) -> usize {
        // Relaxed: a hint.
        let is_of = |shelf: &&Shelf| shelf.tenant.load(Ordering::Relaxed) == self.name && !shelf.is_lost();
        self.shelf(core).filter(is_of).map_or(0, Shelf::len)
    }

    /// Takes the turn at the tenant's shelf, unless another thread has it, or there is no lease.
    #[inline]
    pub(crate) fn begin<'c>(&self, core: &'c Core) -> Option<Turn<'c>> {
        let shelf = self.shelf(core)?;
        // Relaxed: a hint, decided below. Whoever takes the turn at a shelf that is free keeps others from leasing it. Not in models, which do
        // not see the hint, and so would not try the orders that depend on it.
        if !cfg!(stillpoint_loom) && shelf.tenant.load(Ordering::Relaxed) != self.name {
            return None;
        }
        let turn = shelf.begin()?;
        if turn.is_of(self.name) {
            return Some(turn);
        }
        // The shelf of another tenant, perhaps, which may just be going.
        turn.give_up(core);
        None
    }

    /// As [`begin`](Place::begin). Begins a lease if there is none. `None`, too, if the shelf is lost.
    #[inline]
    pub(crate) fn begin_or_lease<'c>(
        &self,
        core: &'c Arc<Core>,
        tenant: &Arc<dyn Tenant>,
    ) -> Option<Turn<'c>> {
        let Some(shelf) = self.shelf(core) else { return self.lease(core, None, tenant) };
        match shelf.begin()? {
            turn if turn.is_of(self.name) => Some(turn),
            other => self.lease(core, Some(other), tenant),
        }
    }

    /// Begins a lease, unless another thread has done so here since `seen` was there.
    #[cold]
    #[inline(never)]
    fn lease<'c>(
        &self,
        core: &'c Core,
        mut seen: Option<Turn<'c>>,
        tenant: &Arc<dyn Tenant>,
    ) -> Option<Turn<'c>> {
        let before = seen.as_ref().map_or(ptr::null_mut(), |turn| ptr::from_ref(turn.shelf).cast_mut());
        let found = Self::claim(core, &mut seen, LOCKED_PASSED);
        let own = found.as_ref().map(|(_, turn)| ptr::from_ref(turn.shelf).cast_mut());
        // The lock of what was seen is held: that shelf is not leased at this place again, which the exchange would lose.
        // Release: pairs with the acquire in `shelf`: the memory of the shelf was made before. Relaxed on failure: nothing is read.
        let is_ours = own.is_some_and(|own| {
            self.shelf.compare_exchange(before, own, Ordering::Release, Ordering::Relaxed).is_ok()
        });
        if let Some(seen) = seen {
            seen.give_up(core);
        }
        let (claim, mut turn) = found?;
        if !is_ours {
            // Another thread has begun a lease here.
            drop(turn);
            core.shelves.release(&claim);
            return None;
        }
        turn.shelf.tenant.store(self.name, Ordering::Relaxed);
        turn.polled(core.protocol.age());
        turn.content.lease = Some(Lease { tenant: Arc::clone(tenant), claim });
        Some(turn)
    }

    /// Claims a shelf, with the turn at its list, which `seen` may have. A free shelf may be locked, by a visitor that comes late: passes over
    /// up to `passed` of these. They stay claimed meanwhile, since the registry hands out the first one that is free.
    fn claim<'c>(
        core: &'c Core,
        seen: &mut Option<Turn<'c>>,
        passed: usize,
    ) -> Option<(Claim<Shelf>, Turn<'c>)> {
        let claim = core.shelves.claim();
        // SAFETY: the core is borrowed, and owns the registry.
        let shelf: &'c Shelf = unsafe { claim.slot() };
        if let Some(turn) = seen.take_if(|turn| ptr::eq(turn.shelf, shelf)).or_else(|| shelf.begin()) {
            return Some((claim, turn));
        }
        let other = if passed > 0 { Self::claim(core, seen, passed - 1) } else { None };
        // What is lost stays claimed: nobody gets it.
        if !shelf.is_lost() {
            core.shelves.release(&claim);
        }
        other
    }

    /// Called by the drop of a tenant that [is gone](Tenant::is_gone): frees what it has left here. If another thread has the turn, leaves
    /// that to it. Returns the first panic of a destructor.
    pub(crate) fn evict(&self, core: &Core, tenant: &Arc<dyn Tenant>) -> Option<Panic> {
        let shelf = self.shelf(core)?;
        // Relaxed: a hint, decided below. No other thread begins a lease for this tenant any more.
        if shelf.tenant.load(Ordering::Relaxed) != self.name {
            return None;
        }
        let turn = shelf.begin().or_else(|| {
            // Release: pairs with the acquire in `clear_up`.
            shelf.is_abandoned.store(true, Ordering::Release);
            // SeqCst: pairs with the fence in `clear_up`.
            fence(Ordering::SeqCst);
            shelf.begin()
        });
        let mut turn = turn?;
        if !turn.is_of(self.name) {
            turn.give_up(core);
            return None;
        }
        let mut list = turn.content.list.take();
        // SAFETY: the tenant is gone, so no reader can hold an object that it has.
        let first =
            list.as_mut().and_then(|list| unsafe { list.free_unreachable(|garbage| tenant.has(garbage)) });
        // What is left goes to the domain.
        drop(list);
        turn.give_up(core);
        first
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests;
