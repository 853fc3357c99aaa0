use std::fmt;
use std::marker::PhantomData;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::background::BackgroundReclaimer;
use super::domain::Domain;
use super::engine::core::garbage::Garbage;
use super::engine::core::record::ReaderKind;
use super::engine::queue::retire_list::{Full, Limits, Obstacle, Pace, RetireList};
use super::engine::queue::shelf::Round;
use super::engine::wait::park::{earliest, Next, Patience};
use super::engine::Core;
use super::error::{RetireError, SynchronizeError};
use super::limits::WhenFull;
#[cfg(not(loom))]
use super::raw;
use super::retire::{self, Queue};
use super::retired::Retired;

/// For polls that free everything that is ready.
const NO_LIMIT: usize = usize::MAX;

/// A writer's queue of retired objects, polled by its owner: no thread is needed.
///
/// `retire` takes an object in, `poll` frees what no reader can hold any more, on the writer's own time. Each
/// poll starts one grace period for all that was retired since the last start, so that bursts share a token
/// and a fence. When dropped, what is pending passes to the domain: its other reclaimers adopt it, a bounded share
/// with each poll.
///
/// Destructors run within `poll`. They may panic, retire to the domain by dropping a [`Retired`], and use other
/// reclaimers; this one is borrowed.
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
pub struct Reclaimer {
    list: RetireList,
    when_full: WhenFull,
    /// Which thread's list this one passes by next.
    round: Round,
}

impl Reclaimer {
    /// 65,536 objects: a writer of 5,000 objects a second may be held up for 13 seconds.
    const DEFAULT_MAX_PENDING: usize = 1 << 16;

    /// Takes an object in. Constant time, amortised. When the queue or the domain is full, it starts a grace period for
    /// what has none yet, whatever the pace, and frees what is ready, batch by batch until there is room, or protected
    /// loads hold a whole batch. If it is the domain that is full, it also adopts and frees 64 of the objects that were left
    /// to that, the oldest first. If there is no room after that, it does what [`WhenFull`] was chosen.
    ///
    /// # Errors
    /// When there is no room after that, or the object is of another domain. The object is handed back.
    ///
    /// # Panics
    /// As [`poll`](Reclaimer::poll), if there was no room; the object then is left to the domain.
    #[inline]
    pub fn retire<T: Send + Sync + 'static>(&mut self, retired: Retired<T>) -> Result<(), RetireError<T>> {
        let parts = retired.into_parts();
        if parts.is_of(self.list.core()) && self.list.reserve_at_once(size_of::<T>()) {
            self.list.retire_reserved(parts.into_garbage());
            return Ok(());
        }
        retire::retire(self, parts)
    }

    /// As [`Reader::verify`](super::Reader::verify).
    ///
    /// # Panics
    /// If the reclaimer is not of `domain`; the message names both.
    #[inline(always)]
    pub fn verify(&self, domain: &Domain) {
        domain.verify(self.list.core());
    }

    /// As [`retire`](Reclaimer::retire), for an object that is not a [`Retired`]. See the [example](super::raw).
    ///
    /// # Errors
    /// As [`retire`](Reclaimer::retire); the object is the caller's again.
    ///
    /// # Panics
    /// As [`retire`](Reclaimer::retire).
    ///
    /// # Safety
    /// - The object was unlinked: from now on no reader can reach it, except for those that hold it. These are readers of this
    ///   domain, and have protected exactly its address.
    /// - The caller owns it. When no reader can hold it any more, any thread that is alive then may call its `destroy`, once, with
    ///   its address and context. Until then the context, if it is not null, is in memory that is not freed.
    #[cfg(not(loom))]
    #[inline]
    pub unsafe fn retire_raw(&mut self, object: raw::Object) -> Result<(), raw::Refused> {
        if self.list.reserve_at_once(object.bytes) {
            // SAFETY: the caller's promise.
            self.list.retire_reserved(unsafe { object.into_garbage() });
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { raw::retire(self, object) }
    }

    /// As [`retire`](Reclaimer::retire), without waiting, for an object that is made into garbage when it is taken in.
    /// False when it is not.
    pub(crate) fn offer(&mut self, bytes: usize, garbage: impl FnOnce() -> Garbage) -> bool {
        let has_room = self.list.make_room(bytes).is_ok();
        if has_room {
            self.list.retire_reserved(garbage());
        }
        has_room
    }

    /// Takes in an object that cannot be handed back: if there is no room, it is left to the domain.
    ///
    /// # Panics
    /// As [`retire`](Reclaimer::retire).
    pub(super) fn take_in(&mut self, garbage: Garbage) {
        if self.list.reserve_at_once(garbage.bytes()) {
            self.list.retire_reserved(garbage);
        } else {
            self.take_in_when_full(garbage);
        }
    }

    #[cold]
    #[inline(never)]
    fn take_in_when_full(&mut self, garbage: Garbage) {
        let core = Arc::clone(self.list.core());
        // Destructors of others run here.
        match catch_unwind(AssertUnwindSafe(|| self.list.make_room(garbage.bytes()))) {
            Ok(Ok(())) => self.list.retire_reserved(garbage),
            Ok(Err(_)) => core.leave_behind(garbage),
            Err(panic) => {
                core.leave_behind(garbage);
                resume_unwind(panic);
            }
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        self.list.core()
    }

    /// As [`retire`](Reclaimer::retire), but waits for room, for `limit` at the longest.
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
        retire::retire_timeout(self, retired, limit)
    }

    /// Calls `function` after a grace period, in a later [`poll`](Reclaimer::poll): when every region reader
    /// of now has passed. It does not speak of protected loads, and counts as one object; it is taken in
    /// even when the queue is full.
    ///
    /// ```
    /// # use std::sync::{Arc, atomic::{AtomicBool, Ordering}};
    /// # let domain = stillpoint::rcu::Domain::new();
    /// let mut reclaimer = domain.reclaimer();
    /// # let done = Arc::new(AtomicBool::new(false));
    /// # let flag = Arc::clone(&done);
    /// reclaimer.defer(move || flag.store(true, Ordering::Relaxed));
    /// reclaimer.poll();
    /// assert!(done.load(Ordering::Relaxed));
    /// ```
    pub fn defer<F: FnOnce() + Send + 'static>(&mut self, function: F) {
        self.list.retire(Garbage::callback(function));
    }

    /// Frees what is ready and returns the number of objects. Never waits for a reader.
    ///
    /// Starts a grace period for what has been retired since the last start, and issues its fence, unless the
    /// last start was too short a time ago (see [`ReclaimerBuilder::fence_interval`]), or full batches gather for a fence
    /// (see [`ReclaimerBuilder::batch`]): who stops polling calls [`flush`](Reclaimer::flush). Returns 0 when the
    /// kernel refuses the fence: [`Stats::fence_error`](super::Stats::fence_error) says why.
    ///
    /// # Panics
    /// With the panic of a destructor, the first one of several; everything that was ready has been freed.
    pub fn poll(&mut self) -> usize {
        self.poll_at_most(NO_LIMIT)
    }

    /// As [`poll`](Reclaimer::poll), but looks at `limit` objects at the most, and frees those that no protected load holds.
    /// Objects that were held at an earlier poll and others take turns, so 0 does not mean that nothing is ready.
    ///
    /// # Panics
    /// As [`poll`](Reclaimer::poll).
    pub fn poll_at_most(&mut self, limit: usize) -> usize {
        let freed = self.list.poll(limit);
        self.list.core().pass_by(&mut self.round);
        freed
    }

    /// As [`poll`](Reclaimer::poll), whatever the pace: adopts everything that was left to the domain, starts a grace period for
    /// everything that has none yet, and issues its fence, at once. Never waits for a reader: what a reader holds up stays.
    ///
    /// For code that asks for what is ready *now*, and seldom: each call may issue a heavy fence, and takes as long as what was left.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let domain = stillpoint::rcu::Domain::new();
    /// # let _reader = domain.reader();
    /// let cell = domain.cell(1);
    /// let mut reclaimer = domain.reclaimer_builder().fence_interval(Duration::from_secs(3600)).build();
    /// for number in 2..10 {
    ///     drop(cell.replace(number)); // left to the domain
    ///     assert_eq!(reclaimer.poll_at_once(), 1);
    /// }
    /// ```
    ///
    /// # Panics
    /// As [`poll`](Reclaimer::poll).
    pub fn poll_at_once(&mut self) -> usize {
        self.list.adopt(usize::MAX);
        self.list.close();
        self.list.advance(NO_LIMIT)
    }

    /// Waits until everything retired here so far is freed, and what had been left to the domain, which it adopts.
    ///
    /// # Errors
    /// As [`Domain::synchronize`](super::Domain::synchronize);
    /// [`WouldDeadlock`](SynchronizeError::WouldDeadlock) also when a protected load of the calling thread holds one of
    /// the objects, with the others freed as far as they were ready. Waits for ever for a protected load of another thread
    /// that is never released: see [`flush_timeout`](Reclaimer::flush_timeout).
    ///
    /// The release of a protected load wakes nobody: this call looks again after 50 µs, then after twice that, and so on,
    /// up to 1 ms.
    ///
    /// # Panics
    /// As [`poll`](Reclaimer::poll).
    pub fn flush(&mut self) -> Result<(), SynchronizeError> {
        self.flush_until(None)
    }

    /// As [`flush`](Reclaimer::flush), for `limit` at the longest.
    ///
    /// # Errors
    /// Also [`Stalled`](SynchronizeError::Stalled) with a report on the region reader in the way, and
    /// [`Pinned`](SynchronizeError::Pinned) when protected loads hold what is left.
    ///
    /// # Panics
    /// As [`poll`](Reclaimer::poll).
    pub fn flush_timeout(&mut self, limit: Duration) -> Result<(), SynchronizeError> {
        self.flush_until(Some(limit))
    }

    pub(super) fn of(list: RetireList, when_full: WhenFull) -> Self {
        Self { list, when_full, round: Round::default() }
    }

    pub(super) fn list_mut(&mut self) -> &mut RetireList {
        &mut self.list
    }

    pub(super) fn flush_until(&mut self, limit: Option<Duration>) -> Result<(), SynchronizeError> {
        let begun = Instant::now();
        let deadline = limit.and_then(|limit| begun.checked_add(limit));
        // Once: others may leave more to the domain for ever.
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
            if self.list.held_by_caller() > 0 {
                return Err(SynchronizeError::would_deadlock(self.list.core(), ReaderKind::ProtectedLoad));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(self.why_late(begun));
            }
            self.pause(&mut patience, deadline);
        }
    }

    fn why_late(&self, begun: Instant) -> SynchronizeError {
        let core = self.list.core();
        match self.list.obstacle() {
            Err(error) => SynchronizeError::Fence(error),
            Ok(Obstacle::Reader(record)) => {
                SynchronizeError::Stalled(Box::new(core.stall_of(record, begun.elapsed())))
            }
            Ok(_) => SynchronizeError::pinned(core, self.list.held()),
        }
    }

    /// Objects that wait to be freed.
    pub fn pending(&self) -> usize {
        self.list.len()
    }

    /// Their size in bytes, without what they own elsewhere.
    pub fn pending_bytes(&self) -> usize {
        self.list.bytes()
    }
}

impl Queue for Reclaimer {
    fn core(&self) -> &Arc<Core> {
        self.list.core()
    }

    fn is_closed(&self) -> bool {
        false
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), Full> {
        self.list.make_room(bytes)
    }

    fn push(&mut self, garbage: Garbage) {
        self.list.retire_reserved(garbage);
    }

    fn when_full(&self) -> WhenFull {
        self.when_full
    }

    fn pause(&self, patience: &mut Patience, deadline: Option<Instant>) {
        let next = match self.list.obstacle() {
            Ok(Obstacle::Reader(record)) => Next::Passage(record),
            Ok(Obstacle::Hazard) => Next::Release,
            _ => Next::News,
        };
        let wake_up = earliest(deadline, self.list.stall_is_due());
        patience.wait(self.list.core().event(), next, wake_up, || false);
    }

    fn is_held_up_by_caller(&self) -> bool {
        match self.list.obstacle() {
            Ok(Obstacle::Reader(record)) => record.is_of_caller(stillpoint_sys::os::thread_id()),
            Ok(Obstacle::Hazard) => self.list.held_by_caller() == self.list.len(),
            _ => false,
        }
    }

    fn count_wait(&self) {
        self.list.counters().count_wait();
    }

    fn count_handed_back(&self) {
        self.list.counters().count_handed_back();
    }
}

impl fmt::Debug for Reclaimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reclaimer")
            .field("domain", &self.list.core().name())
            .field("pending", &self.pending())
            .finish_non_exhaustive()
    }
}

/// Makes a reclaimer of the type `R`: a [`Reclaimer`] or a [`BackgroundReclaimer`]. It comes from
/// [`Domain::reclaimer_builder`](super::Domain::reclaimer_builder) and
/// [`Domain::background_builder`](super::Domain::background_builder), and counts as a handle of the domain.
///
/// ```
/// # use std::time::Duration;
/// # let domain = stillpoint::rcu::Domain::new();
/// let builder = domain
///     .reclaimer_builder()
///     .max_pending(10_000)
///     .max_pending_bytes(64 << 20)
///     .batch(32)
///     .fence_interval(Duration::from_micros(100));
/// let (one, another) = (builder.clone().build(), builder.build());
/// # drop((one, another));
/// ```
pub struct ReclaimerBuilder<R> {
    core: Arc<Core>,
    objects: Option<usize>,
    bytes: usize,
    pace: Pace,
    when_full: WhenFull,
    reclaimer: PhantomData<fn() -> R>,
}

impl<R> ReclaimerBuilder<R> {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            objects: None,
            bytes: usize::MAX,
            pace: Pace::DEFAULT,
            when_full: WhenFull::default(),
            reclaimer: PhantomData,
        }
    }

    /// Objects that may wait at a time, at least 1; by default 65,536, of a background reclaimer 1,048,576.
    pub fn max_pending(mut self, objects: usize) -> Self {
        self.objects = Some(objects.max(1));
        self
    }

    /// Bytes that may wait at a time, without what the objects own elsewhere; unlimited by default. What a poll adopts of the
    /// domain may go beyond it, once, by a share of 64 objects.
    pub fn max_pending_bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }

    /// Number of retired objects for which a grace period starts at once; 128 by default, at least 1. In a domain that needs
    /// heavy fences, such batches gather for one: for 32 times as long as the last one took, 1 ms at the most, and up to 32
    /// of them, so that fences take some 3 % of a busy writer's time. Without a `fence_interval` they do not.
    pub fn batch(mut self, objects: usize) -> Self {
        self.pace.batch = objects.max(1);
        self
    }

    /// Time between two grace periods that are started for less than a batch; 50 µs by default. It bounds how
    /// often the heavy fences of this reclaimer interrupt the other cores, and matters only to domains that
    /// need them.
    pub fn fence_interval(mut self, interval: Duration) -> Self {
        self.pace.interval = interval;
        self
    }

    /// What [`Reclaimer::retire`] does when there is no room, and a background reclaimer's retire handles, unless they are
    /// [told otherwise](super::RetireHandle::when_full); the object is handed back by default.
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    fn limits(&self, default: usize) -> Limits {
        Limits { objects: self.objects.unwrap_or(default), bytes: self.bytes }
    }
}

impl ReclaimerBuilder<Reclaimer> {
    /// Makes a reclaimer that its owner polls. Nothing that was chosen can be refused.
    pub fn build(self) -> Reclaimer {
        let limits = self.limits(Reclaimer::DEFAULT_MAX_PENDING);
        Reclaimer::of(RetireList::new(self.core, self.pace, limits), self.when_full)
    }
}

impl ReclaimerBuilder<BackgroundReclaimer> {
    /// Makes a reclaimer for a thread of its own. Nothing that was chosen can be refused.
    pub fn build(self) -> BackgroundReclaimer {
        let limits = self.limits(BackgroundReclaimer::DEFAULT_MAX_PENDING);
        BackgroundReclaimer::new(self.core, self.pace, limits, self.when_full)
    }
}

impl<R> Clone for ReclaimerBuilder<R> {
    fn clone(&self) -> Self {
        Self {
            core: Arc::clone(&self.core),
            objects: self.objects,
            bytes: self.bytes,
            pace: self.pace,
            when_full: self.when_full,
            reclaimer: PhantomData,
        }
    }
}

impl<R> fmt::Debug for ReclaimerBuilder<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReclaimerBuilder")
            .field("domain", &self.core.name())
            .field("max_pending", &self.objects)
            .field("max_pending_bytes", &self.bytes)
            .field("pace", &self.pace)
            .field("when_full", &self.when_full)
            .finish_non_exhaustive()
    }
}
