//! The report of a stall.

use std::fmt;
use std::time::Duration;

use crate::fence::FenceError;
use crate::rcu::engine::core::record::{ReaderKind, Record};
use crate::rcu::engine::Core;
use stillpoint_sys::os::Activity;

/// A region reader that blocks a grace period, as found at one moment: see [`Domain::stall`](crate::rcu::Domain::stall). To the hook,
/// also a fence that the kernel refuses: see [`fence_error`](Stall::fence_error). From [`Domain::silent`](crate::rcu::Domain::silent), a
/// reader that is in the way of nothing, and needs heavy fences: see [`missed`](Stall::missed).
///
/// It is also part of the error of a timed wait, and the argument of the [stall hook](crate::rcu::DomainBuilder::stall_hook).
/// Protected loads are not stalls, however long they last: they keep alive only the objects that they protect.
/// [`Stats::pinned`](crate::rcu::Stats::pinned) counts those.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stall {
    /// Name of the domain.
    pub domain: String,
    /// What kind of reader it is. If a fence is refused: `Guard`, since a [`Reader`](crate::rcu::Reader) needs it.
    pub reader: ReaderKind,
    /// Why the kernel refuses the domain's fence, without which it is unknown whether readers are in the way. Then the thread is
    /// the one that was refused, [`waited`](Stall::waited) is the time since the first refusal after the last fence that
    /// succeeded, and `others` is 0. Only in reports to the hook. `None` if a reader is in the way.
    pub fence_error: Option<FenceError>,
    /// Number of grace periods that have started since the reader last loaded something. Only in reports by
    /// [`Domain::silent`](crate::rcu::Domain::silent), in which `waited`, `others`, `pending` and `pending_bytes` are 0. `None` if a reader is
    /// in the way.
    pub missed: Option<u64>,
    /// The kernel's id of the reader's thread; on systems other than Linux, a number that the library has given it. 0 if the
    /// reader is a [slot that belongs to no thread](crate::rcu::raw::Slot::of_nobody).
    pub thread_id: u32,
    /// The name of the reader's thread, as far as the kernel keeps it (15 bytes). `None` if the thread has ended, and on systems
    /// other than Linux.
    pub thread_name: Option<String>,
    /// What the reader's thread is doing.
    pub activity: Activity,
    /// The processor on which the reader's thread runs, or ran last.
    pub cpu: Option<u32>,
    /// How long the reader has been waited for. In a report to the hook, this is how long the call that reports it has waited.
    /// Otherwise, it is the time since the start of the oldest grace period that the reader is in the way of, among those of
    /// reclaimers, waits and futures. It is zero if there is none of these, but a token was started by hand.
    pub waited: Duration,
    /// Number of further region readers in the way of the newest grace period.
    pub others: usize,
    /// Objects that wait to be freed. A report to the hook by a reclaimer counts only the objects of this reclaimer, so that its
    /// poll need not visit all others. A report by a future counts none. Otherwise, these are the objects of the whole domain.
    pub pending: u64,
    /// Size in bytes of these objects.
    pub pending_bytes: u64,
}

impl Stall {
    /// Inspects the reader's thread, and counts the readers in the way.
    pub(crate) fn new(core: &Core, record: &Record, waited: Duration, behind: Behind) -> Self {
        let others = core.protocol.laggards().count().saturating_sub(1);
        Self { others, ..Self::of_thread(core, record.kind(), (record.tid(), waited), waited, behind) }
    }

    /// The kernel refuses the fence to the calling thread, and has refused it to all others, for the time `waited`.
    pub(crate) fn of_refusal(core: &Core, error: FenceError, waited: Duration, behind: Behind) -> Self {
        let thread_id = stillpoint_sys::os::thread_id();
        // The thread may be younger than the first refusal.
        let thread = (thread_id, Duration::ZERO);
        Self { fence_error: Some(error), ..Self::of_thread(core, ReaderKind::Guard, thread, waited, behind) }
    }

    /// Inspects a thread that has been known for `age`.
    fn of_thread(
        core: &Core,
        reader: ReaderKind,
        (thread_id, age): (u32, Duration),
        waited: Duration,
        behind: Behind,
    ) -> Self {
        let sighting = stillpoint_sys::os::look_at_thread(thread_id, age);
        Self {
            domain: core.name().to_owned(),
            reader,
            fence_error: None,
            missed: None,
            thread_id,
            thread_name: sighting.name,
            activity: sighting.activity,
            cpu: sighting.cpu,
            waited,
            others: 0,
            pending: behind.objects,
            pending_bytes: behind.bytes,
        }
    }

    /// The reader is silent, and does not vouch for this number of tokens. Inspects its thread.
    pub(crate) fn of_silence(core: &Core, record: &Record, missed: u64) -> Self {
        // Nobody knows when the reader registered, so any thread with this id may be its own. A slot has none.
        let thread = Self::of_thread(
            core,
            record.kind(),
            (record.tid(), Duration::ZERO),
            Duration::ZERO,
            Behind::default(),
        );
        Self { missed: Some(missed), ..thread }
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.reader {
            _ if self.fence_error.is_some() => "was refused the fence",
            _ if self.missed.is_some() => "is silent",
            ReaderKind::Guard => "has a region open",
            ReaderKind::Qsbr => "has not reported a quiescent state",
            ReaderKind::ProtectedLoad => "holds a protected load",
        };
        let Self { domain, reader, thread_id, activity, waited, others, pending, pending_bytes, .. } = self;
        match &self.thread_name {
            _ if *reader == ReaderKind::ProtectedLoad => {
                write!(f, "a slot that belongs to no thread {what}")?
            }
            Some(name) => write!(f, "thread {thread_id} (`{name}`) {what}")?,
            None if *activity == Activity::Ended => write!(f, "thread {thread_id}, which has ended, {what}")?,
            None => write!(f, "thread {thread_id} {what}")?,
        }
        write!(f, " in domain `{domain}`")?;
        match self.cpu {
            Some(cpu) => write!(f, " ({activity}, last on CPU {cpu})")?,
            None if *activity == Activity::Ended || *reader == ReaderKind::ProtectedLoad => {}
            None => write!(f, " ({activity})")?,
        }
        if let Some(missed) = self.missed {
            let (noun, verb) = if missed == 1 { ("period", "has") } else { ("periods", "have") };
            write!(f, ": {missed} grace {noun} {verb} started since its last load")?;
            let is_asleep = matches!(activity, Activity::Sleeping | Activity::Uninterruptible);
            return f.write_str(if is_asleep { "; call offline() before it sleeps" } else { "" });
        }
        match others {
            0 => {}
            1 => f.write_str(", and 1 further reader is in the way")?,
            _ => write!(f, ", and {others} further readers are in the way")?,
        }
        let (noun, verb) = if *pending == 1 { ("object", "waits") } else { ("objects", "wait") };
        write!(f, "; after {waited:?}, {pending} {noun} ({pending_bytes} bytes) {verb} to be freed")?;
        self.fence_error.map_or(Ok(()), |error| write!(f, ": {error}"))
    }
}

/// What waits for a stalled reader.
#[derive(Default, Clone, Copy)]
pub(crate) struct Behind {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
}
