use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::engine::backlog::{Backlog, Obstacle, Pace};
use super::engine::garbage::Garbage;
use super::engine::stack::Stack;
use super::engine::wait::Patience;
use super::engine::Core;
use super::error::{RetireError, RetireReason};
use super::retired::Retired;
use crate::sync::atomic::{AtomicUsize, Ordering};

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
    /// Objects on the stack, or about to be.
    submitted: AtomicUsize,
    /// Objects in the reclaimer's backlog, written by the reclaimer alone.
    backlogged: AtomicUsize,
    capacity: usize,
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
    /// and everything is freed; or until [`Submitter::abandon`] was called.
    ///
    /// While the kernel refuses the fence, nothing is freed: [`Stats::fence_error`](super::Stats::fence_error)
    /// says why.
    ///
    /// # Panics
    /// With the panic of a destructor. Everything that was ready has been freed; call `run` again to go on.
    pub fn run(&mut self) {
        let mut patience = Patience::new();
        loop {
            let arrived = self.take_in();
            let freed = self.backlog.poll(usize::MAX).unwrap_or(0);
            self.count_backlog();
            if self.is_finished() {
                return;
            }
            if freed > 0 {
                // For submitters that wait for room.
                self.inbox.core.event().notify();
            }
            if arrived || freed > 0 {
                patience = Patience::new();
            } else {
                self.pause(&mut patience);
            }
        }
    }

    /// Moves what was submitted to the backlog.
    fn take_in(&mut self) -> bool {
        let mut arrived = 0;
        // The stack gives the newest first; the order within one hand-over does not matter.
        for garbage in self.inbox.stack.take() {
            self.backlog.retire(garbage);
            arrived += 1;
        }
        // In this order, so that the limit is never exceeded: an object is counted twice for a moment.
        self.count_backlog();
        // Relaxed: a count, exact by being read-modify-write.
        self.inbox.submitted.fetch_sub(arrived, Ordering::Relaxed);
        arrived > 0
    }

    fn count_backlog(&self) {
        // Relaxed: a count that orders nothing.
        self.inbox.backlogged.store(self.backlog.len(), Ordering::Relaxed);
    }

    fn is_finished(&self) -> bool {
        match self.inbox.phase() {
            ABANDONED => true,
            RUNNING => false,
            _ => self.backlog.len() == 0 && self.inbox.stack.is_empty(),
        }
    }

    /// Sleeps until there is something to do, or a little while if what is in the way cannot tell.
    fn pause(&self, patience: &mut Patience) {
        let inbox = &*self.inbox;
        let phase = inbox.phase();
        let changed = || !inbox.stack.is_empty() || inbox.core.has_orphans() || inbox.phase() != phase;
        let event = inbox.core.event();
        match self.backlog.obstacle() {
            Ok(Obstacle::Nothing) if self.backlog.len() == 0 => event.sleep_unless(None, changed),
            Ok(Obstacle::Nothing) => {}
            Ok(Obstacle::Reader(record)) => patience.wait(event, Some(record), None, changed),
            Ok(Obstacle::Pace(until)) => {
                event.sleep_unless(Some(until.saturating_duration_since(Instant::now())), changed);
            }
            Ok(Obstacle::Hazard) | Err(_) => patience.wait(event, None, None, changed),
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

    /// Reserves room for one object, unless the limit is reached.
    fn reserve(&self) -> bool {
        // Relaxed: counts that order nothing.
        let submitted = self.submitted.fetch_add(1, Ordering::Relaxed);
        let fits = submitted.saturating_add(self.backlogged.load(Ordering::Relaxed)) < self.capacity;
        if !fits {
            self.submitted.fetch_sub(1, Ordering::Relaxed);
        }
        fits
    }

    fn submit(&self, garbage: Garbage) {
        self.stack.push(garbage);
        self.core.event().notify();
    }

    /// Passes what nobody will take in any more to the domain.
    fn pass_on(&self) {
        for garbage in self.stack.take() {
            self.core.shared_ledger().share_retired();
            self.core.add_orphan(garbage);
        }
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
    /// When as many objects wait as the reclaimer has capacity for, when the object is of another domain, or
    /// when the reclaimer is gone. The object is handed back.
    pub fn retire<T: Send + Sync + 'static>(&self, retired: Retired<T>) -> Result<(), RetireError<T>> {
        let inbox = &*self.inbox;
        let reason = if !retired.is_of(&inbox.core) {
            RetireReason::ForeignDomain
        } else if inbox.phase() == CLOSED {
            RetireReason::Closed
        } else if !inbox.reserve() {
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
        // Relaxed: a count that orders nothing.
        self.inbox.submitted.fetch_add(1, Ordering::Relaxed);
        self.inbox.submit(Garbage::callback(function));
        if self.inbox.phase() == CLOSED {
            self.inbox.pass_on();
        }
    }

    /// Objects handed in and not freed yet.
    pub fn pending(&self) -> usize {
        // Relaxed: counts.
        self.inbox.submitted.load(Ordering::Relaxed) + self.inbox.backlogged.load(Ordering::Relaxed)
    }

    /// Lets [`BackgroundReclaimer::run`] return once everything is freed. Returns at once.
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

/// Makes a [`BackgroundReclaimer`].
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
    capacity: usize,
    pace: Pace,
}

impl BackgroundBuilder {
    /// A million objects: whoever submits does not wait for readers, so the default is roomy.
    const DEFAULT_CAPACITY: usize = 1 << 20;

    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core, capacity: Self::DEFAULT_CAPACITY, pace: Pace::DEFAULT }
    }

    /// Objects that may wait at a time; 1,048,576 by default, and at least 1.
    pub fn capacity(mut self, objects: usize) -> Self {
        self.capacity = objects.max(1);
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
            submitted: AtomicUsize::new(0),
            backlogged: AtomicUsize::new(0),
            capacity: self.capacity,
            submitters: AtomicUsize::new(0),
            phase: AtomicUsize::new(RUNNING),
        };
        BackgroundReclaimer { backlog: Backlog::new(self.core, self.pace), inbox: Arc::new(inbox) }
    }
}
