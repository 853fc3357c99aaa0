//! How a thread is scheduled. Another thread of the process reads and changes this: `sched_setscheduler(2)`,
//! `sched_setaffinity(2)`, `/proc/thread-self/stat`, and the clock of a thread's CPU time.

use std::fs::File;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;
use std::ptr;

use crate::linux::thread::{processor_time, thread_id, Stat};
use crate::linux::{outcome, Errno};

use super::{Finding, Way};

/// The lowest real-time priority: above every ordinary thread, and above no other real-time thread.
const PRIORITY: i32 = 1;
/// Children of a raised thread are ordinary.
const RAISED: i32 = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;

/// The calling thread, in calls that take a thread's id.
const OWN: libc::pid_t = 0;

/// A bit for each CPU, in the kernel's layout.
type CpuSet = [libc::c_ulong; MAX_CPU / libc::c_ulong::BITS as usize];
const MAX_CPU: usize = 1024;

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
    tid: libc::pid_t,
    stat: File,
}

impl Subject {
    /// The calling thread. Fails without `/proc`, or if no file can be opened.
    pub fn current() -> std::io::Result<Self> {
        let stat = File::open("/proc/thread-self/stat")?;
        Ok(Self { tid: thread_id() as libc::pid_t, stat })
    }

    /// In the child of a `fork`, for a thread that is not there. The file may be missing: `fork` copies descriptors before memory. Then this
    /// closes nothing, or a file that got the number since.
    pub fn lose(self) {
        // SAFETY: nothing else has the descriptor. An error says that it was missing.
        let _ = unsafe { libc::close(self.stat.into_raw_fd()) };
    }

    /// Whether the thread needs to be boosted in this way now.
    pub fn examine(&self, way: Way) -> Result<Finding, i32> {
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
            Way::Migrate if is_realtime(self::policy(OWN)?) => Finding::NoNeed,
            Way::Migrate => {
                let allowed = affinity(self.tid)?;
                Finding::Boost(Before::Affinity { allowed, moved_to: own_cpu })
            }
        })
    }

    /// Makes the scheduler run the thread.
    pub fn boost(&self, before: &Before) -> Result<(), i32> {
        match before {
            Before::Policy(_) => set_policy(self.tid, RAISED, PRIORITY),
            Before::Affinity { moved_to, .. } => set_affinity(self.tid, &only(*moved_to)),
        }
    }

    /// Restores the scheduling from before. Does nothing for a thread that has ended. An error means that the caller may not
    /// restore, and the thread itself must. Leaves `errno` as it was: a reader may leave its region in a signal handler.
    pub fn restore(&self, before: &Before) -> Result<(), i32> {
        let _errno = Errno::new();
        if self.has_ended()? {
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
                if affinity(self.tid)? != only(*moved_to) {
                    return Ok(());
                }
                // All CPUs that the thread was allowed may have been taken from it meanwhile.
                set_affinity(self.tid, allowed).or_else(|_| set_affinity(self.tid, &EVERY_CPU))
            }
        }
    }

    /// An error: it is another thread, and a filter of system calls forbids to look at it.
    fn has_ended(&self) -> Result<bool, i32> {
        if self.tid == thread_id() as libc::pid_t {
            return Ok(false);
        }
        match self.stat.read_at(&mut [0; 8], 0) {
            Ok(length) => Ok(length == 0),
            Err(error) => match error.raw_os_error() {
                Some(libc::ESRCH) => Ok(true),
                other => Err(other.unwrap_or(libc::EIO)),
            },
        }
    }

    /// The CPU that the thread waits for; `None` if it runs, or is not runnable.
    fn waits_for_cpu(&self) -> Option<usize> {
        // The clock of a thread's CPU time is exact, and advances between two reads only if the thread runs.
        let tid = self.tid.unsigned_abs();
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
pub fn probe_realtime() -> Result<Way, i32> {
    let before = policy(OWN)?;
    if is_realtime(before) {
        // A thread that already has a priority could lose it for good by a trial.
        return if is_capable() || realtime_limit() != 0 { Ok(Way::Realtime) } else { Err(libc::EPERM) };
    }
    let inherited = before & libc::SCHED_RESET_ON_FORK;
    set_policy(OWN, libc::SCHED_FIFO | inherited, PRIORITY)?;
    set_policy(OWN, before, 0)?;
    Ok(Way::Realtime)
}

// The three calls below as the kernel has them, by `syscall(2)`: musl refuses them, as POSIX would have them act on whole processes. The
// kernel's `struct sched_param` is one `int`.

/// `int sched_getscheduler(pid_t pid)`, with `SCHED_RESET_ON_FORK` if it is set.
fn policy(tid: libc::pid_t) -> Result<i32, i32> {
    // SAFETY: no pointers are passed.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, tid) };
    outcome(policy != -1)?;
    Ok(policy as i32)
}

/// `int sched_getparam(pid_t pid, struct sched_param *param)`
fn priority(tid: libc::pid_t) -> Result<i32, i32> {
    let mut priority: libc::c_int = 0;
    // SAFETY: the kernel writes the integer.
    outcome(unsafe { libc::syscall(libc::SYS_sched_getparam, tid, &raw mut priority) } == 0)?;
    Ok(priority)
}

/// `int sched_setscheduler(pid_t pid, int policy, const struct sched_param *param)`: unlike `sched_setattr(2)`, it
/// leaves the nice value and the slice of an ordinary thread alone.
fn set_policy(tid: libc::pid_t, policy: i32, priority: i32) -> Result<(), i32> {
    let priority: libc::c_int = priority;
    // SAFETY: the kernel reads the integer.
    outcome(unsafe { libc::syscall(libc::SYS_sched_setscheduler, tid, policy, &raw const priority) } == 0)
}

/// `int sched_getaffinity(pid_t pid, size_t cpusetsize, cpu_set_t *mask)`
fn affinity(tid: libc::pid_t) -> Result<CpuSet, i32> {
    let mut set = CpuSet::default();
    // SAFETY: the set has the size that is passed; libc writes no more.
    outcome(unsafe { libc::sched_getaffinity(tid, size_of::<CpuSet>(), (&raw mut set).cast()) } == 0)?;
    Ok(set)
}

/// `int sched_setaffinity(pid_t pid, size_t cpusetsize, const cpu_set_t *mask)`
fn set_affinity(tid: libc::pid_t, set: &CpuSet) -> Result<(), i32> {
    // SAFETY: the set has the size that is passed; libc reads no more.
    outcome(unsafe { libc::sched_setaffinity(tid, size_of::<CpuSet>(), ptr::from_ref(set).cast()) } == 0)
}

/// `long syscall(SYS_capget, cap_user_header_t hdrp, cap_user_data_t datap)`: whether the calling thread has `CAP_SYS_NICE`.
fn is_capable() -> bool {
    /// `linux/capability.h`
    const VERSION_3: u32 = 0x2008_0522;
    const CAP_SYS_NICE: u32 = 23;
    // The version, and the calling thread.
    let mut header = [VERSION_3, 0];
    // The effective, permitted and inheritable capabilities: the first 32 of each, then the others.
    let mut sets = [0u32; 6];
    // SAFETY: in this version, the kernel writes six words, and at most the first word of the header.
    let answer = unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) };
    answer == 0 && sets[0] & (1 << CAP_SYS_NICE) != 0
}

/// `int getrlimit(int resource, struct rlimit *rlim)`, of real-time priorities.
fn realtime_limit() -> libc::rlim_t {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: libc writes the structure.
    unsafe { libc::getrlimit(libc::RLIMIT_RTPRIO, &raw mut limit) };
    limit.rlim_cur
}

fn is_realtime(policy: i32) -> bool {
    const POLICIES: [i32; 3] = [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE];
    POLICIES.contains(&(policy & !libc::SCHED_RESET_ON_FORK))
}

fn only(cpu: usize) -> CpuSet {
    const BITS: usize = libc::c_ulong::BITS as usize;
    let mut set = CpuSet::default();
    set[cpu / BITS] = 1 << (cpu % BITS);
    set
}

const EVERY_CPU: CpuSet = [libc::c_ulong::MAX; MAX_CPU / libc::c_ulong::BITS as usize];

/// The processor of the calling thread.
fn own_cpu() -> usize {
    // SAFETY: no preconditions.
    let cpu = unsafe { libc::sched_getcpu() };
    usize::try_from(cpu).unwrap_or_default()
}

/// The CPU on which a runnable thread was last, from the contents of `/proc/PID/task/TID/stat`
/// (`proc_pid_stat(5)`).
fn waiting_cpu(stat: &[u8]) -> Option<usize> {
    // The name in the second field may contain anything, and may be cut in the middle of a character. Nothing is allocated: a thread
    // that forks, and has taken the allocator's locks, may wait for the end of this look.
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let stat = Stat::with_name("", std::str::from_utf8(&stat[end + 1..]).ok()?)?;
    (stat.state == 'R').then_some(stat.cpu? as usize)
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
        assert_eq!(other.has_ended(), Ok(false));
        go.send(()).unwrap();
        thread.join().unwrap();
        // `join` returns shortly before the kernel has removed the thread.
        while other.has_ended() == Ok(false) {
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

            let allowed = affinity(OWN).unwrap();
            let saved = Before::Affinity { allowed, moved_to: own_cpu() };
            own.boost(&saved).unwrap();
            assert_eq!(affinity(OWN).unwrap().map(libc::c_ulong::count_ones).iter().sum::<u32>(), 1);
            own.restore(&saved).unwrap();
            assert_eq!(affinity(OWN).unwrap(), allowed);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn what_somebody_else_has_changed_is_left_alone() {
        let own = Subject::current().unwrap();
        let allowed = affinity(OWN).unwrap();
        // The thread was never moved to that CPU.
        let other = Before::Affinity { allowed: only(MAX_CPU - 1), moved_to: MAX_CPU - 2 };
        own.restore(&other).unwrap();
        assert_eq!(affinity(OWN).unwrap(), allowed);
    }
}
