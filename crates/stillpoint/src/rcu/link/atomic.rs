use std::fmt;
use std::marker::PhantomData;

use super::error::CompareExchangeError;
use super::owned::Owned;
use super::pointee::{tag_of, tagged, untagged, Pointee};
use super::shared::{Linkable, Scope, Shared};
use stillpoint_sys::sync::atomic::{AtomicPtr, Ordering};

/// A link to an object, with a tag in the bits below the object's alignment. One word.
///
/// ```
/// use std::sync::atomic::Ordering;
/// use stillpoint::rcu::link::{Atomic, Owned};
/// use stillpoint::rcu::Domain;
///
/// struct Node {
///     value: u32,
///     next: Atomic<Node>,
/// }
///
/// let domain = Domain::new();
/// let last = Node { value: 2, next: Atomic::null() };
/// let first = Node { value: 1, next: Atomic::new(last) };
/// let root = Atomic::new(first);
///
/// let reader = domain.reader();
/// let guard = reader.pin();
/// let (mut sum, mut link) = (0, &root);
/// // SAFETY: the nodes are not retired before the guard ends, and this thread has linked them.
/// while let Some(node) = unsafe { link.load(Ordering::Acquire, &guard).as_ref() } {
///     sum += node.value;
///     link = &node.next;
/// }
/// assert_eq!(sum, 3);
///
/// // SAFETY: no other thread uses the structure any more.
/// let mut next = unsafe { root.into_owned() };
/// while let Some(node) = next {
///     // SAFETY: no other thread uses the rest of it, either.
///     next = unsafe { node.into_box().next.into_owned() };
/// }
/// ```
///
/// A link owns nothing: the object is freed by the code that retires it, and dropping a link does not drop the object. A link does
/// not know its domain. Methods take the orderings of atomics, and a [`Scope`]: the region in which the result may be followed, or
/// [`Unprotected`](super::Unprotected).
///
/// # The contract
///
/// Loading and exchanging links is safe; following a link is not. A structure keeps these rules:
///
/// 1. **One domain.** Every thread that follows its links uses a reader of the domain that its objects are retired to.
/// 2. **Unlinked, then retired, once.** An object is retired by the thread that changed the last link that led to it from a linked
///    object. If other threads changed other such links, their changes happen before that one. The object is never linked again, and
///    nothing else frees it.
/// 3. **Published and followed.** An object is linked by a release operation. A link that is followed was loaded by an acquire
///    operation. An exchange that follows what it found is an acquire on failure as well.
///
/// Under a [`Guard`](crate::rcu::Guard) or a [`QsbrReader`](crate::rcu::QsbrReader), one more rule is enough. With it, what is
/// reached from the structure's root within the region may be followed until the region ends, even if it was unlinked meanwhile:
///
/// 4. **What an unlinked object links to is not unlinked before that object.** Once an object is unlinked, its links do not
///    change any more.
///
/// If objects are protected one by one, with [`protect`](Atomic::protect), the link must show that the object that contains it
/// was still linked:
///
/// 5. **Marked before it is unlinked.** Each link of an object gets a tag permanently before the object is unlinked, and does
///    not change from then on. A walker that meets a mark does not follow this link: it starts again at the root, or unlinks the
///    object itself. (Instead of a mark, another link may show that the object is still linked: the walker looks at that link after
///    it has protected the object, as dequeuers of a queue look at its head again.)
pub struct Atomic<T: Pointee + ?Sized> {
    word: AtomicPtr<()>,
    _object: PhantomData<*mut T>,
}

// SAFETY: a thread that has a link may get a reference to the object, and may free the object. So the object must be `Sync`
// and `Send`. The link itself is an atomic.
unsafe impl<T: Pointee + Send + Sync + ?Sized> Send for Atomic<T> {}
// SAFETY: as for `Send`, references to the object, and the object itself, may get to any thread.
unsafe impl<T: Pointee + Send + Sync + ?Sized> Sync for Atomic<T> {}
// As for atomic pointers: only `unsafe` code, which follows the link, can see a state that a panic has interrupted.
impl<T: Pointee + ?Sized> std::panic::UnwindSafe for Atomic<T> {}
impl<T: Pointee + ?Sized> std::panic::RefUnwindSafe for Atomic<T> {}

impl<T> Atomic<T> {
    /// A link to a new object with this value. Allocates.
    pub fn new(value: T) -> Self {
        Self::from(Owned::new(value))
    }
}

impl<T: Pointee + ?Sized> Atomic<T> {
    /// A link to nothing.
    #[cfg(not(stillpoint_loom))]
    pub const fn null() -> Self {
        Self { word: AtomicPtr::new(std::ptr::null_mut()), _object: PhantomData }
    }

    /// A link to nothing. Not `const`: loom's atomics have no constant constructors.
    #[cfg(stillpoint_loom)]
    pub fn null() -> Self {
        Self::with(std::ptr::null_mut())
    }

    fn with(word: *mut ()) -> Self {
        Self { word: AtomicPtr::new(word), _object: PhantomData }
    }

    /// What the link points to now.
    ///
    /// # Panics
    /// If `order` is a release.
    #[inline(always)]
    pub fn load<'g, S: Scope>(&self, order: Ordering, _scope: &'g S) -> Shared<'g, T> {
        Shared::new(self.word.load(order))
    }

    /// Sets the link. The object that it held is neither returned nor freed.
    ///
    /// ```
    /// use std::sync::atomic::Ordering;
    /// use stillpoint::rcu::link::{Atomic, Owned};
    ///
    /// let mut link = Atomic::null();
    /// link.store(Owned::new(7), Ordering::Release);
    /// // SAFETY: no other thread uses the link.
    /// assert_eq!(unsafe { link.take_owned() }.as_deref(), Some(&7));
    /// ```
    ///
    /// # Panics
    /// If `order` is an acquire.
    #[inline(always)]
    pub fn store(&self, new: impl Linkable<T>, order: Ordering) {
        self.word.store(new.into_word(), order);
    }

    /// Sets the link, and returns what it held.
    #[inline(always)]
    pub fn swap<'g, S: Scope>(&self, new: impl Linkable<T>, order: Ordering, _scope: &'g S) -> Shared<'g, T> {
        Shared::new(self.word.swap(new.into_word(), order))
    }

    /// Sets the link to `new` if it holds `current`, including the tag, and returns what was set.
    ///
    /// Addresses are compared: if `current` was freed meanwhile, another object may be at its address.
    ///
    /// # Errors
    /// If the link holds something else. The error has what the link holds, and hands back `new`.
    ///
    /// # Panics
    /// If `failure` is a release.
    ///
    /// ```
    /// use std::sync::atomic::Ordering::{AcqRel, Acquire};
    /// use stillpoint::rcu::link::{Atomic, Owned, Shared, Unprotected};
    ///
    /// let link = Atomic::new(1);
    /// let error = link
    ///     .compare_exchange(Shared::null(), Owned::new(2), AcqRel, Acquire, &Unprotected)
    ///     .expect_err("the link is not null");
    /// // SAFETY: no other thread uses the link.
    /// assert_eq!(unsafe { error.found.as_ref() }, Some(&1));
    /// assert_eq!(*error.new, 2);
    /// # drop(unsafe { link.into_owned() });
    /// ```
    #[inline(always)]
    pub fn compare_exchange<'g, P: Linkable<T>, S: Scope>(
        &self,
        current: Shared<'_, T>,
        new: P,
        success: Ordering,
        failure: Ordering,
        _scope: &'g S,
    ) -> Result<Shared<'g, T>, CompareExchangeError<P, Shared<'g, T>>> {
        let new = new.into_word();
        let answer = self.word.compare_exchange(current.word(), new, success, failure);
        // SAFETY: the word came from `into_word` above, and is linked only if the exchange took place.
        unsafe { exchanged(answer, new) }
    }

    /// As [`compare_exchange`](Atomic::compare_exchange), but may fail although the link holds `current`. For loops: on some
    /// processors it is cheaper.
    ///
    /// ```
    /// use std::sync::atomic::Ordering::{Relaxed, Release};
    /// use stillpoint::rcu::link::{Atomic, Owned, ProtectedLink};
    /// use stillpoint::rcu::Domain;
    ///
    /// let domain = Domain::new();
    /// let reader = domain.reader();
    /// let link = Atomic::<u32>::null();
    /// let (mut new, mut found) = (Owned::new(7), ProtectedLink::null(&reader));
    /// loop {
    ///     found.load(&link);
    ///     match link.compare_exchange_weak(found.shared(), new, Release, Relaxed, &reader.pin()) {
    ///         Ok(_) => break,
    ///         Err(error) => new = error.new,
    ///     }
    /// }
    /// # drop(found);
    /// // SAFETY: no other thread uses the link.
    /// assert_eq!(unsafe { link.into_owned() }.as_deref(), Some(&7));
    /// ```
    ///
    /// # Errors
    /// As [`compare_exchange`](Atomic::compare_exchange).
    ///
    /// # Panics
    /// As [`compare_exchange`](Atomic::compare_exchange).
    #[inline(always)]
    pub fn compare_exchange_weak<'g, P: Linkable<T>, S: Scope>(
        &self,
        current: Shared<'_, T>,
        new: P,
        success: Ordering,
        failure: Ordering,
        _scope: &'g S,
    ) -> Result<Shared<'g, T>, CompareExchangeError<P, Shared<'g, T>>> {
        let new = new.into_word();
        let answer = self.word.compare_exchange_weak(current.word(), new, success, failure);
        // SAFETY: the word came from `into_word` above, and is linked only if the exchange took place.
        unsafe { exchanged(answer, new) }
    }

    /// Sets these bits of the tag, and returns what the link held before. Lock-free.
    ///
    /// It uses exchanges that compare addresses. So the caller must keep the object that the link holds protected meanwhile, in a
    /// region or by a [`ProtectedLink`](super::ProtectedLink), or have exclusive use of the structure. Otherwise another object may be at the address
    /// by then, and the link would be set to a pointer that was made from the freed object.
    ///
    /// ```
    /// use std::sync::atomic::Ordering;
    /// use stillpoint::rcu::link::{Atomic, Unprotected};
    ///
    /// let link = Atomic::<u32>::null();
    /// assert_eq!(link.fetch_or(1, Ordering::AcqRel, &Unprotected).tag(), 0);
    /// assert_eq!(link.fetch_or(2, Ordering::AcqRel, &Unprotected).tag(), 1);
    /// assert_eq!(link.fetch_or(0, Ordering::AcqRel, &Unprotected).tag(), 3);
    /// ```
    pub fn fetch_or<'g, S: Scope>(&self, tag: usize, order: Ordering, _scope: &'g S) -> Shared<'g, T> {
        // It exchanges the pointer instead of operating on an integer: an integer would lose the pointer's provenance.
        // Relaxed: only what the exchange finds counts.
        let mut found = self.word.load(Ordering::Relaxed);
        loop {
            let new = tagged::<T>(found, tag_of::<T>(found) | tag);
            match self.word.compare_exchange_weak(found, new, order, Ordering::Relaxed) {
                Ok(before) => return Shared::new(before),
                Err(now) => found = now,
            }
        }
    }

    /// Takes the object out of the link; `None` if the link was null. Leaves a null link without a tag.
    ///
    /// ```
    /// use stillpoint::rcu::link::Atomic;
    ///
    /// let mut link = Atomic::new(7);
    /// // SAFETY: no other thread uses the link.
    /// assert_eq!(unsafe { link.take_owned() }.as_deref(), Some(&7));
    /// assert!(unsafe { link.take_owned() }.is_none());
    /// ```
    ///
    /// # Safety
    /// As for [`Shared::into_owned`].
    pub unsafe fn take_owned(&mut self) -> Option<Owned<T>> {
        // Acquire: pairs with the release by which the object was linked.
        let word = untagged::<T>(self.word.swap(std::ptr::null_mut(), Ordering::Acquire));
        // SAFETY: no other thread has access to the object, by the caller's promise.
        unsafe { Shared::new(word).into_owned() }
    }

    /// Turns the link into its object; `None` if the link is null.
    ///
    /// # Safety
    /// As for [`Shared::into_owned`].
    pub unsafe fn into_owned(mut self) -> Option<Owned<T>> {
        // SAFETY: no other thread has access to the object, by the caller's promise.
        unsafe { self.take_owned() }
    }

    /// For protected loads.
    #[inline(always)]
    pub(super) fn word(&self) -> &AtomicPtr<()> {
        &self.word
    }
}

impl<T: Pointee + ?Sized> Default for Atomic<T> {
    fn default() -> Self {
        Self::null()
    }
}

impl<T: Pointee + ?Sized> From<Owned<T>> for Atomic<T> {
    fn from(object: Owned<T>) -> Self {
        Self::with(object.into_raw())
    }
}

impl<T: Pointee + ?Sized> From<Shared<'_, T>> for Atomic<T> {
    fn from(shared: Shared<'_, T>) -> Self {
        Self::with(shared.word())
    }
}

/// Converts the result of an exchange of words into links.
///
/// # Safety
/// `new` came from `into_word` of a value that is gone. It is not linked if the exchange failed.
#[inline(always)]
unsafe fn exchanged<'g, T: Pointee + ?Sized, P: Linkable<T>>(
    answer: Result<*mut (), *mut ()>,
    new: *mut (),
) -> Result<Shared<'g, T>, CompareExchangeError<P, Shared<'g, T>>> {
    match answer {
        Ok(_) => Ok(Shared::new(new)),
        Err(found) => Err(CompareExchangeError {
            // SAFETY: the word came from `into_word`, and the exchange failed, so it is not linked.
            new: unsafe { P::from_word(new) },
            found: Shared::new(found),
        }),
    }
}

impl<T: Pointee + ?Sized> fmt::Debug for Atomic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: not followed.
        let shared = Shared::<T>::new(self.word.load(Ordering::Relaxed));
        f.debug_struct("Atomic").field("object", &shared.as_ptr()).field("tag", &shared.tag()).finish()
    }
}
