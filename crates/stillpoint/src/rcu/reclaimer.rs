use std::collections::TryReserveError;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::domain::Domain;
use super::engine::core::garbage::Garbage;
use super::engine::core::record::ReaderKind;
use super::engine::queue::account::Limits;
use super::engine::queue::line::Obstacle;
use super::engine::queue::retire_list::{Pace, RetireList, SHARE};
use super::engine::wait::error::SynchronizeError;
use super::engine::wait::own_holds::OwnHolds;
use super::engine::wait::park::{earliest, Patience};
use super::engine::Core;
use super::limits::{RetireErrorKind, WhenFull};
#[cfg(not(stillpoint_loom))]
use super::raw;
use super::retire::{self, Kept, Queue};
use super::retired::{RetireError, Retired};
use crate::frames::is_freeing;

/// The limit of polls that free everything that is ready.
const NO_LIMIT: usize = usize::MAX;

/// A writer's queue of retired objects, polled by its owner: no thread is needed.
///
/// `retire` takes an object in, and `poll` frees what no reader can hold any more, when the writer chooses. Each
/// poll starts one grace period for everything retired since the last start, so that bursts share a token
/// and a fence. When the reclaimer is dropped, what is pending passes to the domain: its other reclaimers adopt it, a bounded
/// share with each poll.
///
/// Destructors run within `poll`. They may panic, retire to the domain by dropping a [`Retired`], and use other
/// reclaimers, but not this one, which is borrowed.
///
/// ```
/// use stillpoint::rcu::Domain;
///
/// let domain = Domain::new();
/// let cell = domain.cell(0);
/// let mut reclaimer = domain.reclaimer();
/// for value in 1..=100 {
///     if let Some(old) = cell.replace(value) {
///         reclaimer.retire(old)?;
///     }
///     reclaimer.poll();
/// }
/// reclaimer.flush().expect("no reader is in the way");
/// assert_eq!(domain.stats().freed, 100);
/// # Ok::<(), stillpoint::rcu::RetireError<i32>>(())
/// ```
///
/// With a limit, a retirement fails if readers keep too much alive, and hands the object back:
///
/// ```
/// use stillpoint::rcu::Domain;
///
/// let domain = Domain::new();
/// let (first, second) = (domain.cell([0u8; 1500]), domain.cell([0u8; 1500]));
/// let reader = domain.reader();
/// let guard = reader.pin();
/// let mut reclaimer = domain.reclaimer_builder().max_pending(1).build();
/// reclaimer.retire(first.take().expect("never empty here"))?;
/// assert_eq!((reclaimer.pending(), reclaimer.pending_bytes()), (1, 1500));
///
/// let error = reclaimer.retire(second.take().expect("never empty here")).unwrap_err();
/// assert!(error.kind().is_full());
/// drop(guard);
/// reclaimer.retire(error.into_inner())?; // frees the first one, and has room
/// # Ok::<(), stillpoint::rcu::RetireError<[u8; 1500]>>(())
/// ```
pub struct Reclaimer {
    pub(super) list: RetireList,
    when_full: WhenFull,
}

impl Reclaimer {
    /// 65,536 objects: what a writer retires in 13 seconds, at 5,000 objects a second.
    const DEFAULT_MAX_PENDING: usize = 1 << 16;

    /// Takes an object in. Constant time, amortised. If the queue or the domain is full, it starts a grace period for
    /// the objects that have none yet, whatever the pace. Then it frees what is ready, batch by batch, until there is room, or
    /// protected loads hold a whole batch. In a full domain, it also adopts and frees 64 of the objects that were left
    /// to the domain, the latest first. If that gives no room, it visits the lists of what threads have replaced by
    /// [`set`](super::RcuCell::set), in turn: up to 64 lists, until one of them had something to free. If there is still no room, it
    /// does what its [`WhenFull`] says.
    ///
    /// # Errors
    /// If there is no room after that, or the object is of another domain. The error hands the object back.
    ///
    /// # Panics
    /// As [`poll`](Reclaimer::poll), if there was no room; the object is then left to the domain.
    #[inline]
    pub fn retire<T: Send + Sync + 'static>(&mut self, retired: Retired<T>) -> Result<(), RetireError<T>> {
        let parts = retired.into_parts();
        if parts.is_of(self.list.core()) && self.list.reserve_at_once(size_of::<T>()) {
            self.list.retire_reserved(parts.into_garbage());
            return Ok(());
        }
        retire::retire(self, parts, None)
    }

    /// As [`Reader::verify`](super::Reader::verify).
    ///
    /// # Panics
    /// If the reclaimer is not of `domain`; the message names both.
    #[inline(always)]
    #[track_caller]
    pub fn verify(&self, domain: &Domain) {
        domain.verify(self.list.core());
    }

    /// As [`retire`](Reclaimer::retire), for an object that is not a [`Retired`]. See the [example](super::raw).
    ///
    /// # Errors
    /// As [`retire`](Reclaimer::retire). The caller then owns the object again.
    ///
    /// # Panics
    /// As [`retire`](Reclaimer::retire).
    ///
    /// # Safety
    /// - The object was unlinked: from now on no reader can reach it, except for the readers that hold it already. These are
    ///   readers of this domain, and have protected exactly its address.
    /// - The caller owns the object. When no reader can hold it any more, any thread may call its `destroy`, once, with
    ///   its address and context. Until then the context, if it is not null, is in memory that is not freed.
    #[cfg(not(stillpoint_loom))]
    #[inline]
    pub unsafe fn retire_raw(&mut self, object: raw::Object) -> Result<(), raw::Refused> {
        if self.list.reserve_at_once(object.bytes) {
            // SAFETY: the object is unlinked, and the caller owns it, by its promise.
            self.list.retire_reserved(unsafe { object.into_garbage() });
            return Ok(());
        }
        // SAFETY: the object is unlinked, and the caller owns it, by its promise.
        unsafe { raw::retire(self, object) }
    }

    /// As [`retire_raw`](Reclaimer::retire_raw), if that needs no memory, no destructor and no look at the domain: then nothing can
    /// panic, and `stillpoint.h` needs no frame that catches it. False: nothing happened.
    ///
    /// # Safety
    /// As [`retire_raw`](Reclaimer::retire_raw).
    #[cfg(not(stillpoint_loom))]
    #[doc(hidden)]
    #[inline(always)]
    pub unsafe fn retire_raw_at_once(&mut self, object: raw::Object) -> bool {
        let has_room = self.list.has_memory() && self.list.reserve_at_once(object.bytes);
        if has_room {
            // SAFETY: the object is unlinked, and the caller owns it, by its promise.
            self.list.retire_reserved(unsafe { object.into_garbage() });
        }
        has_room
    }

    /// Allocates memory for at least `objects` more objects, so that retiring them need not allocate. Objects that a poll takes over from
    /// the domain take up this memory as well. Constant time, except that the list of all pending objects may move.
    ///
    /// # Errors
    /// There is no memory. Nothing has changed.
    ///
    /// ```
    /// use stillpoint::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let mut reclaimer = domain.reclaimer();
    /// reclaimer.try_reserve(2)?;
    /// let cell = domain.cell(1);
    /// for value in [2, 3] {
    ///     reclaimer.retire(cell.replace(value).expect("the cell has a value"))?; // allocates no place in the list
    /// }
    /// assert!(reclaimer.try_reserve(usize::MAX).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_reserve(&mut self, objects: usize) -> Result<(), TryReserveError> {
        self.list.try_reserve(objects)
    }

    /// As [`retire`](Reclaimer::retire), without waiting. Calls `garbage` only if the object is taken in. Returns whether it
    /// is.
    pub(crate) fn offer(&mut self, bytes: usize, garbage: impl FnOnce() -> Garbage) -> bool {
        let has_room = self.list.make_room(bytes).is_ok();
        if has_room {
            self.list.retire_reserved(garbage());
        }
        has_room
    }

    /// As [`offer`](Reclaimer::offer), for an object that is there already. An object that is refused is handed back.
    ///
    /// # Panics
    /// With the panic of another object's destructor; this object is then left to the domain.
    pub(crate) fn offer_object(&mut self, garbage: Garbage) -> Result<(), Garbage> {
        if self.list.reserve_at_once(garbage.bytes()) {
            self.list.retire_reserved(garbage);
            return Ok(());
        }
        self.offer_when_full(garbage)
    }

    /// Takes in an object that cannot be handed back. If there is no room, the object is left to the domain.
    ///
    /// # Panics
    /// As [`retire`](Reclaimer::retire).
    pub(super) fn take_in(&mut self, garbage: Garbage) {
        if let Err(refused) = self.offer_object(garbage) {
            self.list.core().retire_orphan(refused);
        }
    }

    #[cold]
    #[inline(never)]
    fn offer_when_full(&mut self, garbage: Garbage) -> Result<(), Garbage> {
        let (bytes, kept) = (garbage.bytes(), Kept::new(garbage, self.list.core()));
        // This may run destructors of other objects. A panic of one of them drops `kept`.
        let has_room = self.list.make_room(bytes).is_ok();
        let garbage = kept.take();
        if !has_room {
            return Err(garbage);
        }
        self.list.retire_reserved(garbage);
        Ok(())
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        self.list.core()
    }

    /// As [`retire`](Reclaimer::retire), but waits for room for at most `limit`.
    ///
    /// # Errors
    /// As [`retire`](Reclaimer::retire).
    ///
    /// # Panics
    /// As [`retire`](Reclaimer::retire).
    pub fn retire_timeout<T: Send + Sync + 'static>(
        &mut self,
        retired: Retired<T>,
        limit: Duration,
    ) -> Result<(), RetireError<T>> {
        retire::retire(self, retired.into_parts(), Some(limit))
    }

    /// Calls `function` after a grace period, in a later [`poll`](Reclaimer::poll): when every current region reader
    /// has passed. It does not wait for protected loads. The function counts as one object, and is taken in
    /// even if the queue is full.
    ///
    /// ```
    /// use std::sync::{Arc, atomic::{AtomicBool, Ordering}};
    ///
    /// let domain = stillpoint::rcu::Domain::new();
    /// let mut reclaimer = domain.reclaimer();
    /// let done = Arc::new(AtomicBool::new(false));
    /// let flag = Arc::clone(&done);
    /// reclaimer.defer(move || flag.store(true, Ordering::Relaxed));
    /// reclaimer.poll();
    /// assert!(done.load(Ordering::Relaxed));
    /// ```
    pub fn defer<F: FnOnce() + Send + 'static>(&mut self, function: F) {
        self.list.retire(Garbage::callback(function));
    }

    /// Frees what is ready and returns the number of objects. Never waits for a reader.
    ///
    /// Starts a grace period for what has been retired since the last start, and issues its fence. It does neither if the
    /// last start was too recent (see [`ReclaimerBuilder::fence_interval`]), or if full batches gather for a fence
    /// (see [`ReclaimerBuilder::batch`]): before a long break, call [`flush`](Reclaimer::flush). Returns 0 as long as the kernel refuses
    /// the fence: [`Stats::fence_error`](super::Stats::fence_error) says why.
    ///
    /// If its last look found more than 64 protected objects, whoever holds them, it starts no grace period for fewer than three times as
    /// many objects until 150 ns for each have passed since the last start, and since the look at what that start has made ready.
    ///
    /// # Panics
    /// With the first panic of a destructor; everything that was ready has been freed.
    pub fn poll(&mut self) -> usize {
        self.poll_at_most(NO_LIMIT)
    }

    /// As [`poll`](Reclaimer::poll), but looks at `limit` objects at most, and frees those that no protected load holds.
    /// Objects that were held at an earlier poll take turns with the others, so 0 does not mean that nothing is ready. If the last look found
    /// more than 64 protected objects, whoever holds them, it serves again for 150 ns for each, and for eight times as long until all that
    /// is held has been compared with it.
    ///
    /// It may also look at up to `limit` objects, 64 at most, of one thread or table that has stopped writing. The result does not count
    /// these.
    ///
    /// # Panics
    /// As [`poll`](Reclaimer::poll).
    pub fn poll_at_most(&mut self, limit: usize) -> usize {
        let freed = self.list.poll(limit);
        let core = self.list.core();
        // Destructors of others do not nest in one.
        if !is_freeing() {
            core.visit_silent(self.list.counters().round(), limit.min(SHARE), || core.age());
        }
        freed
    }

    /// As [`poll_at_most`](Reclaimer::poll_at_most), but ignores the pace. Adopts what was left to the domain, as far as `limit`
    /// exceeds what waits here. Then starts a grace period for everything that has none yet, and issues its fence. Never waits for a
    /// reader: what a reader keeps alive stays.
    ///
    /// For occasional calls that need what is ready *now*: each may issue a heavy fence. Without a limit (`usize::MAX`), it takes
    /// time in proportion to what was left. What it adopts may exceed the limits of this reclaimer. Destructors call
    /// [`poll`](Reclaimer::poll) instead, which adopts nothing there: destructors of what others have left would nest in them.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let domain = stillpoint::rcu::Domain::new();
    /// let _reader = domain.reader();
    /// let cell = domain.cell(1);
    /// let mut reclaimer = domain.reclaimer_builder().fence_interval(Duration::from_secs(3600)).build();
    /// for number in 2..10 {
    ///     drop(cell.replace(number)); // left to the domain
    ///     assert_eq!(reclaimer.poll_at_once(usize::MAX), 1);
    /// }
    /// ```
    ///
    /// # Panics
    /// As [`poll`](Reclaimer::poll).
    pub fn poll_at_once(&mut self, limit: usize) -> usize {
        self.list.adopt(limit.saturating_sub(self.list.len()));
        self.list.close();
        self.list.advance(limit)
    }

    /// Waits until everything retired here so far is freed. Also adopts what had been left to the domain, unless another thread is just
    /// adopting it, and waits for that. After an error, this reclaimer may hold more than its limits.
    /// [`Domain::barrier`](super::Domain::barrier) also waits for other threads.
    ///
    /// # Errors
    /// As [`Domain::synchronize`](super::Domain::synchronize);
    /// [`WouldDeadlock`](SynchronizeError::WouldDeadlock) also if a protected load of the calling thread holds one of
    /// the objects; the others have been freed if they were ready. Waits for ever for a protected load of another thread
    /// that is never released: see [`flush_timeout`](Reclaimer::flush_timeout).
    ///
    /// The release of a protected load wakes no thread. This call looks again after 50 µs, then after twice as long, and so on,
    /// up to 1 ms.
    ///
    /// # Panics
    /// As [`poll`](Reclaimer::poll).
    pub fn flush(&mut self) -> Result<(), SynchronizeError> {
        self.flush_until(None)
    }

    /// As [`flush`](Reclaimer::flush), for at most `limit`.
    ///
    /// # Errors
    /// Also [`Stalled`](SynchronizeError::Stalled) with a report on the region reader in the way, and
    /// [`Pinned`](SynchronizeError::Pinned) if protected loads hold what is left.
    ///
    /// # Panics
    /// As [`poll`](Reclaimer::poll).
    pub fn flush_timeout(&mut self, limit: Duration) -> Result<(), SynchronizeError> {
        self.flush_until(Some(limit))
    }

    fn flush_until(&mut self, limit: Option<Duration>) -> Result<(), SynchronizeError> {
        self.flush_unless(limit, || false)
    }

    /// As [`flush_until`](Reclaimer::flush_until). Also fails with `WouldDeadlock` when the calling thread `is_in_the_way`: of others, who
    /// may be in the way of this call.
    pub(super) fn flush_unless(
        &mut self,
        limit: Option<Duration>,
        mut is_in_the_way: impl FnMut() -> bool,
    ) -> Result<(), SynchronizeError> {
        SynchronizeError::unless_foreign(self.list.core())?;
        let begun = self.list.core().age();
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        // Only once: other threads may leave more to the domain again and again.
        self.list.adopt(usize::MAX);
        if let Some(token) = self.list.close() {
            let core = Arc::clone(self.list.core());
            core.wait_for(token, limit)?;
        }
        let mut patience = Patience::new();
        loop {
            self.list.advance(NO_LIMIT);
            if self.list.len() == 0 {
                return Ok(());
            }
            if self.list.held_by_caller() > 0 || is_in_the_way() {
                return Err(SynchronizeError::would_deadlock(self.list.core(), ReaderKind::ProtectedLoad));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(self.why_late(begun));
            }
            self.pause(&mut patience, deadline);
        }
    }

    fn why_late(&self, begun: Duration) -> SynchronizeError {
        let core = self.list.core();
        match self.list.obstacle() {
            Obstacle::Refused(error) => SynchronizeError::Fence(error),
            Obstacle::Reader(record, _) => SynchronizeError::stalled(core, record, begun),
            _ => SynchronizeError::pinned(core, self.list.held()),
        }
    }

    /// Takes over everything that waits in `other`. Grace periods that are under way go on, unless objects of this reclaimer have
    /// none yet: then those of the objects from `other` begin anew. So they do for objects that protected loads hold. Takes
    /// constant time for each object. Checks no limit, so this reclaimer may hold more than its limits afterwards.
    ///
    /// ```
    /// # let domain = stillpoint::rcu::Domain::new();
    /// let (mut one, mut other) = (domain.reclaimer(), domain.reclaimer());
    /// other.retire(domain.cell(1).take().expect("it is not empty")).expect("there is room");
    /// one.take_over(&mut other);
    /// assert_eq!((one.pending(), other.pending()), (1, 0));
    /// assert_eq!(one.poll_at_once(usize::MAX), 1);
    /// ```
    ///
    /// # Panics
    /// If the two are not of one domain.
    #[track_caller]
    pub fn take_over(&mut self, other: &mut Reclaimer) {
        let (own, its) = (self.list.core(), other.list.core());
        assert!(
            Arc::ptr_eq(own, its),
            "a reclaimer of domain `{}` cannot take over from a reclaimer of domain `{}`",
            own.name(),
            its.name()
        );
        self.list.append(&mut other.list);
    }

    /// Number of objects that wait to be freed.
    pub fn pending(&self) -> usize {
        self.list.len()
    }

    /// Size in bytes of the objects that wait to be freed, without what they own elsewhere.
    pub fn pending_bytes(&self) -> usize {
        self.list.bytes
    }

    /// How many of the [pending](Reclaimer::pending) objects wait for protected loads only: their grace period was over when a poll last
    /// looked at them.
    ///
    /// ```
    /// let domain = stillpoint::rcu::Domain::new();
    /// let (cell, reader, mut reclaimer) = (domain.cell(1), domain.reader(), domain.reclaimer());
    /// let held = cell.protect(&reader);
    /// reclaimer.retire(cell.replace(2).expect("never empty here"))?;
    /// assert_eq!((reclaimer.poll_at_once(usize::MAX), reclaimer.pending(), reclaimer.held()), (0, 1, 1));
    /// drop(held);
    /// assert_eq!((reclaimer.poll(), reclaimer.held()), (1, 0));
    /// # Ok::<(), stillpoint::rcu::RetireError<i32>>(())
    /// ```
    pub fn held(&self) -> usize {
        self.list.held()
    }
}

impl Queue for Reclaimer {
    fn core(&self) -> &Arc<Core> {
        self.list.core()
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), RetireErrorKind> {
        if bytes > self.list.largest() {
            // A wait for room would never end.
            return Err(RetireErrorKind::TooLarge);
        }
        Ok(self.list.make_room(bytes)?)
    }

    fn push(&mut self, garbage: Garbage) {
        self.list.retire_reserved(garbage);
    }

    fn when_full(&self) -> WhenFull {
        self.when_full
    }

    fn pause(&self, patience: &mut Patience, deadline: Option<Instant>) {
        let core = self.list.core();
        let (next, due) = self.list.obstacle().next(core);
        let wake_up = earliest(earliest(deadline, due), self.list.stall_is_due());
        patience.wait(core.event(), next, wake_up, || false);
    }

    fn is_full_of_own(&self, own: &mut OwnHolds<'_>, bytes: usize) -> bool {
        self.list.is_full_of_own(own.region(), bytes)
    }
}

stillpoint_sys::debug!(|this| Reclaimer { domain: this.list.core().name(), pending: this.pending(), .. });

/// Makes a [`Reclaimer`] or a [`BackgroundReclaimer`](super::BackgroundReclaimer). It comes from
/// [`Domain::reclaimer_builder`](super::Domain::reclaimer_builder), and counts as a handle of the domain.
///
/// ```
/// use std::time::Duration;
/// use stillpoint::rcu::limits::WhenFull;
/// use stillpoint::rcu::Domain;
///
/// let domain = Domain::new();
/// let builder = domain
///     .reclaimer_builder()
///     .max_pending(10_000)
///     .max_pending_bytes(64 << 20)
///     .when_full(WhenFull::Wait(Duration::from_millis(5)))
///     .batch(32)
///     .fence_interval(Duration::from_micros(100));
/// let (polled, background) = (builder.clone().build(), builder.build_background());
/// # drop((polled, background));
/// ```
#[derive(Debug, Clone)]
pub struct ReclaimerBuilder {
    pub(super) core: Arc<Core>,
    objects: Option<usize>,
    bytes: usize,
    pub(super) pace: Pace,
    pub(super) when_full: WhenFull,
}

impl ReclaimerBuilder {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core, objects: None, bytes: usize::MAX, pace: Pace::DEFAULT, when_full: WhenFull::default() }
    }

    /// Objects that may wait at a time, at least 1. By default 65,536; for a background reclaimer, 1,048,576.
    pub fn max_pending(mut self, objects: usize) -> Self {
        self.objects = Some(objects.max(1));
        self
    }

    /// Bytes that may wait at a time, without what the objects own elsewhere; unlimited by default. What a poll adopts from the
    /// domain may exceed the limit once, by a share of 64 objects; what a flush adopts, by all of it.
    pub fn max_pending_bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }

    /// Number of retired objects that fill a batch; 128 by default, at least 1. If readers rely on heavy fences, at most one grace period
    /// starts in 20 µs in the whole domain, but for 8 batches one starts at once. While a reader is silent (it has loaded nothing since the grace
    /// period was started, and is not [offline](super::Reader::offline)), full batches gather for one fence: up to 32 batches, for 32
    /// times as long as the last fence took, at most 1 ms. So fences take some 3 % of a busy writer's time. With a `fence_interval` of
    /// zero, batches do not gather.
    pub fn batch(mut self, objects: usize) -> Self {
        self.pace.batch = objects.max(1);
        self
    }

    /// Time between two heavy fences of the domain, before this reclaimer issues another one for less than a batch; 50 µs by default. It
    /// bounds how often the other cores are interrupted for a few objects; full batches gather instead (see [`batch`](Self::batch)), and a
    /// reclaimer without room fences at once. It matters only while a reader is silent. With zero, polls wait for no silent
    /// reader, and fence at once. While it lasts longer than the threshold of the stall hook, a region that begins after the oldest
    /// grace period that waits for the fence is reported only after the fence.
    pub fn fence_interval(mut self, interval: Duration) -> Self {
        self.pace.interval = interval;
        self
    }

    /// What [`Reclaimer::retire`] does when there is no room. For a background reclaimer, what its retire handles do, unless
    /// [their own setting](super::RetireHandle::when_full) differs. By default, the object is handed back.
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    pub(super) fn limits(&self, default: usize) -> Limits {
        Limits { objects: self.objects.unwrap_or(default), bytes: self.bytes }
    }

    /// Makes a reclaimer that its owner polls. No setting makes this fail.
    pub fn build(self) -> Reclaimer {
        let limits = self.limits(Reclaimer::DEFAULT_MAX_PENDING);
        Reclaimer { list: RetireList::new(self.core, self.pace, limits), when_full: self.when_full }
    }
}

impl Domain {
    /// A queue of retired objects for one writer, with the default limits.
    pub fn reclaimer(&self) -> Reclaimer {
        self.reclaimer_builder().build()
    }

    /// Makes a queue of retired objects for one writer, or a reclaimer for a separate thread to run, with limits and pace to be chosen.
    ///
    /// ```
    /// let domain = stillpoint::rcu::Domain::new();
    /// let reclaimer = domain.reclaimer_builder().max_pending(10_000).batch(32).build();
    /// assert_eq!(reclaimer.pending(), 0);
    /// ```
    pub fn reclaimer_builder(&self) -> ReclaimerBuilder {
        ReclaimerBuilder::new(Arc::clone(self.core()))
    }
}
