//! Managers: the timers of one thread, and the requests of others for them. The argument is in `docs/design/capi.md`, under *Timers with
//! functions*; its steps are H1 to H8.

mod all;
mod timer;
mod units;

pub(super) use all::*;
pub(super) use timer::*;
pub use timer::{still_htimer, still_htimer_fn, still_htimer_result_fn};
pub(super) use units::*;

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use crossbeam_utils::CachePadded;
use stillpoint::timer::{Clock, NodeWheel, Schedule};
use stillpoint_sys::sync::{Inbox, Lasting, Message, Messages};
use stillpoint_sys::tsan;

use crate::border::{Refusal, Uncancelled};
use crate::reserve;
use crate::timer::pop_due;

/// A manager, to C: the address of its place among all.
#[repr(C)]
pub struct still_htimer_mgr {
    _private: [u8; 0],
}

/// Where a result goes.
#[derive(Clone, Copy)]
pub(super) struct Tell {
    pub(super) function: still_htimer_result_fn,
    pub(super) argument: *mut c_void,
}

/// A request, and the place of its result: one of a manager's own, which come back to it.
#[repr(align(64))]
struct Request {
    link: AtomicPtr<Request>,
    /// The manager that has made it.
    source: Cell<Option<&'static Manager>>,
    timer: Cell<*const Timer>,
    /// Of an addition: the time, as the program has said.
    time: Cell<u64>,
    tell: Cell<Tell>,
    /// [`CANCEL`]; [`ADDED`]: an addition; afterwards the result.
    kind: Cell<i32>,
    /// [Whose](Timer::whose) the timer was before an addition, should the target refuse it.
    before: Cell<u64>,
}

const _: () = assert!(size_of::<Request>() == 64);

const CANCEL: i32 = 0;

// SAFETY: the link is a field, which only the inboxes use, and the list of free requests of the manager to which it has come back.
unsafe impl Message for Request {
    fn link(&self) -> &AtomicPtr<Self> {
        &self.link
    }
}

/// The timers of a thread. Never freed: when the thread has ended, another one gets it.
pub(crate) struct Manager {
    /// Requests of any thread, for the one that has the manager. Closed while none has it.
    inbox: CachePadded<Inbox<Request>>,
    /// Requests of that thread that have been answered. Always open.
    results: CachePadded<Inbox<Request>>,
    is_taken: AtomicBool,
    /// The number of the manager, and above it a count of the threads that have had it.
    stamp: AtomicU32,
    /// `u32::MAX`: none.
    lcore: AtomicU32,
    /// Whether times may be given as values of the processor's counter.
    has_counter: AtomicBool,
    requests: Box<[Request]>,
    /// Used only by the thread that has the manager.
    own: UnsafeCell<Own>,
}

// SAFETY: `own` and each request belong to one thread at a time. They change hands by an inbox, or by `is_taken`.
unsafe impl Sync for Manager {}
// SAFETY: as above.
unsafe impl Send for Manager {}

struct Own {
    /// `None` while no thread has the manager.
    wheel: Option<NodeWheel>,
    /// The time of the last call that manages, in nanoseconds.
    now: u64,
    /// No timer is due before this tick. The wheel is not asked earlier.
    quiet_until: u64,
    /// Nanoseconds in a tick: its logarithm.
    shift: u32,
    clock: Option<&'static Clock>,
    burst: usize,
    free: *mut Request,
    /// Requests that have not come back.
    away: usize,
    /// Whether the thread is in a call that calls functions of the program.
    is_calling: bool,
    /// Whether that call stops the manager.
    is_stopping: bool,
}

/// For the thread that has the manager. No reference to `own` lives while a function of the program runs.
impl Manager {
    pub(super) fn stamp(&self) -> u32 {
        // Relaxed: what it is compared with says the rest. See H6.
        self.stamp.load(Ordering::Relaxed)
    }

    /// Whether the thread with this stamp has it. If not, the caller comes after all that this thread did.
    pub(super) fn is_of(&self, stamp: u32) -> bool {
        // Acquire: pairs with the release in `is_got`.
        self.stamp.load(Ordering::Acquire) == stamp
    }

    /// Its address, to C.
    pub(super) fn address(&self) -> *mut still_htimer_mgr {
        (&raw const ALL[self.stamp() as usize % MOST]).cast_mut().cast()
    }

    /// # Safety
    /// The calling thread has the manager, and no other such reference lives.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the cell belongs to one thread")]
    unsafe fn own(&self) -> &mut Own {
        // SAFETY: by the caller's promise.
        unsafe { &mut *self.own.get() }
    }

    /// Takes the manager, if no thread has it, it has this many places, and all of them are there.
    fn is_got(&self, places: usize) -> bool {
        let is_taken = self.requests.len() != places
            || self.is_taken.load(Ordering::Relaxed)
            // Acquire: pairs with the release in `give_up`. Relaxed on failure, and for the load: the manager is another thread's.
            || self.is_taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err();
        if is_taken {
            return false;
        }
        tsan::acquire(self);
        // SAFETY: this thread has just taken the manager.
        let are_back = unsafe {
            for request in self.results.take() {
                self.unsend(request.as_ref());
            }
            self.own().away == 0
        };
        if are_back {
            // Release: pairs with the acquire in `is_of`; it passes on what the threads before have done.
            self.stamp.store(self.stamp().wrapping_add(1 << NUMBERS), Ordering::Release);
        } else {
            self.give_up();
        }
        are_back
    }

    /// Leaves the manager to another thread.
    fn give_up(&self) {
        tsan::release(self);
        // Release: pairs with the acquire in `is_got`.
        self.is_taken.store(false, Ordering::Release);
    }

    /// # Safety
    /// As for `own`; and the request is one of this manager's, and is in no list.
    unsafe fn put_back(&self, request: &Request) {
        // SAFETY: by the caller's promise.
        let own = unsafe { self.own() };
        // Relaxed: the list is this thread's.
        request.link.store(own.free, Ordering::Relaxed);
        own.free = ptr::from_ref(request).cast_mut();
    }

    /// # Safety
    /// As for `put_back`; and the request was away.
    unsafe fn unsend(&self, request: &Request) {
        // SAFETY: by the caller's promise.
        unsafe {
            self.put_back(request);
            self.own().away -= 1;
        }
    }

    /// The time of the last call that manages, in nanoseconds or in ticks.
    ///
    /// # Safety
    /// The calling thread has the manager.
    pub(super) unsafe fn now(&self, flags: u32) -> u64 {
        // SAFETY: by the caller's promise.
        let own = unsafe { self.own() };
        if flags & TICKS != 0 {
            own.now >> own.shift
        } else {
            own.now
        }
    }

    /// Whether a timer for this manager may have these flags.
    #[inline]
    pub(super) fn accepts(&self, flags: u32) -> Result<(), Refusal> {
        // Relaxed: as `stamp`.
        if flags & TSC == 0 || self.has_counter.load(Ordering::Relaxed) {
            return Ok(());
        }
        let text = c"the time of this manager is not that of the processor's counter: give times in nanoseconds or in ticks";
        Err(Refusal::new(libc::EOPNOTSUPP, text))
    }

    /// Adds a timer of this thread.
    ///
    /// # Errors
    /// While the manager is being stopped.
    ///
    /// # Safety
    /// The calling thread has the manager. The timer is in no wheel, stays in place until it has expired or is cancelled, and nothing
    /// else uses it meanwhile.
    #[inline]
    pub(super) unsafe fn add(&self, timer: &Timer, wanted: Wanted) -> Result<(), Refusal> {
        // SAFETY: by the caller's promise.
        let own = unsafe { self.own() };
        own.goes_on()?;
        timer.set(wanted, self.stamp(), IDLE);
        // SAFETY: by the caller's promise.
        unsafe { own.arm(timer, wanted.expiration) };
        Ok(())
    }

    /// Cancels a timer of this thread. Returns the result; `None` if it is another thread's by now, or on its way.
    ///
    /// # Safety
    /// The calling thread has the manager.
    pub(super) unsafe fn cancel(&self, timer: &Timer) -> Option<i32> {
        // Read once. After its end, another thread may add the timer at any time: then its state would be that of the other's wheel.
        Some(match timer.state_at(self.stamp())? {
            ADDED => {
                // SAFETY: by the caller's promise. A pending timer is in the wheel of its owner.
                unsafe {
                    self.own().wheel().cancel(timer.node());
                    self.has_cancelled(timer);
                }
                CANCELLED
            }
            EXPIRED => EXPIRED,
            _ => ALREADY_CANCELLED,
        })
    }

    /// Tells the program that a timer is cancelled, if it wants that. It may then free the timer.
    ///
    /// # Safety
    /// As for `cancel`; the timer has been taken out of the wheel.
    #[inline]
    unsafe fn has_cancelled(&self, timer: &Timer) {
        // The flags first: once it has ended, another thread may add the timer.
        let flags = timer.flags();
        timer.enter(CANCELLED);
        if flags & TELL_CANCEL != 0 {
            let _whole = Uncancelled::new();
            // SAFETY: by the caller's promise.
            let before = std::mem::replace(&mut unsafe { self.own() }.is_calling, true);
            // SAFETY: the program has passed the function for this.
            unsafe {
                timer.call();
                self.own().is_calling = before;
            }
        }
    }

    /// Makes a request from a free place. `None`: there is none.
    ///
    /// # Safety
    /// The calling thread has the manager. A timer that is to be added belongs to it.
    #[inline]
    unsafe fn request(
        &self,
        target: u32,
        timer: &Timer,
        wanted: Option<Wanted>,
        tell: Tell,
    ) -> Option<&'static Request> {
        // SAFETY: by the caller's promise.
        let own = unsafe { self.own() };
        // SAFETY: requests are never freed.
        let request = unsafe { own.free.as_ref() }?;
        // Relaxed: the list is this thread's.
        own.free = request.link.load(Ordering::Relaxed);
        own.away += 1;
        request.timer.set(timer);
        request.tell.set(tell);
        request.kind.set(CANCEL);
        if let Some(wanted) = wanted {
            request.kind.set(ADDED);
            request.time.set(wanted.expiration);
            request.before.set(timer.whose());
            timer.set(wanted, target, SENT);
        }
        tsan::release(timer);
        Some(request)
    }

    /// Asks a manager for the addition of a timer, or for its cancellation: `wanted` is `None`. False, and nothing has changed: all
    /// places are away.
    ///
    /// # Errors
    /// When the target has stopped, or this manager is being stopped.
    ///
    /// # Safety
    /// The calling thread has this manager. A timer that is to be added belongs to it; one that is to be cancelled stays valid until the
    /// result has come.
    #[inline]
    pub(super) unsafe fn ask(
        &self,
        target: &Manager,
        timer: &Timer,
        wanted: Option<Wanted>,
        tell: Tell,
    ) -> Result<bool, Refusal> {
        // SAFETY: by the caller's promise.
        unsafe { self.own() }.goes_on()?;
        // SAFETY: by the caller's promise.
        let Some(request) = (unsafe { self.request(target.stamp(), timer, wanted, tell) }) else {
            return Ok(false);
        };
        // SAFETY: the request is this thread's, and is in no list.
        unsafe { self.send(target, request.into(), request.into()) }.map(|()| true)
    }

    /// Asks for many additions, in this order, by one post. Returns how many there was room for, or until `timers` ended.
    ///
    /// # Errors
    /// As for `ask`: then nothing has changed for any of them.
    ///
    /// # Safety
    /// As for `ask`.
    pub(super) unsafe fn ask_many<'t>(
        &self,
        target: &Manager,
        mut timers: impl Iterator<Item = (&'t Timer, Wanted, Tell)>,
    ) -> Result<usize, Refusal> {
        // SAFETY: by the caller's promise.
        unsafe { self.own() }.goes_on()?;
        let (mut chain, mut count) = (None, 0);
        // SAFETY: by the caller's promise.
        while !unsafe { self.own() }.free.is_null() {
            let Some((timer, wanted, tell)) = timers.next() else { break };
            // SAFETY: as above.
            let Some(request) = (unsafe { self.request(target.stamp(), timer, Some(wanted), tell) }) else {
                break;
            };
            let newest = NonNull::from(request);
            let before = chain.map_or(ptr::null_mut(), |(newest, _): (NonNull<Request>, _)| newest.as_ptr());
            // Relaxed: published by the post.
            request.link.store(before, Ordering::Relaxed);
            chain = Some((newest, chain.map_or(newest, |(_, oldest)| oldest)));
            count += 1;
        }
        if let Some((newest, oldest)) = chain {
            // SAFETY: the requests are this thread's, and are in no list.
            unsafe { self.send(target, newest, oldest) }?;
        }
        Ok(count)
    }

    /// Sends a chain of requests, or takes all of them back.
    ///
    /// # Safety
    /// The calling thread has the manager, and has made the requests, which are in no list.
    unsafe fn send(
        &self,
        target: &Manager,
        newest: NonNull<Request>,
        oldest: NonNull<Request>,
    ) -> Result<(), Refusal> {
        // SAFETY: requests are never freed, and are in no list.
        if unsafe { target.inbox.post(newest, oldest) } {
            return Ok(());
        }
        let mut at = newest;
        loop {
            // SAFETY: requests are never freed.
            let request = unsafe { at.as_ref() };
            // Relaxed: it was not posted. The link of the oldest one is what the inbox has left in it.
            let before = NonNull::new(request.link.load(Ordering::Relaxed));
            if request.kind.get() == ADDED {
                // SAFETY: the timer is still the caller's.
                unsafe { (*request.timer.get()).set_whose(request.before.get()) };
            }
            // SAFETY: by the caller's promise.
            unsafe { self.unsend(request) };
            match before {
                Some(before) if at != oldest => at = before,
                _ => break,
            }
        }
        Err(Refusal::new(libc::EPIPE, c"the thread of this manager has stopped it, or has ended"))
    }

    /// Whether there are neither requests nor results.
    fn is_quiet(&self) -> bool {
        self.inbox.is_empty() && self.results.is_empty()
    }

    /// Begins a call that calls functions of the program.
    ///
    /// # Errors
    /// In such a call.
    ///
    /// # Safety
    /// The calling thread has the manager.
    pub(super) unsafe fn begin(&self) -> Result<Calling<'_>, Refusal> {
        // SAFETY: by the caller's promise.
        let own = unsafe { self.own() };
        if std::mem::replace(&mut own.is_calling, true) {
            let text = c"a function that this thread's manager calls may not call this";
            return Err(Refusal::new(libc::EBUSY, text));
        }
        Ok(Calling(self))
    }

    /// Stops it, for a thread that is ending, or has taken all timers out. Touches no timer of its wheel.
    ///
    /// # Safety
    /// The calling thread has the manager, and does not use it afterwards.
    pub(crate) unsafe fn leave(&'static self) {
        let gone = |timer: &Timer, addition: Option<u64>| {
            if addition.is_some() {
                timer.enter(IDLE);
            }
            // A cancellation follows a timer that was given away: H5.
            (addition.is_some() || timer.owner() == self.stamp()).then_some(GONE)
        };
        // SAFETY: by the caller's promise.
        unsafe {
            self.answer(self.inbox.close(), gone);
            self.own().wheel = None;
        }
        // Relaxed: see `of_lcore`.
        self.lcore.store(u32::MAX, Ordering::Relaxed);
        self.give_up();
    }

    /// Forgets what is in its lists. Timers on their way to it are idle again.
    fn forget(&self) {
        for request in self.inbox.take() {
            // SAFETY: requests are never freed; this one was not taken in, so its timer is still there.
            unsafe {
                if request.as_ref().kind.get() == ADDED {
                    (*request.as_ref().timer.get()).enter(IDLE);
                }
            }
        }
        self.results.take().for_each(drop);
    }

    /// Answers requests, and sends them back; those of one source that follow each other by one post. One for which `answer` has no
    /// answer goes on to the thread that has the timer. Returns how many there were.
    ///
    /// # Safety
    /// The calling thread has the manager.
    unsafe fn answer(
        &self,
        requests: Messages<Request>,
        mut answer: impl FnMut(&Timer, Option<u64>) -> Option<i32>,
    ) -> usize {
        let mut count = 0;
        let mut chain: Option<(&'static Manager, NonNull<Request>, NonNull<Request>)> = None;
        let send = |(source, newest, oldest): (&'static Manager, _, _)| {
            // SAFETY: requests are never freed, and these are in no list. The results of a manager are always open.
            let is_posted = unsafe { source.results.post(newest, oldest) };
            debug_assert!(is_posted, "the results of a manager are never closed");
        };
        for at in requests {
            count += 1;
            // SAFETY: requests are never freed, and this one is the caller's until it is sent on.
            let request = unsafe { at.as_ref() };
            let timer = request.timer.get();
            tsan::acquire(timer);
            let addition = (request.kind.get() == ADDED).then(|| request.time.get());
            // SAFETY: the timer is its target's until the result has come. The source of a cancellation keeps it valid that long.
            let result = unsafe { answer(&*timer, addition) };
            tsan::release(timer);
            let post = |owner| {
                // SAFETY: requests are never freed, and this one is in no list.
                let is_posted = stamped(owner).is_some_and(|next| unsafe { next.inbox.post(at, at) });
                is_posted.then_some(()).ok_or(GONE)
            };
            let result = match result {
                Some(result) => result,
                // SAFETY: without an answer, the timer is as it was.
                None => match follow(unsafe { &*timer }, post) {
                    Ok(()) => continue,
                    Err(gone) => gone,
                },
            };
            request.kind.set(result);
            let Some(source) = request.source.get() else { continue };
            chain = match chain {
                Some((other, newest, oldest)) if ptr::eq(other, source) => {
                    // Relaxed: published by the post.
                    request.link.store(newest.as_ptr(), Ordering::Relaxed);
                    Some((source, at, oldest))
                }
                other => {
                    other.into_iter().for_each(send);
                    Some((source, at, at))
                }
            };
        }
        chain.into_iter().for_each(send);
        count
    }
}

/// Asks the owner of a timer, by its stamp. After a refusal, asks the next one, if the timer has moved: before its end, a thread may have given
/// the timer to another one (H5).
pub(super) fn follow<A, E>(timer: &Timer, mut ask: impl FnMut(u32) -> Result<A, E>) -> Result<A, E> {
    loop {
        let owner = timer.owner();
        match ask(owner) {
            Err(_) if timer.owner() != owner => {}
            answer => return answer,
        }
    }
}

/// A call in which functions of the program are called.
pub(super) struct Calling<'m>(&'m Manager);

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        // SAFETY: the value stays on the thread of its manager.
        unsafe { self.0.own() }.is_calling = false;
    }
}

impl Calling<'_> {
    /// Takes in what other threads have asked for, and then tells the results of this thread's own requests. Returns how many of both
    /// there were. What comes meanwhile is for the next call.
    pub(super) fn process(&self) -> usize {
        let manager = self.0;
        if manager.is_quiet() {
            return 0;
        }
        let _whole = Uncancelled::new();
        let take_in = |timer: &Timer, addition: Option<u64>| {
            if let Some(time) = addition {
                if timer.owner() != manager.stamp() || manager.accepts(timer.flags()).is_err() {
                    // The thread that was asked has ended since, and this one has got its manager: H6. It may have done so while the source
                    // was asking: then the stamp is right, but the time may be one that this manager cannot read.
                    timer.enter(IDLE);
                    return Some(GONE);
                }
                // SAFETY: this thread has the manager, and the timer was given to it.
                unsafe { manager.own().arm(timer, time) };
                return Some(ADDED);
            }
            // If the timer was given away meanwhile, the cancellation follows it: H5.
            // SAFETY: this thread has the manager.
            unsafe { manager.cancel(timer) }
        };
        // SAFETY: this thread has the manager.
        let mut count = unsafe { manager.answer(manager.inbox.take(), take_in) };
        for request in manager.results.take() {
            // SAFETY: requests are never freed, and this one has come back.
            let request = unsafe { request.as_ref() };
            let (timer, tell, result) = (request.timer.get(), request.tell.get(), request.kind.get());
            // SAFETY: this thread has the manager. The function may ask again, and needs the place for that.
            unsafe { manager.unsend(request) };
            tsan::acquire(timer);
            if let Tell { function: Some(function), argument } = tell {
                let _heeded = tsan::heed();
                // SAFETY: the program has passed the function for this.
                unsafe { function(timer.cast_mut().cast(), result, argument) };
            }
            count += 1;
        }
        count
    }

    /// Sets the time, and calls the functions of the timers that are due, at most as many as a burst has. Returns how many it has called.
    pub(super) fn expire(&self) -> usize {
        let manager = self.0;
        // SAFETY: this thread has the manager. In the loop, the reference ends before the function is called.
        let own = unsafe { manager.own() };
        let (tick, burst) = (own.now >> own.shift, own.burst);
        if tick < own.quiet_until {
            return 0;
        }
        own.wheel().advance(tick);
        let (mut count, mut whole) = (0, None);
        while count < burst {
            // SAFETY: as above.
            let own = unsafe { manager.own() };
            let Some(node) = pop_due(own.wheel()) else {
                // What the functions have added since then, due or not, counts as well.
                own.quiet_until = own.wheel().next_deadline().unwrap_or(u64::MAX);
                break;
            };
            let _ = whole.get_or_insert_with(Uncancelled::new);
            // SAFETY: the node is the first field of a timer that was pending, and so is this thread's.
            let timer = unsafe { node.cast::<Timer>().as_ref() };
            let (function, argument) = (timer.function.get(), timer.argument.get());
            match timer.period.get() {
                0 => timer.enter(EXPIRED),
                period => {
                    // SAFETY: as above; the timer is in no wheel, and stays where it is.
                    unsafe {
                        let next = next_beat(timer.node.last_deadline(), period, tick);
                        own.wheel().add(timer.node(), Schedule::at(next));
                    }
                }
            }
            count += 1;
            // SAFETY: the program has passed the function for this. It may free the timer, or, if it is periodical, cancel and free it.
            unsafe { call(timer, function, argument) };
        }
        count
    }

    /// Sets the time. A time that is earlier than the last one is ignored.
    pub(super) fn set_time(&self, now: u64) {
        // SAFETY: this thread has the manager.
        let own = unsafe { self.0.own() };
        own.now = own.now.max(now);
    }

    /// Takes all timers out, and cancels them. Returns how many there were.
    ///
    /// # Errors
    /// When requests have not come back.
    pub(super) fn empty(&self) -> Result<usize, Refusal> {
        let manager = self.0;
        // SAFETY: this thread has the manager.
        let away = unsafe { manager.own() }.away;
        if away > 0 {
            let text =
                c"{} requests of this thread have no result yet: call still_htimer_process until they have";
            return Err(Refusal::new(libc::EBUSY, text).with(away));
        }
        // SAFETY: as above.
        unsafe { manager.own() }.is_stopping = true;
        let mut count = 0;
        // SAFETY: as above. The reference ends before the function is called.
        while let Some(node) = unsafe { manager.own() }.wheel().take_any() {
            // SAFETY: the node is the first field of a timer that was pending, and so is this thread's.
            let timer = unsafe { node.cast::<Timer>().as_ref() };
            count += 1;
            // SAFETY: as above.
            unsafe { manager.has_cancelled(timer) };
        }
        Ok(count)
    }
}

impl Own {
    /// Refuses a call while the manager is being stopped.
    #[inline]
    fn goes_on(&self) -> Result<(), Refusal> {
        match self.is_stopping {
            false => Ok(()),
            true => Err(Refusal::new(libc::EPIPE, c"this thread is stopping its manager")),
        }
    }

    fn wheel(&mut self) -> &mut NodeWheel {
        self.wheel.as_mut().expect("a thread that has a manager has its wheel")
    }

    /// Puts a timer into the wheel, due at the time that the program has said.
    ///
    /// # Safety
    /// As for `Manager::add`.
    #[inline(always)]
    unsafe fn arm(&mut self, timer: &Timer, time: u64) {
        let flags = timer.flags();
        let deadline = self.deadline(time, flags);
        if timer.period.get() != 0 {
            timer.period.set(self.ticks(timer.period.get(), flags).max(1));
        }
        timer.enter(ADDED);
        self.quiet_until = self.quiet_until.min(deadline);
        // SAFETY: by the caller's promise.
        unsafe { self.wheel().add(timer.node(), Schedule::at(deadline)) };
    }
}
