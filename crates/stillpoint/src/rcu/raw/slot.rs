use std::ptr::NonNull;
use std::sync::atomic::AtomicPtr;

use crate::rcu::domain::Domain;
use crate::rcu::engine::core::read;
use crate::rcu::engine::core::record;
use crate::rcu::owned::OwnedProtected;
use crate::rcu::reader::Reader;

/// A hazard slot of a reader: while it holds an address, the object there is not freed.
///
/// A plain value of one word. If it is forgotten, the object is held until the slot's reader is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the object is protected until the slot is released, or the reader is dropped"]
pub struct Slot {
    address: NonNull<()>,
}

impl Slot {
    pub(super) fn new(slot: record::Slot<'_>) -> Self {
        Self { address: slot.into_raw() }
    }

    /// The slot's address. Code in another language stores null there, with release, to let go of what a *first* slot holds: the
    /// slot at [`offsets::HAZARD`](super::offsets::HAZARD). Other slots are given back by [`release`](Slot::release).
    #[inline(always)]
    pub fn into_raw(self) -> NonNull<()> {
        self.address
    }

    /// The slot with this address.
    ///
    /// ```
    /// # use std::sync::atomic::AtomicPtr;
    /// # use stillpoint::rcu::{raw, Domain};
    /// # let domain = Domain::new();
    /// # let reader = domain.reader();
    /// # let mut object = 7;
    /// # let link = AtomicPtr::new(&raw mut object);
    /// let (_, slot) = raw::protect(&reader, &link).unwrap();
    /// let address = slot.into_raw();
    /// // SAFETY: it is the address of this slot, which is released once.
    /// unsafe { raw::Slot::from_raw(address).release() };
    /// ```
    ///
    /// # Safety
    /// The address came from [`into_raw`](Slot::into_raw) of a slot whose reader is still alive.
    #[inline(always)]
    pub unsafe fn from_raw(address: NonNull<()>) -> Self {
        Self { address }
    }

    /// Lets go of what the slot holds, which may be freed from now on. Constant time: one store for the first slot of a
    /// reader, and a few loads and stores for others.
    ///
    /// # Safety
    /// The reader is still alive, and the calling thread is the reader's. The slot was not released since [`protect`] or
    /// [`Parts::slot`](super::Parts::slot) returned it.
    #[inline(always)]
    pub unsafe fn release(self) {
        // SAFETY: the caller's promise.
        unsafe { record::Slot::from_raw(self.address).release() };
    }
}

/// Loads `source` and holds what it points to, as [`RcuCell::protect`](crate::rcu::RcuCell::protect) does: until the slot is
/// released or the reader is dropped, no reclaimer of the reader's domain frees it. `None` if `source` holds null.
///
/// The pointer may be followed if what `source` points to is alive as long as it is linked there, and is retired afterwards to
/// the reader's domain, by this address. Lock-free: it begins again if `source` has changed meanwhile.
///
/// ```
/// # use std::sync::atomic::AtomicPtr;
/// # use stillpoint::rcu::{raw, Domain};
/// let domain = Domain::new();
/// let reader = domain.reader();
/// let mut object = 7;
/// let link = AtomicPtr::new(&raw mut object);
/// let (found, slot) = raw::protect(&reader, &link).unwrap();
/// assert_eq!(found.as_ptr(), &raw mut object);
/// // SAFETY: this thread has the reader, and the slot is released once.
/// unsafe { slot.release() };
/// ```
#[inline(always)]
pub fn protect<T>(reader: &Reader, source: &AtomicPtr<T>) -> Option<(NonNull<T>, Slot)> {
    // SAFETY: the reader is borrowed on its thread, and the slot is a free one.
    let (object, slot) = unsafe { read::protect(reader.fence(), source, || reader.record().free_hazard()) }?;
    Some((object, Slot::new(slot)))
}

/// As [`protect`], without a reader: the value that holds the object is bound to no thread, and lets go when any thread drops it.
/// It does not keep `source` alive. It costs as much as [`RcuCell::protect_owned`](crate::rcu::RcuCell::protect_owned).
///
/// ```
/// # use std::sync::atomic::AtomicPtr;
/// # use stillpoint::rcu::{raw, Domain};
/// let domain = Domain::new();
/// let mut object = 7;
/// let link = AtomicPtr::new(&raw mut object);
/// let (found, held) = raw::protect_owned(&domain, &link).unwrap();
/// assert_eq!(found.as_ptr(), &raw mut object);
/// assert_eq!(domain.stats().owned, 1);
/// std::thread::spawn(move || drop(held)).join().unwrap(); // lets go
/// ```
pub fn protect_owned<T>(
    domain: &Domain,
    source: &AtomicPtr<T>,
) -> Option<(NonNull<T>, OwnedProtected<'static, ()>)> {
    let (object, claim) = domain.core().protocol.protect_owned(source)?;
    Some((object, OwnedProtected::of_address(domain.core(), claim)))
}
