//! That no thread is left with what it was lent: a real-time policy, a nice value, another set of CPUs.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, Pid, sched_getaffinity};

use super::findings::Findings;

/// How long, on a machine that is busy, who boosted a thread may take to end that, and a thread that was joined to end.
const LATE: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 10_000 });

/// How every thread of the process should be: as its first thread was at the beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ordinary(Standing);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Standing {
    policy: i32,
    nice: i32,
    cpus: Vec<usize>,
}

impl Ordinary {
    /// As the calling thread is now.
    pub(crate) fn of_caller() -> Option<Self> {
        standing(super::roll::own_id()).map(Self)
    }

    /// Looks at the calling thread, which is inside no section. Whoever boosted it may be a moment behind.
    pub(crate) fn check_caller(&self, findings: &Findings) {
        self.check(super::roll::own_id(), findings);
    }

    /// Looks at all threads of the process; returns their number. No section is going on.
    pub(crate) fn check_all(&self, findings: &Findings) -> u64 {
        let Ok(threads) = fs::read_dir("/proc/self/task") else { return 0 };
        let ids = threads.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        ids.map(|thread| self.check(thread, findings)).count() as u64
    }

    /// One that has ended has no standing. One that was joined may take a while to end.
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
    // SAFETY: no memory is passed. -1 is a nice value as well as an error; a thread that is gone has no policy.
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
            // The other way round, as tests run beside each other and move their own threads.
            ordinary.0.nice += 1;
            assert!(ordinary.check_all(findings) >= 2);
            assert!(findings.number() >= 2, "{:?}", findings.texts());
            seen.wait();
        });
    }
}
