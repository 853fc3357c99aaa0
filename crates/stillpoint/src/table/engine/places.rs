//! Removed entries, until they are freed.
//!
//! They wait on a few shelves of the domain, which the table leases when it needs them. A writer takes the first shelf whose lock
//! is free, and leaves its entry to the domain when all are taken. So a writer waits neither for another writer nor for a
//! reader. Whoever polls in the domain serves these shelves if no writer does. No entry is lost: an entry that cannot be freed yet
//! stays on its shelf, with its memory.

use std::sync::Arc;
// Not modelled: counts.
use std::sync::atomic::{AtomicU64, AtomicUsize};

use crossbeam_utils::CachePadded;

use crate::frames::{is_freeing, keep_first, keeping};
use crate::rcu::engine::core::garbage::Garbage;
use crate::rcu::engine::queue::retire_list::{Pace, GATHERED};
use crate::rcu::engine::queue::shelf::{name_of, Place, Tenant, Turn};
use crate::rcu::engine::Core;
use stillpoint_sys::os::{coarse, ticks, TICKS_PER_MICRO};
use stillpoint_sys::panics::{resume, Panic};
use stillpoint_sys::sync::atomic::Ordering;

/// The most shelves of a table.
const PLACES: usize = if cfg!(stillpoint_loom) { 1 } else { 8 };
/// The most destructors that one call of a writer runs, and as many on another shelf of the domain.
pub(crate) const FREED_PER_CALL: usize = 32;
/// The most objects that one call of a writer takes over of those that were left to the domain.
const ADOPTED: usize = FREED_PER_CALL / 2;
/// In ticks. Writers' calls within this time share one poll.
const INTERVAL: u64 = 5 * TICKS_PER_MICRO;
/// The most calls that share one poll; a power of two.
const POLLED_TOGETHER: usize = FREED_PER_CALL;
/// In ticks. If [`POLLED_TOGETHER`] calls came within this time, only the last of the next round reads the counter. Each read waits
/// for all that came before: without reads, calls wait for memory at the same time.
const BUSY_ROUND: u64 = 32 * TICKS_PER_MICRO;
/// In a busy round, one call in this many, a power of two, looks at the coarse clock. So after a burst, up to three later calls do not poll.
const TIMED_TOGETHER: usize = 4;
/// In the time of the last poll: no call before the end of the round reads the counter.
const BUSY: u64 = 1;
/// From this number of waiting objects on, each call polls.
const BACKLOG: usize = 2 * GATHERED * Pace::DEFAULT.batch;

pub(crate) struct Places {
    core: Arc<Core>,
    tenant: Arc<dyn Tenant>,
    places: [CachePadded<Watched>; PLACES],
}

struct Watched {
    place: Place,
    /// Calls of writers, some of which poll.
    turns: AtomicUsize,
    /// Time of the last poll by a writer, in ticks, with [`BUSY`].
    polled: AtomicU64,
    /// Time of the last call of the last round, in ticks. A round is [`POLLED_TOGETHER`] calls.
    round: AtomicU64,
    /// The coarse time then.
    coarse: AtomicU64,
}

impl Places {
    pub(crate) fn new(core: Arc<Core>, tenant: Arc<dyn Tenant>) -> Self {
        let watched = |place| Watched {
            place: Place::new(name_of(&tenant, place)),
            turns: AtomicUsize::default(),
            polled: AtomicU64::default(),
            round: AtomicU64::default(),
            coarse: AtomicU64::default(),
        };
        Self { core, places: std::array::from_fn(|place| CachePadded::new(watched(place))), tenant }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Takes an entry that was just unlinked. Never waits, and frees nothing.
    pub(crate) fn put(&self, garbage: Garbage, hint: usize) {
        match self.any(hint) {
            Some(mut turn) => turn.retire(&self.core, garbage),
            None => self.core.retire_orphan(Arc::clone(&self.tenant).detach(garbage)),
        }
    }

    /// As [`put`](Places::put), and then [`poll`](Places::poll), under one lock. Polls only the caller's own shelf, unless
    /// that is locked.
    ///
    /// # Panics
    /// With the panic of a destructor.
    #[inline]
    pub(crate) fn put_and_poll(&self, garbage: Garbage, hint: usize) {
        let own = &self.places[hint % PLACES];
        let Some(mut turn) = own.place.begin(&self.core) else {
            self.put(garbage, hint);
            // A table may come here only once.
            if own.is_due(|| 0) {
                self.poll_held(None);
            }
            return;
        };
        turn.retire(&self.core, garbage);
        if own.is_due(|| turn.len()) {
            self.poll_held(Some(turn));
        }
    }

    /// Frees a bounded number of the objects that are ready. Never waits. Does little when nothing waits here, and nothing when
    /// another thread holds the lock.
    ///
    /// # Panics
    /// With the panic of a destructor.
    #[inline]
    pub(crate) fn poll(&self, hint: usize) {
        let own = &self.places[hint % PLACES];
        let len = own.place.len(&self.core);
        let is_due = if len > 0 { own.is_due(|| len) } else { own.next_turn() % POLLED_TOGETHER == 0 };
        if is_due {
            self.poll_held(own.place.begin(&self.core));
        }
    }

    /// Polls the shelf, and another one of the domain, if its owner does not.
    #[inline(never)]
    fn poll_held(&self, turn: Option<Turn<'_>>) {
        // Destructors do not nest: what one of them removes waits for the next poll.
        if is_freeing() {
            return;
        }
        let now = self.core.protocol.age();
        // A round of the table's own would begin anew with each table that is short-lived.
        let round = turn.as_ref().map_or(self.core.shared_counters().round(), Turn::round);
        if let Some(mut turn) = turn {
            turn.polled(now);
            if turn.list().is_some_and(|list| list.is_short()) {
                turn.adopt(&self.core, ADOPTED);
            }
            if let Some(list) = turn.list() {
                list.poll_at(FREED_PER_CALL, now, true);
            }
        }
        self.core.visit_silent(round, FREED_PER_CALL, || now);
    }

    /// Frees all that is ready on the table's shelves. Does nothing in a destructor, or in a comparison of keys.
    ///
    /// # Panics
    /// With the first panic of a destructor, after all that was ready has been freed.
    pub(crate) fn poll_all(&self) -> usize {
        if is_freeing() {
            return 0;
        }
        self.take_in(ADOPTED);
        let (mut freed, mut first) = (0, None);
        for own in &self.places {
            let Some(mut turn) = own.place.begin(&self.core) else { continue };
            // A panic on one shelf must not keep the others from being polled.
            let poll = || turn.list().map_or(0, |list| list.poll_own(usize::MAX));
            freed += keeping(&mut first, poll).unwrap_or(0);
        }
        resume(first);
        freed
    }

    /// For a caller that found no free slot: runs up to `limit` destructors, as many as are ready, and returns their
    /// number. Starts a grace period at once, regardless of the pace. Looks at every entry once. Leaves out the shelves
    /// that other threads hold, since it never waits. If nothing is ready, adopts a share of what was left to the domain, where the table's
    /// own entries may be, and looks again. Does nothing in a destructor, since these do not nest.
    ///
    /// # Panics
    /// With the first panic of a destructor, after the others have run.
    pub(crate) fn press(&self, limit: usize) -> usize {
        if is_freeing() {
            return 0;
        }
        let freed = self.free_up_to(limit);
        if freed > 0 || !self.core.has_orphans() {
            return freed;
        }
        self.take_in(limit);
        self.free_up_to(limit)
    }

    fn free_up_to(&self, limit: usize) -> usize {
        let turns = || self.places.iter().filter_map(|own| own.place.begin(&self.core));
        for mut turn in turns() {
            if let Some(list) = turn.list() {
                list.close();
            }
        }
        let (mut freed, mut first) = (0, None);
        for mut turn in turns() {
            if freed >= limit {
                break;
            }
            let Some(list) = turn.list() else { continue };
            list.close();
            let len = list.len();
            keeping(&mut first, || list.free_some(limit - freed));
            freed += len - list.len();
        }
        resume(first);
        freed
    }

    /// Adopts at most `limit` of the objects that were left to the domain, on one of the table's shelves.
    fn take_in(&self, limit: usize) {
        if self.core.has_orphans() {
            if let Some(mut turn) = self.any(0) {
                turn.adopt(&self.core, limit);
            }
        }
    }

    pub(crate) fn pending(&self) -> usize {
        self.places.iter().map(|own| own.place.len(&self.core)).sum()
    }

    #[inline(always)]
    fn any(&self, hint: usize) -> Option<Turn<'_>> {
        let own = self.places[hint % PLACES].place.begin_or_lease(&self.core, &self.tenant);
        if own.is_some() {
            return own;
        }
        self.any_other(hint)
    }

    #[cold]
    #[inline(never)]
    fn any_other(&self, hint: usize) -> Option<Turn<'_>> {
        let place = |turn: usize| &self.places[hint.wrapping_add(turn) % PLACES].place;
        (1..PLACES).find_map(|turn| place(turn).begin_or_lease(&self.core, &self.tenant))
    }

    /// For a tenant that [is gone](Tenant::is_gone): frees its objects at once, but for those that other threads have in hand,
    /// which leave them to the domain. Returns the first panic of a destructor.
    pub(crate) fn evict(&self) -> Option<Panic> {
        let mut first = None;
        for own in &self.places {
            if let Some(panic) = own.place.evict(&self.core, &self.tenant) {
                keep_first(&mut first, panic);
            }
        }
        first
    }
}

impl Watched {
    /// The number of this call.
    #[inline]
    fn next_turn(&self) -> usize {
        // Relaxed, both: a hint. An increment may be lost.
        let turn = self.turns.load(Ordering::Relaxed).wrapping_add(1);
        self.turns.store(turn, Ordering::Relaxed);
        turn
    }

    /// Whether a writer should poll: after enough calls, some time after the last poll, or when many objects wait.
    #[inline]
    fn is_due(&self, waiting: impl FnOnce() -> usize) -> bool {
        let turn = self.next_turn();
        // Relaxed, all: hints.
        let polled = self.polled.load(Ordering::Relaxed);
        if cfg!(stillpoint_loom) || turn % POLLED_TOGETHER == 0 {
            let now = ticks();
            let is_busy = now.wrapping_sub(self.round.load(Ordering::Relaxed)) < BUSY_ROUND;
            self.round.store(now, Ordering::Relaxed);
            self.coarse.store(coarse(), Ordering::Relaxed);
            self.polled.store(now & !BUSY | u64::from(is_busy), Ordering::Relaxed);
            return true;
        }
        let late = match polled & BUSY {
            0 => Some(ticks()).filter(|now| now.wrapping_sub(polled) >= INTERVAL),
            _ => (turn % TIMED_TOGETHER == 0 && coarse() != self.coarse.load(Ordering::Relaxed)).then(ticks),
        };
        if let Some(now) = late {
            self.polled.store(now & !BUSY, Ordering::Relaxed);
        }
        late.is_some() || waiting() >= BACKLOG
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use std::ptr::NonNull;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;
    use crate::rcu::engine::core::record::set_hazard;
    use crate::rcu::Domain;

    /// A tenant that counts the destructors of its objects, and can make them panic.
    #[derive(Default)]
    #[repr(align(8))]
    struct Freed {
        count: AtomicUsize,
        panics: AtomicBool,
        is_gone: AtomicBool,
    }

    impl Freed {
        fn free(&self) {
            self.count.fetch_add(1, Ordering::Relaxed);
            assert!(!self.panics.load(Ordering::Relaxed), "a destructor panics");
        }

        fn count(&self) -> usize {
            self.count.load(Ordering::Relaxed)
        }

        /// Not that of objects that are detached.
        fn context(&self) -> *const () {
            std::ptr::from_ref(self).cast::<()>().wrapping_byte_add(1)
        }

        fn garbage(&self) -> Garbage {
            self.garbage_at(NonNull::dangling())
        }

        fn garbage_at(&self, address: NonNull<()>) -> Garbage {
            // SAFETY: there is no object, and the lease, or the test, keeps the context.
            unsafe { Garbage::in_context(address, 8, self.context(), destroy) }
        }
    }

    unsafe extern "C-unwind" fn destroy(_: NonNull<()>, context: *const ()) {
        // SAFETY: the context is alive.
        unsafe { (*context.wrapping_byte_sub(1).cast::<Freed>()).free() };
    }

    unsafe extern "C-unwind" fn destroy_counted(_: NonNull<()>, context: *const ()) {
        // SAFETY: `detach` has left a reference count.
        unsafe { Arc::from_raw(context.cast::<Freed>()) }.free();
    }

    impl Tenant for Freed {
        fn has(&self, garbage: &Garbage) -> bool {
            garbage.is_of(self.context())
        }

        fn is_awaited(&self, garbage: &Garbage) -> bool {
            self.has(garbage)
        }

        fn detach(self: Arc<Self>, garbage: Garbage) -> Garbage {
            let context = Arc::into_raw(self).cast();
            // SAFETY: the garbage is consumed, and the context has a reference count.
            unsafe { Garbage::in_context(garbage.pointer(), 8, context, destroy_counted) }
        }

        fn is_gone(&self) -> bool {
            self.is_gone.load(Ordering::Relaxed)
        }
    }

    /// The places of a tenant.
    struct Scene {
        domain: Domain,
        freed: Arc<Freed>,
        places: Places,
    }

    impl Scene {
        fn new() -> Self {
            let (domain, freed) = (Domain::new(), Arc::<Freed>::default());
            let places = Places::new(Arc::clone(domain.core()), Arc::<Freed>::clone(&freed));
            Self { domain, freed, places }
        }

        fn pending(&self) -> usize {
            self.domain.stats().pending as usize
        }

        /// An entry at each place.
        fn fill(&self) {
            (0..PLACES).for_each(|hint| self.places.put(self.freed.garbage(), hint));
            assert_eq!(self.places.pending(), PLACES);
        }

        /// Takes the turns at all shelves.
        fn turns(&self) -> Vec<Turn<'_>> {
            let place = |own: &CachePadded<Watched>| own.place.begin(&self.places.core);
            self.places.places.iter().filter_map(place).collect()
        }

        /// Visits the shelves until the table has been silent for long enough.
        fn end_leases(&self) {
            let core = self.domain.core();
            while core.shelves.iter().count() > 0 {
                core.visit_all(&mut None);
            }
        }

        /// The tenant goes.
        fn go(&self) -> Option<Panic> {
            self.freed.is_gone.store(true, Ordering::Relaxed);
            self.places.evict()
        }
    }

    /// Lists on shelves keep the domain alive.
    impl Drop for Scene {
        fn drop(&mut self) {
            self.go();
        }
    }

    /// The times are set here, so that it does not matter how long the test takes.
    #[test]
    fn in_a_busy_round_only_a_new_coarse_time_is_seen() {
        let scene = Scene::new();
        let own = &scene.places.places[0];
        let due = || own.is_due(|| 0);
        let rest_of_round = || (1..POLLED_TOGETHER).filter(|_| due()).count();
        let mut in_round = usize::MAX;
        // Again if the thread is preempted, or the coarse time changes meanwhile.
        while own.coarse.load(Ordering::Relaxed) != coarse() {
            own.turns.store(POLLED_TOGETHER - 1, Ordering::Relaxed);
            own.round.store(ticks(), Ordering::Relaxed);
            assert!(due(), "the last one of a round");
            let is_busy = own.polled.load(Ordering::Relaxed) & BUSY != 0;
            own.polled.store(u64::from(is_busy), Ordering::Relaxed);
            in_round = rest_of_round();
            if !is_busy {
                own.coarse.store(0, Ordering::Relaxed);
            }
        }
        assert_eq!(in_round, 0, "although the last poll was long ago by the counter");
        // A new coarse time ends the busy round: the fourth call sees it.
        own.turns.store(POLLED_TOGETHER, Ordering::Relaxed);
        own.polled.store(BUSY, Ordering::Relaxed);
        own.coarse.store(0, Ordering::Relaxed);
        assert_eq!((1..=TIMED_TOGETHER).position(|_| due()), Some(TIMED_TOGETHER - 1));
        assert_eq!(own.polled.load(Ordering::Relaxed) & BUSY, 0);
        // The round before took long.
        own.turns.store(POLLED_TOGETHER - 1, Ordering::Relaxed);
        own.round.store(ticks().wrapping_sub(BUSY_ROUND), Ordering::Relaxed);
        assert!(due());
        for _ in 1..POLLED_TOGETHER {
            // An even number, so that the mark stays.
            let earlier = own.polled.load(Ordering::Relaxed).wrapping_sub(2 * INTERVAL);
            own.polled.store(earlier, Ordering::Relaxed);
            assert!(due(), "each call polls");
        }
    }

    #[test]
    fn what_finds_every_shelf_taken_is_left_to_the_domain() {
        let scene = Scene::new();
        scene.fill();
        let turns = scene.turns();
        scene.places.put(scene.freed.garbage(), 0);
        drop(turns);
        assert_eq!((scene.places.pending(), scene.domain.stats().pending), (PLACES, PLACES as u64 + 1));
        // The writers' polls take it in.
        while scene.domain.stats().pending > 0 {
            scene.places.poll(0);
            scene.places.poll_all();
        }
        assert_eq!(scene.freed.count(), PLACES + 1);
    }

    /// A thread that is preempted with the lock of a shelf that nobody has leased is in nobody's way, but for places that had that shelf.
    #[test]
    fn a_free_shelf_that_is_locked_keeps_no_place_from_another_one() {
        let scene = Scene::new();
        let core = scene.domain.core();
        scene.places.put(scene.freed.garbage(), 0);
        scene.end_leases();
        let free = core.shelves.iter_all().next().expect("it was leased");
        let turn = free.begin().expect("nobody has it");
        for hint in 1..PLACES {
            scene.places.put(scene.freed.garbage(), hint);
            assert_eq!(scene.places.pending(), hint, "an entry was left to the domain");
        }
        drop(turn);
    }

    /// A place that had a shelf takes no turn there when another place has it: the turn would end an empty lease.
    #[test]
    fn a_look_at_a_place_leaves_the_lease_of_another_one() {
        let scene = Scene::new();
        let core = scene.domain.core();
        for hint in 0..2 {
            scene.end_leases();
            scene.places.put(scene.freed.garbage(), hint);
            scene.places.press(usize::MAX);
        }
        assert_eq!(
            (scene.freed.count(), core.shelves.iter_all().filter(|shelf| shelf.begin().is_none()).count()),
            (2, 0)
        );
        assert!(scene.places.places[0].place.begin(core).is_none());
        assert!(scene.places.places[1].place.begin(core).is_some(), "the lease has ended");
    }

    /// Hints tell threads apart, and are no places. The second entry finds the first shelf taken.
    #[test]
    fn a_hint_may_be_any_number() {
        for hint in [0, PLACES, 100 * PLACES + 1, usize::MAX] {
            let scene = Scene::new();
            let own = || scene.places.places[hint % PLACES].place.begin(&scene.places.core);
            scene.places.put(scene.freed.garbage(), hint);
            let turn = own().expect("the lease has begun");
            scene.places.put_and_poll(scene.freed.garbage(), hint);
            assert_eq!((turn.len(), scene.places.pending()), (1, 2), "{hint}");
            drop(turn);
            while scene.freed.count() < 4 {
                scene.places.put_and_poll(scene.freed.garbage(), hint);
                scene.places.poll(hint);
            }
        }
    }

    /// A poll costs a writer that has removed nothing no look at the clock.
    #[test]
    fn where_nothing_waits_a_poll_reads_no_clock() {
        let scene = Scene::new();
        (0..3 * POLLED_TOGETHER).for_each(|_| scene.places.poll(0));
        assert_eq!(scene.places.places[0].polled.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_a_writer_removes_is_freed_by_its_removals() {
        let scene = Scene::new();
        (0..8 * Pace::DEFAULT.batch).for_each(|_| scene.places.put_and_poll(scene.freed.garbage(), 0));
        assert!(scene.freed.count() > 0);
    }

    /// Every object is freed, although each destructor panics; the first panic is handed back.
    #[test]
    fn a_table_that_goes_frees_what_is_left_anywhere() {
        for panics in [false, true] {
            let scene = Scene::new();
            scene.freed.panics.store(panics, Ordering::Relaxed);
            scene.fill();
            assert_eq!((scene.go().is_some(), scene.freed.count()), (panics, PLACES));
            assert_eq!(Arc::strong_count(&scene.freed), 2, "all leases have ended");
        }
    }

    /// Whoever has a shelf when the table goes leaves what is there to the domain, and runs no destructor. The table does not wait.
    #[test]
    fn who_has_a_shelf_of_a_table_that_has_gone_leaves_what_is_there() {
        let scene = Scene::new();
        scene.fill();
        let core = scene.domain.core();
        let mut turns = scene.turns();
        assert!(scene.go().is_none());
        turns.pop().expect("there are some").give_up(core);
        assert_eq!(
            (scene.freed.count(), core.shelves.iter().count(), scene.pending()),
            (0, PLACES - 1, PLACES)
        );
        turns.into_iter().for_each(|turn| turn.give_up(core));
        assert_eq!((scene.freed.count(), core.shelves.iter().count(), scene.pending()), (0, 0, PLACES));
        while scene.freed.count() < PLACES {
            scene.domain.reclaimer().poll();
        }
        assert_eq!((scene.pending(), Arc::strong_count(&scene.freed)), (0, 2), "each had a count of its own");
    }

    /// An object that was detached comes back to a shelf of its table, where a barrier finds it.
    #[test]
    fn what_was_detached_is_not_detached_again() {
        let scene = Scene::new();
        let tenant: Arc<dyn Tenant> = Arc::<Freed>::clone(&scene.freed);
        scene.domain.core().retire_orphan(tenant.detach(scene.freed.garbage()));
        scene.places.take_in(1);
        assert_eq!(scene.places.pending(), 1);
        assert_eq!(scene.domain.barrier_timeout(Duration::from_secs(20)), Ok(()));
        assert_eq!((scene.freed.count(), Arc::strong_count(&scene.freed)), (1, 2));
    }

    /// The first place's lease has ended when the second one leases the same shelf.
    #[test]
    fn a_shelf_has_one_place() {
        let scene = Scene::new();
        for place in [0, 1, 2] {
            scene.places.put(scene.freed.garbage(), place);
            assert_eq!((scene.places.pending(), scene.domain.core().shelves.iter().count()), (1, 1));
            assert_eq!(scene.domain.barrier_timeout(Duration::from_secs(20)), Ok(()));
        }
        scene.fill();
        assert_eq!((scene.places.pending(), scene.domain.core().shelves.iter().count()), (PLACES, PLACES));
    }

    /// In a child of a `fork`: the destructor that forked may go on in the turn that it interrupted.
    #[test]
    fn a_shelf_that_is_lost_is_not_counted_and_keeps_its_place() {
        let scene = Scene::new();
        scene.places.put(scene.freed.garbage(), 0);
        let core = scene.domain.core();
        let turns = scene.turns();
        core.reset_shelves_after_fork();
        assert_eq!(scene.places.pending(), 0);
        scene.places.put(scene.freed.garbage(), 0);
        assert_eq!(scene.places.pending(), 1, "at another place");
        drop(turns);
        assert_eq!(scene.places.pending(), 2);
        assert!(scene.go().is_none());
        assert_eq!((scene.freed.count(), core.shelves.iter().count()), (2, 0));
    }

    /// Others serve the shelves of a table that nobody writes to, and end its leases, so that no poll comes there any more. A table that
    /// has only empty shelves loses these as well.
    #[test]
    fn a_silent_table_keeps_no_shelf() {
        for is_emptied in [false, true] {
            let scene = Scene::new();
            scene.fill();
            while is_emptied && scene.places.pending() > 0 {
                scene.places.poll_all();
            }
            let mut reclaimer = scene.domain.reclaimer();
            while scene.domain.core().shelves.iter().count() > 0 {
                reclaimer.poll();
            }
            assert_eq!((scene.freed.count(), scene.places.pending()), (PLACES, 0));
            // The next entry begins another lease.
            scene.places.put(scene.freed.garbage(), 0);
            assert_eq!((scene.places.pending(), scene.domain.core().shelves.iter().count()), (1, 1));
        }
    }

    /// The shelf has another tenant by now.
    #[test]
    fn a_lease_that_has_ended_gives_no_access() {
        let scene = Scene::new();
        scene.places.put(scene.freed.garbage(), 0);
        assert_eq!(scene.domain.barrier_timeout(Duration::from_secs(20)), Ok(()));
        let other: Arc<Freed> = Arc::default();
        let next = Places::new(Arc::clone(scene.domain.core()), Arc::<Freed>::clone(&other));
        next.put(other.garbage(), 0);
        assert_eq!(scene.domain.core().shelves.iter().count(), 1, "it is the same shelf");
        assert_eq!((scene.places.pending(), scene.places.poll_all(), next.pending()), (0, 0, 1));
        assert!(scene.go().is_none());
        assert_eq!((other.count(), next.pending()), (0, 1));
        assert!(scene.places.places[0].place.begin(scene.domain.core()).is_none());
        other.is_gone.store(true, Ordering::Relaxed);
        assert!(scene.places.places[0].place.begin(scene.domain.core()).is_none());
        assert_eq!(other.count(), 0, "who comes to a shelf of another table runs no destructor");
        assert!(next.evict().is_none());
        assert_eq!(other.count(), 1);
    }

    #[test]
    fn a_barrier_takes_what_waits_and_leaves_no_shelf() {
        let scene = Scene::new();
        scene.fill();
        assert_eq!(scene.domain.barrier_timeout(Duration::from_secs(20)), Ok(()));
        assert_eq!((scene.freed.count(), scene.places.pending()), (PLACES, 0));
        assert_eq!(scene.domain.core().shelves.iter().count(), 0);
    }

    /// A writer also serves the shelves of threads that have stopped writing.
    #[test]
    fn what_is_left_anywhere_is_freed_by_the_polls_of_one_writer() {
        for left in 0..PLACES {
            let scene = Scene::new();
            scene.places.put(scene.freed.garbage(), left);
            while scene.freed.count() == 0 {
                scene.places.poll(left + 1);
            }
        }
    }

    /// However many entries readers protect, a call looks at each entry once, and goes on with others.
    #[test]
    fn pressure_frees_up_to_a_limit_and_looks_once() {
        const PINNED: usize = 300;
        let scene = Scene::new();
        let (places, freed, reader) = (&scene.places, &scene.freed, scene.domain.reader());
        let protected = NonNull::from(&**freed).cast();
        let slot = reader.record().free_hazard();
        set_hazard(&slot, protected.as_ptr());
        for _ in 0..PINNED {
            places.put(freed.garbage_at(protected), 0);
            places.put(freed.garbage(), 0);
        }
        let mut left = PINNED;
        for limit in [1, 32, 1, 7, PINNED, 1, 32] {
            let (steps, more) = stillpoint_sys::work::steps_of(|| places.press(limit));
            assert_eq!(more, limit.min(left));
            left -= more;
            assert_eq!((freed.count(), places.pending()), (PINNED - left, PINNED + left));
            assert!(steps <= 3 * PINNED, "{steps} steps");
        }
        // SAFETY: it came from `free_hazard`, and is not used any more.
        unsafe { slot.release() };
        assert_eq!(places.press(usize::MAX), PINNED);
    }

    /// Regardless of the pace, an object that was just put there is freed at once, in every round.
    #[test]
    fn pressure_waits_for_no_pace() {
        let scene = Scene::new();
        for round in 1..=100 {
            scene.fill();
            scene.places.press(usize::MAX);
            assert_eq!((scene.freed.count(), scene.places.pending()), (round * PLACES, 0));
        }
    }
}
