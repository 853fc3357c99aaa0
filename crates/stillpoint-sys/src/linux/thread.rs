//! `pid_t gettid(void)`, `int tgkill(pid_t, pid_t, int)`, the processor clocks of
//! threads, and `/proc/self/task/TID/stat`.

use std::time::Duration;

use crate::portable::{Activity, Sighting};

/// A number that distinguishes living threads, and survives `fork`: the thread pointer of the processor's ABI, in one instruction. A call of
/// `pthread_self`, as on other systems, takes longer than the comparison for which most callers need it.
#[inline(always)]
pub fn thread_handle() -> usize {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(stillpoint_loom, miri))))]
    return {
        let pointer;
        // SAFETY: this reads the thread pointer: a register, or, on x86-64, the first word of the thread's control block, which is its own
        // address and does not change.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            std::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nomem, nostack, preserves_flags));
            #[cfg(target_arch = "aarch64")]
            std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nomem, nostack, preserves_flags));
        }
        pointer
    };
    #[allow(unreachable_code, reason = "which of these there is depends on the target")]
    crate::portable::thread_handle()
}

/// The kernel's id of the calling thread. Costs a system call.
pub fn thread_id() -> u32 {
    #[cfg(not(any(stillpoint_loom, miri)))]
    // SAFETY: no preconditions. Not `gettid` of libc, which glibc has only since 2.30.
    return unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    // Threads of a model, and of Miri, also have ids, by which other code distinguishes them.
    #[cfg(any(stillpoint_loom, miri))]
    return crate::portable::thread_id();
}

/// `int sched_yield(void)`
pub fn yield_cpu() {
    #[cfg(not(any(stillpoint_loom, miri)))]
    // SAFETY: no preconditions.
    unsafe {
        libc::sched_yield();
    }
}

/// Inspects the thread with this id. The caller has known the thread for `age`: a thread that started later has the id of a
/// thread that has ended, and the answer is [`Activity::Ended`]. Takes some 20 µs. No thread has
/// the id 0: it is [`Activity::Unknown`].
///
/// The state letter is the same for a thread that runs and a thread that waits for a processor. The thread's processor
/// clock differs: the kernel updates it on each read, and it stands still while the thread waits.
pub fn look_at_thread(tid: u32, age: Duration) -> Sighting {
    if tid == 0 || cfg!(any(stillpoint_loom, miri)) {
        return Sighting::without_details(Activity::Unknown);
    }
    let clock_before = processor_time(tid);
    let Ok(stat) = std::fs::read(format!("/proc/self/task/{tid}/stat")) else {
        return Sighting::without_details(if is_alive(tid) { Activity::Unknown } else { Activity::Ended });
    };
    let clock_after = processor_time(tid);
    let stat = String::from_utf8_lossy(&stat);
    let Some(stat) = Stat::parse(&stat) else {
        return Sighting::without_details(Activity::Unknown);
    };
    // Without that clock, nothing is known of when the thread started.
    let now = since_boot();
    let is_another = !now.is_zero() && stat.started_after(now.saturating_sub(age), ticks_per_second());
    if stat.state == 'Z' || stat.state == 'X' || is_another {
        return Sighting::without_details(Activity::Ended);
    }
    let activity = match stat.state {
        'R' => match clock_before.zip(clock_after) {
            Some((before, after)) if after > before => Activity::Running,
            Some(_) => Activity::Runnable,
            None => Activity::Unknown,
        },
        'S' => Activity::Sleeping,
        'D' => Activity::Uninterruptible,
        'T' | 't' => Activity::Stopped,
        _ => Activity::Unknown,
    };
    Sighting { name: Some(stat.name.to_owned()), activity, cpu: stat.cpu }
}

/// The fields that are read from `/proc/PID/task/TID/stat`: see proc_pid_stat(5).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stat<'l> {
    name: &'l str,
    pub(super) state: char,
    /// Start time in ticks since the system started.
    started: u64,
    pub(super) cpu: Option<u32>,
}

impl<'l> Stat<'l> {
    pub(super) fn parse(line: &'l str) -> Option<Self> {
        // A name may contain anything, including parentheses and blanks; the fields after it may not.
        let (head, fields) = line.rsplit_once(')')?;
        let (_, name) = head.split_once('(')?;
        Self::with_name(name, fields)
    }

    /// From what follows the name's last parenthesis. Allocates nothing.
    pub(super) fn with_name(name: &'l str, fields: &str) -> Option<Self> {
        // The manual counts from 1, and the name is field 2.
        let field = |number: usize| fields.split_ascii_whitespace().nth(number - 3);
        Some(Self {
            name,
            state: field(3)?.chars().next()?,
            started: field(22)?.parse().ok()?,
            cpu: field(39).and_then(|cpu| cpu.parse().ok()),
        })
    }

    /// Whether the thread certainly started later than `begun` after the start of the system.
    fn started_after(&self, begun: Duration, ticks_per_second: u64) -> bool {
        let begun_ticks = begun.as_nanos() * u128::from(ticks_per_second) / 1_000_000_000;
        // One tick of tolerance, since both are rounded.
        u128::from(self.started) > begun_ticks + 1
    }
}

/// The time of a clock; `None` for a clock that does not exist.
pub fn time(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable; a clock that does not exist is an error.
    let answer = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (answer == 0).then(|| Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32))
}

fn since_boot() -> Duration {
    time(libc::CLOCK_BOOTTIME).unwrap_or_default()
}

fn ticks_per_second() -> u64 {
    // SAFETY: no preconditions.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).ok().filter(|&ticks| ticks > 0).unwrap_or(100)
}

/// Whether the process has a thread with this id, or the kernel does not tell: a filter may refuse the call.
fn is_alive(tid: u32) -> bool {
    // SAFETY: signal 0 is not sent; the call only tells whether the thread exists.
    let answer = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, 0) };
    answer == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// How long a thread of this process has run on processors, to the nanosecond; `None` if it has ended.
pub(super) fn processor_time(tid: u32) -> Option<Duration> {
    // The id of the clock, as `pthread_getcpuclockid(3)` computes it; that function needs a handle of a living thread. It is the
    // complement of the thread id, with the numbers of the scheduler's clock (2) and of a single thread (4).
    time((!(tid as libc::pid_t) << 3) | 6)
}

#[cfg(all(test, not(any(stillpoint_loom, miri))))]
mod tests {
    use super::*;

    const LINE: &str = "71 (a) R (b) ) S 1 70 70 0 -1 4194368 96 0 0 0 3 4 0 0 20 0 2 0 12345 2764800 301 \
                        18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 5 0 0 0 0 0 0 0 0 0 0 0 0 0\n";

    #[test]
    fn a_name_may_look_like_other_fields() {
        let stat = Stat::parse(LINE).expect("the line has the format of proc_pid_stat(5)");
        assert_eq!((stat.name, stat.state), ("a) R (b) ", 'S'));
        assert_eq!((stat.started, stat.cpu), (12345, Some(5)));
        assert_eq!(Stat::parse("71 (a"), None);
    }

    #[test]
    fn a_thread_that_started_later_is_another_one() {
        let stat = Stat::parse(LINE).expect("the line has the format of proc_pid_stat(5)");
        assert!(stat.started_after(Duration::from_secs(120), 100));
        assert!(!stat.started_after(Duration::from_millis(123_450), 100));
        assert!(!stat.started_after(Duration::from_secs(124), 100));
    }

    #[test]
    fn a_thread_sees_itself_running() {
        let sighting = look_at_thread(thread_id(), Duration::ZERO);
        assert_eq!(sighting.activity, Activity::Running);
        assert!(sighting.name.is_some() && sighting.cpu.is_some(), "{sighting:?}");
    }

    #[test]
    fn without_proc_a_thread_is_alive_or_not() {
        assert!(is_alive(thread_id()));
        let tid = std::thread::spawn(thread_id).join().expect("it does not panic");
        // The kernel may remove the thread some microseconds late.
        let forgotten = (0..1000).any(|_| {
            std::thread::yield_now();
            !is_alive(tid)
        });
        assert!(forgotten);
    }
}
