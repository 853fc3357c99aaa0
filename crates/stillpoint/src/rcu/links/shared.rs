use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::owned::Owned;
use super::pointee::{self, InArc, Pointee};
use crate::rcu::domain::Domain;
use crate::rcu::engine::core::garbage::Garbage;
use crate::rcu::reclaimer::Reclaimer;
use crate::rcu::region::Region;
use crate::rcu::retired::Retired;

/// The word without its tag.
#[inline(always)]
pub(super) fn untagged<T: Pointee + ?Sized>(word: *mut ()) -> *mut () {
    word.map_addr(|word| word & !(T::ALIGN - 1))
}

#[inline(always)]
pub(super) fn tag_of<T: Pointee + ?Sized>(word: *mut ()) -> usize {
    word.addr() & (T::ALIGN - 1)
}

/// The word with this tag, of which only the bits below the alignment count.
#[inline(always)]
pub(super) fn tagged<T: Pointee + ?Sized>(word: *mut (), tag: usize) -> *mut () {
    untagged::<T>(word).map_addr(|word| word | (tag & (T::ALIGN - 1)))
}

/// For how long what is loaded from a link may be followed: a [`Region`], or [`Unprotected`].
///
/// ```
/// use std::sync::atomic::Ordering;
/// use stillpoint::rcu::{Atomic, Domain, Scope, Unprotected};
///
/// fn tag(link: &Atomic<u32>, scope: &impl Scope) -> usize {
///     link.load(Ordering::Relaxed, scope).tag()
/// }
///
/// let link = Atomic::null();
/// assert_eq!(tag(&link, &Unprotected), tag(&link, &Domain::new().reader().pin()));
/// ```
pub trait Scope: sealed::Scope {}

impl<R: Region> Scope for R {}
impl Scope for Unprotected {}

/// The scope of links that are not followed, or whose structure the caller has to itself.
///
/// ```
/// # use std::sync::atomic::Ordering;
/// use stillpoint::rcu::{Atomic, Unprotected};
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
/// use stillpoint::rcu::{Atomic, Linkable, Owned, Shared};
///
/// fn set(link: &Atomic<u32>, new: impl Linkable<u32>) {
///     link.store(new, Ordering::Release);
/// }
///
/// let link = Atomic::null();
/// set(&link, Shared::null().with_tag(1));
/// set(&link, Owned::new(7));
/// // SAFETY: nobody else uses the link.
/// assert_eq!(unsafe { link.into_owned() }.as_deref(), Some(&7));
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
        /// The word of a link that is set to this.
        fn into_word(self) -> *mut ();

        /// # Safety
        /// The word came from `into_word`, and has not been linked.
        unsafe fn from_word(word: *mut ()) -> Self;
    }

    impl<T: Pointee + ?Sized> Linkable for Owned<T> {
        fn into_word(self) -> *mut () {
            self.into_raw()
        }

        unsafe fn from_word(word: *mut ()) -> Self {
            // SAFETY: the caller's promise.
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

/// What a link holds: a pointer to an object, or null, and a tag. One word, which is copied freely.
///
/// The lifetime is that of the scope in which it was loaded. To follow it is `unsafe`: see [`Atomic`](super::Atomic).
/// Compared with the tag.
///
/// ```
/// use std::sync::atomic::Ordering;
/// use stillpoint::rcu::{Atomic, Shared, Unprotected};
///
/// let link = Atomic::new(7_u32);
/// let shared = link.load(Ordering::Acquire, &Unprotected).with_tag(1);
/// assert_eq!(shared.tag(), 1);
/// // SAFETY: nobody else has the link.
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

    /// The address of the object, without the tag. For comparison, or to be cast by who knows the type.
    #[inline(always)]
    pub fn as_ptr(self) -> *mut () {
        untagged::<T>(self.word)
    }

    /// The bits below the alignment of the object: 0 for a type with alignment 1.
    #[inline(always)]
    pub fn tag(self) -> usize {
        tag_of::<T>(self.word)
    }

    /// The same object with another tag. Bits that the alignment has no room for are ignored.
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
    /// Null, or an object that is not freed during `'g` (see the contract of [`Atomic`](super::Atomic)), loaded by an
    /// acquire operation, and that nobody has exclusively.
    #[inline(always)]
    pub unsafe fn as_ref(self) -> Option<&'g T::Target> {
        // SAFETY: the caller's promise.
        self.object().map(|object| unsafe { T::target(object) })
    }

    /// Owns the object at once: no grace period is needed. `None` for null.
    ///
    /// # Safety
    /// Null, or an object that the caller has to itself: no reader can follow a link to it, and nobody else owns or
    /// retires it.
    pub unsafe fn into_owned(self) -> Option<Owned<T>> {
        // SAFETY: the caller's promise.
        self.object().map(|object| unsafe { Owned::from_raw(object.as_ptr()) })
    }

    /// Hands the object to `reclaimer`, which frees it when no reader can hold it. If there is no room after what the
    /// reclaimer can do at once, the object is left to the domain, beyond any limit, as a [`Retired`] that is dropped.
    ///
    /// For any pointee; [`into_retired`](Shared::into_retired) has more to offer for those in boxes.
    ///
    /// ```
    /// use std::sync::atomic::Ordering;
    /// use stillpoint::rcu::{Atomic, Domain, Owned, Shared, Unprotected};
    ///
    /// let domain = Domain::new();
    /// let mut reclaimer = domain.reclaimer();
    /// let link = Atomic::from(Owned::<[u32]>::init(vec![1, 2, 3]));
    /// let old = link.swap(Shared::null(), Ordering::AcqRel, &Unprotected);
    /// // SAFETY: the only link to it is gone, its readers are of this domain, and nobody else retires it.
    /// unsafe { old.retire(&mut reclaimer) };
    /// assert_eq!(reclaimer.poll(), 1);
    /// ```
    ///
    /// # Safety
    /// Not null. The object was unlinked before, so that no later load finds it; it is retired once, and nothing else frees
    /// it. All who follow links to it do so by readers of the reclaimer's domain.
    ///
    /// # Panics
    /// As [`Reclaimer::retire`], with the panic of another object's destructor; this one is then left to the domain.
    pub unsafe fn retire(self, reclaimer: &mut Reclaimer)
    where
        T: Send + Sync + 'static,
    {
        unsafe extern "C-unwind" fn destroy<T: Pointee + ?Sized>(object: NonNull<()>, _context: *const ()) {
            // SAFETY: called once, with the object that was retired, when nobody uses it any more.
            unsafe { T::drop(object) };
        }
        let object = self.object().expect("null is not retired");
        // SAFETY: it is not freed before it is retired here.
        let bytes = unsafe { T::bytes(object) };
        // SAFETY: the caller's promise; it may be dropped by any thread, and there is no context.
        reclaimer.take_in(unsafe { Garbage::in_context(object, bytes, ptr::null(), destroy::<T>) });
    }
}

impl<T: Send + Sync + 'static> Shared<'_, T> {
    /// The object as one that was unlinked from a cell of `domain`: for any reclaimer or retire handle of it, to be waited
    /// for, or dropped.
    ///
    /// ```
    /// use std::sync::atomic::Ordering;
    /// use stillpoint::rcu::{Atomic, Domain, Shared, Unprotected};
    ///
    /// let domain = Domain::new();
    /// let link = Atomic::new(7);
    /// let old = link.swap(Shared::null(), Ordering::AcqRel, &Unprotected);
    /// // SAFETY: the only link to it is gone, its readers are of this domain, and nobody else retires it.
    /// let old = unsafe { old.into_retired(&domain) };
    /// assert_eq!(*old, 7);
    /// old.free()?;
    /// # Ok::<(), stillpoint::rcu::StillHeldError<i32>>(())
    /// ```
    ///
    /// # Safety
    /// As for [`retire`](Shared::retire), with `domain`; and it can still be read: nobody has it exclusively.
    ///
    /// # Panics
    /// For null.
    pub unsafe fn into_retired(self, domain: &Domain) -> Retired<T> {
        let object = self.object().expect("null is not retired").cast();
        // SAFETY: it came from a box (`Pointee::init`); the caller's promise.
        unsafe { Retired::new(object, domain.core().reference) }
    }
}

impl<T> Shared<'_, InArc<T>> {
    /// Another count of the `Arc`; `None` for null.
    ///
    /// # Safety
    /// As for [`as_ref`](Shared::as_ref).
    pub unsafe fn to_arc(self) -> Option<Arc<T>> {
        // SAFETY: the caller's promise.
        self.object().map(|object| unsafe { pointee::to_arc(object) })
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
