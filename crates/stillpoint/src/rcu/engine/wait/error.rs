//! Why a wait ended before its grace period.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::report::Stall;
use crate::fence::FenceError;
use crate::frames::is_foreign;
use crate::rcu::engine::core::record::{ReaderKind, Record};
use crate::rcu::engine::Core;

/// Why a wait for a grace period ended before the grace period.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SynchronizeError {
    /// The calling thread itself holds a guard of the domain, an online QSBR reader, or a protected load of an object
    /// that it waits for: it would wait for itself for ever. Drop the guard or the protected load; with a QSBR reader, use
    /// [`QsbrReader::synchronize`](crate::rcu::QsbrReader::synchronize).
    WouldDeadlock {
        /// Name of the domain.
        domain: String,
        /// The kind of reader that the thread holds.
        reader: ReaderKind,
    },
    /// The call came from a destructor, a deferred call or a callback that this domain or another one runs, or from a [stall
    /// hook](crate::rcu::DomainBuilder::stall_hook). Such code must not wait: others may wait for its end.
    Reentrant {
        /// Name of the domain.
        domain: String,
    },
    /// The time limit is over, and this reader has not passed.
    Stalled(Box<Stall>),
    /// The time limit is over. Every region reader has passed, but protected loads still hold objects.
    Pinned {
        /// Name of the domain.
        domain: String,
        /// Number of objects that are held.
        objects: usize,
        /// Number of the domain's protected loads that are [owned](crate::rcu::OwnedProtected), whether or not they hold these
        /// objects.
        owned: usize,
    },
    /// The time limit is over, and other threads are still handling objects that were left to the domain: they move the
    /// objects, or run destructors.
    Busy {
        /// Name of the domain.
        domain: String,
    },
    /// The kernel refuses the heavy fence that the domain was built for: no grace period can complete, and
    /// nothing is freed.
    Fence(FenceError),
}

impl SynchronizeError {
    /// Refuses foreign code that the library runs: it must not wait.
    pub(in crate::rcu) fn unless_foreign(core: &Core) -> Result<(), Self> {
        if is_foreign() {
            return Err(Self::Reentrant { domain: core.name().to_owned() });
        }
        Ok(())
    }

    pub(in crate::rcu) fn pinned(core: &Core, objects: usize) -> Self {
        let (_, owned) = core.protocol.readers();
        Self::Pinned { domain: core.name().to_owned(), objects, owned }
    }

    pub(in crate::rcu) fn would_deadlock(core: &Core, reader: ReaderKind) -> Self {
        Self::WouldDeadlock { domain: core.name().to_owned(), reader }
    }

    /// Refuses a thread that has itself a region open that is in the way of `token`.
    pub(in crate::rcu) fn unless_own_region(core: &Core, token: u64) -> Result<(), Self> {
        match core.protocol.blocked_by_caller(token) {
            Some(record) => Err(Self::would_deadlock(core, record.kind())),
            None => Ok(()),
        }
    }

    /// The reader of `record` is in the way, and the caller has waited since `begun`, an age of the domain.
    pub(in crate::rcu) fn stalled(core: &Core, record: &Record, begun: Duration) -> Self {
        let longest = core.waited_for(record.observe()).unwrap_or_default();
        let waited = longest.max(core.age().saturating_sub(begun));
        Self::Stalled(Box::new(Stall::new(core, record, waited, core.all_pending())))
    }
}

impl fmt::Display for SynchronizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WouldDeadlock { domain, reader: ReaderKind::Guard } => write!(
                f,
                "this thread is in a region of domain `{domain}` and would wait for itself; leave the region first"
            ),
            Self::WouldDeadlock { domain, reader: ReaderKind::Qsbr } => write!(
                f,
                "this thread has an online QSBR reader of domain `{domain}` and would wait for itself; synchronize by this \
                 reader, or go offline first"
            ),
            Self::WouldDeadlock { domain, reader: ReaderKind::ProtectedLoad } => write!(
                f,
                "this thread holds a protected load of a retired object of domain `{domain}` and would wait for itself; \
                 release the protected object first"
            ),
            Self::Reentrant { domain } => write!(
                f,
                "a destructor, a callback or a stall hook must not wait in domain `{domain}`, since it could wait for its own end; \
                 call this from elsewhere"
            ),
            Self::Stalled(stall) => write!(f, "the grace period is blocked: {stall}"),
            Self::Pinned { domain, objects, owned } => {
                let (noun, verb) = if *objects == 1 { ("object", "is") } else { ("objects", "are") };
                write!(
                    f,
                    "{objects} retired {noun} of domain `{domain}` {verb} held by protected loads ({owned} of the domain's \
                     protected loads are bound to no thread); release what they hold, or wait longer"
                )
            }
            Self::Busy { domain } => write!(
                f,
                "other threads have not yet freed what was left to domain `{domain}`, and no reader holds them up; wait \
                 longer"
            ),
            Self::Fence(error) => write!(f, "no grace period can complete: {error}"),
        }
    }
}

impl Error for SynchronizeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Fence(error) => Some(error),
            _ => None,
        }
    }
}
