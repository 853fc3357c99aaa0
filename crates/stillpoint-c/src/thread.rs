//! The threads of background reclaimers and of queues of callbacks.

use std::ffi::{c_char, c_void, CStr};
use std::io;
use std::mem::MaybeUninit;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use stillpoint_sys::os::{wait, wake_all};
use stillpoint_sys::tsan;

use crate::border::Refusal;
use crate::handle::{sized, versioned};
use crate::start::at_ease;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct still_thread_options {
    size: usize,
    stack_size: usize,
    name: *const c_char,
}

// SAFETY: the fields are numbers, and a pointer that may be null.
versioned!(unsafe still_thread_options: 24);

/// The options of a thread.
pub(crate) struct Threading {
    stack_size: usize,
    name: [c_char; 16],
    /// Whether the library starts the thread by itself: see [`at_ease`].
    is_own: bool,
}

impl Threading {
    /// Options with a name and the default stack size.
    pub(crate) fn named(name: &CStr) -> Self {
        let mut own = [0; 16];
        // The kernel keeps 15 bytes.
        own[..15].iter_mut().zip(name.to_bytes()).for_each(|(place, byte)| *place = *byte as c_char);
        Self { stack_size: usual_stack(), name: own, is_own: false }
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
            let text = c"`stack_size` is {}: a stack has at most {} bytes, and 0 is the default";
            return Err(Refusal::invalid(text).with(stack_size).with(LARGEST));
        }
        let name = match name.is_null() {
            true => c"stillpoint-rcu",
            // SAFETY: the name is not null, so it is a string, by the caller's promise.
            false => unsafe { CStr::from_ptr(name) },
        };
        let usual = Self::named(name);
        Ok(Self { stack_size: if stack_size == 0 { usual.stack_size } else { stack_size }, ..usual })
    }

    /// # Safety
    /// `options` is null, or points to memory whose first word is its size in bytes.
    pub(crate) unsafe fn of(options: *const still_thread_options) -> Result<Self, Refusal> {
        if options.is_null() {
            // SAFETY: the name is null.
            return unsafe { Self::new(0, ptr::null()) };
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

/// A thread that a function of `pthread.h` has started: starting a thread of the standard library fails by a panic if there is no memory.
pub(crate) struct Thread(libc::pthread_t);

impl Thread {
    /// Starts a thread on which signals are blocked.
    pub(crate) fn start<F: FnOnce() + Send + 'static>(options: Threading, run: F) -> io::Result<Self> {
        /// What the starting thread has done for the new one: nothing yet; its settings; its settings, but for its name.
        const NOTHING: u32 = 0;
        const ALL: u32 = 1;
        const UNNAMED: u32 = 2;
        struct Start<F>(Arc<AtomicU32>, [c_char; 16], F);

        extern "C" fn body<F: FnOnce()>(start: *mut c_void) -> *mut c_void {
            // SAFETY: `start` came from the box below, and nobody else takes it.
            let Start(done, name, run) = *unsafe { Box::from_raw(start.cast::<Start<F>>()) };
            // Waits for the settings: otherwise `run` would begin with what this thread has inherited. The starting thread makes them, because
            // with an inherited priority this thread may never get to run. They are made when `start` returns: from then on they are the
            // program's.
            // Acquire: pairs with the release below.
            while done.load(Ordering::Acquire) == NOTHING {
                wait(&done, NOTHING, None);
            }
            // Relaxed: as new as the load above.
            if done.load(Ordering::Relaxed) == UNNAMED {
                // SAFETY: the calling thread is alive, and the name ends with a zero.
                unsafe { libc::pthread_setname_np(libc::pthread_self(), name.as_ptr()) };
            }
            drop(done);
            // Unwind safety: as in `briefly`. A pointer that is not null tells `join` of a panic.
            match catch_unwind(AssertUnwindSafe(run)) {
                Ok(()) => ptr::null_mut(),
                Err(_) => ptr::without_provenance_mut(1),
            }
        }

        let _blocked = Blocked::all();
        let Threading { stack_size, is_own, name } = options;
        let done = Arc::new(AtomicU32::new(NOTHING));
        let start = Box::into_raw(Box::new(Start(Arc::clone(&done), name, run)));
        let (mut attributes, mut thread) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: the attributes are made, used and destroyed; `body` gets a box of what it expects.
        let errno = unsafe {
            let mut errno = libc::pthread_attr_init(attributes.as_mut_ptr());
            if errno == 0 {
                let least = usize::try_from(libc::sysconf(libc::_SC_THREAD_STACK_MIN)).unwrap_or(0);
                // A multiple of the size of pages, as `pthread_attr_setstacksize` may want it.
                let size = stack_size.max(least).next_multiple_of(1 << 16);
                errno = libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), size);
                if errno == 0 {
                    let attributes = attributes.as_ptr();
                    errno = libc::pthread_create(thread.as_mut_ptr(), attributes, body::<F>, start.cast());
                }
                libc::pthread_attr_destroy(attributes.as_mut_ptr());
            }
            errno
        };
        if errno != 0 {
            // SAFETY: there is no thread that takes it.
            drop(unsafe { Box::from_raw(start) });
            return Err(io::Error::from_raw_os_error(errno));
        }
        // SAFETY: the thread was made, and has not been joined.
        unsafe {
            let thread = thread.assume_init();
            // Of another thread, it may fail: it writes to a file.
            let is_named = libc::pthread_setname_np(thread, name.as_ptr()) == 0;
            if is_own {
                at_ease(thread);
            }
            // Release: pairs with the acquire above.
            done.store(if is_named { ALL } else { UNNAMED }, Ordering::Release);
            wake_all(&done);
            Ok(Self(thread))
        }
    }

    pub(crate) fn id(&self) -> libc::pthread_t {
        self.0
    }

    /// Waits for the thread's end. Returns false if the thread has panicked.
    pub(crate) fn join(self) -> bool {
        let mut answer = ptr::null_mut();
        // SAFETY: the thread was neither joined nor detached, since `self` is forgotten.
        unsafe { libc::pthread_join(self.0, &mut answer) };
        std::mem::forget(self);
        answer.is_null()
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: the thread was neither joined nor detached.
        unsafe { libc::pthread_detach(self.0) };
    }
}

/// The calls of `fork` between the first process and this one, as far as they ran handlers. Beside the process's number, which a child may
/// have as well, in a namespace of its own.
static FORKS: AtomicU32 = AtomicU32::new(0);

fn process() -> (u32, u32) {
    // Relaxed: changed only in a child, where there is no other thread.
    (std::process::id(), FORKS.load(Ordering::Relaxed))
}

/// Called in the child of a `fork`.
pub(crate) fn count_fork() {
    // Relaxed: there is no other thread.
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// A thread of the library.
pub(crate) struct Worker {
    /// Until it is joined.
    thread: Mutex<Option<Thread>>,
    /// The process that has the thread, and its number of forks. The child of a `fork` does not have it.
    process: (u32, u32),
    end: Arc<End>,
}

/// Whether the thread does nothing more of its own: destructors of its thread-specific data may still run.
#[derive(Default)]
struct End {
    is_there: Mutex<bool>,
    told: Condvar,
}

/// Signals the [`End`] when this value is dropped, also after a panic.
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
        let thread = Thread::start(options, body).map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(libc::EAGAIN);
            let otherwise = c"a thread could not be started";
            Refusal::told(errno, format_args!("a thread could not be started: {error}"), otherwise)
        })?;
        Ok(Self { thread: Mutex::new(Some(thread)), process: process(), end })
    }

    /// Whether the thread belongs to this process, and not to its parent.
    pub(crate) fn is_here(&self) -> bool {
        self.process == process()
    }

    /// Waits for the thread's last work, for at most `limit`.
    pub(crate) fn wait(&self, limit: Option<Duration>) {
        let there = self.end.is_there.lock().unwrap_or_else(PoisonError::into_inner);
        match limit {
            Some(limit) => drop(self.end.told.wait_timeout_while(there, limit, |is_there| !*is_there)),
            None => drop(self.end.told.wait_while(there, |is_there| !*is_there)),
        }
    }

    /// Joins the thread, unless it belongs to the parent process. An error if it has panicked: a caller continues that panic once it has
    /// freed what the thread could use until its end.
    pub(crate) fn join(&self) -> std::thread::Result<()> {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        match thread {
            Some(thread) if self.is_here() => thread.join().then_some(()).ok_or_else(|| Box::new(()) as _),
            thread => {
                std::mem::forget(thread);
                Ok(())
            }
        }
    }
}

/// While this value lives, signals are blocked on the calling thread. Threads that the calling thread starts inherit the blocked signals.
pub(crate) struct Blocked(libc::sigset_t);

/// Signals that a thread causes by its own execution; the last one is that of profilers.
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
    /// All except those of faults and of profilers.
    pub(crate) fn all() -> Self {
        Self::except(&OWN)
    }

    /// Also those of profilers: for a few steps that no handler of the program may come between.
    pub(crate) fn with_profilers() -> Self {
        Self::except(&OWN[..OWN.len() - 1])
    }

    /// Those of faults, too: no signal handler runs on the calling thread.
    pub(crate) fn every() -> Self {
        Self::except(&[])
    }

    /// Sleeps until a signal handler has run. The handler of a pending signal counts.
    pub(crate) fn until_handled(&self) {
        // SAFETY: the set is valid. `sigsuspend` restores the blocked signals when it returns.
        unsafe { libc::sigsuspend(&self.0) };
    }

    fn except(own: &[i32]) -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: each place is filled before it is read.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            for signal in own {
                libc::sigdelset(all.as_mut_ptr(), *signal);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Self(before.assume_init())
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set is the previous one, which `pthread_sigmask` has filled in.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
    }
}
