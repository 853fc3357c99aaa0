use std::error::Error;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::domain::Domain;
use super::engine::core::garbage::{self, Garbage};
use super::engine::core::grace::Grace;
use super::engine::core::record::ReaderKind;
use super::engine::directory::Name;
use super::engine::wait::error::SynchronizeError;
use super::engine::wait::park::{Next, Patience};
use super::engine::Core;
use super::limits::RetireErrorKind;
use super::wait::token::Token;
use stillpoint_sys::panics;

/// An object that was unlinked from its [`RcuCell`](super::RcuCell) and that readers may still hold.
///
/// It is freed when every region reader of its domain has passed **and** no hazard slot holds it. Give it to a
/// [`Reclaimer`](super::Reclaimer), or wait with [`free`](Retired::free). It can still be read.
///
/// **A value that is dropped instead is left to the domain.** There, reclaimers of the domain adopt it, or a later
/// [`synchronize`](super::Domain::synchronize) frees it. Without either, it waits until the last handle is dropped. A drop cannot
/// be refused: the object is taken in even beyond the [limits of the domain](super::DomainBuilder::max_pending). Other
/// retirements then find no room until it is freed. [`Stats::beyond_limits`](super::Stats::beyond_limits) counts it.
///
/// ```
/// use stillpoint::rcu::Domain;
///
/// let domain = Domain::new();
/// let cell = domain.cell(1);
/// let mut reclaimer = domain.reclaimer();
///
/// let old = cell.replace(2).expect("the cell was not empty");
/// assert_eq!(*old, 1);
/// reclaimer.retire(old)?;
/// assert_eq!(reclaimer.poll(), 1); // there is no reader
/// # Ok::<(), stillpoint::rcu::RetireError<i32>>(())
/// ```
#[must_use = "give it to a reclaimer; dropping it leaves it to the next reclaimer of the domain"]
pub struct Retired<T: Send + Sync + 'static> {
    /// Whoever has taken the parts may put them together again, once.
    pub(super) parts: Parts<T>,
}

/// The fields of a [`Retired`]. A value that is handed on is taken apart first. Then no code takes its address, so it stays in
/// registers from the exchange to the queue.
pub(super) struct Parts<T> {
    object: NonNull<T>,
    domain: Name,
    /// The token of the first attempt to free the object.
    token: Option<u64>,
}

impl<T> Clone for Parts<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Parts<T> {}

// SAFETY: a `Retired` owns its object like a box, but shares it with readers on other threads: `T` is `Send + Sync`.
unsafe impl<T: Send + Sync + 'static> Send for Retired<T> {}
// SAFETY: a shared `Retired` gives only shared access to the object.
unsafe impl<T: Send + Sync + 'static> Sync for Retired<T> {}

impl<T: Send + Sync + 'static> Retired<T> {
    /// # Safety
    /// `object` came from `Box::into_raw`, the caller has just unlinked it from a cell of `domain`, and from now on only the
    /// caller owns it; readers may still hold it.
    pub(super) unsafe fn new(object: NonNull<T>, domain: Name) -> Self {
        Self { parts: Parts { object, domain, token: None } }
    }

    /// Frees the object if no reader can hold it, otherwise hands it back. Never waits.
    ///
    /// The first call starts a grace period; later calls check it. Each call may issue a heavy fence and
    /// scans all readers. For a stream of objects, use a [`Reclaimer`](super::Reclaimer).
    ///
    /// # Errors
    /// The object itself, if a reader may still hold it or the kernel refuses the fence.
    ///
    /// ```
    /// use stillpoint::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let cell = domain.cell(1);
    /// let reader = domain.reader();
    /// let object = cell.protect(&reader);
    /// let old = cell.take().unwrap();
    /// let old = old.try_free().expect_err("the reader holds it");
    /// drop(object);
    /// assert!(old.try_free().is_ok());
    /// ```
    pub fn try_free(self) -> Result<(), Self> {
        self.try_into_box().map(drop)
    }

    /// The token of the grace period that the object waits for, for [`Domain::grace_period`]. The first call of this or of
    /// [`try_free`](Retired::try_free) starts it. When it is over, `try_free` fails only if a protected load holds the object.
    ///
    /// # Panics
    /// If the object is of another domain.
    ///
    /// ```
    /// # use stillpoint::rcu::Domain;
    /// # async fn replace(domain: Domain) -> Result<(), stillpoint::rcu::wait::SynchronizeError> {
    /// let cell = domain.cell(1);
    /// let mut old = cell.replace(2).unwrap();
    /// domain.grace_period(old.token(&domain)).await?;
    /// assert!(old.try_free().is_ok()); // no reader has protected it
    /// # Ok(())
    /// # }
    /// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// # let over = std::pin::pin!(replace(Domain::new()));
    /// # assert!(std::future::Future::poll(over, &mut context).is_ready());
    /// ```
    #[track_caller]
    pub fn token(&mut self, domain: &Domain) -> Token {
        let core = domain.core();
        assert!(
            self.parts.is_of(core),
            "an object of domain `{}` was used with domain `{}`",
            self.parts.domain,
            core.name()
        );
        Token::new(core, *self.parts.token.get_or_insert_with(|| core.protocol.start()))
    }

    /// Waits until no reader can hold the object, without a limit, and frees it.
    ///
    /// The release of a protected load wakes no thread. This call looks again after 50 µs, then after twice as long, and so on,
    /// up to 1 ms.
    ///
    /// # Errors
    /// As [`Domain::synchronize`](super::Domain::synchronize); [`WouldDeadlock`](SynchronizeError::WouldDeadlock) also if
    /// a protected load of the calling thread holds the object. The error hands the object back.
    ///
    /// # Panics
    /// With the panic of the object's destructor.
    ///
    /// ```
    /// use stillpoint::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let cell = domain.cell(1);
    /// cell.replace(2).unwrap().free()?;
    /// # Ok::<(), stillpoint::rcu::RetireError<i32, stillpoint::rcu::wait::SynchronizeError>>(())
    /// ```
    pub fn free(self) -> Result<(), RetireError<T, SynchronizeError>> {
        self.free_until(None)
    }

    /// As [`free`](Retired::free), for at most `limit`.
    ///
    /// # Errors
    /// Also [`Stalled`](SynchronizeError::Stalled), with a report on the region reader in the way, and
    /// [`Pinned`](SynchronizeError::Pinned) if a protected load holds the object. The error hands the object back.
    ///
    /// # Panics
    /// As [`free`](Retired::free).
    ///
    /// ```
    /// use std::time::Duration;
    /// use stillpoint::rcu::wait::SynchronizeError;
    /// use stillpoint::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let cell = domain.cell(1);
    /// let reader = domain.reader();
    /// let object = cell.protect(&reader);
    /// let old = cell.take().unwrap();
    /// let limit = Duration::from_millis(2);
    /// let error = std::thread::spawn(move || old.free_timeout(limit)).join().unwrap().unwrap_err();
    /// assert!(matches!(error.cause(), SynchronizeError::Pinned { .. }));
    /// drop(object);
    /// error.into_inner().free_timeout(limit)?;
    /// # Ok::<(), stillpoint::rcu::RetireError<i32, stillpoint::rcu::wait::SynchronizeError>>(())
    /// ```
    pub fn free_timeout(self, limit: Duration) -> Result<(), RetireError<T, SynchronizeError>> {
        self.free_until(Some(limit))
    }

    fn free_until(mut self, limit: Option<Duration>) -> Result<(), RetireError<T, SynchronizeError>> {
        if let Some(core) = self.parts.domain.core() {
            let token = *self.parts.token.get_or_insert_with(|| core.protocol.start());
            if let Err(cause) = wait_until_free(&core, token, self.parts.object.as_ptr().addr(), limit) {
                return Err(RetireError { retired: self, cause });
            }
        }
        drop(self.take_object());
        Ok(())
    }

    /// As [`try_free`](Retired::try_free), but returns the object itself.
    ///
    /// # Errors
    /// As [`try_free`](Retired::try_free).
    ///
    /// ```
    /// use stillpoint::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let cell = domain.cell(String::from("kept"));
    /// let old = cell.take().unwrap();
    /// assert_eq!(*old.try_into_box().expect("there is no reader"), "kept");
    /// ```
    pub fn try_into_box(mut self) -> Result<Box<T>, Self> {
        if self.is_free() {
            Ok(self.take_object())
        } else {
            Err(self)
        }
    }

    /// Whether no reader can hold the object any more.
    fn is_free(&mut self) -> bool {
        let Some(core) = self.parts.domain.core() else {
            return true; // without a handle there is no reader
        };
        let token = *self.parts.token.get_or_insert_with(|| core.protocol.start());
        is_free(&core, token, self.parts.object.as_ptr().addr())
    }

    /// Returns the object, after [`is_free`](Retired::is_free) was true.
    fn take_object(self) -> Box<T> {
        let Parts { object, domain, .. } = self.into_parts();
        // SAFETY: it came from `Box::into_raw` (see `new`), and no reader can hold it any more.
        let object = unsafe { Box::from_raw(object.as_ptr()) };
        if let Some(core) = domain.core() {
            core.shared_counters().share_retired();
            core.shared_counters().share_freed();
        }
        object
    }

    /// For models: the object, which the caller frees.
    #[cfg(all(test, stillpoint_loom))]
    pub(super) fn leak(self) -> NonNull<T> {
        self.into_parts().object
    }

    /// Takes the value apart. The caller then owns the object.
    #[inline(always)]
    pub(super) fn into_parts(self) -> Parts<T> {
        ManuallyDrop::new(self).parts
    }
}

/// Whether no reader can hold the object at `address` any more. It was unlinked before `token` was started.
pub(crate) fn is_free(core: &Core, token: u64, address: usize) -> bool {
    let over = matches!(core.protocol.check(token), Ok(Grace::Over));
    over && {
        let mut hazards = Vec::new();
        core.protocol.gather_hazards(&mut hazards);
        hazards.binary_search(&address).is_err()
    }
}

/// Waits until [`is_free`] is true, for at most `limit`.
pub(crate) fn wait_until_free(
    core: &Arc<Core>,
    token: u64,
    address: usize,
    limit: Option<Duration>,
) -> Result<(), SynchronizeError> {
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    core.wait_for(token, limit)?;
    let mut patience = Patience::new();
    while !is_free(core, token, address) {
        if core.protocol.hazards_of_caller().contains(&address) {
            return Err(SynchronizeError::would_deadlock(core, ReaderKind::ProtectedLoad));
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(SynchronizeError::pinned(core, 1));
        }
        patience.wait(core.event(), Next::Release, deadline, || false);
    }
    Ok(())
}

impl<T: Send + Sync + 'static> Parts<T> {
    #[inline(always)]
    pub(super) fn is_of(&self, core: &Core) -> bool {
        self.domain.is(core)
    }

    /// The object without its type, for a queue.
    #[inline(always)]
    pub(super) fn into_garbage(self) -> Garbage {
        Garbage::object(self.object)
    }

    /// Leaves the object of a dropped value to its domain.
    #[cold]
    fn leave_to_domain(self) {
        let garbage = self.into_garbage();
        if let Some(core) = self.domain.core() {
            core.retire_orphan(garbage);
        } else {
            // SAFETY: every reader holds a handle of the domain, and there is no handle any more.
            panics::resume(unsafe { garbage::free_left(garbage) });
        }
    }
}

impl<T: Send + Sync + 'static> Deref for Retired<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the object is freed only by consuming `self`, and is shared with readers until then.
        unsafe { self.parts.object.as_ref() }
    }
}

impl<T: Send + Sync + 'static> Drop for Retired<T> {
    #[inline]
    fn drop(&mut self) {
        self.parts.leave_to_domain();
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for Retired<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Retired").field(&**self).finish()
    }
}

/// A reclaimer refused an object, or a wait by [`Retired::free`] or [`Retired::free_timeout`] ended before the readers released
/// it. [`into_inner`](RetireError::into_inner) hands the object back.
///
/// An error that is dropped leaves the object to its domain, like a [`Retired`] that is dropped.
///
/// ```
/// use stillpoint::rcu::limits::RetireErrorKind;
/// use stillpoint::rcu::Domain;
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
    /// use stillpoint::rcu::wait::SynchronizeError;
    /// use stillpoint::rcu::{Domain, RetireError};
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
    /// use stillpoint::rcu::wait::SynchronizeError;
    /// use stillpoint::rcu::Domain;
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
        let domain = self.retired.parts.domain;
        write!(f, "an object of domain `{domain}` was not retired: {}", self.cause)
    }
}

impl<T: Send + Sync + 'static> fmt::Display for RetireError<T, SynchronizeError> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the object was not freed (free it later, or retire it): {}", self.cause)
    }
}

stillpoint_sys::debug!([T: Send + Sync + 'static, C: fmt::Debug] |this| RetireError<T, C> {
    cause: this.cause, ..
});

impl<T: Send + Sync + 'static> Error for RetireError<T> {}

impl<T: Send + Sync + 'static> Error for RetireError<T, SynchronizeError> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}
