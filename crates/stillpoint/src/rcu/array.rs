use super::default_domain;
use super::domain::Domain;
use super::link::error::{CompareExchangeError, FoundInRegion};
use super::link::owning::OwningLink;
use super::reader::{Protected, Reader};
use super::region::Region;
use super::retired::Retired;
use super::weak_domain::WeakDomain;

/// A fixed number of [`RcuCell`](super::RcuCell)s that share their domain: one word each instead of two.
///
/// For tables with dense keys, where the size of the array decides how much of it fits into the caches.
///
/// ```
/// use stillpoint::rcu::{Domain, RcuArray};
///
/// let domain = Domain::new();
/// let ports = RcuArray::new_in(&domain, 4, |port| Some(Box::new(format!("port {port}"))));
/// let reader = domain.reader();
/// assert_eq!(*ports.protect(2, &reader).unwrap(), "port 2");
///
/// let mut reclaimer = domain.reclaimer();
/// let old = ports.swap(2, None).unwrap();
/// reclaimer.retire(old)?;
/// assert_eq!(ports.load(2, &reader.pin()), None);
/// # Ok::<(), stillpoint::rcu::RetireError<String>>(())
/// ```
///
/// Of several writers that fill an empty slot, one succeeds. Exclusive access to the array needs no reader:
///
/// ```
/// use stillpoint::rcu::RcuArray;
///
/// let mut routes = RcuArray::new(256, |_prefix| None);
/// assert!(!routes.is_empty()); // it has slots, even if nothing is in them
/// assert!(routes.compare_exchange(10, None, Some(Box::new("eth0"))).is_ok());
/// let error = routes.compare_exchange(10, None, Some(Box::new("eth1"))).unwrap_err();
/// assert_eq!(error.new.as_deref(), Some(&"eth1")); // handed back
///
/// *routes.get_mut(10).expect("filled above") = "eth2";
/// assert_eq!(routes.get(10).as_deref(), Some(&"eth2"));
/// ```
pub struct RcuArray<T: Send + Sync + 'static> {
    pub(super) links: Box<[OwningLink<T>]>,
    pub(super) domain: WeakDomain,
}

/// In the [default domain](super::default_domain).
impl<T: Send + Sync + 'static> RcuArray<T> {
    /// An array of the [default domain](super::default_domain), as by [`new_in`](RcuArray::new_in).
    ///
    /// # Panics
    /// With the panic of `object`; the objects that were made before are dropped.
    ///
    /// ```
    /// use stillpoint::rcu::RcuArray;
    ///
    /// let squares = RcuArray::new(10, |index| Some(Box::new(index * index)));
    /// assert_eq!(squares.get(3).as_deref(), Some(&9));
    /// squares.set(3, Some(Box::new(0)));
    /// assert_eq!(squares.get(3).as_deref(), Some(&0));
    /// ```
    pub fn new(len: usize, object: impl FnMut(usize) -> Option<Box<T>>) -> Self {
        Self::new_in(default_domain::default_domain(), len, object)
    }

    /// Loads and protects the object at `index`, as [`RcuCell::get`](super::RcuCell::get) does.
    ///
    /// # Panics
    /// If `index` is out of bounds, or the array is not of the default domain; the message names both.
    #[inline]
    #[track_caller]
    pub fn get(&self, index: usize) -> Option<Protected<'_, T>> {
        default_domain::verify(&self.domain);
        self.protect(index, default_domain::reader())
    }

    /// Links `new` at `index`, and retires what was linked before, as [`RcuCell::set`](super::RcuCell::set) does.
    ///
    /// # Panics
    /// If `index` is out of bounds; otherwise as [`RcuCell::set`](super::RcuCell::set).
    #[track_caller]
    pub fn set(&self, index: usize, new: Option<Box<T>>) {
        let own = default_domain::verify(&self.domain);
        if let Some(old) = self.swap(index, new) {
            default_domain::retire(own, old);
        }
    }
}

impl<T: Send + Sync + 'static> RcuArray<T> {
    /// An array of `domain` with `len` slots, filled by calling `object` with each index.
    ///
    /// # Panics
    /// With the panic of `object`; the objects that were made before are dropped.
    ///
    /// ```
    /// use stillpoint::rcu::{Domain, RcuArray};
    ///
    /// let squares = RcuArray::new_in(&Domain::new(), 10, |index| Some(Box::new(index * index)));
    /// assert_eq!(squares.len(), 10);
    /// ```
    pub fn new_in(domain: &Domain, len: usize, mut object: impl FnMut(usize) -> Option<Box<T>>) -> Self {
        let links = (0..len).map(|index| OwningLink::new(object(index))).collect();
        Self { links, domain: WeakDomain::new(domain.core()) }
    }

    /// Number of slots.
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// Whether the array has no slots.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Loads and protects the object at `index`, as [`RcuCell::protect`](super::RcuCell::protect) does.
    ///
    /// # Panics
    /// If `index` is out of bounds, or `reader` belongs to another domain.
    #[inline(always)]
    #[track_caller]
    pub fn protect<'a>(&'a self, index: usize, reader: &'a Reader) -> Option<Protected<'a, T>> {
        self.links[index].protect(&self.domain, reader)
    }

    /// Loads the object at `index` within a region, as [`RcuCell::load`](super::RcuCell::load) does.
    ///
    /// # Panics
    /// If `index` is out of bounds, or `region` belongs to another domain.
    #[inline(always)]
    #[track_caller]
    pub fn load<'g, R: Region>(&'g self, index: usize, region: &'g R) -> Option<&'g T> {
        self.links[index].load(&self.domain, region)
    }

    /// Links `new` at `index` and returns what was linked before.
    ///
    /// # Panics
    /// If `index` is out of bounds.
    #[must_use = "give what was replaced to a reclaimer; dropping it leaves it to the next reclaimer of the domain"]
    #[track_caller]
    pub fn swap(&self, index: usize, new: Option<Box<T>>) -> Option<Retired<T>> {
        self.links[index].swap(&self.domain, new)
    }

    /// Links `new` at `index` if exactly the object `current` (or nothing, for `None`) is linked there, as
    /// [`RcuCell::compare_exchange`](super::RcuCell::compare_exchange) does.
    ///
    /// # Errors
    /// If something else is linked. The error hands back `new`, and has the address of what was found.
    ///
    /// # Panics
    /// If `index` is out of bounds.
    #[track_caller]
    pub fn compare_exchange(
        &self,
        index: usize,
        current: Option<&T>,
        new: Option<Box<T>>,
    ) -> Result<Option<Retired<T>>, CompareExchangeError<Option<Box<T>>>> {
        self.links[index].compare_exchange(&self.domain, current, new)
    }

    /// As [`compare_exchange`](RcuArray::compare_exchange), within a region: see
    /// [`RcuCell::compare_exchange_in`](super::RcuCell::compare_exchange_in).
    ///
    /// # Errors
    /// If something else is linked. The error hands back `new`, and has a reference to what was found.
    ///
    /// # Panics
    /// If `index` is out of bounds, or `region` belongs to another domain.
    #[track_caller]
    pub fn compare_exchange_in<'g, R: Region>(
        &'g self,
        index: usize,
        region: &'g R,
        current: Option<&T>,
        new: Option<Box<T>>,
    ) -> Result<Option<Retired<T>>, FoundInRegion<'g, T>> {
        self.links[index].compare_exchange_in(&self.domain, region, current, new)
    }

    /// Exclusive access to the object at `index`; `None` if the slot is empty.
    ///
    /// # Panics
    /// If `index` is out of bounds.
    #[track_caller]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.links[index].get_mut()
    }
}

stillpoint_sys::debug!([T: Send + Sync + 'static] |this| RcuArray<T> {
    domain: format_args!("{}", this.domain), len: this.len(), ..
});
