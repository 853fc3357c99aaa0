//! Threads that look as if they never ran again: they are parked in a signal handler, at any point of their code.
//!
//! SIGSTOP would stop the whole process. A handler that waits on a futex stops a single thread at any point, like a
//! scheduler that never comes back to it.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{mpsc, Mutex, MutexGuard, Once, PoisonError};
use std::thread;

/// The number of the stop that is in force; 0 for none. Each stop has another number, so that a thread that has not
/// left one yet does not confuse it with the next.
static PARK: AtomicU32 = AtomicU32::new(0);
/// The number of the last stop at which a thread has parked.
static PARKED: AtomicU32 = AtomicU32::new(0);
/// One thread at a time, as there is one handler for the process.
static TURN: Mutex<()> = Mutex::new(());

/// Makes only async-signal-safe calls.
extern "C" fn park(_signal: libc::c_int) {
    // Acquire: pairs with the release stores of `stop` and `go_on`.
    let stop = PARK.load(Ordering::Acquire);
    // Release: pairs with the acquire load in `stop`.
    PARKED.store(stop, Ordering::Release);
    futex(&PARKED, libc::FUTEX_WAKE, 1);
    // Acquire: as above.
    while stop != 0 && PARK.load(Ordering::Acquire) == stop {
        futex(&PARK, libc::FUTEX_WAIT, stop);
    }
}

fn futex(word: &AtomicU32, operation: libc::c_int, value: u32) {
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    let no_limit = ptr::null::<libc::timespec>();
    // SAFETY: the word is alive, and nothing else is written to. The handler may interrupt code that is about to read
    // `errno`, so `errno` is restored.
    unsafe {
        let errno = *libc::__errno_location();
        libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, no_limit);
        *libc::__errno_location() = errno;
    }
}

/// A thread that repeats a round for ever, and can be stopped in the middle of one.
pub(crate) struct Parked<'s> {
    thread: libc::pid_t,
    done: &'s AtomicBool,
    _turn: MutexGuard<'static, ()>,
}

/// Runs `rounds` on a new thread. Its first argument is set when it may return, and it calls the second one once it may
/// be stopped. `test` gets the means to stop it. The thread goes on, and ends, after `test` at the latest.
pub(crate) fn with_thread(
    rounds: impl FnOnce(&AtomicBool, &dyn Fn()) + Send,
    test: impl FnOnce(&Parked<'_>),
) {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| {
        // SAFETY: the structure is plain data, for which zeros are valid; the handler is async-signal-safe.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = park as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            assert_eq!(libc::sigaction(libc::SIGUSR1, &action, ptr::null_mut()), 0);
        }
    });
    let done = AtomicBool::new(false);
    let (started, is_started) = mpsc::channel();
    thread::scope(|scope| {
        let flag = &done;
        scope.spawn(move || {
            // SAFETY: `gettid` has no preconditions.
            let thread = unsafe { libc::gettid() };
            rounds(flag, &|| started.send(thread).expect("the test waits for it"));
        });
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let thread = is_started.recv().expect("the thread says when it may be stopped");
        test(&Parked { thread, done: flag, _turn: turn });
    });
}

impl Parked<'_> {
    /// Stops the thread where it is. It does not run again before `go_on`.
    pub(crate) fn stop(&self) {
        // Acquire: pairs with the release store in the handler. No other thread stops one meanwhile: this one holds
        // `TURN`.
        let last = PARKED.load(Ordering::Acquire);
        let stop = last + 1;
        // Release: pairs with the acquire load in the handler.
        PARK.store(stop, Ordering::Release);
        // SAFETY: the thread is one of this process, and runs until `done` is set.
        let answer = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.thread, libc::SIGUSR1) };
        assert_eq!(answer, 0, "the thread is alive");
        // Acquire: as above.
        while PARKED.load(Ordering::Acquire) == last {
            futex(&PARKED, libc::FUTEX_WAIT, last);
        }
    }

    pub(crate) fn go_on(&self) {
        // Release: pairs with the acquire load in the handler.
        PARK.store(0, Ordering::Release);
        futex(&PARK, libc::FUTEX_WAKE, i32::MAX as u32);
    }

    /// Lets the thread end once it goes on.
    pub(crate) fn end(&self) {
        // Relaxed: a flag that orders nothing.
        self.done.store(true, Ordering::Relaxed);
    }
}

/// However the test ends, the thread goes on and ends.
impl Drop for Parked<'_> {
    fn drop(&mut self) {
        self.end();
        self.go_on();
    }
}
