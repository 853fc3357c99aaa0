use std::borrow::{Borrow, BorrowMut};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use crate::pointable::{Pointable, Pointer};
use crate::word;

/// An object on the heap that is not linked: a `Box` whose pointer has a tag.
///
/// ```
/// use stillpoint_epoch::Owned;
///
/// let mut list = Owned::new(vec![1, 2]).with_tag(1);
/// list.push(3);
/// assert_eq!((list.len(), list.tag()), (3, 1));
/// ```
///
/// The address is aligned for the object, so its lower bits are 0. The tag is in these bits.
pub struct Owned<T: ?Sized + Pointable> {
    word: usize,
    _object: PhantomData<Box<T>>,
}

impl<T: ?Sized + Pointable> Pointer<T> for Owned<T> {
    #[inline]
    fn into_usize(self) -> usize {
        ManuallyDrop::new(self).word
    }

    /// # Panics
    /// With debug assertions, if the word is 0.
    #[inline]
    unsafe fn from_usize(data: usize) -> Self {
        debug_assert_ne!(data, 0, "a null pointer has no object to own");
        Self { word: data, _object: PhantomData }
    }
}

impl<T> Owned<T> {
    /// Moves an object to the heap.
    ///
    /// ```
    /// use stillpoint_epoch::Owned;
    ///
    /// assert_eq!(*Owned::new(7), 7);
    /// ```
    pub fn new(init: T) -> Owned<T> {
        Self::init(init)
    }

    /// Takes ownership of the object behind a raw pointer. The tag is 0.
    ///
    /// ```
    /// use stillpoint_epoch::Owned;
    ///
    /// let raw = Box::into_raw(Box::new(7));
    /// // SAFETY: the pointer came from a box, and is owned once.
    /// assert_eq!(*unsafe { Owned::from_raw(raw) }, 7);
    /// ```
    ///
    /// # Panics
    /// If the pointer is not aligned.
    ///
    /// # Safety
    /// The pointer came from a `Box` or an `Owned` that has given up its object. Nothing else owns the object.
    pub unsafe fn from_raw(raw: *mut T) -> Owned<T> {
        let word = word::of_pointer(raw);
        // SAFETY: the pointer came from a `Box` or an `Owned` that has given up its object, and nothing else owns the
        // object, by the caller's promise.
        unsafe { Self::from_usize(word) }
    }

    /// The object as a `Box`. The tag is lost.
    ///
    /// ```
    /// use stillpoint_epoch::Owned;
    ///
    /// let boxed: Box<u64> = Owned::new(7).with_tag(1).into_box();
    /// assert_eq!(*boxed, 7);
    /// ```
    pub fn into_box(self) -> Box<T> {
        let raw = word::pointer(self.into_usize());
        // SAFETY: the object came from a box, and `self` has given it up.
        unsafe { Box::from_raw(raw) }
    }
}

impl<T: ?Sized + Pointable> Owned<T> {
    /// Makes an object on the heap. The argument is what the type is made from: see [`Pointable::Init`].
    ///
    /// ```
    /// use std::mem::MaybeUninit;
    /// use stillpoint_epoch::Owned;
    ///
    /// assert_eq!(*Owned::<u64>::init(7), 7);
    /// assert_eq!(Owned::<[MaybeUninit<u64>]>::init(7).len(), 7);
    /// ```
    pub fn init(init: T::Init) -> Owned<T> {
        // SAFETY: only the returned value owns the object.
        unsafe { Self::from_usize(T::init(init)) }
    }

    /// The tag.
    ///
    /// ```
    /// use stillpoint_epoch::Owned;
    ///
    /// assert_eq!(Owned::new(7).tag(), 0);
    /// ```
    pub fn tag(&self) -> usize {
        word::tag::<T>(self.word)
    }

    /// The same object with another tag. Bits of the tag that the alignment leaves no room for are dropped.
    ///
    /// ```
    /// use stillpoint_epoch::Owned;
    ///
    /// let owned = Owned::new(7_u64).with_tag(5);
    /// assert_eq!(owned.tag(), 5);
    /// assert_eq!(owned.with_tag(8).tag(), 0);
    /// ```
    pub fn with_tag(self, tag: usize) -> Owned<T> {
        let word = word::with_tag::<T>(self.into_usize(), tag);
        // SAFETY: the word is that of the same object, which `self` has given up.
        unsafe { Self::from_usize(word) }
    }
}

impl<T: ?Sized + Pointable> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: this value owns the object.
        unsafe { T::drop(word::address::<T>(self.word)) };
    }
}

impl<T: ?Sized + Pointable> Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this value owns the object, and is borrowed.
        unsafe { T::deref(word::address::<T>(self.word)) }
    }
}

impl<T: ?Sized + Pointable> DerefMut for Owned<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this value owns the object, and is borrowed exclusively.
        unsafe { T::deref_mut(word::address::<T>(self.word)) }
    }
}

/// A copy of the object, with the same tag.
impl<T: Clone> Clone for Owned<T> {
    fn clone(&self) -> Self {
        Owned::new(T::clone(self)).with_tag(self.tag())
    }
}

impl<T> From<T> for Owned<T> {
    fn from(t: T) -> Self {
        Owned::new(t)
    }
}

impl<T> From<Box<T>> for Owned<T> {
    /// The object of a `Box`. It stays at its address.
    ///
    /// ```
    /// use stillpoint_epoch::Owned;
    ///
    /// let owned: Owned<u64> = Owned::from(Box::new(7));
    /// assert_eq!(*owned, 7);
    /// ```
    fn from(b: Box<T>) -> Self {
        // SAFETY: the box has given up its object.
        unsafe { Self::from_raw(Box::into_raw(b)) }
    }
}

impl<T: ?Sized + Pointable> Borrow<T> for Owned<T> {
    fn borrow(&self) -> &T {
        self
    }
}

impl<T: ?Sized + Pointable> BorrowMut<T> for Owned<T> {
    fn borrow_mut(&mut self) -> &mut T {
        self
    }
}

impl<T: ?Sized + Pointable> AsRef<T> for Owned<T> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<T: ?Sized + Pointable> AsMut<T> for Owned<T> {
    fn as_mut(&mut self) -> &mut T {
        self
    }
}

impl<T: ?Sized + Pointable> fmt::Debug for Owned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        word::debug::<T>("Owned", self.word, f)
    }
}
