//! What is behind `stillpoint/rcu.hpp` and `stillpoint/hazard_pointer.hpp`: two domains, each with a queue of what is retired and
//! a thread that serves it.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

use stillpoint::fence::Mode;
use stillpoint::rcu::raw::{self, CallbackQueue, Function, Paused, Slot};
use stillpoint::rcu::{Domain, Reader, SynchronizeError};
use stillpoint_sys::os::ThreadEnd;

use crate::border::Uncancelled;
use crate::domain::still_domain;
use crate::handle::{self, Parts};
use crate::reader::{STILL_ATTENTION_, STILL_STATE_};
use crate::report::report;
use crate::start::at_ease;
use crate::thread::Blocked;

pub const STILL_RECLAMATION_LAYOUT_: u32 = 1;
pub const STILL_RCU_STATE_: usize = 0;
pub const STILL_RCU_ATTENTION_: usize = 8;
pub const STILL_RCU_FULL_FENCE_: u32 = 1;

const _: () = assert!(STILL_RCU_STATE_ == STILL_STATE_ && STILL_RCU_ATTENTION_ == STILL_ATTENTION_);

/// The calling thread as a reader, to C++: `still_rcu_self_`, which Rust code reaches by what it is handed only.
#[repr(C)]
pub struct still_rcu_thread_ {
    record: AtomicPtr<u8>,
    token: AtomicPtr<u64>,
    flags: AtomicU32,
    nested: AtomicU32,
    /// From `Box::into_raw`.
    reader: AtomicPtr<u8>,
}

// Exported thread-local state, which stable Rust cannot define otherwise.
std::arch::global_asm!(
    ".pushsection .tbss.still_rcu_self_,\"awT\",%nobits",
    ".globl still_rcu_self_",
    ".type still_rcu_self_, %object",
    ".size still_rcu_self_, {size}",
    ".balign {align}",
    "still_rcu_self_:",
    ".zero {size}",
    ".popsection",
    size = const size_of::<still_rcu_thread_>(),
    align = const align_of::<still_rcu_thread_>(),
);

/// A slot, to C++.
#[repr(C)]
pub struct still_hazard_ {
    slot: *mut *mut c_void,
    full_fence: usize,
}

pub type still_reclaim_fn_ = unsafe extern "C" fn(*mut c_void);

/// A domain of the standard's.
struct Reclamation {
    domain: Domain,
    queue: CallbackQueue,
    /// [`SERVED`], [`STARTING`], or how many retirements are left until a thread is to be started.
    worker: AtomicU32,
    /// Whether the thread that runs deleters is in one that waits: for a grace period, or for the deleter of another domain before it
    /// forks. What it waits for may be a thread that forks.
    waits: AtomicBool,
}

/// A thread serves the queue.
const SERVED: u32 = u32::MAX;
/// A thread starts the one that will.
const STARTING: u32 = u32::MAX - 1;
/// Retirements from one that has failed to start a thread to the next that tries it.
const RETRY: u32 = 255;

static RCU: AtomicPtr<Reclamation> = AtomicPtr::new(ptr::null_mut());
static HAZARD: AtomicPtr<Reclamation> = AtomicPtr::new(ptr::null_mut());

#[inline]
fn rcu() -> &'static Reclamation {
    found(&RCU, "rcu_default_domain")
}

#[inline]
fn hazard() -> &'static Reclamation {
    found(&HAZARD, "hazard_pointer")
}

#[inline]
fn found(place: &'static AtomicPtr<Reclamation>, name: &str) -> &'static Reclamation {
    // Acquire: pairs with the release in `make`.
    // SAFETY: null, or leaked by `make`.
    unsafe { place.load(Ordering::Acquire).as_ref() }.unwrap_or_else(|| make(place, name))
}

/// Without a lock: a `fork` by another thread leaves nothing half made.
#[cold]
#[inline(never)]
fn make(place: &'static AtomicPtr<Reclamation>, name: &str) -> &'static Reclamation {
    // No provider of fences: it would have to reach the threads that have a hazard pointer at the moment.
    let mode = if Mode::best() == Mode::Asymmetric { Mode::Asymmetric } else { Mode::Symmetric };
    let domain = Domain::builder().name(name).fence(mode).build().expect("it was probed");
    let queue = CallbackQueue::new(&domain);
    let made = Box::into_raw(Box::new(Reclamation {
        domain,
        queue,
        worker: AtomicU32::new(0),
        waits: AtomicBool::new(false),
    }));
    // Release: pairs with the acquire in `found`; acquire: another thread's is used.
    match place.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: it is leaked.
        Ok(_) => unsafe { &*made },
        Err(others) => {
            // SAFETY: it came from `Box::into_raw`, and nobody else knows of it.
            drop(unsafe { Box::from_raw(made) });
            // SAFETY: leaked.
            unsafe { &*others }
        }
    }
}

/// Ends a program that was compiled against another layout of what inline code touches: there is nobody to tell.
fn check_layout(layout: u32) {
    if layout != STILL_RECLAMATION_LAYOUT_ {
        report(&format!(
            "the program was compiled against headers of layout {layout}, but the library has layout \
             {STILL_RECLAMATION_LAYOUT_}: compile it again"
        ));
        std::process::abort();
    }
}

/// A wait that would never end, as the standard has it: it is said once, and not ended.
fn wait_for_ever(reason: &SynchronizeError) -> ! {
    report(&format!("this thread waits for itself, for ever: {reason}"));
    loop {
        // SAFETY: always allowed.
        unsafe { libc::pause() };
    }
}

/// The kernel refuses a fence that it has offered: nothing may go on before it is issued.
fn refused(error: &SynchronizeError) {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    // Relaxed: to say it once.
    if !IS_SAID.swap(true, Ordering::Relaxed) {
        report(&format!("{error}; nothing is reclaimed before that changes"));
    }
    std::thread::sleep(Duration::from_millis(10));
}

impl Reclamation {
    /// A thread that serves the queue, unless there is one.
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
        // Relaxed: what the queue's servers share is in the queue.
        let next = |worker: u32| match worker {
            SERVED | STARTING => None,
            0 => Some(STARTING),
            left => Some(left - 1),
        };
        if self.worker.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) != Ok(0) {
            return;
        }
        let is_there = self.spawn();
        // Relaxed: as above.
        self.worker.store(if is_there { SERVED } else { RETRY }, Ordering::Relaxed);
        if !is_there {
            // Deleters may reach points where libc cancels.
            let _whole = Uncancelled::new();
            self.queue.poll(2 * RETRY as usize);
        }
    }

    /// Starts a thread. By hand: this may run in the last destructors of a thread, where Rust's threads cannot be made.
    fn spawn(&'static self) -> bool {
        extern "C" fn run(this: *mut c_void) -> *mut c_void {
            // SAFETY: it is leaked.
            let this = unsafe { &*this.cast_const().cast::<Reclamation>() };
            WORKER.set(true);
            // SAFETY: this thread. Before its first deleter; and whoever has made it does the same, in case that it never lets this one run.
            unsafe { at_ease(libc::pthread_self()) };
            // SAFETY: the calling thread's name, which is short enough.
            unsafe { libc::pthread_setname_np(libc::pthread_self(), c"stillpoint-cpp".as_ptr()) };
            let _whole = Uncancelled::new();
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
            // SAFETY: the thread was made above, and never ends; it is joined by nobody.
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
        if self.queue.is_served_here() {
            report("a deleter does not wait for deleters; it goes on");
            return;
        }
        // Whatever regions are open.
        while !self.is_idle() {
            match self.queue.barrier() {
                Ok(()) => return,
                Err(error @ SynchronizeError::Fence(_)) => refused(&error),
                Err(error) => wait_for_ever(&error),
            }
        }
    }

    /// Whether everything that was pushed before has been called. While nobody has the turn, what is counted as called is over;
    /// and what was called was pushed before, so that the counts say so.
    fn is_idle(&self) -> bool {
        let _paused = self.queue.pause();
        self.queue.pending() == 0
    }

    fn handle(&self) -> *mut still_domain {
        handle::make(self.domain.clone(), Parts::default())
    }
}

/// # Safety
/// `function` is one of C++ that takes the address of a node, and raises no exception.
unsafe fn function(function: still_reclaim_fn_) -> Function {
    // SAFETY: the caller's promise; nodes are not null.
    unsafe { std::mem::transmute::<still_reclaim_fn_, Function>(function) }
}

/// What follows unwinds nowhere: a panic ends the process, as `extern "C"` has it. There is nobody to tell of it.
#[no_mangle]
pub unsafe extern "C" fn still_rcu_begin_(this: *mut still_rcu_thread_, layout: u32) {
    check_layout(layout);
    let _whole = Uncancelled::new();
    // SAFETY: the caller hands in its own thread's.
    let thread = unsafe { &*this };
    let reader = Box::new(rcu().domain.reader());
    let parts = raw::Parts::of(&reader);
    let flags = if parts.needs_full_fence() { STILL_RCU_FULL_FENCE_ } else { 0 };
    // Relaxed, all: the thread's own.
    thread.token.store(parts.token().as_ptr(), Ordering::Relaxed);
    thread.flags.store(flags, Ordering::Relaxed);
    thread.nested.store(0, Ordering::Relaxed);
    thread.record.store(parts.record().as_ptr(), Ordering::Relaxed);
    thread.reader.store(Box::into_raw(reader).cast(), Ordering::Relaxed);
    // SAFETY: the function accepts this value. Where it is not called, the record stays.
    unsafe { END.call_with(this.cast()) };
}

/// Has the reader of a thread end after the destructors of its thread-locals.
///
/// A process that has no key left for it, because it had taken them all before it loaded the library by `dlopen`, keeps the record
/// after the thread's end. Then a region that was left open is never closed.
static END: ThreadEnd = {
    unsafe extern "C" fn end(thread: *mut c_void) {
        // A handler that locked here would have its region ended, or keep a record that is another thread's.
        let _blocked = Blocked::all();
        // SAFETY: `still_rcu_begin_` has named it on this thread, whose thread-local memory is still there.
        let thread = unsafe { &*thread.cast_const().cast::<still_rcu_thread_>() };
        // Relaxed, all: the thread's own. Destructors of a later round begin anew.
        thread.record.store(ptr::null_mut(), Ordering::Relaxed);
        thread.nested.store(0, Ordering::Relaxed);
        let reader = thread.reader.swap(ptr::null_mut(), Ordering::Relaxed).cast::<Reader>();
        if !reader.is_null() {
            // SAFETY: it came from `Box::into_raw`, and nobody finds it any more. A region that is open ends.
            drop(unsafe { Box::from_raw(reader) });
        }
    }

    ThreadEnd::new(end)
};

#[no_mangle]
pub unsafe extern "C" fn still_rcu_answer_(this: *mut still_rcu_thread_) {
    // Relaxed: the thread's own.
    // SAFETY: the caller hands in its own thread's, which has a reader.
    let reader = unsafe { &*(*this).reader.load(Ordering::Relaxed).cast_const().cast::<Reader>() };
    // SAFETY: this is the reader's thread.
    unsafe { raw::Parts::of(reader).answer() };
}

#[no_mangle]
pub extern "C" fn still_rcu_synchronize_() {
    let _whole = Uncancelled::new();
    let _waiting = Waiting::begin();
    loop {
        match rcu().domain.synchronize() {
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
    // SAFETY: the caller hands in two words of its own, which are not null, and a function that may be called with them.
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
    let domain = &hazard().domain;
    let slot = Slot::of_nobody(domain).into_raw().as_ptr().cast();
    still_hazard_ { slot, full_fence: usize::from(Slot::needs_full_fence(domain)) }
}

#[no_mangle]
pub unsafe extern "C" fn still_hazard_free_(slot: *mut *mut c_void) {
    // SAFETY: the caller hands in what `still_hazard_make_` has returned, and does not use it any more.
    unsafe { Slot::from_raw(NonNull::new_unchecked(slot).cast()).give_back(&hazard().domain) };
}

#[no_mangle]
pub unsafe extern "C" fn still_hazard_retire_(
    node: *mut c_void,
    object: *const c_void,
    reclaim: still_reclaim_fn_,
) {
    let hazard = hazard();
    // SAFETY: the caller hands in three words of its own, which are not null, the address that hazard pointers protect, and a
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

// What a `fork` finds.

thread_local! {
    /// Whether this thread was started to serve a queue.
    static WORKER: Cell<bool> = const { Cell::new(false) };
    /// The `fork` that this thread is in, from `Box::into_raw`.
    static FORKING: Cell<*mut Forking> = const { Cell::new(ptr::null_mut()) };
}

struct Forking {
    _pauses: [Option<Paused>; 2],
    _waiting: Waiting,
}

fn domains() -> [Option<&'static Reclamation>; 2] {
    // Acquire: pairs with the release in `make`.
    // SAFETY: null, or leaked by `make`.
    [&RCU, &HAZARD].map(|place| unsafe { place.load(Ordering::Acquire).as_ref() })
}

/// The domains whose deleters the calling thread runs.
fn served_here() -> impl Iterator<Item = &'static Reclamation> {
    domains().into_iter().flatten().filter(|found| found.queue.is_served_here())
}

/// While it lives, the calling thread waits, perhaps in a deleter.
struct Waiting;

impl Waiting {
    fn begin() -> Self {
        for found in served_here() {
            // Relaxed: who sleeps for it is woken.
            found.waits.store(true, Ordering::Relaxed);
            found.queue.wake();
        }
        Self
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Relaxed: as above.
        served_here().for_each(|found| found.waits.store(false, Ordering::Relaxed));
    }
}

/// Before the program's own code runs: its handlers of `fork`, which may use the domains, are to be called around ours; and it may
/// take all keys.
pub(crate) fn prepare_process() {
    extern "C" {
        fn pthread_atfork(
            prepare: Option<unsafe extern "C" fn()>,
            parent: Option<unsafe extern "C" fn()>,
            child: Option<unsafe extern "C" fn()>,
        ) -> c_int;
    }
    // SAFETY: functions that may be called at any time. Where there is no memory, children have queues that nobody serves.
    unsafe { pthread_atfork(Some(prepare), Some(after_in_parent), Some(after_in_child)) };
    END.reserve();
}

/// No deleter runs while the process forks, unless it is a deleter that forks, or one that waits for the thread that does.
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
                    || domains()[0].is_some_and(|rcu| raw::held_up_by_caller(&rcu.domain).is_err())
            };
            // Relaxed: whoever sets it wakes the queue.
            found.queue.pause_to_fork(|| found.waits.load(Ordering::Relaxed) && may_be_waited_for())
        })
    });
    FORKING.set(Box::into_raw(Box::new(Forking { _pauses: pauses, _waiting: waiting })));
}

unsafe extern "C" fn after_in_parent() {
    let forking = FORKING.replace(ptr::null_mut());
    if !forking.is_null() {
        // SAFETY: from `prepare`, on this thread.
        drop(unsafe { Box::from_raw(forking) });
    }
}

unsafe extern "C" fn after_in_child() {
    for found in domains().into_iter().flatten() {
        // SAFETY: this is the only thread, and `hazard_pointer.hpp` and `rcu.hpp` say what regions of other threads are good for.
        unsafe { found.domain.reset_after_fork() };
        // SAFETY: this is the only thread.
        unsafe { found.queue.reset_after_fork() };
        // Relaxed, both: there is no other thread.
        found.waits.store(false, Ordering::Relaxed);
        if !(WORKER.get() && found.queue.is_served_here()) {
            // The next retirement starts one.
            found.worker.store(0, Ordering::Relaxed);
        }
    }
    // SAFETY: those of before the `fork` are over.
    unsafe { after_in_parent() };
}
