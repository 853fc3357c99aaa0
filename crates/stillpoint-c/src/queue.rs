//! Queues of callbacks in the program's own objects.

use std::ffi::{c_int, c_void};
use std::panic::resume_unwind;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stillpoint::rcu::raw::{self, Callback, CallbackQueue, ObjectCallback, Paused};
use stillpoint::rcu::Domain;

use crate::border::{briefly, call, time, Refusal};
use crate::domain::{domain_of, still_domain};
use crate::handle::{self, find, kind, Parts};
use crate::reader::is_protected_here;
use crate::reason::Word;
use crate::thread::{still_thread_options, Threading, Worker};
use crate::{once, reserve};

/// A queue of callbacks, to C.
#[repr(C)]
pub struct still_queue {
    _private: [u8; 0],
}

/// Two words, to C.
#[repr(C)]
pub struct still_callback {
    words_: [*mut c_void; 2],
}

/// Three words, to C.
#[repr(C)]
pub struct still_object_callback {
    callback: still_callback,
    word_: *mut c_void,
}

const _: () = {
    assert!(
        size_of::<still_callback>() == size_of::<Callback>()
            && align_of::<still_callback>() == align_of::<Callback>()
    );
    assert!(size_of::<still_object_callback>() == size_of::<ObjectCallback>());
};

pub type still_callback_fn = Option<unsafe extern "C-unwind" fn(callback: *mut still_callback)>;

pub(crate) struct Queue {
    queue: CallbackQueue,
    pauses: Mutex<Vec<(Paused, libc::pid_t)>>,
    worker: Mutex<Option<Worker>>,
    /// Set when the thread must end without calling the pending callbacks.
    is_freed: Arc<AtomicBool>,
    domain: Domain,
}

kind!(Queue: still_queue, 0x5d0a_0007, "a queue of callbacks");

impl Queue {
    fn pauses(&self) -> MutexGuard<'_, Vec<(Paused, libc::pid_t)>> {
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn worker(&self) -> MutexGuard<'_, Option<Worker>> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses a destructor, a callback or a stall hook, which could wait for its own end.
fn not_from_within() -> Result<(), Refusal> {
    match raw::is_within_foreign_code() {
        true => Err(Refusal::new(
            libc::EDEADLK,
            c"a destructor, a callback or a stall hook could wait for its own end, or for its own queue: call this from another thread",
        )),
        false => Ok(()),
    }
}

fn own_thread() -> libc::pid_t {
    // SAFETY: the function has no preconditions.
    unsafe { libc::gettid() }
}

unsafe fn queue<'q>(queue: *const still_queue) -> Result<&'q Queue, Refusal> {
    // SAFETY: the caller passes a handle, which is not freed meanwhile.
    Ok(unsafe { find::<Queue>(queue)?.value() })
}

#[no_mangle]
pub unsafe extern "C" fn still_queue_new(domain: *const still_domain) -> *mut still_queue {
    call(|| {
        // SAFETY: the caller passes a handle.
        let domain = unsafe { domain_of(domain) }?.clone();
        handle::make(|| {
            let queue = Queue {
                queue: CallbackQueue::new(&domain),
                pauses: Mutex::default(),
                worker: Mutex::default(),
                is_freed: Arc::default(),
                domain,
            };
            Ok((queue, Parts::default()))
        })
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_queue_free(handle: *mut still_queue) -> c_int {
    call(|| {
        // SAFETY: the caller passes a handle, and no other call uses it.
        let found = unsafe { find::<Queue>(handle) }?;
        // SAFETY: the caller passes a handle, and no other call uses it.
        let value = unsafe { found.value() };
        if value.queue.is_served_here() {
            return Err(Refusal::new(
                libc::EBUSY,
                c"a callback would wait for its own queue: free it from another thread",
            ));
        }
        if value.worker().as_ref().is_some_and(Worker::is_here) {
            // The end of that thread is the end of its callbacks.
            not_from_within()?;
        }
        let mut place = value.worker();
        let worker = place.take();
        if worker.as_ref().is_some_and(Worker::is_here) {
            // With the lock, so that no callback starts another thread. Release: pairs with the acquire load in the closure of `runner`.
            value.is_freed.store(true, Ordering::Release);
            value.queue.wake();
        }
        drop(place);
        // Callbacks on the queue's thread may use the handle until that thread ends, and so may destructors of its thread-specific data.
        let ended = worker.map_or(Ok(()), |worker| worker.join());
        // SAFETY: the caller passes a handle, and no other call uses it.
        drop(unsafe { found.free() });
        ended.map_or_else(|panic| resume_unwind(panic), |()| Ok(0))
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_queue_start(
    handle: *mut still_queue,
    options: *const still_thread_options,
) -> c_int {
    call(|| {
        // SAFETY: the caller passes a handle.
        let queue = unsafe { queue(handle) }?;
        // SAFETY: the caller passes options, or null.
        let threading = unsafe { Threading::of(options) }?;
        let mut worker = queue.worker();
        if worker.as_ref().is_some_and(Worker::is_here) {
            return Err(Refusal::new(libc::EALREADY, c"the queue has a thread already"));
        }
        // Relaxed: it is stored with this lock.
        if queue.is_freed.load(Ordering::Relaxed) {
            return Err(Refusal::new(libc::EBUSY, c"the queue is being freed"));
        }
        reserve::spare()?;
        let is_freed = Arc::clone(&queue.is_freed);
        // Acquire: pairs with the release in `still_queue_free`.
        let run = queue.queue.runner(move || !is_freed.load(Ordering::Acquire));
        if let Some(before) = worker.replace(Worker::start(threading, run)?) {
            // It belongs to the parent: this only forgets it, and cannot fail.
            let _ = before.join();
        }
        Ok(0)
    })
}

fn function(function: still_callback_fn) -> Result<unsafe extern "C-unwind" fn(NonNull<Callback>), Refusal> {
    let function =
        function.ok_or_else(|| Refusal::invalid(c"NULL was passed for the function of a callback"))?;
    // SAFETY: the two types of function pointers have the same layout, and the queue never passes null.
    Ok(unsafe {
        std::mem::transmute::<
            unsafe extern "C-unwind" fn(*mut still_callback),
            unsafe extern "C-unwind" fn(NonNull<Callback>),
        >(function)
    })
}

fn node<N>(node: *mut N) -> Result<NonNull<N>, Refusal> {
    NonNull::new(node).ok_or_else(|| Refusal::invalid(c"NULL was passed for a callback"))
}

#[no_mangle]
pub unsafe extern "C" fn still_call(
    handle: *mut still_queue,
    callback: *mut still_callback,
    called: still_callback_fn,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { push::<false>(handle, callback, called) }
}

/// `still_call`, where `STILL_CHECKED` is defined.
#[no_mangle]
pub unsafe extern "C" fn still_call_once_(
    handle: *mut still_queue,
    callback: *mut still_callback,
    called: still_callback_fn,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { push::<true>(handle, callback, called) }
}

/// # Safety
/// As the header requires.
#[inline]
unsafe fn push<const IS_CHECKED: bool>(
    handle: *mut still_queue,
    callback: *mut still_callback,
    called: still_callback_fn,
) -> c_int {
    briefly(|| {
        // SAFETY: the caller passes a handle.
        let queue = unsafe { queue(handle) }?;
        let (callback, called) = (node(callback)?.cast::<Callback>(), function(called)?);
        if IS_CHECKED && is_protected_here(callback.cast()) {
            return Err(Refusal::invalid(
                c"this thread protects the object at {}, and still_call waits for regions only: give the object to still_call_object or \
                  still_retire",
            )
            .with(Word::Address(callback.addr().get())));
        }
        once::callback::<IS_CHECKED>(callback, ptr::null(), called, |called| {
            // SAFETY: the caller gives the node to the queue, and promises that the function may be called with it.
            unsafe { queue.queue.push(callback, called) };
        })
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_call_object(
    handle: *mut still_queue,
    callback: *mut still_object_callback,
    object: *mut c_void,
    called: still_callback_fn,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { push_object::<false>(handle, callback, object, called) }
}

/// `still_call_object`, where `STILL_CHECKED` is defined.
#[no_mangle]
pub unsafe extern "C" fn still_call_object_once_(
    handle: *mut still_queue,
    callback: *mut still_object_callback,
    object: *mut c_void,
    called: still_callback_fn,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { push_object::<true>(handle, callback, object, called) }
}

/// # Safety
/// As the header requires.
#[inline]
unsafe fn push_object<const IS_CHECKED: bool>(
    handle: *mut still_queue,
    callback: *mut still_object_callback,
    object: *mut c_void,
    called: still_callback_fn,
) -> c_int {
    briefly(|| {
        // SAFETY: the caller passes a handle.
        let queue = unsafe { queue(handle) }?;
        let (callback, called) = (node(callback)?, function(called)?);
        if object.is_null() {
            return Err(Refusal::invalid(c"NULL was passed for the object of a callback"));
        }
        let object = object.cast_const().cast();
        once::callback::<IS_CHECKED>(callback.cast(), object, called, |called| {
            // SAFETY: the caller gives the node to the queue, and promises that the function may be called with it.
            unsafe { queue.queue.push_object(callback.cast(), object, called) };
        })
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_queue_poll(handle: *mut still_queue, limit: usize) -> isize {
    call(|| {
        // SAFETY: the caller passes a handle.
        let queue = unsafe { queue(handle) }?;
        // A clone: a callback of another queue may free the caller's handle.
        Ok(queue.queue.clone().poll(limit) as isize)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_queue_run(handle: *mut still_queue) -> c_int {
    call(|| {
        // SAFETY: the caller passes a handle.
        let queue = unsafe { queue(handle) }?;
        not_from_within()?;
        raw::blocked_by_caller(&queue.domain)?;
        queue.queue.clone().run();
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_queue_stop(handle: *mut still_queue) -> c_int {
    call(|| {
        // SAFETY: the caller passes a handle.
        unsafe { queue(handle) }?.queue.stop();
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_queue_barrier(handle: *mut still_queue, timeout: i64) -> c_int {
    call(|| {
        // SAFETY: the caller passes a handle.
        let queue = unsafe { queue(handle) }?;
        let limit = time(timeout)?;
        if queue.pauses().iter().any(|(_, thread)| *thread == own_thread()) {
            return Err(Refusal::new(libc::EDEADLK, c"this thread has paused the queue: resume it first"));
        }
        // A clone: a callback of another queue may free the caller's handle.
        let queue = queue.queue.clone();
        limit.map_or_else(|| queue.barrier(), |limit| queue.barrier_timeout(limit))?;
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_queue_pause(handle: *mut still_queue) -> c_int {
    call(|| {
        // SAFETY: the caller passes a handle.
        let queue = unsafe { queue(handle) }?;
        not_from_within()?;
        reserve::closed(|| queue.pauses().try_reserve(1))
            .map_err(|_| Refusal::no_memory(c"there is no memory to note another pause"))?;
        let paused = queue.queue.pause();
        queue.pauses().push((paused, own_thread()));
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_queue_resume(handle: *mut still_queue) -> c_int {
    call(|| {
        // SAFETY: the caller passes a handle.
        let queue = unsafe { queue(handle) }?;
        let mut pauses = queue.pauses();
        if pauses.is_empty() {
            return Err(Refusal::invalid(c"the queue is not paused"));
        }
        let own = pauses.iter().rposition(|(_, thread)| *thread == own_thread()).ok_or(Refusal::new(
            libc::EPERM,
            c"the queue was paused by another thread, which relies on that: the thread that pauses it must resume it",
        ))?;
        let paused = pauses.remove(own);
        drop(pauses);
        drop(paused);
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_queue_reset_after_fork(handle: *mut still_queue) -> c_int {
    call(|| {
        // SAFETY: the caller passes a handle, is the only thread of a child, and its parent had paused the queue.
        let queue = unsafe { queue(handle) }?;
        // SAFETY: the caller passes a handle, is the only thread of a child, and its parent had paused the queue.
        unsafe { queue.queue.reset_after_fork() };
        queue.pauses().clear();
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_queue_pending(handle: *const still_queue) -> isize {
    // SAFETY: the caller passes a handle.
    call(|| Ok(unsafe { queue(handle) }?.queue.pending() as isize))
}
