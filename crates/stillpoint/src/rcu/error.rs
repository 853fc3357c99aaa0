use std::error::Error;
use std::fmt;

use super::boost::Boost;
use super::engine::queue::retire_list::Full;
use crate::fence::FenceError;

/// Why a domain could not be built.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// The fence mode that was asked for needs heavy fences, which the kernel refuses.
    Asymmetric(FenceError),
    /// This process may not boost readers in the way that was asked for, and there is no fallback.
    Boost {
        /// The way that was asked for.
        boost: Boost,
        /// The error number of the system call, as in `errno.h`.
        errno: i32,
    },
    /// The default domain exists already, because something has used it or built it.
    DefaultInUse,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asymmetric(error) => write!(f, "the fence mode is unavailable: {error}"),
            Self::Boost { boost, errno } => write!(
                f,
                "the kernel refused to boost preempted readers ({boost:?}: {}); this needs the capability \
                 CAP_SYS_NICE, or a limit of real-time priorities of at least 1 (RLIMIT_RTPRIO, `ulimit -r`), and \
                 real-time tasks allowed in the control group; or declare another way with `boost_fallback`",
                std::io::Error::from_raw_os_error(*errno)
            ),
            Self::DefaultInUse => f.write_str(
                "the default domain is in use already; build it before anything uses it, first in `main`",
            ),
        }
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Asymmetric(error) => Some(error),
            Self::Boost { .. } | Self::DefaultInUse => None,
        }
    }
}

/// Why an object was not taken in: see [`RetireError::kind`](super::RetireError::kind).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetireErrorKind {
    /// The queue has reached its limit of objects or bytes, and readers hold up what is in it.
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

impl From<Full> for RetireErrorKind {
    fn from(full: Full) -> Self {
        match full {
            Full::Queue => Self::Full,
            Full::Domain => Self::DomainFull,
        }
    }
}

/// A cell or a link did not hold the expected object. `new` hands back what was to be linked, and `found` is what was there.
///
/// From [`compare_exchange`](super::RcuCell::compare_exchange) of a cell, `found` is an address, which may be
/// compared but not followed. From [`compare_exchange_in`](super::RcuCell::compare_exchange_in), it is a reference that is valid
/// within the region. From [`compare_exchange`](super::Atomic::compare_exchange) of a link, it is a [`Shared`](super::Shared).
///
/// ```
/// use stillpoint::rcu::Domain;
///
/// let domain = Domain::new();
/// let cell = domain.cell(1);
/// let reader = domain.reader();
/// let guard = reader.pin();
/// let object = cell.load(&guard).unwrap();
/// let error = cell.compare_exchange(None, Some(Box::new(2))).unwrap_err();
/// assert_eq!(error.found, std::ptr::from_ref(object).addr());
/// assert_eq!(error.new, Some(Box::new(2)));
/// ```
pub struct CompareExchangeError<P, F = usize> {
    /// What was to be linked: for a cell, an `Option` of a box.
    pub new: P,
    /// What was found: for a cell, an `Option` of a reference, or an address (0 for an empty cell).
    pub found: F,
}

impl<P, F> fmt::Display for CompareExchangeError<P, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the link did not hold the expected pointer")
    }
}

impl<P, F> fmt::Debug for CompareExchangeError<P, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompareExchangeError").finish_non_exhaustive()
    }
}

impl<P, F> Error for CompareExchangeError<P, F> {}

/// For cells and arrays, within a region.
pub(super) type FoundInRegion<'g, T> = CompareExchangeError<Option<Box<T>>, Option<&'g T>>;
