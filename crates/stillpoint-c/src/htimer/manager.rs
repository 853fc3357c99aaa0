//! Managers: the timers of one thread, and the requests of others for them. The argument is in `docs/design/capi.md`, under *Timers with
//! functions*; its steps are H1 to H8.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU8, Ordering};

use crossbeam_utils::CachePadded;
use stillpoint::timer::{Clock, Node, NodeWheel, Schedule};
use stillpoint_sys::sync::{Inbox, Lasting, Message, Messages};
use stillpoint_sys::tsan;

use crate::border::{Refusal, Uncancelled};
use crate::reserve;
use crate::timer::still_timer;

/// A manager, to C: the address of its place among all.
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
/// threads read: to refuse a timer that is in use, and to find its thread.
#[repr(C)]
pub(super) struct Timer {
    node: Node,
    /// In ticks once the timer is pending; before, as the program has said. 0 for once.
    period: Cell<u64>,
    function: Cell<still_htimer_fn>,
    argument: Cell<*mut c_void>,
    /// The [stamp](Manager::stamp) of its manager. 0: it never had one.
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
        // Acquire: pairs with the release in `belongs_to`.
        self.owner.load(Ordering::Acquire)
    }

    /// Relaxed: the inbox publishes it.
    fn enter(&self, state: i32) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    /// The thread with this stamp has the timer from here on.
    fn belongs_to(&self, stamp: u32) {
        // Release: pairs with the acquire in `owner`. Whoever finds the target here, and asks it for a cancellation, makes the target see
        // that the timer was sent: H5.
        self.owner.store(stamp, Ordering::Release);
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
    tell: Cell<Tell>,
    /// [`CANCEL`]; [`ADDED`]: an addition; afterwards the result.
    kind: Cell<i32>,
    /// Owner and state of the timer before an addition, should the target refuse it.
    before: Cell<(u32, i32)>,
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

/// The bits of a number of a manager.
const NUMBERS: u32 = 12;
/// How many managers a process has, at most, and one more.
const MOST: usize = 1 << NUMBERS;

/// All managers, at their numbers. The first place stays empty, and no empty place is followed by one that is used.
static ALL: [AtomicPtr<Manager>; MOST] = [const { AtomicPtr::new(ptr::null_mut()) }; MOST];

fn numbered(number: usize) -> Option<&'static Manager> {
    // SAFETY: managers are never freed. Acquire: pairs with the release in `make`.
    unsafe { ALL.get(number)?.load(Ordering::Acquire).as_ref() }
}

fn all() -> impl Iterator<Item = &'static Manager> {
    (1..).map_while(numbered)
}

/// The manager of the thread with this stamp, unless another thread has it now. The answer may be out of date: see H6.
pub(super) fn stamped(stamp: u32) -> Option<&'static Manager> {
    numbered(stamp as usize % MOST).filter(|manager| manager.stamp() == stamp)
}

/// The manager whose address C code has.
pub(super) fn target(address: *const still_htimer_mgr) -> Result<&'static Manager, Refusal> {
    let size = size_of::<AtomicPtr<Manager>>();
    let place = address.addr().wrapping_sub(ALL.as_ptr().addr());
    let found = (place % size == 0).then(|| numbered(place / size)).flatten();
    found.ok_or_else(|| match address.is_null() {
        true => Refusal::invalid(c"NULL was passed for a manager of timers"),
        false => Refusal::invalid(
            c"what was passed is no manager of timers, or one of another copy of the library",
        ),
    })
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

/// The manager that a thread gets. Reads a word for each manager of the process.
pub(super) fn take(plan: &Plan) -> Result<&'static Manager, Refusal> {
    let begin = plan.begin;
    let clock = begin.is_none().then(clock);
    let now = clock.map_or(begin.unwrap_or(0) << plan.shift, Clock::now);
    let wheel = reserve::kept(|| {
        let text = c"there is no memory for the lists of a wheel";
        NodeWheel::try_new(now >> plan.shift).map_err(|_| Refusal::no_memory(text))
    })?;
    let manager = match all().find(|manager| manager.is_got(plan.requests)) {
        Some(manager) => manager,
        None => make(plan.requests)?,
    };
    // SAFETY: this thread has taken the manager.
    let own = unsafe { manager.own() };
    let (burst, shift) = (plan.burst, plan.shift);
    let (wheel, quiet_until) = (Some(wheel), u64::MAX);
    *own =
        Own { wheel, now, quiet_until, shift, clock, burst, is_calling: false, is_stopping: false, ..*own };
    manager.has_counter.store(clock.is_some_and(Clock::has_counter), Ordering::Relaxed);
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
        tell: Cell::new(Tell { function: None, argument: ptr::null_mut() }),
        kind: Cell::new(CANCEL),
        before: Cell::new((0, IDLE)),
    });
    let own = Own {
        wheel: None,
        now: 0,
        quiet_until: u64::MAX,
        shift: 0,
        clock: None,
        burst: 0,
        free: ptr::null_mut(),
        away: 0,
        is_calling: false,
        is_stopping: false,
    };
    let made = reserve::kept(|| {
        Ok(Box::new(Manager {
            inbox: CachePadded::default(),
            results: CachePadded::default(),
            is_taken: AtomicBool::new(true),
            stamp: AtomicU32::new(0),
            lcore: AtomicU32::new(u32::MAX),
            has_counter: AtomicBool::new(false),
            requests: places.into_boxed_slice(),
            own: UnsafeCell::new(own),
        }))
    })?;
    made.results.open();
    let manager = Box::into_raw(made);
    // SAFETY: it came from the box, and is leaked if it gets a number.
    let made = unsafe { &*manager };
    for request in &made.requests {
        request.source.set(Some(made));
        // SAFETY: the caller has the manager.
        unsafe { made.put_back(request) };
    }
    for (number, place) in ALL.iter().enumerate().skip(1) {
        // Relaxed: published with the number.
        made.stamp.store((1 << NUMBERS) + number as u32, Ordering::Relaxed);
        // Release: pairs with the acquire in `numbered`.
        if place.compare_exchange(ptr::null_mut(), manager, Ordering::Release, Ordering::Relaxed).is_ok() {
            return Ok(made);
        }
    }
    // SAFETY: nobody else has it.
    drop(unsafe { Box::from_raw(manager) });
    let text = c"the process has {} managers of timers: no more are possible";
    Err(Refusal::new(libc::EAGAIN, text).with(MOST - 1))
}

/// The manager of an lcore. Reads a word for each manager of the process.
pub(super) fn of_lcore(lcore: u32) -> Option<&'static Manager> {
    // Relaxed, both: the answer may be out of date, and whoever uses the manager finds its inbox closed then.
    let has_it = |manager: &&Manager| manager.lcore.load(Ordering::Relaxed) == lcore;
    all().find(has_it).filter(|_| lcore != u32::MAX)
}

/// In the child of a fork: the other threads are not there. Their managers stop, and the requests of this thread, whose manager is `own`,
/// come back without a result.
///
/// # Errors
/// In a function that the manager calls: it is walking a list.
///
/// # Safety
/// The process has one thread.
pub(super) unsafe fn reset_after_fork(own: Option<&'static Manager>) -> Result<(), Refusal> {
    if let Some(own) = own {
        // SAFETY: it is the calling thread's.
        drop(unsafe { own.begin() }?);
    }
    // First from all lists: a request may be in the list of another manager than its own.
    all().for_each(Manager::forget);
    for manager in all() {
        // SAFETY: there is no other thread.
        unsafe {
            let Own { free, away, .. } = manager.own();
            (*free, *away) = (ptr::null_mut(), 0);
            manager.requests.iter().for_each(|request| manager.put_back(request));
            // Relaxed: as above.
            if manager.is_taken.load(Ordering::Relaxed) && !own.is_some_and(|own| ptr::eq(own, manager)) {
                // The thread may have been making it, or dropping it.
                ptr::write(&mut manager.own().wheel, None);
                manager.leave();
            }
        }
    }
    Ok(())
}

/// For the thread that has the manager. No reference to `own` lives while a function of the program runs.
impl Manager {
    pub(super) fn stamp(&self) -> u32 {
        // Relaxed: what it is compared with says the rest. See H6.
        self.stamp.load(Ordering::Relaxed)
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
            // Relaxed: see `stamp`.
            self.stamp.store(self.stamp().wrapping_add(1 << NUMBERS), Ordering::Relaxed);
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
        timer.set(wanted);
        timer.belongs_to(self.stamp());
        // SAFETY: by the caller's promise.
        unsafe { own.arm(timer, wanted.expiration) };
        Ok(())
    }

    /// Cancels a timer of this thread. Returns the result.
    ///
    /// # Safety
    /// The calling thread has the manager; the timer is its own.
    pub(super) unsafe fn cancel(&self, timer: &Timer) -> i32 {
        match timer.state() {
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
        }
    }

    /// Tells the program that a timer is cancelled, if it wants that. It may then free the timer.
    ///
    /// # Safety
    /// As for `cancel`; the timer has been taken out of the wheel.
    #[inline]
    unsafe fn has_cancelled(&self, timer: &Timer) {
        timer.enter(CANCELLED);
        if u32::from(timer.flags.get()) & TELL_CANCEL != 0 {
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
            request.before.set((timer.owner(), timer.state()));
            timer.set(wanted);
            timer.enter(SENT);
            timer.belongs_to(target);
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
                let timer = unsafe { &*request.timer.get() };
                let (owner, state) = request.before.get();
                timer.belongs_to(owner);
                timer.enter(state);
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
            let result = match result {
                Some(result) => result,
                // SAFETY: without an answer, the timer is as it was. The request is in no list.
                None if unsafe { stamped((*timer).owner()).is_some_and(|next| next.inbox.post(at, at)) } => {
                    continue
                }
                None => GONE,
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
                if timer.owner() != manager.stamp() {
                    // The thread that was asked has ended since, and this one has got its manager: H6.
                    timer.enter(IDLE);
                    return Some(GONE);
                }
                // SAFETY: this thread has the manager, and the timer was given to it.
                unsafe { manager.own().arm(timer, time) };
                return Some(ADDED);
            }
            // If the timer's function has given it away meanwhile, the cancellation follows it: H5.
            let is_here = timer.owner() == manager.stamp() && timer.state() != SENT;
            // SAFETY: this thread has the manager and the timer.
            is_here.then(|| unsafe { manager.cancel(timer) })
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
            let Some(node) = own.wheel().pop() else {
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

/// When a periodical timer is due next, after `now`: beats that were missed are left out. Divides only if some were.
fn next_beat(last: u64, period: u64, now: u64) -> u64 {
    let next = last.saturating_add(period);
    match now.checked_sub(next) {
        None => next,
        Some(late) => next.saturating_add((late / period + 1).saturating_mul(period)),
    }
}

/// Calls a function of the program.
///
/// # Safety
/// The function may be called with the timer.
unsafe fn call(timer: *const Timer, function: still_htimer_fn, argument: *mut c_void) {
    let _heeded = tsan::heed();
    if let Some(function) = function {
        // SAFETY: by the caller's promise.
        unsafe { function(timer.cast_mut().cast(), argument) };
    }
}

impl Timer {
    /// # Safety
    /// As for the function `call`. The timer may be freed afterwards.
    unsafe fn call(&self) {
        // SAFETY: by the caller's promise.
        unsafe { call(self, self.function.get(), self.argument.get()) };
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
        let flags = timer.flags.get().into();
        let deadline = self.deadline(time, flags);
        if timer.period.get() != 0 {
            timer.period.set(self.ticks(timer.period.get(), flags).max(1));
        }
        timer.enter(ADDED);
        self.quiet_until = self.quiet_until.min(deadline);
        // SAFETY: by the caller's promise.
        unsafe { self.wheel().add(timer.node(), Schedule::at(deadline)) };
    }

    /// The tick at which a timer is due: not before its time.
    #[inline]
    fn deadline(&self, expiration: u64, flags: u32) -> u64 {
        match (flags & TICKS != 0, flags & ABSOLUTE != 0) {
            (true, true) => expiration,
            // From the end of the tick, of which a part is over.
            (true, false) => self.up(self.now).saturating_add(expiration),
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

    /// A point in time, in nanoseconds, rounded up.
    #[inline]
    fn time(&self, time: u64, flags: u32) -> u64 {
        match self.clock {
            Some(clock) if flags & TSC != 0 => clock.time_at(time).saturating_add(1),
            _ => time,
        }
    }

    /// A length of time, in nanoseconds, rounded up.
    #[inline]
    fn length(&self, length: u64, flags: u32) -> u64 {
        match self.clock {
            Some(clock) if flags & TSC != 0 => clock.length_of(length),
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
        (Some((time, flags)), Some(clock)) if flags & TSC != 0 => Ok(clock.time_at(time)),
        (Some((time, _)), _) => Ok(time),
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
    // Earlier, the wheel would only move timers, which waits until it is asked.
    let next = own.wheel().next_deadline()?.max(own.quiet_until);
    Some(next.saturating_mul(1 << shift))
}
