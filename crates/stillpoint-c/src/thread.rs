//! The threads of background reclaimers and of queues of callbacks.

use std::ffi::{c_char, CStr};
use std::mem::MaybeUninit;
use std::os::unix::thread::JoinHandleExt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use stillpoint_sys::tsan;

use crate::border::Refusal;
use crate::handle::{sized, Versioned};
use crate::start::at_ease;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct still_thread_options {
    size: usize,
    stack_size: usize,
    name: *const c_char,
}

// SAFETY: the fields are numbers, and a pointer that may be null.
unsafe impl Versioned for still_thread_options {
    const NAME: &'static str = "struct still_thread_options";
    const FIRST: usize = 24;
}

/// The options of a thread.
pub(crate) struct Threading {
    stack_size: usize,
    name: String,
    /// Whether the library starts the thread by itself: see [`at_ease`].
    is_own: bool,
}

impl Threading {
    /// Options with a name and the default stack size.
    pub(crate) fn named(name: &str) -> Self {
        Self { stack_size: usual_stack(), name: name.to_owned(), is_own: false }
    }

    /// Sets whether the library starts the thread by itself. Such a thread inherits nothing from the thread that starts it.
    pub(crate) fn by_itself(self, is_own: bool) -> Self {
        Self { is_own, ..self }
    }

    /// Options from the values of C: 0 and null mean the defaults.
    ///
    /// # Safety
    /// The name is null, or a string.
    pub(crate) unsafe fn new(stack_size: usize, name: *const c_char) -> Result<Self, Refusal> {
        /// The limit of a size: more than the memory of a process.
        const LARGEST: usize = 1 << 47;
        if stack_size > LARGEST {
            let reason = format!(
                "`stack_size` is {stack_size}: a stack has at most {LARGEST} bytes, and 0 is the default"
            );
            return Err(Refusal::invalid(reason));
        }
        let name = match name.is_null() {
            true => "stillpoint-rcu".to_owned(),
            // SAFETY: the name is not null, so it is a string, by the caller's promise.
            false => unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(),
        };
        Ok(Self { stack_size: if stack_size == 0 { usual_stack() } else { stack_size }, name, is_own: false })
    }

    /// # Safety
    /// `options` is null, or points to memory whose first word is its size in bytes.
    pub(crate) unsafe fn of(options: *const still_thread_options) -> Result<Self, Refusal> {
        if options.is_null() {
            // SAFETY: the name is null.
            return unsafe { Self::new(0, std::ptr::null()) };
        }
        // SAFETY: the options are not null, so their first word is their size, by the caller's promise.
        let options = unsafe { sized(options) }?;
        // SAFETY: the header requires that the name is a string.
        unsafe { Self::new(options.stack_size, options.name) }
    }
}

/// The default stack size of `pthread_create`: the resource limit, or the default that the program has set.
fn usual_stack() -> usize {
    let (mut attributes, mut size) = (MaybeUninit::uninit(), 0);
    // SAFETY: the attributes are made, read and destroyed.
    unsafe {
        if libc::pthread_attr_init(attributes.as_mut_ptr()) == 0 {
            libc::pthread_attr_getstacksize(attributes.as_ptr(), &mut size);
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
        }
    }
    size.max(1 << 16)
}

/// Starts a thread on which signals are blocked.
pub(crate) fn spawn(
    options: Threading,
    run: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    let _blocked = Blocked::all();
    let body = move || {
        if options.is_own {
            // Here, so that `run` does not begin with what this thread has inherited. The starting thread makes the same call below, because
            // with an inherited priority this thread may never get to run.
            // SAFETY: the calling thread is alive.
            unsafe { at_ease(libc::pthread_self()) };
        }
        run();
    };
    let thread = std::thread::Builder::new().name(options.name).stack_size(options.stack_size).spawn(body)?;
    if options.is_own {
        // SAFETY: the thread has not been joined yet.
        unsafe { at_ease(thread.as_pthread_t()) };
    }
    Ok(thread)
}

/// A thread of the library.
pub(crate) struct Worker {
    thread: JoinHandle<()>,
    /// The process that has the thread. The child of a `fork` does not have it.
    process: u32,
    end: Arc<End>,
}

/// Whether the thread has ended.
#[derive(Default)]
struct End {
    is_there: Mutex<bool>,
    told: Condvar,
}

/// Signals the thread's end when this value is dropped, also after a panic.
struct Teller(Arc<End>);

impl Drop for Teller {
    fn drop(&mut self) {
        *self.0.is_there.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.told.notify_all();
    }
}

impl Worker {
    /// Starts a thread, on which signals are blocked.
    pub(crate) fn start(options: Threading, run: impl FnOnce() + Send + 'static) -> Result<Self, Refusal> {
        let end = Arc::<End>::default();
        let teller = Teller(Arc::clone(&end));
        let body = move || {
            let _teller = teller;
            let _ignored = tsan::ignore();
            run();
        };
        let thread = spawn(options, body).map_err(|error| {
            let reason = format!("a thread could not be started: {error}");
            Refusal::new(error.raw_os_error().unwrap_or(libc::EAGAIN), reason)
        })?;
        Ok(Self { thread, process: std::process::id(), end })
    }

    /// Whether the thread belongs to this process, and not to its parent.
    pub(crate) fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// Waits for the thread's end, for at most `limit`.
    pub(crate) fn wait(&self, limit: Option<Duration>) {
        let there = self.end.is_there.lock().unwrap_or_else(PoisonError::into_inner);
        match limit {
            Some(limit) => drop(self.end.told.wait_timeout_while(there, limit, |is_there| !*is_there)),
            None => drop(self.end.told.wait_while(there, |is_there| !*is_there)),
        }
    }

    /// Joins the thread. If the thread belongs to the parent process, this only drops the handle.
    ///
    /// # Panics
    /// If the thread has panicked: continues that panic.
    pub(crate) fn join(self) {
        if !self.is_here() {
            return std::mem::forget(self.thread);
        }
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

/// While this value lives, all signals are blocked on the calling thread, except those of faults and of profilers. Threads that the
/// calling thread starts inherit the blocked signals.
pub(crate) struct Blocked(libc::sigset_t);

/// Signals that a thread causes by its own execution.
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
        // SAFETY: the set is the previous one, which `pthread_sigmask` has filled in.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}
