use super::default_domain;
use super::domain::Domain;
use super::link::error::{CompareExchangeError, FoundInRegion};
use super::link::owning::OwningLink;
use super::reader::{Protected, Reader};
use super::region::Region;
use super::retired::Retired;
use super::weak_domain::WeakDomain;
use crate::own_writes::OwnRuns;

/// An atomic owner of one heap object, or of none. Writers replace the object; readers load it without waiting.
///
/// Belongs to a [`Domain`](super::Domain), and is read only through readers of this domain. Contents are
/// `Send + Sync + 'static`: a replaced object is freed later, by whichever thread reclaims. A cell takes two words.
/// Objects of size zero share one address: protecting one of them keeps alive all of them in the domain.
///
/// A cell that is dropped drops its object at once, as a `Box` does: before the fields that follow the cell in its owner. A long
/// chain, in which each object owns the cell of the next one, is an exception. Objects nested deeper than 32 cells are dropped
/// one after the other, so that a long list needs little stack. There, the fields that follow a cell are dropped before what the
/// cell held. Everything is dropped before the drop of the outermost cell returns; in a destructor that runs because the last handle of
/// a domain is dropped, or a [`Retired`](super::Retired) of a domain that has ended, before that drop returns.
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
    pub(super) link: OwningLink<T>,
    pub(super) domain: WeakDomain,
}

/// In the [default domain](super::default_domain), whose readers are the threads themselves.
impl<T: Send + Sync + 'static> RcuCell<T> {
    /// A cell of the [default domain](super::default_domain) that holds `value`.
    ///
    /// ```
    /// use stillpoint::rcu::RcuCell;
    ///
    /// let config = RcuCell::new(String::from("first"));
    /// assert_eq!(*config.get().expect("never empty here"), "first");
    /// config.set(String::from("second"));
    /// assert_eq!(*config.get().expect("never empty here"), "second");
    /// ```
    pub fn new(value: T) -> Self {
        Self::new_in(default_domain::default_domain(), value)
    }

    /// A cell of the [default domain](super::default_domain) that holds nothing.
    ///
    /// ```
    /// use stillpoint::rcu::RcuCell;
    ///
    /// let config = RcuCell::<String>::empty();
    /// assert!(config.get().is_none());
    /// ```
    pub fn empty() -> Self {
        Self::empty_in(default_domain::default_domain())
    }

    /// As [`protect`](RcuCell::protect), with the reader of the calling thread. The thread's first use registers the reader.
    ///
    /// # Panics
    /// If the cell is not of the default domain; the message names both.
    ///
    /// ```
    /// use stillpoint::rcu::RcuCell;
    ///
    /// let cell = RcuCell::new(1);
    /// let object = cell.get().expect("never empty here");
    /// cell.set(2);
    /// assert_eq!(*object, 1); // not freed as long as it is held
    /// ```
    #[inline]
    #[track_caller]
    pub fn get(&self) -> Option<Protected<'_, T>> {
        let reader = default_domain::reader();
        if !self.domain.is(reader.core()) {
            default_domain::verify(&self.domain);
        }
        self.link.protect(&self.domain, reader)
    }

    /// Links a new object with this value, and retires what was linked before. The caller has nothing else to do.
    ///
    /// The replaced object joins a list of the calling thread. Each call also frees some objects that no reader can hold any more,
    /// and runs their destructors; while more than 32 of them wait, one call in eight, or in 32 in quick succession. It looks for them in
    /// this list, and in the list of another thread that has not written for a millisecond. When a thread ends, its list stays, and later
    /// writes and polls of other threads serve it. So **a domain in which no thread writes any more frees nothing**, unless a thread
    /// reclaims in it: see
    /// [`BackgroundReclaimer::spawn`](super::BackgroundReclaimer::spawn) and [`barrier`](super::barrier).
    ///
    /// The replaced object cannot be refused: it is taken in even beyond the [limits of the
    /// domain](super::DomainBuilder::max_pending), like a [`Retired`] that is dropped. Where the limits must hold, use
    /// [`replace`](RcuCell::replace) and a [`Reclaimer`](super::Reclaimer).
    ///
    /// # Panics
    /// If the cell is not of the default domain; then nothing is replaced. With the panic of a destructor, after everything
    /// else is done.
    ///
    /// ```
    /// use stillpoint::rcu::{self, RcuCell};
    ///
    /// let cell = RcuCell::new(0);
    /// for value in 1..=100 {
    ///     cell.set(value);
    /// }
    /// rcu::barrier()?; // all hundred are freed
    /// # Ok::<(), rcu::wait::SynchronizeError>(())
    /// ```
    #[track_caller]
    pub fn set(&self, value: T) {
        self.exchange(Some(Box::new(value)));
    }

    /// Empties the cell, and retires what was linked, as [`set`](RcuCell::set) does.
    ///
    /// # Panics
    /// As [`set`](RcuCell::set).
    ///
    /// ```
    /// use stillpoint::rcu::RcuCell;
    ///
    /// let cell = RcuCell::new(1);
    /// cell.clear();
    /// assert!(cell.get().is_none());
    /// ```
    #[track_caller]
    pub fn clear(&self) {
        self.exchange(None);
    }

    #[inline(always)]
    #[track_caller]
    fn exchange(&self, new: Option<Box<T>>) {
        let own = default_domain::verify(&self.domain);
        if let Some(old) = self.swap(new) {
            default_domain::retire(own, old);
        }
    }

    /// Replaces the object with what `change` makes of it, and retires the old one, as [`set`](RcuCell::set) does. Returns false if
    /// the cell is empty. `change` is called again if another thread has replaced the object meanwhile.
    ///
    /// # Panics
    /// As [`set`](RcuCell::set); also with the panic of `change`, and then nothing is replaced. If `change` writes to this cell
    /// itself: once, it is called again; the second time, `update` panics, since it would never end. Then this call has replaced
    /// nothing, and what `change` has written stays.
    ///
    /// ```
    /// use stillpoint::rcu::RcuCell;
    ///
    /// let count = RcuCell::new(0);
    /// std::thread::scope(|scope| {
    ///     for _ in 0..2 {
    ///         scope.spawn(|| (0..100).for_each(|_| assert!(count.update(|count| count + 1))));
    ///     }
    /// });
    /// assert_eq!(count.get().as_deref(), Some(&200));
    /// ```
    #[track_caller]
    pub fn update(&self, mut change: impl FnMut(&T) -> T) -> bool {
        let mut own_runs = OwnRuns::default();
        loop {
            let Some(current) = self.get() else { return false };
            let watch = self.link.watch(&current);
            let new = Box::new(watch.run(|| change(&current)));
            if let Ok(old) = self.compare_exchange(Some(&*current), Some(new)) {
                drop(current);
                if let Some(old) = old {
                    default_domain::retire(default_domain::local(), old);
                }
                return true;
            }
            own_runs.count(&watch, None, "RcuCell::update");
        }
    }
}

impl<T: Send + Sync + 'static> RcuCell<T> {
    /// A cell of `domain` that holds `value`. The same as [`Domain::cell`](super::Domain::cell).
    ///
    /// ```
    /// use stillpoint::rcu::{Domain, RcuCell};
    ///
    /// let domain = Domain::new();
    /// let cell = RcuCell::new_in(&domain, 1);
    /// assert_eq!(cell.protect(&domain.reader()).as_deref(), Some(&1));
    /// ```
    pub fn new_in(domain: &Domain, value: T) -> Self {
        Self::with(domain, Some(Box::new(value)))
    }

    /// A cell of `domain` that holds nothing.
    ///
    /// ```
    /// use stillpoint::rcu::{Domain, RcuCell};
    ///
    /// let domain = Domain::new();
    /// let cell = RcuCell::<u32>::empty_in(&domain);
    /// assert!(cell.protect(&domain.reader()).is_none());
    /// ```
    pub fn empty_in(domain: &Domain) -> Self {
        Self::with(domain, None)
    }

    fn with(domain: &Domain, object: Option<Box<T>>) -> Self {
        Self { link: OwningLink::new(object), domain: WeakDomain::new(domain.core()) }
    }

    /// Loads the object and protects it: it is not freed as long as the returned value exists. That value keeps nothing else alive.
    /// `None` if the cell is empty.
    ///
    /// Lock-free: repeats only if a writer has replaced the object meanwhile. Costs a load, a store, a second load and a compare;
    /// no fence in the asymmetric mode. Never fails: a reader has as many hazard slots as it needs.
    ///
    /// # Panics
    /// If `reader` belongs to another domain.
    ///
    /// The returned value can outlive neither its reader nor its cell:
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
    #[track_caller]
    pub fn protect<'a>(&'a self, reader: &'a Reader) -> Option<Protected<'a, T>> {
        self.link.protect(&self.domain, reader)
    }

    /// Loads the object within a region; `None` if the cell is empty. Costs one acquire load.
    ///
    /// # Panics
    /// If `region` belongs to another domain.
    ///
    /// ```
    /// let domain = stillpoint::rcu::Domain::new();
    /// let cell = domain.cell(5);
    /// let reader = domain.reader();
    /// assert_eq!(cell.load(&reader.pin()), Some(&5));
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn load<'g, R: Region>(&'g self, region: &'g R) -> Option<&'g T> {
        self.link.load(&self.domain, region)
    }

    /// Links `new` and returns what was linked before.
    ///
    /// ```
    /// let domain = stillpoint::rcu::Domain::new();
    /// let cell = domain.cell(1);
    /// let old = cell.swap(Some(Box::new(2)));
    /// assert_eq!(old.as_deref(), Some(&1));
    /// # drop(old);
    /// ```
    #[must_use = "give what was replaced to a reclaimer; dropping it leaves it to the next reclaimer of the domain"]
    pub fn swap(&self, new: Option<Box<T>>) -> Option<Retired<T>> {
        self.link.swap(&self.domain, new)
    }

    /// Links a new object with this value, and returns what was linked before.
    ///
    /// ```
    /// let domain = stillpoint::rcu::Domain::new();
    /// let cell = domain.cell(1);
    /// let mut reclaimer = domain.reclaimer();
    /// if let Some(old) = cell.replace(2) {
    ///     reclaimer.retire(old).expect("there is room");
    /// }
    /// drop(cell.replace(3)); // left to the domain, explicitly
    /// ```
    ///
    /// The compiler warns if what was replaced is silently thrown away:
    ///
    /// ```compile_fail
    /// # #![deny(unused_must_use)]
    /// # let domain = stillpoint::rcu::Domain::new();
    /// # let cell = domain.cell(1);
    /// cell.replace(2);
    /// ```
    #[must_use = "give what was replaced to a reclaimer; dropping it leaves it to the next reclaimer of the domain"]
    pub fn replace(&self, value: T) -> Option<Retired<T>> {
        self.swap(Some(Box::new(value)))
    }

    /// Empties the cell.
    ///
    /// ```
    /// let domain = stillpoint::rcu::Domain::new();
    /// let cell = domain.cell(1);
    /// assert!(cell.take().is_some());
    /// assert!(cell.take().is_none());
    /// ```
    #[must_use = "give what was replaced to a reclaimer; dropping it leaves it to the next reclaimer of the domain"]
    pub fn take(&self) -> Option<Retired<T>> {
        self.swap(None)
    }

    /// Links `new` if the cell holds exactly the object `current` (or nothing, if `current` is `None`), and returns what was
    /// linked before. Objects are compared by address.
    ///
    /// The reference keeps its object alive, so its address cannot have been reused: there is no ABA problem.
    ///
    /// # Errors
    /// If the cell holds something else. The error hands back `new`, and has the address of what was found. For a reference to
    /// what was found, use [`compare_exchange_in`](RcuCell::compare_exchange_in).
    ///
    /// ```
    /// use stillpoint::rcu::Domain;
    ///
    /// let domain = Domain::new();
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
    ) -> Result<Option<Retired<T>>, CompareExchangeError<Option<Box<T>>>> {
        self.link.compare_exchange(&self.domain, current, new)
    }

    /// As [`compare_exchange`](RcuCell::compare_exchange), within a region: if the cell holds something else, the error has a
    /// reference to what it holds, so that the caller need not load it again.
    ///
    /// # Errors
    /// If the cell holds something else. The error hands back `new`, and has a reference to what was found, as
    /// [`load`](RcuCell::load) returns it.
    ///
    /// # Panics
    /// If `region` belongs to another domain.
    ///
    /// ```
    /// use stillpoint::rcu::Domain;
    ///
    /// let domain = Domain::new();
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
    #[track_caller]
    pub fn compare_exchange_in<'g, R: Region>(
        &'g self,
        region: &'g R,
        current: Option<&T>,
        new: Option<Box<T>>,
    ) -> Result<Option<Retired<T>>, FoundInRegion<'g, T>> {
        self.link.compare_exchange_in(&self.domain, region, current, new)
    }

    /// Exclusive access to the object; `None` if the cell is empty.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.link.get_mut()
    }

    /// Takes the object out of a cell that no other thread can reach any more: no grace period is needed.
    ///
    /// ```
    /// let domain = stillpoint::rcu::Domain::new();
    /// let mut mtu = domain.cell(1500);
    /// *mtu.get_mut().expect("never empty here") += 4; // no other thread can reach the cell
    /// assert_eq!(mtu.into_inner(), Some(Box::new(1504)));
    /// ```
    pub fn into_inner(mut self) -> Option<Box<T>> {
        self.link.take_exclusive()
    }
}

impl Domain {
    /// A cell that holds `value`.
    pub fn cell<T: Send + Sync + 'static>(&self, value: T) -> RcuCell<T> {
        RcuCell::new_in(self, value)
    }
}

stillpoint_sys::debug!([T: Send + Sync + 'static] |this| RcuCell<T> {
    domain: format_args!("{}", this.domain), ..
});
