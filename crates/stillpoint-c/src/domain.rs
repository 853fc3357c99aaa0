//! Domains: `still_domain` and its functions.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::time::Duration;

use stillpoint::fence::Mode;
use stillpoint::rcu::wait::{Activity, ReaderKind, Stall, SynchronizeError, Token};
use stillpoint::rcu::{self, raw, Boost, Domain, DomainBuilder};
use stillpoint_sys::tsan;

use crate::border::{briefly, call, nanoseconds, time, Refusal};
use crate::copies;
use crate::handle::{self, find, is_unused, kind, peek, sized, versioned, Parts, Place};

/// A domain, to C.
#[repr(C)]
pub struct still_domain {
    _private: [u8; 0],
}

kind!(Domain: still_domain, 0x5d0a_0001, "a domain");

/// # Safety
/// As for [`find`]; the handle is not freed meanwhile.
pub(crate) unsafe fn domain_of<'d>(domain: *const still_domain) -> Result<&'d Domain, Refusal> {
    // SAFETY: the pointer is null, or has been a handle, which is not freed meanwhile, by the caller's promise.
    Ok(unsafe { find::<Domain>(domain)?.value() })
}

pub type still_stall_fn =
    Option<unsafe extern "C-unwind" fn(stall: *const still_stall, context: *mut c_void)>;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct still_domain_options {
    size: usize,
    name: *const c_char,
    mode: u32,
    boost: u32,
    boost_fallback: u32,
    reserved: u32,
    boost_after: i64,
    max_pending: usize,
    max_pending_bytes: usize,
    stall_after: i64,
    on_stall: still_stall_fn,
    context: *mut c_void,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct still_stall {
    size: usize,
    thread: u32,
    kind: u32,
    activity: u32,
    others: u32,
    waited: i64,
    objects: u64,
    bytes: u64,
    name: [c_char; 16],
    fence_error: i32,
    reserved: i32,
    missed: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct still_stats {
    size: usize,
    grace_periods: u64,
    heavy_fences: u64,
    retired: u64,
    freed: u64,
    pending: u64,
    pending_bytes: u64,
    beyond_limits: u64,
    handed_back: u64,
    waits: u64,
    pinned: u64,
    oldest: i64,
    readers: u64,
    holds: u64,
    boosted: u64,
    boost_refused: u64,
    fence_error: i32,
    reserved: i32,
    ready: u64,
    vouched: u64,
    silent: u64,
    stalls: u64,
    delay_median: i64,
    delay_p99: i64,
}

// SAFETY: numbers, and in the options pointers that may be null.
versioned!(unsafe still_domain_options: 80, still_stall: 64, still_stats: 136);

#[no_mangle]
pub unsafe extern "C" fn still_domain_new(options: *const still_domain_options) -> *mut still_domain {
    call(|| {
        let builder = match options.is_null() {
            true => Domain::builder(),
            // SAFETY: the caller passes options.
            false => builder(&unsafe { sized(options) }?)?,
        };
        handle::make(|| Ok((builder.build()?, Parts::default())))
    })
}

pub(crate) fn builder(options: &still_domain_options) -> Result<DomainBuilder, Refusal> {
    let mut builder = Domain::builder();
    if !options.name.is_null() {
        // SAFETY: the header requires that the name is a string.
        builder = builder.name(unsafe { CStr::from_ptr(options.name) }.to_string_lossy());
    }
    is_unused::<still_domain_options>(options.reserved)?;
    builder = match options.mode {
        0 => builder,
        1 => builder.fence(Mode::Symmetric),
        2 => builder.fence(Mode::Asymmetric),
        other => {
            let text = c"there is no still_mode {}: set `mode` to STILL_MODE_BEST, _SYMMETRIC or _ASYMMETRIC";
            return Err(Refusal::invalid(text).with(other));
        }
    };
    builder = builder.boost(boost(options.boost)?);
    if options.boost_fallback != options.boost {
        builder = builder.boost_fallback(boost(options.boost_fallback)?);
    }
    match time(options.boost_after)? {
        Some(Duration::ZERO) => {}
        after => builder = builder.boost_after(after.unwrap_or(Duration::MAX)),
    }
    if options.max_pending > 0 {
        builder = builder.max_pending(options.max_pending);
    }
    if options.max_pending_bytes > 0 {
        builder = builder.max_pending_bytes(options.max_pending_bytes);
    }
    let threshold = time(options.stall_after)?;
    let Some(hook) = options.hook() else { return Ok(builder) };
    let threshold =
        threshold.ok_or_else(|| Refusal::invalid(c"a stall needs a threshold: set `stall_after`"))?;
    Ok(builder.stall_hook(threshold, move |stall| hook.call(stall)))
}

impl still_domain_options {
    /// The stall hook, if there is one.
    pub(crate) fn hook(&self) -> Option<Hook> {
        self.on_stall.map(|function| Hook { function, context: self.context })
    }

    pub(crate) fn has_name(&self) -> bool {
        !self.name.is_null()
    }

    pub(crate) fn is_asymmetric(&self) -> bool {
        self.mode == 2
    }
}

fn boost(number: u32) -> Result<Boost, Refusal> {
    match number {
        0 => Ok(Boost::Off),
        1 => Ok(Boost::Realtime),
        2 => Ok(Boost::Migrate),
        other => {
            let text = c"there is no still_boost {}: use STILL_BOOST_OFF, _REALTIME or _MIGRATE";
            Err(Refusal::invalid(text).with(other))
        }
    }
}

/// A stall hook of C.
pub(crate) struct Hook {
    function: unsafe extern "C-unwind" fn(*const still_stall, *mut c_void),
    context: *mut c_void,
}

// SAFETY: by the header, any thread may call the function with this context.
unsafe impl Send for Hook {}
// SAFETY: by the header, several threads may call the function with this context at the same time.
unsafe impl Sync for Hook {}

impl Hook {
    pub(crate) fn call(&self, stall: &Stall) {
        let stall = still_stall::from(stall);
        let _heeded = tsan::heed();
        // SAFETY: the caller of `still_domain_new` or `still_domain_silent` promises that the function may be called with a stall and this
        // context.
        unsafe { (self.function)(&stall, self.context) };
    }
}

impl From<&Stall> for still_stall {
    fn from(stall: &Stall) -> Self {
        let mut name = [0; 16];
        let bytes = stall.thread_name.as_deref().unwrap_or_default().bytes().take(15);
        name.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte as c_char);
        Self {
            size: size_of::<Self>(),
            thread: stall.thread_id,
            kind: u32::from(stall.reader == ReaderKind::Qsbr),
            activity: match stall.activity {
                Activity::Running => 1,
                Activity::Runnable => 2,
                Activity::Sleeping | Activity::Uninterruptible | Activity::Stopped => 3,
                Activity::Ended => 4,
                _ => 0,
            },
            others: u32::try_from(stall.others).unwrap_or(u32::MAX),
            waited: nanoseconds(stall.waited),
            objects: stall.pending,
            bytes: stall.pending_bytes,
            name,
            fence_error: stall.fence_error.map_or(0, |error| error.raw_os_error()),
            reserved: 0,
            missed: stall.missed.unwrap_or(0),
        }
    }
}

#[no_mangle]
pub extern "C" fn still_domain_default() -> *mut still_domain {
    call(|| {
        copies::have(copies::Default::Domain)?;
        handle::make(|| Ok((rcu::default_domain().clone(), Parts::default())))
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_domain_free(domain: *mut still_domain) -> c_int {
    call(|| {
        // SAFETY: the caller passes a handle, and no other call uses it.
        drop(unsafe { find::<Domain>(domain)?.free() });
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_domain_stats(domain: *const still_domain, stats: *mut still_stats) -> c_int {
    call(|| {
        // SAFETY: the caller passes a handle, and a place of the size that it says.
        let (domain, place) = unsafe { (domain_of(domain)?, Place::of(stats)?) };
        let found = domain.stats();
        let answer = still_stats {
            size: size_of::<still_stats>(),
            grace_periods: found.grace_periods,
            heavy_fences: found.heavy_fences,
            retired: found.retired,
            freed: found.freed,
            pending: found.pending,
            pending_bytes: found.pending_bytes,
            beyond_limits: found.beyond_limits,
            handed_back: found.handed_back,
            waits: found.waits,
            pinned: found.pinned,
            oldest: found.oldest.map_or(-1, nanoseconds),
            readers: found.readers as u64,
            holds: found.owned as u64,
            boosted: found.boosted,
            boost_refused: found.boost_refused,
            fence_error: found.fence_error.map_or(0, |error| error.raw_os_error()),
            reserved: 0,
            ready: found.ready,
            vouched: found.vouched,
            silent: found.silent as u64,
            stalls: found.stalls,
            delay_median: found.delays.percentile(50.0).map_or(-1, nanoseconds),
            delay_p99: found.delays.percentile(99.0).map_or(-1, nanoseconds),
        };
        place.write(answer);
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_domain_stall(domain: *const still_domain, stall: *mut still_stall) -> c_int {
    call(|| {
        // SAFETY: the caller passes a handle, and a place of the size that it says.
        let (domain, place) = unsafe { (domain_of(domain)?, Place::of(stall)?) };
        let Some(found) = domain.stall() else { return Ok(0) };
        place.write(still_stall::from(&found));
        Ok(1)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_domain_silent(
    domain: *const still_domain,
    function: still_stall_fn,
    context: *mut c_void,
) -> c_int {
    call(|| {
        // A clone, because the function may free the caller's handle.
        // SAFETY: the caller passes a handle.
        let domain = unsafe { domain_of(domain) }?.clone();
        let function = function.ok_or_else(|| Refusal::invalid(c"NULL was passed for a function"))?;
        let hook = Hook { function, context };
        let mut silent = 0;
        for reader in domain.silent() {
            hook.call(&reader);
            silent += 1;
        }
        Ok(silent)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_start(domain: *const still_domain) -> u64 {
    // SAFETY: the caller passes a handle.
    call(|| Ok(raw::number_of(unsafe { domain_of(domain) }?.start())))
}

fn token(domain: &Domain, number: u64) -> Result<Token, Refusal> {
    raw::token_of(domain, number).ok_or_else(|| {
        let text =
            c"the domain has not started grace period {}: pass what still_start returned for this domain";
        Refusal::invalid(text).with(number)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_check(domain: *const still_domain, number: u64) -> c_int {
    // SAFETY: the caller passes a handle.
    let usual = unsafe { peek::<Domain>(domain).map(|found| found.value()) };
    match usual {
        Some(domain) if !tsan::is_there() && raw::is_known_over(domain, number) => 1,
        // SAFETY: the caller passes a handle.
        _ => unsafe { check_slowly(domain, number) },
    }
}

#[inline(never)]
unsafe extern "C" fn check_slowly(domain: *const still_domain, number: u64) -> c_int {
    // The body reaches no cancellation point: it uses atomics, the memory barrier (`syscall(2)`, which is none), and, if that fails, the
    // allocator.
    briefly(|| {
        // SAFETY: the caller passes a handle.
        let domain = unsafe { domain_of(domain) }?;
        match raw::check(domain, token(domain, number)?) {
            Ok(is_over) => Ok(is_over.into()),
            Err(error) => Err(SynchronizeError::Fence(error).into()),
        }
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_wait(domain: *const still_domain, number: u64, timeout: i64) -> c_int {
    call(|| {
        // A clone, because callbacks that run meanwhile may free the caller's handle.
        // SAFETY: the caller passes a handle.
        let domain = unsafe { domain_of(domain) }?.clone();
        let token = token(&domain, number)?;
        match time(timeout)? {
            Some(limit) => domain.wait_timeout(token, limit)?,
            None => domain.wait(token)?,
        }
        Ok(0)
    })
}

pub(crate) fn synchronize(domain: &Domain, timeout: i64) -> Result<(), Refusal> {
    match time(timeout)? {
        Some(limit) => domain.synchronize_timeout(limit)?,
        None => domain.synchronize()?,
    }
    Ok(())
}

#[no_mangle]
pub unsafe extern "C" fn still_synchronize(domain: *const still_domain, timeout: i64) -> c_int {
    // A clone: see `still_wait`.
    // SAFETY: the caller passes a handle.
    call(|| synchronize(&unsafe { domain_of(domain) }?.clone(), timeout).map(|()| 0))
}

#[no_mangle]
pub unsafe extern "C" fn still_barrier(domain: *const still_domain, timeout: i64) -> c_int {
    call(|| {
        // A clone: see `still_wait`.
        // SAFETY: the caller passes a handle.
        let domain = unsafe { domain_of(domain) }?.clone();
        match time(timeout)? {
            Some(limit) => domain.barrier_timeout(limit)?,
            None => domain.barrier()?,
        }
        Ok(0)
    })
}
