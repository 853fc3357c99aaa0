//! Workers of `call_rcu`: a queue and a thread.
//!
//! A worker's memory is never freed, and is used again: a thread that has read its address may push to it although it was freed
//! meanwhile, and passes on what it has pushed when it finds that.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::os::unix::thread::JoinHandleExt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::Instant;

use stillpoint::rcu::raw::{Callback, CallbackQueue, Paused};

use super::flavour::{of, Flavour, Locked};
use super::reader::{acquires, frame, plain_frame, releases, AGAIN};
use super::report;
use crate::border::{briefly, call, Refusal};
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
    /// Whether it was freed, or is about to be.
    is_dead: AtomicBool,
    /// How many threads push, or are about to find out that it is dead.
    pushers: AtomicU32,
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
}

// SAFETY: the state is used under the flavour's lock, and everything else is.
unsafe impl Sync for Worker {}

/// What `call_rcu` reads without a lock.
pub(super) struct Shared {
    default: AtomicPtr<Worker>,
    of_cpus: OnceLock<Box<[AtomicPtr<Worker>]>>,
    deferred: AtomicPtr<Worker>,
}

/// What the flavour's lock is for.
pub(super) struct Workers {
    /// With the default worker, and without that of deferred calls.
    pub(super) live: Vec<&'static Worker>,
    freed: Vec<&'static Worker>,
    /// Of a fork that is under way.
    pub(super) pauses: Vec<Paused>,
    pub(super) atfork: *mut super::fork::urcu_atfork,
    pub(super) atforks: usize,
}

// SAFETY: the hooks' address is used under the lock.
unsafe impl Send for Workers {}

impl Shared {
    pub(super) const fn new() -> Self {
        Self {
            default: AtomicPtr::new(ptr::null_mut()),
            of_cpus: OnceLock::new(),
            deferred: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

impl Workers {
    pub(super) const fn new() -> Self {
        Self { live: Vec::new(), freed: Vec::new(), pauses: Vec::new(), atfork: ptr::null_mut(), atforks: 0 }
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
            is_dead: AtomicBool::new(false),
            pushers: AtomicU32::new(0),
            is_lasting,
            has_thread: AtomicBool::new(false),
            pthread: AtomicU64::new(0),
            state: UnsafeCell::default(),
        }))
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
        let is_to_try = !self.is_dead() && failed.is_none_or(|failed| failed.elapsed() >= AGAIN);
        is_to_try && self.start(&lock).is_ok()
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
        self.flavour.while_offline(|| self.queue.run_while(|| !self.is_dead()));
        self.flavour.unregister();
    }

    fn is_dead(&self) -> bool {
        // Acquire: what came before it was freed is seen.
        self.is_dead.load(Ordering::Acquire)
    }

    /// # Safety
    /// As for `call_rcu`.
    #[inline]
    pub(super) unsafe fn push(
        &'static self,
        node: NonNull<Callback>,
        function: unsafe extern "C-unwind" fn(NonNull<Callback>),
    ) {
        let worker = if self.is_lasting || self.enter() { self } else { self.flavour.default_worker() };
        releases();
        // SAFETY: the caller's promise.
        unsafe { worker.queue.push(node, function) };
        if !worker.is_lasting {
            // Release: pairs with the acquire in `retire`: what was pushed is seen.
            worker.pushers.fetch_sub(1, Ordering::Release);
        }
        // Relaxed: a hint.
        if !worker.has_thread.load(Ordering::Relaxed) {
            worker.has_thread();
        }
    }

    /// From now on the worker is not buried; false if it is dead.
    fn enter(&self) -> bool {
        // SeqCst, both: pairs with those in `retire`: either it waits for this one, or this sees that the worker is dead.
        self.pushers.fetch_add(1, Ordering::SeqCst);
        let is_alive = !self.is_dead.load(Ordering::SeqCst);
        if !is_alive {
            // Relaxed: nothing was pushed.
            self.pushers.fetch_sub(1, Ordering::Relaxed);
        }
        is_alive
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
        lock.live.push(worker);
        // Release: pairs with the acquire in `worker_at`.
        self.shared.default.store(ptr::from_ref(worker).cast_mut(), Ordering::Release);
        worker
    }

    /// The worker of deferred calls, which is made if need be.
    pub(super) fn deferring_worker(&'static self) -> &'static Worker {
        worker_at(&self.shared.deferred).unwrap_or_else(|| {
            let _lock = self.lock();
            worker_at(&self.shared.deferred).unwrap_or_else(|| {
                let worker = Worker::make(self, true);
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
        worker.is_dead.store(false, Ordering::Relaxed);
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
        // SeqCst, both: pairs with those in `enter`.
        worker.is_dead.store(true, Ordering::SeqCst);
        // They are between two words; one that is preempted there is waited for.
        while worker.pushers.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
        worker.queue.wake();
        // SAFETY: the lock is held.
        unsafe { (*worker.state.get()).thread.take() }
    }

    /// Passes on what a worker has whose thread is gone, and keeps it for the next one. Barriers find the callbacks with the
    /// one or with the other, since they look under the lock.
    pub(super) fn bury(&'static self, worker: &'static Worker, lock: &mut Locked<'_, Workers>) {
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

    fn free_worker(&'static self, worker: *mut call_rcu_data) {
        let mut lock = self.lock();
        let found = lock.live.iter().copied().find(|live| ptr::eq(live.to_c(), worker));
        let Some(worker) = found.filter(|worker| !worker.is_dead()) else {
            return report(self, "call_rcu_data_free: this worker does not exist, or was freed before");
        };
        if worker.is_lasting {
            // The default worker stays, as liburcu's.
            return;
        }
        if worker.queue.is_served_here() {
            return report(self, "call_rcu_data_free: a callback cannot free the worker that runs it");
        }
        let thread = self.retire(worker, &mut lock);
        drop(lock);
        if thread.is_some_and(|thread| thread.join().is_err()) {
            report(self, "a callback has panicked");
        }
        self.bury(worker, &mut self.lock());
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
            worker.is_dead.store(!worker.is_lasting, Ordering::Relaxed);
            worker.pushers.store(0, Ordering::Relaxed);
        }
        // Somebody may have been about to find one of these dead, or have served its queue.
        for worker in &lock.freed {
            worker.pushers.store(0, Ordering::Relaxed);
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

#[no_mangle]
pub unsafe extern "C" fn still_urcu_call_(
    flavour: u32,
    head: *mut rcu_head,
    function: Option<unsafe extern "C-unwind" fn(head: *mut rcu_head)>,
) {
    briefly(|| {
        let (Some(head), Some(function)) = (NonNull::new(head), function) else {
            return Err(Refusal::invalid("NULL was passed to call_rcu"));
        };
        // SAFETY: the same function, whose pointer is declared as another one of the same layout, and is never null.
        let function = unsafe {
            std::mem::transmute::<
                unsafe extern "C-unwind" fn(*mut rcu_head),
                unsafe extern "C-unwind" fn(NonNull<Callback>),
            >(function)
        };
        // SAFETY: the caller says that the head is the worker's now, and that the function may be called.
        unsafe { of(flavour).worker().push(head.cast(), function) };
        Ok(())
    });
}

#[no_mangle]
pub extern "C" fn still_urcu_worker_new_(flavour: u32, _flags: u64, cpu: c_int) -> *mut call_rcu_data {
    call(|| Ok(of(flavour).make_worker(cpu)?.to_c()))
}

#[no_mangle]
pub extern "C" fn still_urcu_worker_free_(flavour: u32, worker: *mut call_rcu_data) {
    call(|| {
        if !worker.is_null() {
            of(flavour).free_worker(worker);
        }
        Ok(())
    });
}

#[no_mangle]
pub unsafe extern "C" fn still_urcu_worker_thread_(worker: *mut call_rcu_data) -> u64 {
    call(|| {
        // SAFETY: null, or a worker, by the caller's promise; workers are never freed.
        let worker = unsafe { worker.cast::<Worker>().as_ref() };
        let worker = worker.ok_or_else(|| Refusal::invalid("NULL was passed for a worker"))?;
        worker.has_thread();
        Ok(worker.pthread.load(Ordering::Relaxed))
    })
}

#[no_mangle]
pub extern "C" fn still_urcu_worker_default_(flavour: u32) -> *mut call_rcu_data {
    call(|| {
        let worker = of(flavour).default_worker();
        worker.has_thread();
        Ok(worker.to_c())
    })
}

#[no_mangle]
pub extern "C" fn still_urcu_worker_of_cpu_(flavour: u32, cpu: c_int) -> *mut call_rcu_data {
    briefly(|| Ok(of(flavour).of_cpu(cpu).map_or(ptr::null_mut(), Worker::to_c)))
}

#[no_mangle]
pub extern "C" fn still_urcu_worker_of_thread_(flavour: u32) -> *mut call_rcu_data {
    briefly(|| Ok(of(flavour).own_worker().map_or(ptr::null_mut(), Worker::to_c)))
}

#[no_mangle]
pub extern "C" fn still_urcu_worker_(flavour: u32) -> *mut call_rcu_data {
    call(|| {
        let worker = of(flavour).worker();
        worker.has_thread();
        Ok(worker.to_c())
    })
}

#[no_mangle]
pub extern "C" fn still_urcu_set_worker_of_thread_(flavour: u32, worker: *mut call_rcu_data) {
    briefly(|| {
        // SAFETY: the thread's own.
        unsafe { (*of(flavour).mine()).worker = worker.cast::<c_void>() };
        Ok(())
    });
}

/// As liburcu: the negative number, and `errno`.
fn answer(answer: Result<(), Refusal>) -> Result<c_int, Refusal> {
    if let Err(refusal) = &answer {
        // SAFETY: the address is the calling thread's own.
        unsafe { *libc::__errno_location() = refusal.errno };
    }
    answer.map(|()| 0)
}

#[no_mangle]
pub extern "C" fn still_urcu_set_worker_of_cpu_(
    flavour: u32,
    cpu: c_int,
    worker: *mut call_rcu_data,
) -> c_int {
    call(|| answer(of(flavour).set_of_cpu(cpu, worker)))
}

#[no_mangle]
pub extern "C" fn still_urcu_workers_new_(flavour: u32, _flags: u64) -> c_int {
    call(|| {
        let flavour = of(flavour);
        for cpu in 0..flavour.cpus().len() as c_int {
            if flavour.of_cpu(cpu).is_some() {
                continue;
            }
            let made = match flavour.make_worker(cpu) {
                Ok(worker) => worker.to_c(),
                Err(refusal) => return answer(Err(refusal)),
            };
            if let Err(refusal) = flavour.set_of_cpu(cpu, made) {
                flavour.free_worker(made);
                // Another thread was faster.
                if refusal.errno != libc::EEXIST {
                    return answer(Err(refusal));
                }
            }
        }
        Ok(0)
    })
}

#[no_mangle]
pub extern "C" fn still_urcu_workers_free_(flavour: u32) {
    call(|| {
        let flavour = of(flavour);
        let Some(places) = flavour.shared.of_cpus.get() else { return Ok(()) };
        // Acquire: the worker is used.
        let workers: Vec<_> =
            places.iter().map(|place| place.swap(ptr::null_mut(), Ordering::AcqRel)).collect();
        // No grace period: threads that push to them still pass on what they push.
        for worker in workers.into_iter().filter(|worker| !worker.is_null()) {
            flavour.free_worker(worker.cast());
        }
        Ok(())
    });
}
