//! Multicasts to threads that are interrupted by a signal, wherever they are.
//!
//! ```
//! use stillpoint_multicast::signals;
//!
//! signals::probe()?; // the signal is free, and may be sent
//! let member = signals::join()?; // in each thread
//! assert_eq!(signals::members(), 1);
//! let report = signals::multicast()?.fence().expect("no thread blocks the signal"); // a full barrier in each of them
//! assert!(report.ran_here);
//! assert_eq!(member.poll(), 0); // nothing waits for its signal
//! # Ok::<(), signals::SignalError>(())
//! ```
//!
//! A thread [joins](join). From then on it runs functions that are sent to it in a signal handler, without polling: at once if it
//! is running, as soon as it gets a processor if it is waiting for one; if it sleeps in the kernel, it is woken. All threads of a
//! process share one registry and one signal.
//!
//! A [fence](SignalMulticast::fence) makes every registered thread execute a full memory barrier. It replaces `membarrier(2)`
//! where that system call is refused.
//!
//! # The signal
//!
//! SIGURG, unless the program [chooses](choose) another one before the first use. SIGURG is ignored by default, and few programs
//! use it. A signal that the program handles itself is refused. The signal is only a bell: the message is in the mailbox. So
//! signals that coalesce, come too late, or come from elsewhere do no harm.
//!
//! # Rules for registered threads
//!
//! - System calls are interrupted as by any signal. Most are restarted (`SA_RESTART`); some fail with EINTR: see signal(7).
//! - A thread must not block the signal for long, also not to wait for it (`sigwait`): the handler must run. [`join`] refuses a
//!   thread that blocks it. A thread that blocks it later holds up the threads that wait for it, and [`Late`] names it.
//! - The handler runs on the thread's own stack.
//! - In the child of a `fork`, the thread that forked is registered as before, and no other.
//!
//! # Costs
//!
//! About 5 µs for a signal and its handler. All threads of a process share one lock in the kernel for their signals.
//! `stillpoint bench membarrier` measures both.

use std::fmt;
use std::io;
use std::sync::atomic::{fence as atomic_fence, Ordering};
use std::time::{Duration, Instant};

use super::bell::{answer, started, Service, Signals, SERVICE};
use super::engine::leaving::Registration;
use super::engine::operation::Call;
use super::engine::{Core, Missing, Options};
use super::looks::{Looks, FIRST_LOOK, LONGEST_LOOK};
use super::plan::Strategy;
use super::run::{finish, Late, Report};
use super::signal;

/// The signal that is used unless another one is chosen.
pub const DEFAULT_SIGNAL: i32 = libc::SIGURG;

/// The first of the signals that queue. Sending one fails if the user has too many pending, so a bell could get lost.
const FIRST_QUEUED: i32 = 32;

/// Signals that report a fault of the thread itself, or that cannot be handled.
const UNSUITABLE: [i32; 9] = [
    libc::SIGKILL,
    libc::SIGSTOP,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
];

/// Starts the service with this signal, unless it is running already.
fn start(signal: Option<i32>) -> Result<&'static Service, SignalError> {
    let service = match started() {
        Some(service) => service,
        None => launch(signal.unwrap_or(DEFAULT_SIGNAL))?,
    };
    match signal {
        Some(asked) if asked != service.signal => Err(SignalError::Started { signal: service.signal }),
        _ => Ok(service),
    }
}

/// Several threads may do this at the same time: the first one to publish its service wins.
fn launch(signal: i32) -> Result<&'static Service, SignalError> {
    let before = match check(signal).and_then(|()| install(signal)) {
        Ok(before) => before,
        // Another thread may have started it since, with another signal.
        Err(error) => return started().ok_or(error),
    };
    let new = Box::into_raw(Box::new(Service { core: Core::new(Signals { signal }), signal }));
    // Release: pairs with the load in `started`. Acquire, on failure: pairs with the exchange of the thread that was first.
    match SERVICE.compare_exchange(std::ptr::null_mut(), new, Ordering::Release, Ordering::Acquire) {
        // SAFETY: from `Box::into_raw`, never freed and never written again.
        Ok(_) => Ok(unsafe { &*new }),
        Err(first) => {
            // SAFETY: it was not published.
            drop(unsafe { Box::from_raw(new) });
            // SAFETY: the published service, from `Box::into_raw`, never freed and never written again.
            let first = unsafe { &*first };
            if first.signal != signal {
                signal::give_back(signal, answer, &before);
            }
            Ok(first)
        }
    }
}

/// Installs our handler. Returns the previous action. If the program has installed a handler since the [check], restores it: no call
/// replaces only a certain action.
fn install(signal: i32) -> Result<libc::sigaction, SignalError> {
    let before = signal::handle(signal, answer).map_err(|error| SignalError::refused(signal, &error))?;
    // Once another thread has published the service, the program's handler is gone, as if the service had come first.
    let is_published = || started().is_some_and(|service| service.signal == signal);
    if signal::is_foreign(&before, answer) && !is_published() {
        signal::give_back(signal, answer, &before);
        return Err(SignalError::Taken { signal });
    }
    Ok(before)
}

/// Whether the signal is free, and may be sent.
fn check(signal: i32) -> Result<(), SignalError> {
    if UNSUITABLE.contains(&signal) || signal >= FIRST_QUEUED {
        return Err(SignalError::Unsuitable { signal });
    }
    // Our own handler does not count: another thread may be starting the service, and removes its handler if it loses.
    let is_taken = signal::is_taken(signal, answer).map_err(|error| SignalError::refused(signal, &error))?;
    if is_taken {
        return Err(SignalError::Taken { signal });
    }
    signal::may_send().map_err(|error| SignalError::refused(signal, &error))
}

/// Chooses the signal. Call it before any other function of this module.
///
/// # Errors
/// [`Started`](SignalError::Started) when another one is in use already; [`Taken`](SignalError::Taken) when the program
/// handles it; [`Unsuitable`](SignalError::Unsuitable), [`Refused`](SignalError::Refused).
///
/// ```
/// use stillpoint_multicast::signals;
/// signals::choose(libc::SIGUSR2)?;
/// assert_eq!(signals::signal(), Some(libc::SIGUSR2));
/// assert!(signals::choose(libc::SIGUSR1).is_err());
/// # Ok::<(), signals::SignalError>(())
/// ```
pub fn choose(signal: i32) -> Result<(), SignalError> {
    start(Some(signal)).map(drop)
}

/// Checks whether threads can be registered now. Changes nothing.
///
/// # Errors
/// As [`choose`], for the signal in use, or else for the default one.
pub fn probe() -> Result<(), SignalError> {
    match started() {
        Some(_) => Ok(()),
        None => check(DEFAULT_SIGNAL).or_else(|error| started().map(drop).ok_or(error)),
    }
}

/// The signal in use; `None` before the first use.
pub fn signal() -> Option<i32> {
    started().map(|service| service.signal)
}

/// The number of registered threads. Linear in them.
pub fn members() -> usize {
    started().map_or(0, |service| service.core.members())
}

/// Registers the calling thread. Lock-free, except for the first call of the process; the number of threads has no limit.
///
/// A thread that joins twice is registered once, until both values are dropped. If a thread was ended behind the C library's back
/// without leaving, and the calling thread has got its id, this call runs what was sent to that thread.
///
/// # Errors
/// [`Blocked`](SignalError::Blocked) if the thread blocks the signal; [`Ending`](SignalError::Ending) in the destructor of a
/// thread-local value, if the thread has left for good; and the errors of [`choose`].
pub fn join() -> Result<SignalMember, SignalError> {
    let service = start(None)?;
    if signal::is_blocked(service.signal) {
        return Err(SignalError::Blocked { signal: service.signal });
    }
    let registration = Registration::new(&service.core).ok_or(SignalError::Ending)?;
    Ok(SignalMember { registration })
}

/// The registration of a thread: see [`join`]. It stays on its thread.
///
/// When it is dropped, the thread processes its messages and leaves. If the value was forgotten, the end of the thread does
/// that.
///
/// ```compile_fail,E0277
/// let member = stillpoint_multicast::signals::join().unwrap();
/// std::thread::spawn(move || drop(member)); // `SignalMember` cannot be sent
/// ```
pub struct SignalMember {
    registration: Registration<Signals>,
}

impl SignalMember {
    /// Runs functions that were sent to this thread and whose signal has not arrived yet: for a thread that has blocked the
    /// signal for a while. Returns the number of messages.
    pub fn poll(&self) -> usize {
        self.registration.core().drain(self.registration.slot())
    }
}

stillpoint_sys::debug!(SignalMember { .. });

/// A multicast to the registered threads. Its strategy can be set before it is run.
///
/// # Errors
/// As [`choose`].
pub fn multicast() -> Result<SignalMulticast, SignalError> {
    Ok(SignalMulticast { service: start(None)?, options: Options::default() })
}

/// A multicast that was not started yet: made by [`multicast`].
///
/// It reaches the threads that are registered in this module, as a [`Multicast`](super::Multicast) reaches the
/// members of its group.
#[derive(Debug, Clone)]
#[must_use = "nothing is sent before `run` or `fence`"]
pub struct SignalMulticast {
    service: &'static Service,
    options: Options,
}

impl SignalMulticast {
    /// Sets who sends to whom; by default [`Strategy::Hybrid`] with a threshold of 16, which is no measured optimum.
    /// As [`Multicast::strategy`](super::Multicast::strategy).
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.options.strategy = strategy;
        self
    }

    /// Runs `function` once on every registered thread, and returns when all have.
    ///
    /// It cannot return earlier, because `function` is borrowed. It waits while a thread blocks the signal, and for ever if a
    /// thread was ended behind the C library's back (unless another thread gets its id, and answers in its place).
    /// [`run_timeout`](SignalMulticast::run_timeout) gives up, and names the threads for which it waited.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    /// use stillpoint_multicast::signals;
    ///
    /// let _member = signals::join()?; // this thread; others join elsewhere
    /// static COUNT: AtomicUsize = AtomicUsize::new(0);
    /// // SAFETY: an atomic addition may be done anywhere.
    /// let report = unsafe { signals::multicast()?.run(|| _ = COUNT.fetch_add(1, Relaxed)) };
    /// assert_eq!(COUNT.load(Relaxed), report.receivers + 1);
    /// # Ok::<(), signals::SignalError>(())
    /// ```
    ///
    /// # Safety
    /// `function` runs in a signal handler, at any point of a thread. It does only what is async-signal-safe (see
    /// signal-safety(7)): atomics and system calls; no allocation, no lock, no thread-local value with a destructor, no
    /// printing, no multicast, no `fork`. It does not panic.
    pub unsafe fn run<F: Fn() + Sync>(self, function: F) -> Report {
        // SAFETY: `function` is alive until `run` returns, and is `Sync`; the caller promises the rest.
        let outcome = unsafe { self.run_until(None, Call::borrowed(&function)) };
        outcome.unwrap_or_else(|late| unreachable!("it keeps waiting: {late}"))
    }

    /// # Safety
    /// As for [`run`](SignalMulticast::run). What is called is alive until this returns; with a deadline, for ever.
    unsafe fn run_until(self, deadline: Option<Instant>, call: Call) -> Result<Report, Late> {
        let (signal, mut limit) = (self.service.signal, FIRST_LOOK);
        let in_time = |look: Instant| deadline.map_or(look, |deadline| look.min(deadline));
        let send_again = |missing: &Missing| {
            let now = Instant::now();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return None;
            }
            // If a signal was refused, its message was not announced. A second refusal is no reason to return.
            missing.threads.iter().for_each(|&tid| _ = signal::send(tid, signal));
            limit = (limit * 2).min(LONGEST_LOOK);
            Some(in_time(now + limit))
        };
        let first = in_time(Instant::now() + FIRST_LOOK);
        // SAFETY: by the caller's promise.
        let outcome = unsafe { self.service.core.run_with(self.options, call, Some(first), send_again) };
        finish(outcome, Some(signal))
    }

    /// As [`run`](SignalMulticast::run), for at most `limit`.
    ///
    /// # Errors
    /// [`Late`] when the time is up, with the threads that block the signal. Threads that have not run the function will still run
    /// it: hence `'static`.
    ///
    /// # Safety
    /// As for [`run`](SignalMulticast::run).
    pub unsafe fn run_timeout(
        self,
        limit: Duration,
        function: &'static (impl Fn() + Sync),
    ) -> Result<Report, Late> {
        // SAFETY: `function` lives for ever and is `Sync`; the caller promises the rest.
        unsafe { self.run_until(Instant::now().checked_add(limit), Call::borrowed(function)) }
    }

    /// Makes every registered thread, and the calling one, execute a full memory barrier between the start and the return of this
    /// call.
    ///
    /// What a thread did that was registered at the start, and left, comes before the return. What a thread does that joins later comes after the
    /// start. It waits without a limit for threads that only wait for a processor.
    ///
    /// If an earlier fence has failed, this one first waits for the threads of that fence. If they still do not answer, [`Late`]
    /// describes them.
    ///
    /// # Errors
    /// [`Late`], and then nothing is ordered, if
    ///
    /// - a thread blocks the signal for more than some tenths of a second, in which it sleeps, also in `sigwait`, or
    ///   computes (a thread that is preempted within a handler does not count),
    /// - the program has replaced the handler,
    /// - the kernel refuses to send the signal,
    /// - a thread was ended behind the C library's back, or
    /// - a thread does not answer for some 10 s, and `/proc`, which would show why, is not available.
    ///
    /// ```
    /// use stillpoint_multicast::signals;
    /// let _member = signals::join()?;
    /// let report = signals::multicast()?.fence().expect("this thread does not block the signal");
    /// # Ok::<(), signals::SignalError>(())
    /// ```
    pub fn fence(self) -> Result<Report, Late> {
        barrier();
        let (core, mut looks) = (&self.service.core, Looks::new(self.service.signal));
        // While a thread does not answer, every fence would leave an operation behind. So an operation that was left behind is
        // ended first: either way this fence has to wait for the same thread.
        let resumed = core.resume(Some(looks.next()), |missing| looks.look(missing));
        if let Some(earlier) = resumed {
            if earlier.missing.is_some() {
                return Err(looks.verdict());
            }
            // All threads have answered since the last look.
            looks = Looks::new(self.service.signal);
        }
        let deadline = Some(looks.next());
        let call = Call::resumable(&barrier);
        // SAFETY: a static function, which does only what is allowed in a signal handler.
        let outcome = unsafe { core.run_with(self.options, call, deadline, |missing| looks.look(missing)) };
        if outcome.missing.is_some() {
            return Err(looks.verdict());
        }
        barrier();
        Ok(Report::new(&outcome.tally))
    }
}

/// For measurements, with the feature `lab`.
#[cfg(feature = "lab")]
impl SignalMulticast {
    /// Sets how the initiator learns of the end; by default [`Acknowledgement::Combining`](super::Acknowledgement).
    /// As [`Multicast::acknowledgement`](super::Multicast::acknowledgement).
    pub fn acknowledgement(mut self, acknowledgement: super::Acknowledgement) -> Self {
        self.options.acknowledgement = acknowledgement;
        self
    }

    /// As [`Multicast::helping`](super::Multicast::helping).
    pub fn helping(mut self, helps: bool) -> Self {
        self.options.helps = helps;
        self
    }

    /// As [`Multicast::trace`](super::Multicast::trace).
    pub fn trace(mut self, traces: bool) -> Self {
        self.options.traces = traces;
        self
    }
}

/// The function that a fence sends.
fn barrier() {
    // SeqCst: this is the barrier of the fence.
    atomic_fence(Ordering::SeqCst);
}

/// Why signals cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignalError {
    /// Another signal is in use already; it cannot be changed.
    Started {
        /// That signal.
        signal: i32,
    },
    /// The program, or a library in it, handles the signal.
    Taken {
        /// The signal.
        signal: i32,
    },
    /// The signal cannot be handled, reports a fault of a thread, or is a real-time signal, which the kernel may fail to send.
    Unsuitable {
        /// The signal.
        signal: i32,
    },
    /// The calling thread blocks the signal.
    Blocked {
        /// The signal.
        signal: i32,
    },
    /// The calling thread is ending, and has left for good: nothing would end a new registration.
    Ending,
    /// The kernel knows no such signal, or refuses.
    Refused {
        /// The signal.
        signal: i32,
        /// The error number, as in `errno.h`.
        errno: i32,
    },
}

impl SignalError {
    fn refused(signal: i32, error: &io::Error) -> Self {
        Self::Refused { signal, errno: error.raw_os_error().unwrap_or(libc::EIO) }
    }
}

impl fmt::Display for SignalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Started { signal } => {
                write!(f, "signal {signal} is in use already; choose before the first thread joins")
            }
            Self::Taken { signal } => {
                write!(
                    f,
                    "the program handles signal {signal} itself; choose another one with `signals::choose`"
                )
            }
            Self::Unsuitable { signal } => {
                write!(f, "signal {signal} cannot serve as a bell; SIGURG, SIGUSR1 or SIGUSR2 can")
            }
            Self::Blocked { signal } => {
                write!(
                    f,
                    "this thread blocks signal {signal}; unblock it with pthread_sigmask before it joins"
                )
            }
            Self::Ending => f.write_str(
                "this thread is ending, and has left already; join before its thread-local values are dropped",
            ),
            Self::Refused { signal, errno } => {
                let cause = io::Error::from_raw_os_error(errno);
                write!(
                    f,
                    "signal {signal} cannot be used ({cause}); choose one from 1 to 31, and allow tgkill"
                )
            }
        }
    }
}

impl std::error::Error for SignalError {}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;
    use crate::transport::Transport;

    /// The state in which another thread finds the process during `launch`, or a child that was forked then.
    #[test]
    fn a_service_that_is_just_being_started_does_not_refuse_others() {
        let before = signal::handle(libc::SIGIO, answer).expect("the signal is free");
        assert_eq!(check(libc::SIGIO), Ok(()));
        signal::give_back(libc::SIGIO, answer, &before);
        assert!(!signal::is_handled_by(libc::SIGIO, answer));
    }

    /// Another thread of the program installs it during `launch`, after the check.
    #[test]
    fn a_handler_that_comes_after_the_check_is_put_back() {
        extern "C" fn theirs(_: libc::c_int) {}
        assert_eq!(check(libc::SIGXCPU), Ok(()));
        let before = signal::handle(libc::SIGXCPU, theirs).expect("the signal is free");
        assert_eq!(install(libc::SIGXCPU).map(drop), Err(SignalError::Taken { signal: libc::SIGXCPU }));
        assert!(signal::is_handled_by(libc::SIGXCPU, theirs));
        signal::give_back(libc::SIGXCPU, theirs, &before);
    }

    /// The handler serves the same mailbox.
    #[test]
    fn who_serves_its_mailbox_is_not_interrupted() {
        let transport = Signals { signal: libc::SIGSTKFLT };
        assert!(transport.alone(|| signal::is_blocked(libc::SIGSTKFLT)));
        assert!(!signal::is_blocked(libc::SIGSTKFLT), "only during the call");
    }

    /// Another thread keeps starting the service with another signal, and losing.
    #[test]
    fn a_handler_that_comes_and_goes_is_nobody_elses() {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                // Relaxed: a flag that orders nothing.
                while !is_over.load(Ordering::Relaxed) {
                    let before = signal::handle(libc::SIGPWR, answer).expect("the signal is free");
                    signal::give_back(libc::SIGPWR, answer, &before);
                }
            });
            let failed = (0..200_000).find_map(|_| check(libc::SIGPWR).err());
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(failed, None);
        });
    }
}
