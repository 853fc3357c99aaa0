//! Checks that no thread keeps what a boost gave it: a real-time policy, a nice value, another set of CPUs.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, Pid, sched_getaffinity};

use super::findings::Findings;

/// How long, on a busy machine, a booster may take to end a boost, and a joined thread to disappear.
const LATE: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 10_000 });

/// The state in which every thread of the process should be: that of the first thread at the beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ordinary(Standing);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Standing {
    policy: i32,
    nice: i32,
    cpus: Vec<usize>,
}

impl Ordinary {
    /// The state of the calling thread.
    pub(crate) fn of_caller() -> Option<Self> {
        standing(super::roll::own_id()).map(Self)
    }

    /// Checks the calling thread, which is inside no section. Its booster may need a moment to end the boost.
    pub(crate) fn check_caller(&self, findings: &Findings) {
        self.check(super::roll::own_id(), findings);
    }

    /// Checks all threads of the process, and returns their number. No section is open.
    pub(crate) fn check_all(&self, findings: &Findings) -> u64 {
        let Ok(threads) = fs::read_dir("/proc/self/task") else { return 0 };
        let ids = threads.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        ids.map(|thread| self.check(thread, findings)).count() as u64
    }

    /// A thread that has ended has no state. A thread that was joined may take a while to end.
    fn check(&self, thread: u32, findings: &Findings) {
        let mut deadline = None;
        while let Some(now) = standing(thread).filter(|now| *now != self.0) {
            if Instant::now() > *deadline.get_or_insert_with(|| Instant::now() + LATE) {
                findings.add(|| format!("thread {thread} was left as {now:?}, and not as {:?}", self.0));
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn standing(thread: u32) -> Option<Standing> {
    let raw = i32::try_from(thread).ok()?;
    // SAFETY: no memory is passed.
    let policy = unsafe { libc::sched_getscheduler(raw) };
    // SAFETY: no memory is passed. -1 may be a nice value or an error; a thread that is gone has no policy.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, thread) };
    let set = sched_getaffinity(Pid::from_raw(raw)).ok()?;
    let cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect();
    (policy >= 0).then_some(Standing { policy, nice, cpus })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

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
