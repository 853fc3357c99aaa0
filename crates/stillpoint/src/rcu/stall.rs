use std::fmt;
use std::time::Duration;

use super::engine::record::{Kind, Record};
use super::engine::Core;
use crate::sys::Doing;

/// Which kind of region reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReaderKind {
    /// A [`Reader`](super::Reader) that holds a guard.
    Guard,
    /// A [`QsbrReader`](super::QsbrReader) that has not reported a quiescent state.
    Qsbr,
}

impl From<Kind> for ReaderKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Reader => Self::Guard,
            Kind::Qsbr => Self::Qsbr,
        }
    }
}

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
    /// The kernel does not tell: `/proc` is not mounted.
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
/// Comes in the error of a timed wait, from [`Domain::stall`](super::Domain::stall), and in each [`StallReport`].
/// Protected loads are not stalls, however long they last: they hold up the objects in their hand and nothing else.
/// [`Stats::pinned`](super::Stats::pinned) counts those.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stall {
    /// Name of the domain.
    pub domain: String,
    /// What kind of reader it is.
    pub reader: ReaderKind,
    /// The kernel's id of its thread.
    pub thread_id: u32,
    /// The name of its thread, as far as the kernel keeps it (15 bytes); `None` when the thread has ended.
    pub thread_name: Option<String>,
    /// What its thread is doing.
    pub activity: Activity,
    /// The processor on which its thread runs, or ran last.
    pub cpu: Option<u32>,
    /// How long it has been waited for: since the start of the oldest grace period in whose way it is, among those that
    /// reclaimers, waits and futures have under way. Zero when there is none, but a token was started by hand.
    pub waited: Duration,
    /// Further region readers in the way of the newest grace period.
    pub others: usize,
    /// Objects of the domain that wait to be freed.
    pub pending: u64,
    /// Their size in bytes.
    pub pending_bytes: u64,
}

impl Stall {
    /// Looks at the reader's thread.
    pub(super) fn new(core: &Core, record: &Record, waited: Duration) -> Self {
        let thread_id = record.tid();
        let reader = record.kind().into();
        let sum = core.sum();
        let sighting = crate::sys::look_at_thread(thread_id, waited);
        Self {
            domain: core.name().to_owned(),
            reader,
            thread_id,
            thread_name: sighting.name,
            activity: sighting.doing.into(),
            cpu: sighting.cpu,
            waited,
            others: core.region_readers_in_the_way().count().saturating_sub(1),
            pending: sum.pending,
            pending_bytes: sum.pending_bytes,
        }
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.reader {
            ReaderKind::Guard => "holds a guard",
            ReaderKind::Qsbr => "has not reported a quiescent state",
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

/// What a [stall hook](super::DomainBuilder::stall_hook) is told.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StallReport {
    /// The reader that is in the way. When the stall has ended, its thread as it was at the last report, and what waits
    /// now; [`waited`](Stall::waited) then runs until the end was noticed.
    pub stall: Stall,
    /// Number of the report within this stall, from 1. The one that says that it has ended is counted as well.
    pub number: u32,
    /// Whether the reader has passed meanwhile: the last report of this stall.
    pub ended: bool,
}

impl fmt::Display for StallReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stall, number, ended } = self;
        if *ended {
            let Stall { domain, thread_id, waited, .. } = stall;
            let name = stall.thread_name.as_deref().unwrap_or("ended");
            write!(f, "thread {thread_id} (`{name}`) no longer stalls domain `{domain}`, after {waited:?}")
        } else {
            write!(f, "stall report {number}: {stall}")
        }
    }
}
