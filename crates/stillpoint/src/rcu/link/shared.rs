use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use super::owned::Owned;
use super::pointee::{tag_of, tagged, untagged, Pointee};
use crate::rcu::domain::Domain;
use crate::rcu::engine::core::garbage::Garbage;
use crate::rcu::reclaimer::Reclaimer;
use crate::rcu::region::Region;
use crate::rcu::retired::Retired;
use stillpoint_sys::sync::atomic::{fence, Ordering};

/// The time for which a loaded link may be followed: a [`Region`], or [`Unprotected`].
///
/// ```
/// use std::sync::atomic::Ordering;
/// use stillpoint::rcu::link::{Atomic, Scope, Shared};
/// use stillpoint::rcu::Domain;
///
/// fn first<'g, S: Scope>(link: &Atomic<u32>, scope: &'g S) -> Shared<'g, u32> {
///     link.load(Ordering::Acquire, scope)
/// }
/// assert!(first(&Atomic::null(), &Domain::new().reader().pin()).is_null());
/// ```
pub trait Scope: sealed::Scope {}

impl<R: Region> Scope for R {}
impl Scope for Unprotected {}

/// The scope for links that are not followed, or that are in a structure that no other thread uses.
///
/// ```
/// use std::sync::atomic::Ordering;
/// use stillpoint::rcu::link::{Atomic, Unprotected};
///
/// let link = Atomic::<u32>::null();
/// assert!(link.load(Ordering::Relaxed, &Unprotected).is_null());
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Unprotected;

/// What a link can be set to: an [`Owned`] or a [`Shared`].
///
/// ```
/// use std::sync::atomic::Ordering;
/// use stillpoint::rcu::link::{Atomic, Linkable, Shared};
///
/// fn publish(link: &Atomic<u32>, what: impl Linkable<u32>) {
///     link.store(what, Ordering::Release);
/// }
/// publish(&Atomic::null(), Shared::null());
/// ```
pub trait Linkable<T: Pointee + ?Sized>: sealed::Linkable {}

impl<T: Pointee + ?Sized> Linkable<T> for Owned<T> {}
impl<T: Pointee + ?Sized> Linkable<T> for Shared<'_, T> {}

pub(super) mod sealed {
    use super::{Owned, Pointee, Region, Shared, Unprotected};

    pub trait Scope {}
    impl<R: Region> Scope for R {}
    impl Scope for Unprotected {}

    pub trait Linkable {
        /// The word of a link to this object.
        fn into_word(self) -> *mut ();

        /// # Safety
        /// The word came from `into_word`, and was not linked.
        unsafe fn from_word(word: *mut ()) -> Self;
    }

    impl<T: Pointee + ?Sized> Linkable for Owned<T> {
        fn into_word(self) -> *mut () {
            self.into_raw()
        }

        unsafe fn from_word(word: *mut ()) -> Self {
            // SAFETY: the word came from `into_word`, so it is that of an owned object, which was not linked.
            unsafe { Self::from_raw(word) }
        }
    }

    impl<T: Pointee + ?Sized> Linkable for Shared<'_, T> {
        fn into_word(self) -> *mut () {
            self.word()
        }

        unsafe fn from_word(word: *mut ()) -> Self {
            Self::new(word)
        }
    }
}

/// The content of a link: a pointer to an object, or null, and a tag. One word, which is copied freely.
///
/// The lifetime is that of the scope in which the link was loaded. Following it is `unsafe`: see [`Atomic`](super::Atomic).
/// Comparisons include the tag.
///
/// ```
/// use std::sync::atomic::Ordering;
/// use stillpoint::rcu::link::{Atomic, Shared, Unprotected};
///
/// let link = Atomic::new(7_u32);
/// let shared = link.load(Ordering::Acquire, &Unprotected).with_tag(1);
/// assert_eq!(shared.tag(), 1);
/// // SAFETY: no other thread has the link.
/// assert_eq!(unsafe { shared.as_ref() }, Some(&7));
/// assert_ne!(shared, shared.with_tag(0));
/// assert!(Shared::<u32>::null().with_tag(1).is_null());
/// # drop(unsafe { link.into_owned() });
/// ```
pub struct Shared<'g, T: Pointee + ?Sized> {
    word: *mut (),
    _object: PhantomData<(&'g (), *const T)>,
}

impl<'g, T: Pointee + ?Sized> Shared<'g, T> {
    #[inline(always)]
    pub(super) fn new(word: *mut ()) -> Self {
        Self { word, _object: PhantomData }
    }

    #[inline(always)]
    pub(super) fn word(self) -> *mut () {
        self.word
    }

    /// No object, and no tag.
    pub fn null() -> Self {
        Self::new(ptr::null_mut())
    }

    /// Whether there is no object, whatever the tag.
    #[inline(always)]
    pub fn is_null(self) -> bool {
        self.as_ptr().is_null()
    }

    /// The address of the object, without the tag. For comparison, or for callers that know the type and cast it.
    #[inline(always)]
    pub fn as_ptr(self) -> *mut () {
        untagged::<T>(self.word)
    }

    /// The bits below the alignment of the object: 0 for a type with alignment 1.
    #[inline(always)]
    pub fn tag(self) -> usize {
        tag_of::<T>(self.word)
    }

    /// The same object with another tag. Bits that do not fit below the alignment are ignored.
    #[inline(always)]
    #[must_use]
    pub fn with_tag(self, tag: usize) -> Self {
        Self::new(tagged::<T>(self.word, tag))
    }

    #[inline(always)]
    fn object(self) -> Option<NonNull<()>> {
        NonNull::new(self.as_ptr())
    }

    /// The object; `None` for null.
    ///
    /// # Safety
    /// It is null; or it was loaded by an acquire operation, and points to an object that is not freed during `'g` (see the
    /// contract of [`Atomic`](super::Atomic)) and to which no exclusive reference exists.
    #[inline(always)]
    pub unsafe fn as_ref(self) -> Option<&'g T::Target> {
        // SAFETY: the object is not freed during `'g`, and no exclusive reference to it exists, by the caller's promise.
        self.object().map(|object| unsafe { T::target(object) })
    }

    /// Takes ownership of the object at once: no grace period is needed. `None` for null.
    ///
    /// # Safety
    /// It is null; or only the caller has access to the object: no reader can follow a link to it, and no other code owns or
    /// retires it.
    pub unsafe fn into_owned(self) -> Option<Owned<T>> {
        // SAFETY: only the caller has access to the object, by its promise.
        self.object().map(|object| unsafe { Owned::from_raw(object.as_ptr()) })
    }

    /// Hands the object to `reclaimer`, which frees it when no reader can hold it. A full reclaimer first frees what it can at once.
    /// If there is still no room, the object is left to the domain, beyond any limit, like a [`Retired`] that is dropped.
    ///
    /// It accepts any pointee. For pointees in boxes, [`into_retired`](Shared::into_retired) offers more.
    ///
    /// ```
    /// use std::sync::atomic::Ordering;
    /// use stillpoint::rcu::link::{Atomic, Owned, Shared, Unprotected};
    /// use stillpoint::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let mut reclaimer = domain.reclaimer();
    /// let link = Atomic::from(Owned::<[u32]>::init(vec![1, 2, 3]));
    /// let old = link.swap(Shared::null(), Ordering::AcqRel, &Unprotected);
    /// // SAFETY: the only link to it is gone, its readers are of this domain, and no other code retires it.
    /// unsafe { old.retire(&mut reclaimer) };
    /// assert_eq!(reclaimer.poll(), 1);
    /// ```
    ///
    /// # Safety
    /// The pointer is not null. The object was unlinked before, so that no later load finds it. It is retired once, and nothing
    /// else frees it. Every thread that follows links to it uses a reader of the reclaimer's domain.
    ///
    /// # Panics
    /// As [`Reclaimer::retire`], with the panic of another object's destructor; this object is then left to the domain.
    pub unsafe fn retire(self, reclaimer: &mut Reclaimer)
    where
        T: Send + Sync + 'static,
    {
        unsafe extern "C-unwind" fn destroy<T: Pointee + ?Sized>(object: NonNull<()>, _context: *const ()) {
            // SAFETY: called once, with the object that was retired, when nothing uses it any more.
            unsafe { T::drop(object) };
        }
        let object = self.object().expect("a null pointer cannot be retired");
        // Acquire: pairs with the release that has linked the object, for callers that have unlinked it by a relaxed operation. The length of
        // a slice is read here.
        fence(Ordering::Acquire);
        // SAFETY: the object is not freed before it is retired here.
        let bytes = unsafe { T::bytes(object) };
        // SAFETY: the caller has unlinked the object and owns it. Any thread may drop it, and there is no context.
        reclaimer.take_in(unsafe { Garbage::in_context(object, bytes, ptr::null(), destroy::<T>) });
    }
}

impl<T: Pointee + ?Sized> Owned<T> {
    /// Gives up ownership of the object. The code that later retires or owns the object must free it.
    ///
    /// ```
    /// use stillpoint::rcu::link::{Owned, Unprotected};
    ///
    /// let shared = Owned::new(7).into_shared(&Unprotected);
    /// // SAFETY: no other code has the object.
    /// assert_eq!(unsafe { shared.into_owned() }.as_deref(), Some(&7));
    /// ```
    pub fn into_shared<S: Scope>(self, _scope: &S) -> Shared<'_, T> {
        Shared::new(self.into_raw())
    }
}

impl<T: Send + Sync + 'static> Shared<'_, T> {
    /// Converts the object into what cells of `domain` return when they unlink: hand it to any reclaimer or retire handle of
    /// the domain, wait for it, or drop it.
    ///
    /// ```
    /// use std::sync::atomic::Ordering;
    /// use stillpoint::rcu::link::{Atomic, Shared, Unprotected};
    /// use stillpoint::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let link = Atomic::new(7);
    /// let old = link.swap(Shared::null(), Ordering::AcqRel, &Unprotected);
    /// // SAFETY: the only link to it is gone, its readers are of this domain, and no other code retires it.
    /// let old = unsafe { old.into_retired(&domain) };
    /// assert_eq!(*old, 7);
    /// old.free()?;
    /// # Ok::<(), stillpoint::rcu::RetireError<i32, stillpoint::rcu::wait::SynchronizeError>>(())
    /// ```
    ///
    /// # Safety
    /// As for [`retire`](Shared::retire), with `domain`. In addition, no exclusive reference to the object exists: it can still
    /// be read.
    ///
    /// # Panics
    /// If the link is null.
    #[track_caller]
    pub unsafe fn into_retired(self, domain: &Domain) -> Retired<T> {
        let object = self.object().expect("a null pointer cannot be retired").cast();
        // Acquire: as in `retire`. The result can be read.
        fence(Ordering::Acquire);
        // SAFETY: the object came from a box (`Pointee::init`). The caller has unlinked and owns it, by its promise.
        unsafe { Retired::new(object, domain.core().reference) }
    }
}

impl<T: Pointee + ?Sized> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Pointee + ?Sized> Copy for Shared<'_, T> {}

impl<T: Pointee + ?Sized> PartialEq for Shared<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.word == other.word
    }
}

impl<T: Pointee + ?Sized> Eq for Shared<'_, T> {}

impl<T: Pointee + ?Sized> fmt::Debug for Shared<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("object", &self.as_ptr()).field("tag", &self.tag()).finish()
    }
}
