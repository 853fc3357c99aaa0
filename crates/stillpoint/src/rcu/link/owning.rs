//! An atomic owning pointer, without its domain. Cells and arrays are made of it.

use std::ptr::{self, NonNull};

use super::error::{CompareExchangeError, FoundInRegion};
use crate::fence::ReaderFence;
use crate::own_writes::{self, Watch};
use crate::rcu::engine::core::garbage;
use crate::rcu::engine::core::read;
use crate::rcu::engine::core::record::{Record, Slot};
use crate::rcu::engine::core::registry::Claim;
use crate::rcu::engine::Core;
use crate::rcu::orders;
use crate::rcu::reader::{Protected, Reader};
use crate::rcu::region::Region;
use crate::rcu::retired::Retired;
use crate::rcu::weak_domain::WeakDomain;
use stillpoint_sys::sync::atomic::{AtomicPtr, Ordering};

/// Owns one object, made by `Box`, or none. The container names the domain and checks readers against it.
#[derive(Debug)]
pub(in crate::rcu) struct OwningLink<T: Send + Sync + 'static>(AtomicPtr<T>);

impl<T: Send + Sync + 'static> OwningLink<T> {
    pub(in crate::rcu) fn new(object: Option<Box<T>>) -> Self {
        Self(AtomicPtr::new(into_raw(object)))
    }

    /// # Panics
    /// If `reader` is not of the domain `domain`.
    #[inline(always)]
    #[track_caller]
    pub(in crate::rcu) fn protect<'a>(
        &'a self,
        domain: &WeakDomain,
        reader: &'a Reader,
    ) -> Option<Protected<'a, T>> {
        domain.verify(reader.core());
        reader.vouch();
        // SAFETY: the reader is of the link's domain, and no other load uses a free slot.
        unsafe { self.protect_in(reader.fence(), || reader.free_hazard()) }
    }

    /// # Safety
    /// The slot is one of the caller's reader, which is of the link's domain, and is used for nothing else during `'a`.
    #[inline(always)]
    pub(in crate::rcu) unsafe fn protect_in<'a>(
        &'a self,
        fence: ReaderFence,
        slot: impl FnOnce() -> Slot<'a>,
    ) -> Option<Protected<'a, T>> {
        // SAFETY: the caller promises that the slot is used for nothing else.
        let (object, slot) = unsafe { read::protect(fence, &self.0, slot) }?;
        // SAFETY: `protect` validated the pair, in a slot of the link's own domain; the borrows of link and
        // reader outlive `'a`.
        Some(unsafe { Protected::new(object, slot) })
    }

    /// Protects the object by a new record in `core`, which is the link's domain.
    pub(in crate::rcu) fn protect_owned(&self, core: &Core) -> Option<(NonNull<T>, Claim<Record>)> {
        core.protocol.protect_owned(&self.0)
    }

    /// Protects the object by this slot, which is the caller's.
    #[inline]
    pub(in crate::rcu) fn protect_by(
        &self,
        fence: ReaderFence,
        hazard: &crate::rcu::engine::core::record::Hazard,
    ) -> Option<NonNull<T>> {
        // Relaxed: this address is not followed.
        let candidate = NonNull::new(self.0.load(Ordering::Relaxed))?;
        read::protect_from(fence, &self.0, candidate, hazard)
    }

    /// # Panics
    /// If `region` is not of the domain `domain`.
    #[inline(always)]
    #[track_caller]
    pub(in crate::rcu) fn load<'g, R: Region>(&'g self, domain: &WeakDomain, region: &'g R) -> Option<&'g T> {
        domain.verify(region.core());
        // SAFETY: the region is of the link's domain.
        unsafe { self.load_in(region) }
    }

    /// # Safety
    /// The region is one of the link's domain.
    #[inline(always)]
    pub(in crate::rcu) unsafe fn load_in<'g, R: Region>(&'g self, _region: &'g R) -> Option<&'g T> {
        // Acquire: pairs with the release in `swap` and `compare_exchange`.
        let object = self.0.load(Ordering::Acquire);
        // SAFETY: null, or an object that was linked while the region's token was published. It is not freed
        // before the region ends, and `'g` ends before that.
        unsafe { object.as_ref() }
    }

    pub(in crate::rcu) fn swap(&self, domain: &WeakDomain, new: Option<Box<T>>) -> Option<Retired<T>> {
        // Release: publishes the new object to acquire loads. Acquire: pairs with the release by which the old object was linked,
        // for its new owner.
        self.retired(domain, self.0.swap(into_raw(new), Ordering::AcqRel))
    }

    pub(in crate::rcu) fn compare_exchange(
        &self,
        domain: &WeakDomain,
        current: Option<&T>,
        new: Option<Box<T>>,
    ) -> Result<Option<Retired<T>>, CompareExchangeError<Option<Box<T>>>> {
        let expected = current.map_or(ptr::null_mut(), |object| ptr::from_ref(object).cast_mut());
        let new = into_raw(new);
        // AcqRel: as in `swap`. Relaxed on failure: the address that was found is not followed.
        match self.0.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(old) => Ok(self.retired(domain, old)),
            // SAFETY: `new` came from `into_raw` above and was not published.
            Err(found) => Err(CompareExchangeError { new: unsafe { from_raw(new) }, found: found.addr() }),
        }
    }

    /// # Panics
    /// If `region` is not of the domain `domain`.
    #[track_caller]
    pub(in crate::rcu) fn compare_exchange_in<'g, R: Region>(
        &'g self,
        domain: &WeakDomain,
        region: &'g R,
        current: Option<&T>,
        new: Option<Box<T>>,
    ) -> Result<Option<Retired<T>>, FoundInRegion<'g, T>> {
        domain.verify(region.core());
        let expected = current.map_or(ptr::null_mut(), |object| ptr::from_ref(object).cast_mut());
        let new = into_raw(new);
        // AcqRel: as in `swap`.
        match self.0.compare_exchange(expected, new, Ordering::AcqRel, orders::found()) {
            Ok(old) => Ok(self.retired(domain, old)),
            Err(found) => Err(CompareExchangeError {
                // SAFETY: `new` came from `into_raw` above and was not published.
                new: unsafe { from_raw(new) },
                // SAFETY: null, or an object that was linked within the region, as in `load_in`.
                found: unsafe { found.as_ref() },
            }),
        }
    }

    /// The unlinked object `old`, which the link owned.
    #[inline(always)]
    fn retired(&self, domain: &WeakDomain, old: *mut T) -> Option<Retired<T>> {
        let old = NonNull::new(old)?;
        if own_writes::is_watched() {
            own_writes::note(self.place(), None, Some(old.addr().get()));
        }
        // SAFETY: the link owned `old`, made by `into_raw`, and the caller has just unlinked it.
        Some(unsafe { Retired::new(old, domain.name()) })
    }

    /// For a function that is to decide about an object, which is protected meanwhile.
    pub(in crate::rcu) fn watch(&self, object: &T) -> Watch {
        Watch::of(self.place(), ptr::from_ref(object).addr())
    }

    /// How a [`Watch`] names the link.
    fn place(&self) -> *const () {
        ptr::from_ref(self).cast()
    }

    pub(in crate::rcu) fn get_mut(&mut self) -> Option<&mut T> {
        // Acquire: pairs with the release in `swap`.
        // SAFETY: null, or the object that the link owns; no reader borrows the link, so none holds it.
        unsafe { self.0.load(Ordering::Acquire).as_mut() }
    }

    /// Takes the object out of a link that no other thread shares any more: no grace period is needed.
    pub(in crate::rcu) fn take_exclusive(&mut self) -> Option<Box<T>> {
        // Acquire: pairs with the release in `swap`.
        let object = self.0.swap(ptr::null_mut(), Ordering::Acquire);
        // SAFETY: the link owned it, and no reader borrows the link, so none holds it.
        unsafe { from_raw(object) }
    }
}

fn into_raw<T>(object: Option<Box<T>>) -> *mut T {
    object.map_or(ptr::null_mut(), Box::into_raw)
}

/// # Safety
/// `object` is null or came from [`into_raw`], and only the caller owns it.
unsafe fn from_raw<T>(object: *mut T) -> Option<Box<T>> {
    // SAFETY: the caller owns the object, which came from `Box`.
    (!object.is_null()).then(|| unsafe { Box::from_raw(object) })
}

/// Frees the object at once: the caller has the link exclusively, and references into the object borrow the link.
impl<T: Send + Sync + 'static> Drop for OwningLink<T> {
    fn drop(&mut self) {
        // Acquire: pairs with the release in `swap`.
        let object = self.0.load(Ordering::Acquire);
        // SAFETY: the link owns it, and no reader borrows the link, so none holds it.
        if let Some(object) = unsafe { from_raw(object) } {
            garbage::drop_content(object);
        }
    }
}
