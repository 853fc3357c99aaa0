//! Managers: the timers of one thread, and the requests of others for them. `docs/design/htimer.md` has the argument.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU8, Ordering};

use crossbeam_utils::CachePadded;
use stillpoint::timer::{Clock, Node, NodeWheel, Schedule};
use stillpoint_sys::sync::{Inbox, Lasting, Message, Messages};
use stillpoint_sys::tsan;

use crate::border::{Refusal, Uncancelled};
use crate::handle::{self, Kind, Parts};
use crate::reserve;
use crate::timer::still_timer;

/// A manager, to C.
#[repr(C)]
pub struct still_htimer_mgr {
    _private: [u8; 0],
}

pub type still_htimer_fn =
    Option<unsafe extern "C-unwind" fn(timer: *mut still_htimer, argument: *mut c_void)>;
pub type still_htimer_result_fn =
    Option<unsafe extern "C-unwind" fn(timer: *mut still_htimer, result: i32, argument: *mut c_void)>;

/// A timer, to C.
#[repr(C)]
pub struct still_htimer {
    node_: still_timer,
    words_: [u64; 4],
}

/// A timer, in the program's memory.
///
/// Between an asynchronous addition and the end of the timer, the fields are the target's, except `state` and `owner`, which other
/// threads read to refuse a timer that is in use.
#[repr(C)]
pub(super) struct Timer {
    node: Node,
    /// In ticks once the timer is pending; before, as the program has said. 0 for once.
    period: Cell<u64>,
    function: Cell<still_htimer_fn>,
    argument: Cell<*mut c_void>,
    /// The number of its manager. 0: it never had one.
    owner: AtomicU32,
    state: AtomicU8,
    flags: Cell<u8>,
}

const _: () = assert!(
    size_of::<still_htimer>() == size_of::<Timer>() && align_of::<still_htimer>() == align_of::<Timer>()
);

pub(super) const ABSOLUTE: u32 = 1;
pub(super) const PERIODICAL: u32 = 2;
pub(super) const TICKS: u32 = 4;
pub(super) const TSC: u32 = 8;
pub(super) const TELL_CANCEL: u32 = 16;
pub(super) const FLAGS: u32 = ABSOLUTE | PERIODICAL | TICKS | TSC | TELL_CANCEL;

/// States of a timer, and results of requests.
const IDLE: i32 = 0;
/// Pending.
pub(super) const ADDED: i32 = 1;
pub(super) const CANCELLED: i32 = 2;
pub(super) const EXPIRED: i32 = 3;
/// Only a result: there was nothing to cancel.
pub(super) const ALREADY_CANCELLED: i32 = 4;
/// Only a result.
const GONE: i32 = 5;
/// Only a state: given to its target, which has not taken it in.
pub(super) const SENT: i32 = 6;

impl Timer {
    pub(super) fn state(&self) -> i32 {
        // Relaxed: what else is in the timer is read only by the thread that has it.
        self.state.load(Ordering::Relaxed).into()
    }

    pub(super) fn owner(&self) -> u32 {
        // Relaxed: as in `state`.
        self.owner.load(Ordering::Relaxed)
    }

    /// Relaxed: the inbox publishes it.
    fn enter(&self, state: i32) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    fn node(&self) -> NonNull<Node> {
        NonNull::from(self).cast()
    }
}

/// What a caller says of a timer.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) expiration: u64,
    pub(super) period: u64,
    pub(super) function: unsafe extern "C-unwind" fn(*mut still_htimer, *mut c_void),
    pub(super) argument: *mut c_void,
    pub(super) flags: u32,
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
    tell: Cell<Option<Tell>>,
    /// The thread, of all that have had the source, that has made the request.
    turn: Cell<u32>,
    /// 0: a cancellation; [`ADDED`]: an addition; afterwards the result.
    kind: Cell<i32>,
}

const CANCEL: i32 = 0;

// SAFETY: the link is a field, which only the inboxes use, and the list of free requests of the manager to which it has come back.
unsafe impl Message for Request {
    fn link(&self) -> &AtomicPtr<Self> {
        &self.link
    }
}

/// The timers of a thread. Never freed: when the thread ends, another one gets it.
pub(crate) struct Manager {
    /// Requests of any thread, for the one that has the manager. Closed while none has it.
    inbox: CachePadded<Inbox<Request>>,
    /// Requests of that thread that have been answered. Always open: those of a thread that has ended come back to the next one.
    results: CachePadded<Inbox<Request>>,
    is_taken: AtomicBool,
    pub(super) lcore: AtomicU32,
    /// Its place among all.
    number: AtomicU32,
    handle: AtomicPtr<still_htimer_mgr>,
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
    /// Nanoseconds in a tick: its logarithm.
    shift: u32,
    clock: Option<&'static Clock>,
    burst: usize,
    free: *mut Request,
    /// Requests that have not come back.
    away: usize,
    turn: u32,
    /// Whether the thread is in a call that calls functions of the program.
    is_calling: bool,
}

/// The handle's value.
pub(super) struct Handle(pub(super) &'static Manager);

impl Kind for Handle {
    type C = still_htimer_mgr;
    const MARK: u32 = 0x5d0a_000c;
    const NAME: &'static str = "a manager of timers";
}

/// How many managers a process has, at most, and one more.
const MOST: usize = 4096;

/// All managers, at their numbers. The first place stays empty, and no empty place is followed by one that is used.
static ALL: [AtomicPtr<Manager>; MOST] = [const { AtomicPtr::new(ptr::null_mut()) }; MOST];

/// The manager with this number.
pub(super) fn numbered(number: u32) -> Option<&'static Manager> {
    // SAFETY: managers are never freed. Acquire: pairs with the release in `make`.
    unsafe { ALL.get(number as usize)?.load(Ordering::Acquire).as_ref() }
}

fn all() -> impl Iterator<Item = &'static Manager> {
    (1..).map_while(numbered)
}

/// The clock of all managers, which its first use calibrates.
fn clock() -> &'static Clock {
    static CLOCK: Lasting<Clock> = Lasting::new();
    CLOCK.get_or_make(Clock::new)
}

/// How a manager is made.
pub(super) struct Plan {
    pub(super) shift: u32,
    /// A power of two.
    pub(super) requests: usize,
    pub(super) burst: usize,
    pub(super) lcore: u32,
    /// The time at which it begins, in ticks, and that it has no clock.
    pub(super) begin: Option<u64>,
}

const NO_CLOCK: Refusal = Refusal::new(
    libc::EOPNOTSUPP,
    c"the time of this manager is not that of the processor's counter: give times in nanoseconds or in ticks",
);

/// The manager that a thread gets. Reads a word for each manager of the process.
pub(super) fn take(plan: &Plan) -> Result<&'static Manager, Refusal> {
    let begin = plan.begin;
    let clock = begin.is_none().then(clock);
    let now = clock.map_or(begin.unwrap_or(0).saturating_mul(1 << plan.shift), Clock::now);
    let wheel = reserve::kept(|| {
        let text = c"there is no memory for the lists of a wheel";
        NodeWheel::try_new(now >> plan.shift).map_err(|_| Refusal::no_memory(text))
    })?;
    let free = |manager: &&Manager| {
        manager.requests.len() == plan.requests
            // Acquire: pairs with the release in `leave`. Relaxed on failure, and for the load: the manager is another thread's.
            && !manager.is_taken.load(Ordering::Relaxed)
            && manager.is_taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    };
    let manager = match all().find(free) {
        Some(manager) => manager,
        None => make(plan.requests)?,
    };
    tsan::acquire(manager);
    // SAFETY: this thread has taken the manager.
    let own = unsafe { &mut *manager.own.get() };
    let (burst, shift) = (plan.burst, plan.shift);
    *own = Own { wheel: Some(wheel), now, shift, clock, burst, turn: own.turn + 1, ..*own };
    manager.lcore.store(plan.lcore, Ordering::Relaxed);
    manager.inbox.open();
    Ok(manager)
}

/// A new manager, which the caller has.
fn make(requests: usize) -> Result<&'static Manager, Refusal> {
    const TEXT: &std::ffi::CStr = c"there is no memory for the requests of a manager";
    let mut places = Vec::new();
    reserve::closed(|| places.try_reserve_exact(requests)).map_err(|_| Refusal::no_memory(TEXT))?;
    places.resize_with(requests, || Request {
        link: AtomicPtr::new(ptr::null_mut()),
        source: Cell::new(None),
        timer: Cell::new(ptr::null()),
        time: Cell::new(0),
        tell: Cell::new(None),
        turn: Cell::new(0),
        kind: Cell::new(CANCEL),
    });
    let own = Own {
        wheel: None,
        now: 0,
        shift: 0,
        clock: None,
        burst: 0,
        free: ptr::null_mut(),
        away: 0,
        turn: 0,
        is_calling: false,
    };
    let made = reserve::kept(|| {
        Ok(Box::new(Manager {
            inbox: CachePadded::default(),
            results: CachePadded::default(),
            is_taken: AtomicBool::new(true),
            lcore: AtomicU32::new(0),
            number: AtomicU32::new(0),
            handle: AtomicPtr::new(ptr::null_mut()),
            requests: places.into_boxed_slice(),
            own: UnsafeCell::new(own),
        }))
    })?;
    let manager = Box::into_raw(made);
    // SAFETY: it came from the box, and is leaked from here on, unless it has no handle or no number.
    let made = unsafe { &*manager };
    let answer = handle::make(|| Ok((Handle(made), Parts::default()))).and_then(|handle| {
        // Relaxed: published with the number.
        made.handle.store(handle, Ordering::Relaxed);
        for (number, place) in ALL.iter().enumerate().skip(1) {
            // Relaxed: as above.
            made.number.store(number as u32, Ordering::Relaxed);
            // Release: pairs with the acquire in `numbered`.
            if place.compare_exchange(ptr::null_mut(), manager, Ordering::Release, Ordering::Relaxed).is_ok()
            {
                return Ok(());
            }
        }
        // SAFETY: nobody else has the handle.
        drop(unsafe { handle::find::<Handle>(handle)?.free() });
        let text = c"{} threads have managers of timers: no more are possible";
        Err(Refusal::new(libc::EAGAIN, text).with(MOST - 1))
    });
    if let Err(refusal) = answer {
        // SAFETY: nobody else has it.
        drop(unsafe { Box::from_raw(manager) });
        return Err(refusal);
    }
    made.results.open();
    for request in &made.requests {
        request.source.set(Some(made));
        // SAFETY: the caller has the manager.
        unsafe { made.put_back(request) };
    }
    Ok(made)
}

/// The manager of a lcore. Reads a word for each manager of the process.
pub(super) fn of_lcore(lcore: u32) -> Option<&'static Manager> {
    all().find(|manager| {
        // Relaxed, both: the answer may be out of date, and whoever uses the manager finds its inbox closed then.
        manager.is_taken.load(Ordering::Relaxed) && manager.lcore.load(Ordering::Relaxed) == lcore
    })
}

/// Calls a function of the program.
///
/// # Safety
/// The function may be called with the timer.
unsafe fn call(timer: *const Timer, wanted: (still_htimer_fn, *mut c_void)) {
    let _heeded = tsan::heed();
    if let (Some(function), argument) = wanted {
        // SAFETY: by the caller's promise.
        unsafe { function(timer.cast_mut().cast(), argument) };
    }
}

/// For the thread that has the manager. No reference to `own` lives while a function of the program runs.
impl Manager {
    pub(super) fn number(&self) -> u32 {
        // Relaxed: written before the manager was published.
        self.number.load(Ordering::Relaxed)
    }

    pub(super) fn handle(&self) -> *mut still_htimer_mgr {
        // Relaxed: written before the manager was published.
        self.handle.load(Ordering::Relaxed)
    }

    /// # Safety
    /// The calling thread has the manager, and no other such reference lives.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the cell belongs to one thread")]
    unsafe fn own(&self) -> &mut Own {
        // SAFETY: by the caller's promise.
        unsafe { &mut *self.own.get() }
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

    /// Whether times may be given in this unit.
    ///
    /// # Safety
    /// The calling thread has the manager.
    pub(super) unsafe fn accepts(&self, flags: u32) -> Result<(), Refusal> {
        // SAFETY: by the caller's promise.
        let own = unsafe { self.own() };
        if flags & TSC != 0 && !own.clock.is_some_and(Clock::has_counter) {
            return Err(NO_CLOCK);
        }
        Ok(())
    }

    /// Adds a timer of this thread.
    ///
    /// # Safety
    /// The calling thread has the manager. The timer is in no wheel, stays in place until it has expired or is cancelled, and nothing
    /// else uses it meanwhile.
    pub(super) unsafe fn add(&self, timer: &Timer, wanted: Wanted) {
        timer.set(wanted);
        // Relaxed: other threads only compare it.
        timer.owner.store(self.number(), Ordering::Relaxed);
        // SAFETY: by the caller's promise.
        unsafe { self.own().arm(timer, wanted.expiration) };
    }

    /// Cancels a timer of this thread. Returns the result.
    ///
    /// # Safety
    /// The calling thread has the manager; the timer is its own.
    pub(super) unsafe fn cancel(&self, timer: &Timer) -> i32 {
        match timer.state() {
            ADDED => {
                // SAFETY: by the caller's promise. A pending timer is in the wheel of its owner.
                unsafe { self.own().wheel().cancel(timer.node()) };
                timer.is_cancelled();
                CANCELLED
            }
            EXPIRED => EXPIRED,
            _ => ALREADY_CANCELLED,
        }
    }

    /// Takes a free request.
    ///
    /// # Safety
    /// The calling thread has the manager.
    unsafe fn request(&self) -> Option<&'static Request> {
        // SAFETY: by the caller's promise. Requests are never freed.
        let own = unsafe { self.own() };
        // SAFETY: requests are never freed.
        let request = unsafe { own.free.as_ref() }?;
        // Relaxed: the list is this thread's.
        own.free = request.link.load(Ordering::Relaxed);
        own.away += 1;
        Some(request)
    }

    /// # Safety
    /// As for `request`; and the request was taken, and not sent.
    unsafe fn unsend(&self, request: &Request) {
        // SAFETY: by the caller's promise.
        unsafe {
            self.put_back(request);
            self.own().away -= 1;
        }
    }

    /// Asks a manager for the additions of timers, in this order, or for one cancellation: `wanted` is `None`. Returns how many there was
    /// room for. Nothing has changed for the others.
    ///
    /// # Errors
    /// When no thread has the target.
    ///
    /// # Safety
    /// The calling thread has this manager. The timers belong to it, or, for a cancellation, to the target.
    pub(super) unsafe fn ask<'t>(
        &self,
        target: &Manager,
        timers: impl Iterator<Item = (&'t Timer, Option<Wanted>, Tell)>,
    ) -> Result<usize, Refusal> {
        let (mut newest, mut oldest, mut count) = (ptr::null::<Request>(), ptr::null::<Request>(), 0);
        let mut timers = timers.peekable();
        while timers.peek().is_some() {
            // SAFETY: by the caller's promise.
            let Some(request) = (unsafe { self.request() }) else { break };
            let Some((timer, wanted, tell)) = timers.next() else { break };
            // SAFETY: by the caller's promise.
            request.turn.set(unsafe { self.own().turn });
            request.timer.set(timer);
            request.tell.set(Some(tell));
            request.kind.set(if wanted.is_some() { ADDED } else { CANCEL });
            if let Some(wanted) = wanted {
                timer.set(wanted);
                request.time.set(wanted.expiration);
                timer.enter(SENT);
                // Relaxed: other threads only compare it.
                timer.owner.store(target.number(), Ordering::Relaxed);
            }
            tsan::release(timer);
            // Relaxed: published by the post.
            request.link.store(newest.cast_mut(), Ordering::Relaxed);
            newest = request;
            oldest = if oldest.is_null() { newest } else { oldest };
            count += 1;
        }
        let (Some(first), Some(last)) = (NonNull::new(newest.cast_mut()), NonNull::new(oldest.cast_mut()))
        else {
            return Ok(0);
        };
        // SAFETY: requests are never freed, and are in no list.
        if unsafe { target.inbox.post(first, last) } {
            return Ok(count);
        }
        let mut at = first;
        loop {
            // SAFETY: requests are never freed.
            let request = unsafe { at.as_ref() };
            // Relaxed: it was not posted.
            let before = NonNull::new(request.link.load(Ordering::Relaxed));
            if request.kind.get() == ADDED {
                // SAFETY: the timer is still the caller's.
                unsafe { &*request.timer.get() }.enter(IDLE);
            }
            // SAFETY: by the caller's promise.
            unsafe { self.unsend(request) };
            // The link of the oldest one is what the inbox has left in it.
            match before {
                Some(before) if at != last => at = before,
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

    /// Stops it for a thread that is ending. Touches no timer.
    ///
    /// # Safety
    /// The calling thread has the manager, and does not use it afterwards.
    pub(crate) unsafe fn leave(&'static self) {
        // SAFETY: by the caller's promise.
        unsafe {
            self.answer(self.inbox.close(), |timer, addition| {
                if addition.is_some() {
                    timer.enter(IDLE);
                }
                GONE
            });
            self.own().wheel = None;
        }
        // Relaxed: see `of_lcore`.
        self.lcore.store(u32::MAX, Ordering::Relaxed);
        tsan::release(self);
        // Release: pairs with the acquire in `take`.
        self.is_taken.store(false, Ordering::Release);
    }

    /// Answers requests, and sends them back. Those of one source that follow each other are one post. Returns how many there were.
    ///
    /// # Safety
    /// The calling thread has the manager.
    unsafe fn answer(
        &self,
        requests: Messages<Request>,
        mut answer: impl FnMut(&Timer, Option<u64>) -> i32,
    ) -> usize {
        let mut count = 0;
        let mut chain: Option<(&'static Manager, NonNull<Request>, NonNull<Request>)> = None;
        let send = |(source, newest, oldest): (&'static Manager, _, _)| {
            // SAFETY: requests are never freed, and these are in no list. The results of a manager are always open.
            let is_posted = unsafe { source.results.post(newest, oldest) };
            debug_assert!(is_posted, "the results of a manager are never closed");
        };
        for at in requests {
            // SAFETY: requests are never freed, and this one is the caller's until it is sent back.
            let request = unsafe { at.as_ref() };
            let timer = request.timer.get();
            // SAFETY: the timer is its target's until the result has come. The source of a cancellation keeps it valid that long.
            let result = unsafe {
                tsan::acquire(timer);
                let addition = (request.kind.get() == ADDED).then(|| request.time.get());
                let result = answer(&*timer, addition);
                tsan::release(timer);
                result
            };
            request.kind.set(result);
            count += 1;
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
                // SAFETY: this thread has the manager, and the timer was given to it.
                unsafe { manager.own().arm(timer, time) };
                return ADDED;
            }
            if timer.owner() != manager.number() {
                // It expired here, and its function has given it to another thread.
                return EXPIRED;
            }
            // SAFETY: this thread has the manager and the timer.
            unsafe { manager.cancel(timer) }
        };
        // SAFETY: this thread has the manager.
        let mut count = unsafe { manager.answer(manager.inbox.take(), take_in) };
        for request in manager.results.take() {
            // SAFETY: requests are never freed, and this one has come back.
            let request = unsafe { request.as_ref() };
            let (timer, tell, result) = (request.timer.get(), request.tell.take(), request.kind.get());
            // SAFETY: this thread has the manager.
            let is_own = request.turn.get() == unsafe { manager.own().turn };
            // SAFETY: as above. The function may ask again, and needs the request for that.
            unsafe { manager.unsend(request) };
            if let (true, Some(Tell { function: Some(function), argument })) = (is_own, tell) {
                tsan::acquire(timer);
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
        own.wheel().advance(tick);
        let (mut count, mut whole) = (0, None);
        while count < burst {
            // SAFETY: as above.
            let Some(node) = (unsafe { manager.own() }).wheel().pop() else { break };
            let _ = whole.get_or_insert_with(Uncancelled::new);
            // SAFETY: the node is the first field of a timer that was pending, and so is this thread's.
            let timer = unsafe { node.cast::<Timer>().as_ref() };
            let wanted = (timer.function.get(), timer.argument.get());
            match timer.period.get() {
                0 => timer.enter(EXPIRED),
                period => {
                    // SAFETY: as above; the timer is in no wheel, and stays where it is.
                    unsafe {
                        let next = next_beat(timer.node.last_deadline(), period, tick);
                        manager.own().wheel().add(timer.node(), Schedule::at(next));
                    }
                }
            }
            count += 1;
            // SAFETY: the program has passed the function for this. It may free the timer, or, if it is periodical, cancel and free it.
            unsafe { call(timer, wanted) };
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
        let _whole = Uncancelled::new();
        let mut count = 0;
        // SAFETY: as above. The reference ends before the function is called.
        while let Some(node) = unsafe { manager.own() }.wheel().take_any() {
            // SAFETY: the node is the first field of a timer that was pending, and so is this thread's.
            let timer = unsafe { node.cast::<Timer>().as_ref() };
            count += 1;
            timer.is_cancelled();
        }
        Ok(count)
    }
}

/// When a periodical timer is due next, after `now`: beats that were missed are left out. Divides only if some were.
fn next_beat(last: u64, period: u64, now: u64) -> u64 {
    let next = last.saturating_add(period);
    match now.checked_sub(next) {
        None => next,
        Some(late) => next.saturating_add((late / period + 1).saturating_mul(period)),
    }
}

impl Timer {
    /// Tells the program, if it wants that, which may then free the timer.
    fn is_cancelled(&self) {
        self.enter(CANCELLED);
        if u32::from(self.flags.get()) & TELL_CANCEL != 0 {
            // SAFETY: the program has passed the function for this.
            unsafe { call(self, (self.function.get(), self.argument.get())) };
        }
    }

    fn set(&self, wanted: Wanted) {
        let Wanted { period, function, argument, flags, .. } = wanted;
        self.period.set(if flags & PERIODICAL == 0 { 0 } else { period });
        self.function.set(Some(function));
        self.argument.set(argument);
        self.flags.set(flags as u8);
    }
}

impl Own {
    fn wheel(&mut self) -> &mut NodeWheel {
        self.wheel.as_mut().expect("a thread that has a manager has its wheel")
    }

    /// Puts a timer into the wheel, due at the time that the program has said.
    ///
    /// # Safety
    /// As for `Manager::add`.
    #[inline(always)]
    unsafe fn arm(&mut self, timer: &Timer, time: u64) {
        let flags = timer.flags.get().into();
        let deadline = self.deadline(time, flags);
        if timer.period.get() != 0 {
            timer.period.set(self.ticks(timer.period.get(), flags).max(1));
        }
        timer.enter(ADDED);
        // SAFETY: by the caller's promise.
        unsafe { self.wheel().add(timer.node(), Schedule::at(deadline)) };
    }

    /// The tick at which a timer is due: not before its time.
    #[inline]
    fn deadline(&self, expiration: u64, flags: u32) -> u64 {
        match (flags & TICKS != 0, flags & ABSOLUTE != 0) {
            (true, true) => expiration,
            (true, false) => (self.now >> self.shift).saturating_add(expiration),
            (false, true) => self.up(self.time(expiration, flags)),
            (false, false) => self.up(self.now.saturating_add(self.length(expiration, flags))),
        }
    }

    /// A length in ticks, rounded up.
    fn ticks(&self, length: u64, flags: u32) -> u64 {
        if flags & TICKS != 0 {
            length
        } else {
            self.up(self.length(length, flags))
        }
    }

    /// Nanoseconds in ticks, rounded up.
    #[inline]
    fn up(&self, nanoseconds: u64) -> u64 {
        let tick = nanoseconds >> self.shift;
        tick + u64::from(nanoseconds > tick << self.shift)
    }

    /// A point in time, in nanoseconds.
    #[inline]
    fn time(&self, time: u64, flags: u32) -> u64 {
        match self.clock {
            Some(clock) if flags & TSC != 0 => clock.time_at(time),
            _ => time,
        }
    }

    /// A length of time, in nanoseconds, rounded up.
    #[inline]
    fn length(&self, length: u64, flags: u32) -> u64 {
        match self.clock {
            Some(clock) if flags & TSC != 0 && length != 0 => {
                // Any later value of the counter would do.
                let from = u64::MAX / 2;
                (clock.time_at(from.saturating_add(length)) - clock.time_at(from)).saturating_add(1)
            }
            _ => length,
        }
    }
}

/// The time that a call that manages sets: the caller's, or the clock's.
///
/// # Safety
/// The calling thread has the manager.
pub(super) unsafe fn time(manager: &Manager, given: Option<(u64, u32)>) -> Result<u64, Refusal> {
    // SAFETY: by the caller's promise.
    let own = unsafe { manager.own() };
    match (given, own.clock) {
        (Some((time, flags)), _) if flags & TICKS != 0 => Ok(time.saturating_mul(1 << own.shift)),
        (Some((time, flags)), _) => Ok(own.time(time, flags)),
        (None, Some(clock)) => Ok(clock.now()),
        (None, None) => {
            let text = c"this manager has no clock: call still_htimer_manage_time";
            Err(Refusal::new(libc::EOPNOTSUPP, text))
        }
    }
}

/// When the thread has to manage next, in nanoseconds or in ticks: no later than any timer is due.
///
/// # Safety
/// The calling thread has the manager.
pub(super) unsafe fn next(manager: &Manager, flags: u32) -> Option<u64> {
    // SAFETY: by the caller's promise.
    let own = unsafe { manager.own() };
    let shift = if flags & TICKS != 0 { 0 } else { own.shift };
    own.wheel().next_deadline().map(|tick| tick.saturating_mul(1 << shift))
}
