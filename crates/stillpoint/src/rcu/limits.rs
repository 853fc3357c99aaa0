//! [`WhenFull`]: what a retirement does when there is no room; and [`RetireErrorKind`]: why an object was not taken in.
//!
//! What waits to be freed takes memory for as long as a reader is in the way. A limit says how much may wait. A retirement beyond
//! it hands the object back, which is then still unlinked and not freed: the caller may try again, wait, or free something first.
//!
//! ```
//! use stillpoint::rcu::limits::RetireErrorKind;
//! use stillpoint::rcu::Domain;
//!
//! let domain = Domain::builder().max_pending(1).build()?;
//! let cell = domain.cell(1);
//! let mut reclaimer = domain.reclaimer();
//! let reader = domain.reader();
//! let guard = reader.pin();
//!
//! reclaimer.retire(cell.replace(2).expect("never empty here")).expect("there is room for one");
//! let error = reclaimer.retire(cell.replace(3).expect("never empty here")).expect_err("but not for two");
//! assert_eq!(error.kind(), RetireErrorKind::DomainFull);
//!
//! drop(guard);
//! reclaimer.retire(error.into_inner()).expect("the first one is freed");
//! # Ok::<(), stillpoint::rcu::BuildError>(())
//! ```
//!
//! [`DomainBuilder::max_pending`](super::DomainBuilder::max_pending) limits a domain, and
//! [`ReclaimerBuilder::max_pending`](super::ReclaimerBuilder::max_pending) one reclaimer.

use std::fmt;
use std::time::Duration;

use super::engine::queue::retire_list::Full;

/// What a retirement does if it finds no room in its reclaimer or in its domain.
///
/// With every choice, a [`Reclaimer`](super::Reclaimer) first frees what is ready in its own queue, as its polls do. In a full
/// domain it also frees a share of what was left to the domain, or of what threads have replaced by
/// [`set`](super::RcuCell::set).
///
/// [`ReclaimerBuilder::when_full`](super::ReclaimerBuilder::when_full) and
/// [`RetireHandle::when_full`](super::RetireHandle::when_full) choose it. Nothing is ever lost: an object that is not taken in is
/// handed back.
///
/// ```
/// use std::time::Duration;
/// use stillpoint::rcu::limits::WhenFull;
/// use stillpoint::rcu::Domain;
///
/// let domain = Domain::builder().max_pending(10_000).build()?;
/// let patient = domain.reclaimer_builder().when_full(WhenFull::Wait(Duration::from_millis(5))).build();
/// let helpful = domain.reclaimer_builder().when_full(WhenFull::Reclaim).build();
/// # drop((patient, helpful));
/// # Ok::<(), stillpoint::rcu::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WhenFull {
    /// Hands the object back at once.
    #[default]
    HandBack,
    /// Waits for room for at most this time, as `retire_timeout` does. A thread that itself holds a guard, an online QSBR
    /// reader or protected loads may wait in vain. With `Duration::MAX`, a thread does not wait for itself: if nothing else
    /// could make room, the retirement fails with [`WouldDeadlock`](super::limits::RetireErrorKind::WouldDeadlock). With any time, so
    /// does a retirement that would wait in a destructor, a deferred call, a callback or a stall hook: such code must not wait.
    /// In a full domain, the wait relies on other threads to poll their reclaimers.
    Wait(Duration),
    /// A [`RetireHandle`](super::RetireHandle) frees what others have retired, if no reader is in the way, and does not
    /// wait. Then the object is taken in, or handed back. For a [`Reclaimer`](super::Reclaimer), the same as
    /// [`HandBack`](WhenFull::HandBack).
    ///
    /// The handle frees objects that were handed in and that the background reclaimer has not taken yet. In a full domain, it
    /// also frees objects that were left to the domain, or that threads have replaced by `set`. Each retirement frees at most 64 objects of others. Their destructors
    /// run on this thread, which should hold no lock that they take. A retirement from within such a destructor does not
    /// reclaim for the same background reclaimer again. One retire handle of a reclaimer reclaims at a time; the others do not
    /// wait for it.
    Reclaim,
}

/// Why an object was not taken in: see [`RetireError::kind`](super::RetireError::kind).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetireErrorKind {
    /// The queue has reached its limit of objects or bytes, and readers keep alive what is in it.
    Full,
    /// The domain has reached [its limit](super::DomainBuilder::max_pending) of objects or bytes.
    DomainFull,
    /// This one object has more bytes than the limit of the queue or of the domain, so there can never be room for it.
    TooLarge,
    /// The object belongs to another domain.
    ForeignDomain,
    /// The background reclaimer is gone.
    Closed,
    /// There is no room, and a wait without a limit would be a wait for the calling thread itself: its region is in the way of
    /// all that waits, or its protected loads hold so much that there is no room beside it. Also, with any limit, if a
    /// destructor, a deferred call, a callback or a stall hook would wait for room: such code must not wait.
    WouldDeadlock,
}

impl RetireErrorKind {
    /// Whether there is no room now but may be later.
    pub fn is_full(self) -> bool {
        matches!(self, Self::Full | Self::DomainFull)
    }
}

impl fmt::Display for RetireErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => {
                "the reclaimer is full of objects that readers keep alive: retire the object later, or free it when its readers have \
                 passed"
            }
            Self::DomainFull => {
                "the domain is full of objects that wait to be freed: poll its reclaimers, and retire the object later"
            }
            Self::TooLarge => {
                "the object has more bytes than may wait in the reclaimer or in its domain: set a higher `max_pending_bytes`, or free \
                 the object after a grace period"
            }
            Self::ForeignDomain => {
                "the object belongs to another domain than the reclaimer: retire it to a reclaimer of its own domain"
            }
            Self::WouldDeadlock => {
                "there is no room in the reclaimer or in its domain, and this thread would wait for itself: drop its guards and \
                 protected loads, or take its reader offline, and retire the object again; a destructor, a callback or a stall hook \
                 must not wait for room"
            }
            Self::Closed => "the background reclaimer is gone: retire the object to another reclaimer of its domain",
        })
    }
}

impl From<Full> for RetireErrorKind {
    fn from(full: Full) -> Self {
        match full {
            Full::Queue => Self::Full,
            Full::Domain => Self::DomainFull,
        }
    }
}
