//! Background reclaimers, with their threads.

use std::ffi::{c_int, c_void};
use std::panic::resume_unwind;

use stillpoint::rcu::{raw, Domain, RetireHandle};

use crate::border::{call, time, Refusal};
use crate::domain::{domain_of, still_domain};
use crate::handle::{self, find, kind, Parts};
use crate::reclaimer::{configure, object, still_destroy_fn, still_reclaimer_options};
use crate::thread::Worker;
use crate::{once, reserve};

/// A background reclaimer, to C.
#[repr(C)]
pub struct still_background {
    _private: [u8; 0],
}

pub(crate) struct Background {
    handle: RetireHandle,
    worker: Worker,
    domain: Domain,
}

kind!(Background: still_background, 0x5d0a_0006, "a background reclaimer");

#[no_mangle]
pub unsafe extern "C" fn still_background_new(
    domain: *const still_domain,
    options: *const still_reclaimer_options,
) -> *mut still_background {
    call(|| {
        // SAFETY: the caller passes a handle.
        let domain = unsafe { domain_of(domain) }?.clone();
        // SAFETY: the caller passes options, or null.
        let (builder, threading) = unsafe { configure(domain.reclaimer_builder(), options) }?;
        handle::make(|| {
            let mut background = builder.build_background();
            let handle = background.retire_handle();
            // If this is dropped for want of memory, the last handle goes, and the thread ends.
            let worker = Worker::start(threading, move || background.run())?;
            Ok((Background { handle, worker, domain }, Parts::default()))
        })
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_submit(
    background: *mut still_background,
    address: *mut c_void,
    bytes: usize,
    destroy: still_destroy_fn,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { submit::<false>(background, address, bytes, destroy, context) }
}

/// `still_submit`, where `STILL_CHECKED` is defined.
#[no_mangle]
pub unsafe extern "C" fn still_submit_once_(
    background: *mut still_background,
    address: *mut c_void,
    bytes: usize,
    destroy: still_destroy_fn,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { submit::<true>(background, address, bytes, destroy, context) }
}

/// # Safety
/// As the header requires.
#[inline]
unsafe fn submit<const IS_CHECKED: bool>(
    background: *mut still_background,
    address: *mut c_void,
    bytes: usize,
    destroy: still_destroy_fn,
    context: *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: the caller passes a handle.
        let background = unsafe { find::<Background>(background)?.value() };
        // SAFETY: the caller promises that the object may be retired.
        let object = unsafe { object(address, bytes, destroy, context) }?;
        if !background.worker.is_here() {
            return Err(Refusal::new(
                libc::EPIPE,
                c"the thread of the background reclaimer is in the parent of this process",
            ));
        }
        once::object::<IS_CHECKED>(object, |object| {
            reserve::spare()?;
            if raw::is_within_destructor() {
                // Such code never waits, and has no place for an object that is handed back.
                // SAFETY: the caller promises that the object may be retired.
                unsafe { raw::leave(&background.domain, object) };
                return Ok(0);
            }
            // SAFETY: the caller promises that the object may be retired.
            unsafe { background.handle.retire_raw(object) }?;
            Ok(0)
        })
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_background_pending(background: *const still_background) -> isize {
    // SAFETY: the caller passes a handle.
    call(|| Ok(unsafe { find::<Background>(background)?.value() }.handle.pending() as isize))
}

#[no_mangle]
pub unsafe extern "C" fn still_background_free(background: *mut still_background, timeout: i64) -> isize {
    call(|| {
        let limit = time(timeout)?;
        // SAFETY: the caller passes a handle, and no other call uses it.
        let found = unsafe { find::<Background>(background) }?;
        // SAFETY: the caller passes a handle, and no other call uses it.
        let Background { handle, worker, domain } = unsafe { found.value() };
        if raw::is_within_foreign_code() {
            let reason = c"a destructor, a callback or a stall hook called this, and could wait for itself: call it from another thread";
            return Err(Refusal::new(libc::EDEADLK, reason));
        }
        let is_here = worker.is_here();
        if is_here {
            raw::blocked_by_caller(domain)?;
            handle.stop();
            worker.wait(limit);
        }
        let left = handle.pending() as isize;
        if is_here {
            handle.abandon();
        }
        // Destructors on the reclaimer's thread may use the handle until that thread ends, those of its thread-specific data too.
        let ended = worker.join();
        // SAFETY: the caller passes a handle, and no other call uses it. In a child, the objects of the parent's thread are lost.
        drop(unsafe { found.free() });
        ended.map_or_else(|panic| resume_unwind(panic), |()| Ok(left))
    })
}
