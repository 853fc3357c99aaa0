//! How a thread is scheduled, seen and changed by another thread of the process: `sched_setattr(2)`,
//! `sched_setaffinity(2)`, `/proc/thread-self/stat`, and the clock of a thread's CPU time.

use std::fs::File;
use std::mem::size_of;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{getrlimit, Resource};
use rustix::thread::{
    capabilities, sched_getaffinity, sched_getcpu, sched_setaffinity, CapabilitySet, CpuSet, Pid,
};

/// The lowest real-time priority: above every ordinary thread, below every other real-time thread.
const PRIORITY: u32 = 1;

/// A way to get a thread to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// `SCHED_FIFO`. The children of a raised thread are ordinary ones with `reset_on_fork`, which a process without
    /// the capability could not take back.
    Realtime { reset_on_fork: bool },
    /// Over to the CPU of the caller.
    Migrate,
}

/// What is to be restored, and what it must find: what somebody else has changed meanwhile is left alone.
#[derive(Debug, Clone)]
pub(crate) enum Before {
    Scheduling(libc::sched_attr),
    Affinity { allowed: CpuSet, moved_to: usize },
}

/// A thread of this process, as others see it. The file is bound to the thread, and fails when it has ended,
/// whoever has its id by then.
#[derive(Debug)]
pub(crate) struct Subject {
    tid: Pid,
    stat: File,
}

impl Subject {
    /// The calling thread. Fails without `/proc`, and when no file can be opened.
    pub(crate) fn current() -> std::io::Result<Self> {
        let stat = File::open("/proc/thread-self/stat")?;
        Ok(Self { tid: rustix::thread::gettid(), stat })
    }

    /// What is to be restored after `way`; `None` if it would not get the thread to run: it runs already, or sleeps,
    /// or has ended, or is a real-time thread, or is on the CPU to which it would be moved.
    pub(crate) fn examine(&self, way: Way) -> Result<Option<Before>, Errno> {
        let Some(cpu) = self.waits_for_cpu() else { return Ok(None) };
        match way {
            Way::Realtime { .. } => {
                let before = scheduling(self.tid)?;
                Ok((!is_realtime(&before)).then_some(Before::Scheduling(before)))
            }
            Way::Migrate => {
                let moved_to = sched_getcpu();
                if cpu == moved_to {
                    return Ok(None);
                }
                Ok(Some(Before::Affinity { allowed: sched_getaffinity(Some(self.tid))?, moved_to }))
            }
        }
    }

    /// Gets the thread to run.
    pub(crate) fn help(&self, way: Way, before: &Before) -> Result<(), Errno> {
        match (way, before) {
            (Way::Realtime { reset_on_fork }, _) => set_scheduling(self.tid, &realtime(reset_on_fork)),
            (Way::Migrate, Before::Affinity { moved_to, .. }) => {
                sched_setaffinity(Some(self.tid), &only(*moved_to))
            }
            (Way::Migrate, Before::Scheduling(_)) => Err(Errno::INVAL),
        }
    }

    /// Restores what was before. A thread that has ended needs no more of it.
    pub(crate) fn restore(&self, before: &Before) {
        restore(Some(self.tid), before);
    }

    /// The CPU for which the thread waits; `None` if it runs, or does not want to.
    fn waits_for_cpu(&self) -> Option<usize> {
        // The clock of a thread's CPU time is exact, and goes on between two looks only if the thread runs.
        if cpu_time(self.tid)? != cpu_time(self.tid)? {
            return None;
        }
        let mut text = [0; 1024];
        let length = self.stat.read_at(&mut text, 0).ok()?;
        waiting_cpu(std::str::from_utf8(&text[..length]).ok()?)
    }
}

/// In the child of a `fork`: gives the calling thread back what its parent had before it was helped.
pub(crate) fn restore_after_fork(before: &Before) {
    match before {
        // With `reset_on_fork`, the kernel has made the child an ordinary thread, of an ordinary nice value.
        Before::Scheduling(before) => _ = set_scheduling(rustix::thread::gettid(), before),
        Before::Affinity { .. } => restore(None, before),
    }
}

fn restore(tid: Option<Pid>, before: &Before) {
    match before {
        Before::Scheduling(before) => {
            let tid = tid.unwrap_or_else(rustix::thread::gettid);
            let ours = |now: libc::sched_attr| is_realtime(&now) && now.sched_priority == PRIORITY;
            if scheduling(tid).is_ok_and(ours) {
                // To lower oneself is always allowed.
                let _ = set_scheduling(tid, before);
            }
        }
        Before::Affinity { allowed, moved_to } => {
            if sched_getaffinity(tid).is_ok_and(|now| now == only(*moved_to)) {
                let _ = sched_setaffinity(tid, allowed);
            }
        }
    }
}

/// Whether this process may help in that way, and how.
///
/// Raises the calling thread for a moment, since nothing else tells what the kernel, its control groups and its
/// security modules allow.
pub(crate) fn probe_realtime() -> Result<Way, Errno> {
    let own = rustix::thread::gettid();
    let limit = getrlimit(Resource::Rtprio).current.unwrap_or(u64::MAX);
    let before = scheduling(own)?;
    if is_realtime(&before) {
        // A trial could end its priority for good.
        let capable = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_NICE));
        return if capable || limit > 0 {
            Ok(Way::Realtime { reset_on_fork: false })
        } else {
            Err(Errno::PERM)
        };
    }
    let mut trial = realtime(false);
    let answer = set_scheduling(own, &trial);
    // The capability alone allows more than the limit.
    trial.sched_priority = u32::try_from(limit).unwrap_or(u32::MAX).saturating_add(1);
    let reset_on_fork = answer.is_ok() && trial.sched_priority < 99 && set_scheduling(own, &trial).is_ok();
    if answer.is_ok() {
        set_scheduling(own, &before)?;
    }
    answer.map(|()| Way::Realtime { reset_on_fork })
}

/// `int sched_getattr(pid_t pid, struct sched_attr *attr, unsigned int size, unsigned int flags)`
fn scheduling(tid: Pid) -> Result<libc::sched_attr, Errno> {
    // SAFETY: all of its fields are integers.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the kernel writes at most `size` bytes to the structure.
    let answer = unsafe {
        libc::syscall(libc::SYS_sched_getattr, tid.as_raw_nonzero().get(), &raw mut attributes, size, 0)
    };
    if answer == 0 {
        Ok(attributes)
    } else {
        Err(last_error())
    }
}

/// `int sched_setattr(pid_t pid, struct sched_attr *attr, unsigned int flags)`
fn set_scheduling(tid: Pid, attributes: &libc::sched_attr) -> Result<(), Errno> {
    let mut attributes = *attributes;
    // What the kernel reports is not always what it takes: it knows more bytes than this structure has.
    attributes.size = size_of::<libc::sched_attr>() as u32;
    attributes.sched_flags &= u64::from(libc::SCHED_FLAG_RESET_ON_FORK as u32);
    // SAFETY: the kernel reads the structure, of the size that it tells.
    let answer = unsafe {
        libc::syscall(libc::SYS_sched_setattr, tid.as_raw_nonzero().get(), &raw const attributes, 0)
    };
    if answer == 0 {
        Ok(())
    } else {
        Err(last_error())
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

fn realtime(reset_on_fork: bool) -> libc::sched_attr {
    // SAFETY: all of its fields are integers.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.sched_policy = libc::SCHED_FIFO as u32;
    attributes.sched_priority = PRIORITY;
    if reset_on_fork {
        attributes.sched_flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
    }
    attributes
}

fn is_realtime(attributes: &libc::sched_attr) -> bool {
    const POLICIES: [i32; 3] = [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE];
    POLICIES.contains(&(attributes.sched_policy as i32))
}

fn only(cpu: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(cpu);
    set
}

/// How long the thread has run; `None` if it has ended.
fn cpu_time(tid: Pid) -> Option<Duration> {
    // The kernel's encoding (`clock_getcpuclockid(3)` makes the one of a process): the inverted id, that the clock is
    // one thread's (4), and that it is the scheduler's (2).
    let clock = (!tid.as_raw_nonzero().get() << 3) | 4 | 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the time.
    let answer = unsafe { libc::clock_gettime(clock, &mut time) };
    (answer == 0).then(|| Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32))
}

/// From the contents of `/proc/PID/task/TID/stat` (`proc_pid_stat(5)`): the CPU on which a thread that wants to run
/// was last.
fn waiting_cpu(stat: &str) -> Option<usize> {
    const CPU: usize = 39 - 3;
    // The name in the second field may contain anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
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
        assert_eq!(waiting_cpu(&format!("7 (a) S (b) R {fields}5 0")), Some(5));
        assert_eq!(waiting_cpu(&format!("7 (a) R (b) S {fields}5 0")), None);
        assert_eq!(waiting_cpu("7 (cut off"), None);
        assert_eq!(waiting_cpu("7 (cut off) R 1 2"), None);
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
        // Until it sleeps.
        while other.waits_for_cpu().is_some() || cpu_time(other.tid).is_none() {
            std::thread::yield_now();
        }
        go.send(()).unwrap();
        thread.join().unwrap();
        // `join` returns a little before the kernel has forgotten the thread.
        while cpu_time(other.tid).is_some() {
            std::thread::yield_now();
        }
        assert_eq!(other.waits_for_cpu(), None);
    }

    #[test]
    fn what_was_before_is_restored() {
        let own = Subject::current().unwrap();
        let before = scheduling(own.tid).unwrap();
        if let Ok(way) = probe_realtime() {
            assert_eq!(
                scheduling(own.tid).unwrap().sched_policy,
                before.sched_policy,
                "the probe leaves no trace"
            );
            let saved = Before::Scheduling(before);
            own.help(way, &saved).unwrap();
            assert!(is_realtime(&scheduling(own.tid).unwrap()));
            own.restore(&saved);
        }
        assert_eq!(scheduling(own.tid).unwrap().sched_policy, before.sched_policy);
        assert_eq!(scheduling(own.tid).unwrap().sched_flags, before.sched_flags);

        let allowed = sched_getaffinity(None).unwrap();
        let saved = Before::Affinity { allowed, moved_to: sched_getcpu() };
        own.help(Way::Migrate, &saved).unwrap();
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        own.restore(&saved);
        assert_eq!(sched_getaffinity(None).unwrap(), allowed);
    }

    #[test]
    fn what_somebody_else_has_changed_is_left_alone() {
        let own = Subject::current().unwrap();
        let allowed = sched_getaffinity(None).unwrap();
        // Nobody has moved the thread.
        own.restore(&Before::Affinity { allowed: only(CpuSet::MAX_CPU - 1), moved_to: CpuSet::MAX_CPU - 2 });
        assert_eq!(sched_getaffinity(None).unwrap(), allowed);
    }
}
