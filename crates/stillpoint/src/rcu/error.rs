use std::error::Error;
use std::fmt;

use super::boost::Boost;
use super::engine::queue::retire_list::Full;
use super::engine::wait::error::SynchronizeError;
use super::retired::Retired;
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

/// Why an object was not taken in: see [`RetireError::kind`].
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

/// A reclaimer refused an object, or a wait by [`Retired::free`] or [`Retired::free_timeout`] ended before the readers released
/// it. [`into_inner`](RetireError::into_inner) hands the object back.
///
/// An error that is dropped leaves the object to its domain, like a [`Retired`] that is dropped.
///
/// ```
/// use stillpoint::rcu::{Domain, RetireErrorKind};
///
/// let (domain, other) = (Domain::new(), Domain::new());
/// let old = domain.cell(1).take().unwrap();
/// let error = other.reclaimer().retire(old).unwrap_err();
/// assert_eq!(error.kind(), RetireErrorKind::ForeignDomain);
/// domain.reclaimer().retire(error.into_inner())?;
/// # Ok::<(), stillpoint::rcu::RetireError<i32>>(())
/// ```
pub struct RetireError<T: Send + Sync + 'static, C = RetireErrorKind> {
    pub(super) retired: Retired<T>,
    pub(super) cause: C,
}

impl<T: Send + Sync + 'static> RetireError<T> {
    /// Why the reclaimer refused the object.
    pub fn kind(&self) -> RetireErrorKind {
        self.cause
    }
}

impl<T: Send + Sync + 'static, C> RetireError<T, C> {
    /// Why the reclaimer refused the object, or why the wait ended.
    ///
    /// ```
    /// use stillpoint::rcu::{Domain, RetireError, SynchronizeError};
    ///
    /// let domain = Domain::new();
    /// let cell = domain.cell(1);
    /// let reader = domain.reader();
    /// let guard = reader.pin();
    /// let error = cell.take().unwrap().free().unwrap_err();
    /// assert!(matches!(error.cause(), SynchronizeError::WouldDeadlock { .. }));
    /// drop(guard);
    /// error.into_inner().free()?;
    /// # Ok::<(), RetireError<i32, SynchronizeError>>(())
    /// ```
    pub fn cause(&self) -> &C {
        &self.cause
    }

    /// The object.
    #[must_use = "retire the object later, or free it; dropping it leaves it to its domain, beyond any limit"]
    pub fn into_inner(self) -> Retired<T> {
        self.retired
    }

    /// The object, and the cause.
    ///
    /// ```
    /// use stillpoint::rcu::{Domain, SynchronizeError};
    ///
    /// fn free<T: Send + Sync + 'static>(domain: &Domain, value: T) -> Result<(), SynchronizeError> {
    ///     domain.cell(value).take().unwrap().free().map_err(|error| {
    ///         let (retired, cause) = error.into_parts();
    ///         drop(retired); // left to the domain
    ///         cause
    ///     })
    /// }
    /// let domain = Domain::new();
    /// let reader = domain.reader();
    /// let guard = reader.pin();
    /// assert!(matches!(free(&domain, 1), Err(SynchronizeError::WouldDeadlock { .. })));
    /// # drop(guard);
    /// ```
    #[must_use = "retire the object later, or free it; dropping it leaves it to its domain, beyond any limit"]
    pub fn into_parts(self) -> (Retired<T>, C) {
        (self.retired, self.cause)
    }
}

impl<T: Send + Sync + 'static> fmt::Display for RetireError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let domain = self.retired.parts().domain();
        match self.cause {
            RetireErrorKind::Full => f.write_str(
                "the reclaimer is full of objects that readers hold up: retire the object later, or free it when its \
                 readers have passed",
            ),
            RetireErrorKind::DomainFull => write!(
                f,
                "domain `{domain}` is full of objects that wait to be freed: poll its reclaimers, and retire the object \
                 later"
            ),
            RetireErrorKind::TooLarge => write!(
                f,
                "the object has more bytes than may wait in the reclaimer or in domain `{domain}`: set a higher \
                 `max_pending_bytes`, or call `free`, which waits for its readers"
            ),
            RetireErrorKind::ForeignDomain => write!(
                f,
                "the object belongs to domain `{domain}`, the reclaimer to another: retire it to a reclaimer of its own \
                 domain"
            ),
            RetireErrorKind::WouldDeadlock => write!(
                f,
                "there is no room in the reclaimer or in domain `{domain}`, and this thread would wait for itself: drop its guards \
                 and protected loads, or take its reader offline, and retire the object again; a destructor, a callback or a \
                 stall hook must not wait for room"
            ),
            RetireErrorKind::Closed => write!(
                f,
                "the background reclaimer is gone: retire the object to another reclaimer of domain `{domain}`"
            ),
        }
    }
}

impl<T: Send + Sync + 'static> fmt::Display for RetireError<T, SynchronizeError> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the object was not freed (free it later, or retire it): {}", self.cause)
    }
}

impl<T: Send + Sync + 'static, C: fmt::Debug> fmt::Debug for RetireError<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetireError").field("cause", &self.cause).finish_non_exhaustive()
    }
}

impl<T: Send + Sync + 'static> Error for RetireError<T> {}

impl<T: Send + Sync + 'static> Error for RetireError<T, SynchronizeError> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
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
