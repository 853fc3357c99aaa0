use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::engine::core::garbage::Garbage;
use super::engine::queue::inbox::{Inbox, ABANDONED, CLOSED, RUNNING, STOPPING};
use super::engine::queue::retire_list::{Full, Limits, Obstacle, Pace, RetireList};
use super::engine::wait::park::{Next, Patience, LONGEST_SLEEP};
use super::engine::Core;
use super::error::RetireError;
use super::limits::WhenFull;
#[cfg(not(loom))]
use super::raw;
use super::retire::{self, Queue};
use super::retired::Retired;
use crate::busted::{self, Variant};
use stillpoint_sys::panics::{self, Panic};

/// Reclaims on a thread of its own: retirements come from any thread through a [`RetireHandle`].
///
/// The thread is the user's: nothing runs until [`run`](BackgroundReclaimer::run) is called. It sleeps on a
/// futex when there is nothing to do, and while it waits for a reader; a reader in the way wakes it. When it is
/// dropped, what is pending passes to the domain. A destructor that panics does not end it.
///
/// ```
/// use stillpoint::rcu::Domain;
///
/// let domain = Domain::new();
/// let cell = domain.cell(0);
/// let mut background = domain.background();
/// let handle = background.retire_handle();
/// std::thread::scope(|scope| {
///     scope.spawn(move || background.run());
///     for value in 1..=10 {
///         handle.retire(cell.replace(value).unwrap()).expect("there is room");
///     }
///     handle.stop(); // `run` returns when everything is freed
/// });
/// assert_eq!(domain.stats().freed, 10);
/// ```
pub struct BackgroundReclaimer {
    list: RetireList,
    inbox: Arc<Inbox>,
    /// Of its retire handles.
    when_full: WhenFull,
}

impl BackgroundReclaimer {
    /// A million objects: whoever submits does not wait for readers, so the default is roomy.
    pub(super) const DEFAULT_MAX_PENDING: usize = 1 << 20;

    pub(super) fn new(core: Arc<Core>, pace: Pace, limits: Limits, when_full: WhenFull) -> Self {
        let inbox = Arc::new(Inbox::new(Arc::clone(&core), limits));
        Self { inbox, list: RetireList::new(core, pace, limits), when_full }
    }

    /// A way to hand objects in. Cheap, cloned and shared freely.
    pub fn retire_handle(&self) -> RetireHandle {
        RetireHandle::new(Arc::clone(&self.inbox), self.when_full)
    }

    /// Reclaims on the calling thread. Returns when everything is freed and [`RetireHandle::stop`] was called, or there is no
    /// retire handle; or soon after [`RetireHandle::abandon`] was called. What a protected load of the calling thread holds is not
    /// waited for. What is left at the end, this or that an abandoned run had taken in, is left to the domain: another run frees it, or
    /// whoever reclaims there.
    ///
    /// `stop` and `abandon` are for good: a later run returns as soon as it can. To be without retire handles is a state, not
    /// an end: while it lasts, a run frees what there is and returns, since nobody could hand it anything or stop it.
    /// After another call of [`retire_handle`](BackgroundReclaimer::retire_handle), a run goes on until it is stopped. To
    /// reclaim only what is left to the domain, keep one retire handle.
    ///
    /// While the kernel refuses the fence, nothing is freed: [`Stats::fence_error`](super::Stats::fence_error)
    /// says why.
    ///
    /// # Panics
    /// If the calling thread holds a guard of the domain, or an online QSBR reader: it would wait for itself.
    ///
    /// When it returns, with the first panic of a destructor, or of the
    /// [stall hook](super::DomainBuilder::stall_hook), if there was one. Such a panic does not end a run: everything else
    /// is freed before, whatever arrives later included, and another run can follow. The process's panic hook
    /// ([`std::panic::set_hook`]) is told of every such panic at once.
    ///
    /// ```
    /// # let domain = stillpoint::rcu::Domain::new();
    /// let mut background = domain.background();
    /// drop(background.retire_handle());
    /// background.run(); // nobody could stop it: it returns
    ///
    /// let handle = background.retire_handle();
    /// handle.retire(domain.cell(1).take().unwrap()).expect("it is not stopped");
    /// drop(handle);
    /// background.run();
    /// assert_eq!(domain.stats().freed, 1);
    /// ```
    pub fn run(&mut self) {
        let core = Arc::clone(self.list.core());
        if core.protocol.held_up_by_caller(u64::MAX).is_some() {
            panic!("a thread that is a region reader of domain `{}` cannot reclaim for it", core.name());
        }
        self.list.set_served(true);
        let panic = Serving(self).0.serve(&core);
        panics::resume(panic);
    }

    /// Starts a thread, named `stillpoint-rcu`, that [runs](BackgroundReclaimer::run) the reclaimer, and returns the retire handle
    /// and the thread. The thread ends when it is told to [stop](RetireHandle::stop), or when no retire handle is left: keep the
    /// handle as long as the thread is to run. Joining it returns the panic of a destructor, if there was one.
    ///
    /// Such a thread frees what is retired in a domain that nobody else polls: what is left to the domain, and what was replaced by
    /// [`set`](super::RcuCell::set) in threads that do not write again.
    ///
    /// # Errors
    /// If the system refuses to start a thread. What waits in the reclaimer passes to the domain.
    ///
    /// ```
    /// use stillpoint::rcu::{self, RcuCell};
    ///
    /// let (handle, thread) = rcu::default_domain().background().spawn()?;
    /// let config = RcuCell::new(String::from("first"));
    /// config.set(String::from("second")); // the thread frees it, if nobody else writes
    ///
    /// handle.stop();
    /// thread.join().expect("no destructor panics here");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn spawn(mut self) -> std::io::Result<(RetireHandle, std::thread::JoinHandle<()>)> {
        let handle = self.retire_handle();
        let thread =
            std::thread::Builder::new().name("stillpoint-rcu".to_owned()).spawn(move || self.run())?;
        Ok((handle, thread))
    }

    /// Returns the first panic of a destructor.
    fn serve(&mut self, core: &Core) -> Option<Panic> {
        let (mut patience, mut panic) = (Patience::new(), None);
        loop {
            // Once for the whole turn: what is decided on must be what has not changed when the thread sleeps.
            let aim = self.inbox.aim();
            let arrived = self.take_in();
            if aim != RUNNING {
                // Whatever the pace.
                self.list.close();
            }
            let freed = self.poll(&mut panic) | core.pass_by_all(&mut panic);
            if freed {
                // For retire handles that wait for room, also if this is the end.
                core.event().notify();
            }
            if aim == ABANDONED || (aim != RUNNING && self.has_nothing_left()) {
                return panic;
            }
            if arrived || freed {
                patience = Patience::new();
            } else {
                self.pause(aim, &mut patience);
            }
        }
    }

    /// Frees what is ready. Whether there was anything; a panic says that there was.
    fn poll(&mut self, first: &mut Option<Panic>) -> bool {
        // Unwind safety: the retire list has counted what it freed before a panic leaves it.
        let answer = catch_unwind(AssertUnwindSafe(|| self.list.poll(usize::MAX)));
        self.inbox.count_list(&self.list);
        match answer {
            Ok(freed) => freed > 0,
            Err(panic) => {
                panics::keep_first(first, panic);
                true
            }
        }
    }

    /// Moves what was submitted to the retire list. Whether there was anything.
    pub(super) fn take_in(&mut self) -> bool {
        self.inbox.take_in(&mut self.list)
    }

    fn has_nothing_left(&self) -> bool {
        // What this thread itself holds would be waited for in vain.
        let is_freed = self.list.len() == self.list.held_by_caller();
        is_freed && self.inbox.is_empty() && !self.inbox.core().has_orphans()
    }

    /// Sleeps until there is something to do, or a little while if what is in the way cannot tell.
    fn pause(&self, aim: usize, patience: &mut Patience) {
        let inbox = &*self.inbox;
        let event = inbox.core().event();
        let seen = if busted::is(Variant::StopAfterCheck) { inbox.aim() } else { aim };
        let has_work = |enough: usize| {
            inbox.has_work(enough)
                || inbox.aim() != seen
                || (inbox.core().has_adoptable() && self.list.has_room(0))
        };
        let is_idle = || {
            let goes_on = aim == RUNNING || busted::is(Variant::SleepAssisted);
            goes_on && self.list.len() == 0 && inbox.is_empty() && !inbox.core().has_shelved()
        };
        // Retire handles notify when there is enough.
        let sleep = |limit, enough, shelved: bool| {
            inbox.set_enough(enough);
            event.sleep_unless(limit, || has_work(enough) || (!shelved && inbox.core().has_shelved()));
            inbox.set_enough(1);
        };
        match self.list.obstacle() {
            // Without a limit only while no retirer reclaims, and not while `run` is to return when they are done: the end of a
            // turn is not told.
            Ok(Obstacle::Nothing) if is_idle() => {
                event.sleep_unless(None, || has_work(1) || !inbox.is_empty() || inbox.core().has_shelved());
            }
            Ok(Obstacle::Pace(until)) => {
                let limit = until.map(|until| until.saturating_duration_since(Instant::now()));
                // A thread does not announce that it stops writing, nor that it begins to write just before this sleep.
                let shelved = inbox.core().has_shelved();
                let limit = if shelved {
                    Some(limit.map_or(LONGEST_SLEEP, |limit| limit.min(LONGEST_SLEEP)))
                } else {
                    limit
                };
                sleep(limit, self.list.missing().max(1), shelved);
            }
            Ok(Obstacle::Reader(record)) => {
                patience.wait(event, Next::Passage(record), self.list.stall_is_due(), || has_work(1))
            }
            Ok(Obstacle::Hazard | Obstacle::Nothing) | Err(_) => {
                patience.wait(event, Next::News, None, || has_work(1))
            }
        }
    }
}

/// A reclaimer that runs. When the run ends, even by a panic, nobody else serves the readers that it has boosted, or what is left.
struct Serving<'b>(&'b mut BackgroundReclaimer);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.list.end_boost();
        // Some of it may be adopted objects: a barrier does not find them in a list that nobody serves.
        self.0.list.pass_on();
        self.0.inbox.count_list(&self.0.list);
    }
}

impl Drop for BackgroundReclaimer {
    fn drop(&mut self) {
        self.inbox.advance(CLOSED);
        self.inbox.pass_on();
    }
}

impl fmt::Debug for BackgroundReclaimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackgroundReclaimer")
            .field("domain", &self.inbox.core().name())
            .field("pending", &self.list.len())
            .finish_non_exhaustive()
    }
}

/// Hands objects to a [`BackgroundReclaimer`], from any thread.
pub struct RetireHandle {
    inbox: Arc<Inbox>,
    when_full: WhenFull,
}

impl RetireHandle {
    fn new(inbox: Arc<Inbox>, when_full: WhenFull) -> Self {
        inbox.add_handle();
        Self { inbox, when_full }
    }

    /// What this retire handle, and those that are cloned from it, do when there is no room. Without this call: what the
    /// [builder](super::ReclaimerBuilder::when_full) was told.
    ///
    /// ```
    /// use stillpoint::rcu::{Domain, WhenFull};
    ///
    /// let background = Domain::new().background();
    /// let packets = background.retire_handle(); // this thread must not run destructors, nor wait
    /// let control = background.retire_handle().when_full(WhenFull::Reclaim);
    /// # drop((packets, control));
    /// ```
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// Hands an object in, and wakes the reclaimer if it sleeps. Lock-free; allocates a node.
    ///
    /// When as much waits as the reclaimer or the domain may hold, it does what [`WhenFull`] was chosen.
    ///
    /// # Errors
    /// When there is no room after that, when the object is of another domain, or when the reclaimer is gone. The
    /// object is handed back.
    ///
    /// # Panics
    /// With [`WhenFull::Reclaim`], with the panic of a destructor; the object is left to the domain then.
    #[inline]
    pub fn retire<T: Send + Sync + 'static>(&self, retired: Retired<T>) -> Result<(), RetireError<T>> {
        let inbox = &*self.inbox;
        let parts = retired.into_parts();
        let is_open = parts.is_of(inbox.core()) && inbox.phase() != CLOSED;
        if is_open && inbox.reserve(size_of::<T>()).is_ok() {
            inbox.submit(parts.into_garbage());
            return Ok(());
        }
        retire::retire(&mut &*self, parts)
    }

    /// As [`retire`](RetireHandle::retire), but waits for room, for `limit` at the longest. With [`WhenFull::Reclaim`] it
    /// reclaims meanwhile.
    ///
    /// # Errors
    /// As [`retire`](RetireHandle::retire).
    ///
    /// # Panics
    /// As [`retire`](RetireHandle::retire).
    pub fn retire_timeout<T: Send + Sync + 'static>(
        &self,
        retired: Retired<T>,
        limit: Duration,
    ) -> Result<(), RetireError<T>> {
        retire::retire_timeout(&mut &*self, retired, limit)
    }

    /// As [`retire`](RetireHandle::retire), for an object that is no [`Retired`].
    ///
    /// # Errors
    /// As [`retire`](RetireHandle::retire); the object is the caller's again.
    ///
    /// # Panics
    /// As [`retire`](RetireHandle::retire).
    ///
    /// # Safety
    /// As for [`Reclaimer::retire_raw`](super::Reclaimer::retire_raw).
    ///
    /// ```
    /// # use std::ptr::{self, NonNull};
    /// # use stillpoint::rcu::{raw, Domain};
    /// # let domain = Domain::new();
    /// unsafe extern "C-unwind" fn destroy(object: NonNull<()>, _context: *const ()) {
    ///     // SAFETY: it came from `Box` below.
    ///     drop(unsafe { Box::from_raw(object.cast::<u64>().as_ptr()) });
    /// }
    ///
    /// let mut background = domain.background();
    /// let handle = background.retire_handle();
    /// let address = NonNull::from(Box::leak(Box::new(7_u64))).cast();
    /// // SAFETY: it was never linked, and `destroy` frees what `Box` has made.
    /// unsafe { handle.retire_raw(raw::Object { address, bytes: 8, context: ptr::null(), destroy }) }?;
    /// drop(handle);
    /// background.run();
    /// assert_eq!(domain.stats().freed, 1);
    /// # Ok::<(), raw::Refused>(())
    /// ```
    #[cfg(not(loom))]
    #[inline]
    pub unsafe fn retire_raw(&self, object: raw::Object) -> Result<(), raw::Refused> {
        // SAFETY: the caller's promise.
        if self.offer(object.bytes, || unsafe { object.into_garbage() }) {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { raw::retire(&mut &*self, object) }
    }

    #[cold]
    fn reclaim(&self, full: Full, bytes: usize) -> Result<(), Full> {
        if self.inbox.assist(full) == 0 {
            return Err(full);
        }
        self.inbox.core().shared_counters().count_assist();
        self.inbox.reserve(bytes)
    }

    /// As [`retire`](RetireHandle::retire), without waiting or reclaiming, for an object that is made into garbage when it is
    /// taken in. False when it is not.
    pub(crate) fn offer(&self, bytes: usize, garbage: impl FnOnce() -> Garbage) -> bool {
        let inbox = &*self.inbox;
        let is_taken = inbox.phase() != CLOSED && inbox.reserve(bytes).is_ok();
        if is_taken {
            inbox.submit(garbage());
        }
        is_taken
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        self.inbox.core()
    }

    /// Calls `function` on the reclaimer's thread after a grace period, as
    /// [`Reclaimer::defer`](super::Reclaimer::defer) does. When the reclaimer is gone, the domain keeps it for
    /// its other reclaimers.
    pub fn defer<F: FnOnce() + Send + 'static>(&self, function: F) {
        let garbage = Garbage::callback(function);
        self.inbox.charge(garbage.bytes());
        self.inbox.submit(garbage);
    }

    /// How many objects were handed in, and are neither freed yet nor left to the domain.
    pub fn pending(&self) -> usize {
        self.inbox.pending()
    }

    /// Lets [`BackgroundReclaimer::run`] return once everything is freed, now and later: it is for good. Returns at once.
    ///
    /// What is handed in, or left to the domain, meanwhile is freed as well. What is handed in later waits for
    /// another `run`, or for the reclaimer's drop, which passes it to the domain.
    pub fn stop(&self) {
        self.inbox.advance(STOPPING);
    }

    /// Lets [`BackgroundReclaimer::run`] return soon, even if objects still wait; later runs return, too. Returns at once. The run
    /// leaves the objects that it has taken in to the domain.
    pub fn abandon(&self) {
        self.inbox.advance(ABANDONED);
    }
}

impl Queue for &RetireHandle {
    fn core(&self) -> &Arc<Core> {
        self.inbox.core()
    }

    fn is_closed(&self) -> bool {
        self.inbox.phase() == CLOSED
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), Full> {
        match (self.inbox.reserve(bytes), self.when_full) {
            (Err(full), WhenFull::Reclaim) => self.reclaim(full, bytes),
            (answer, _) => answer,
        }
    }

    fn push(&mut self, garbage: Garbage) {
        self.inbox.submit(garbage);
    }

    fn when_full(&self) -> WhenFull {
        self.when_full
    }

    fn pause(&self, patience: &mut Patience, deadline: Option<Instant>) {
        patience.wait(self.inbox.core().event(), Next::News, deadline, || false);
    }

    fn is_held_up_by_caller(&self) -> bool {
        self.inbox.core().protocol.held_up_by_caller(u64::MAX).is_some()
    }

    fn count_wait(&self) {
        self.inbox.core().shared_counters().count_wait();
    }

    fn count_handed_back(&self) {
        self.inbox.core().shared_counters().count_handed_back();
    }
}

impl Clone for RetireHandle {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.inbox), self.when_full)
    }
}

impl Drop for RetireHandle {
    fn drop(&mut self) {
        self.inbox.remove_handle();
    }
}

impl fmt::Debug for RetireHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetireHandle")
            .field("domain", &self.inbox.core().name())
            .field("pending", &self.pending())
            .finish_non_exhaustive()
    }
}
