//! Workers of `call_rcu`: a queue and a thread.
//!
//! A worker's memory is never freed, but used again: a thread that has read a worker's address may push to the worker although it was
//! freed meanwhile. The thread then finds the door closed, and pushes to the default worker.

mod calls;
mod cpus;

pub use calls::*;

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_int;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;
use std::time::Instant;

use stillpoint::rcu::raw::{self, Callback, CallbackQueue, Paused};
use stillpoint_sys::os;
use stillpoint_sys::sync::Door;

use self::cpus::possible_cpus;
use super::flavour::{Flavour, Locked};
use super::reader::{acquires, frame, offline_frame, plain_frame, releases, AGAIN};
use crate::border::Refusal;
use crate::own;
use crate::report::report;
use crate::start::Cpus;
use crate::thread::{Thread, Threading};

/// liburcu's struct, to C.
#[repr(C)]
pub struct call_rcu_data {
    _private: [u8; 0],
}

/// The two words of a callback, to C.
#[repr(C)]
pub struct rcu_head {
    _private: [u8; 0],
}

pub(super) struct Worker {
    pub(super) queue: CallbackQueue,
    flavour: &'static Flavour,
    /// The door that a thread passes while it pushes. It is closed when the worker is freed.
    door: Door,
    /// Whether this is the default worker, or the worker of deferred calls. These two are never freed.
    is_lasting: bool,
    has_thread: AtomicBool,
    /// The thread, to C.
    pthread: AtomicU64,
    /// The state, which is used only under the flavour's lock.
    state: UnsafeCell<State>,
}

#[derive(Default)]
struct State {
    thread: Option<Thread>,
    cpu: Option<usize>,
    /// The time at which the start of a thread failed last.
    failed: Option<Instant>,
    /// Whether the worker is freed and its thread has ended, but its callbacks were not passed on yet, because a fork was under way.
    is_to_bury: bool,
}

// SAFETY: the state is used only under the flavour's lock, and the other fields are `Sync`.
unsafe impl Sync for Worker {}

/// The parts of a flavour that `call_rcu` reads without a lock.
pub(super) struct Shared {
    default: AtomicPtr<Worker>,
    of_cpus: OnceLock<Box<[AtomicPtr<Worker>]>>,
    deferred: AtomicPtr<Worker>,
    /// 1 from [`Flavour::begin_fork`] to [`Flavour::end_fork`], 0 otherwise. A futex.
    pub(super) forking: AtomicU32,
    /// The number of barriers that are called in callbacks. A futex.
    inner_barriers: AtomicU32,
}

/// The value under the flavour's lock.
pub(super) struct Workers {
    /// The workers in use, with the default worker, but without the worker of deferred calls.
    pub(super) live: Vec<&'static Worker>,
    freed: Vec<&'static Worker>,
    /// Whether a thread is about to fork, or between the hooks of a fork. During that time, queues are paused.
    pub(super) is_forking: bool,
    /// The pauses of the fork whose thread keeps the lock.
    pub(super) pauses: Vec<Paused>,
    /// The pauses of workers that were made during the fork.
    pub(super) born_paused: Vec<Paused>,
    pub(super) atfork: *mut super::fork::urcu_atfork,
    pub(super) atforks: usize,
}

// SAFETY: the hooks' address is used only under the lock.
unsafe impl Send for Workers {}

/// See [`Flavour::within_barrier`].
pub(super) struct InnerBarrier(&'static Flavour);

impl Drop for InnerBarrier {
    fn drop(&mut self) {
        let barriers = &self.0.shared.inner_barriers;
        if barriers.fetch_sub(1, Ordering::SeqCst) == 1 {
            os::wake_all(barriers);
        }
    }
}

impl Shared {
    pub(super) const fn new() -> Self {
        Self {
            default: AtomicPtr::new(ptr::null_mut()),
            of_cpus: OnceLock::new(),
            deferred: AtomicPtr::new(ptr::null_mut()),
            forking: AtomicU32::new(0),
            inner_barriers: AtomicU32::new(0),
        }
    }
}

impl Workers {
    pub(super) const fn new() -> Self {
        Self {
            live: Vec::new(),
            freed: Vec::new(),
            is_forking: false,
            pauses: Vec::new(),
            born_paused: Vec::new(),
            atfork: ptr::null_mut(),
            atforks: 0,
        }
    }
}

fn worker_at(place: &AtomicPtr<Worker>) -> Option<&'static Worker> {
    // Acquire: pairs with the release that stores the worker's address. SAFETY: workers are never freed.
    unsafe { place.load(Ordering::Acquire).as_ref() }
}

impl Worker {
    fn make(flavour: &'static Flavour, is_lasting: bool) -> &'static Self {
        Self::with_frame(flavour, is_lasting, if flavour.is_qsbr() { frame } else { plain_frame })
    }

    fn with_frame(flavour: &'static Flavour, is_lasting: bool, frame: fn(bool)) -> &'static Self {
        let queue = CallbackQueue::with_frame(&flavour.group().domain, frame);
        Box::leak(Box::new(Self {
            queue,
            flavour,
            door: Door::new(),
            is_lasting,
            has_thread: AtomicBool::new(false),
            pthread: AtomicU64::new(0),
            state: UnsafeCell::default(),
        }))
    }

    /// Pauses the queue of a new worker if a fork is under way, since the fork does not look for new workers.
    fn is_born(&self, lock: &mut Locked<'_, Workers>) {
        if lock.is_forking {
            // No thread serves it yet, so a callback that makes a worker does not wait here.
            lock.born_paused.push(raw::let_wait(|| self.queue.pause()));
        }
    }

    fn to_c(&self) -> *mut call_rcu_data {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Starts the thread of a worker that has none.
    fn start(&'static self, lock: &Locked<'_, Workers>) -> std::io::Result<()> {
        // SAFETY: the caller holds the lock.
        let state = unsafe { &mut *self.state.get() };
        if self.has_thread.load(Ordering::Relaxed) {
            return Ok(());
        }
        if lock.is_borrowed() {
            // No thread serves a queue while the process forks.
            return Err(std::io::Error::from_raw_os_error(libc::EBUSY));
        }
        let cpu = state.cpu;
        let options = Threading::named(c"call_rcu").by_itself(self.is_lasting);
        match Thread::start(options, move || self.run(cpu)) {
            Ok(thread) => {
                self.pthread.store(thread.id(), Ordering::Relaxed);
                state.thread = Some(thread);
                state.failed = None;
                // Relaxed: a hint.
                self.has_thread.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                state.failed = Some(Instant::now());
                Err(error)
            }
        }
    }

    /// Starts a thread if the worker has none, unless the last try has just failed. Returns whether the worker has a thread.
    pub(super) fn has_thread(&'static self) -> bool {
        // Relaxed: a hint.
        if self.has_thread.load(Ordering::Relaxed) {
            return true;
        }
        let lock = self.flavour.lock();
        // SAFETY: the caller holds the lock.
        let failed = unsafe { (*self.state.get()).failed };
        if self.door.is_closed()
            || lock.is_borrowed()
            || failed.is_some_and(|failed| failed.elapsed() < AGAIN)
        {
            return false;
        }
        let Err(error) = self.start(&lock) else { return true };
        drop(lock);
        let name = self.flavour.name();
        report(format_args!(
            "urcu-{name}: the thread of a worker could not be started, and will be tried again: {error}"
        ));
        false
    }

    /// The body of the worker's thread.
    fn run(&'static self, cpu: Option<usize>) {
        if let Some(cpu) = cpu {
            stay_on(cpu);
        }
        acquires();
        // Callbacks run on a registered thread. A callback that calls call_rcu pushes to this worker.
        self.flavour.register(false);
        // The thread of deferred calls leaves this out. A barrier of call_rcu does not wait for the queue of deferred calls, so a deferred
        // call that calls call_rcu must push to another worker.
        if !self.flavour.deferring().is_some_and(|deferring| ptr::eq(deferring, self)) {
            // SAFETY: `mine` is a thread-local variable of the calling thread.
            unsafe { (*self.flavour.mine()).worker = ptr::from_ref(self).cast_mut().cast() };
        }
        // In qsbr, the thread is online only while callbacks run.
        let turns = Cell::new(0_u8);
        let goes_on = || {
            turns.set(turns.get().wrapping_add(1));
            // As liburcu does: the CPU may have been offline until now, or the kernel has moved the thread.
            if let Some(cpu) = cpu.filter(|cpu| turns.get() == 0 && !is_on(*cpu)) {
                stay_on(cpu);
            }
            self.goes_on()
        };
        self.flavour.while_offline(|| self.queue.run_while(goes_on));
        self.flavour.unregister();
    }

    /// Whether the thread continues. Called between turns, and when the thread is woken.
    fn goes_on(&self) -> bool {
        self.flavour.refill();
        !self.door.is_closed()
    }

    /// Wakes the thread, which then calls `goes_on`. Neither allocates nor waits.
    pub(super) fn wake(&self) {
        self.queue.wake();
    }

    /// # Safety
    /// As for `call_rcu`.
    #[inline]
    pub(super) unsafe fn push(
        &'static self,
        node: NonNull<Callback>,
        function: unsafe extern "C-unwind" fn(NonNull<Callback>),
    ) {
        let worker = if self.is_lasting || self.door.enter() { self } else { self.flavour.default_worker() };
        releases();
        // SAFETY: the node belongs to the queue, which may call the function with it, by the caller's promise.
        unsafe { worker.queue.push(node, function) };
        if !worker.is_lasting {
            worker.door.leave();
        }
        // Relaxed: a hint.
        if !worker.has_thread.load(Ordering::Relaxed) {
            worker.has_thread();
        }
    }
}

impl Flavour {
    pub(super) fn default_worker(&'static self) -> &'static Worker {
        worker_at(&self.shared.default).unwrap_or_else(|| self.first_default())
    }

    // With its lock out of the way, `push` is small enough to be inlined.
    #[cold]
    fn first_default(&'static self) -> &'static Worker {
        self.make_default(&mut self.lock())
    }

    fn make_default(&'static self, lock: &mut Locked<'_, Workers>) -> &'static Worker {
        if let Some(worker) = worker_at(&self.shared.default) {
            return worker;
        }
        let worker = Worker::make(self, true);
        worker.is_born(lock);
        lock.live.push(worker);
        // Release: pairs with the acquire in `worker_at`.
        self.shared.default.store(ptr::from_ref(worker).cast_mut(), Ordering::Release);
        worker
    }

    /// The worker of deferred calls. Makes it if there is none.
    pub(super) fn deferring_worker(&'static self) -> &'static Worker {
        worker_at(&self.shared.deferred).unwrap_or_else(|| {
            let mut lock = self.lock();
            worker_at(&self.shared.deferred).unwrap_or_else(|| {
                // Not online, also in qsbr: a deferred function may wait for a thread that waits for readers.
                let worker =
                    Worker::with_frame(self, true, if self.is_qsbr() { offline_frame } else { plain_frame });
                worker.is_born(&mut lock);
                // Release: pairs with the acquire in `worker_at`.
                self.shared.deferred.store(ptr::from_ref(worker).cast_mut(), Ordering::Release);
                worker
            })
        })
    }

    /// The worker of deferred calls, if there is one.
    pub(super) fn deferring(&'static self) -> Option<&'static Worker> {
        worker_at(&self.shared.deferred)
    }

    /// The default worker, if there is one.
    pub(super) fn default(&'static self) -> Option<&'static Worker> {
        worker_at(&self.shared.default)
    }

    /// Marks the calling thread as the one that forks.
    pub(super) fn begin_fork(&self, lock: &mut Locked<'_, Workers>) {
        lock.is_forking = true;
        // Relaxed: a thread that sleeps on this futex reads `is_forking` again, under the lock.
        self.shared.forking.store(1, Ordering::Relaxed);
    }

    /// Ends the fork. The caller has ended the pauses of the queues that were there before.
    pub(super) fn end_fork(&'static self, lock: &mut Locked<'_, Workers>) {
        self.end_fork_in_child(lock);
        os::wake_all(&self.shared.forking);
        self.bury_dead(lock);
        // Those of workers, too, that the forking thread made meanwhile.
        self.start_missing(lock);
    }

    /// Ends the fork in the child, where no thread waits for the end, and `reset_workers` passes on the workers' callbacks.
    pub(super) fn end_fork_in_child(&self, lock: &mut Locked<'_, Workers>) {
        lock.is_forking = false;
        // Relaxed: there is no other thread.
        self.shared.forking.store(0, Ordering::Relaxed);
        lock.born_paused.clear();
    }

    /// Whether a callback waits for callbacks of another queue.
    pub(super) fn has_inner_barrier(&self) -> bool {
        self.shared.inner_barriers.load(Ordering::SeqCst) != 0
    }

    pub(super) fn wait_for_inner_barriers(&self) {
        loop {
            match self.shared.inner_barriers.load(Ordering::SeqCst) {
                0 => return,
                barriers => os::wait(&self.shared.inner_barriers, barriers, None),
            }
        }
    }

    /// While the value lives, the calling thread is in a barrier. If the barrier is called in a callback, a fork that waits for the
    /// callback ends its pauses: the barrier may wait for a queue that the fork has paused.
    pub(super) fn within_barrier(&'static self) -> Option<InnerBarrier> {
        let mut served: Vec<_> = self.lock().live.clone();
        served.extend(self.deferring());
        served.retain(|worker| worker.queue.is_served_here());
        (!served.is_empty()).then(|| {
            // SeqCst: pairs with the load in `has_inner_barrier`, which a fork repeats when it is woken.
            self.shared.inner_barriers.fetch_add(1, Ordering::SeqCst);
            served.iter().for_each(|worker| worker.wake());
            InnerBarrier(self)
        })
    }

    /// Whether the calling thread runs a callback of the flavour.
    pub(super) fn is_within_callback(&'static self) -> bool {
        self.peek().is_some()
            && (self.deferring().is_some_and(|worker| worker.queue.is_served_here())
                || self.lock().live.iter().any(|worker| worker.queue.is_served_here()))
    }

    fn own_worker(&self) -> Option<&'static Worker> {
        // SAFETY: `mine` is a thread-local variable of the calling thread; workers are never freed.
        unsafe { (*self.mine()).worker.cast::<Worker>().as_ref() }
    }

    /// A place for each CPU that may ever be there, as in liburcu.
    fn cpus(&'static self) -> &'static [AtomicPtr<Worker>] {
        self.shared
            .of_cpus
            .get_or_init(|| (0..possible_cpus()).map(|_| AtomicPtr::new(ptr::null_mut())).collect())
    }

    fn of_cpu(&'static self, cpu: c_int) -> Option<&'static Worker> {
        worker_at(self.shared.of_cpus.get()?.get(usize::try_from(cpu).ok()?)?)
    }

    fn of_this_cpu(&'static self) -> Option<&'static Worker> {
        self.shared.of_cpus.get()?;
        // SAFETY: the function has no preconditions.
        self.of_cpu(unsafe { libc::sched_getcpu() })
    }

    /// The worker to which the calling thread pushes.
    #[inline]
    fn worker(&'static self) -> &'static Worker {
        self.own_worker().or_else(|| self.of_this_cpu()).unwrap_or_else(|| self.default_worker())
    }

    fn make_worker(&'static self, cpu: c_int) -> Result<&'static Worker, Refusal> {
        let mut lock = self.lock();
        let worker = lock.freed.pop().unwrap_or_else(|| Worker::make(self, false));
        // SAFETY: the caller holds the lock.
        unsafe { (*worker.state.get()).cpu = usize::try_from(cpu).ok() };
        worker.door.open();
        worker.is_born(&mut lock);
        lock.live.push(worker);
        let Err(error) = worker.start(&lock) else { return Ok(worker) };
        self.retire(worker, &mut lock);
        self.bury(worker, &mut lock);
        self.start_missing(&lock);
        let errno = error.raw_os_error().unwrap_or(libc::EAGAIN);
        Err(Refusal::told(
            errno,
            format_args!("the thread of a call_rcu worker could not be started: {error}"),
            c"the thread of a call_rcu worker could not be started",
        ))
    }

    /// Closes the worker's door, so that its thread ends and pushes go to the default worker. Returns the thread.
    fn retire(&'static self, worker: &'static Worker, _lock: &mut Locked<'_, Workers>) -> Option<Thread> {
        // Waits for all threads in the middle of a push, even if one of them is preempted.
        worker.door.close();
        worker.queue.wake();
        // SAFETY: the caller holds the lock.
        unsafe { (*worker.state.get()).thread.take() }
    }

    /// Passes on the callbacks of a worker whose thread has ended, and keeps the worker for later use. A barrier looks under the lock, so it
    /// finds the callbacks in one of the two queues. A fork pauses queues and then takes the lock. So while a fork is under way, a worker
    /// that has callbacks is left until its end. The caller then [starts](Self::start_missing) the default worker's thread, which may not have
    /// one.
    fn bury(&'static self, worker: &'static Worker, lock: &mut Locked<'_, Workers>) {
        let is_put_off = lock.is_forking && worker.queue.pending() > 0;
        // SAFETY: the caller holds the lock.
        unsafe { (*worker.state.get()).is_to_bury = is_put_off };
        if is_put_off {
            return;
        }
        worker.has_thread.store(false, Ordering::Relaxed);
        if worker.queue.pending() > 0 {
            let default = self.make_default(lock);
            acquires();
            // The thread has ended, so a callback that frees another worker does not wait for a turn.
            raw::let_wait(|| worker.queue.pass_to(&default.queue));
            releases();
        }
        lock.live.retain(|other| !ptr::eq(*other, worker));
        lock.freed.push(worker);
    }

    /// Passes on the callbacks of the workers that were left until the end of a fork: see [`bury`](Self::bury).
    pub(super) fn bury_dead(&'static self, lock: &mut Locked<'_, Workers>) {
        for worker in lock.live.clone() {
            // SAFETY: the caller holds the lock.
            if unsafe { (*worker.state.get()).is_to_bury } {
                self.bury(worker, lock);
            }
        }
    }

    fn free_worker(&'static self, worker: *mut call_rcu_data) -> Result<(), Refusal> {
        let refuse = |errno, why: &'static &'static str| {
            Err(Refusal::new(errno, c"urcu-{}: call_rcu_data_free: {}").with(self.name()).with(why))
        };
        let mut lock = self.lock();
        let found = lock.live.iter().copied().find(|live| ptr::eq(live.to_c(), worker));
        let Some(worker) = found.filter(|worker| !worker.door.is_closed()) else {
            return refuse(libc::EINVAL, &"this worker does not exist, or was freed before");
        };
        if worker.is_lasting {
            // The default worker stays, as in liburcu.
            return Ok(());
        }
        if worker.queue.is_served_here() {
            return refuse(libc::EDEADLK, &"a callback cannot free the worker that runs it");
        }
        let thread = self.retire(worker, &mut lock);
        drop(lock);
        let has_panicked = thread.is_some_and(|thread| !thread.join());
        let mut lock = self.lock();
        self.bury(worker, &mut lock);
        self.start_missing(&lock);
        drop(lock);
        match has_panicked {
            true => refuse(libc::ENOTRECOVERABLE, &"a callback has panicked"),
            false => Ok(()),
        }
    }

    fn set_of_cpu(&'static self, cpu: c_int, worker: *mut call_rcu_data) -> Result<(), Refusal> {
        let _lock = self.lock();
        let places = self.cpus();
        let place = usize::try_from(cpu).ok().and_then(|cpu| places.get(cpu)).ok_or_else(|| {
            Refusal::invalid(c"there is no CPU {}: CPUs are below {}").with(cpu).with(places.len())
        })?;
        if !worker.is_null() && worker_at(place).is_some() {
            return Err(Refusal::new(libc::EEXIST, c"CPU {} has a worker: set it to NULL first").with(cpu));
        }
        // Release: pairs with the acquire in `worker_at`.
        place.store(worker.cast(), Ordering::Release);
        Ok(())
    }

    /// Resets the workers in the child of a `fork`, which has none of their threads. The default worker gets the callbacks of all other
    /// live workers, which are then freed. Starts no thread.
    ///
    /// # Safety
    /// There is no other thread, and no queue is being served.
    pub(super) unsafe fn reset_workers(&'static self, lock: &mut Locked<'_, Workers>) {
        if let Some(places) = self.shared.of_cpus.get() {
            places.iter().for_each(|place| place.store(ptr::null_mut(), Ordering::Relaxed));
        }
        if own::find().is_some() {
            // SAFETY: the thread has its block.
            unsafe { (*self.mine()).worker = ptr::null_mut() };
        }
        for worker in lock.live.clone().into_iter().chain(self.deferring()) {
            // SAFETY: `lock` is held, and by the caller's promise no queue is being served. The thread belongs to the parent.
            unsafe {
                std::mem::forget((*worker.state.get()).thread.take());
                worker.queue.reset_after_fork();
            }
            worker.has_thread.store(false, Ordering::Relaxed);
            worker.door.reset(!worker.is_lasting);
        }
        // Threads of the parent may have been in the doors of these workers, or have served their queues.
        for worker in &lock.freed {
            worker.door.reset(true);
            // SAFETY: there is no other thread, and no queue is being served, by the caller's promise.
            unsafe { worker.queue.reset_after_fork() };
        }
        for worker in lock.live.clone().into_iter().filter(|worker| !worker.is_lasting) {
            self.bury(worker, lock);
        }
    }

    /// Starts the missing threads of the lasting workers.
    pub(super) fn start_missing(&'static self, lock: &Locked<'_, Workers>) {
        for worker in self.default().into_iter().chain(self.deferring()) {
            // If the start fails, it is tried again: see `has_thread`.
            let _ = worker.start(lock);
        }
    }
}

fn is_on(cpu: usize) -> bool {
    // SAFETY: the call has no condition.
    usize::try_from(unsafe { libc::sched_getcpu() }) == Ok(cpu)
}

/// Pins the calling thread to a CPU. One that does not exist, is offline or is not allowed is ignored.
fn stay_on(cpu: usize) {
    // SAFETY: the set is a local variable, and has a bit for the CPU.
    unsafe {
        let mut set: Cpus = std::mem::zeroed();
        if let Some(part) = set.get_mut(cpu / libc::CPU_SETSIZE as usize) {
            libc::CPU_SET(cpu % libc::CPU_SETSIZE as usize, part);
            libc::sched_setaffinity(0, size_of::<Cpus>(), set.as_ptr());
        }
    }
}
