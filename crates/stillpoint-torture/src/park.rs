//! Parks a thread at any instruction: a signal to the thread, whose handler waits on a futex until the thread is released.
//!
//! SIGSTOP would stop the whole process. A thread that waits in a signal handler is equivalent to one that the scheduler does not
//! run, at any instruction of the library.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use rustix::thread::futex;

use super::roll::own_id;
use super::world::PATIENCE;

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
        install().ok()?;
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

/// Installs the handler, once for the process.
fn install() -> io::Result<()> {
    static DONE: OnceLock<bool> = OnceLock::new();
    let done = *DONE.get_or_init(|| {
        // SAFETY: all zeroes are a valid `sigaction`: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handle as *const () as usize;
        // Interrupted system calls are restarted.
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: the handler is async-signal-safe: it uses only atomics and raw system calls, and does not change `errno`, which
        // rustix does not use.
        unsafe { libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut()) == 0 }
    });
    if done { Ok(()) } else { Err(io::Error::other("no signal handler")) }
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

#[cfg(test)]
mod tests {
    use super::*;
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
    fn a_thread_that_is_gone_cannot_be_parked() {
        let id = thread::spawn(own_id).join().unwrap();
        // The kernel may give the id to another thread of this process, which is then parked for a moment.
        drop(Parked::park(id));
    }
}
