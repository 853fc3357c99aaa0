//! The part of a collector that belongs to a thread or a handle: its region, and what was deferred in it.
//!
//! Steps in comments are those of `docs/design/epoch.md`.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{compiler_fence, fence, AtomicU32, AtomicU64, Ordering};

use stillpoint::rcu::raw::{self, offsets, states, Object, Parts};
use stillpoint::rcu::Reader;
use stillpoint_sys::panics::{self, Panic};

use crate::cells::Cells;
use crate::collector::Collector;
use crate::lists::List;

/// A round is due when a local has counted up to this: one for each region, and [`FUNCTION`] for each deferred
/// function.
const DUE: u32 = 128;
/// What a deferred function adds to the count; a region adds 1.
const FUNCTION: u32 = 2;
/// A local keeps fewer functions than this after a region. They stay here because their memory is mostly in this
/// thread's allocator.
const FEW: usize = (DUE / FUNCTION) as usize;
/// A `flush` sets this bit of the count.
const FLUSHED: u32 = 1 << 30;

/// The fields that each pin and each deferred function use come first, in one cache line.
#[repr(C, align(64))]
pub(crate) struct Local {
    /// The number of guards, except those whose `repin_after` is running.
    guards: Cell<usize>,
    /// 1 until the handle is dropped, and 1 more for each call that keeps the local alive.
    handles: Cell<usize>,
    due: Cell<u32>,
    /// What is left of the counts of rounds that have run their whole shares. While it is not 0, each region has a round.
    owed: Cell<usize>,
    /// The fewest functions that are handed on after the next round: [`FEW`], or 1 after a flush, and after the first region, since there
    /// may be no other.
    least: Cell<usize>,
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
            owed: Cell::new(0),
            least: Cell::new(1),
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
        // SAFETY: both words are valid as long as the domain, which the reader keeps alive.
        let (token, state) = unsafe { (self.token.as_ref(), self.state.as_ref()) };
        // Acquire: as in `enter`; the thread vouches for this token. Release: everything in the region comes before this store. Pairs
        // with the acquire load of a scan.
        state.store(token.load(Ordering::Acquire) | states::IDLE, Ordering::Release);
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
            let is_flush = local.due.get() >= FLUSHED;
            let mut panic = local.round();
            // Where rounds run nothing, each further region without a flush would hand on a list of few functions.
            let is_put_off = runs_nothing() && !is_flush;
            local.hand_on(if is_put_off { FEW } else { local.least.replace(FEW) }, &mut panic);
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
        let list = self.list.take().unwrap_or_else(|| self.collector.shared().list());
        let mut lent = Lent { local: self, list: Some(list) };
        let list = lent.list.as_mut().expect("it was put there just now");
        // SAFETY: the caller owns the object, which no later reader can reach, and any thread may destroy it, by the
        // caller's promise.
        let answer = unsafe { list.reclaimer.retire_raw(object) };
        if list.reclaimer.pending() >= FEW {
            self.due.set(self.due.get().max(DUE));
        }
        let mut panic = None;
        lent.give_back(&mut panic);
        if let Err(refused) = answer {
            // SAFETY: the object was handed back, so the caller's promise still holds: the caller owns it, no later
            // reader can reach it, and any thread may destroy it.
            unsafe { raw::leave(self.collector.shared().domain(), refused.object) };
        }
        panics::resume(panic);
    }

    /// Puts the list back. If functions that ran meanwhile have deferred others, these are in another list, which is
    /// handed on.
    #[inline]
    fn keep(&self, list: Box<List>, panic: &mut Option<Panic>) {
        if let Some(newer) = self.list.replace(Some(list)) {
            self.collector.shared().hand_on(newer, panic);
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
        self.least.set(1);
        if runs_nothing() {
            return;
        }
        let panic = self.round();
        // The round has set the count to 0, but has run nothing of what was deferred in this region.
        self.due.set(self.due.get().max(due));
        panics::resume(panic);
    }

    /// Runs a share of the functions that are ready: first those of this local, then those that were handed on. Returns the
    /// first panic. Within a deferred function, and while the thread unwinds, it runs nothing, and the round is still due
    /// afterwards.
    fn round(&self) -> Option<Panic> {
        if runs_nothing() {
            return None;
        }
        let due = self.due.replace(0);
        let count = (due % FLUSHED) as usize;
        let shared = self.collector.shared();
        let mut list = self.list.take().unwrap_or_else(|| shared.list());
        let (share, mut panic) = shared.round(&mut list, count, due >= FLUSHED);
        self.keep(list, &mut panic);
        // If there may be more, this thread goes on in its next regions, until it has run what it owes.
        let owed = share.map_or(0, |share| self.owed.get().saturating_add(count).saturating_sub(share));
        self.owed.set(owed);
        if owed > 0 {
            self.due.set(self.due.get().max(DUE - 1));
        }
        panic
    }

    /// Lets any thread serve what is left in this local's list, if that is at least this number of functions.
    fn hand_on(&self, least: usize, panic: &mut Option<Panic>) {
        if let Some(list) = self.list.take() {
            if list.reclaimer.pending() >= least {
                self.collector.shared().hand_on(list, panic);
            } else {
                self.list.set(Some(list));
            }
        }
    }
}

/// The list of a local while an object is put into it. It comes back even if a function that runs meanwhile panics: what waits in a list that is
/// dropped would be left to the domain, object by object.
struct Lent<'l> {
    local: &'l Local,
    list: Option<Box<List>>,
}

impl Lent<'_> {
    #[inline]
    fn give_back(&mut self, panic: &mut Option<Panic>) {
        if let Some(list) = self.list.take() {
            self.local.keep(list, panic);
        }
    }
}

impl Drop for Lent<'_> {
    #[inline]
    fn drop(&mut self) {
        let mut panic = None;
        self.give_back(&mut panic);
        panics::resume(panic);
    }
}

/// Whether rounds run nothing now: within a deferred function, and while the thread unwinds.
fn runs_nothing() -> bool {
    raw::is_within_destructor() || std::thread::panicking()
}

/// Hands on what is left. If this local was the last to keep the collector alive, the drop of [`Shared`] then runs it.
impl Drop for Local {
    fn drop(&mut self) {
        let mut panic = None;
        self.hand_on(1, &mut panic);
        panics::resume(panic);
    }
}
