use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
#[cfg(not(stillpoint_loom))]
use std::ptr;
use std::ptr::NonNull;
// Not modelled: only the reader's own thread uses these.
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use super::domain::Domain;
use super::engine::core::garbage::Garbage;
use super::engine::core::record::{is_here, is_open, ReaderKind, Record, Slot, IDLE};
use super::engine::core::registry::Claim;
use super::engine::Core;
use super::on_thread::OnThread;
use super::region::{sealed::Sealed, Region};
use crate::busted::{self, Variant};
use crate::fence::ReaderFence;

/// A thread's registration in a domain. It protects single objects, and begins regions.
///
/// Made by [`Domain::reader`](super::Domain::reader), on the thread that uses it; it cannot be sent to another.
/// Keep it for the life of the thread: making a reader claims a slot and issues a full fence (some 50 ns).
///
/// ```
/// use stillpoint::rcu::Domain;
///
/// let domain = Domain::new();
/// let cell = domain.cell(String::from("first"));
/// let reader = domain.reader();
///
/// let object = cell.protect(&reader).expect("the cell is not empty"); // keeps only this object alive
/// assert_eq!(*object, "first");
///
/// let guard = reader.pin(); // keeps alive everything retired from now on
/// assert_eq!(cell.load(&guard).map(String::as_str), Some("first"));
/// ```
///
/// A reader stays on its thread, and so do its guards and the objects that it protects:
///
/// ```compile_fail,E0277
/// # use stillpoint::rcu::Domain;
/// let reader = Domain::new().reader();
/// std::thread::spawn(move || drop(reader)); // `Reader` cannot be sent
/// ```
/// ```
/// # use stillpoint::rcu::Domain;
/// let domain = Domain::new();
/// std::thread::spawn(move || drop(domain.reader())); // made where it is used
/// ```
pub struct Reader {
    record: OnThread<NonNull<Record>>,
    fence: ReaderFence,
    /// Guards beyond the first.
    nested: AtomicU32,
    core: Arc<Core>,
    claim: OnThread<Claim<Record>>,
}

impl Reader {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        let (claim, fence) = core.register(ReaderKind::Guard);
        Self::registered(core, claim, fence)
    }

    /// The reader of the calling thread, which has registered it in this record.
    pub(super) fn registered(core: Arc<Core>, claim: Claim<Record>, fence: ReaderFence) -> Self {
        // SAFETY: the core is alive, as the reader holds it.
        let record = OnThread::new(NonNull::from(unsafe { claim.slot() }));
        Self { record, fence, nested: AtomicU32::new(0), core, claim: OnThread::new(claim) }
    }

    /// Begins a region: until the guard is dropped, nothing is freed that was linked when the region began or later.
    ///
    /// A preempted thread that holds a guard keeps alive everything retired since the region began. For single objects, or where
    /// reading may take long, prefer [`RcuCell::protect`](super::RcuCell::protect). Guards nest, and may be dropped in any order;
    /// the region ends with the last one. A guard that is forgotten (`mem::forget`) holds everything
    /// up until the reader is dropped.
    ///
    /// Costs three loads and a store to begin, two loads and a store to end, nearly all on the reader's own cache line; no
    /// fence in the asymmetric mode.
    ///
    /// ```
    /// use stillpoint::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let (first, second) = (domain.cell(1), domain.cell(2));
    /// let reader = domain.reader();
    /// let guard = reader.pin();
    /// let sum = first.load(&guard).unwrap() + second.load(&guard).unwrap();
    /// assert_eq!(sum, 3);
    /// ```
    ///
    /// A reference does not outlive its guard:
    ///
    /// ```compile_fail,E0505
    /// # let domain = stillpoint::rcu::Domain::new();
    /// # let cell = domain.cell(1);
    /// # let reader = domain.reader();
    /// let guard = reader.pin();
    /// let object = cell.load(&guard);
    /// drop(guard);
    /// assert_eq!(object, Some(&1)); // used after the guard
    /// ```
    #[inline(always)]
    pub fn pin(&self) -> Guard<'_> {
        let record = self.record();
        if is_here(record.state()) {
            self.core.protocol.enter(self.fence, record);
        } else {
            self.nest_or_return();
        }
        Guard { reader: self }
    }

    /// A guard is held already, or the reader was away.
    #[inline(never)]
    fn nest_or_return(&self) {
        let record = self.record();
        if !is_open(record.state()) {
            self.core.protocol.come_back(record);
            return self.core.protocol.enter(self.fence, record);
        }
        // The token of the guard that is held covers this one: nothing that was linked since then has been freed. Checking
        // the state instead of counting all guards keeps a dependency through the counter out of the common case.
        // Relaxed, both: only this thread uses the counter. A signal handler that runs in between restores it.
        let nested = self.nested.load(Ordering::Relaxed);
        let more = nested.checked_add(1).expect("fewer than 2^32 guards at a time");
        self.nested.store(more, Ordering::Relaxed);
    }

    /// As [`pin`](Reader::pin), for a caller that may have interrupted a `pin` of this reader, before that has fenced.
    #[inline]
    pub(super) fn pin_in_handler(&self) -> Guard<'_> {
        let word = self.record().state();
        let is_nested = is_open(word);
        if !busted::is(Variant::HandlerNotBack) && word == IDLE {
            // It has interrupted a return, before that has fenced.
            self.core.protocol.come_back(self.record());
        }
        let guard = self.pin();
        if is_nested && !busted::is(Variant::NestedNoFence) {
            self.fence.issue();
        }
        guard
    }

    /// Lets writers ignore this reader until its next load or guard, which brings it back by itself. For threads that are about to
    /// sleep. Returns whether it did anything: it does nothing while there is a guard, or if the reader is offline already.
    ///
    /// A reader that has loaded something, and then sleeps, holds nothing up. But a writer cannot tell that it sleeps, and interrupts
    /// the processors that run this process, by a heavy fence for each batch of objects. It does not do so for a reader that is offline.
    /// Objects that are protected stay so.
    ///
    /// Costs one store; coming back costs a full fence. Not to be called in signal handlers.
    ///
    /// ```
    /// use stillpoint::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let cell = domain.cell(1);
    /// let reader = domain.reader();
    /// assert!(!reader.offline()); // it has loaded nothing yet
    /// assert_eq!(cell.protect(&reader).as_deref(), Some(&1));
    /// assert!(reader.offline()); // before the thread sleeps
    /// let guard = reader.pin(); // the reader is back
    /// assert!(!reader.offline());
    /// drop(guard);
    /// ```
    pub fn offline(&self) -> bool {
        self.core.protocol.go_away(self.record())
    }

    /// Panics unless this reader is of `domain`. For data structures whose safety depends on the domain.
    ///
    /// # Panics
    /// If the reader is of another domain; the message names both.
    ///
    /// ```should_panic
    /// use stillpoint::rcu::{Domain, Region};
    ///
    /// let (domain, other) = (Domain::new(), Domain::new());
    /// domain.reader().verify(&domain);
    /// domain.reclaimer().verify(&domain);
    /// domain.qsbr_reader().verify(&domain); // as any region
    /// other.reader().verify(&domain); // panics
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn verify(&self, domain: &Domain) {
        domain.verify(self.core());
    }

    /// Takes the reader apart. The thread stays registered.
    #[cfg(not(stillpoint_loom))]
    pub(super) fn into_parts(self) -> (Arc<Core>, Claim<Record>) {
        let this = ManuallyDrop::new(self);
        // SAFETY: each is read once, as `this` is not dropped.
        unsafe { (ptr::read(&raw const this.core), ptr::read(&raw const *this.claim)) }
    }

    #[inline(always)]
    pub(crate) fn record(&self) -> &Record {
        // SAFETY: the record lives as long as the core, which the reader holds.
        unsafe { self.record.as_ref() }
    }

    /// A slot that is not in use, the first one if possible. The reader has vouched, and has done so again if an allocator ran, which may
    /// call other code.
    #[inline(always)]
    pub(crate) fn free_hazard(&self) -> Slot<'_> {
        self.record().free_first_hazard().unwrap_or_else(|| self.further_hazard())
    }

    /// A slot that is not in use, and that no other call gets before it is released, set or not. The reader has vouched.
    #[cold]
    pub(crate) fn further_hazard(&self) -> Slot<'_> {
        let slot = self.record().next_free_hazard();
        self.vouch();
        slot
    }

    /// Comes before each protected load: see [`Protocol::vouch`](super::engine::core::Protocol::vouch).
    #[inline(always)]
    pub(crate) fn vouch(&self) {
        self.core.protocol.vouch(self.record());
    }

    #[inline(always)]
    pub(crate) fn fence(&self) -> ReaderFence {
        self.fence
    }

    #[inline(always)]
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }
}

impl Domain {
    /// Registers the calling thread as a reader of objects and of regions. Lock-free; the number of readers has no limit.
    pub fn reader(&self) -> Reader {
        Reader::new(Arc::clone(self.core()))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.core.unregister(&self.claim);
    }
}

stillpoint_sys::debug!(|this| Reader { domain: this.core.name(), .. });

/// A region of a [`Reader`]: see [`Reader::pin`], and [`pin`](super::pin) for the default domain.
///
/// ```
/// use stillpoint::rcu::{self, RcuCell};
///
/// let (route, mtu) = (RcuCell::new("eth0"), RcuCell::new(1500));
/// let guard = rcu::pin(); // the region begins
/// let (current, bytes) = (route.load(&guard), mtu.load(&guard)); // two plain loads
/// route.set("eth1"); // in another thread, as a rule
/// assert_eq!((current, bytes), (Some(&"eth0"), Some(&1500))); // not freed as long as there is the guard
/// drop(guard); // the region ends
/// ```
#[must_use = "the region ends when the guard is dropped"]
pub struct Guard<'r> {
    pub(super) reader: &'r Reader,
}

impl Guard<'_> {
    /// Calls `function` after a grace period: when this guard, and every region that is open now, has ended. It does not wait for
    /// protected loads.
    ///
    /// **Nothing calls it by itself:** a thread must poll a reclaimer of the domain, or run a background reclaimer.
    /// The function is left to the domain, like a [`Retired`](super::Retired) that is dropped, and cannot be refused. `Retired`
    /// says which thread calls it, when, and what it counts as. It never runs within this call, or at the end of the guard. The
    /// cost is bounded: one allocation for the function and one for its place.
    /// A structure that defers much, or must know when functions run, should have its own [`Reclaimer`](super::Reclaimer).
    ///
    /// ```
    /// use std::sync::{Arc, atomic::{AtomicBool, Ordering}};
    ///
    /// let domain = stillpoint::rcu::Domain::new();
    /// let done = Arc::new(AtomicBool::new(false));
    /// let flag = Arc::clone(&done);
    /// let reader = domain.reader();
    /// let guard = reader.pin();
    /// guard.defer(move || flag.store(true, Ordering::Relaxed));
    /// drop(guard);
    /// domain.synchronize()?; // or the poll of any reclaimer
    /// assert!(done.load(Ordering::Relaxed));
    /// # Ok::<(), stillpoint::rcu::wait::SynchronizeError>(())
    /// ```
    pub fn defer<F: FnOnce() + Send + 'static>(&self, function: F) {
        self.reader.core.retire_orphan(Garbage::callback(function));
    }
}

impl Drop for Guard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // Relaxed, both: only this thread uses the counter, as in `pin`.
        let nested = self.reader.nested.load(Ordering::Relaxed);
        if nested == 0 || busted::is(Variant::NestedLeave) {
            self.reader.core.leave(self.reader.record());
        } else {
            self.reader.nested.store(nested - 1, Ordering::Relaxed);
        }
    }
}

impl Region for Guard<'_> {}

// SAFETY: the record publishes the token of the outermost guard from `pin` until the last guard is dropped.
unsafe impl Sealed for Guard<'_> {
    #[inline(always)]
    fn core(&self) -> &Core {
        self.reader.core()
    }
}

stillpoint_sys::debug!(|this| Guard<'_> { domain: this.reader.core.name(), .. });

/// An object that is not freed as long as this value exists: see
/// [`RcuCell::protect`](super::RcuCell::protect).
///
/// It occupies one hazard slot of its reader. To hold an object beyond its thread, or across an `.await`, use
/// [`OwnedProtected`](super::OwnedProtected). A preempted thread keeps alive the objects that it protects, and
/// nothing else. The value is not `Clone` and never changes slots, since a scan could miss an object that moves
/// between them. A value that is forgotten (`mem::forget`) holds the object up until the reader is dropped.
#[must_use = "the object is protected until this value is dropped"]
pub struct Protected<'a, T: ?Sized> {
    object: OnThread<NonNull<T>>,
    slot: OnThread<Slot<'a>>,
    _object: PhantomData<&'a T>,
}

impl<'a, T: ?Sized> Protected<'a, T> {
    /// # Safety
    /// `slot` holds the address of `object`, validated by `protect`. Both outlive `'a`, except that the object may be reclaimed
    /// once the slot is cleared. The slot is one of the calling thread's reader, and the drop of this value gives it back.
    #[inline(always)]
    pub(super) unsafe fn new(object: NonNull<T>, slot: Slot<'a>) -> Self {
        Self { object: OnThread::new(object), slot: OnThread::new(slot), _object: PhantomData }
    }

    /// The same protection with a reference to a part of the object. (Not a method, because a method could hide one of the object's
    /// methods.)
    ///
    /// ```
    /// use stillpoint::rcu::{Domain, Protected};
    ///
    /// let domain = Domain::new();
    /// let route = domain.cell(("eth0", 1500));
    /// let reader = domain.reader();
    /// let route = route.protect(&reader).expect("never empty here");
    /// let mtu = Protected::map(route, |(_, mtu)| mtu);
    /// assert_eq!(*mtu, 1500);
    /// ```
    ///
    /// The reference that `part` receives cannot outlive the protection:
    ///
    /// ```compile_fail
    /// # let domain = stillpoint::rcu::Domain::new();
    /// # let cell = domain.cell(1);
    /// # let reader = domain.reader();
    /// # use stillpoint::rcu::Protected;
    /// let mut kept = None;
    /// Protected::map(cell.protect(&reader).unwrap(), |object| {
    ///     kept = Some(object); // would outlive the protection
    ///     object
    /// });
    /// ```
    pub fn map<U: ?Sized>(this: Self, part: impl FnOnce(&T) -> &U) -> Protected<'a, U> {
        // If `part` panics, the drop of `this` releases the object.
        let object = OnThread::new(NonNull::from(part(&this)));
        Protected { object, slot: ManuallyDrop::new(this).slot, _object: PhantomData }
    }
}

impl<T: ?Sized> Deref for Protected<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the hazard slot keeps the object alive until `self` is dropped. Linked objects are only
        // shared, and change only through interior mutability.
        unsafe { self.object.as_ref() }
    }
}

impl<T: ?Sized> Drop for Protected<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the slot belongs to this value, which stays on the thread of its reader.
        unsafe { self.slot.release() };
    }
}

impl<T: fmt::Debug + ?Sized> fmt::Debug for Protected<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Protected").field(&&**self).finish()
    }
}
