//! The threads that disturb a part while it runs, and the check that none is left disturbed.
//!
//! - The *hog* is a thread with a higher priority, which preempts the thread on a CPU, in bursts. If the machine allows it,
//!   the hog is a real-time thread, which preempts every reader; otherwise it has the best nice value that it can get. It
//!   takes at most a fifth of one CPU, far from the 95 % at which the kernel throttles real-time threads, so that the machine
//!   stays usable.
//! - A thread is [`Parked`] at any instruction: a signal to it has a handler that waits on a futex until the thread is
//!   released. SIGSTOP would stop the whole process. A thread that waits in a signal handler is equivalent to one that the
//!   scheduler does not run, at any instruction of the library.
//! - [`Ordinary`] checks that no thread keeps what a boost gave it: a real-time policy, a nice value, another set of CPUs.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::thread::futex;
use stillpoint_harness::experiment::threads::{self, Standing};
use stillpoint_harness::machine::cpus::run_on;

use crate::actor::{Shared, own_id};
use crate::counts::{Count, Tally};
use crate::findings::{Findings, PATIENCE};

/// The longest time between two parkings.
const PAUSE: Duration = Duration::from_millis(3);
/// The longest ordinary stay.
const STAY: Duration = Duration::from_millis(2);
/// The longest stay in one of sixteen parkings: longer than a time slice. (`parked` parks readers for seconds.)
const LONG_STAY: Duration = Duration::from_millis(40);

/// Disturbs the threads on the roll until stopped: the hog, and the one that parks threads. `is_inside` returns whether the
/// thread of a slot is inside a section.
pub(crate) fn start<'s>(
    scope: &'s Scope<'s, '_>,
    shared: &'s Shared<'s>,
    rng: &mut Rng,
    is_inside: impl Fn(usize) -> bool + Send + 's,
) -> Vec<ScopedJoinHandle<'s, Tally>> {
    let (hogs, parkers) = (rng.fork(), rng.fork());
    let hog = scope.spawn(move || preempt(shared, hogs));
    vec![hog, scope.spawn(move || park(shared, parkers, is_inside))]
}

fn park(shared: &Shared<'_>, mut rng: Rng, is_inside: impl Fn(usize) -> bool) -> Tally {
    let mut tally = Tally::default();
    while !shared.is_stopped() {
        thread::sleep(PAUSE.mul_f64(rng.f64()));
        let Some((slot, thread)) = shared.roll.pick(&mut rng) else { continue };
        let Some(parked) = Parked::park(thread) else { continue };
        tally.count(Count::Parked);
        tally.counts.add_many(Count::ParkedInside, is_inside(slot).into());
        let longest = if rng.u32(0..16) == 0 { LONG_STAY } else { STAY };
        thread::sleep(longest.mul_f64(rng.f64()));
        drop(parked);
    }
    tally
}

/// The longest burst.
const LONGEST: Duration = Duration::from_millis(6);
/// The hog rests this many times as long as its burst.
const REST: u32 = 4;
/// The lowest real-time priority: above ordinary threads, below all other real-time threads.
const PRIORITY: libc::c_int = 1;
const NICE: libc::c_int = -10;

/// Raises the calling thread as far as is allowed. Returns how far.
fn raise() -> String {
    let parameter = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: `parameter` is alive for the call; 0 is the calling thread.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) } == 0 {
        return format!("SCHED_FIFO {PRIORITY}");
    }
    // SAFETY: no memory is passed; 0 is the calling thread.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) } == 0 {
        return format!("nice {NICE}, as real time is not allowed");
    }
    "an ordinary thread, as neither real time nor a nice value is allowed".to_owned()
}

/// The best priority that this process may have. A thread that ends at once tries to get it.
pub(crate) fn best_rank() -> String {
    thread::spawn(raise).join().unwrap_or_default()
}

/// Takes bursts of one CPU after the other until stopped.
fn preempt(shared: &Shared<'_>, mut rng: Rng) -> Tally {
    raise();
    let (mut tally, cpus) = (Tally::default(), shared.cpus);
    while !shared.is_stopped() {
        // If it is refused, the hog runs where the scheduler puts it.
        let _ = run_on(&[cpus[rng.usize(0..cpus.len())]]);
        let (begun, burst) = (Instant::now(), LONGEST.mul_f64(rng.f64()));
        while begun.elapsed() < burst {
            std::hint::spin_loop();
        }
        tally.count(Count::Bursts);
        thread::sleep(burst * REST);
    }
    tally
}

const SIGNAL: libc::c_int = libc::SIGUSR1;
/// The most threads that are parked at the same time.
const PLACES: usize = 16;

/// The handler's data: only atomics, because it must neither allocate nor lock.
static PLACE: [Place; PLACES] =
    [const { Place { thread: AtomicU32::new(0), word: AtomicU32::new(0) } }; PLACES];

#[derive(Debug)]
struct Place {
    /// The thread that is to be parked; 0 while the place is free.
    thread: AtomicU32,
    /// A number that grows with each use, times `STATES`, plus 0 or one of the states below. So a late handler never mistakes the
    /// next use of the place for its own.
    word: AtomicU32,
}

const ASKED: u32 = 1;
const PARKED: u32 = 2;
const STATES: u32 = 4;

/// A parked thread. The drop releases it.
#[derive(Debug)]
pub(crate) struct Parked {
    place: &'static Place,
}

impl Parked {
    /// Parks a thread of this process, and waits until it is parked. `None` if the thread is gone, or does not run its handler
    /// in time.
    pub(crate) fn park(thread: u32) -> Option<Self> {
        if !is_installed() {
            return None;
        }
        let place = PLACE.iter().find(|place| {
            // Acquire: pairs with the release in `drop`: the last use of the place is over.
            place.thread.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })?;
        let parked = Self { place };
        // Release: pairs with the acquire in the handler, which reads `thread` first.
        place.word.fetch_add(ASKED, Ordering::Release);
        if !send(thread) {
            return None;
        }
        let deadline = Instant::now() + PATIENCE;
        while !parked.is_there() {
            if Instant::now() > deadline {
                return None;
            }
            std::thread::yield_now();
        }
        Some(parked)
    }

    fn is_there(&self) -> bool {
        // Acquire: pairs with the release in the handler: the caller sees what the thread did before it was parked.
        self.place.word.load(Ordering::Acquire) % STATES == PARKED
    }
}

/// Releases the thread.
impl Drop for Parked {
    fn drop(&mut self) {
        let Place { thread, word } = self.place;
        // The handler takes the place by a compare-exchange, so it either fails, or is woken.
        // AcqRel: pairs with the handler's loads and its exchange.
        let _ = word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| {
            Some((word - word % STATES).wrapping_add(STATES))
        });
        let _ = futex::wake(word, futex::Flags::PRIVATE, u32::MAX);
        // Release: pairs with the acquire in `park`.
        thread.store(0, Ordering::Release);
    }
}

/// Sends the signal. Returns whether the thread exists.
fn send(thread: u32) -> bool {
    // SAFETY: no memory is passed. The handler is installed, so the signal does not kill the process.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, SIGNAL) == 0 }
}

/// Installs the handler, once for the process. Returns whether it is there.
fn is_installed() -> bool {
    static DONE: OnceLock<bool> = OnceLock::new();
    *DONE.get_or_init(|| {
        // SAFETY: all zeroes are a valid `sigaction`: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handle as *const () as usize;
        // Interrupted system calls are restarted.
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: the handler is async-signal-safe: it uses only atomics and raw system calls, and does not change `errno`, which
        // rustix does not use.
        unsafe { libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut()) == 0 }
    })
}

/// The handler: waits until the place is released.
extern "C" fn handle(_: libc::c_int) {
    let thread = own_id();
    for Place { thread: asked, word } in &PLACE {
        // Acquire: pairs with the release in `park`.
        let now = word.load(Ordering::Acquire);
        // Relaxed: it is written before the word. At worst the exchange fails.
        if now % STATES != ASKED || asked.load(Ordering::Relaxed) != thread {
            continue;
        }
        let parked = now - ASKED + PARKED;
        // Release: pairs with the acquire in `is_there`.
        if word.compare_exchange(now, parked, Ordering::Release, Ordering::Relaxed).is_ok() {
            // Acquire: pairs with the release in `drop`.
            while word.load(Ordering::Acquire) == parked {
                let _ = futex::wait(word, futex::Flags::PRIVATE, parked, None);
            }
            return;
        }
    }
}

/// How long, on a busy machine, a booster may take to end a boost, and a joined thread to disappear.
const LATE: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 10_000 });

/// The state in which every thread of the process should be: that of the first thread at the beginning.
#[derive(Debug)]
pub(crate) struct Ordinary(Standing);

impl Ordinary {
    /// The state of the calling thread.
    pub(crate) fn of_caller() -> Option<Self> {
        Standing::of(own_id()).map(Self)
    }

    /// Checks the calling thread, which is inside no section. Its booster may need a moment to end the boost.
    pub(crate) fn check_caller(&self, findings: &Findings) {
        self.check(own_id(), findings);
    }

    /// Checks all threads of the process, and returns their number. No section is open.
    pub(crate) fn check_all(&self, findings: &Findings) -> u64 {
        let Ok(ids) = threads::ids() else { return 0 };
        ids.map(|thread| self.check(thread, findings)).count() as u64
    }

    /// A thread that has ended has no state. A thread that was joined may take a while to end.
    fn check(&self, thread: u32, findings: &Findings) {
        let Self(usual) = self;
        let other = || Standing::of(thread).filter(|now| now != usual).map_or(Ok(()), Err);
        if let Err(now) = threads::patiently(LATE, other) {
            findings.add(|| format!("thread {thread} was left as {now:?}, and not as {usual:?}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, AtomicU64};
    use std::thread;
    use std::time::Duration;

    #[test]
    fn a_parked_thread_stands_still_until_it_is_released() {
        let (id, steps, stop) = (AtomicU32::new(0), AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                id.store(own_id(), Ordering::Release);
                while !stop.load(Ordering::Relaxed) {
                    steps.fetch_add(1, Ordering::Relaxed);
                }
            });
            for _ in 0..100 {
                let wait_for = |condition: &dyn Fn() -> bool| {
                    while !condition() {
                        thread::yield_now();
                    }
                };
                wait_for(&|| id.load(Ordering::Acquire) != 0);
                let parked = Parked::park(id.load(Ordering::Acquire)).expect("it is there");
                let before = steps.load(Ordering::Relaxed);
                thread::sleep(Duration::from_millis(1));
                assert_eq!(steps.load(Ordering::Relaxed), before);
                drop(parked);
                wait_for(&|| steps.load(Ordering::Relaxed) != before);
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_thread_that_is_not_there_cannot_be_parked() {
        let begun = Instant::now();
        // No thread has this id. (The kernel may reuse that of a thread that is gone.)
        assert!(Parked::park(i32::MAX as u32).is_none());
        assert!(begun.elapsed() < PATIENCE / 2, "it does not wait for the handler");
    }

    #[test]
    fn a_thread_that_was_left_elsewhere_is_found() {
        let mut ordinary = Ordinary::of_caller().unwrap();
        let findings = Findings::leak();
        let (there, seen) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                there.wait();
                seen.wait();
            });
            there.wait();
            // The expectation is changed, not the thread, because tests run in parallel and move their threads.
            ordinary.0.nice += 1;
            assert!(ordinary.check_all(findings) >= 2);
            assert!(findings.number() >= 2, "{:?}", findings.texts());
            seen.wait();
        });
    }
}
