use std::cmp;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use stillpoint::rcu::raw::Object;

use crate::guard::Guard;
use crate::owned::Owned;
use crate::pointable::{Pointable, Pointer};
use crate::word;

/// A pointer with a tag that was loaded from an [`Atomic`](crate::Atomic) under a guard. It is null, or points to an
/// object that the guard keeps from being destroyed.
///
/// ```
/// use std::sync::atomic::Ordering::Acquire;
/// use stillpoint_epoch::{self as epoch, Atomic};
///
/// let link = Atomic::new(7);
/// let guard = &epoch::pin();
/// let shared = link.load(Acquire, guard);
/// // SAFETY: the object is not destroyed before the guard is dropped.
/// assert_eq!(unsafe { shared.as_ref() }, Some(&7));
/// # drop(unsafe { link.into_owned() });
/// ```
///
/// It may be used during `'g`, the borrow of the guard. Two pointers are equal if both their addresses and their tags
/// are.
pub struct Shared<'g, T: 'g + ?Sized + Pointable> {
    word: usize,
    _object: PhantomData<(&'g (), *const T)>,
}

impl<T: ?Sized + Pointable> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized + Pointable> Copy for Shared<'_, T> {}

impl<T: ?Sized + Pointable> Pointer<T> for Shared<'_, T> {
    #[inline]
    fn into_usize(self) -> usize {
        self.word
    }

    #[inline]
    unsafe fn from_usize(data: usize) -> Self {
        Self { word: data, _object: PhantomData }
    }
}

impl<T> Shared<'_, T> {
    /// The raw pointer, without the tag.
    ///
    /// ```
    /// use std::sync::atomic::Ordering::Acquire;
    /// use stillpoint_epoch::{self as epoch, Atomic, Owned};
    ///
    /// let owned = Owned::new(7_u64).with_tag(1);
    /// let raw: *const u64 = &*owned;
    /// let link = Atomic::from(owned);
    /// assert_eq!(link.load(Acquire, &epoch::pin()).as_raw(), raw);
    /// # drop(unsafe { link.into_owned() });
    /// ```
    pub fn as_raw(&self) -> *const T {
        word::pointer(self.word)
    }
}

impl<'g, T: ?Sized + Pointable> Shared<'g, T> {
    /// The null pointer, with the tag 0.
    ///
    /// ```
    /// use stillpoint_epoch::Shared;
    ///
    /// const NULL: Shared<'static, u64> = Shared::null();
    /// assert!(NULL.is_null());
    /// ```
    pub const fn null() -> Shared<'g, T> {
        Shared { word: 0, _object: PhantomData }
    }

    /// Whether the pointer is null. The tag does not matter.
    ///
    /// ```
    /// use std::sync::atomic::Ordering::{Acquire, Release};
    /// use stillpoint_epoch::{self as epoch, Atomic, Owned};
    ///
    /// let link = Atomic::null();
    /// let guard = &epoch::pin();
    /// assert!(link.load(Acquire, guard).with_tag(1).is_null());
    /// link.store(Owned::new(7_u64), Release);
    /// assert!(!link.load(Acquire, guard).is_null());
    /// # drop(unsafe { link.into_owned() });
    /// ```
    pub fn is_null(&self) -> bool {
        word::address::<T>(self.word) == 0
    }

    /// The object.
    ///
    /// ```
    /// use std::sync::atomic::Ordering::Acquire;
    /// use stillpoint_epoch::{self as epoch, Atomic};
    ///
    /// let link = Atomic::new(7);
    /// let guard = &epoch::pin();
    /// // SAFETY: the link is never null, and the object is not destroyed before the guard is dropped.
    /// assert_eq!(unsafe { link.load(Acquire, guard).deref() }, &7);
    /// # drop(unsafe { link.into_owned() });
    /// ```
    ///
    /// # Safety
    /// - The pointer is not null, and the guard protects its object: the object is destroyed only by
    ///   [`defer_destroy`](crate::Guard::defer_destroy), or in another way that the caller knows to come later.
    /// - The writes to the object happen before this call. A relaxed load of a link does not ensure that, and neither
    ///   does a load of a link that was stored with `Relaxed`: store with `Release`, and load with `Acquire`.
    /// - As long as the reference is used, there is no mutable reference to the object.
    pub unsafe fn deref(&self) -> &'g T {
        // SAFETY: the object is alive as long as the guard, its writes come before, and there is no mutable reference
        // to it, by the caller's promise.
        unsafe { T::deref(word::address::<T>(self.word)) }
    }

    /// The object, to be changed.
    ///
    /// ```
    /// use std::sync::atomic::Ordering::Acquire;
    /// use stillpoint_epoch::{self as epoch, Atomic};
    ///
    /// let link = Atomic::new(vec![1]);
    /// let guard = &epoch::pin();
    /// let mut shared = link.load(Acquire, guard);
    /// // SAFETY: no other thread has the link.
    /// unsafe { shared.deref_mut() }.push(2);
    /// assert_eq!(unsafe { shared.deref() }, &[1, 2]);
    /// # drop(unsafe { link.into_owned() });
    /// ```
    ///
    /// # Safety
    /// As for [`deref`](Shared::deref). Also, as long as the reference is used, there is no other reference to the
    /// object. A guard does not ensure that.
    pub unsafe fn deref_mut(&mut self) -> &'g mut T {
        // SAFETY: the object is alive as long as the guard, its writes come before, and there is no other reference to
        // it, by the caller's promise.
        unsafe { T::deref_mut(word::address::<T>(self.word)) }
    }

    /// The object, or `None` if the pointer is null.
    ///
    /// ```
    /// use stillpoint_epoch::Shared;
    ///
    /// // SAFETY: the pointer is null.
    /// assert_eq!(unsafe { Shared::<u64>::null().as_ref() }, None);
    /// ```
    ///
    /// # Safety
    /// As for [`deref`](Shared::deref), if the pointer is not null.
    pub unsafe fn as_ref(&self) -> Option<&'g T> {
        // SAFETY: the pointer is not null. So the object is alive as long as the guard, its writes come before, and
        // there is no mutable reference to it, by the caller's promise.
        (!self.is_null()).then(|| unsafe { self.deref() })
    }

    /// Takes ownership of the object. The tag stays.
    ///
    /// ```
    /// use std::sync::atomic::Ordering::Relaxed;
    /// use stillpoint_epoch::{self as epoch, Atomic};
    ///
    /// let link = Atomic::new(7);
    /// // SAFETY: no other thread has the link.
    /// let owned = unsafe { link.load(Relaxed, epoch::unprotected()).into_owned() };
    /// assert_eq!(*owned, 7);
    /// ```
    ///
    /// # Panics
    /// With debug assertions, if the pointer is null.
    ///
    /// # Safety
    /// The pointer is not null, and its object is alive. Nothing else owns the object, has a reference to it, or will
    /// get one.
    pub unsafe fn into_owned(self) -> Owned<T> {
        debug_assert!(!self.is_null(), "a null pointer has no object to own");
        // SAFETY: the object is alive, and nothing else owns it or has a reference to it, by the caller's promise.
        unsafe { Owned::from_usize(self.word) }
    }

    /// As [`into_owned`](Shared::into_owned), or `None` if the pointer is null.
    ///
    /// ```
    /// use stillpoint_epoch::Shared;
    ///
    /// // SAFETY: the pointer is null.
    /// assert!(unsafe { Shared::<u64>::null().try_into_owned() }.is_none());
    /// ```
    ///
    /// # Safety
    /// As for [`into_owned`](Shared::into_owned), if the pointer is not null.
    pub unsafe fn try_into_owned(self) -> Option<Owned<T>> {
        // SAFETY: the pointer is not null. So its object is alive, and nothing else owns it or has a reference to it,
        // by the caller's promise.
        (!self.is_null()).then(|| unsafe { self.into_owned() })
    }

    /// The tag.
    ///
    /// ```
    /// use stillpoint_epoch::Shared;
    ///
    /// assert_eq!(Shared::<u64>::null().with_tag(2).tag(), 2);
    /// ```
    pub fn tag(&self) -> usize {
        word::tag::<T>(self.word)
    }

    /// The same pointer with another tag. Bits of the tag that the alignment leaves no room for are dropped.
    ///
    /// ```
    /// use stillpoint_epoch::Shared;
    ///
    /// let marked = Shared::<u64>::null().with_tag(1);
    /// assert!(marked.is_null() && marked != Shared::null());
    /// assert_eq!(marked.with_tag(8), Shared::null());
    /// ```
    pub fn with_tag(&self, tag: usize) -> Shared<'g, T> {
        Shared { word: word::with_tag::<T>(self.word, tag), _object: PhantomData }
    }
}

impl<T: ?Sized + Pointable> Owned<T> {
    /// Gives the object up, to be linked. The object is leaked, unless it is owned again or destroyed later.
    ///
    /// ```
    /// use stillpoint_epoch::{self as epoch, Owned};
    ///
    /// let guard = &epoch::pin();
    /// let shared = Owned::new(7).with_tag(1).into_shared(guard);
    /// assert_eq!(shared.tag(), 1);
    /// // SAFETY: the object was not linked.
    /// drop(unsafe { shared.into_owned() });
    /// ```
    pub fn into_shared<'g>(self, _: &'g Guard) -> Shared<'g, T> {
        // SAFETY: the word is that of a pointer to this type.
        unsafe { Shared::from_usize(self.into_usize()) }
    }
}

impl Guard {
    /// Destroys the object when every guard that exists now has been dropped. If this guard is [`unprotected`](crate::unprotected),
    /// destroys it at once. Allocates only when the thread's list of deferred functions begins or grows.
    ///
    /// ```
    /// use std::sync::atomic::Ordering::AcqRel;
    /// use stillpoint_epoch::{self as epoch, Atomic, Shared};
    ///
    /// let link = Atomic::new(7);
    /// let guard = &epoch::pin();
    /// let old = link.swap(Shared::null(), AcqRel, guard);
    /// // SAFETY: this thread has just unlinked the object.
    /// unsafe { guard.defer_destroy(old) };
    /// ```
    ///
    /// # Panics
    /// As [`defer`](Guard::defer). With debug assertions, if the pointer is null.
    ///
    /// # Safety
    /// - The pointer is not null. The object is alive, and the caller owns it.
    /// - No thread that pins itself from now on can reach the object.
    /// - Any thread may drop the object.
    #[cfg_attr(debug_assertions, track_caller)]
    pub unsafe fn defer_destroy<T: ?Sized + Pointable>(&self, ptr: Shared<'_, T>) {
        /// # Safety
        /// The address is that of an object of this type, which is destroyed once.
        unsafe extern "C-unwind" fn destroy<T: ?Sized + Pointable>(object: NonNull<()>, _: *const ()) {
            // SAFETY: the address is that of an object of this type, which is destroyed once, by the caller's promise.
            unsafe { T::drop(object.as_ptr().expose_provenance()) };
        }

        debug_assert!(!ptr.is_null(), "a null pointer has no object that could be destroyed");
        let Some(local) = self.local() else {
            // SAFETY: the caller owns the object, by its promise. Under an unprotected guard, no other thread uses it.
            drop(unsafe { ptr.try_into_owned() });
            return;
        };
        let address = word::address::<T>(ptr.into_usize());
        if let Some(object) = NonNull::new(ptr::with_exposed_provenance_mut(address)) {
            let bytes = T::STILLPOINT_BYTES;
            let object = Object { address: object, bytes, context: ptr::null(), destroy: destroy::<T> };
            // SAFETY: the caller owns the object, no thread that pins itself from now on can reach it, and any thread
            // may drop it, by the caller's promise.
            unsafe { local.defer(object) };
        }
    }
}

impl<T> From<*const T> for Shared<'_, T> {
    /// The pointer with the tag 0.
    ///
    /// ```
    /// use stillpoint_epoch::Shared;
    ///
    /// let number = 7;
    /// assert_eq!(Shared::from(&raw const number).as_raw(), &raw const number);
    /// ```
    ///
    /// # Panics
    /// If the pointer is not aligned.
    fn from(raw: *const T) -> Self {
        Self { word: word::of_pointer(raw), _object: PhantomData }
    }
}

impl<'g, T: ?Sized + Pointable> PartialEq<Shared<'g, T>> for Shared<'g, T> {
    fn eq(&self, other: &Self) -> bool {
        self.word == other.word
    }
}

impl<T: ?Sized + Pointable> Eq for Shared<'_, T> {}

impl<'g, T: ?Sized + Pointable> PartialOrd<Shared<'g, T>> for Shared<'g, T> {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Ordered by address, then by tag.
impl<T: ?Sized + Pointable> Ord for Shared<'_, T> {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        self.word.cmp(&other.word)
    }
}

/// The null pointer, with the tag 0.
impl<T: ?Sized + Pointable> Default for Shared<'_, T> {
    fn default() -> Self {
        Self::null()
    }
}

impl<T: ?Sized + Pointable> fmt::Debug for Shared<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        word::debug::<T>("Shared", self.word, f)
    }
}

/// The address, without the tag.
impl<T: ?Sized + Pointable> fmt::Pointer for Shared<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        word::show_address::<T>(self.word, f)
    }
}
