use std::fmt;

use super::domain::Domain;
use super::error::CompareExchangeError;
use super::link::Link;
use super::reader::{Protected, Reader};
use super::region::Region;
use super::retired::Retired;
use super::weak_domain::WeakDomain;

/// An atomic owner of one heap object, or of none: writers replace it, readers load it without waiting.
///
/// Belongs to a [`Domain`](super::Domain), and is read only through readers of this domain. Contents are
/// `Send + Sync + 'static`: a replaced object is freed later, by whichever thread reclaims. Takes two words.
/// Objects of size zero share one address: to protect one of them holds up all of them in the domain.
///
/// A cell that is dropped drops its object at once, before the fields that follow it in its owner, as a `Box` does. But
/// objects may own cells whose objects own cells: those nested deeper than 32 cells are dropped one after the other, so
/// that a long list needs little stack. Then the fields that follow a cell come before what the cell held, and
/// everything is dropped before the drop of the outermost cell returns.
///
/// ```
/// use stillpoint::rcu::Domain;
///
/// let domain = Domain::new();
/// let cell = domain.cell(vec![1, 2, 3]);
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         let reader = domain.reader();
///         let list = cell.protect(&reader).expect("never empty here");
///         assert!(list.len() >= 3);
///     });
///     scope.spawn(|| {
///         let mut reclaimer = domain.reclaimer();
///         let old = cell.replace(vec![1, 2, 3, 4]).expect("never empty here");
///         reclaimer.retire(old).expect("an empty queue has room");
///         reclaimer.poll();
///     });
/// });
/// ```
///
/// Contents that cannot be shared between threads are refused:
///
/// ```compile_fail,E0277
/// # let domain = stillpoint::rcu::Domain::new();
/// let cell = domain.cell(std::cell::Cell::new(1)); // `Cell` is not `Sync`
/// ```
/// ```
/// # let domain = stillpoint::rcu::Domain::new();
/// let cell = domain.cell(std::sync::atomic::AtomicU32::new(1));
/// ```
pub struct RcuCell<T: Send + Sync + 'static> {
    link: Link<T>,
    domain: WeakDomain,
}

impl<T: Send + Sync + 'static> RcuCell<T> {
    /// A cell of `domain` that holds `value`. The same as [`Domain::cell`](super::Domain::cell).
    ///
    /// ```
    /// # use stillpoint::rcu::{Domain, RcuCell};
    /// # let domain = Domain::new();
    /// let cell = RcuCell::new_in(&domain, 1);
    /// assert_eq!(cell.protect(&domain.reader()).as_deref(), Some(&1));
    /// ```
    pub fn new_in(domain: &Domain, value: T) -> Self {
        Self::with(domain, Some(Box::new(value)))
    }

    /// A cell of `domain` that holds nothing.
    ///
    /// ```
    /// # use stillpoint::rcu::{Domain, RcuCell};
    /// # let domain = Domain::new();
    /// let cell = RcuCell::<u32>::empty_in(&domain);
    /// assert!(cell.protect(&domain.reader()).is_none());
    /// ```
    pub fn empty_in(domain: &Domain) -> Self {
        Self::with(domain, None)
    }

    fn with(domain: &Domain, object: Option<Box<T>>) -> Self {
        Self { link: Link::new(object), domain: WeakDomain::new(domain.core()) }
    }

    /// Loads the object and pins it: it is not freed as long as the returned value exists, and nothing else is
    /// held up by it. `None` when the cell is empty.
    ///
    /// Lock-free: repeats only if a writer has replaced the object meanwhile. A load, a store and a second
    /// load that compares; no fence in the asymmetric mode. Never fails: a reader has as many hazard slots as
    /// it needs.
    ///
    /// # Panics
    /// If `reader` belongs to another domain.
    ///
    /// It lives no longer than its reader and its cell:
    ///
    /// ```compile_fail,E0505
    /// # let domain = stillpoint::rcu::Domain::new();
    /// # let cell = domain.cell(1);
    /// let reader = domain.reader();
    /// let object = cell.protect(&reader).unwrap();
    /// drop(reader);
    /// assert_eq!(*object, 1); // used after its reader
    /// ```
    /// ```compile_fail,E0505
    /// # let domain = stillpoint::rcu::Domain::new();
    /// # let cell = domain.cell(1);
    /// let reader = domain.reader();
    /// let object = cell.protect(&reader).unwrap();
    /// drop(cell);
    /// assert_eq!(*object, 1); // used after its cell
    /// ```
    /// ```
    /// # let domain = stillpoint::rcu::Domain::new();
    /// # let cell = domain.cell(1);
    /// let reader = domain.reader();
    /// let object = cell.protect(&reader).unwrap();
    /// assert_eq!(*object, 1);
    /// drop(object);
    /// drop(reader);
    /// drop(cell);
    /// ```
    #[inline(always)]
    pub fn protect<'a>(&'a self, reader: &'a Reader) -> Option<Protected<'a, T>> {
        self.link.protect(&self.domain, reader)
    }

    /// Loads the object within a region; `None` when the cell is empty. One acquire load.
    ///
    /// # Panics
    /// If `region` belongs to another domain.
    ///
    /// ```
    /// # let domain = stillpoint::rcu::Domain::new();
    /// let cell = domain.cell(5);
    /// let reader = domain.reader();
    /// assert_eq!(cell.load(&reader.pin()), Some(&5));
    /// ```
    #[inline(always)]
    pub fn load<'g, R: Region>(&'g self, region: &'g R) -> Option<&'g T> {
        self.link.load(&self.domain, region)
    }

    /// Links `new` and returns what was linked before.
    ///
    /// ```
    /// # let domain = stillpoint::rcu::Domain::new();
    /// let cell = domain.cell(1);
    /// let old = cell.swap(Some(Box::new(2)));
    /// assert_eq!(old.as_deref(), Some(&1));
    /// # drop(old);
    /// ```
    #[must_use = "give what was replaced to a reclaimer; dropping it leaves it to whoever reclaims in the domain next"]
    pub fn swap(&self, new: Option<Box<T>>) -> Option<Retired<T>> {
        self.link.swap(&self.domain, new)
    }

    /// Links a new object of this value and returns what was linked before.
    ///
    /// ```
    /// # let domain = stillpoint::rcu::Domain::new();
    /// let cell = domain.cell(1);
    /// let mut reclaimer = domain.reclaimer();
    /// if let Some(old) = cell.replace(2) {
    ///     reclaimer.retire(old).expect("there is room");
    /// }
    /// drop(cell.replace(3)); // left to the domain, and said so
    /// ```
    ///
    /// What was replaced is not thrown away unsaid:
    ///
    /// ```compile_fail
    /// # #![deny(unused_must_use)]
    /// # let domain = stillpoint::rcu::Domain::new();
    /// # let cell = domain.cell(1);
    /// cell.replace(2);
    /// ```
    #[must_use = "give what was replaced to a reclaimer; dropping it leaves it to whoever reclaims in the domain next"]
    pub fn replace(&self, value: T) -> Option<Retired<T>> {
        self.swap(Some(Box::new(value)))
    }

    /// Empties the cell.
    ///
    /// ```
    /// # let domain = stillpoint::rcu::Domain::new();
    /// let cell = domain.cell(1);
    /// assert!(cell.take().is_some());
    /// assert!(cell.take().is_none());
    /// ```
    #[must_use = "give what was replaced to a reclaimer; dropping it leaves it to whoever reclaims in the domain next"]
    pub fn take(&self) -> Option<Retired<T>> {
        self.swap(None)
    }

    /// Links `new` if the cell holds the very object `current` (or nothing, for `None`), and returns what was
    /// linked before. Objects are compared by address.
    ///
    /// The reference keeps its object alive, so its address cannot have been used again meanwhile: there is no
    /// ABA problem.
    ///
    /// # Errors
    /// When the cell holds something else; `new` is handed back, and the address of what was found. A reference to it
    /// comes from [`compare_exchange_in`](RcuCell::compare_exchange_in).
    ///
    /// ```
    /// # use stillpoint::rcu::Domain;
    /// # let domain = Domain::new();
    /// let counter = domain.cell(0);
    /// let reader = domain.reader();
    /// loop {
    ///     let guard = reader.pin();
    ///     let current = counter.load(&guard);
    ///     let next = current.map(|count| Box::new(count + 1));
    ///     match counter.compare_exchange(current, next) {
    ///         Ok(_old) => break, // handed to the domain
    ///         Err(_) => continue,
    ///     }
    /// }
    /// assert_eq!(counter.load(&reader.pin()), Some(&1));
    /// ```
    pub fn compare_exchange(
        &self,
        current: Option<&T>,
        new: Option<Box<T>>,
    ) -> Result<Option<Retired<T>>, CompareExchangeError<T>> {
        self.link.compare_exchange(&self.domain, current, new)
    }

    /// As [`compare_exchange`](RcuCell::compare_exchange), within a region: when the cell holds something else, the error
    /// has a reference to that, so that the caller need not load it again.
    ///
    /// # Errors
    /// When the cell holds something else; `new` is handed back, and what was found is lent as by
    /// [`load`](RcuCell::load).
    ///
    /// # Panics
    /// If `region` belongs to another domain.
    ///
    /// ```
    /// # use stillpoint::rcu::Domain;
    /// # let domain = Domain::new();
    /// let counter = domain.cell(0);
    /// let reader = domain.reader();
    /// let guard = reader.pin();
    /// let (mut current, mut next) = (counter.load(&guard), Box::new(0));
    /// loop {
    ///     *next = current.map_or(1, |count| count + 1);
    ///     match counter.compare_exchange_in(&guard, current, Some(next)) {
    ///         Ok(_old) => break, // handed to the domain
    ///         Err(error) => {
    ///             current = error.found;
    ///             next = error.new.expect("it is handed back");
    ///         }
    ///     }
    /// }
    /// assert_eq!(counter.load(&guard), Some(&1));
    /// ```
    pub fn compare_exchange_in<'g, R: Region>(
        &'g self,
        region: &'g R,
        current: Option<&T>,
        new: Option<Box<T>>,
    ) -> Result<Option<Retired<T>>, CompareExchangeError<T, Option<&'g T>>> {
        self.link.compare_exchange_in(&self.domain, region, current, new)
    }

    pub(super) fn link(&self) -> &Link<T> {
        &self.link
    }

    pub(super) fn domain(&self) -> &WeakDomain {
        &self.domain
    }

    /// The object, which the caller has to itself.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.link.get_mut()
    }

    /// Takes the object out of a cell that nobody shares any more: no grace period is needed.
    ///
    /// ```
    /// # let domain = stillpoint::rcu::Domain::new();
    /// assert_eq!(domain.cell(1).into_inner(), Some(Box::new(1)));
    /// ```
    pub fn into_inner(mut self) -> Option<Box<T>> {
        self.link.take_exclusive()
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for RcuCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RcuCell").field("domain", &format_args!("{}", self.domain)).finish_non_exhaustive()
    }
}
