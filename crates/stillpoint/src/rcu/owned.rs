use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use super::cell::RcuCell;
use super::default_domain::lend;
use super::engine::core::record::{clear_hazard, Record, Slot};
use super::engine::core::registry::Claim;
use super::engine::Core;
use super::reader::Reader;

/// A protected object that is bound to no thread: it may be sent, shared, and held across an `.await`. Made by
/// [`RcuCell::protect_owned`], [`RcuCell::protect_arc`], and `get_owned` and `get_arc` of tables.
/// [`raw::protect_owned`](super::raw::protect_owned) also makes one, which gives no access to the object.
///
/// It keeps its object alive and nothing else for as long as it exists, and any thread may drop it. In the [default
/// domain](super::default_domain), one that is the only one of its thread costs about as much as a protected load. Each further one, and
/// any in another domain, has a record of its own, which is claimed and released, and shares the domain: four read-modify-writes.
///
/// The domain does not know which thread holds it, so a thread that waits for an object that it holds itself is not reported as a
/// deadlock. [`Stats::owned`](super::Stats::owned) counts these values. A value that is forgotten (`mem::forget`) keeps its object alive
/// for ever.
///
/// ```
/// use std::sync::Arc;
/// use stillpoint::rcu::{Domain, OwnedProtected};
///
/// async fn serve(config: OwnedProtected<'static, String>) {
///     // ... other tasks run meanwhile ...
///     assert_eq!(*config, "first");
/// }
///
/// let domain = Domain::new();
/// let cell = Arc::new(domain.cell(String::from("first")));
/// let task = serve(cell.protect_arc().expect("never empty here"));
/// drop(cell.replace(String::from("second")));
/// # fn run(task: impl Future<Output = ()> + Send + 'static) {
/// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
/// #     assert!(std::pin::pin!(task).poll(&mut context).is_ready());
/// # }
/// # use std::future::Future;
/// run(task);
/// ```
#[must_use = "the object is protected until this value is dropped"]
pub struct OwnedProtected<'a, T: ?Sized> {
    object: NonNull<T>,
    /// Declared before the cell, so that it is dropped first.
    _hold: Hold,
    /// The cell or the table, if this value shares ownership of it instead of borrowing it.
    _cell: Option<Arc<dyn Send + Sync>>,
    _object: PhantomData<&'a T>,
}

/// What protects the object: a slot of a record that is bound to no thread.
pub(crate) enum Hold {
    /// Of the default domain, which is never dropped. Its lender is a thread, which sets it again when it is clear.
    Lent(Slot<'static>),
    /// The first slot of a record that was claimed for this object. The drop gives it back. It shares the core: no type makes what it was
    /// borrowed from outlive the drop.
    Claimed { core: Arc<Core>, claim: Claim<Record> },
}

impl Hold {
    /// Claims a record, whose slot the caller sets.
    pub(crate) fn claim(core: &Arc<Core>) -> Self {
        Self::Claimed { claim: core.protocol.claim_owned(), core: Arc::clone(core) }
    }

    /// The slot.
    #[inline]
    pub(crate) fn slot(&self) -> Slot<'_> {
        match self {
            Self::Lent(slot) => *slot,
            // SAFETY: this value shares the core, and so its registry.
            Self::Claimed { claim, .. } => unsafe { claim.slot() }.first_hazard(),
        }
    }
}

// SAFETY: it gives only shared access to the object; its record is bound to no thread, and any thread may give it back.
unsafe impl<T: ?Sized + Sync> Send for OwnedProtected<'_, T> {}
// SAFETY: it gives only shared access to the object, which is `Sync`.
unsafe impl<T: ?Sized + Sync> Sync for OwnedProtected<'_, T> {}

impl<T: Send + Sync + 'static> RcuCell<T> {
    /// As [`protect`](RcuCell::protect), without a reader: the result is bound to no thread. `None` if the cell is empty.
    ///
    /// Lock-free. If it needs a [record of its own](OwnedProtected), it also issues a full fence. Allocates only if the domain has more
    /// readers, threads that have called this, and values of this kind than ever before, or for a thread that uses the default domain for the
    /// first time.
    ///
    /// # Panics
    /// If the last handle of the domain is gone.
    ///
    /// ```
    /// let domain = stillpoint::rcu::Domain::new();
    /// let cell = domain.cell(1);
    /// let object = cell.protect_owned().expect("never empty here");
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| assert_eq!(*object, 1));
    /// });
    /// let old = cell.take().unwrap();
    /// assert!(old.try_free().is_err()); // it is held
    /// ```
    #[inline]
    #[track_caller]
    pub fn protect_owned(&self) -> Option<OwnedProtected<'_, T>> {
        if let Some((reader, slot)) = lend(&self.domain) {
            return self.lent(reader, slot);
        }
        let Some(core) = self.domain.core() else {
            panic!(
                "an object of a domain cannot be protected after the last handle of the domain was dropped"
            )
        };
        let (object, claim) = self.link.protect_owned(&core)?;
        // SAFETY: the claim's slot holds the object, which is freed after the slot is clear, or with the cell.
        Some(unsafe { OwnedProtected::new(object, Hold::Claimed { core, claim }, None) })
    }

    /// By a slot of the default domain. The reader is the calling thread's.
    fn lent(&self, reader: &'static Reader, slot: Slot<'static>) -> Option<OwnedProtected<'_, T>> {
        reader.vouch();
        let object = self.link.protect_by(reader.fence(), &slot)?;
        // SAFETY: the slot holds the object, which is freed after the slot is clear, or with the cell.
        Some(unsafe { OwnedProtected::new(object, Hold::Lent(slot), None) })
    }

    /// As [`protect_owned`](RcuCell::protect_owned), but the result shares ownership of the cell, and may outlive the borrow.
    ///
    /// # Panics
    /// As [`protect_owned`](RcuCell::protect_owned).
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// let domain = stillpoint::rcu::Domain::new();
    /// let cell = Arc::new(domain.cell(1));
    /// let object = cell.protect_arc().expect("never empty here");
    /// drop(cell);
    /// assert_eq!(std::thread::spawn(move || *object).join().unwrap(), 1);
    /// ```
    #[track_caller]
    pub fn protect_arc(self: &Arc<Self>) -> Option<OwnedProtected<'static, T>> {
        let OwnedProtected { object, _hold, .. } = self.protect_owned()?;
        let cell: Arc<dyn Send + Sync> = Arc::clone(self) as _;
        Some(OwnedProtected { object, _hold, _cell: Some(cell), _object: PhantomData })
    }
}

impl<'a, T: ?Sized> OwnedProtected<'a, T> {
    /// # Safety
    /// `hold` keeps the object alive, whose memory lasts for `'a`, or as long as `keeper`.
    pub(crate) unsafe fn new(object: NonNull<T>, hold: Hold, keeper: Option<Arc<dyn Send + Sync>>) -> Self {
        Self { object, _hold: hold, _cell: keeper, _object: PhantomData }
    }

    /// The same protection with a reference to a part of the object, as by [`Protected::map`](super::Protected::map).
    ///
    /// ```
    /// use stillpoint::rcu::OwnedProtected;
    ///
    /// let domain = stillpoint::rcu::Domain::new();
    /// let cell = domain.cell(("eth0", 1500));
    /// let mtu = OwnedProtected::map(cell.protect_owned().unwrap(), |(_, mtu)| mtu);
    /// assert_eq!(*mtu, 1500);
    /// ```
    pub fn map<U: ?Sized>(this: Self, part: impl FnOnce(&T) -> &U) -> OwnedProtected<'a, U> {
        let object = NonNull::from(part(&this));
        let Self { _hold, _cell, .. } = this;
        OwnedProtected { object, _hold, _cell, _object: PhantomData }
    }
}

impl<T: ?Sized> Deref for OwnedProtected<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the record keeps the object alive until `self` is dropped, and linked objects are only shared.
        unsafe { self.object.as_ref() }
    }
}

impl Drop for Hold {
    #[inline]
    fn drop(&mut self) {
        match self {
            // The lender may set it from now on.
            Self::Lent(slot) => clear_hazard(slot),
            Self::Claimed { core, claim } => core.protocol.release_owned(claim),
        }
    }
}

impl<T: fmt::Debug + ?Sized> fmt::Debug for OwnedProtected<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedProtected").field(&&**self).finish()
    }
}
