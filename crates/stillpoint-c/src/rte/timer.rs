//! `rte_timer` over wheels. `docs/design/capi.md` has the argument, whose steps are named here.

use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::fmt::{self, Display};
use std::mem::{self, offset_of};
use std::ops::{ControlFlow, Deref};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use stillpoint::timer::{Node, NodeWheel, Schedule};
use stillpoint_sys::sync::{Locked, TryLock};
use stillpoint_sys::tsan;

use super::block::Call;
use super::print;
use crate::border::{briefly, call, Refusal};
use crate::own::{self, own, Own};
use crate::timer::pop_or_move;
use crate::{copies, reserve};

/// A timer, to C.
#[repr(C)]
pub struct rte_timer {
    _private: [u8; 0],
}

/// A timer, in the 120 bytes that DPDK's timer has.
#[repr(C)]
struct Timer {
    expire: u64,
    node: Node,
    /// The number of the list in which the timer was pending last. 0: its instance was freed, and a thread has taken the timer since.
    home: AtomicU64,
    _free: [u64; 5],
    /// A [`Status`].
    status: AtomicU32,
    period: u64,
    function: rte_timer_cb_t,
    argument: *mut c_void,
}

// The header has the same numbers.
const _: () = {
    assert!(size_of::<Timer>() == 120 && offset_of!(Timer, node) == 8 && offset_of!(Timer, status) == 88);
    assert!(offset_of!(Timer, period) == 96 && offset_of!(Timer, function) == 104);
    assert!(offset_of!(Timer, argument) == 112);
};

pub type rte_timer_cb_t = Option<unsafe extern "C-unwind" fn(*mut rte_timer, *mut c_void)>;
pub type rte_timer_alt_manage_cb_t = Option<unsafe extern "C-unwind" fn(*mut rte_timer)>;
pub type rte_timer_stop_all_cb_t = Option<unsafe extern "C-unwind" fn(*mut rte_timer, *mut c_void)>;

/// The state of a timer, and its owner.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Status {
    state: u16,
    owner: i16,
}

const STOP: u16 = 0;
const PENDING: u16 = 1;
const RUNNING: u16 = 2;
const CONFIG: u16 = 3;
const STOPPED: Status = Status { state: STOP, owner: -2 };

impl Status {
    fn of(state: u16, lcore: u32) -> Self {
        Self { state, owner: lcore as i16 }
    }

    fn word(self) -> u32 {
        let ([a, b], [c, d]) = (self.state.to_ne_bytes(), self.owner.to_ne_bytes());
        u32::from_ne_bytes([a, b, c, d])
    }

    fn from(word: u32) -> Self {
        let [a, b, c, d] = word.to_ne_bytes();
        Self { state: u16::from_ne_bytes([a, b]), owner: i16::from_ne_bytes([c, d]) }
    }
}

/// A timer of the program, which does not move until it is stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Handle(NonNull<Timer>);

impl Handle {
    fn new(timer: *mut rte_timer) -> Result<Self, Refusal> {
        NonNull::new(timer.cast()).map(Self).ok_or_else(|| Refusal::invalid(c"NULL was passed for a timer"))
    }

    fn of(node: NonNull<Node>) -> Self {
        // SAFETY: every node in these wheels is a field of a timer, and was added by a pointer with the provenance of that timer.
        Self(unsafe { node.byte_sub(offset_of!(Timer, node)).cast() })
    }

    fn node(self) -> NonNull<Node> {
        // SAFETY: the field lies within the timer.
        unsafe { self.0.byte_add(offset_of!(Timer, node)).cast() }
    }

    fn c(self) -> *mut rte_timer {
        self.0.as_ptr().cast()
    }

    /// # Safety
    /// The timer's memory is valid.
    unsafe fn status<'t>(self) -> &'t AtomicU32 {
        // SAFETY: the caller's promise; the word is only used atomically.
        unsafe { AtomicU32::from_ptr(self.0.as_ptr().byte_add(offset_of!(Timer, status)).cast()) }
    }

    /// Gives the timer away, as pending or stopped. Release: pairs with the acquire in `home` and `take` by the next thread.
    ///
    /// # Safety
    /// The timer's memory is valid, and the caller has the timer, by step 1.
    unsafe fn set(self, status: Status) {
        // SAFETY: the timer's memory is valid, by the caller's promise.
        let place = unsafe { self.status() };
        tsan::release(place);
        place.store(status.word(), Ordering::Release);
    }

    /// Takes the timer out of the list in which it is pending.
    ///
    /// # Safety
    /// The timer is pending in this list.
    unsafe fn take_out(self, list: &mut List) {
        // SAFETY: the timer is valid and in this wheel, by the caller's promise.
        let was_in = unsafe { list.wheel.cancel(self.node()) };
        debug_assert!(was_in, "step 1: a timer that is pending is in the wheel");
    }

    /// After the timer was popped from a wheel, under the list's lock.
    ///
    /// # Safety
    /// The timer's memory is valid.
    unsafe fn popped(self) {
        // SAFETY: the timer's memory is valid, by the caller's promise.
        let status = unsafe { self.status() };
        // Relaxed: whoever has changed the status had the lock.
        debug_assert!(
            Status::from(status.load(Ordering::Relaxed)).state == PENDING,
            "step 1: a timer that is in the wheel is pending"
        );
        tsan::acquire(status);
    }

    /// Sets RUNNING or CONFIG on a timer. Relaxed: other threads that read it are refused, and rely on nothing.
    ///
    /// # Safety
    /// As for `set`.
    unsafe fn keep(self, status: Status) {
        // SAFETY: the timer's memory is valid, by the caller's promise.
        unsafe { self.status() }.store(status.word(), Ordering::Relaxed);
    }

    /// The list in which the timer is pending, or was a moment ago: step 2. If the timer is not pending, its status.
    ///
    /// # Safety
    /// The timer's memory is valid.
    #[inline]
    unsafe fn home(self) -> Result<u64, u32> {
        // Acquire: pairs with the release in `set`, so `home` is of this status, or of a later one.
        // SAFETY: the timer's memory is valid, by the caller's promise.
        let word = unsafe { self.status() }.load(Ordering::Acquire);
        match Status::from(word).state {
            // SAFETY: as above. Acquire: pairs with the release in `add`. It may be of a later addition than the status, to an instance that
            // this thread has not seen yet.
            PENDING => Ok(unsafe { (*self.0.as_ptr()).home.load(Ordering::Acquire) }),
            _ => Err(word),
        }
    }

    /// Sets `config` on a timer that is not pending, unless its status is not `word` any more.
    ///
    /// # Safety
    /// The timer's memory is valid.
    unsafe fn take(self, word: u32, config: Status) -> bool {
        // SAFETY: the timer's memory is valid, by the caller's promise.
        let status = unsafe { self.status() };
        // Acquire: pairs with the release in `set` by the thread that had the timer before.
        status.compare_exchange(word, config.word(), Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

/// The value under the lock of an lcore.
struct List {
    wheel: NodeWheel,
    /// How many nested calls manage the list. While this is not 0, additions do not set the list's time.
    managers: u32,
}

/// How far, in cycles, the time of a list may lag before an addition sets it. A timer that is added at an old time is moved more often.
const LAG: u64 = 4096;
/// How far, in cycles, the counter of one lcore may be ahead of another's.
const SKEW: u64 = 1 << 32;

/// The state of one lcore, in its own cache lines.
#[repr(align(128))]
struct Lcore {
    list: TryLock<List>,
    /// No timer is due before this time. It is written under the lock. Relaxed: a stale value only delays a timer to the next call.
    next: AtomicU64,
    /// The lcore that was chosen last for `LCORE_ID_ANY`. Only the lcore's own thread writes this and the counters.
    turn: AtomicU32,
    resets: AtomicU64,
    stops: AtomicU64,
    manages: AtomicU64,
}

/// Counts an event, on the lcore's own thread.
#[inline]
fn count(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

impl Lcore {
    fn try_new(lcore: u32) -> Result<Self, Refusal> {
        let wheel = NodeWheel::try_new(0)
            .map_err(|_| Refusal::no_memory(c"there is no memory for the lists of timers"))?;
        Ok(Self {
            list: TryLock::new(List { wheel, managers: 0 }),
            next: AtomicU64::new(u64::MAX),
            turn: AtomicU32::new(lcore),
            resets: AtomicU64::new(0),
            stops: AtomicU64::new(0),
            manages: AtomicU64::new(0),
        })
    }

    /// Adds a timer, or moves it within the list. `now` is not later than the time of the list's own lcore: a wheel does not go back.
    ///
    /// # Safety
    /// The caller has the timer, which is pending in this list, `home`, if `is_here`, and otherwise in none.
    #[inline]
    unsafe fn add(&self, list: &mut List, home: u64, timer: Handle, now: u64, deadline: u64, is_here: bool) {
        let is_managed = list.managers > 0;
        let wheel = &mut list.wheel;
        if now.saturating_sub(wheel.now()) > LAG && !is_managed {
            wheel.advance(now);
        }
        // SAFETY: the timer is in this wheel if `is_here`, and otherwise in none, so that its node may be written. It stays valid until it is
        // stopped, popped or taken.
        unsafe {
            if is_here {
                let is_moved = wheel.reset(timer.node(), deadline);
                debug_assert!(is_moved, "step 1: a timer that is pending is in the wheel");
            } else {
                timer.node().write(Node::new());
                wheel.add(timer.node(), Schedule::at(deadline));
            }
        }
        if deadline < self.next.load(Ordering::Relaxed) {
            self.next.store(deadline, Ordering::Relaxed);
        }
        // Under the lock, so that a thread that stops the timer finds it in the list.
        // SAFETY: the caller has the timer. Release: pairs with the acquire in `home`, whose thread then finds the instance.
        unsafe {
            (*timer.0.as_ptr()).home.store(home, Ordering::Release);
            timer.set(Status::of(PENDING, home as u32 % MOST_LCORES));
        }
    }

    /// Begins to manage the list, and sets its time.
    fn begin(&self, now: u64) {
        let mut list = self.list.lock();
        list.managers += 1;
        list.wheel.advance(now);
    }

    /// Step 4: pops the next timer that is due, and sets it to RUNNING on `lcore`. If no timer is due, stops managing the list, and sets
    /// `next`.
    fn pop(&self, lcore: u32) -> Option<Handle> {
        let mut moved = None;
        loop {
            // Anew for each step: others who arm or stop a timer wait for a few moves, not for those of a whole slot.
            let mut list = self.list.lock();
            match pop_or_move(&mut list.wheel, &mut moved) {
                ControlFlow::Continue(()) => {}
                ControlFlow::Break(Some(node)) => {
                    let timer = Handle::of(node);
                    // SAFETY: by step 1, the timer was pending here, and this thread has it.
                    unsafe {
                        timer.popped();
                        timer.keep(Status::of(RUNNING, lcore));
                    }
                    return Some(timer);
                }
                ControlFlow::Break(None) => {
                    list.managers -= 1;
                    self.next.store(list.wheel.next_deadline().unwrap_or(u64::MAX), Ordering::Relaxed);
                    return None;
                }
            }
        }
    }
}

impl Call {
    /// Runs a function with a new call, which is the thread's innermost call meanwhile.
    fn with<T>(function: impl FnOnce(&Self) -> T) -> T {
        struct Ends<'t>(*const Call, &'t Own);

        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.1.managing.set(self.0);
            }
        }

        let own = own();
        let call = Self { timer: Cell::new(ptr::null()), outer: own.managing.get() };
        let _ends = Ends(call.outer, own);
        own.managing.set(&call);
        function(&call)
    }

    /// The field `timer` of the call that is calling the function of this timer, if the calling thread is in that function.
    #[inline]
    fn of<'c>(timer: Handle) -> Option<&'c Cell<*const c_void>> {
        let mut call = own::find().map_or(ptr::null(), |own| own.managing.get());
        // SAFETY: only the thread of a call reaches the call, and only until the call ends.
        while let Some(Self { timer: place, outer }) = unsafe { call.as_ref() } {
            if place.get() == timer.0.as_ptr().cast_const().cast() {
                return Some(place);
            }
            call = *outer;
        }
        None
    }
}

/// A timer that the calling thread has taken.
enum Taken<'l> {
    /// It is in no list, and CONFIG is set.
    Out,
    /// It is pending in the list of this lcore, and the list is locked.
    Pending(&'l Lcore, Locked<'l, List>),
}

/// An instance: the lists of all lcores.
struct Data {
    /// How many calls walk the lists, and [`FREED`].
    walks: Walks,
    /// A number that no other instance has or had. Its lowest bits are the place in [`DATA`].
    number: u64,
    lcores: Box<[Lcore]>,
}

/// On a cache line of its own: each walk writes it, and each call reads what lies beside it.
#[repr(align(128))]
struct Walks(AtomicU32);

/// In `walks`: a function that one of the walks has called has freed the instance. The last walk frees its memory.
const FREED: u32 = 1 << 31;

/// A call that walks lists of an instance, and calls functions of the program: the instance's memory stays until this is dropped.
struct Walk(NonNull<Data>);

impl Walk {
    /// # Safety
    /// The instance is not freed meanwhile.
    unsafe fn begin(id: u32) -> Result<Self, Refusal> {
        // SAFETY: the instance is not freed meanwhile, by the caller's promise.
        let data = unsafe { data(id) }?;
        // Relaxed: whoever frees the instance comes later on this thread, or is synchronized with it by the program.
        data.walks.0.fetch_add(1, Ordering::Relaxed);
        Ok(Self(NonNull::from(data)))
    }
}

impl Deref for Walk {
    type Target = Data;

    fn deref(&self) -> &Data {
        // SAFETY: the walk is counted, so the memory stays.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        // AcqRel: the last of the walks, which frees the memory, comes after all uses of the others.
        if self.walks.0.fetch_sub(1, Ordering::AcqRel) == FREED | 1 {
            // SAFETY: the address came from a box. The instance is freed, and this was the last walk.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

const INSTANCES: usize = 64;
/// Statuses name lcores by 16 bits.
const MOST_LCORES: u32 = 1 << 16;
/// How many instances were made.
static MADE: AtomicU64 = AtomicU64::new(0);

static DATA: [AtomicPtr<Data>; INSTANCES] = [const { AtomicPtr::new(ptr::null_mut()) }; INSTANCES];
/// The number of lcores; 0 before the initialisation.
static LCORES: AtomicU32 = AtomicU32::new(0);
const DEFAULT: u32 = 0;

/// # Safety
/// The instance is not freed while it is used.
#[inline]
unsafe fn data<'d>(id: u32) -> Result<&'d Data, Refusal> {
    // Acquire: pairs with the release in `Data::publish`.
    let found = DATA.get(id as usize).map_or(ptr::null_mut(), |place| place.load(Ordering::Acquire));
    // SAFETY: the instance is not freed while it is used, by the caller's promise.
    unsafe { found.as_ref() }.ok_or_else(|| no_data(id))
}

#[cold]
fn no_data(id: u32) -> Refusal {
    match LCORES.load(Ordering::Relaxed) {
        0 => Refusal::invalid(c"the timers are not initialised: call rte_timer_subsystem_init first"),
        _ => {
            let text =
                c"there is no instance {} of timer data: pass what rte_timer_data_alloc stored, before its dealloc";
            Refusal::invalid(text).with(id)
        }
    }
}

impl Data {
    fn try_new(lcores: u32) -> Result<Box<Self>, Refusal> {
        // Relaxed: the number only has to be unique.
        let number = (MADE.fetch_add(1, Ordering::Relaxed) + 1) * INSTANCES as u64;
        reserve::kept(|| {
            let mut own = Vec::new();
            own.try_reserve_exact(lcores as usize)
                .map_err(|_| Refusal::no_memory(c"there is no memory for the lcores' timers"))?;
            for lcore in 0..lcores {
                own.push(Lcore::try_new(lcore)?);
            }
            Ok(Box::new(Self { walks: Walks(AtomicU32::new(0)), number, lcores: own.into() }))
        })
    }

    /// Puts an instance in the place `id`. Returns it if the place is taken.
    fn publish(mut self: Box<Self>, id: usize) -> Result<(), Box<Self>> {
        self.number = self.number / INSTANCES as u64 * INSTANCES as u64 + id as u64;
        let raw = Box::into_raw(self);
        // Release: pairs with the acquire in `data`.
        match DATA[id].compare_exchange(ptr::null_mut(), raw, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            // SAFETY: `raw` was made above, and not published.
            Err(_) => Err(unsafe { Box::from_raw(raw) }),
        }
    }

    /// # Safety
    /// The instance is not used any more, except by walks that have called the caller.
    unsafe fn free(place: &AtomicPtr<Data>) -> bool {
        let raw = place.swap(ptr::null_mut(), Ordering::Acquire);
        if raw.is_null() {
            return false;
        }
        // AcqRel: as in the drop of a walk. SAFETY: the memory stays until the walks have ended.
        if unsafe { &*raw }.walks.0.fetch_or(FREED, Ordering::AcqRel) == 0 {
            // SAFETY: `raw` came from a box, and the instance is not used any more.
            drop(unsafe { Box::from_raw(raw) });
        }
        true
    }

    /// Whether a function that a walk has called has freed the instance. The program may have given its timers other memory: the walk
    /// ends, and looks at no list any more.
    fn is_freed(&self) -> bool {
        // Relaxed: if the function was called by this walk, this is the same thread.
        self.walks.0.load(Ordering::Relaxed) & FREED != 0
    }

    #[inline]
    fn lcore(&self, lcore: u32) -> Result<&Lcore, Refusal> {
        self.lcores.get(lcore as usize).ok_or_else(|| self.no_lcore(lcore))
    }

    #[cold]
    fn no_lcore(&self, lcore: u32) -> Refusal {
        let text = match lcore {
            u32::MAX => {
                c"this thread is no lcore: call still_rte_lcore_set, or rte_thread_register with DPDK"
            }
            _ => c"there is no lcore {}: lcores are below {}",
        };
        Refusal::invalid(text).with(lcore).with(self.lcores.len())
    }

    /// The number of a list of this instance. No other list has or had it.
    #[inline]
    fn home(&self, lcore: u32) -> u64 {
        self.number * u64::from(MOST_LCORES) + u64::from(lcore)
    }

    /// A list by its number, of any instance. A list of an instance that was freed is not found.
    ///
    /// # Safety
    /// The instance is not freed while the list is used.
    #[inline]
    unsafe fn list(&self, home: u64) -> Option<&Lcore> {
        let (number, lcore) = (home / u64::from(MOST_LCORES), home % u64::from(MOST_LCORES));
        let data = match number == self.number {
            true => self,
            // SAFETY: the instance is not freed meanwhile, by the caller's promise.
            false => unsafe { data((number % INSTANCES as u64) as u32) }
                .ok()
                .filter(|data| data.number == number)?,
        };
        data.lcores.get(lcore as usize)
    }

    /// Takes a timer: step 3. `None`: another thread has it.
    ///
    /// # Safety
    /// The timer's memory is valid. No instance in which the timer is pending is freed meanwhile.
    #[inline]
    unsafe fn take(&self, timer: Handle, lcore: u32) -> Option<Taken<'_>> {
        let call = Call::of(timer);
        let config = Status::of(CONFIG, lcore);
        let taken = loop {
            // SAFETY: the timer's memory is valid, by the caller's promise.
            match unsafe { timer.home() } {
                // SAFETY: the instance is not freed meanwhile, by the caller's promise.
                Ok(home) => match unsafe { self.list(home) } {
                    Some(lcore) => {
                        let list = lcore.list.lock();
                        // SAFETY: as above.
                        if unsafe { timer.home() } == Ok(home) {
                            break Taken::Pending(lcore, list);
                        }
                    }
                    None if home == 0 => return None,
                    // SAFETY: as above. By step 3, the thread that changes `home` has the timer.
                    None => unsafe {
                        let place = &(*timer.0.as_ptr()).home;
                        // Relaxed: `home` has acquired what its writer did. So this list was seen, and its instance was freed.
                        if place.compare_exchange(home, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                            timer.keep(config);
                            break Taken::Out;
                        }
                    },
                },
                Err(word) => {
                    match Status::from(word).state {
                        CONFIG => return None,
                        RUNNING if call.is_none() => return None,
                        _ => {}
                    }
                    // SAFETY: the timer's memory is valid, by the caller's promise.
                    if unsafe { timer.take(word, config) } {
                        break Taken::Out;
                    }
                }
            }
        };
        // SAFETY: the timer's memory is valid, by the caller's promise.
        tsan::acquire(unsafe { timer.status() });
        // Step 5: after the timer's function, `manage` does not touch the timer, which the function may even have initialised again.
        if let Some(call) = call {
            call.set(ptr::null());
        }
        Some(taken)
    }

    /// Calls a function for each timer of a list that is due.
    ///
    /// # Safety
    /// The calling thread is the lcore, and the function may be called with a timer.
    unsafe fn manage(
        &self,
        me: u32,
        list: u32,
        now: u64,
        mut fire: impl FnMut(Handle),
    ) -> Result<(), Refusal> {
        let (mine, served) = (self.lcore(me)?, self.lcore(list)?);
        if now < served.next.load(Ordering::Relaxed) {
            return Ok(());
        }
        served.begin(now);
        Call::with(|call| {
            while !self.is_freed() {
                let Some(timer) = served.pop(me) else { break };
                call.timer.set(timer.0.as_ptr().cast_const().cast());
                fire(timer);
                if call.timer.replace(ptr::null()).is_null() {
                    continue;
                }
                // SAFETY: the function has not stopped or reset the timer, so the timer is still RUNNING here. So it is valid, and no other
                // thread has it: by the header, a function that initialises it again gives it to no other thread.
                unsafe {
                    let place = timer.0.as_ptr();
                    match (*place).period {
                        0 => timer.set(STOPPED),
                        _ if self.is_freed() => timer.set(STOPPED),
                        period => {
                            (*place).expire = (*place).expire.wrapping_add(period);
                            let list = &mut *mine.list.lock();
                            mine.add(list, self.home(me), timer, now, (*place).expire, false);
                        }
                    }
                }
            }
        });
        Ok(())
    }
}

/// The numbers in an array of the program, each read when its turn comes. Once a function has freed the instance, the array may be gone: the
/// rest is not read.
///
/// # Safety
/// `lists` is NULL, or the address of `length` numbers, which stay until the instance is freed.
unsafe fn numbers(data: &Data, lists: *const c_uint, length: c_int) -> impl Iterator<Item = c_uint> + '_ {
    let length = usize::try_from(length).ok().filter(|_| !lists.is_null()).unwrap_or(0);
    // SAFETY: the caller's promise.
    (0..length).map_while(move |at| (!data.is_freed()).then(|| unsafe { lists.add(at).read() }))
}

#[no_mangle]
pub extern "C" fn still_rte_timer_init_(lcores: u32) -> c_int {
    call(|| {
        copies::have(copies::Default::Timers)?;
        let is_new =
            LCORES.load(Ordering::Acquire) == 0 && Data::try_new(lcores)?.publish(DEFAULT as usize).is_ok();
        if !is_new {
            let reason =
                c"the timers were initialised before: to do it again, call rte_timer_subsystem_finalize first";
            return Err(Refusal::new(libc::EALREADY, reason));
        }
        LCORES.store(lcores, Ordering::Release);
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_rte_timer_subsystem_finalize() {
    call(|| {
        LCORES.store(0, Ordering::Release);
        for place in &DATA {
            // SAFETY: the caller promises that timers are not used any more.
            unsafe { Data::free(place) };
        }
        Ok(0)
    });
}

#[no_mangle]
pub unsafe extern "C" fn still_rte_timer_data_alloc(id_ptr: *mut u32) -> c_int {
    call(|| {
        let lcores = LCORES.load(Ordering::Acquire);
        if lcores == 0 {
            return Err(Refusal { errno: libc::ENOMEM, ..no_data(DEFAULT) });
        }
        if id_ptr.is_null() {
            return Err(Refusal::invalid(c"NULL was passed for the place of a number"));
        }
        let mut made = Data::try_new(lcores)?;
        for id in 0..INSTANCES {
            match made.publish(id) {
                Ok(()) => {
                    // SAFETY: the caller passes a place for the number.
                    unsafe { id_ptr.write(id as u32) };
                    return Ok(0);
                }
                Err(again) => made = again,
            }
        }
        let text = c"there are {} instances of timer data: free one by rte_timer_data_dealloc";
        Err(Refusal::new(libc::ENOSPC, text).with(INSTANCES))
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_rte_timer_data_dealloc(id: u32) -> c_int {
    call(|| {
        // SAFETY: the caller promises that the instance is not used any more.
        match DATA.get(id as usize).is_some_and(|place| unsafe { Data::free(place) }) {
            true => Ok(0),
            false => Err(no_data(id)),
        }
    })
}

/// The address of the calling lcore's `turn`. NULL for a thread that has no lcore.
#[no_mangle]
pub unsafe extern "C" fn still_rte_timer_turn_(id: u32, lcore: c_uint) -> *mut u32 {
    // SAFETY: the caller does not free the instance meanwhile.
    let found = unsafe { data(id) }.and_then(|data| data.lcore(lcore));
    found.map_or(ptr::null_mut(), |lcore| lcore.turn.as_ptr())
}

#[no_mangle]
pub unsafe extern "C" fn still_rte_timer_reset_(
    id: u32,
    timer: *mut rte_timer,
    now: u64,
    ticks: u64,
    period: u64,
    lcore: c_uint,
    target: c_uint,
    function: rte_timer_cb_t,
    argument: *mut c_void,
) -> c_int {
    briefly(|| {
        let timer = Handle::new(timer)?;
        // SAFETY: the caller does not free the instance meanwhile.
        let data = unsafe { data(id) }?;
        let to = data.lcore(target)?;
        // SAFETY: the caller passes a timer, and frees no instance in which it is pending.
        let Some(taken) = (unsafe { data.take(timer, lcore) }) else { return Ok(-1) };
        if let Some(mine) = data.lcores.get(lcore as usize) {
            count(&mine.resets);
        }
        let expire = now.wrapping_add(ticks);
        let ahead = if lcore == target { 0 } else { SKEW };
        // SAFETY: this thread has the timer, by step 3. Under the lock of the list that it is pending in, it is taken out, or stays in this list.
        unsafe {
            let here = match taken {
                Taken::Pending(from, list) if ptr::eq(from, to) => Some(list),
                Taken::Pending(_, mut list) => {
                    timer.take_out(&mut list);
                    timer.keep(Status::of(CONFIG, lcore));
                    None
                }
                Taken::Out => None,
            };
            let place = timer.0.as_ptr();
            (*place).expire = expire;
            (*place).period = period;
            (*place).function = function;
            (*place).argument = argument;
            let is_here = here.is_some();
            let mut list = here.unwrap_or_else(|| to.list.lock());
            to.add(&mut list, data.home(target), timer, now.saturating_sub(ahead), expire, is_here);
        }
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_rte_timer_stop_(id: u32, timer: *mut rte_timer, lcore: c_uint) -> c_int {
    briefly(|| {
        let timer = Handle::new(timer)?;
        // SAFETY: the caller does not free the instance meanwhile.
        let data = unsafe { data(id) }?;
        // SAFETY: the caller passes a timer, and frees no instance in which it is pending.
        let Some(mut taken) = (unsafe { data.take(timer, lcore) }) else { return Ok(-1) };
        if let Some(mine) = data.lcores.get(lcore as usize) {
            count(&mine.stops);
        }
        // SAFETY: this thread has the timer, by step 3, and the lock of the list that it is pending in until `taken` is dropped.
        unsafe {
            if let Taken::Pending(_, list) = &mut taken {
                timer.take_out(list);
            }
            timer.set(STOPPED);
        }
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_rte_timer_manage_(id: u32, lcore: c_uint, now: u64) -> c_int {
    let manage = |data: &Data| {
        let fire = |timer: Handle| {
            // SAFETY: the timer is RUNNING here, so no other thread writes it.
            let (function, argument) =
                unsafe { ((*timer.0.as_ptr()).function, (*timer.0.as_ptr()).argument) };
            if let Some(function) = function {
                let _heeded = tsan::heed();
                // SAFETY: the program's function is called with its argument, and no lock is held.
                unsafe { function(timer.c(), argument) };
            }
        };
        // SAFETY: the inline function passes the number of the calling thread.
        unsafe { data.manage(lcore, lcore, now, fire) }
    };
    // SAFETY: the caller does not free the instance meanwhile.
    if let Ok(data) = unsafe { data(id) } {
        if let Ok(mine) = data.lcore(lcore) {
            count(&mine.manages);
            // Checked before the frame of `call`, because most of the time no timer is due.
            if now < mine.next.load(Ordering::Relaxed) {
                return 0;
            }
        }
    }
    // SAFETY: the caller does not free the instance meanwhile.
    call(|| manage(&*unsafe { Walk::begin(id) }?).map(|()| 0))
}

#[no_mangle]
pub unsafe extern "C" fn still_rte_timer_alt_manage_(
    id: u32,
    lcore: c_uint,
    now: u64,
    lists: *const c_uint,
    count_of_lists: c_int,
    function: rte_timer_alt_manage_cb_t,
) -> c_int {
    call(|| {
        // SAFETY: nobody but the function frees the instance meanwhile.
        let data = unsafe { Walk::begin(id) }?;
        let function = function.ok_or_else(|| Refusal::invalid(c"NULL was passed for a function"))?;
        count(&data.lcore(lcore)?.manages);
        let is_any = lists.is_null();
        // SAFETY: the caller passes the address of `count_of_lists` numbers, or NULL.
        let lists = || unsafe { numbers(&data, lists, count_of_lists) };
        // The list of this lcore comes first. Periodic timers are armed again in this list, and a late one must not be due again in the
        // same call.
        let is_own = is_any || lists().any(|list| list == lcore);
        let own = is_own.then_some(lcore);
        for list in own.into_iter().chain(lists().filter(|list| *list != lcore)) {
            // SAFETY: the inline function passes the number of the calling thread, and the program's function may be called with a timer.
            unsafe {
                data.manage(lcore, list, now, |timer| {
                    let _heeded = tsan::heed();
                    function(timer.c());
                })
            }?;
        }
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_rte_timer_next_(id: u32, lcore: c_uint, now: u64) -> i64 {
    let mut left = 0;
    let answer = briefly(|| {
        // SAFETY: the caller does not free the instance meanwhile.
        let list = unsafe { data(id) }?.lcore(lcore)?.list.lock();
        let earliest = list.wheel.earliest_deadline();
        let earliest = earliest.ok_or_else(|| Refusal::new(libc::ENOENT, c"no timer is pending"))?;
        left = i64::try_from(earliest.saturating_sub(now)).unwrap_or(i64::MAX);
        Ok(0)
    });
    if answer < 0 {
        answer.into()
    } else {
        left
    }
}

#[no_mangle]
pub unsafe extern "C" fn still_rte_timer_stop_all(
    id: u32,
    walk_lcores: *mut c_uint,
    nb_walk_lcores: c_int,
    function: rte_timer_stop_all_cb_t,
    argument: *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: nobody but the function frees the instance meanwhile.
        let data = unsafe { Walk::begin(id) }?;
        // SAFETY: the caller passes the address of `nb_walk_lcores` numbers, or NULL.
        for number in unsafe { numbers(&data, walk_lcores, nb_walk_lcores) } {
            let lcore = data.lcore(number)?;
            // So timers that the function adds are not stopped.
            lcore.list.lock().wheel.set_aside();
            let rest = BackInPlace(&data, &lcore.list);
            while !data.is_freed() {
                let mut list = lcore.list.lock();
                let Some(node) = list.wheel.take_aside() else { break };
                let timer = Handle::of(node);
                // SAFETY: by step 1, the timer was pending here, and this thread has it.
                unsafe {
                    timer.popped();
                    timer.set(STOPPED);
                }
                drop(list);
                if let Some(function) = function {
                    let _heeded = tsan::heed();
                    // SAFETY: the program's function is called with its argument, and no lock is held.
                    unsafe { function(timer.c(), argument) };
                }
            }
            mem::forget(rest);
        }
        Ok(0)
    })
}

/// Dropped when the program's function unwinds: the timers that are still aside expire again.
struct BackInPlace<'l>(&'l Data, &'l TryLock<List>);

impl Drop for BackInPlace<'_> {
    fn drop(&mut self) {
        if self.0.is_freed() {
            return;
        }
        let mut list = self.1.lock();
        let now = list.wheel.now();
        list.wheel.set_time(now);
    }
}

impl Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |counter: fn(&Lcore) -> &AtomicU64| -> u64 {
            self.lcores.iter().map(|lcore| counter(lcore).load(Ordering::Relaxed)).sum()
        };
        let pending: usize = self.lcores.iter().map(|lcore| lcore.list.lock().wheel.len()).sum();
        writeln!(f, "timer statistics:")?;
        writeln!(f, "  reset = {}", sum(|lcore| &lcore.resets))?;
        writeln!(f, "  stop = {}", sum(|lcore| &lcore.stops))?;
        writeln!(f, "  manage = {}", sum(|lcore| &lcore.manages))?;
        writeln!(f, "  pending = {pending}")
    }
}

#[no_mangle]
pub unsafe extern "C" fn still_rte_timer_alt_dump_stats(id: u32, f: *mut libc::FILE) -> c_int {
    call(|| {
        // SAFETY: the caller does not free the instance meanwhile.
        let data = unsafe { data(id) }?;
        if f.is_null() {
            return Err(Refusal::invalid(c"NULL was passed for a file"));
        }
        // SAFETY: the caller passes a file.
        unsafe { print(f, data) };
        Ok(0)
    })
}
