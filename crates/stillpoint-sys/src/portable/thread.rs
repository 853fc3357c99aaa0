//! Numbers of threads, and what the library knows about threads without help from the system. `pthread_t pthread_self(void)`

use std::fmt;
use std::time::Duration;

/// A number that distinguishes living threads, costs no system call, and survives `fork`.
#[inline]
pub fn thread_handle() -> usize {
    #[cfg(stillpoint_loom)]
    return {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        loom::thread::current().id().hash(&mut hasher);
        hasher.finish() as usize
    };
    #[cfg(all(unix, not(stillpoint_loom)))]
    // SAFETY: no preconditions.
    return unsafe { libc::pthread_self() } as usize;
    #[cfg(not(any(unix, stillpoint_loom)))]
    return thread_number() as usize;
}

/// A number that no other thread of the process has or ever had: unlike a thread's id and its handle, it is not reused
/// after the thread has ended. It costs no system call, and survives `fork`.
#[inline]
pub fn thread_number() -> u64 {
    #[cfg(stillpoint_loom)]
    return thread_handle() as u64;
    #[cfg(not(stillpoint_loom))]
    return {
        use std::cell::Cell;
        use std::sync::atomic::{AtomicU64, Ordering};

        static LAST: AtomicU64 = AtomicU64::new(0);
        std::thread_local! {
            // It has no destructor, so it can be read until the thread has ended. (If the standard library itself implements
            // thread-locals, as on Windows with GNU's tools, its memory is freed earlier: from then on the thread gets another
            // number.)
            static OWN: Cell<u64> = const { Cell::new(0) };
        }
        #[cold]
        fn first() -> u64 {
            // Relaxed: numbers only have to differ.
            OWN.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
            OWN.get()
        }
        match OWN.get() {
            0 => first(),
            number => number,
        }
    };
}

/// The thread's [number](thread_number), truncated: unique among four billion threads.
pub fn thread_id() -> u32 {
    thread_number() as u32
}

/// Lets others run.
pub fn yield_cpu() {
    std::thread::yield_now();
}

/// What a thread was doing when a stall was inspected, as `/proc` reports it.
///
/// The kernel's letter for the state of a thread does not distinguish [`Running`](Activity::Running) from
/// [`Runnable`](Activity::Runnable). The thread's CPU clock does: it advances only while the thread runs. It is read twice, some
/// microseconds apart. So a thread that ran for a part of that time counts as running,
/// and so does a thread on a virtual processor that the host has preempted, since its guest does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activity {
    /// It runs on a processor: the section itself takes long.
    Running,
    /// It waits for a processor: it was preempted.
    Runnable,
    /// It waits for something else: a lock, a message, a timer.
    Sleeping,
    /// It waits for an event that no signal interrupts, most often a disk.
    Uninterruptible,
    /// It was stopped by a debugger or a tracer. (A stop signal stops all threads of a process, including those that would
    /// report the stall.)
    Stopped,
    /// It has ended, and its reader or its guard was forgotten or leaked: this stall never ends. Also reported if the
    /// thread's id now belongs to a thread that was started after the wait began. A thread that got the id earlier is mistaken
    /// for the reader's.
    Ended,
    /// Unknown: `/proc` is not mounted, or the system is not Linux.
    Unknown,
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "running",
            Self::Runnable => "preempted",
            Self::Sleeping => "sleeping",
            Self::Uninterruptible => "in uninterruptible sleep",
            Self::Stopped => "stopped",
            Self::Ended => "ended",
            Self::Unknown => "in an unknown state",
        })
    }
}

/// The state of a thread of this process at one time.
#[derive(Debug, PartialEq, Eq)]
pub struct Sighting {
    /// Its name, as far as the kernel keeps it.
    pub name: Option<String>,
    /// What it is doing.
    pub activity: Activity,
    /// The processor that it runs on, or ran on last.
    pub cpu: Option<u32>,
}

impl Sighting {
    pub(crate) fn without_details(activity: Activity) -> Self {
        Self { name: None, activity, cpu: None }
    }
}

/// Always unknown: the system does not say what another thread does.
pub fn look_at_thread(_tid: u32, _age: Duration) -> Sighting {
    Sighting::without_details(Activity::Unknown)
}

#[cfg(all(test, not(any(stillpoint_loom, miri))))]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_never_used_again() {
        let own = thread_number();
        let mut numbers: Vec<u64> =
            (0..50).map(|_| std::thread::spawn(thread_number).join().unwrap()).collect();
        numbers.extend([own, 0]);
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!((numbers.len(), thread_number()), (52, own), "52 numbers that differ, and one stays");
    }
}
