//! The hog: a thread with a higher priority, which preempts the thread on a CPU, in bursts.
//!
//! If the machine allows it, the hog is a real-time thread, which preempts every reader; otherwise it has the best nice value that
//! it can get. It takes at most a fifth of one CPU, far from the 95 % at which the kernel throttles real-time threads, so that the
//! machine stays usable.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::actor::run_on;

/// The longest burst.
const LONGEST: Duration = Duration::from_millis(6);
/// The hog rests this many times as long as its burst.
const REST: u32 = 4;
/// The lowest real-time priority: above ordinary threads, below all other real-time threads.
const PRIORITY: libc::c_int = 1;
const NICE: libc::c_int = -10;

/// The kind of priority of the hog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rank {
    Realtime,
    Nice,
    Ordinary,
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rank::Realtime => write!(f, "SCHED_FIFO {PRIORITY}"),
            Rank::Nice => write!(f, "nice {NICE}, as real time is not allowed"),
            Rank::Ordinary => {
                f.write_str("an ordinary thread, as neither real time nor a nice value is allowed")
            }
        }
    }
}

/// Raises the calling thread as far as is allowed.
pub(crate) fn raise() -> Rank {
    let parameter = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: `parameter` is alive for the call; 0 is the calling thread.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) } == 0 {
        return Rank::Realtime;
    }
    // SAFETY: no memory is passed; 0 is the calling thread.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) } == 0 {
        return Rank::Nice;
    }
    Rank::Ordinary
}

/// The best priority that this process may have. A thread that ends at once tries to get it.
pub(crate) fn best_rank() -> Rank {
    thread::spawn(raise).join().unwrap_or(Rank::Ordinary)
}

/// Takes bursts of one CPU after the other until stopped. Returns their number.
pub(crate) fn run(stop: &AtomicBool, cpus: &[usize], mut rng: Rng) -> u64 {
    raise();
    let mut bursts = 0;
    // Relaxed: a flag; the thread is joined.
    while !stop.load(Ordering::Relaxed) {
        // If it is refused, the hog runs where the scheduler puts it.
        let _ = run_on(&[cpus[rng.usize(0..cpus.len())]]);
        let (begun, burst) = (Instant::now(), LONGEST.mul_f64(rng.f64()));
        while begun.elapsed() < burst {
            std::hint::spin_loop();
        }
        bursts += 1;
        thread::sleep(burst * REST);
    }
    bursts
}
