use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::guard::Guard;
use crate::owned::Owned;
use crate::pointable::{Pointable, Pointer};
use crate::shared::Shared;
use crate::word;

/// A link: an atomic pointer with a tag, shared by threads.
///
/// A link owns nothing: dropping it leaks its object. To drop the object, [take it out](Atomic::into_owned) of the
/// link, or [destroy](Guard::defer_destroy) it by a pointer that was loaded from the link.
///
/// ```
/// use std::sync::atomic::Ordering::{AcqRel, Acquire};
/// use stillpoint_epoch::{self as epoch, Atomic, Owned, Shared};
///
/// let link = Atomic::null();
/// let guard = &epoch::pin();
/// link.compare_exchange(Shared::null(), Owned::new(7), AcqRel, Acquire, guard).expect("it was null");
/// // SAFETY: the link is not null any more, and its object is not destroyed before the guard is dropped.
/// assert_eq!(unsafe { link.load(Acquire, guard).deref() }, &7);
/// let old = link.swap(Shared::null(), AcqRel, guard);
/// // SAFETY: the object was unlinked just now.
/// unsafe { guard.defer_destroy(old) };
/// ```
///
/// The caller names the ordering of each operation, as with the atomics of the standard library. An operation panics if
/// it cannot have that ordering (a load with `Release`). The tag is in the bits of the address that the object's
/// alignment leaves free.
pub struct Atomic<T: ?Sized + Pointable> {
    word: AtomicUsize,
    _object: PhantomData<*mut T>,
}

// SAFETY: a thread that gets the link may read the object while other threads read it, and may destroy it. So the
// object must be `Send` and `Sync`.
unsafe impl<T: ?Sized + Pointable + Send + Sync> Send for Atomic<T> {}
// SAFETY: a thread that shares the link may do the same as one that gets it.
unsafe impl<T: ?Sized + Pointable + Send + Sync> Sync for Atomic<T> {}

impl<T> Atomic<T> {
    /// A link to an object that is moved to the heap.
    ///
    /// ```
    /// use stillpoint_epoch::Atomic;
    ///
    /// let link = Atomic::new(7);
    /// # drop(unsafe { link.into_owned() });
    /// ```
    pub fn new(init: T) -> Atomic<T> {
        Self::init(init)
    }
}

impl<T: ?Sized + Pointable> Atomic<T> {
    /// A link to an object that is made on the heap: see [`Owned::init`].
    ///
    /// ```
    /// use std::mem::MaybeUninit;
    /// use stillpoint_epoch::Atomic;
    ///
    /// let link = Atomic::<[MaybeUninit<u64>]>::init(10);
    /// # drop(unsafe { link.into_owned() });
    /// ```
    pub fn init(init: T::Init) -> Atomic<T> {
        Self::from(Owned::init(init))
    }

    fn of_word(word: usize) -> Self {
        Self { word: AtomicUsize::new(word), _object: PhantomData }
    }

    /// A null link.
    ///
    /// ```
    /// use stillpoint_epoch::Atomic;
    ///
    /// static LINK: Atomic<u64> = Atomic::null();
    /// ```
    pub const fn null() -> Atomic<T> {
        Self { word: AtomicUsize::new(0), _object: PhantomData }
    }

    /// Loads the pointer in the link.
    ///
    /// ```
    /// use std::sync::atomic::Ordering::Acquire;
    /// use stillpoint_epoch::{self as epoch, Atomic};
    ///
    /// let link = Atomic::new(7);
    /// let guard = &epoch::pin();
    /// assert!(!link.load(Acquire, guard).is_null());
    /// # drop(unsafe { link.into_owned() });
    /// ```
    pub fn load<'g>(&self, ord: Ordering, _: &'g Guard) -> Shared<'g, T> {
        shared(self.word.load(ord))
    }

    /// As [`load`](Atomic::load), but ordered before accesses through the pointer. Here this is an acquire load.
    ///
    /// ```
    /// use stillpoint_epoch::{self as epoch, Atomic};
    ///
    /// let link = Atomic::new(7);
    /// let guard = &epoch::pin();
    /// // SAFETY: the link is never null, and its object is not destroyed meanwhile.
    /// assert_eq!(unsafe { link.load_consume(guard).deref() }, &7);
    /// # drop(unsafe { link.into_owned() });
    /// ```
    pub fn load_consume<'g>(&self, _: &'g Guard) -> Shared<'g, T> {
        // Acquire: pairs with the release by which the user's code has linked the object.
        shared(self.word.load(Ordering::Acquire))
    }

    /// Links `new`. The object that was linked before is leaked, unless the caller has another pointer to it.
    ///
    /// ```
    /// use std::sync::atomic::Ordering::Release;
    /// use stillpoint_epoch::{Atomic, Owned, Shared};
    ///
    /// let link = Atomic::null();
    /// link.store(Owned::new(7), Release);
    /// # drop(unsafe { link.clone().into_owned() });
    /// link.store(Shared::null(), Release);
    /// ```
    pub fn store<P: Pointer<T>>(&self, new: P, ord: Ordering) {
        self.word.store(new.into_usize(), ord);
    }

    /// Links `new`, and returns the pointer that was in the link before.
    ///
    /// ```
    /// use std::sync::atomic::Ordering::AcqRel;
    /// use stillpoint_epoch::{self as epoch, Atomic, Shared};
    ///
    /// let link = Atomic::new(7);
    /// let guard = &epoch::pin();
    /// let old = link.swap(Shared::null(), AcqRel, guard);
    /// // SAFETY: the object was unlinked just now.
    /// unsafe { guard.defer_destroy(old) };
    /// ```
    pub fn swap<'g, P: Pointer<T>>(&self, new: P, ord: Ordering, _: &'g Guard) -> Shared<'g, T> {
        shared(self.word.swap(new.into_usize(), ord))
    }

    /// Links `new` if the address and the tag in the link are those of `current`. Returns `new` as a [`Shared`].
    ///
    /// ```
    /// use std::sync::atomic::Ordering::{AcqRel, Acquire};
    /// use stillpoint_epoch::{self as epoch, Atomic, Owned, Shared};
    ///
    /// let link = Atomic::<u64>::null();
    /// let guard = &epoch::pin();
    /// let mine = link.compare_exchange(Shared::null(), Owned::new(7), AcqRel, Acquire, guard).unwrap();
    /// let error = link.compare_exchange(Shared::null(), Owned::new(8), AcqRel, Acquire, guard).unwrap_err();
    /// assert_eq!((error.current, *error.new), (mine, 8));
    /// # drop(unsafe { mine.into_owned() });
    /// ```
    ///
    /// # Errors
    /// If the link is not `current`: the pointer in the link, loaded with the ordering `failure`, and `new`, which is
    /// handed back.
    ///
    /// # Panics
    /// If `failure` is `Release` or `AcqRel`.
    pub fn compare_exchange<'g, P>(
        &self,
        current: Shared<'_, T>,
        new: P,
        success: Ordering,
        failure: Ordering,
        _: &'g Guard,
    ) -> Result<Shared<'g, T>, CompareExchangeError<'g, T, P>>
    where
        P: Pointer<T>,
    {
        let new = new.into_usize();
        // SAFETY: `new` came from a pointer of this type.
        unsafe { answer(new, self.word.compare_exchange(current.into_usize(), new, success, failure)) }
    }

    /// As [`compare_exchange`](Atomic::compare_exchange), for loops: it may fail even if the link is `current`, and is
    /// cheaper on some processors.
    ///
    /// ```
    /// use std::sync::atomic::Ordering::{AcqRel, Acquire};
    /// use stillpoint_epoch::{self as epoch, Atomic, Owned};
    ///
    /// let link = Atomic::new(7);
    /// let guard = &epoch::pin();
    /// let (mut old, mut new) = (link.load(Acquire, guard), Owned::new(8));
    /// while let Err(error) = link.compare_exchange_weak(old, new, AcqRel, Acquire, guard) {
    ///     (old, new) = (error.current, error.new);
    /// }
    /// // SAFETY: the object was unlinked just now.
    /// unsafe { guard.defer_destroy(old) };
    /// # drop(unsafe { link.into_owned() });
    /// ```
    ///
    /// # Errors
    /// As [`compare_exchange`](Atomic::compare_exchange).
    ///
    /// # Panics
    /// As [`compare_exchange`](Atomic::compare_exchange).
    pub fn compare_exchange_weak<'g, P>(
        &self,
        current: Shared<'_, T>,
        new: P,
        success: Ordering,
        failure: Ordering,
        _: &'g Guard,
    ) -> Result<Shared<'g, T>, CompareExchangeError<'g, T, P>>
    where
        P: Pointer<T>,
    {
        let new = new.into_usize();
        // SAFETY: `new` came from a pointer of this type.
        unsafe { answer(new, self.word.compare_exchange_weak(current.into_usize(), new, success, failure)) }
    }

    /// Calls `func` with the pointer in the link, and links the result. Returns the pointer that was in the link
    /// before. If another thread changes the link meanwhile, `func` is called again.
    ///
    /// ```
    /// use std::sync::atomic::Ordering::{AcqRel, Acquire};
    /// use stillpoint_epoch::{self as epoch, Atomic};
    ///
    /// let link = Atomic::<u64>::null();
    /// let guard = &epoch::pin();
    /// let before = link.fetch_update(AcqRel, Acquire, guard, |shared| Some(shared.with_tag(1)));
    /// assert_eq!(before.unwrap().tag(), 0);
    /// let now = link.fetch_update(AcqRel, Acquire, guard, |shared| (shared.tag() == 0).then_some(shared));
    /// assert_eq!(now.unwrap_err().tag(), 1);
    /// ```
    ///
    /// # Errors
    /// If `func` returned `None`: the pointer in the link.
    ///
    /// # Panics
    /// If `fail_order` is `Release` or `AcqRel`.
    pub fn fetch_update<'g, F>(
        &self,
        set_order: Ordering,
        fail_order: Ordering,
        guard: &'g Guard,
        mut func: F,
    ) -> Result<Shared<'g, T>, Shared<'g, T>>
    where
        F: FnMut(Shared<'g, T>) -> Option<Shared<'g, T>>,
    {
        let mut before = self.load(fail_order, guard);
        while let Some(new) = func(before) {
            match self.compare_exchange_weak(before, new, set_order, fail_order, guard) {
                Ok(_) => return Ok(before),
                Err(error) => before = error.current,
            }
        }
        Err(before)
    }

    /// As [`compare_exchange`](Atomic::compare_exchange), with one ordering or two.
    ///
    /// A single ordering is that of success. The ordering of failure follows from it: `Relaxed` for `Relaxed` and
    /// `Release`, `Acquire` for `Acquire` and `AcqRel`, `SeqCst` for `SeqCst`.
    ///
    /// ```
    /// # #![allow(deprecated)]
    /// # use std::sync::atomic::Ordering::AcqRel;
    /// # use stillpoint_epoch::{self as epoch, Atomic, Shared};
    /// let link = Atomic::<u64>::null();
    /// let marked = Shared::null().with_tag(1);
    /// assert!(link.compare_and_set(Shared::null(), marked, AcqRel, &epoch::pin()).is_ok());
    /// ```
    ///
    /// # Errors
    /// As [`compare_exchange`](Atomic::compare_exchange).
    ///
    /// # Panics
    /// As [`compare_exchange`](Atomic::compare_exchange).
    #[deprecated(note = "use `compare_exchange`, which has two orderings")]
    #[expect(deprecated, reason = "both are deprecated")]
    pub fn compare_and_set<'g, O, P>(
        &self,
        current: Shared<'_, T>,
        new: P,
        ord: O,
        guard: &'g Guard,
    ) -> Result<Shared<'g, T>, CompareAndSetError<'g, T, P>>
    where
        O: CompareAndSetOrdering,
        P: Pointer<T>,
    {
        self.compare_exchange(current, new, ord.success(), ord.failure(), guard)
    }

    /// As [`compare_exchange_weak`](Atomic::compare_exchange_weak), with one ordering or two: see
    /// [`compare_and_set`](Atomic::compare_and_set).
    ///
    /// ```
    /// # #![allow(deprecated)]
    /// # use std::sync::atomic::Ordering::{Acquire, Release};
    /// # use stillpoint_epoch::{self as epoch, Atomic, Shared};
    /// let link = Atomic::<u64>::null();
    /// let (marked, guard) = (Shared::null().with_tag(1), &epoch::pin());
    /// while link.compare_and_set_weak(Shared::null(), marked, (Release, Acquire), guard).is_err() {}
    /// ```
    ///
    /// # Errors
    /// As [`compare_exchange`](Atomic::compare_exchange).
    ///
    /// # Panics
    /// As [`compare_exchange`](Atomic::compare_exchange).
    #[deprecated(note = "use `compare_exchange_weak`, which has two orderings")]
    #[expect(deprecated, reason = "both are deprecated")]
    pub fn compare_and_set_weak<'g, O, P>(
        &self,
        current: Shared<'_, T>,
        new: P,
        ord: O,
        guard: &'g Guard,
    ) -> Result<Shared<'g, T>, CompareAndSetError<'g, T, P>>
    where
        O: CompareAndSetOrdering,
        P: Pointer<T>,
    {
        self.compare_exchange_weak(current, new, ord.success(), ord.failure(), guard)
    }

    /// Keeps the bits of the tag that are set in `val`, and clears the others. Returns the pointer that was in the link
    /// before.
    ///
    /// ```
    /// use std::sync::atomic::Ordering::{AcqRel, Acquire};
    /// use stillpoint_epoch::{self as epoch, Atomic, Shared};
    ///
    /// let (link, guard) = (Atomic::<u64>::from(Shared::null().with_tag(3)), &epoch::pin());
    /// assert_eq!(link.fetch_and(6, AcqRel, guard).tag(), 3);
    /// assert_eq!(link.load(Acquire, guard).tag(), 2);
    /// ```
    pub fn fetch_and<'g>(&self, val: usize, ord: Ordering, _: &'g Guard) -> Shared<'g, T> {
        // This keeps all bits of the address.
        shared(self.word.fetch_and(word::with_tag::<T>(usize::MAX, val), ord))
    }

    /// Sets the bits of the tag that are set in `val`. Returns the pointer that was in the link before.
    ///
    /// ```
    /// use std::sync::atomic::Ordering::{AcqRel, Acquire};
    /// use stillpoint_epoch::{self as epoch, Atomic, Shared};
    ///
    /// let (link, guard) = (Atomic::<u64>::from(Shared::null().with_tag(3)), &epoch::pin());
    /// assert_eq!(link.fetch_or(6, AcqRel, guard).tag(), 3);
    /// assert_eq!(link.load(Acquire, guard).tag(), 7);
    /// ```
    pub fn fetch_or<'g>(&self, val: usize, ord: Ordering, _: &'g Guard) -> Shared<'g, T> {
        shared(self.word.fetch_or(word::tag::<T>(val), ord))
    }

    /// Flips the bits of the tag that are set in `val`. Returns the pointer that was in the link before.
    ///
    /// ```
    /// use std::sync::atomic::Ordering::{AcqRel, Acquire};
    /// use stillpoint_epoch::{self as epoch, Atomic, Shared};
    ///
    /// let (link, guard) = (Atomic::<u64>::from(Shared::null().with_tag(3)), &epoch::pin());
    /// assert_eq!(link.fetch_xor(6, AcqRel, guard).tag(), 3);
    /// assert_eq!(link.load(Acquire, guard).tag(), 5);
    /// ```
    pub fn fetch_xor<'g>(&self, val: usize, ord: Ordering, _: &'g Guard) -> Shared<'g, T> {
        shared(self.word.fetch_xor(word::tag::<T>(val), ord))
    }

    /// Takes ownership of the linked object. For destructors of structures: a link does not destroy its object.
    ///
    /// ```
    /// use stillpoint_epoch::Atomic;
    ///
    /// struct Settings(Atomic<String>);
    ///
    /// impl Drop for Settings {
    ///     fn drop(&mut self) {
    ///         let link = std::mem::replace(&mut self.0, Atomic::null());
    ///         // SAFETY: the link is never null, and the thread that drops the settings is the only one that has them.
    ///         drop(unsafe { link.into_owned() });
    ///     }
    /// }
    /// # drop(Settings(Atomic::new(String::from("first"))));
    /// ```
    ///
    /// # Panics
    /// With debug assertions, if the link is null.
    ///
    /// # Safety
    /// The link is not null, and its object is alive. Nothing else owns the object, has a reference to it, or will get
    /// one.
    pub unsafe fn into_owned(self) -> Owned<T> {
        // SAFETY: the object is alive, and nothing else owns it or has a reference to it, by the caller's promise.
        unsafe { Owned::from_usize(self.word.into_inner()) }
    }

    /// As [`into_owned`](Atomic::into_owned), or `None` if the link is null.
    ///
    /// ```
    /// use stillpoint_epoch::Atomic;
    ///
    /// // SAFETY: no other thread has the links.
    /// unsafe {
    ///     assert!(Atomic::<u64>::null().try_into_owned().is_none());
    ///     assert_eq!(Atomic::new(7).try_into_owned().as_deref(), Some(&7));
    /// }
    /// ```
    ///
    /// # Safety
    /// As for [`into_owned`](Atomic::into_owned), if the link is not null.
    pub unsafe fn try_into_owned(self) -> Option<Owned<T>> {
        // SAFETY: if the link is not null, its object is alive, and nothing else owns it or has a reference to it, by
        // the caller's promise.
        unsafe { shared::<T>(self.word.into_inner()).try_into_owned() }
    }
}

/// The pointer in a word of a link.
#[inline]
fn shared<'g, T: ?Sized + Pointable>(word: usize) -> Shared<'g, T> {
    // SAFETY: the word is that of a pointer to this type.
    unsafe { Shared::from_usize(word) }
}

/// # Safety
/// `new` came from `into_usize` of a `P`, and this call owns it.
#[inline]
unsafe fn answer<'g, T: ?Sized + Pointable, P: Pointer<T>>(
    new: usize,
    exchanged: Result<usize, usize>,
) -> Result<Shared<'g, T>, CompareExchangeError<'g, T, P>> {
    exchanged.map(|_| shared(new)).map_err(|found| {
        // SAFETY: `new` came from `into_usize` of a `P`, and this call owns it, by the caller's promise. It was not
        // stored.
        let new = unsafe { P::from_usize(new) };
        CompareExchangeError { current: shared(found), new }
    })
}

/// A copy of the link, made by a relaxed load. Like the link, it does not own the object.
impl<T: ?Sized + Pointable> Clone for Atomic<T> {
    fn clone(&self) -> Self {
        // Relaxed: as documented.
        Self::of_word(self.word.load(Ordering::Relaxed))
    }
}

/// A null link.
impl<T: ?Sized + Pointable> Default for Atomic<T> {
    fn default() -> Self {
        Self::null()
    }
}

impl<T: ?Sized + Pointable> From<Owned<T>> for Atomic<T> {
    /// A link to an object, with its tag.
    ///
    /// ```
    /// use stillpoint_epoch::{Atomic, Owned};
    ///
    /// let link: Atomic<u64> = Atomic::from(Owned::new(7).with_tag(1));
    /// # drop(unsafe { link.into_owned() });
    /// ```
    fn from(owned: Owned<T>) -> Self {
        Self::of_word(owned.into_usize())
    }
}

impl<T> From<Box<T>> for Atomic<T> {
    fn from(b: Box<T>) -> Self {
        Self::from(Owned::from(b))
    }
}

impl<T> From<T> for Atomic<T> {
    fn from(t: T) -> Self {
        Self::new(t)
    }
}

impl<'g, T: ?Sized + Pointable> From<Shared<'g, T>> for Atomic<T> {
    /// A link with the address and the tag of `ptr`.
    ///
    /// ```
    /// use stillpoint_epoch::{Atomic, Shared};
    ///
    /// let link = Atomic::<u64>::from(Shared::null());
    /// ```
    fn from(ptr: Shared<'g, T>) -> Self {
        Self::of_word(ptr.into_usize())
    }
}

impl<T> From<*const T> for Atomic<T> {
    /// A link with the address of a raw pointer. The bits of the pointer that lie in the place of the tag become the
    /// tag.
    ///
    /// ```
    /// use std::ptr;
    /// use stillpoint_epoch::Atomic;
    ///
    /// let link = Atomic::<u64>::from(ptr::null());
    /// ```
    fn from(raw: *const T) -> Self {
        Self::of_word(raw.expose_provenance())
    }
}

impl<T: ?Sized + Pointable> fmt::Debug for Atomic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SeqCst: as in the original; nothing is followed.
        word::debug::<T>("Atomic", self.word.load(Ordering::SeqCst), f)
    }
}

/// The address, without the tag.
impl<T: ?Sized + Pointable> fmt::Pointer for Atomic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SeqCst: as in the original; nothing is followed.
        word::show_address::<T>(self.word.load(Ordering::SeqCst), f)
    }
}

/// A link did not have the expected address and tag: see [`Atomic::compare_exchange`].
pub struct CompareExchangeError<'g, T: ?Sized + Pointable, P: Pointer<T>> {
    /// The pointer in the link.
    pub current: Shared<'g, T>,

    /// The pointer that was to be linked, which is handed back.
    pub new: P,
}

impl<T, P: Pointer<T> + fmt::Debug> fmt::Debug for CompareExchangeError<'_, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompareExchangeError")
            .field("current", &self.current)
            .field("new", &self.new)
            .finish()
    }
}

/// The error of [`Atomic::compare_and_set`].
#[deprecated(note = "use `CompareExchangeError`")]
pub type CompareAndSetError<'g, T, P> = CompareExchangeError<'g, T, P>;

/// One ordering or two: see [`Atomic::compare_and_set`].
#[deprecated(note = "`compare_exchange` and `compare_exchange_weak` have two orderings")]
pub trait CompareAndSetOrdering {
    /// The ordering of the exchange, if it succeeds.
    fn success(&self) -> Ordering;

    /// The ordering of the load, if the exchange fails. Neither `Release` nor `AcqRel`.
    fn failure(&self) -> Ordering;
}

#[expect(deprecated, reason = "the original has it")]
impl CompareAndSetOrdering for Ordering {
    #[inline]
    fn success(&self) -> Ordering {
        *self
    }

    /// The strongest ordering of failure that goes with this ordering of success.
    #[inline]
    fn failure(&self) -> Ordering {
        match self {
            Ordering::Release => Ordering::Relaxed,
            Ordering::AcqRel => Ordering::Acquire,
            &other => other,
        }
    }
}

#[expect(deprecated, reason = "the original has it")]
impl CompareAndSetOrdering for (Ordering, Ordering) {
    #[inline]
    fn success(&self) -> Ordering {
        self.0
    }

    #[inline]
    fn failure(&self) -> Ordering {
        self.1
    }
}
