//! Background reclaimers, with their threads.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use stillpoint::rcu::{raw, Domain, RetireHandle};

use crate::border::{call, time, Refusal};
use crate::domain::{domain_of, outside, still_domain};
use crate::handle::{self, find, Kind, Parts};
use crate::reclaimer::{configure, object, still_destroy_fn, still_reclaimer_options};

/// A background reclaimer, to C.
#[repr(C)]
pub struct still_background {
    _private: [u8; 0],
}

pub(crate) struct Background {
    handle: RetireHandle,
    thread: JoinHandle<()>,
    /// The child of a `fork` has not this thread.
    process: u32,
    end: Arc<End>,
    domain: Domain,
}

impl Kind for Background {
    type C = still_background;
    const MARK: u32 = 0x5d0a_0006;
    const NAME: &'static str = "a background reclaimer";
}

/// Whether the thread has come to its end.
#[derive(Default)]
struct End {
    is_there: Mutex<bool>,
    told: Condvar,
}

/// Tells of the end, a panic included.
struct Teller(Arc<End>);

impl Drop for Teller {
    fn drop(&mut self) {
        *self.0.is_there.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.told.notify_all();
    }
}

#[no_mangle]
pub unsafe extern "C" fn still_background_new(
    domain: *const still_domain,
    options: *const still_reclaimer_options,
) -> *mut still_background {
    call(|| {
        // SAFETY: the caller hands in a handle.
        let domain = unsafe { domain_of(domain) }?.clone();
        // SAFETY: the caller hands in options, or null.
        let mut background = unsafe { configure(domain.background_builder(), options) }?.build();
        let (handle, end) = (background.retire_handle(), Arc::<End>::default());
        let teller = Teller(Arc::clone(&end));
        let run = move || {
            let _teller = teller;
            background.run();
        };
        let blocked = Blocked::all();
        let thread = std::thread::Builder::new().name("stillpoint-rcu".to_owned()).spawn(run);
        drop(blocked);
        let thread = thread.map_err(|error| {
            let reason = format!("the thread of a background reclaimer could not be started: {error}");
            Refusal::new(error.raw_os_error().unwrap_or(libc::EAGAIN), reason)
        })?;
        Ok(handle::make(
            Background { handle, thread, process: std::process::id(), end, domain },
            Parts::default(),
        ))
    })
}

/// While this value lives, all signals are blocked for the calling thread but those of defects and of profilers; a thread that it
/// makes is born so.
pub(crate) struct Blocked(libc::sigset_t);

/// Signals that a thread gets for what it does itself.
const OWN: [i32; 8] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGABRT,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGPROF,
];

impl Blocked {
    pub(crate) fn all() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: each place is filled before it is read.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            for signal in OWN {
                libc::sigdelset(all.as_mut_ptr(), signal);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Self(before.assume_init())
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set from before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

#[no_mangle]
pub unsafe extern "C" fn still_submit(
    background: *mut still_background,
    address: *mut c_void,
    bytes: usize,
    destroy: still_destroy_fn,
    context: *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: the caller hands in a handle.
        let background = unsafe { find::<Background>(background)?.value() };
        // SAFETY: the caller says that it may be retired.
        let object = unsafe { object(address, bytes, destroy, context) }?;
        if background.process != std::process::id() {
            return Err(Refusal::new(
                libc::EPIPE,
                "the thread of the background reclaimer is in the parent of this process",
            ));
        }
        if raw::is_within_destructor() {
            // To wait for room could be to wait for itself.
            // SAFETY: as above.
            unsafe { raw::leave(&background.domain, object) };
            return Ok(0);
        }
        // SAFETY: as above.
        unsafe { background.handle.retire_raw(object) }?;
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn still_background_pending(background: *const still_background) -> isize {
    // SAFETY: the caller hands in a handle.
    call(|| Ok(unsafe { find::<Background>(background)?.value() }.handle.pending() as isize))
}

#[no_mangle]
pub unsafe extern "C" fn still_background_free(background: *mut still_background, timeout: i64) -> isize {
    call(|| {
        let limit = time(timeout)?;
        // SAFETY: the caller hands in a handle, and nobody else uses it.
        let found = unsafe { find::<Background>(background) }?;
        // SAFETY: as above.
        let value = unsafe { found.value() };
        if raw::is_within_destructor() {
            let reason = "a destructor or a stall hook could wait for its own end; let another thread do it";
            return Err(Refusal::new(libc::EDEADLK, reason));
        }
        if value.process != std::process::id() {
            let left = value.handle.pending() as isize;
            // SAFETY: as above. The thread, and what it had, are the parent's.
            std::mem::forget(unsafe { found.free() }.thread);
            return Ok(left);
        }
        outside(&value.domain)?;
        value.handle.stop();
        let wait = |limit: Option<Duration>| {
            let there = value.end.is_there.lock().unwrap_or_else(PoisonError::into_inner);
            match limit {
                Some(limit) => drop(value.end.told.wait_timeout_while(there, limit, |is_there| !*is_there)),
                None => drop(value.end.told.wait_while(there, |is_there| !*is_there)),
            }
        };
        wait(limit);
        let left = value.handle.pending() as isize;
        value.handle.abandon();
        // Its destructors find the handle until the end.
        wait(None);
        // SAFETY: as above.
        let Background { thread, .. } = unsafe { found.free() };
        match thread.join() {
            Ok(()) => Ok(left),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
