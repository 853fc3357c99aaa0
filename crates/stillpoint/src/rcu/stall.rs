use std::fmt;
use std::time::Duration;

use super::engine::core::record::{ReaderKind, Record};
use super::engine::Core;
use stillpoint_sys::os::Doing;

/// What a thread was doing when a stall was looked at, as the kernel tells it in `/proc`.
///
/// The kernel's letter for the state of a thread does not tell [`Running`](Activity::Running) from
/// [`Runnable`](Activity::Runnable). The processor clock of the thread does: it is read twice, some microseconds
/// apart, and it advances while the thread runs alone. So a thread that ran for a part of that time counts as running,
/// and so does a thread on a virtual processor that the host has preempted: its guest does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activity {
    /// It runs on a processor: the section itself takes long.
    Running,
    /// It waits for a processor: it was preempted.
    Runnable,
    /// It waits for something else: a lock, a message, a timer.
    Sleeping,
    /// It waits for something that no signal interrupts: most often for a disk.
    Uninterruptible,
    /// It was stopped by a debugger or a tracer. (A stop signal stops all threads of a process, and so whoever would
    /// report it.)
    Stopped,
    /// It has ended without dropping its reader, or its guard, which was forgotten or leaked: this stall does not
    /// end. Also when a thread that was started after the wait began has been given the id of the ended one; one that
    /// was started before is taken for it.
    Ended,
    /// The kernel does not tell: `/proc` is not mounted, or the system is not Linux.
    Unknown,
}

impl From<Doing> for Activity {
    fn from(doing: Doing) -> Self {
        match doing {
            Doing::Running => Self::Running,
            Doing::Runnable => Self::Runnable,
            Doing::Sleeping => Self::Sleeping,
            Doing::Uninterruptible => Self::Uninterruptible,
            Doing::Stopped => Self::Stopped,
            Doing::Ended => Self::Ended,
            Doing::Unknown => Self::Unknown,
        }
    }
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

/// A region reader that holds a grace period up, as found at one moment.
///
/// Comes in the error of a timed wait, from [`Domain::stall`](super::Domain::stall), and to the
/// [stall hook](super::DomainBuilder::stall_hook).
/// Protected loads are not stalls, however long they last: they hold up the objects in their hand and nothing else.
/// [`Stats::pinned`](super::Stats::pinned) counts those.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stall {
    /// Name of the domain.
    pub domain: String,
    /// What kind of reader it is.
    pub reader: ReaderKind,
    /// The kernel's id of its thread; on systems other than Linux, a number that the library has given it.
    pub thread_id: u32,
    /// The name of its thread, as far as the kernel keeps it (15 bytes); `None` when the thread has ended, and on systems other
    /// than Linux.
    pub thread_name: Option<String>,
    /// What its thread is doing.
    pub activity: Activity,
    /// The processor on which its thread runs, or ran last.
    pub cpu: Option<u32>,
    /// How long it has been waited for. To the hook: by the call that reports it. Otherwise since the start of the oldest
    /// grace period in whose way it is, among those that reclaimers, waits and futures have under way; zero when there is
    /// none, but a token was started by hand.
    pub waited: Duration,
    /// Further region readers in the way of the newest grace period.
    pub others: usize,
    /// Objects that wait to be freed. In a report to the hook by a reclaimer: those of the reclaimer, so that its poll need
    /// not ask all others; by a future: 0. Otherwise those of the whole domain.
    pub pending: u64,
    /// Their size in bytes.
    pub pending_bytes: u64,
}

impl Stall {
    /// Looks at the reader's thread, and counts the readers in the way.
    pub(super) fn new(core: &Core, record: &Record, waited: Duration, behind: Behind) -> Self {
        let thread_id = record.tid();
        let reader = record.kind();
        let sighting = stillpoint_sys::os::look_at_thread(thread_id, waited);
        Self {
            domain: core.name().to_owned(),
            reader,
            thread_id,
            thread_name: sighting.name,
            activity: sighting.doing.into(),
            cpu: sighting.cpu,
            waited,
            others: core.protocol.laggards().count().saturating_sub(1),
            pending: behind.objects,
            pending_bytes: behind.bytes,
        }
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.reader {
            ReaderKind::Guard => "holds a guard",
            ReaderKind::Qsbr => "has not reported a quiescent state",
            ReaderKind::ProtectedLoad => "holds a protected load",
        };
        let Self { domain, thread_id, activity, waited, others, pending, pending_bytes, .. } = self;
        match &self.thread_name {
            Some(name) => write!(f, "thread {thread_id} (`{name}`) {what}")?,
            None if *activity == Activity::Ended => write!(f, "thread {thread_id}, which has ended, {what}")?,
            None => write!(f, "thread {thread_id} {what}")?,
        }
        write!(f, " in domain `{domain}`")?;
        match self.cpu {
            Some(cpu) => write!(f, " ({activity}, last on CPU {cpu})")?,
            None if *activity == Activity::Ended => {}
            None => write!(f, " ({activity})")?,
        }
        if *others > 0 {
            write!(f, ", and {others} further readers are in the way")?;
        }
        write!(f, "; after {waited:?}, {pending} objects ({pending_bytes} bytes) wait to be freed")
    }
}

/// What waits behind a stalled reader.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Behind {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
}
