use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::engine::backlog::{Backlog, Limits, Obstacle, Pace};
use super::engine::garbage::Garbage;
use super::engine::stack::Stack;
use super::engine::wait::Patience;
use super::engine::Core;
use super::error::{RetireError, RetireReason};
use super::retired::Retired;
use crate::busted::{self, Variant};
use crate::sync::atomic::{fence, AtomicUsize, Ordering};

/// Reclaims on a thread of its own: retirements come from any thread through a [`Submitter`].
///
/// The thread is the user's: nothing runs until [`run`](BackgroundReclaimer::run) is called. It sleeps on a
/// futex when there is nothing to do, and while it waits for a reader; a reader in the way wakes it. When it is
/// dropped, what is pending passes to the domain.
///
/// ```
/// use stillpoint::rcu::Domain;
///
/// let domain = Domain::new();
/// let cell = domain.cell(0);
/// let mut background = domain.background();
/// let submitter = background.submitter();
/// std::thread::scope(|scope| {
///     scope.spawn(move || background.run());
///     for value in 1..=10 {
///         submitter.retire(cell.replace(value).unwrap()).expect("there is room");
///     }
///     submitter.stop(); // `run` returns when everything is freed
/// });
/// assert_eq!(domain.stats().freed, 10);
/// ```
pub struct BackgroundReclaimer {
    backlog: Backlog,
    inbox: Arc<Inbox>,
}

/// What submitters and the reclaimer share.
#[derive(Debug)]
struct Inbox {
    core: Arc<Core>,
    stack: Stack,
    /// What is on the stack, or about to be.
    submitted: Tally,
    /// What is in the reclaimer's backlog, written by the reclaimer alone.
    backlogged: Tally,
    limits: Limits,
    /// Number of submitted objects for which the reclaimer wants to be woken.
    enough: AtomicUsize,
    submitters: AtomicUsize,
    /// One of the constants below; it only grows.
    phase: AtomicUsize,
}

const RUNNING: usize = 0;
/// To free everything, then return.
const STOPPING: usize = 1;
/// To return at once.
const ABANDONED: usize = 2;
/// The reclaimer is gone.
const CLOSED: usize = 3;

impl BackgroundReclaimer {
    /// A way to hand objects in. Cheap, cloned and shared freely.
    pub fn submitter(&self) -> Submitter {
        Submitter::new(Arc::clone(&self.inbox))
    }

    /// Reclaims on the calling thread, until [`Submitter::stop`] was called, or the last submitter dropped,
    /// and everything is freed; or until [`Submitter::abandon`] was called. Without a submitter there is nobody to
    /// stop it.
    ///
    /// While the kernel refuses the fence, nothing is freed: [`Stats::fence_error`](super::Stats::fence_error)
    /// says why.
    ///
    /// # Panics
    /// If the calling thread holds a guard of the domain, or an online QSBR reader: it would wait for itself. With the
    /// panic of a destructor: everything that was ready has been freed; call `run` again to go on.
    pub fn run(&mut self) {
        let core = Arc::clone(self.backlog.core());
        if core.held_up_by_caller(u64::MAX).is_some() {
            panic!("a thread that is a region reader of domain `{}` cannot reclaim for it", core.name());
        }
        let mut patience = Patience::new();
        loop {
            // Once for the whole turn: what is decided on must be what has not changed when the thread sleeps.
            let phase = self.inbox.phase();
            let arrived = self.take_in();
            if phase != RUNNING {
                // Whatever the pace.
                self.backlog.close();
            }
            let freed = self.backlog.poll(usize::MAX);
            self.count_backlog();
            if phase == ABANDONED || (phase != RUNNING && self.has_nothing_left()) {
                return;
            }
            if freed > 0 {
                // For submitters that wait for room.
                core.event().notify();
            }
            if arrived || freed > 0 {
                patience = Patience::new();
            } else {
                self.pause(phase, &mut patience);
            }
        }
    }

    fn has_nothing_left(&self) -> bool {
        self.backlog.len() == 0 && self.inbox.stack.is_empty() && !self.inbox.core.has_orphans()
    }

    /// Moves what was submitted to the backlog.
    fn take_in(&mut self) -> bool {
        let (mut objects, mut bytes) = (0, 0);
        for garbage in self.inbox.stack.take().oldest_first() {
            objects += 1;
            bytes += garbage.bytes();
            self.inbox.core.hand_on(&garbage);
            self.backlog.push(garbage);
        }
        // Counted at the new place before it is no longer counted at the old one: the limit is not exceeded.
        self.count_backlog();
        self.inbox.submitted.subtract(objects, bytes);
        objects > 0
    }

    fn count_backlog(&self) {
        self.inbox.backlogged.set(self.backlog.len(), self.backlog.bytes());
    }

    /// Sleeps until there is something to do, or a little while if what is in the way cannot tell.
    fn pause(&self, phase: usize, patience: &mut Patience) {
        let inbox = &*self.inbox;
        let event = inbox.core.event();
        let phase = if busted::is(Variant::StopAfterCheck) { inbox.phase() } else { phase };
        let has_work = |enough: usize| {
            (!inbox.stack.is_empty() && inbox.submitted.objects() >= enough)
                || inbox.phase() != phase
                || (inbox.core.has_orphans() && self.backlog.has_room(0))
        };
        // Submitters notify when there is enough.
        let sleep = |limit, enough| {
            inbox.enough.store(enough, Ordering::Relaxed);
            event.sleep_unless(limit, || has_work(enough));
            inbox.enough.store(1, Ordering::Relaxed);
        };
        match self.backlog.obstacle() {
            Ok(Obstacle::Nothing) if self.backlog.len() == 0 => sleep(None, 1),
            Ok(Obstacle::Pace(until)) => {
                let limit = until.map(|until| until.saturating_duration_since(Instant::now()));
                sleep(limit, self.backlog.missing().max(1));
            }
            Ok(Obstacle::Reader(record)) => patience.wait(event, Some(record), None, || has_work(1)),
            Ok(Obstacle::Hazard | Obstacle::Nothing) | Err(_) => {
                patience.wait(event, None, None, || has_work(1))
            }
        }
    }
}

impl Inbox {
    fn phase(&self) -> usize {
        // Acquire: pairs with the release in `advance`: what was submitted before is seen after.
        self.phase.load(Ordering::Acquire)
    }

    fn advance(&self, phase: usize) {
        // Release: pairs with the acquire load in `phase`.
        self.phase.fetch_max(phase, Ordering::Release);
        self.core.event().notify();
    }

    /// Reserves room for one object, unless a limit is reached.
    fn reserve(&self, bytes: usize) -> bool {
        let (before, bytes_before) = self.submitted.add(bytes);
        let objects = before.saturating_add(self.backlogged.objects());
        let total = bytes_before.saturating_add(self.backlogged.bytes()).saturating_add(bytes);
        let fits = objects < self.limits.objects && total <= self.limits.bytes;
        if !fits {
            self.submitted.subtract(1, bytes);
        }
        fits
    }

    /// Hands over an object for which there is room.
    fn submit(&self, garbage: Garbage) {
        self.core.shared_ledger().share_retired();
        self.core.shared_ledger().pend(garbage.bytes());
        self.stack.push(garbage);
        // SeqCst: pairs with the fence in `Event::sleep_unless`: either the reclaimer sees this object before it
        // sleeps, or its wish is seen here.
        fence(Ordering::SeqCst);
        if self.submitted.objects() >= self.enough.load(Ordering::Relaxed) {
            self.core.event().notify();
        }
        // The reclaimer may have been dropped since the phase was looked at; it may not have seen this object then.
        if self.phase() == CLOSED {
            self.pass_on();
        }
    }

    /// Passes what nobody will take in any more to the domain.
    fn pass_on(&self) {
        let (core, submitted) = (&self.core, &self.submitted);
        core.add_orphans(self.stack.take().oldest_first().inspect(|garbage| {
            submitted.subtract(1, garbage.bytes());
            core.hand_on(garbage);
        }));
    }
}

/// Numbers of objects and of bytes.
#[derive(Debug)]
struct Tally {
    objects: AtomicUsize,
    bytes: AtomicUsize,
}

impl Tally {
    fn new() -> Self {
        Self { objects: AtomicUsize::new(0), bytes: AtomicUsize::new(0) }
    }

    /// Adds one object, and returns the numbers before.
    fn add(&self, bytes: usize) -> (usize, usize) {
        // Acquire: pairs with the release in `subtract`: who no longer sees an object counted here sees it counted
        // in the backlog.
        (self.objects.fetch_add(1, Ordering::Acquire), self.bytes.fetch_add(bytes, Ordering::Acquire))
    }

    fn subtract(&self, objects: usize, bytes: usize) {
        // Release: pairs with the acquire in `add`.
        self.objects.fetch_sub(objects, Ordering::Release);
        self.bytes.fetch_sub(bytes, Ordering::Release);
    }

    fn set(&self, objects: usize, bytes: usize) {
        // Relaxed: published by the release in `subtract`.
        self.objects.store(objects, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    fn objects(&self) -> usize {
        // Relaxed: counts that order nothing.
        self.objects.load(Ordering::Relaxed)
    }

    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for BackgroundReclaimer {
    fn drop(&mut self) {
        self.inbox.advance(CLOSED);
        self.inbox.pass_on();
    }
}

/// What was submitted while the reclaimer was being dropped.
impl Drop for Inbox {
    fn drop(&mut self) {
        self.pass_on();
    }
}

impl fmt::Debug for BackgroundReclaimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackgroundReclaimer")
            .field("domain", &self.inbox.core.name())
            .field("pending", &self.backlog.len())
            .finish_non_exhaustive()
    }
}

/// Hands objects to a [`BackgroundReclaimer`], from any thread.
pub struct Submitter {
    inbox: Arc<Inbox>,
}

impl Submitter {
    fn new(inbox: Arc<Inbox>) -> Self {
        // Relaxed: the count grows through existing submitters or the reclaimer only.
        inbox.submitters.fetch_add(1, Ordering::Relaxed);
        Self { inbox }
    }

    /// Hands an object in, and wakes the reclaimer if it sleeps. Lock-free; allocates a node.
    ///
    /// # Errors
    /// When as much waits as the reclaimer has capacity for, when the object is of another domain, or when the
    /// reclaimer is gone. The object is handed back.
    pub fn retire<T: Send + Sync + 'static>(&self, retired: Retired<T>) -> Result<(), RetireError<T>> {
        let inbox = &*self.inbox;
        let reason = if !retired.is_of(&inbox.core) {
            RetireReason::ForeignDomain
        } else if inbox.phase() == CLOSED {
            RetireReason::Closed
        } else if !inbox.reserve(Retired::<T>::bytes()) {
            RetireReason::Full
        } else {
            inbox.submit(retired.into_garbage());
            return Ok(());
        };
        Err(RetireError { retired, reason })
    }

    /// As [`retire`](Submitter::retire), but waits for room, for `limit` at the longest.
    ///
    /// # Errors
    /// As [`retire`](Submitter::retire).
    pub fn retire_timeout<T: Send + Sync + 'static>(
        &self,
        mut retired: Retired<T>,
        limit: Duration,
    ) -> Result<(), RetireError<T>> {
        let deadline = Instant::now().checked_add(limit);
        let mut patience = Patience::new();
        loop {
            match self.retire(retired) {
                Err(error) if error.reason == RetireReason::Full => {
                    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                        return Err(error);
                    }
                    retired = error.retired;
                    patience.wait(self.inbox.core.event(), None, deadline, || false);
                }
                answer => return answer,
            }
        }
    }

    /// Calls `function` on the reclaimer's thread after a grace period, as
    /// [`Reclaimer::defer`](super::Reclaimer::defer) does. When the reclaimer is gone, the domain keeps it for
    /// its other reclaimers.
    pub fn defer<F: FnOnce() + Send + 'static>(&self, function: F) {
        let garbage = Garbage::callback(function);
        self.inbox.submitted.add(garbage.bytes());
        self.inbox.submit(garbage);
    }

    /// Objects handed in and not freed yet.
    pub fn pending(&self) -> usize {
        self.inbox.submitted.objects() + self.inbox.backlogged.objects()
    }

    /// Lets [`BackgroundReclaimer::run`] return once everything is freed. Returns at once.
    ///
    /// What is handed in, or left to the domain, meanwhile is freed as well. What is handed in later waits for
    /// another `run`, or for the reclaimer's drop, which passes it to the domain.
    pub fn stop(&self) {
        self.inbox.advance(STOPPING);
    }

    /// Lets [`BackgroundReclaimer::run`] return soon, whatever still waits. Returns at once.
    pub fn abandon(&self) {
        self.inbox.advance(ABANDONED);
    }
}

impl Clone for Submitter {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.inbox))
    }
}

impl Drop for Submitter {
    fn drop(&mut self) {
        // AcqRel: what the other submitters did happens before the last one's `advance`.
        if self.inbox.submitters.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.stop();
        }
    }
}

impl fmt::Debug for Submitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submitter")
            .field("domain", &self.inbox.core.name())
            .field("pending", &self.pending())
            .finish_non_exhaustive()
    }
}

/// Makes a [`BackgroundReclaimer`]. Counts as a handle of the domain, like the reclaimer itself.
///
/// ```
/// # use std::time::Duration;
/// # let domain = stillpoint::rcu::Domain::new();
/// let background = domain
///     .background_builder()
///     .capacity(100_000)
///     .batch(64)
///     .fence_interval(Duration::from_micros(200))
///     .build();
/// # drop(background);
/// ```
#[derive(Debug, Clone)]
pub struct BackgroundBuilder {
    core: Arc<Core>,
    limits: Limits,
    pace: Pace,
}

impl BackgroundBuilder {
    /// A million objects: whoever submits does not wait for readers, so the default is roomy.
    const DEFAULT_CAPACITY: usize = 1 << 20;

    pub(super) fn new(core: Arc<Core>) -> Self {
        let limits = Limits { objects: Self::DEFAULT_CAPACITY, bytes: usize::MAX };
        Self { core, limits, pace: Pace::DEFAULT }
    }

    /// Objects that may wait at a time; 1,048,576 by default, and at least 1.
    pub fn capacity(mut self, objects: usize) -> Self {
        self.limits.objects = objects.max(1);
        self
    }

    /// Bytes that may wait at a time, without what the objects own elsewhere; unlimited by default.
    pub fn byte_capacity(mut self, bytes: usize) -> Self {
        self.limits.bytes = bytes;
        self
    }

    /// Number of objects for which a grace period starts at once; 128 by default, at least 1.
    pub fn batch(mut self, objects: usize) -> Self {
        self.pace.batch = objects.max(1);
        self
    }

    /// Age at which a smaller batch starts its grace period, counted from the start before; 50 µs by default.
    /// It bounds how often heavy fences interrupt the other cores, and matters only to domains that need them.
    pub fn fence_interval(mut self, interval: Duration) -> Self {
        self.pace.interval = interval;
        self
    }

    /// Makes the reclaimer.
    pub fn build(self) -> BackgroundReclaimer {
        let inbox = Inbox {
            core: Arc::clone(&self.core),
            stack: Stack::new(),
            submitted: Tally::new(),
            backlogged: Tally::new(),
            limits: self.limits,
            enough: AtomicUsize::new(1),
            submitters: AtomicUsize::new(0),
            phase: AtomicUsize::new(RUNNING),
        };
        BackgroundReclaimer {
            backlog: Backlog::new(self.core, self.pace, self.limits),
            inbox: Arc::new(inbox),
        }
    }
}
