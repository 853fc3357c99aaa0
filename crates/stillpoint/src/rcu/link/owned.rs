use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use super::pointee::{tag_of, tagged, untagged, Pointee};

/// An object that is not linked yet, with a tag. Like a box, it has a single owner. It takes one word.
///
/// ```
/// use std::sync::atomic::Ordering;
/// use stillpoint::rcu::link::{Atomic, Owned, Shared, Unprotected};
///
/// let link = Atomic::null();
/// let mut new = Owned::new(1).with_tag(1);
/// *new += 1;
/// let linked = link
///     .compare_exchange(Shared::null(), new, Ordering::Release, Ordering::Relaxed, &Unprotected)
///     .expect("the link is null");
/// assert_eq!(linked.tag(), 1);
/// // SAFETY: no other thread uses the link.
/// let owned = unsafe { link.into_owned() }.expect("it is not null");
/// assert_eq!(*owned.into_box(), 2);
/// ```
pub struct Owned<T: Pointee + ?Sized> {
    /// Its address is not null.
    word: *mut (),
    _object: PhantomData<Box<T>>,
}

// SAFETY: it owns its object like a box.
unsafe impl<T: Pointee + Send + ?Sized> Send for Owned<T> {}
// SAFETY: a shared `Owned` gives only shared access.
unsafe impl<T: Pointee + Sync + ?Sized> Sync for Owned<T> {}

impl<T> Owned<T> {
    /// An object with this value. Allocates.
    pub fn new(value: T) -> Self {
        Self::init(value)
    }

    /// The box that the object is in. The tag is lost.
    pub fn into_box(self) -> Box<T> {
        // SAFETY: the object came from a box (`Pointee::init`), and passes to the caller.
        unsafe { Box::from_raw(untagged::<T>(self.into_raw()).cast()) }
    }
}

impl<T: Pointee + ?Sized> Owned<T> {
    /// An object made from `init`. A slice is made from a vector, whose elements are moved.
    ///
    /// ```
    /// use stillpoint::rcu::link::Owned;
    ///
    /// assert_eq!(Owned::<[u32]>::init(vec![1, 2, 3]).len(), 3);
    /// ```
    pub fn init(init: T::Init) -> Self {
        // SAFETY: `T::init` has made the object just now, and this value owns it.
        unsafe { Self::from_raw(T::init(init).as_ptr()) }
    }

    /// # Safety
    /// The address is not null. It is that of an object from `T::init`, which the caller owns.
    pub(super) unsafe fn from_raw(word: *mut ()) -> Self {
        Self { word, _object: PhantomData }
    }

    pub(super) fn into_raw(self) -> *mut () {
        ManuallyDrop::new(self).word
    }

    fn object(&self) -> NonNull<()> {
        // SAFETY: the address of an owned object is not null.
        unsafe { NonNull::new_unchecked(untagged::<T>(self.word)) }
    }

    /// The bits below the alignment.
    pub fn tag(&self) -> usize {
        tag_of::<T>(self.word)
    }

    /// The same object with another tag. Bits that do not fit below the alignment are ignored.
    #[must_use]
    pub fn with_tag(self, tag: usize) -> Self {
        let word = tagged::<T>(self.into_raw(), tag);
        // SAFETY: the object was owned by `self`, which no longer exists.
        unsafe { Self::from_raw(word) }
    }
}

impl<T: Pointee + ?Sized> Deref for Owned<T> {
    type Target = T::Target;

    fn deref(&self) -> &T::Target {
        // SAFETY: this value owns the object, which is borrowed together with it.
        unsafe { T::target(self.object()) }
    }
}

impl<T> DerefMut for Owned<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this value owns the object, which is in a box and is borrowed together with this value.
        unsafe { self.object().cast().as_mut() }
    }
}

impl<T: Pointee + ?Sized> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: this value owns the object, which was not linked.
        unsafe { T::drop(self.object()) };
    }
}

impl<T> From<Box<T>> for Owned<T> {
    fn from(object: Box<T>) -> Self {
        // SAFETY: it is what `Pointee::init` makes of a value.
        unsafe { Self::from_raw(Box::into_raw(object).cast()) }
    }
}

impl<T> From<Vec<T>> for Owned<[T]> {
    fn from(elements: Vec<T>) -> Self {
        Self::init(elements)
    }
}

impl<T: Pointee + ?Sized> fmt::Debug for Owned<T>
where
    T::Target: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owned").field("object", &&**self).field("tag", &self.tag()).finish()
    }
}
