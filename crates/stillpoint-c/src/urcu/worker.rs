//! Workers of `call_rcu`: a queue and a thread.
//!
//! A worker's memory is never freed, and is used again: a thread that has read its address may push to it although it was freed
//! meanwhile, and passes on what it has pushed when it finds that.

mod calls;

pub use calls::*;

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::os::unix::thread::JoinHandleExt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::Instant;

use stillpoint::rcu::raw::{Callback, CallbackQueue, Paused};
use stillpoint_sys::os;
use stillpoint_sys::sync::Door;

use super::flavour::{Flavour, Locked};
use super::reader::{acquires, frame, plain_frame, releases, AGAIN};
use crate::border::Refusal;
use crate::report::report;
use crate::thread::{spawn, Threading};

/// liburcu's, to C.
#[repr(C)]
pub struct call_rcu_data {
    _private: [u8; 0],
}

/// The user's two words, to C.
#[repr(C)]
pub struct rcu_head {
    _private: [u8; 0],
}

pub(super) struct Worker {
    pub(super) queue: CallbackQueue,
    flavour: &'static Flavour,
    /// Threads push behind it. Closed when the worker was freed, or is about to be: it is dead.
    door: Door,
    /// Whether it is the flavour's own, which is never freed.
    is_lasting: bool,
    has_thread: AtomicBool,
    /// The thread, to C.
    pthread: AtomicU64,
    /// Used under the flavour's lock.
    state: UnsafeCell<State>,
}

#[derive(Default)]
struct State {
    thread: Option<JoinHandle<()>>,
    cpu: Option<usize>,
    /// When a thread could not be started.
    failed: Option<Instant>,
    /// It is freed and its thread is gone, but what it has was not passed on, since a fork was under way.
    is_to_bury: bool,
}

// SAFETY: the state is used under the flavour's lock, and everything else is.
unsafe impl Sync for Worker {}

/// What `call_rcu` reads without a lock.
pub(super) struct Shared {
    default: AtomicPtr<Worker>,
    of_cpus: OnceLock<Box<[AtomicPtr<Worker>]>>,
    deferred: AtomicPtr<Worker>,
    /// 1 while a thread is counted as one that forks, 0 otherwise.
    pub(super) forking: AtomicU32,
    /// Barriers in callbacks.
    inner_barriers: AtomicU32,
}

/// What the flavour's lock is for.
pub(super) struct Workers {
    /// With the default worker, and without that of deferred calls.
    pub(super) live: Vec<&'static Worker>,
    freed: Vec<&'static Worker>,
    /// Whether a thread is about to fork, or between the hooks of that. Meanwhile queues are paused.
    pub(super) is_forking: bool,
    /// Of the fork whose thread keeps the lock.
    pub(super) pauses: Vec<Paused>,
    /// Of workers that were made since somebody was between the hooks.
    pub(super) born_paused: Vec<Paused>,
    pub(super) atfork: *mut super::fork::urcu_atfork,
    pub(super) atforks: usize,
}

// SAFETY: the hooks' address is used under the lock.
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
    // Acquire: pairs with the release where it is put there. SAFETY: workers are never freed.
    unsafe { place.load(Ordering::Acquire).as_ref() }
}

impl Worker {
    fn make(flavour: &'static Flavour, is_lasting: bool) -> &'static Self {
        let domain = &flavour.group().domain;
        let queue = match flavour.is_qsbr() {
            true => CallbackQueue::with_frame(domain, frame),
            false => CallbackQueue::with_frame(domain, plain_frame),
        };
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

    /// Nobody serves its queue yet: a fork that is under way need not look for it.
    fn is_born(&self, lock: &mut Locked<'_, Workers>) {
        if lock.is_forking {
            lock.born_paused.push(self.queue.pause());
        }
    }

    fn to_c(&self) -> *mut call_rcu_data {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Starts the thread of a worker that has none.
    fn start(&'static self, lock: &Locked<'_, Workers>) -> std::io::Result<()> {
        // SAFETY: the lock is held.
        let state = unsafe { &mut *self.state.get() };
        if self.has_thread.load(Ordering::Relaxed) {
            return Ok(());
        }
        if lock.is_borrowed() {
            // Nobody serves a queue while its process forks.
            return Err(std::io::Error::from_raw_os_error(libc::EBUSY));
        }
        let cpu = state.cpu;
        match spawn(Threading::named("call_rcu").by_itself(self.is_lasting), move || self.run(cpu)) {
            Ok(thread) => {
                self.pthread.store(thread.as_pthread_t(), Ordering::Relaxed);
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

    /// Starts the thread, if it has none, unless that has failed just now. Whether it has one.
    pub(super) fn has_thread(&'static self) -> bool {
        // Relaxed: a hint.
        if self.has_thread.load(Ordering::Relaxed) {
            return true;
        }
        let lock = self.flavour.lock();
        // SAFETY: the lock is held.
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
        report(&format!(
            "urcu-{name}: the thread of a worker could not be started, and is tried again: {error}"
        ));
        false
    }

    /// What its thread does.
    fn run(&'static self, cpu: Option<usize>) {
        if let Some(cpu) = cpu {
            // SAFETY: a set of its own. A CPU that is not there, or not allowed, is no reason to fail.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                if cpu < libc::CPU_SETSIZE as usize {
                    libc::CPU_SET(cpu, &mut set);
                    libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
                }
            }
        }
        acquires();
        // Callbacks find a registered thread, whose own worker is the one that calls them.
        self.flavour.register(false);
        // But for deferred calls: what they push is not among what a barrier of call_rcu waits for.
        if !self.flavour.deferring().is_some_and(|deferring| ptr::eq(deferring, self)) {
            // SAFETY: the thread's own.
            unsafe { (*self.flavour.mine()).worker = ptr::from_ref(self).cast_mut().cast() };
        }
        // With quiescent states it is online while callbacks run.
        self.flavour.while_offline(|| self.queue.run_while(|| self.goes_on()));
        self.flavour.unregister();
    }

    /// Asked between turns, and when somebody wakes the thread.
    fn goes_on(&self) -> bool {
        self.flavour.refill();
        !self.door.is_closed()
    }

    /// Has the thread ask whether it goes on. Neither allocates nor waits.
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
        // SAFETY: the caller's promise.
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
        worker_at(&self.shared.default).unwrap_or_else(|| self.make_default(&mut self.lock()))
    }

    #[cold]
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

    /// The worker of deferred calls, which is made if need be.
    pub(super) fn deferring_worker(&'static self) -> &'static Worker {
        worker_at(&self.shared.deferred).unwrap_or_else(|| {
            let mut lock = self.lock();
            worker_at(&self.shared.deferred).unwrap_or_else(|| {
                let worker = Worker::make(self, true);
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

    /// Whether the calling thread runs a callback of the flavour.
    /// Counts the calling thread as the one that forks.
    pub(super) fn begin_fork(&self, lock: &mut Locked<'_, Workers>) {
        lock.is_forking = true;
        // Relaxed: whoever sleeps on it looks again under the lock.
        self.shared.forking.store(1, Ordering::Relaxed);
    }

    /// Nobody forks any more. The pauses of queues that were there before are over.
    pub(super) fn end_fork(&'static self, lock: &mut Locked<'_, Workers>) {
        self.end_fork_in_child(lock);
        os::wake_all(&self.shared.forking);
        self.bury_dead(lock);
    }

    /// The same in the child, in which nobody waits for that; workers that were to be buried are reset there.
    pub(super) fn end_fork_in_child(&self, lock: &mut Locked<'_, Workers>) {
        lock.is_forking = false;
        // Relaxed: as above. Nobody is in a callback of a child.
        self.shared.forking.store(0, Ordering::Relaxed);
        lock.born_paused.clear();
    }

    /// Whether a callback waits for those of another queue.
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

    /// While the value lives, the calling thread is in a barrier. If it is in a callback, a fork that waits for that one gives up its
    /// pauses: the barrier may be for a queue that it has paused.
    pub(super) fn within_barrier(&'static self) -> Option<InnerBarrier> {
        let mut served: Vec<_> = self.lock().live.clone();
        served.extend(self.deferring());
        served.retain(|worker| worker.queue.is_served_here());
        (!served.is_empty()).then(|| {
            // SeqCst: pairs with the look in `has_inner_barrier`, which those who are woken repeat.
            self.shared.inner_barriers.fetch_add(1, Ordering::SeqCst);
            served.iter().for_each(|worker| worker.wake());
            InnerBarrier(self)
        })
    }

    pub(super) fn is_within_callback(&'static self) -> bool {
        self.peek().is_some()
            && (self.deferring().is_some_and(|worker| worker.queue.is_served_here())
                || self.lock().live.iter().any(|worker| worker.queue.is_served_here()))
    }

    fn own_worker(&self) -> Option<&'static Worker> {
        // SAFETY: the thread's own; workers are never freed.
        unsafe { (*self.mine()).worker.cast::<Worker>().as_ref() }
    }

    fn cpus(&'static self) -> &'static [AtomicPtr<Worker>] {
        self.shared.of_cpus.get_or_init(|| {
            // SAFETY: it has no preconditions.
            let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
            (0..cpus.max(0)).map(|_| AtomicPtr::new(ptr::null_mut())).collect()
        })
    }

    fn of_cpu(&'static self, cpu: c_int) -> Option<&'static Worker> {
        worker_at(self.shared.of_cpus.get()?.get(usize::try_from(cpu).ok()?)?)
    }

    fn of_this_cpu(&'static self) -> Option<&'static Worker> {
        self.shared.of_cpus.get()?;
        // SAFETY: it has no preconditions.
        self.of_cpu(unsafe { libc::sched_getcpu() })
    }

    /// The worker for what the calling thread pushes.
    #[inline]
    fn worker(&'static self) -> &'static Worker {
        self.own_worker().or_else(|| self.of_this_cpu()).unwrap_or_else(|| self.default_worker())
    }

    fn make_worker(&'static self, cpu: c_int) -> Result<&'static Worker, Refusal> {
        let mut lock = self.lock();
        let worker = lock.freed.pop().unwrap_or_else(|| Worker::make(self, false));
        // SAFETY: the lock is held.
        unsafe { (*worker.state.get()).cpu = usize::try_from(cpu).ok() };
        worker.door.open();
        worker.is_born(&mut lock);
        lock.live.push(worker);
        let Err(error) = worker.start(&lock) else { return Ok(worker) };
        self.retire(worker, &mut lock);
        self.bury(worker, &mut lock);
        let errno = error.raw_os_error().unwrap_or(libc::EAGAIN);
        Err(Refusal::new(errno, format!("the thread of a call_rcu worker could not be started: {error}")))
    }

    /// From now on the worker's thread goes, and what is pushed is passed on. Returns the thread.
    fn retire(
        &'static self,
        worker: &'static Worker,
        _lock: &mut Locked<'_, Workers>,
    ) -> Option<JoinHandle<()>> {
        // One that is preempted in the midst of a push is waited for.
        worker.door.close();
        worker.queue.wake();
        // SAFETY: the lock is held.
        unsafe { (*worker.state.get()).thread.take() }
    }

    /// Passes on what a worker has whose thread is gone, and keeps it for the next one. Barriers find the callbacks with the
    /// one or with the other, since they look under the lock. While a fork is under way, which pauses queues and then wants the lock,
    /// a worker that has something is left to the end of that.
    fn bury(&'static self, worker: &'static Worker, lock: &mut Locked<'_, Workers>) {
        let is_put_off = lock.is_forking && worker.queue.pending() > 0;
        // SAFETY: the lock is held.
        unsafe { (*worker.state.get()).is_to_bury = is_put_off };
        if is_put_off {
            return;
        }
        worker.has_thread.store(false, Ordering::Relaxed);
        if worker.queue.pending() > 0 {
            let default = self.make_default(lock);
            acquires();
            worker.queue.pass_to(&default.queue);
            releases();
            // It may fail: see `has_thread`.
            let _ = default.start(lock);
        }
        lock.live.retain(|other| !ptr::eq(*other, worker));
        lock.freed.push(worker);
    }

    /// Buries those that were left to the end of a fork, which has come.
    pub(super) fn bury_dead(&'static self, lock: &mut Locked<'_, Workers>) {
        for worker in lock.live.clone() {
            // SAFETY: the lock is held.
            if unsafe { (*worker.state.get()).is_to_bury } {
                self.bury(worker, lock);
            }
        }
    }

    fn free_worker(&'static self, worker: *mut call_rcu_data) -> Result<(), Refusal> {
        let refuse =
            |errno, why| Err(Refusal::new(errno, format!("urcu-{}: call_rcu_data_free: {why}", self.name())));
        let mut lock = self.lock();
        let found = lock.live.iter().copied().find(|live| ptr::eq(live.to_c(), worker));
        let Some(worker) = found.filter(|worker| !worker.door.is_closed()) else {
            return refuse(libc::EINVAL, "this worker does not exist, or was freed before");
        };
        if worker.is_lasting {
            // The default worker stays, as liburcu's.
            return Ok(());
        }
        if worker.queue.is_served_here() {
            return refuse(libc::EDEADLK, "a callback cannot free the worker that runs it");
        }
        let thread = self.retire(worker, &mut lock);
        drop(lock);
        let has_panicked = thread.is_some_and(|thread| thread.join().is_err());
        self.bury(worker, &mut self.lock());
        match has_panicked {
            true => refuse(libc::ENOTRECOVERABLE, "a callback has panicked"),
            false => Ok(()),
        }
    }

    fn set_of_cpu(&'static self, cpu: c_int, worker: *mut call_rcu_data) -> Result<(), Refusal> {
        let _lock = self.lock();
        let places = self.cpus();
        let place = usize::try_from(cpu)
            .ok()
            .and_then(|cpu| places.get(cpu))
            .ok_or_else(|| Refusal::invalid(format!("there is no CPU {cpu}")))?;
        if !worker.is_null() && worker_at(place).is_some() {
            return Err(Refusal::new(libc::EEXIST, format!("CPU {cpu} has a worker")));
        }
        // Release: pairs with the acquire in `worker_at`.
        place.store(worker.cast(), Ordering::Release);
        Ok(())
    }

    /// In the child of a `fork`, which has no thread of a worker: only the default worker stays, with what all of them had.
    ///
    /// # Safety
    /// There is no other thread, and nobody serves a queue.
    pub(super) unsafe fn reset_workers(&'static self, lock: &mut Locked<'_, Workers>) {
        if let Some(places) = self.shared.of_cpus.get() {
            places.iter().for_each(|place| place.store(ptr::null_mut(), Ordering::Relaxed));
        }
        // SAFETY: the thread's own.
        unsafe { (*self.mine()).worker = ptr::null_mut() };
        for worker in lock.live.clone().into_iter().chain(self.deferring()) {
            // SAFETY: the lock is held, and the caller's promise. The thread is the parent's.
            unsafe {
                std::mem::forget((*worker.state.get()).thread.take());
                worker.queue.reset_after_fork();
            }
            worker.has_thread.store(false, Ordering::Relaxed);
            worker.door.reset(!worker.is_lasting);
        }
        // Somebody may have been about to find one of these dead, or have served its queue.
        for worker in &lock.freed {
            worker.door.reset(true);
            // SAFETY: the caller's promise.
            unsafe { worker.queue.reset_after_fork() };
        }
        for worker in lock.live.clone().into_iter().filter(|worker| !worker.is_lasting) {
            self.bury(worker, lock);
        }
        self.start_missing(lock);
    }

    /// Starts threads that are missing.
    pub(super) fn start_missing(&'static self, lock: &Locked<'_, Workers>) {
        for worker in self.default().into_iter().chain(self.deferring()) {
            // It may fail: see `has_thread`.
            let _ = worker.start(lock);
        }
    }
}
