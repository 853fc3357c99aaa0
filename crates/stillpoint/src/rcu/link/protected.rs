use std::fmt;
use std::marker::PhantomData;
use std::ptr;

use super::atomic::Atomic;
use super::pointee::{untagged, Pointee};
use super::shared::Shared;
use crate::rcu::engine::core::read;
use crate::rcu::engine::core::record::Slot;
use crate::rcu::reader::Reader;
use stillpoint_sys::sync::atomic::Ordering;

/// What a link held when it was loaded, including its tag. This value has its own hazard slot, which protects the object: see
/// [`Atomic::protect`].
///
/// For walks hand over hand: references to two or three of these values change places (`mem::swap`), and the front value
/// [loads](ProtectedLink::load) the next link, which releases what it held. (Swapping the values themselves makes a walk slower by more
/// than half.) It borrows only the reader. It does not borrow the link, which may be in an object that another `ProtectedLink` protects.
///
/// ```
/// use std::mem;
/// use stillpoint::rcu::link::{Atomic, ProtectedLink};
/// use stillpoint::rcu::Domain;
///
/// struct Node {
///     value: u32,
///     /// Tag 1: the node is about to be unlinked.
///     next: Atomic<Node>,
/// }
///
/// let domain = Domain::new();
/// let last = Atomic::new(Node { value: 2, next: Atomic::null() });
/// let root = Atomic::new(Node { value: 1, next: last });
///
/// let reader = domain.reader();
/// let sum = 'walk: loop {
///     let (mut first, mut second) = (root.protect(&reader), ProtectedLink::null(&reader));
///     let (mut sum, mut current, mut next) = (0, &mut first, &mut second);
///     // SAFETY: `current` was loaded from a link without a mark.
///     while let Some(node) = unsafe { current.as_ref() } {
///         sum += node.value;
///         if next.load(&node.next).tag() == 1 {
///             continue 'walk; // the node is unlinked, and what it links to may be freed
///         }
///         mem::swap(&mut current, &mut next);
///     }
///     break sum;
/// };
/// assert_eq!(sum, 3);
/// # let mut next = unsafe { root.into_owned() };
/// # while let Some(node) = next {
/// #     next = unsafe { node.into_box().next.into_owned() };
/// # }
/// ```
///
/// It cannot outlive its reader. A reference from it cannot outlive it, or its next load:
///
/// ```compile_fail,E0502
/// # let domain = stillpoint::rcu::Domain::new();
/// # let reader = domain.reader();
/// # let (link, other) = (stillpoint::rcu::link::Atomic::<u32>::null(), stillpoint::rcu::link::Atomic::null());
/// let mut protected = link.protect(&reader);
/// let object = unsafe { protected.as_ref() };
/// protected.load(&other);
/// assert_eq!(object, None); // used after the slot has another object
/// ```
/// ```
/// # let domain = stillpoint::rcu::Domain::new();
/// # let reader = domain.reader();
/// # let (link, other) = (stillpoint::rcu::link::Atomic::<u32>::null(), stillpoint::rcu::link::Atomic::null());
/// let mut protected = link.protect(&reader);
/// let object = unsafe { protected.as_ref() };
/// assert_eq!(object, None);
/// protected.load(&other);
/// ```
#[must_use = "the object is protected until this value is dropped"]
pub struct ProtectedLink<'r, T: Pointee + ?Sized> {
    word: *mut (),
    /// Holds the object's address; `None` for null.
    slot: Option<Slot<'r>>,
    reader: &'r Reader,
    _object: PhantomData<*const T>,
}

impl<T: Pointee + ?Sized> Atomic<T> {
    /// Loads the link and protects the object that it points to. If the object that contains this link was linked at that moment,
    /// the protected object is not freed until the result is dropped or loads another link. The result includes the tag: if the
    /// tag is a mark, the containing object was not linked. See the [contract](Atomic#the-contract), rule 5.
    ///
    /// Lock-free: repeats only if the link, or its tag, has changed meanwhile. No fence in the asymmetric mode.
    ///
    /// ```
    /// use stillpoint::rcu::link::Atomic;
    /// use stillpoint::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let reader = domain.reader();
    /// let link = Atomic::new(7);
    /// let object = link.protect(&reader);
    /// // SAFETY: the link is not part of an object, and nothing is retired.
    /// assert_eq!(unsafe { object.as_ref() }, Some(&7));
    /// # drop(object);
    /// # drop(unsafe { link.into_owned() });
    /// ```
    #[inline(always)]
    pub fn protect<'r>(&self, reader: &'r Reader) -> ProtectedLink<'r, T> {
        let mut link = ProtectedLink::null(reader);
        link.load(self);
        link
    }
}

impl<'r, T: Pointee + ?Sized> ProtectedLink<'r, T> {
    /// A protected link that holds null, and occupies no slot.
    ///
    /// ```
    /// use std::sync::atomic::Ordering;
    /// use stillpoint::rcu::link::{Atomic, ProtectedLink, Unprotected};
    /// use stillpoint::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let reader = domain.reader();
    /// let link = Atomic::new(7);
    /// let mut protected = ProtectedLink::null(&reader);
    /// assert!(protected.is_null() && protected.tag() == 0);
    /// protected.load(&link);
    /// assert_eq!(protected.shared(), link.load(Ordering::Relaxed, &Unprotected));
    /// # drop(protected);
    /// # drop(unsafe { link.into_owned() });
    /// ```
    pub fn null(reader: &'r Reader) -> Self {
        Self { word: ptr::null_mut(), slot: None, reader, _object: PhantomData }
    }

    /// Loads a link, as [`Atomic::protect`] does, into the same slot. This value no longer protects what it held before. Returns what
    /// [`shared`](ProtectedLink::shared) returns from now on; a walk that goes on from this result does not wait for this value's memory.
    #[inline(always)]
    pub fn load(&mut self, link: &Atomic<T>) -> Shared<'_, T> {
        self.reader.vouch();
        // Relaxed: this address is not followed.
        let mut word = link.word().load(Ordering::Relaxed);
        if !untagged::<T>(word).is_null() {
            let slot = *self.slot.get_or_insert_with(|| self.reader.free_hazard());
            word = read::protect_word(self.reader.fence(), link.word(), word, &slot, untagged::<T>);
        }
        self.word = word;
        if untagged::<T>(word).is_null() {
            self.release();
        }
        Shared::new(word)
    }

    #[inline(always)]
    fn release(&mut self) {
        if let Some(slot) = self.slot.take() {
            // SAFETY: the slot belongs to this value, and was just taken out of it, so it is released once. The value stays on
            // the thread of its reader.
            unsafe { slot.release() };
        }
    }

    /// What the link held, in the form that exchanges expect.
    ///
    /// ```
    /// use std::sync::atomic::Ordering;
    /// use stillpoint::rcu::link::{Atomic, Shared, Unprotected};
    /// use stillpoint::rcu::Domain;
    ///
    /// # let domain = Domain::new();
    /// # let reader = domain.reader();
    /// let link = Atomic::new(7);
    /// let found = link.protect(&reader);
    /// assert!(!found.is_null());
    /// let (release, relaxed) = (Ordering::Release, Ordering::Relaxed);
    /// link.compare_exchange(found.shared(), Shared::null(), release, relaxed, &Unprotected).expect("no other thread writes");
    /// # // SAFETY: no other thread has the object, and it is no longer linked.
    /// # let object = unsafe { found.shared().into_owned() };
    /// # drop(found);
    /// # drop(object);
    /// ```
    #[inline(always)]
    pub fn shared(&self) -> Shared<'_, T> {
        Shared::new(self.word)
    }

    /// Whether the link held no object, whatever its tag.
    #[inline(always)]
    pub fn is_null(&self) -> bool {
        self.shared().is_null()
    }

    /// The tag of the link.
    #[inline(always)]
    pub fn tag(&self) -> usize {
        self.shared().tag()
    }

    /// The object; `None` for null.
    ///
    /// # Safety
    /// The structure keeps the [contract](Atomic#the-contract), and the reader is of its domain. One of these holds: the loaded
    /// link is a root; or the link has no mark, and is in an object that was protected meanwhile (or kept by a region); or the
    /// caller has since looked at another link, which shows that the object was still linked.
    #[inline(always)]
    pub unsafe fn as_ref(&self) -> Option<&T::Target> {
        // SAFETY: the slot has held the object since a time when it was linked. The confirming load was an acquire.
        unsafe { self.shared().as_ref() }
    }
}

impl<T: Pointee + ?Sized> Drop for ProtectedLink<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.release();
    }
}

impl<T: Pointee + ?Sized> fmt::Debug for ProtectedLink<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = self.shared();
        f.debug_struct("ProtectedLink").field("object", &shared.as_ptr()).field("tag", &shared.tag()).finish()
    }
}
