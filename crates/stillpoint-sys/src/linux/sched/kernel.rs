//! How a thread is scheduled. Another thread of the process reads and changes this: `sched_setscheduler(2)`,
//! `sched_setaffinity(2)`, `/proc/thread-self/stat`, and the clock of a thread's CPU time.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::linux::thread::processor_time;
use rustix::io::Errno;
use rustix::process::{getrlimit, Resource};
use rustix::thread::{
    capabilities, gettid, sched_getaffinity, sched_setaffinity, CapabilitySet, CpuSet, Pid,
};

use super::{Finding, Way};

/// The lowest real-time priority: above every ordinary thread, and above no other real-time thread.
const PRIORITY: i32 = 1;
/// Children of a raised thread are ordinary.
const RAISED: i32 = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;

/// What to restore after a boost. It is restored only if the thread still has what the boost has set: a change that others made
/// meanwhile is left alone.
#[derive(Debug, Clone)]
pub enum Before {
    /// A policy, with `SCHED_RESET_ON_FORK` if it was set. Nice value and slice stay unchanged throughout.
    Policy(i32),
    /// The CPUs that the thread may run on.
    Affinity {
        /// The CPUs before the move.
        allowed: CpuSet,
        /// The CPU that the thread was moved to.
        moved_to: usize,
    },
}

/// A thread of this process, as others see it. The file `stat` is bound to the thread: a read fails once the thread has ended,
/// even if another thread has its id by then.
#[derive(Debug)]
pub struct Subject {
    tid: Pid,
    stat: File,
}

impl Subject {
    /// The calling thread. Fails without `/proc`, or if no file can be opened.
    pub fn current() -> std::io::Result<Self> {
        let stat = File::open("/proc/thread-self/stat")?;
        Ok(Self { tid: gettid(), stat })
    }

    /// Whether the thread needs to be boosted in this way now.
    pub fn examine(&self, way: Way) -> Result<Finding, Errno> {
        let Some(cpu) = self.waits_for_cpu() else { return Ok(Finding::NoNeed) };
        let policy = policy(self.tid)?;
        if is_realtime(policy) {
            return Ok(Finding::NoNeed);
        }
        let own_cpu = own_cpu();
        if cpu == own_cpu {
            return Ok(Finding::GiveWay);
        }
        Ok(match way {
            Way::Realtime => Finding::Boost(Before::Policy(policy)),
            // An ordinary thread would never get this CPU from the real-time caller.
            Way::Migrate if is_realtime(self::policy(gettid())?) => Finding::NoNeed,
            Way::Migrate => {
                let allowed = sched_getaffinity(Some(self.tid))?;
                Finding::Boost(Before::Affinity { allowed, moved_to: own_cpu })
            }
        })
    }

    /// Makes the scheduler run the thread.
    pub fn boost(&self, before: &Before) -> Result<(), Errno> {
        match before {
            Before::Policy(_) => set_policy(self.tid, RAISED, PRIORITY),
            Before::Affinity { moved_to, .. } => sched_setaffinity(Some(self.tid), &only(*moved_to)),
        }
    }

    /// Restores the scheduling from before. Does nothing for a thread that has ended. An error means that the caller may not
    /// restore, and the thread itself must.
    pub fn restore(&self, before: &Before) -> Result<(), Errno> {
        if !self.is_alive() {
            return Ok(());
        }
        match before {
            Before::Policy(before) => {
                if policy(self.tid)? & !libc::SCHED_RESET_ON_FORK != libc::SCHED_FIFO
                    || priority(self.tid)? != PRIORITY
                {
                    return Ok(());
                }
                // Lowering a thread is always allowed. Clearing `SCHED_RESET_ON_FORK`, so that its children inherit again, needs
                // `CAP_SYS_NICE`.
                set_policy(self.tid, *before, 0)
                    .or_else(|_| set_policy(self.tid, *before | libc::SCHED_RESET_ON_FORK, 0))
            }
            Before::Affinity { allowed, moved_to } => {
                if sched_getaffinity(Some(self.tid))? != only(*moved_to) {
                    return Ok(());
                }
                // All CPUs that the thread was allowed may have been taken from it meanwhile.
                sched_setaffinity(Some(self.tid), allowed)
                    .or_else(|_| sched_setaffinity(Some(self.tid), &every_cpu()))
            }
        }
    }

    fn is_alive(&self) -> bool {
        self.stat.read_at(&mut [0; 8], 0).is_ok_and(|length| length > 0)
    }

    /// The CPU that the thread waits for; `None` if it runs, or is not runnable.
    fn waits_for_cpu(&self) -> Option<usize> {
        // The clock of a thread's CPU time is exact, and advances between two reads only if the thread runs.
        let tid = self.tid.as_raw_nonzero().get().unsigned_abs();
        if processor_time(tid)? != processor_time(tid)? {
            return None;
        }
        let mut text = [0; 1024];
        let length = self.stat.read_at(&mut text, 0).ok()?;
        waiting_cpu(&text[..length])
    }
}

/// Whether this process may raise its threads.
///
/// Raises the calling thread briefly, since nothing else shows what the kernel, its control groups and its
/// security modules allow.
pub fn probe_realtime() -> Result<Way, Errno> {
    let own = gettid();
    let before = policy(own)?;
    if is_realtime(before) {
        // A thread that already has a priority could lose it for good by a trial.
        let capable = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_NICE));
        let limit = getrlimit(Resource::Rtprio).current;
        return if capable || limit != Some(0) { Ok(Way::Realtime) } else { Err(Errno::PERM) };
    }
    let inherited = before & libc::SCHED_RESET_ON_FORK;
    set_policy(own, libc::SCHED_FIFO | inherited, PRIORITY)?;
    set_policy(own, before, 0)?;
    Ok(Way::Realtime)
}

/// `int sched_getscheduler(pid_t pid)`, with `SCHED_RESET_ON_FORK` if it is set.
fn policy(tid: Pid) -> Result<i32, Errno> {
    // SAFETY: no pointers are passed.
    match unsafe { libc::sched_getscheduler(tid.as_raw_nonzero().get()) } {
        -1 => Err(last_error()),
        policy => Ok(policy),
    }
}

/// `int sched_getparam(pid_t pid, struct sched_param *param)`
fn priority(tid: Pid) -> Result<i32, Errno> {
    let mut parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel writes the structure.
    match unsafe { libc::sched_getparam(tid.as_raw_nonzero().get(), &raw mut parameter) } {
        -1 => Err(last_error()),
        _ => Ok(parameter.sched_priority),
    }
}

/// `int sched_setscheduler(pid_t pid, int policy, const struct sched_param *param)`: unlike `sched_setattr(2)`, it
/// leaves the nice value and the slice of an ordinary thread alone.
fn set_policy(tid: Pid, policy: i32, priority: i32) -> Result<(), Errno> {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: the kernel reads the structure.
    match unsafe { libc::sched_setscheduler(tid.as_raw_nonzero().get(), policy, &raw const parameter) } {
        -1 => Err(last_error()),
        _ => Ok(()),
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

fn is_realtime(policy: i32) -> bool {
    const POLICIES: [i32; 3] = [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE];
    POLICIES.contains(&(policy & !libc::SCHED_RESET_ON_FORK))
}

fn only(cpu: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(cpu);
    set
}

fn every_cpu() -> CpuSet {
    let mut set = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| set.set(cpu));
    set
}

/// The processor of the calling thread. Uses libc: see [`time`](crate::linux::time).
fn own_cpu() -> usize {
    // SAFETY: no preconditions.
    let cpu = unsafe { libc::sched_getcpu() };
    usize::try_from(cpu).unwrap_or_default()
}

/// The CPU on which a runnable thread was last, from the contents of `/proc/PID/task/TID/stat`
/// (`proc_pid_stat(5)`).
fn waiting_cpu(stat: &[u8]) -> Option<usize> {
    const CPU: usize = 39 - 3;
    // The name in the second field may contain anything, and may be cut in the middle of a character.
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let mut fields = std::str::from_utf8(&stat[end + 1..]).ok()?.split_ascii_whitespace();
    match (fields.next()?, fields.nth(CPU - 1)?) {
        ("R", cpu) => cpu.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_contain_anything() {
        let fields = "0 ".repeat(35);
        let stat = |name: &[u8], state: &str| {
            let rest = format!(") {state} {fields}5 0");
            [b"7 (", name, rest.as_bytes()].concat()
        };
        assert_eq!(waiting_cpu(&stat(b"a) S (b", "R")), Some(5));
        assert_eq!(waiting_cpu(&stat(b"a) R (b", "S")), None);
        assert_eq!(waiting_cpu(&stat(b"\xc3\xa9\xc3", "R")), Some(5));
        assert_eq!(waiting_cpu(b"7 (cut off"), None);
        assert_eq!(waiting_cpu(b"7 (cut off) R 1 2"), None);
    }

    #[test]
    fn a_thread_that_runs_does_not_wait() {
        let own = Subject::current().unwrap();
        assert!((0..100).any(|_| own.waits_for_cpu().is_none()));
        assert!(own.examine(Way::Migrate).is_ok());
    }

    #[test]
    fn a_thread_that_sleeps_or_has_ended_does_not_wait() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            sender.send(Subject::current().unwrap()).unwrap();
            wait.recv().unwrap();
        });
        let other = receiver.recv().unwrap();
        // Waits until it sleeps.
        while other.waits_for_cpu().is_some() {
            std::thread::yield_now();
        }
        assert!(other.is_alive());
        go.send(()).unwrap();
        thread.join().unwrap();
        // `join` returns shortly before the kernel has removed the thread.
        while other.is_alive() {
            std::thread::yield_now();
        }
        assert_eq!(other.waits_for_cpu(), None);
        assert_eq!(other.restore(&Before::Policy(libc::SCHED_OTHER)), Ok(()));
    }

    /// Includes the nice value, which the thread may have changed meanwhile.
    #[test]
    fn what_was_before_is_restored() {
        // In another thread, since lowering a nice value again needs a privilege.
        std::thread::spawn(|| {
            let own = Subject::current().unwrap();
            let before = policy(own.tid).unwrap();
            if probe_realtime().is_ok() {
                assert_eq!(policy(own.tid), Ok(before), "the probe leaves no trace");
                own.boost(&Before::Policy(before)).unwrap();
                assert_eq!(policy(own.tid), Ok(RAISED));
                // SAFETY: no pointers are passed.
                assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) }, 0);
                own.restore(&Before::Policy(before)).unwrap();
                // SAFETY: no pointers are passed.
                assert_eq!(unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }, 10);
            } else {
                crate::linux::skip::skipped("this process may not raise threads");
            }
            assert_eq!(policy(own.tid).unwrap() & !libc::SCHED_RESET_ON_FORK, before);

            let allowed = sched_getaffinity(None).unwrap();
            let saved = Before::Affinity { allowed, moved_to: own_cpu() };
            own.boost(&saved).unwrap();
            assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
            own.restore(&saved).unwrap();
            assert_eq!(sched_getaffinity(None).unwrap(), allowed);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn what_somebody_else_has_changed_is_left_alone() {
        let own = Subject::current().unwrap();
        let allowed = sched_getaffinity(None).unwrap();
        // The thread was never moved to that CPU.
        let other = Before::Affinity { allowed: only(CpuSet::MAX_CPU - 1), moved_to: CpuSet::MAX_CPU - 2 };
        own.restore(&other).unwrap();
        assert_eq!(sched_getaffinity(None).unwrap(), allowed);
    }
}
