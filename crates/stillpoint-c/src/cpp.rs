//! The implementation of `stillpoint/rcu.hpp` and `stillpoint/hazard_pointer.hpp`: two domains, each with a queue of retired objects
//! and a thread that serves it.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::atomic::{compiler_fence, AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

use stillpoint::fence::Mode;
use stillpoint::rcu::raw::{self, CallbackQueue, Function, Paused, Slot};
use stillpoint::rcu::wait::SynchronizeError;
use stillpoint::rcu::{Domain, Reader};
use stillpoint_sys::sync::Lasting;
use stillpoint_sys::tsan;

use crate::border::{call, refuse, Uncancelled};
use crate::copies;
use crate::domain::still_domain;
use crate::handle::{self, Parts};
use crate::own::{self, own, Own};
use crate::reader::{enter, STILL_ATTENTION_, STILL_HAZARD_, STILL_IDLE_, STILL_STATE_};
use crate::report::report;
use crate::rte::Number;
use crate::start::at_ease;
use crate::thread::{count_fork, Blocked};

pub const STILL_RECLAMATION_LAYOUT_: u32 = 2;
pub const STILL_RCU_STATE_: usize = 0;
pub const STILL_RCU_ATTENTION_: usize = 8;
pub const STILL_RCU_FULL_FENCE_: u32 = 1;
pub const STILL_RCU_IDLE_: u64 = 0x8000_0000_0000_0000;
pub const STILL_RCU_HAZARD_: usize = 56;

const _: () = assert!(STILL_RCU_STATE_ == STILL_STATE_ && STILL_RCU_ATTENTION_ == STILL_ATTENTION_);
const _: () = assert!(STILL_RCU_IDLE_ == STILL_IDLE_ && STILL_RCU_HAZARD_ == STILL_HAZARD_ - STILL_STATE_);

/// A thread as a reader, to C++.
#[repr(C)]
pub struct still_rcu_thread_ {
    record: AtomicPtr<u8>,
    token: AtomicPtr<u64>,
    flags: AtomicU32,
    nested: AtomicU32,
    /// The reader, from `Box::into_raw`.
    reader: AtomicPtr<u8>,
}

impl still_rcu_thread_ {
    pub(crate) const fn new() -> Self {
        Self {
            record: AtomicPtr::new(ptr::null_mut()),
            token: AtomicPtr::new(ptr::null_mut()),
            flags: AtomicU32::new(0),
            nested: AtomicU32::new(0),
            reader: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

/// A hazard slot, to C++.
#[repr(C)]
pub struct still_hazard_ {
    slot: *mut *mut c_void,
    /// The address of the domain's token, and [`STILL_RCU_FULL_FENCE_`].
    token: usize,
}

pub type still_reclaim_fn_ = unsafe extern "C" fn(*mut c_void);

/// One of the two domains of the C++ standard.
struct Reclamation {
    domain: Domain,
    queue: CallbackQueue,
    /// [`SERVED`], [`STARTING`], or the number of retirements until the next try to start a thread.
    worker: AtomicU32,
    /// Whether the thread that runs deleters is in a deleter that waits for a grace period, or in one that forks and waits for a deleter of
    /// the other domain. Then that thread may be waiting for a thread that forks.
    waits: AtomicBool,
}

/// A thread serves the queue.
const SERVED: u32 = u32::MAX;
/// A thread is starting the thread that will serve the queue.
const STARTING: u32 = u32::MAX - 1;
/// How many retirements pass from a failed start of a thread to the next try.
const RETRY: u32 = 255;
/// The same, if that start came within a region and ran no deleters. Even, so that the tries do not all come within one where every other
/// retirement does.
const SOON: u32 = 16;

static RCU: Lasting<Reclamation> = Lasting::new();
static HAZARD: Lasting<Reclamation> = Lasting::new();

#[inline]
fn rcu() -> &'static Reclamation {
    RCU.get_or_make(|| make("rcu_default_domain", copies::Default::Rcu))
}

#[inline]
fn hazard() -> &'static Reclamation {
    HAZARD.get_or_make(|| make("hazard_pointer", copies::Default::Hazard))
}

/// Makes a domain with its queue. If another copy of the library has such a domain, that is reported.
fn make(name: &str, default: copies::Default) -> Reclamation {
    let _ignored = tsan::ignore();
    copies::have(default).unwrap_or_else(|refusal| refuse(&refusal));
    let made = |mode| Domain::builder().name(name).fence(mode).build();
    // Another thread may be refused the fence after `Mode::best` has probed it.
    let domain =
        made(Mode::best()).or_else(|_| made(Mode::Symmetric)).expect("the symmetric mode is always there");
    let queue = CallbackQueue::new(&domain);
    Reclamation { domain, queue, worker: AtomicU32::new(0), waits: AtomicBool::new(false) }
}

/// Ends a program that was compiled against another layout. The C++ interface has no way to return an error.
fn check_layout(layout: u32) {
    if layout != STILL_RECLAMATION_LAYOUT_ {
        report(format_args!(
            "the program was compiled against headers of layout {layout}, but the library has layout \
             {STILL_RECLAMATION_LAYOUT_}: recompile it"
        ));
        std::process::abort();
    }
}

/// Reports a wait that can never end, and waits for ever, because the standard gives the function no way to return an error.
fn wait_for_ever(reason: &SynchronizeError) -> ! {
    report(format_args!("this thread waits for itself, and will never continue: {reason}"));
    loop {
        // SAFETY: the function has no preconditions.
        unsafe { libc::pause() };
    }
}

/// Called when the kernel refuses a fence that it offered before. No deleter may run until a fence succeeds. Reports the error once in a
/// process, and pauses before the next try.
fn refused(error: &SynchronizeError) {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    // Relaxed: the flag only chooses the thread that reports.
    if !IS_SAID.swap(true, Ordering::Relaxed) {
        report(format_args!("{error}; nothing is reclaimed until the kernel issues the fence"));
    }
    std::thread::sleep(Duration::from_millis(10));
}

impl Reclamation {
    /// Starts a thread that serves the queue, unless there is one.
    #[inline]
    fn serve(&'static self) {
        // Relaxed: a hint.
        if self.worker.load(Ordering::Relaxed) != SERVED {
            self.start();
        }
    }

    #[cold]
    #[inline(never)]
    fn start(&'static self) {
        // Relaxed: everything that servers share is in the queue.
        let next = |worker: u32| match worker {
            SERVED | STARTING => None,
            0 => Some(STARTING),
            left => Some(left - 1),
        };
        if self.worker.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) != Ok(0) {
            return;
        }
        let is_there = self.spawn();
        // Within a region, a deleter that synchronizes would wait for ever.
        let polls = !is_there && domains()[0].is_none_or(|rcu| raw::blocked_by_caller(&rcu.domain).is_ok());
        let next = match (is_there, polls) {
            (true, _) => SERVED,
            (_, true) => RETRY,
            (_, false) => SOON,
        };
        // Relaxed: everything that servers share is in the queue.
        self.worker.store(next, Ordering::Relaxed);
        if polls {
            // Deleters may reach cancellation points.
            let _whole = Uncancelled::new();
            let _ignored = tsan::ignore();
            self.queue.poll(2 * RETRY as usize);
        }
    }

    /// Starts a thread by `pthread_create`: this may run in the last destructors of a thread, where `std::thread` does not work.
    fn spawn(&'static self) -> bool {
        extern "C" fn run(this: *mut c_void) -> *mut c_void {
            // SAFETY: `this` is leaked.
            let this = unsafe { &*this.cast_const().cast::<Reclamation>() };
            own().is_worker.set(true);
            // Here, so that no deleter runs with what this thread has inherited. The starting thread makes the same call below, because
            // with an inherited priority this thread may never get to run.
            // SAFETY: the calling thread is alive.
            unsafe { at_ease(libc::pthread_self()) };
            // SAFETY: the name ends with a zero and has less than 16 characters.
            unsafe { libc::pthread_setname_np(libc::pthread_self(), c"stillpoint-cpp".as_ptr()) };
            let _whole = Uncancelled::new();
            let _ignored = tsan::ignore();
            this.queue.run();
            ptr::null_mut()
        }

        let blocked = Blocked::all();
        let mut thread = MaybeUninit::uninit();
        let this = ptr::from_ref(self).cast_mut().cast();
        // SAFETY: `run` accepts this value.
        let is_there = unsafe { libc::pthread_create(thread.as_mut_ptr(), ptr::null(), run, this) } == 0;
        drop(blocked);
        if is_there {
            // SAFETY: the thread was made above, never ends, and is not joined.
            unsafe {
                let thread = thread.assume_init();
                at_ease(thread);
                libc::pthread_detach(thread);
            }
        }
        is_there
    }

    fn barrier(&self) {
        let _whole = Uncancelled::new();
        let _ignored = tsan::ignore();
        if raw::is_within_foreign_code() {
            report(format_args!(
                "a deleter cannot wait for deleters, since it could wait for itself: the call returned at once"
            ));
            return;
        }
        // If no deleter is scheduled, open regions do not matter.
        while !self.is_idle() {
            match self.queue.barrier() {
                Ok(()) => return,
                Err(error @ SynchronizeError::Fence(_)) => refused(&error),
                Err(error) => wait_for_ever(&error),
            }
        }
    }

    /// Whether every callback that was pushed before has returned. While the queue is paused, no callback is running, so all callbacks that
    /// count as called have returned.
    fn is_idle(&self) -> bool {
        let _paused = self.queue.pause();
        self.queue.pending() == 0
    }

    fn handle(&self) -> *mut still_domain {
        call(|| handle::make(|| Ok((self.domain.clone(), Parts::default()))))
    }
}

/// # Safety
/// `function` is a C++ function that takes the address of a node, and throws no exception.
unsafe fn function(function: still_reclaim_fn_) -> Function {
    // SAFETY: the caller's promise; nodes are not null.
    unsafe { std::mem::transmute::<still_reclaim_fn_, Function>(function) }
}

/// Registers the calling thread.
///
/// This function and those below cannot return an error. They do not unwind: a panic ends the process, as in every `extern "C"` function.
#[no_mangle]
pub extern "C" fn still_rcu_begin_(layout: u32) -> *mut still_rcu_thread_ {
    check_layout(layout);
    let _whole = Uncancelled::new();
    let _ignored = tsan::ignore();
    let this = own().rcu();
    // SAFETY: the part of the thread's block, which C++ accesses only in between.
    let thread = unsafe { &*this };
    let reader = Box::new(rcu().domain.reader());
    let parts = raw::Parts::of(&reader);
    let flags = if parts.needs_full_fence() { STILL_RCU_FULL_FENCE_ } else { 0 };
    // Relaxed, all: only this thread uses the fields.
    thread.token.store(parts.token().as_ptr(), Ordering::Relaxed);
    thread.flags.store(flags, Ordering::Relaxed);
    thread.nested.store(0, Ordering::Relaxed);
    let record = parts.record().as_ptr();
    thread.reader.store(Box::into_raw(reader).cast(), Ordering::Relaxed);
    // Last: a signal handler that finds the record finds all of it.
    compiler_fence(Ordering::SeqCst);
    thread.record.store(record, Ordering::Relaxed);
    this
}

/// Ends the reader of a thread after the destructors of its thread-locals.
///
/// If the process had used up its keys when it loaded the library by `dlopen`, the record stays after the thread's end, and a region
/// that was left open is never closed.
pub(crate) fn end(own: &Own) {
    // If a signal handler took an rcu lock here, it would lose its region, or keep a record that another thread gets.
    let _blocked = Blocked::with_profilers();
    // SAFETY: the part of the thread's block, which C++ does not access meanwhile.
    let thread = unsafe { &*own.rcu() };
    // Relaxed, all: only this thread uses the fields. A destructor in a later round registers the thread again.
    thread.record.store(ptr::null_mut(), Ordering::Relaxed);
    thread.nested.store(0, Ordering::Relaxed);
    let reader = thread.reader.swap(ptr::null_mut(), Ordering::Relaxed).cast::<Reader>();
    if !reader.is_null() {
        // SAFETY: `reader` came from `Box::into_raw`, and the swap took it out. The drop ends a region that is open.
        drop(unsafe { Box::from_raw(reader) });
    }
}

/// Begins a region of a reader that was away.
#[no_mangle]
pub unsafe extern "C" fn still_rcu_enter_(this: *mut still_rcu_thread_) {
    let _ignored = tsan::ignore();
    // Relaxed: only this thread uses the field.
    // SAFETY: the caller passes its own thread's variable, which has a reader.
    let reader = unsafe { &*(*this).reader.load(Ordering::Relaxed).cast_const().cast::<Reader>() };
    // SAFETY: this is the reader's thread.
    unsafe { enter(reader) };
}

#[no_mangle]
pub unsafe extern "C" fn still_rcu_answer_(this: *mut still_rcu_thread_) {
    // Relaxed: only this thread uses the field.
    // SAFETY: the caller passes its own thread's variable, which has a reader.
    let reader = unsafe { &*(*this).reader.load(Ordering::Relaxed).cast_const().cast::<Reader>() };
    // SAFETY: this is the reader's thread.
    unsafe { raw::Parts::of(reader).answer() };
}

#[no_mangle]
pub extern "C" fn still_rcu_synchronize_() {
    let _whole = Uncancelled::new();
    let _ignored = tsan::ignore();
    let _waiting = Waiting::begin();
    let domain = &rcu().domain;
    // One grace period for all tries: a fence of another thread may serve it.
    let token = domain.start();
    loop {
        // The standard lets deleters wait for regions. A region that waits for a deleter, in a barrier, waits for itself in any case.
        match raw::let_wait(|| domain.wait(token)) {
            Ok(()) => return,
            Err(error @ SynchronizeError::Fence(_)) => refused(&error),
            Err(error) => wait_for_ever(&error),
        }
    }
}

#[no_mangle]
pub extern "C" fn still_rcu_barrier_() {
    rcu().barrier();
}

#[no_mangle]
pub unsafe extern "C" fn still_rcu_retire_(node: *mut c_void, reclaim: still_reclaim_fn_) {
    let rcu = rcu();
    // SAFETY: the caller passes two words, which are not null, and a function that may be called with them.
    unsafe { rcu.queue.push(NonNull::new_unchecked(node).cast(), function(reclaim)) };
    rcu.serve();
}

#[no_mangle]
pub extern "C" fn still_rcu_domain_() -> *mut still_domain {
    rcu().handle()
}

#[no_mangle]
pub extern "C" fn still_hazard_make_(layout: u32) -> still_hazard_ {
    check_layout(layout);
    let _ignored = tsan::ignore();
    let domain = &hazard().domain;
    let slot = Slot::of_nobody(domain).into_raw().as_ptr().cast();
    let fence = if Slot::needs_full_fence(domain) { STILL_RCU_FULL_FENCE_ } else { 0 };
    still_hazard_ { slot, token: Slot::token(domain).as_ptr().expose_provenance() + fence as usize }
}

#[no_mangle]
pub unsafe extern "C" fn still_hazard_free_(slot: *mut *mut c_void) {
    // SAFETY: the caller passes a slot from `still_hazard_make_`, and does not use it any more.
    unsafe { Slot::from_raw(NonNull::new_unchecked(slot).cast()).give_back(&hazard().domain) };
}

#[no_mangle]
pub unsafe extern "C" fn still_hazard_retire_(
    node: *mut c_void,
    object: *const c_void,
    reclaim: still_reclaim_fn_,
) {
    let hazard = hazard();
    // SAFETY: the caller passes three words, which are not null, the address that hazard pointers protect, and a
    // function that may be called with the words.
    unsafe {
        hazard.queue.push_object(NonNull::new_unchecked(node).cast(), object.cast(), function(reclaim))
    };
    hazard.serve();
}

#[no_mangle]
pub extern "C" fn still_hazard_clean_up_() {
    hazard().barrier();
}

#[no_mangle]
pub extern "C" fn still_hazard_domain_() -> *mut still_domain {
    hazard().handle()
}

// What happens around a `fork`.

/// What a thread holds while it forks.
pub(crate) struct Forking {
    _pauses: [Option<Paused>; 2],
    _waiting: Waiting,
}

fn domains() -> [Option<&'static Reclamation>; 2] {
    [&RCU, &HAZARD].map(Lasting::get)
}

/// The domains whose deleters the calling thread runs.
fn served_here() -> impl Iterator<Item = &'static Reclamation> {
    domains().into_iter().flatten().filter(|found| found.queue.is_served_here())
}

/// While this value lives, the calling thread waits, perhaps in a deleter.
struct Waiting;

impl Waiting {
    fn begin() -> Self {
        for found in served_here() {
            // Relaxed: the wake below makes a sleeping `prepare` read it again.
            found.waits.store(true, Ordering::Relaxed);
            found.queue.wake();
        }
        Self
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Relaxed: as in `begin`.
        served_here().for_each(|found| found.waits.store(false, Ordering::Relaxed));
    }
}

/// Registers our handlers of `fork`. This comes before the program's own code: the program's handlers, which may use the domains, then run
/// before ours at the start of a `fork` and after ours at its end.
pub(crate) fn prepare_process() {
    // SAFETY: the functions may be called at any time. If there is no memory, no thread serves the queues in a child, and its reports
    // name its parent's thread.
    unsafe { libc::pthread_atfork(Some(prepare), Some(after_in_parent), Some(after_in_child)) };
}

/// Pauses the deleters while the process forks, except a deleter that forks, and one that waits for the forking thread.
unsafe extern "C" fn prepare() {
    // Programs that use neither domain may fork where nothing may be allocated.
    if domains().iter().all(Option::is_none) {
        return;
    }
    let waiting = Waiting::begin();
    let pauses = domains().map(|found| {
        found.map(|found| {
            let may_be_waited_for = || {
                served_here().next().is_some()
                    || domains()[0].is_some_and(|rcu| raw::blocked_by_caller(&rcu.domain).is_err())
            };
            // Relaxed: `Waiting::begin` wakes the queue after it has set this.
            found.queue.pause_to_fork(|| found.waits.load(Ordering::Relaxed) && may_be_waited_for())
        })
    });
    own().forking.set(Box::into_raw(Box::new(Forking { _pauses: pauses, _waiting: waiting })));
}

unsafe extern "C" fn after_in_parent() {
    let Some(own) = own::find() else { return };
    let forking = own.forking.replace(ptr::null_mut());
    if !forking.is_null() {
        // SAFETY: `prepare` made the value, on this thread.
        drop(unsafe { Box::from_raw(forking) });
    }
}

unsafe extern "C" fn after_in_child() {
    count_fork();
    let own = own::find();
    if let Some(own) = own {
        own.tid.set(0);
    }
    Number::reset_after_fork(own.map(|own| &own.lcore));
    for found in domains().into_iter().flatten() {
        // SAFETY: this is the only thread. `rcu.hpp` and `hazard_pointer.hpp` state what the child may no longer use.
        unsafe { found.domain.reset_after_fork() };
        // SAFETY: this is the only thread.
        unsafe { found.queue.reset_after_fork() };
        // Relaxed, both: there is no other thread.
        found.waits.store(false, Ordering::Relaxed);
        if !(own.is_some_and(|own| own.is_worker.get()) && found.queue.is_served_here()) {
            // The next retirement starts a thread.
            found.worker.store(0, Ordering::Relaxed);
        }
    }
    // SAFETY: this is the thread that called `prepare`, as in the parent.
    unsafe { after_in_parent() };
}
