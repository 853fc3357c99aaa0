use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use super::{Callback, Function, ObjectCallback};
use crate::rcu::domain::Domain;
use crate::rcu::engine::queue::callbacks::serve::Server;
use crate::rcu::engine::queue::callbacks::Callbacks;
use crate::rcu::engine::wait::error::SynchronizeError;
use stillpoint_sys::panics;

/// A queue of callbacks whose nodes lie in the user's objects: a push allocates nothing, never fails, and never waits.
///
/// Any thread may push. Any thread may serve the queue: by [`run`](CallbackQueue::run), by [`poll`](CallbackQueue::poll), or in
/// [`barrier`](CallbackQueue::barrier), one thread at a time. All state is in the queue, none in the thread that serves it: that
/// thread may end, be paused, or be missing in the child of a `fork`.
///
/// Callbacks that are pushed by [`push`](CallbackQueue::push) are called in their order, and wait only for region readers, not for
/// protected loads. Callbacks that are pushed by [`push_object`](CallbackQueue::push_object) also wait for protected loads of their
/// object, and keep no order. Up to eight grace periods are under way at a time, each for everything that had been pushed when it
/// was started. In domains with light readers, usually one is started every 20 µs.
///
/// Callbacks count as retired objects of 0 bytes in the [statistics](crate::rcu::Stats) and limits of the domain, which cannot
/// refuse them. This type is a cheap handle; clone and share it freely. When the last handle is dropped, the remaining callbacks
/// pass to the domain, whose reclaimers call them; this allocates.
///
/// ```
/// use std::ptr::NonNull;
/// use stillpoint::rcu::{raw::{Callback, CallbackQueue}, Domain};
///
/// #[repr(C)]
/// struct Node {
///     callback: Callback, // anywhere in the object; here first, so that its address is that of the object
///     value: u64,
/// }
///
/// unsafe extern "C-unwind" fn free(callback: NonNull<Callback>) {
///     // SAFETY: it is the first field of a `Node` that came from `Box`.
///     drop(unsafe { Box::from_raw(callback.cast::<Node>().as_ptr()) });
/// }
///
/// let domain = Domain::new();
/// let queue = CallbackQueue::new(&domain);
/// let node = Box::leak(Box::new(Node { callback: Callback::new(), value: 7 }));
/// // ... linked, read, and unlinked again ...
/// // SAFETY: no thread reaches the node any more, and `free` may be called for it.
/// unsafe { queue.push(NonNull::from(node).cast(), free) };
/// assert_eq!(queue.poll(usize::MAX), 1);
/// ```
#[derive(Clone)]
pub struct CallbackQueue {
    callbacks: Arc<Callbacks>,
}

impl CallbackQueue {
    /// An empty queue. It is a handle of the domain.
    pub fn new(domain: &Domain) -> Self {
        Self { callbacks: Arc::new(Callbacks::new(Arc::clone(domain.core()), None)) }
    }

    /// As [`new`](CallbackQueue::new), with a function that is called on the serving thread: with true before the first
    /// callback of each turn, and with false after the last one. It may bring a [`QsbrReader`](crate::rcu::QsbrReader) of that
    /// thread online, and take it offline again, so that callbacks may read the domain. It must not panic, nor wait for the queue.
    ///
    /// ```
    /// # use std::ptr::NonNull;
    /// # use stillpoint::rcu::{raw::{Callback, CallbackQueue}, Domain};
    /// # unsafe extern "C-unwind" fn call(_: NonNull<Callback>) { println!("called") }
    /// # let domain = Domain::new();
    /// # let mut node = Callback::new();
    /// let queue = CallbackQueue::with_frame(&domain, |begins| println!("{begins}"));
    /// // SAFETY: the node stays until the end.
    /// unsafe { queue.push(NonNull::from(&mut node), call) };
    /// assert_eq!(queue.poll(1), 1); // true, called, false
    /// ```
    pub fn with_frame(domain: &Domain, frame: fn(bool)) -> Self {
        Self { callbacks: Arc::new(Callbacks::new(Arc::clone(domain.core()), Some(frame))) }
    }

    /// Calls `function` with `callback` after a grace period. Wait-free: costs an exchange and a store. If a serving thread sleeps
    /// for lack of work, it also costs a system call that wakes the thread.
    ///
    /// May be called from any thread, registered or not, and from callbacks. A thread that is preempted within this call delays
    /// what is pushed after it. The previous content of the node's memory does not matter.
    ///
    /// # Safety
    /// - `function` may access, through the pointer, every part of the object that it uses. The two words belong to the queue from
    ///   now on, until `function` is called.
    /// - `function` may then be called, once, by any thread that serves the queue, or by a reclaimer of the domain after the last
    ///   handle of the queue is dropped. Whatever it frees was unlinked before this call, and is held by no protected load.
    #[inline]
    pub unsafe fn push(&self, callback: NonNull<Callback>, function: Function) {
        // SAFETY: the node's memory belongs to the queue from now on, by the caller's promise.
        unsafe { self.callbacks.push(callback, function) };
    }

    /// As [`push`](CallbackQueue::push), for an object that protected loads may hold: `object` is the address that they
    /// protect. While a protected load holds the object, other callbacks are called before this one.
    ///
    /// ```
    /// # use std::ptr::{self, NonNull};
    /// # use std::sync::atomic::{AtomicPtr, Ordering};
    /// # use stillpoint::rcu::{raw::{self, Callback, CallbackQueue, ObjectCallback}, Domain};
    /// #[repr(C)]
    /// struct Node {
    ///     callback: ObjectCallback,
    ///     value: u64,
    /// }
    /// # unsafe extern "C-unwind" fn free(callback: NonNull<Callback>) {
    /// #     // SAFETY: it is the first field of a `Node` that came from `Box`.
    /// #     drop(unsafe { Box::from_raw(callback.cast::<Node>().as_ptr()) });
    /// # }
    /// # let domain = Domain::new();
    /// # let reader = domain.reader();
    /// let queue = CallbackQueue::new(&domain);
    /// let link = AtomicPtr::new(Box::into_raw(Box::new(Node { callback: ObjectCallback::new(), value: 7 })));
    /// let (object, slot) = raw::protect(&reader, &link).unwrap();
    /// link.store(ptr::null_mut(), Ordering::Release);
    /// // SAFETY: it is no longer linked.
    /// unsafe { queue.push_object(object.cast(), object.as_ptr().cast(), free) };
    /// assert_eq!(queue.poll(usize::MAX), 0); // the slot holds it
    /// # // SAFETY: this is the reader's thread.
    /// unsafe { slot.release() };
    /// assert_eq!(queue.poll(usize::MAX), 1);
    /// ```
    ///
    /// # Safety
    /// As for [`push`](CallbackQueue::push), with three words, and protected loads of `object`.
    #[inline]
    pub unsafe fn push_object(
        &self,
        callback: NonNull<ObjectCallback>,
        object: *const (),
        function: Function,
    ) {
        // SAFETY: the node's memory belongs to the queue from now on, by the caller's promise.
        unsafe { self.callbacks.push_object(callback, object, function) };
    }

    /// Calls the callbacks whose grace period is over, `limit` at most, and returns how many it called. Never waits. Also returns 0
    /// while another thread serves the queue, while the queue is paused, and if a callback of the queue makes the call.
    ///
    /// Looks at `limit` callbacks, and scans the domain's readers at most nine times. The more callbacks it calls, the fewer
    /// scans it does per callback.
    ///
    /// # Panics
    /// With the first panic of a callback; other callbacks that were ready have been called.
    pub fn poll(&self, limit: usize) -> usize {
        self.callbacks.poll(limit)
    }

    /// Serves the queue on the calling thread until [`stop`](CallbackQueue::stop). Sleeps while there is nothing to do.
    ///
    /// Several threads may serve one queue: they take turns. When the queue is stopped, `run` also waits for what protected loads
    /// hold: the calling thread should hold none then. A thread that waits for a reader is woken by that reader.
    ///
    /// # Panics
    /// If the calling thread holds a guard of the domain, or an online QSBR reader: it would wait for itself. If a destructor, a
    /// callback or a stall hook makes the call: such code must not wait.
    ///
    /// At the end of the run, with the first panic of a callback or of the stall hook, if there was one; the other callbacks are
    /// called first.
    ///
    /// ```
    /// # use std::ptr::NonNull;
    /// # use stillpoint::rcu::{raw::{Callback, CallbackQueue}, Domain};
    /// # unsafe extern "C-unwind" fn call(_: NonNull<Callback>) {}
    /// # let domain = Domain::new();
    /// # let mut node = Callback::new();
    /// let queue = CallbackQueue::new(&domain);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| queue.run());
    ///     // SAFETY: the node stays until `run` has returned.
    ///     unsafe { queue.push(NonNull::from(&mut node), call) };
    ///     queue.barrier().unwrap();
    ///     assert_eq!(queue.pending(), 0);
    ///     queue.stop();
    /// });
    /// ```
    #[track_caller]
    pub fn run(&self) {
        self.run_while(|| true);
    }

    /// As [`run`](CallbackQueue::run), but also returns as soon as `goes_on` returns false, even if callbacks still wait. It
    /// calls `goes_on` between turns, and again after [`wake`](CallbackQueue::wake). `goes_on` must not wait for the queue, as
    /// [`barrier`](CallbackQueue::barrier) does.
    ///
    /// # Panics
    /// As [`run`](CallbackQueue::run).
    ///
    /// ```
    /// # use std::sync::atomic::{AtomicBool, Ordering};
    /// # use stillpoint::rcu::{raw::CallbackQueue, Domain};
    /// let queue = CallbackQueue::new(&Domain::new());
    /// let goes_on = AtomicBool::new(true);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| queue.run_while(|| goes_on.load(Ordering::Acquire)));
    ///     goes_on.store(false, Ordering::Release);
    ///     queue.wake();
    /// });
    /// ```
    #[track_caller]
    pub fn run_while(&self, goes_on: impl Fn() -> bool) {
        self.callbacks.core().assert_may_run("a queue");
        panics::resume(self.callbacks.run_while(goes_on));
    }

    /// Lets the serving threads check whether to [go on](CallbackQueue::run_while).
    pub fn wake(&self) {
        self.callbacks.wake();
    }

    /// Moves the waiting callbacks to another queue of the domain, in order, as if they were pushed there now. Waits for a
    /// thread that serves this queue, for the end of pauses, and for pushes that other threads have begun.
    ///
    /// # Panics
    /// If the other queue is of another domain, or is this queue. If a destructor, a callback of any queue or a stall hook makes the
    /// call: such code must not wait.
    ///
    /// ```
    /// # use std::ptr::NonNull;
    /// # use stillpoint::rcu::{raw::{Callback, CallbackQueue}, Domain};
    /// # unsafe extern "C-unwind" fn call(_: NonNull<Callback>) {}
    /// # let domain = Domain::new();
    /// # let mut node = Callback::new();
    /// let (queue, other) = (CallbackQueue::new(&domain), CallbackQueue::new(&domain));
    /// // SAFETY: the node stays until the end.
    /// unsafe { queue.push(NonNull::from(&mut node), call) };
    /// queue.pass_to(&other);
    /// assert_eq!((queue.pending(), other.pending()), (0, 1));
    /// assert_eq!(other.poll(1), 1);
    /// ```
    #[track_caller]
    pub fn pass_to(&self, other: &Self) {
        let (core, others) = (self.callbacks.core(), other.callbacks.core());
        assert!(
            Arc::ptr_eq(core, others),
            "callbacks of domain `{}` cannot pass to a queue of domain `{}`",
            core.name(),
            others.name()
        );
        assert!(!Arc::ptr_eq(&self.callbacks, &other.callbacks), "a queue cannot pass to itself");
        self.callbacks.pass_to(&other.callbacks);
    }

    /// As [`run_while`](CallbackQueue::run_while), for a thread that has not been started yet, which calls the result. Until the
    /// result is dropped, a [`barrier`](CallbackQueue::barrier) leaves the callbacks to that thread.
    ///
    /// ```
    /// # use stillpoint::rcu::{raw::CallbackQueue, Domain};
    /// let queue = CallbackQueue::new(&Domain::new());
    /// let thread = std::thread::spawn(queue.runner(|| true));
    /// queue.barrier().expect("the thread serves it");
    /// queue.stop();
    /// thread.join().unwrap();
    /// ```
    pub fn runner(&self, goes_on: impl Fn() -> bool + Send + 'static) -> impl FnOnce() + Send + 'static {
        let (queue, server) = (self.clone(), Server::of(Arc::clone(&self.callbacks)));
        move || {
            let _server = server;
            queue.run_while(goes_on);
        }
    }

    /// Lets [`run`](CallbackQueue::run) return once every callback was called, including those that are pushed meanwhile. This
    /// cannot be undone: later calls of `run` return, too. Returns at once.
    pub fn stop(&self) {
        self.callbacks.stop();
    }

    /// Waits until every callback that was pushed before this call has been called, except those of objects that protected loads
    /// hold. The calling thread calls those that protected loads held and have released, and all others if no thread
    /// [runs](CallbackQueue::run) the queue. Keeps waiting while the queue is paused. Pushes two callbacks of its own, which it
    /// allocates.
    ///
    /// # Errors
    /// As [`Domain::synchronize`]; so [`Reentrant`](SynchronizeError::Reentrant) from a callback of any queue.
    ///
    /// # Panics
    /// With the panic of a callback that the calling thread has run.
    pub fn barrier(&self) -> Result<(), SynchronizeError> {
        self.callbacks.barrier(None)
    }

    /// As [`barrier`](CallbackQueue::barrier), for at most `limit`.
    ///
    /// # Errors
    /// As [`barrier`](CallbackQueue::barrier). After `limit`, [`Stalled`](SynchronizeError::Stalled) if a region reader is in the
    /// way of a grace period, [`Busy`](SynchronizeError::Busy) otherwise.
    ///
    /// # Panics
    /// As [`barrier`](CallbackQueue::barrier).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stillpoint::rcu::{raw::CallbackQueue, Domain};
    /// let queue = CallbackQueue::new(&Domain::new());
    /// let _paused = queue.pause();
    /// queue.barrier_timeout(Duration::from_millis(1)).unwrap_err();
    /// ```
    pub fn barrier_timeout(&self, limit: Duration) -> Result<(), SynchronizeError> {
        self.callbacks.barrier(Some(limit))
    }

    /// Waits for the callback that is running, if there is one, and for the rest of its turn: at most 64 callbacks under
    /// [`run`](CallbackQueue::run), or, if that is more, as many as there were protected objects at the last scan. From then on no
    /// callback is called until the result is dropped. Callbacks can be pushed meanwhile. For `fork`, and for threads that change what
    /// callbacks use.
    ///
    /// # Panics
    /// If a destructor, a callback of any queue or a stall hook makes the call: such code must not wait.
    ///
    /// ```
    /// # use std::ptr::NonNull;
    /// # use stillpoint::rcu::{raw::{Callback, CallbackQueue}, Domain};
    /// # unsafe extern "C-unwind" fn call(_: NonNull<Callback>) {}
    /// # let domain = Domain::new();
    /// # let mut node = Callback::new();
    /// let queue = CallbackQueue::new(&domain);
    /// let paused = queue.pause();
    /// // SAFETY: the node stays until the end.
    /// unsafe { queue.push(NonNull::from(&mut node), call) };
    /// assert_eq!(queue.poll(1), 0);
    /// drop(paused);
    /// assert_eq!(queue.poll(1), 1);
    /// ```
    #[must_use = "the pause ends when the value is dropped"]
    #[track_caller]
    pub fn pause(&self) -> Paused {
        let forks = self.callbacks.pause();
        Paused { queue: self.clone(), forks }
    }

    /// As [`pause`](CallbackQueue::pause), for a thread that is about to `fork`. A callback may call it, too; its turn goes on.
    /// Also waits for pushes that other threads have begun. So the child loses nothing that was pushed before this call. If a
    /// callback forks, there is an exception: the child loses pushes of other threads that were incomplete when the callback's
    /// turn began, and what was pushed after those.
    ///
    /// If `gives_up` returns true, this call does not wait for the end of the turn, and the child loses what waits. It calls
    /// `gives_up` first, and after each [`wake`](CallbackQueue::wake): for callbacks that wait for the forking thread.
    ///
    /// ```no_run
    /// # use stillpoint::rcu::{raw::CallbackQueue, Domain};
    /// let queue = CallbackQueue::new(&Domain::new());
    /// let paused = queue.pause_to_fork(|| false);
    /// ```
    #[cfg(target_os = "linux")]
    #[must_use = "the pause ends when the value is dropped"]
    pub fn pause_to_fork(&self, gives_up: impl Fn() -> bool) -> Paused {
        let forks = self.callbacks.pause_to_fork(gives_up);
        Paused { queue: self.clone(), forks }
    }

    /// On Linux, in the child of a `fork`: lets the queue be served again. What waits in the queue is called in the child, too.
    /// Pauses are over. If the caller is a callback, its turn goes on.
    ///
    /// If other threads of the parent were pushing at the moment of the `fork`, the child loses what they were pushing, and
    /// what was pushed after that: see [`pause_to_fork`](CallbackQueue::pause_to_fork). If another thread was serving the
    /// queue, which a pause prevents, the child loses everything that this thread had taken from the queue and not called. What
    /// is lost stays in memory. Call [`Domain::reset_after_fork`] as well.
    ///
    /// ```no_run
    /// # use stillpoint::rcu::{raw::CallbackQueue, Domain};
    /// # let domain = Domain::new();
    /// let queue = CallbackQueue::new(&domain);
    /// let paused = queue.pause_to_fork(|| false);
    /// // SAFETY: nothing but async-signal-safe functions is called in the child before the queue is reset.
    /// if unsafe { libc::fork() } == 0 {
    ///     // SAFETY: this is the only thread, and nothing is used that another thread has lent.
    ///     unsafe {
    ///         domain.reset_after_fork();
    ///         queue.reset_after_fork();
    ///     }
    /// }
    /// drop(paused);
    /// ```
    ///
    /// # Safety
    /// The calling thread is the only one of the process.
    #[cfg(target_os = "linux")]
    pub unsafe fn reset_after_fork(&self) {
        // SAFETY: the caller is the only thread of the process.
        unsafe { self.callbacks.reset_after_fork() };
    }

    /// Whether the calling thread is serving the queue: the call comes from one of its callbacks, at any depth.
    ///
    /// ```
    /// # use stillpoint::rcu::{raw::CallbackQueue, Domain};
    /// assert!(!CallbackQueue::new(&Domain::new()).is_served_here());
    /// ```
    pub fn is_served_here(&self) -> bool {
        self.callbacks.is_served_here()
    }

    /// Number of callbacks that were pushed and not called yet.
    pub fn pending(&self) -> u64 {
        self.callbacks.pending()
    }
}

stillpoint_sys::debug!(|this| CallbackQueue {
    domain: this.callbacks.core().name(),
    pending: this.pending(),
    ..
});

/// A pause of a [`CallbackQueue`], made by [`CallbackQueue::pause`]: as long as it exists, no callback of the queue is called. In
/// the child of a `fork`, [`reset_after_fork`](CallbackQueue::reset_after_fork) ends it.
#[derive(Debug)]
pub struct Paused {
    queue: CallbackQueue,
    forks: u64,
}

impl Drop for Paused {
    fn drop(&mut self) {
        self.queue.callbacks.resume(self.forks);
    }
}
