use std::sync::Arc;
use std::time::Duration;

use super::domain::Domain;
use super::engine::core::garbage::Garbage;
use super::engine::queue::channel::{Channel, ABANDONED, CLOSED, RUNNING, STOPPING};
use super::engine::queue::line::Obstacle;
use super::engine::queue::retire_list::{Full, RetireList};
use super::engine::wait::own_holds::OwnHolds;
use super::engine::wait::park::{Next, Patience, LONGEST_SLEEP};
use super::engine::Core;
use super::limits::{RetireErrorKind, WhenFull};
#[cfg(not(stillpoint_loom))]
use super::raw;
use super::reclaimer::ReclaimerBuilder;
use super::retire::{self, Queue};
use super::retired::{RetireError, Retired};
use crate::busted::{self, Variant};
use crate::frames;
use stillpoint_sys::panics::{self, Panic};

/// Reclaims on a separate thread. Any thread may hand it objects, through a [`RetireHandle`].
///
/// The caller provides the thread: nothing runs until [`run`](BackgroundReclaimer::run) is called. The thread sleeps on a
/// futex when there is nothing to do, and while it waits for a reader; the reader wakes it. When the reclaimer is
/// dropped, what is pending passes to the domain. A destructor that panics does not end a run.
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
    channel: Arc<Channel>,
    /// What its retire handles do when there is no room, unless they are set otherwise.
    when_full: WhenFull,
}

impl BackgroundReclaimer {
    /// A million objects. The limit is high because it should not make threads that submit wait for readers.
    const DEFAULT_MAX_PENDING: usize = 1 << 20;

    /// A handle that hands objects in. Handles are cheap; clone and share them freely.
    pub fn retire_handle(&self) -> RetireHandle {
        RetireHandle::new(Arc::clone(&self.channel), self.when_full)
    }

    /// Reclaims on the calling thread. Returns when everything is freed and either [`RetireHandle::stop`] was called or no retire
    /// handle is left. Returns soon after [`RetireHandle::abandon`] was called. It does not wait for objects that protected
    /// loads of the calling thread hold. At its end, the run leaves what it has taken in and not freed to the domain. Another run,
    /// or another reclaimer of the domain, frees it.
    ///
    /// `stop` and `abandon` are permanent: a later run returns as soon as it can. The lack of retire handles is not permanent.
    /// While there is none, a run frees what there is and returns, since no thread could hand it anything or stop it. After
    /// another call of [`retire_handle`](BackgroundReclaimer::retire_handle), a run goes on until it is stopped. To reclaim
    /// only what is left to the domain, keep one retire handle.
    ///
    /// While the kernel refuses the fence, nothing is freed: [`Stats::fence_error`](super::Stats::fence_error)
    /// says why.
    ///
    /// # Panics
    /// If the calling thread holds a guard of the domain, or an online QSBR reader: the run would wait for its own thread. If a
    /// destructor, a callback or a stall hook makes the call: such code must not wait.
    ///
    /// At the end of the run, with the first panic of a destructor or of the
    /// [stall hook](super::DomainBuilder::stall_hook), if there was one. Such a panic does not end a run early: everything else
    /// is freed first, including what arrives later, and another run can follow. The process's panic hook
    /// ([`std::panic::set_hook`]) is called for every such panic at once.
    ///
    /// ```
    /// let domain = stillpoint::rcu::Domain::new();
    /// let mut background = domain.background();
    /// drop(background.retire_handle());
    /// background.run(); // no handle could stop it: it returns
    ///
    /// let handle = background.retire_handle();
    /// handle.retire(domain.cell(1).take().unwrap()).expect("it is not stopped");
    /// drop(handle);
    /// background.run();
    /// assert_eq!(domain.stats().freed, 1);
    /// ```
    #[track_caller]
    pub fn run(&mut self) {
        let core = Arc::clone(self.list.core());
        core.assert_may_run("a reclaimer");
        let panic = Serving(self).0.serve(&core);
        panics::resume(panic);
    }

    /// Starts a thread, named `stillpoint-rcu`, that [runs](BackgroundReclaimer::run) the reclaimer. Returns a retire handle
    /// and the thread. The thread ends after a call of [`stop`](RetireHandle::stop), or when no retire handle is left: keep the
    /// handle as long as the thread should run. Joining the thread returns the panic of a destructor, if there was one.
    ///
    /// Such a thread is needed if no other reclaimer of the domain is polled. It frees what is left to the domain, and what was
    /// replaced by [`set`](super::RcuCell::set) in threads that do not write again.
    ///
    /// # Errors
    /// If the system refuses to start a thread. The pending objects then pass to the domain.
    ///
    /// ```
    /// use stillpoint::rcu::{self, RcuCell};
    ///
    /// let (handle, thread) = rcu::default_domain().background().spawn()?;
    /// let config = RcuCell::new(String::from("first"));
    /// config.set(String::from("second")); // the thread frees it, even if no other thread writes
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
        let (mut patience, mut panic, mut was_asked) = (Patience::new(), None, false);
        loop {
            // Each time: a fork within a destructor clears it in the child.
            self.list.set_served(true);
            // Read once per pass: the thread may sleep only if this very value has not changed since.
            let aim = self.channel.aim();
            let is_asked = self.channel.is_asked();
            let arrived = self.take_in();
            if aim != RUNNING || is_asked || std::mem::take(&mut was_asked) {
                // Closes the open batch, whatever the pace.
                self.list.close();
            }
            let freed = self.poll(&mut panic) | core.visit_all(&mut panic);
            if freed {
                // Wakes retire handles that wait for room, also if this pass is the last.
                core.event().notify();
            }
            if aim == ABANDONED || (aim != RUNNING && self.has_nothing_left()) {
                return panic;
            }
            if is_asked && (arrived || freed) {
                self.channel.end_request();
                // Who was refused just before this has not asked.
                was_asked = true;
            }
            if arrived || freed {
                patience = Patience::new();
            } else {
                self.pause(aim, &mut patience);
            }
        }
    }

    /// Frees what is ready. Returns whether anything was; after a panic, true.
    fn poll(&mut self, first: &mut Option<Panic>) -> bool {
        // Not `usize::MAX`: polls without a limit read all hazard slots each time, and this thread comes again.
        let poll = || self.list.poll(usize::MAX - 1);
        // Unwind safety: the retire list has counted what it freed before a panic leaves it.
        frames::keeping(first, poll).is_none_or(|freed| freed > 0)
    }

    /// Moves what was submitted to the retire list. Returns whether anything was.
    pub(super) fn take_in(&mut self) -> bool {
        self.channel.take_in(&mut self.list)
    }

    fn has_nothing_left(&self) -> bool {
        // Objects that this thread's own protected loads hold are not waited for: the wait could not end.
        let is_freed = self.channel.pending() == self.list.held_by_caller() && !self.channel.is_in_turn();
        // Comes after: a turn may have adopted orphans, and left them again. If the list is full of what this thread's own loads hold, it
        // adopts none, and they stay with the domain.
        is_freed && (!self.channel.core().has_orphans() || !self.list.has_room(0))
    }

    /// Sleeps until there is something to do. Sleeps only for a short time if the obstacle does not notify.
    fn pause(&self, aim: usize, patience: &mut Patience) {
        let channel = &*self.channel;
        let event = channel.core().event();
        let seen = if busted::is(Variant::StopAfterCheck) { channel.aim() } else { aim };
        let has_work = |enough: usize| {
            channel.has_work(enough)
                || channel.aim() != seen
                || (channel.core().has_adoptable() && self.list.has_room(0))
        };
        // In a run that should return, a handle may have freed the last object just now, and told so before this sleep.
        let is_idle = || aim == RUNNING && channel.pending() == 0 && !channel.core().has_shelved();
        // Retire handles notify when this many objects have been submitted.
        let sleep = |limit, enough, shelved: bool| {
            channel.set_enough(enough);
            event.sleep_unless(limit, || has_work(enough) || (!shelved && channel.core().has_shelved()));
            channel.set_enough(1);
        };
        match self.list.obstacle() {
            // The end of a turn that leaves nothing notifies no thread. So the thread does not sleep without a limit in a run that should
            // return.
            Obstacle::Empty if is_idle() => {
                event.sleep_unless(None, || {
                    has_work(1) || channel.pending() > 0 || channel.core().has_shelved()
                });
            }
            Obstacle::Pace(until) => {
                let limit = until.saturating_sub(channel.core().age());
                // A thread announces neither that it stops writing, nor that it begins to write just before this sleep, nor that it vouches.
                let shelved = channel.core().has_shelved();
                let is_watched = shelved || self.list.awaits_readers();
                let limit = if is_watched { limit.min(LONGEST_SLEEP) } else { limit };
                // A poll then reports a region behind the reader for whose fence this waits.
                let limit = self.list.until_stall().map_or(limit, |until| limit.min(until));
                sleep(Some(limit), self.list.missing().max(1), shelved);
            }
            Obstacle::Reader(record, _) => {
                patience.wait(event, Next::Passage(record), self.list.stall_is_due(), || has_work(1))
            }
            // A silent reader has vouched since the last look: the next poll goes on.
            Obstacle::Nothing => {}
            Obstacle::Hazard => patience.wait(event, Next::Release, None, || has_work(1)),
            _ => patience.wait(event, Next::News, None, || has_work(1)),
        }
    }
}

/// A running reclaimer. When the run ends, even by a panic, no other thread looks after the readers that it has boosted, or after
/// its remaining objects: the drop ends the boosts and passes the objects on.
struct Serving<'b>(&'b mut BackgroundReclaimer);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.list.end_boost();
        // The list may hold adopted objects, which a barrier does not find in a list without a thread.
        self.0.list.pass_on();
    }
}

impl Domain {
    /// A reclaimer for a separate thread to run, with the default limits. Any thread may hand it objects.
    pub fn background(&self) -> BackgroundReclaimer {
        self.reclaimer_builder().build_background()
    }
}

impl ReclaimerBuilder {
    /// Makes a reclaimer for a separate thread. No setting makes this fail.
    ///
    /// ```
    /// use stillpoint::rcu::limits::WhenFull;
    /// use stillpoint::rcu::Domain;
    ///
    /// let mut background = Domain::new().reclaimer_builder().when_full(WhenFull::Reclaim).build_background();
    /// background.run(); // there is no retire handle: it returns
    /// ```
    pub fn build_background(self) -> BackgroundReclaimer {
        let limits = self.limits(BackgroundReclaimer::DEFAULT_MAX_PENDING);
        let mut list = RetireList::new(Arc::clone(&self.core), self.pace, limits);
        let channel = Arc::new(Channel::new(self.core, limits).of_list(&mut list));
        BackgroundReclaimer { channel, list, when_full: self.when_full }
    }
}

impl Drop for BackgroundReclaimer {
    fn drop(&mut self) {
        self.channel.advance(CLOSED);
        self.channel.pass_on();
    }
}

stillpoint_sys::debug!(|this| BackgroundReclaimer {
    domain: this.channel.core().name(),
    pending: this.list.len(),
    ..
});

/// Hands objects to a [`BackgroundReclaimer`], from any thread.
///
/// ```
/// use std::sync::mpsc;
/// use stillpoint::rcu::Domain;
///
/// let domain = Domain::new();
/// let session = domain.cell("session 7");
/// let mut background = domain.background();
/// let handle = background.retire_handle();
/// handle.retire(session.take().expect("never empty here"))?;
/// let (sender, closed) = mpsc::channel();
/// handle.defer(move || drop(sender.send("closed")));
/// assert_eq!(handle.pending(), 2);
///
/// handle.stop(); // lets `run` return once everything is freed
/// background.run(); // on a thread of its own, as a rule
/// assert_eq!((closed.recv(), handle.pending()), (Ok("closed"), 0));
/// # Ok::<(), stillpoint::rcu::RetireError<&str>>(())
/// ```
///
/// A program that does not keep it ends the run, and is told so by the compiler:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// stillpoint::rcu::default_domain().background().spawn()?;
/// # Ok::<(), std::io::Error>(())
/// ```
/// ```
/// #![deny(unused_must_use)]
/// let _kept = stillpoint::rcu::default_domain().background().spawn()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "a run ends when no retire handle is left"]
pub struct RetireHandle {
    channel: Arc<Channel>,
    when_full: WhenFull,
}

impl RetireHandle {
    fn new(channel: Arc<Channel>, when_full: WhenFull) -> Self {
        channel.add_handle();
        Self { channel, when_full }
    }

    /// Sets what this retire handle, and its later clones, do when there is no room. Without this call, the choice of the
    /// [builder](super::ReclaimerBuilder::when_full) holds.
    ///
    /// ```
    /// use stillpoint::rcu::limits::WhenFull;
    /// use stillpoint::rcu::Domain;
    ///
    /// let background = Domain::new().background();
    /// let packets = background.retire_handle(); // its thread must neither run destructors nor wait
    /// let control = background.retire_handle().when_full(WhenFull::Reclaim);
    /// # drop((packets, control));
    /// ```
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// Hands an object in, and wakes the reclaimer if it sleeps. Lock-free; allocates a node.
    ///
    /// If the reclaimer or the domain has reached its limit, the handle does what its [`WhenFull`] says.
    ///
    /// # Errors
    /// If there is still no room, if the object is of another domain, or if the reclaimer is gone. The error hands the
    /// object back.
    ///
    /// # Panics
    /// With [`WhenFull::Reclaim`], with the panic of a destructor; the object is then left to the domain.
    #[inline]
    pub fn retire<T: Send + Sync + 'static>(&self, retired: Retired<T>) -> Result<(), RetireError<T>> {
        let parts = retired.into_parts();
        if parts.is_of(self.core()) && self.offer(size_of::<T>(), || parts.into_garbage()) {
            return Ok(());
        }
        retire::retire(&mut &*self, parts, None)
    }

    /// As [`retire`](RetireHandle::retire), but waits for room for at most `limit`. With [`WhenFull::Reclaim`] it
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
        retire::retire(&mut &*self, retired.into_parts(), Some(limit))
    }

    /// As [`retire`](RetireHandle::retire), for an object that is not a [`Retired`].
    ///
    /// # Errors
    /// As [`retire`](RetireHandle::retire). The caller then owns the object again.
    ///
    /// # Panics
    /// As [`retire`](RetireHandle::retire).
    ///
    /// # Safety
    /// As for [`Reclaimer::retire_raw`](super::Reclaimer::retire_raw).
    ///
    /// ```
    /// use std::ptr::{self, NonNull};
    /// use stillpoint::rcu::{raw, Domain};
    ///
    /// let domain = Domain::new();
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
    #[cfg(not(stillpoint_loom))]
    #[inline]
    pub unsafe fn retire_raw(&self, object: raw::Object) -> Result<(), raw::Refused> {
        // SAFETY: the object is unlinked, and the caller owns it, by its promise.
        if self.offer(object.bytes, || unsafe { object.into_garbage() }) {
            return Ok(());
        }
        // SAFETY: the object is unlinked, and the caller owns it, by its promise.
        unsafe { raw::retire(&mut &*self, object) }
    }

    #[cold]
    fn reclaim(&self, full: Full, bytes: usize) -> Result<(), Full> {
        if self.channel.assist(full) == 0 {
            return Err(full);
        }
        self.channel.core().shared_counters().count_assist();
        self.channel.reserve(bytes)
    }

    /// As [`retire`](RetireHandle::retire), without waiting or reclaiming. Calls `garbage` only if the object is taken in.
    /// Returns whether it is.
    #[inline]
    pub(crate) fn offer(&self, bytes: usize, garbage: impl FnOnce() -> Garbage) -> bool {
        let channel = &*self.channel;
        let fits = bytes <= channel.largest();
        let is_taken = fits && channel.phase() != CLOSED && channel.reserve(bytes).is_ok();
        if is_taken {
            channel.submit(garbage());
        }
        is_taken
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        self.channel.core()
    }

    /// Calls `function` on the reclaimer's thread after a grace period, as
    /// [`Reclaimer::defer`](super::Reclaimer::defer) does. If the reclaimer is gone, the function is left to the domain, for
    /// its other reclaimers.
    pub fn defer<F: FnOnce() + Send + 'static>(&self, function: F) {
        let garbage = Garbage::callback(function);
        self.channel.charge(garbage.bytes());
        self.channel.submit(garbage);
    }

    /// Number of objects that were handed in, or adopted by the reclaimer, and are neither freed yet nor left to the domain.
    pub fn pending(&self) -> usize {
        self.channel.pending()
    }

    /// Lets [`BackgroundReclaimer::run`] return once everything is freed. This holds for later runs, too. Returns at once.
    ///
    /// Until then, the run also frees what is handed in or left to the domain meanwhile. What is handed in later waits for
    /// another `run`, or for the reclaimer's drop, which passes it to the domain. What a thread has replaced by
    /// [`set`](super::RcuCell::set) may stay there, too, if that was within the last millisecond or a reader holds it:
    /// [`barrier`](super::Domain::barrier) frees it.
    pub fn stop(&self) {
        self.channel.advance(STOPPING);
    }

    /// Lets [`BackgroundReclaimer::run`] return soon, even if objects still wait. This holds for later runs, too. Returns at
    /// once. The run leaves the objects that it has taken in to the domain.
    ///
    /// ```
    /// use stillpoint::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let session = domain.cell("session 7");
    /// let reader = domain.reader();
    /// let guard = reader.pin(); // in the way of everything
    /// let mut background = domain.background();
    /// let handle = background.retire_handle();
    /// handle.retire(session.take().expect("never empty here"))?;
    ///
    /// handle.abandon();
    /// std::thread::spawn(move || background.run()).join().unwrap(); // returns, and leaves the session to the domain
    /// drop(guard);
    /// domain.barrier().expect("no reader is in the way now");
    /// assert_eq!(domain.stats().freed, 1);
    /// # Ok::<(), stillpoint::rcu::RetireError<&str>>(())
    /// ```
    pub fn abandon(&self) {
        self.channel.advance(ABANDONED);
    }
}

impl Queue for &RetireHandle {
    fn core(&self) -> &Arc<Core> {
        self.channel.core()
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), RetireErrorKind> {
        if self.channel.phase() == CLOSED {
            return Err(RetireErrorKind::Closed);
        } else if bytes > self.channel.largest() {
            // A wait for room would never end.
            return Err(RetireErrorKind::TooLarge);
        }
        Ok(match (self.channel.reserve(bytes), self.when_full) {
            (Err(full), WhenFull::Reclaim) => self.reclaim(full, bytes),
            (answer, _) => answer,
        }?)
    }

    fn push(&mut self, garbage: Garbage) {
        self.channel.submit(garbage);
    }

    fn when_full(&self) -> WhenFull {
        self.when_full
    }

    fn is_full_of_own(&self, own: &mut OwnHolds<'_>, bytes: usize) -> bool {
        self.channel.is_full_of_own(own, bytes)
    }
}

impl Clone for RetireHandle {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.channel), self.when_full)
    }
}

impl Drop for RetireHandle {
    fn drop(&mut self) {
        self.channel.remove_handle();
    }
}

stillpoint_sys::debug!(|this| RetireHandle {
    domain: this.channel.core().name(),
    pending: this.pending(),
    ..
});

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::rcu::Domain;

    /// Nothing wakes the thread for it any more. If it is missed, the test does not end.
    #[test]
    fn what_comes_between_the_look_and_the_sleep_is_not_missed() {
        let domain = Domain::new();
        let background = domain.background();
        let handle = background.retire_handle();
        let pause = || background.pause(RUNNING, &mut Patience::new());
        let left = domain.cell(1).take();
        drop(left); // to the domain
        pause();
        domain.reclaimer().flush().expect("no reader is in the way");
        handle.stop();
        pause();
    }
}
