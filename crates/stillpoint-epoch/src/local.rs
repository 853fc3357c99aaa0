//! The part of a collector that belongs to a thread or a handle: its region, and what was deferred in it.
//!
//! Steps in comments are those of `docs/design/epoch.md`.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{compiler_fence, fence, AtomicU32, AtomicU64, Ordering};

use stillpoint::rcu::raw::{self, offsets, Object, Parts};
use stillpoint::rcu::{Domain, Reader, Reclaimer};
use stillpoint_sys::panics::{self, Panic};
use stillpoint_sys::sync::Place;

use crate::cells::Cells;
use crate::collector::Collector;
use crate::lists::List;

/// A round is due when a local has counted up to this: one for each region, and [`FUNCTION`] for each deferred
/// function.
const DUE: u32 = 128;
/// What a deferred function adds to the count; a region adds 1.
const FUNCTION: u32 = 2;
/// A local keeps fewer functions than this after a region, even where no round runs any.
const FEW: usize = (DUE / FUNCTION) as usize;
/// A `flush` sets this bit of the count.
const FLUSHED: u32 = 1 << 30;
/// The most functions that one round runs of the lists that were handed on. A round of a local whose count is higher
/// runs up to as many as that count.
const SHARE: usize = 512;
/// As [`SHARE`], for a round of a `flush`.
const FLUSH_SHARE: usize = 64 * SHARE;
/// A list that is served counts as at least this number of functions, since its poll scans the readers.
const LOOK: usize = 64;
/// Lists that are handed on are joined until they have this number of functions.
const FULL: usize = 512;

/// The state that the handles, guards and clones of a collector share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Lists that any thread may serve, as a chain, the oldest first. A thread takes the chain for some instructions only, in
    /// which it neither copies nor allocates.
    handed: Place<List>,
    /// A list that is not full yet. It follows those of the chain.
    newest: Place<List>,
    /// Dropped last, since a dropped list leaves its functions to the domain.
    domain: Domain,
}

impl Shared {
    pub(crate) fn new(domain: Domain) -> Self {
        Self { handed: Place::new(), newest: Place::new(), domain }
    }

    pub(crate) fn domain(&self) -> &Domain {
        &self.domain
    }

    fn list(&self) -> Box<List> {
        List::new(self.domain.reclaimer_builder().max_pending(usize::MAX).build())
    }

    /// Puts a chain, or a list, in front of what is there.
    fn put(&self, lists: Box<List>) {
        self.handed.put(lists, |lists, newer| lists.append(newer));
    }

    /// Lets any thread serve a list. Never waits: while another thread has the newest list, this one takes its place.
    fn hand_on(&self, mut list: Box<List>) {
        if list.reclaimer.pending() < FULL {
            if let Some(mut newest) = self.newest.take() {
                newest.reclaimer.take_over(&mut list.reclaimer);
                list = newest;
            }
        }
        if list.reclaimer.pending() < FULL {
            self.join(list);
        } else {
            match self.handed.take() {
                Some(mut lists) => {
                    lists.append(list);
                    self.put(lists);
                }
                None => self.put(list),
            }
        }
    }

    /// Joins a list with the newest one, or makes it the newest one.
    fn join(&self, list: Box<List>) {
        self.newest.put(list, |list, mut other| list.reclaimer.take_over(&mut other.reclaimer));
    }

    /// The number of lists, except those that other threads have at this moment.
    fn number(&self) -> usize {
        let (mut number, newest) = (0, self.newest.take());
        if let Some(lists) = self.handed.take() {
            number = lists.number();
            self.put(lists);
        }
        if let Some(newest) = newest {
            number += 1;
            self.join(newest);
        }
        number
    }

    /// Takes the oldest list.
    fn oldest(&self) -> Option<Box<List>> {
        let Some(lists) = self.handed.take() else { return self.newest.take() };
        let (oldest, others) = lists.split();
        if let Some(others) = others {
            self.put(others);
        }
        Some(oldest)
    }

    /// Serves up to `number` of the lists that were handed on, the oldest first, until the share is done, or nothing in a
    /// list is ready.
    fn serve(&self, number: usize, way: Way, panic: &mut Option<Panic>) {
        let mut done = 0;
        for _ in 0..number {
            if done >= way.share {
                return;
            }
            let Some(mut list) = self.oldest() else { return };
            let freed = way.poll(&mut list.reclaimer, way.share - done, panic);
            done += freed.max(LOOK);
            match list.reclaimer.pending() {
                0 => drop(list),
                _ if freed == 0 || done >= way.share => return self.put(list),
                // What is left is newer than what has run.
                _ => self.hand_on(list),
            }
        }
    }
}

/// The drop of the last handle, guard or clone of the collector runs what is left. This is not left to the drop of the
/// domain: within a function that the drop of another domain runs, this domain would leave its functions to that other
/// drop (step 9).
impl Drop for Shared {
    fn drop(&mut self) {
        // Dropped lists leave their functions to the domain.
        drop((self.handed.take(), self.newest.take()));
        let mut panic = None;
        Way { is_flush: true, share: usize::MAX }.poll(&mut self.list().reclaimer, usize::MAX, &mut panic);
        panics::resume(panic);
    }
}

/// How a round polls lists.
#[derive(Debug, Clone, Copy)]
struct Way {
    is_flush: bool,
    /// The most functions to run of the lists that were handed on.
    share: usize,
}

impl Way {
    /// The way of a round, by the count of its local.
    fn of(due: u32) -> Self {
        let is_flush = due >= FLUSHED;
        let least = if is_flush { FLUSH_SHARE } else { SHARE };
        // Each function counts twice, so rounds run functions faster than they are deferred.
        Self { is_flush, share: least.max((due % FLUSHED) as usize) }
    }

    /// Runs the functions of a list that are ready, up to a limit. Returns their number, or the limit if one has
    /// panicked. Keeps the first panic.
    fn poll(self, list: &mut Reclaimer, limit: usize, panic: &mut Option<Panic>) -> usize {
        let poll = if self.is_flush { Reclaimer::poll_at_once } else { Reclaimer::poll_at_most };
        panics::catch(|| poll(list, limit)).unwrap_or_else(|payload| {
            panics::keep_first(panic, payload);
            limit
        })
    }
}

/// The fields that each pin and each deferred function use come first, in one cache line.
#[repr(C, align(64))]
pub(crate) struct Local {
    /// The number of guards, except those whose `repin_after` is running.
    guards: Cell<usize>,
    /// 1 until the handle is dropped, and 1 more for each call that keeps the local alive.
    handles: Cell<usize>,
    due: Cell<u32>,
    token: NonNull<AtomicU64>,
    state: NonNull<AtomicU64>,
    attention: NonNull<AtomicU32>,
    /// `None` before the first round or function, after the list was handed on, and while a round or `defer` has it.
    list: Cell<Option<Box<List>>>,
    collector: Collector,
    cells: Cells,
    reader: Reader,
}

/// Owns one of a local's `handles`. The drop of the last handle ends the local, unless there are guards.
struct Hold(NonNull<Local>);

impl Hold {
    /// # Safety
    /// The local is alive, and the caller is on its thread.
    unsafe fn new(local: NonNull<Local>) -> Self {
        // SAFETY: the local is alive, and the caller is on its thread, by the caller's promise.
        let handles = unsafe { &(*local.as_ptr()).handles };
        handles.set(handles.get() + 1);
        Self(local)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // SAFETY: this value owns one of the local's handles.
        unsafe { Local::release(self.0) };
    }
}

impl Local {
    /// Registers the calling thread. The caller owns the local's first handle.
    pub(crate) fn register(collector: &Collector) -> NonNull<Self> {
        let reader = collector.shared().domain().reader();
        let parts = Parts::of(&reader);
        let record = parts.record();
        // SAFETY: the offsets are within the record.
        let (state, attention) = unsafe { (record.add(offsets::STATE), record.add(offsets::ATTENTION)) };
        let local = Self {
            guards: Cell::new(0),
            handles: Cell::new(1),
            // A round is due at the end of the first region, since there may be no other.
            due: Cell::new(DUE - 1),
            list: Cell::new(None),
            cells: Cells::new(),
            token: parts.token().cast(),
            state: state.cast(),
            attention: attention.cast(),
            reader,
            collector: collector.clone(),
        };
        NonNull::from(Box::leak(Box::new(local)))
    }

    pub(crate) fn collector(&self) -> &Collector {
        &self.collector
    }

    #[inline]
    pub(crate) fn is_pinned(&self) -> bool {
        self.guards.get() > 0
    }

    /// Counts one more guard, which the caller owns.
    #[inline]
    pub(crate) fn pin(&self) {
        let guards = self.guards.get();
        self.guards.set(guards.checked_add(1).expect("the number of guards overflows"));
        if guards == 0 {
            self.enter();
        }
    }

    #[inline]
    fn enter(&self) {
        // SAFETY: both words are valid as long as the domain, which the reader keeps alive.
        let (token, state) = unsafe { (self.token.as_ref(), self.state.as_ref()) };
        // Acquire: pairs with the release that starts a token (step 5). Release: pairs with the acquire load of a scan,
        // which may read this state instead of the one that ended the region before.
        state.store(token.load(Ordering::Acquire), Ordering::Release);
        // SeqCst: pairs with the fence of a writer between its unlink and its scan, and with the fences of callers that
        // rely on `pin` as a fence (step 4).
        fence(Ordering::SeqCst);
    }

    /// Ends the region. Returns whether a request has to be [answered](Local::answer).
    #[inline]
    fn leave(&self) -> bool {
        // SAFETY: the word is valid as long as the domain, which the reader keeps alive.
        let state = unsafe { self.state.as_ref() };
        // Release: everything in the region comes before this store. Pairs with the acquire load of a scan.
        state.store(0, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
        self.is_wanted()
    }

    #[inline]
    fn is_wanted(&self) -> bool {
        // SAFETY: the word is valid as long as the domain, which the reader keeps alive. Relaxed: a thread that makes a
        // request finds out itself if the request was missed.
        unsafe { self.attention.as_ref() }.load(Ordering::Relaxed) != 0
    }

    /// Calls wakers, which may do anything, as deferred functions may. The caller has a [`Hold`] of the local.
    fn answer(&self) {
        // SAFETY: a local stays on its thread.
        unsafe { Parts::of(&self.reader).answer() };
    }

    /// Gives up a guard. The last guard ends the region, and also the local if its handle was dropped.
    ///
    /// # Panics
    /// If a deferred function panics. The guard was then given up.
    ///
    /// # Safety
    /// The local is alive. The caller is on its thread, owns a guard, and does not use the local any more.
    #[inline]
    pub(crate) unsafe fn unpin(this: NonNull<Self>) {
        // SAFETY: the local is alive, by the caller's promise. The reference ends here, since the call below may end the
        // local.
        let is_due = unsafe { this.as_ref() }.give_guard_back();
        if is_due {
            // SAFETY: the local is alive, and the caller is on its thread and does not use the local any more, by the
            // caller's promise.
            unsafe { Self::after_region(this) };
        }
    }

    /// Gives up a guard. Returns whether there is more to do than to end the region. Calls no code of the user, which
    /// might end the local.
    #[inline]
    fn give_guard_back(&self) -> bool {
        let guards = self.guards.get() - 1;
        self.guards.set(guards);
        if guards > 0 {
            return false;
        }
        let is_wanted = self.leave();
        let due = self.due.get().saturating_add(1);
        self.due.set(due);
        is_wanted || due >= DUE || self.handles.get() == 0
    }

    /// # Safety
    /// The local is alive, and the caller is on its thread. Unless it has a [`Hold`], the caller does not use the local
    /// any more.
    #[cold]
    #[inline(never)]
    unsafe fn after_region(this: NonNull<Self>) {
        // At the end, even after a panic, its drop ends the local if nothing else holds it.
        // SAFETY: the local is alive, and the caller is on its thread, by the caller's promise.
        let hold = unsafe { Hold::new(this) };
        // SAFETY: `hold` keeps the local alive, even if a function or a waker drops the handle.
        let local = unsafe { hold.0.as_ref() };
        if local.is_wanted() {
            local.answer();
        }
        if local.due.get() >= DUE {
            let panic = local.round();
            // Where rounds run nothing, each further region would hand on a list of few functions.
            local.hand_on(if runs_nothing() { FEW } else { 1 });
            panics::resume(panic);
        }
    }

    /// Gives up one of the handles.
    ///
    /// # Safety
    /// The local is alive. The caller is on its thread, owns one of its handles, and does not use the local any more.
    pub(crate) unsafe fn release(this: NonNull<Self>) {
        // SAFETY: the local is alive, by the caller's promise.
        let local = unsafe { this.as_ref() };
        local.handles.set(local.handles.get() - 1);
        if local.handles.get() == 0 && local.guards.get() == 0 {
            // SAFETY: the local came from a box, and nothing owns a guard or a handle of it any more (step 1).
            drop(unsafe { Box::from_raw(this.as_ptr()) });
        }
    }

    /// Gives up a guard during a call, and then takes it again, even if the function panics. Before the function is
    /// called, deferred functions may run, if a round is due.
    ///
    /// # Safety
    /// The local is alive. The caller is on its thread, and owns a guard that is not used meanwhile.
    pub(crate) unsafe fn repin_after<R>(this: NonNull<Self>, function: impl FnOnce() -> R) -> R {
        struct Repin(Hold);

        impl Drop for Repin {
            fn drop(&mut self) {
                // SAFETY: the hold keeps the local alive.
                unsafe { self.0 .0.as_ref() }.pin();
            }
        }

        // SAFETY: the local is alive, and the caller is on its thread, by the caller's promise.
        let hold = Repin(unsafe { Hold::new(this) });
        // SAFETY: `hold` keeps the local alive, and takes the guard again when it is dropped.
        unsafe { Self::unpin(hold.0 .0) };
        function()
    }

    /// Whether the caller's guard is the only one.
    pub(crate) fn has_one_guard(&self) -> bool {
        self.guards.get() == 1
    }

    /// The memory for small closures.
    pub(crate) fn cells(&self) -> &Cells {
        &self.cells
    }

    /// Takes an object in, to be destroyed after a grace period.
    ///
    /// # Panics
    /// In a domain with limits, if this call runs a function to make room, and that function panics. The object was then
    /// taken in.
    ///
    /// # Safety
    /// As for [`Reclaimer::retire_raw`].
    // Inlined. Otherwise the object would be written to memory in words and read back in wider pieces, which stalls the
    // processor.
    #[inline(always)]
    pub(crate) unsafe fn defer(&self, object: Object) {
        self.due.set(self.due.get().saturating_add(FUNCTION));
        let mut list = self.list.take().unwrap_or_else(|| self.collector.shared().list());
        // SAFETY: the caller owns the object, which no later reader can reach, and any thread may destroy it, by the
        // caller's promise.
        let answer = unsafe { list.reclaimer.retire_raw(object) };
        self.keep(list);
        if let Err(refused) = answer {
            // SAFETY: the object was handed back, so the caller's promise still holds: the caller owns it, no later
            // reader can reach it, and any thread may destroy it.
            unsafe { raw::leave(self.collector.shared().domain(), refused.object) };
        }
    }

    /// Puts the list back. If functions that ran meanwhile have deferred others, these are in another list, which is
    /// handed on.
    #[inline]
    fn keep(&self, list: Box<List>) {
        if let Some(newer) = self.list.replace(Some(list)) {
            self.collector.shared().hand_on(newer);
        }
    }

    /// Makes a round now. Another one is due at the end of the region, when this thread's own region is not in the way
    /// any more.
    ///
    /// # Panics
    /// If deferred functions or stall hooks panic: with the first of these panics.
    pub(crate) fn flush(&self) {
        let due = self.due.get() | FLUSHED;
        self.due.set(due);
        if runs_nothing() {
            return;
        }
        let panic = self.round();
        // Adds the count again, since the round has set it to 0: what this round has left of the list belongs to the
        // share of the next round.
        let count = self.due.get() % FLUSHED + due % FLUSHED;
        self.due.set(count | FLUSHED);
        panics::resume(panic);
    }

    /// Runs the functions of this local that are ready, and a share of those that were handed on. Returns the first
    /// panic. Within a deferred function, and while the thread unwinds, it runs nothing, and the round is still due
    /// afterwards.
    fn round(&self) -> Option<Panic> {
        if runs_nothing() {
            return None;
        }
        let way = Way::of(self.due.replace(0));
        let shared = self.collector.shared();
        // Only the lists that exist now: functions may defer themselves again.
        let number = shared.number();
        let mut list = self.list.take().unwrap_or_else(|| shared.list());
        let mut panic = None;
        way.poll(&mut list.reclaimer, way.share, &mut panic);
        shared.serve(number, way, &mut panic);
        self.keep(list);
        panic
    }

    /// Lets any thread serve what is left in this local's list, if that is at least this number of functions.
    fn hand_on(&self, least: usize) {
        if let Some(list) = self.list.take() {
            if list.reclaimer.pending() >= least {
                self.collector.shared().hand_on(list);
            } else {
                self.list.set(Some(list));
            }
        }
    }
}

/// Whether rounds run nothing now: within a deferred function, and while the thread unwinds.
fn runs_nothing() -> bool {
    raw::is_within_destructor() || std::thread::panicking()
}

/// Hands on what is left. If this local was the last to keep the collector alive, the drop of [`Shared`] then runs it.
impl Drop for Local {
    fn drop(&mut self) {
        self.hand_on(1);
    }
}

const _: () = assert!(FLUSHED > DUE);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_within_a_function_do_not_enlarge_the_share_of_the_next_round() {
        let handle = Collector::new().register();
        // SAFETY: a local is alive as long as its handle.
        let local = unsafe { handle.address().as_ref() };
        drop(handle.pin()); // so that no round is due at the end of the next region
        let runs = Cell::new(0);
        let guard = handle.pin();
        // SAFETY: the function runs on this thread, in the flush below.
        unsafe {
            guard.defer_unchecked(|| {
                (0..3).for_each(|_| handle.pin().flush());
                assert_eq!(Way::of(local.due.get()).share, FLUSH_SHARE);
                runs.set(runs.get() + 1);
            });
        }
        drop(guard);
        assert_eq!(runs.get(), 0);
        local.flush();
        assert_eq!(runs.get(), 1);
        assert_eq!(Way::of(local.due.get()).share, FLUSH_SHARE);
        assert!(local.due.get() < 2 * FLUSHED);
    }

    #[test]
    fn a_round_looks_at_few_lists_however_short_they_are() {
        let shared = Shared::new(Domain::new());
        for _ in 0..100 {
            let mut list = shared.list();
            list.reclaimer.defer(|| ());
            shared.put(list);
        }
        shared.serve(shared.number(), Way::of(DUE), &mut None);
        assert_eq!(shared.number(), 100 - SHARE / LOOK);
        shared.serve(shared.number(), Way::of(FLUSHED), &mut None);
        assert_eq!(shared.number(), 0);
    }

    /// A thread that is preempted while it has the lists, or the newest one, holds up only these.
    #[test]
    fn others_hand_on_and_serve_while_a_thread_has_the_lists() {
        let shared = Shared::new(Domain::new());
        let hand_on = |functions| {
            let mut list = shared.list();
            (0..functions).for_each(|_| list.reclaimer.defer(|| ()));
            shared.hand_on(list);
        };
        let freed = || shared.domain.stats().freed as usize;
        let serve = || shared.serve(shared.number(), Way::of(FLUSHED), &mut None);
        hand_on(FULL);
        hand_on(1);
        let (lists, newest) =
            (shared.handed.take().expect("one is full"), shared.newest.take().expect("one is not"));
        for turn in 1..=3 {
            hand_on(FULL + 1);
            hand_on(2);
            serve();
            assert_eq!(freed(), turn * (FULL + 3));
        }
        shared.put(lists);
        shared.hand_on(newest);
        serve();
        assert_eq!(freed(), 4 * FULL + 10);
    }

    /// The grace periods of lists that wait are under way at the same time: what was handed on while a reader was in the
    /// way needs no further one afterwards.
    #[test]
    fn lists_wait_at_the_same_time() {
        let shared = Shared::new(Domain::new());
        let reader = shared.domain.reader();
        let guard = reader.pin();
        let way = Way::of(DUE);
        const LISTS: usize = 100;
        for _ in 0..LISTS {
            let mut list = shared.list();
            (0..FEW).for_each(|_| list.reclaimer.defer(|| ()));
            way.poll(&mut list.reclaimer, way.share, &mut None);
            shared.hand_on(list);
        }
        assert_eq!(
            shared.handed.take().map(|lists| (lists.number(), shared.put(lists)).0),
            Some(LISTS * FEW / FULL)
        );
        drop(guard);
        let later = reader.pin();
        while shared.domain.stats().pending > 0 {
            let freed = shared.domain.stats().freed;
            shared.serve(shared.number(), way, &mut None);
            assert!(shared.domain.stats().freed > freed, "what is left waits for a later reader");
        }
        drop(later);
    }
}
