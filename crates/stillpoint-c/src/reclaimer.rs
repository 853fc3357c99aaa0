//! Reclaimers without a thread, which their owners poll.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::time::Duration;

use stillpoint::rcu::limits::WhenFull;
use stillpoint::rcu::raw::{self, Object};
use stillpoint::rcu::{Domain, Reclaimer, ReclaimerBuilder};
use stillpoint_sys::tsan;

use crate::border::{call, time, Refusal};
use crate::domain::{domain_of, still_domain};
use crate::handle::{self, find, is_unused, kind, peek, sized, versioned, Parts};
use crate::thread::Threading;
use crate::{once, reserve};

/// A reclaimer, to C.
#[repr(C)]
pub struct still_reclaimer {
    _private: [u8; 0],
}

pub type still_destroy_fn = Option<unsafe extern "C-unwind" fn(object: *mut c_void, context: *mut c_void)>;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct still_reclaimer_options {
    size: usize,
    max_pending: usize,
    max_pending_bytes: usize,
    batch: usize,
    fence_interval: i64,
    when_full: u32,
    reserved: u32,
    full_wait: i64,
    stack_size: usize,
    thread_name: *const c_char,
}

// SAFETY: numbers, and a pointer that may be null. The first version had no options of the thread.
versioned!(unsafe still_reclaimer_options: 56);

pub(crate) struct Polled {
    reclaimer: UnsafeCell<Reclaimer>,
    domain: Domain,
}

kind!(Polled: still_reclaimer, 0x5d0a_0005, "a reclaimer");

/// Sets the options of the builder, and returns it with the options of the thread.
///
/// # Safety
/// `options` is null, or points to memory whose first word is its size in bytes.
pub(crate) unsafe fn configure(
    mut builder: ReclaimerBuilder,
    options: *const still_reclaimer_options,
) -> Result<(ReclaimerBuilder, Threading), Refusal> {
    if options.is_null() {
        // SAFETY: the name is null.
        return Ok((builder, unsafe { Threading::new(0, ptr::null()) }?));
    }
    // SAFETY: the options are not null, so their first word is their size, by the caller's promise.
    let options = unsafe { sized(options) }?;
    is_unused::<still_reclaimer_options>(options.reserved)?;
    if options.max_pending > 0 {
        builder = builder.max_pending(options.max_pending);
    }
    if options.max_pending_bytes > 0 {
        builder = builder.max_pending_bytes(options.max_pending_bytes);
    }
    if options.batch > 0 {
        builder = builder.batch(options.batch);
    }
    if options.fence_interval != 0 {
        builder = builder.fence_interval(time(options.fence_interval)?.unwrap_or(Duration::MAX));
    }
    let when_full = match options.when_full {
        0 => WhenFull::HandBack,
        1 => WhenFull::Reclaim,
        2 => WhenFull::Wait(time(options.full_wait)?.unwrap_or(Duration::MAX)),
        other => {
            let text =
                c"there is no still_when_full {}: set `when_full` to STILL_FULL_HAND_BACK, _RECLAIM or _WAIT";
            return Err(Refusal::invalid(text).with(other));
        }
    };
    // SAFETY: the header requires that the name is a string.
    let threading = unsafe { Threading::new(options.stack_size, options.thread_name) }?;
    Ok((builder.when_full(when_full), threading))
}

/// The object that C code retires.
///
/// # Safety
/// The object, its size and its destructor are as the header requires.
pub(crate) unsafe fn object(
    object: *mut c_void,
    bytes: usize,
    destroy: still_destroy_fn,
    context: *mut c_void,
) -> Result<Object, Refusal> {
    /// The limit of a size, so that sums of sizes do not wrap.
    const LARGEST: usize = 1 << 47;
    if bytes > LARGEST {
        let text = c"an object of {} bytes was retired: that is larger than the memory of a process";
        return Err(Refusal::invalid(text).with(bytes));
    }
    let address = NonNull::new(object).ok_or_else(|| Refusal::invalid(c"NULL was retired"))?;
    let destroy = destroy.ok_or_else(|| Refusal::invalid(c"an object was retired without a destructor"))?;
    // SAFETY: the two types of function pointers have the same layout, and so have their arguments.
    let destroy = unsafe {
        std::mem::transmute::<
            unsafe extern "C-unwind" fn(*mut c_void, *mut c_void),
            unsafe extern "C-unwind" fn(NonNull<()>, *const ()),
        >(destroy)
    };
    Ok(Object { address: address.cast(), bytes, context: context.cast_const().cast(), destroy })
}

#[no_mangle]
pub unsafe extern "C" fn still_reclaimer_new(
    domain: *const still_domain,
    options: *const still_reclaimer_options,
) -> *mut still_reclaimer {
    call(|| {
        // SAFETY: the caller passes a handle.
        let domain = unsafe { domain_of(domain) }?.clone();
        // SAFETY: the caller passes options, or null.
        let (builder, _) = unsafe { configure(domain.reclaimer_builder(), options) }?;
        handle::make(|| {
            Ok((Polled { reclaimer: UnsafeCell::new(builder.build()), domain }, Parts::default()))
        })
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_reclaimer_free(reclaimer: *mut still_reclaimer) -> c_int {
    call(|| {
        // SAFETY: the caller passes a handle, and no other call uses it.
        let found = unsafe { find::<Polled>(reclaimer) }?;
        drop(found.enter()?);
        // SAFETY: the caller passes a handle, and no other call uses it.
        drop(unsafe { found.free() });
        Ok(0)
    })
}

/// Runs a call on a reclaimer. It is refused if a destructor that this reclaimer runs makes the call.
unsafe fn within<A>(
    reclaimer: *const still_reclaimer,
    action: impl FnOnce(&mut Reclaimer) -> Result<A, Refusal>,
) -> Result<A, Refusal> {
    // SAFETY: the caller passes a handle.
    let found = unsafe { find::<Polled>(reclaimer) }?;
    let _within = found.enter()?;
    // SAFETY: by the header, one thread at a time uses the reclaimer, and `enter` has refused if another call is using it.
    action(unsafe { &mut *found.value().reclaimer.get() })
}

#[no_mangle]
pub unsafe extern "C" fn still_retire(
    reclaimer: *mut still_reclaimer,
    address: *mut c_void,
    bytes: usize,
    destroy: still_destroy_fn,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { retire_quickly(reclaimer, address, bytes, destroy, context) } {
        true => 0,
        // SAFETY: the caller's promise; the object was not taken in.
        false => unsafe { retire::<false>(reclaimer, address, bytes, destroy, context) },
    }
}

/// Retires an object, if the reclaimer has room and memory for it. There is nothing to refuse, no panic to catch, no function of the
/// program to be called, and nothing to report to ThreadSanitizer: so this needs no stack frame. False: nothing happened.
///
/// # Safety
/// As the header requires.
#[inline(always)]
unsafe fn retire_quickly(
    reclaimer: *mut still_reclaimer,
    address: *mut c_void,
    bytes: usize,
    destroy: still_destroy_fn,
    context: *mut c_void,
) -> bool {
    if tsan::is_there() {
        return false;
    }
    // SAFETY: the caller passes a handle, and an object that may be retired.
    let (found, object) = unsafe { (peek::<Polled>(reclaimer), object(address, bytes, destroy, context)) };
    let (Some(found), Ok(object)) = (found, object) else { return false };
    // SAFETY: one thread at a time uses the reclaimer, and no call further up the stack does.
    found.is_idle() && unsafe { (*found.value().reclaimer.get()).retire_raw_at_once(object) }
}

/// `still_retire`, where `STILL_CHECKED` is defined.
#[no_mangle]
pub unsafe extern "C" fn still_retire_once_(
    reclaimer: *mut still_reclaimer,
    address: *mut c_void,
    bytes: usize,
    destroy: still_destroy_fn,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { retire::<true>(reclaimer, address, bytes, destroy, context) }
}

/// # Safety
/// As the header requires.
#[inline(never)]
unsafe extern "C" fn retire<const IS_CHECKED: bool>(
    reclaimer: *mut still_reclaimer,
    address: *mut c_void,
    bytes: usize,
    destroy: still_destroy_fn,
    context: *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: the caller passes a handle.
        let found = unsafe { find::<Polled>(reclaimer) }?;
        // SAFETY: the caller promises that the object may be retired.
        let object = unsafe { object(address, bytes, destroy, context) }?;
        once::object::<IS_CHECKED>(object, |object| {
            let Ok(_within) = found.enter() else {
                // A destructor that this reclaimer runs has made the call.
                reserve::spare()?;
                // SAFETY: the caller promises that the object may be retired.
                unsafe { raw::leave(&found.value().domain, object) };
                return Ok(0);
            };
            // SAFETY: one thread at a time uses the reclaimer, and no other call is using it.
            let reclaimer = unsafe { &mut *found.value().reclaimer.get() };
            reserve::closed(|| reclaimer.try_reserve(1)).map_err(|_| {
                Refusal::no_memory(
                    c"there is no memory to note another retired object: poll, and retire it later",
                )
            })?;
            // SAFETY: the caller promises that the object may be retired.
            unsafe { reclaimer.retire_raw(object) }?;
            Ok(0)
        })
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_poll(reclaimer: *mut still_reclaimer, limit: usize) -> isize {
    // SAFETY: the caller passes a handle.
    call(|| unsafe { within(reclaimer, |reclaimer| Ok(reclaimer.poll_at_most(limit) as isize)) })
}

#[no_mangle]
pub unsafe extern "C" fn still_flush(reclaimer: *mut still_reclaimer, timeout: i64) -> c_int {
    let flush = |reclaimer: &mut Reclaimer| {
        match time(timeout)? {
            Some(limit) => reclaimer.flush_timeout(limit)?,
            None => reclaimer.flush()?,
        }
        Ok(0)
    };
    // SAFETY: the caller passes a handle.
    call(|| unsafe { within(reclaimer, flush) })
}

#[no_mangle]
pub unsafe extern "C" fn still_pending(reclaimer: *const still_reclaimer) -> isize {
    // SAFETY: the caller passes a handle.
    call(|| unsafe { within(reclaimer, |reclaimer| Ok(reclaimer.pending() as isize)) })
}

#[no_mangle]
pub unsafe extern "C" fn still_domain_retire(
    domain: *const still_domain,
    address: *mut c_void,
    bytes: usize,
    destroy: still_destroy_fn,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { leave::<false>(domain, address, bytes, destroy, context) }
}

/// `still_domain_retire`, where `STILL_CHECKED` is defined.
#[no_mangle]
pub unsafe extern "C" fn still_domain_retire_once_(
    domain: *const still_domain,
    address: *mut c_void,
    bytes: usize,
    destroy: still_destroy_fn,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { leave::<true>(domain, address, bytes, destroy, context) }
}

/// # Safety
/// As the header requires.
#[inline]
unsafe fn leave<const IS_CHECKED: bool>(
    domain: *const still_domain,
    address: *mut c_void,
    bytes: usize,
    destroy: still_destroy_fn,
    context: *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: the caller passes a handle, and promises that the object may be retired.
        let (domain, object) = unsafe { (domain_of(domain)?, object(address, bytes, destroy, context)?) };
        once::object::<IS_CHECKED>(object, |object| {
            reserve::spare()?;
            // SAFETY: the caller promises that the object may be retired.
            unsafe { raw::leave(domain, object) };
            Ok(0)
        })
    })
}
