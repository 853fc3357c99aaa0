//! What a thread, or a handle, has in a collector: its region, and what was deferred in it.
//!
//! The steps that comments name are those of `docs/design/epoch.md`.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{compiler_fence, fence, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use stillpoint::rcu::raw::{self, offsets, Object, Parts};
use stillpoint::rcu::{Domain, Reader, Reclaimer};
use stillpoint_sys::panics::{self, Panic};

use crate::cells::Cells;
use crate::collector::Collector;

/// When a round is due: after that many regions, or half as many functions, or some of each.
const DUE: u32 = 128;
/// A function counts that often, and a region once.
const FUNCTION: u32 = 2;
/// What is due after a `flush`.
const FLUSHED: u32 = 1 << 30;
/// Functions of others that one round runs at the most, unless more than half as many have come here since the last one.
const SHARE: usize = 512;
/// The same for the round of a `flush`.
const FLUSH_SHARE: usize = 64 * SHARE;
/// Functions that a look at the readers counts as, for each list that is served.
const LOOK: usize = 64;
/// A list that has that many functions stays as it is when it is handed on, and is not added to.
const FULL: usize = 512;

type List = Box<Reclaimer>;

/// What the handles, guards and clones of a collector share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Lists that any thread may serve, the oldest first. Before the domain: they leave what they have to it.
    handed: Mutex<VecDeque<List>>,
    domain: Domain,
}

impl Shared {
    pub(crate) fn new(domain: Domain) -> Self {
        Self { handed: Mutex::new(VecDeque::new()), domain }
    }

    pub(crate) fn domain(&self) -> &Domain {
        &self.domain
    }

    fn list(&self) -> List {
        Box::new(self.domain.reclaimer_builder().max_pending(usize::MAX).build())
    }

    /// The lists that were handed on, unless another thread is just looking at them: nobody waits for it.
    fn handed(&self) -> Option<MutexGuard<'_, VecDeque<List>>> {
        match self.handed.try_lock() {
            Ok(lists) => Some(lists),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(lists)) => Some(PoisonError::into_inner(lists)),
        }
    }

    /// Lets any thread serve what a list has. It is left to the domain if the other lists cannot be reached.
    fn hand_on(&self, mut list: List) {
        let Some(mut lists) = self.handed() else { return };
        match lists.back_mut() {
            Some(last) if last.pending().max(list.pending()) < FULL => last.take_over(&mut list),
            _ => lists.push_back(list),
        }
    }

    /// How many lists were handed on.
    fn number(&self) -> usize {
        self.handed().map_or(0, |lists| lists.len())
    }

    /// Serves that many of the lists that were handed on, the oldest first, until the share is done, or nothing of one is ready.
    fn serve(&self, number: usize, way: Way, panic: &mut Option<Panic>) {
        let (mut done, mut left) = (0, 0);
        for _ in 0..number {
            let Some(mut list) = self.handed().and_then(|mut lists| lists.remove(left)) else { return };
            let freed = way.poll(&mut list, way.share - done, panic);
            done += freed.max(LOOK);
            let is_held_up = freed == 0 && list.pending() > 0;
            if list.pending() > 0 {
                match self.handed() {
                    Some(mut lists) => {
                        let place = left.min(lists.len());
                        lists.insert(place, list);
                    }
                    None => drop(list),
                }
                left += 1;
            }
            if done >= way.share || is_held_up {
                return;
            }
        }
    }
}

/// The last of the collector's handles, guards and clones runs what is left, in its own call: the domain would leave it to the
/// call of a domain whose end runs the function that this is in (step 9).
impl Drop for Shared {
    fn drop(&mut self) {
        let handed = self.handed.get_mut().unwrap_or_else(PoisonError::into_inner);
        // They leave what they have to the domain.
        handed.clear();
        let mut panic = None;
        Way { is_flush: true, share: usize::MAX }.poll(&mut self.list(), usize::MAX, &mut panic);
        panics::resume(panic);
    }
}

/// How a round polls lists.
#[derive(Debug, Clone, Copy)]
struct Way {
    is_flush: bool,
    /// Functions of lists that were handed on.
    share: usize,
}

impl Way {
    /// The way of a round, by how much it is due.
    fn of(due: u32) -> Self {
        let is_flush = due >= FLUSHED;
        let least = if is_flush { FLUSH_SHARE } else { SHARE };
        // Twice the functions that came: faster than they come.
        Self { is_flush, share: least.max((due % FLUSHED) as usize) }
    }

    /// Runs what is ready of a list, up to a limit, and returns how much that was, or the limit if something has panicked. The first
    /// panic of several is kept.
    fn poll(self, list: &mut Reclaimer, limit: usize, panic: &mut Option<Panic>) -> usize {
        let poll = if self.is_flush { Reclaimer::poll_at_once } else { Reclaimer::poll_at_most };
        panics::catch(|| poll(list, limit)).unwrap_or_else(|payload| {
            panics::keep_first(panic, payload);
            limit
        })
    }
}

/// What each pin and each deferred function uses comes first, in one line of the cache.
#[repr(C, align(64))]
pub(crate) struct Local {
    /// Guards that exist, but for one whose `repin_after` runs.
    guards: Cell<usize>,
    /// 1 until the handle is dropped, and 1 more for each call that needs the local.
    handles: Cell<usize>,
    due: Cell<u32>,
    token: NonNull<AtomicU64>,
    state: NonNull<AtomicU64>,
    attention: NonNull<AtomicU32>,
    /// None before the first round or function, and during a round.
    reclaimer: Cell<Option<List>>,
    collector: Collector,
    cells: Cells,
    reader: Reader,
}

/// Owns one of a local's `handles`. The last one ends the local, unless there are guards.
struct Hold(NonNull<Local>);

impl Hold {
    /// # Safety
    /// The local is alive, and the caller's thread is its own.
    unsafe fn new(local: NonNull<Local>) -> Self {
        // SAFETY: the caller's promise.
        let handles = unsafe { &(*local.as_ptr()).handles };
        handles.set(handles.get() + 1);
        Self(local)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // SAFETY: this value owns one of the handles.
        unsafe { Local::release(self.0) };
    }
}

impl Local {
    /// Registers the calling thread. The caller owns one of the handles.
    pub(crate) fn register(collector: &Collector) -> NonNull<Self> {
        let reader = collector.shared().domain().reader();
        let parts = Parts::of(&reader);
        let record = parts.record();
        // SAFETY: the offsets are within the record.
        let (state, attention) = unsafe { (record.add(offsets::STATE), record.add(offsets::ATTENTION)) };
        let local = Self {
            guards: Cell::new(0),
            handles: Cell::new(1),
            // At the end of the first region: there may be no other one.
            due: Cell::new(DUE - 1),
            reclaimer: Cell::new(None),
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

    /// One guard more, which the caller owns.
    #[inline]
    pub(crate) fn pin(&self) {
        let guards = self.guards.get();
        self.guards.set(guards.checked_add(1).expect("there are fewer guards than addresses"));
        if guards == 0 {
            self.enter();
        }
    }

    #[inline]
    fn enter(&self) {
        // SAFETY: both are there as long as the domain, which the reader keeps alive.
        let (token, state) = unsafe { (self.token.as_ref(), self.state.as_ref()) };
        // Acquire: pairs with the release by which a token is started (step 5). Release: pairs with the acquire load of a
        // scan, which may read this state in place of the one that ended the region before.
        state.store(token.load(Ordering::Acquire), Ordering::Release);
        // SeqCst: pairs with the fence of a writer between its unlink and its scan, and with the fences of those who
        // rely on `pin` for one of their own (step 4).
        fence(Ordering::SeqCst);
    }

    /// Whether somebody wants to be [answered](Local::answer).
    #[inline]
    fn leave(&self) -> bool {
        // SAFETY: as in `enter`.
        let state = unsafe { self.state.as_ref() };
        // Release: what was done in the region comes before; pairs with the acquire load of a scan.
        state.store(0, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
        self.is_wanted()
    }

    #[inline]
    fn is_wanted(&self) -> bool {
        // SAFETY: as in `enter`. Relaxed: a request that is missed is noticed by those who made it.
        unsafe { self.attention.as_ref() }.load(Ordering::Relaxed) != 0
    }

    /// Calls wakers, which may do anything, as functions may: somebody holds the local.
    fn answer(&self) {
        // SAFETY: a local stays on its thread.
        unsafe { Parts::of(&self.reader).answer() };
    }

    /// One guard less. The last one ends the region, and the local if its handle has gone.
    ///
    /// # Panics
    /// With the panic of a deferred function. The guard has gone then.
    ///
    /// # Safety
    /// The local is alive, and the caller owns a guard, on the local's thread. It does not use the local any more.
    #[inline]
    pub(crate) unsafe fn unpin(this: NonNull<Self>) {
        // SAFETY: the caller's promise. The reference is not used below, where the local may end.
        let is_due = unsafe { this.as_ref() }.give_guard_back();
        if is_due {
            // SAFETY: the caller's promise.
            unsafe { Self::after_region(this) };
        }
    }

    /// Whether there is more to do than to leave the region. Calls nothing of others, which might end the local.
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
    /// The local is alive and not used any more, unless somebody holds it. Its thread calls.
    #[cold]
    #[inline(never)]
    unsafe fn after_region(this: NonNull<Self>) {
        // Ends the local in the end, also after a panic, if nobody else holds it.
        // SAFETY: the caller's promise.
        let hold = unsafe { Hold::new(this) };
        // SAFETY: it is held. A function, or a waker, that drops the handle does not end it.
        let local = unsafe { hold.0.as_ref() };
        if local.is_wanted() {
            local.answer();
        }
        if local.due.get() >= DUE {
            let panic = local.round();
            local.hand_on();
            panics::resume(panic);
        }
    }

    /// Gives one of the handles back.
    ///
    /// # Safety
    /// The local is alive, and the caller owns one of its handles, on the local's thread. It does not use the local any more.
    pub(crate) unsafe fn release(this: NonNull<Self>) {
        // SAFETY: the caller's promise.
        let local = unsafe { this.as_ref() };
        local.handles.set(local.handles.get() - 1);
        if local.handles.get() == 0 && local.guards.get() == 0 {
            // SAFETY: it came from a box, and nobody owns a guard or a handle any more (step 1).
            drop(unsafe { Box::from_raw(this.as_ptr()) });
        }
    }

    /// Gives a guard back for the time of a call, and then takes it again, also if the function panics. Before the function is called,
    /// deferred ones may run, if they are due.
    ///
    /// # Safety
    /// The local is alive, and the caller owns a guard, on the local's thread, which nobody uses meanwhile.
    pub(crate) unsafe fn repin_after<R>(this: NonNull<Self>, function: impl FnOnce() -> R) -> R {
        struct Repin(Hold);

        impl Drop for Repin {
            fn drop(&mut self) {
                // SAFETY: it is held.
                unsafe { self.0 .0.as_ref() }.pin();
            }
        }

        // SAFETY: the caller's promise.
        let hold = Repin(unsafe { Hold::new(this) });
        // SAFETY: it is held, and gets its guard back when `hold` is dropped.
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
    /// In a domain that has limits, with the panic of another function. The object was taken in then.
    ///
    /// # Safety
    /// As for [`Reclaimer::retire_raw`].
    // Inlined, so that the object is not written to memory by words and read back by halves, which stalls.
    #[inline(always)]
    pub(crate) unsafe fn defer(&self, object: Object) {
        self.due.set(self.due.get().saturating_add(FUNCTION));
        let mut list = self.reclaimer.take().unwrap_or_else(|| self.collector.shared().list());
        // SAFETY: the caller's promise.
        let answer = unsafe { list.retire_raw(object) };
        self.keep(list);
        if let Err(refused) = answer {
            // SAFETY: the caller's promise, for the object that came back.
            unsafe { raw::leave(self.collector.shared().domain(), refused.object) };
        }
    }

    /// Puts the list back. Another one was begun, if functions have run meanwhile that deferred others.
    #[inline]
    fn keep(&self, list: List) {
        if let Some(newer) = self.reclaimer.replace(Some(list)) {
            self.collector.shared().hand_on(newer);
        }
    }

    /// A round now, and another one at the end of the region, when nothing of this thread is in the way.
    ///
    /// # Panics
    /// With the panic of a deferred function, or of a stall hook, the first one of several.
    pub(crate) fn flush(&self) {
        let due = self.due.get() | FLUSHED;
        self.due.set(due);
        let panic = self.round();
        // What this round has left of the list is a part of the share of the other one.
        self.due.set(self.due.get().saturating_add(due));
        panics::resume(panic);
    }

    /// Runs what is ready here, and a share of what others have deferred. Returns the first panic of several. Within a deferred function it runs
    /// nothing, and is still due afterwards.
    fn round(&self) -> Option<Panic> {
        if raw::is_within_destructor() || std::thread::panicking() {
            return None;
        }
        let way = Way::of(self.due.replace(0));
        let shared = self.collector.shared();
        // No more than there are now: functions may defer themselves again.
        let number = shared.number();
        let mut list = self.reclaimer.take().unwrap_or_else(|| shared.list());
        let mut panic = None;
        way.poll(&mut list, way.share, &mut panic);
        shared.serve(number, way, &mut panic);
        self.keep(list);
        panic
    }

    /// Lets any thread serve what is left here.
    fn hand_on(&self) {
        if let Some(list) = self.reclaimer.take() {
            if list.pending() > 0 {
                self.collector.shared().hand_on(list);
            } else {
                self.reclaimer.set(Some(list));
            }
        }
    }
}

/// Hands on what is left. If this was the last of the collector's handles, guards and clones, the drop of [`Shared`] then runs it.
impl Drop for Local {
    fn drop(&mut self) {
        self.hand_on();
    }
}

const _: () = assert!(FLUSHED > DUE);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_looks_at_few_lists_however_short_they_are() {
        let shared = Shared::new(Domain::new());
        for _ in 0..100 {
            let mut list = shared.list();
            list.defer(|| ());
            shared.handed().expect("nobody has the lock").push_back(list);
        }
        shared.serve(shared.number(), Way::of(DUE), &mut None);
        assert_eq!(shared.number(), 100 - SHARE / LOOK);
        shared.serve(shared.number(), Way::of(FLUSHED), &mut None);
        assert_eq!(shared.number(), 0);
    }
}
