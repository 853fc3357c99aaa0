//! [`BoundArray`]: an array and one reader of it, whose domains were compared once.
//!
//! A load from an [`RcuArray`] checks that the reader is of the array's domain, and looks for a hazard slot. In a loop of many loads,
//! do both once: [`RcuArray::bind`] borrows a reader for the array, and each load is then only what the protocol needs.
//!
//! ```
//! use stillpoint::rcu::{Domain, RcuArray};
//!
//! let domain = Domain::new();
//! let routes = RcuArray::new_in(&domain, 256, |index| (index % 2 == 0).then(|| Box::new(index)));
//! let mut reader = domain.reader(); // one for each thread, kept
//!
//! let mut routes = routes.bind(&mut reader); // the domains are compared here
//! let even = (0..256).filter(|&index| routes.protect(index).is_some()).count();
//! assert_eq!(even, 128);
//! ```
//!
//! | type | made by | keeps alive |
//! |---|---|---|
//! | [`BoundArray`] | [`RcuArray::bind`], [`RcuArray::bind_qsbr`] | what each load holds; with a QSBR reader, everything until its next quiescent state |
//! | [`ArrayGuard`] | [`BoundArray::pin`] | everything that is retired while it lives |

use std::marker::PhantomData;

use super::array::RcuArray;
use super::engine::core::record::Record;
use super::engine::Core;
use super::link::owning::OwningLink;
use super::qsbr::QsbrReader;
use super::reader::{Protected, Reader};
use super::region::{sealed::Sealed, Region};
use crate::fence::ReaderFence;

/// An [`RcuArray`] as one reader sees it: made by [`RcuArray::bind`] or [`RcuArray::bind_qsbr`].
///
/// It has exclusive use of the reader, and hands out one protected object, or one guard, at a time. So a load does not
/// check the domain, look for a hazard slot, or count guards. Only the two stores and the
/// second load that the protocol needs remain. In a loop that is limited by cache misses, each instruction saved lets
/// the processor look further ahead.
pub struct BoundArray<'a, T: Send + Sync + 'static, R = Reader> {
    pub(super) links: &'a [OwningLink<T>],
    pub(super) record: &'a Record,
    pub(super) core: &'a Core,
    pub(super) fence: ReaderFence,
    /// Confines the value to the reader's thread.
    pub(super) reader: PhantomData<(&'a mut Reader, R)>,
}

impl<T: Send + Sync + 'static> RcuArray<T> {
    /// Binds a reader to the array. The domain is checked here, not at each load.
    ///
    /// # Panics
    /// If `reader` belongs to another domain.
    ///
    /// ```
    /// use stillpoint::rcu::{Domain, RcuArray};
    ///
    /// let domain = Domain::new();
    /// let squares = RcuArray::new_in(&domain, 10, |index| Some(Box::new(index * index)));
    /// let mut reader = domain.reader();
    /// let mut squares = squares.bind(&mut reader);
    /// assert_eq!(squares.protect(3).as_deref(), Some(&9));
    /// let guard = squares.pin();
    /// assert_eq!((guard.load(4), guard.load(5)), (Some(&16), Some(&25)));
    /// ```
    #[track_caller]
    pub fn bind<'a>(&'a self, reader: &'a mut Reader) -> BoundArray<'a, T> {
        self.domain.verify(reader.core());
        reader.vouch();
        BoundArray {
            links: &self.links,
            record: reader.record(),
            core: reader.core(),
            fence: reader.fence(),
            reader: PhantomData,
        }
    }

    /// As [`bind`](RcuArray::bind), for a QSBR reader.
    ///
    /// # Panics
    /// If `reader` belongs to another domain.
    ///
    /// ```
    /// use stillpoint::rcu::{Domain, RcuArray};
    ///
    /// let domain = Domain::new();
    /// let squares = RcuArray::new_in(&domain, 10, |index| Some(Box::new(index * index)));
    /// let mut reader = domain.qsbr_reader();
    /// let mut squares = squares.bind_qsbr(&mut reader);
    /// for index in 0..10 {
    ///     assert_eq!(squares.load(index), Some(&(index * index)));
    ///     squares.quiescent();
    /// }
    /// ```
    #[track_caller]
    pub fn bind_qsbr<'a>(&'a self, reader: &'a mut QsbrReader) -> BoundArray<'a, T, QsbrReader> {
        self.domain.verify(reader.core());
        BoundArray {
            links: &self.links,
            record: reader.record(),
            core: reader.core(),
            fence: ReaderFence::Light,
            reader: PhantomData,
        }
    }
}

impl<T: Send + Sync + 'static> BoundArray<'_, T> {
    /// Loads and protects the object at `index`, as [`RcuCell::protect`](super::RcuCell::protect) does.
    ///
    /// # Panics
    /// If `index` is out of bounds.
    #[inline(always)]
    #[track_caller]
    pub fn protect(&mut self, index: usize) -> Option<Protected<'_, T>> {
        let (link, record) = (&self.links[index], self.record);
        self.core.protocol.vouch(record);
        // SAFETY: `bind` checked the domain. This value borrows the reader exclusively, and the result borrows this value, so
        // the slot is used for nothing else.
        unsafe { link.protect_in(self.fence, || record.exclusive_hazard()) }
    }

    /// Begins a region, as [`Reader::pin`](super::Reader::pin) does. If the previous guard was forgotten, its region ends here, but a future
    /// that waits for that is woken only when the new region ends.
    #[inline(always)]
    pub fn pin(&mut self) -> ArrayGuard<'_, T> {
        self.core.protocol.enter(self.fence, self.record);
        ArrayGuard { array: self }
    }
}

stillpoint_sys::debug!([T: Send + Sync + 'static, R] |this| BoundArray<'_, T, R> {
    domain: this.core.name(), ..
});

/// A region in which an array is read, made by [`BoundArray::pin`]. It is also a region for other cells of the domain.
#[must_use = "the region ends when the guard is dropped"]
pub struct ArrayGuard<'g, T: Send + Sync + 'static> {
    array: &'g BoundArray<'g, T>,
}

impl<T: Send + Sync + 'static> ArrayGuard<'_, T> {
    /// Loads the object at `index`. Costs one acquire load.
    ///
    /// # Panics
    /// If `index` is out of bounds.
    #[inline(always)]
    #[track_caller]
    pub fn load(&self, index: usize) -> Option<&T> {
        // SAFETY: `bind` checked the domain.
        unsafe { self.array.links[index].load_in(self) }
    }
}

impl<T: Send + Sync + 'static> Drop for ArrayGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.array.core.leave(self.array.record);
    }
}

impl<T: Send + Sync + 'static> Region for ArrayGuard<'_, T> {}

// SAFETY: the record publishes the token of `pin` until the guard is dropped. The array borrows the reader exclusively,
// and the guard borrows the array, so there is no other guard.
unsafe impl<T: Send + Sync + 'static> Sealed for ArrayGuard<'_, T> {
    #[inline(always)]
    fn core(&self) -> &Core {
        self.array.core
    }
}

stillpoint_sys::debug!([T: Send + Sync + 'static] |this| ArrayGuard<'_, T> {
    domain: this.array.core.name(), ..
});

impl<T: Send + Sync + 'static> BoundArray<'_, T, QsbrReader> {
    /// Loads the object at `index`. Costs one acquire load.
    ///
    /// # Panics
    /// If `index` is out of bounds.
    #[inline(always)]
    #[track_caller]
    pub fn load(&self, index: usize) -> Option<&T> {
        // SAFETY: `bind_qsbr` checked the domain.
        unsafe { self.links[index].load_in(self) }
    }

    /// Reports a quiescent state, as [`QsbrReader::quiescent`](super::QsbrReader::quiescent) does.
    #[inline(always)]
    pub fn quiescent(&mut self) {
        self.core.report(self.record);
    }

    /// Runs `function` in an extended quiescent state, as [`QsbrReader::offline`](super::QsbrReader::offline) does.
    pub fn offline<R>(&mut self, function: impl FnOnce() -> R) -> R {
        self.core.while_offline(self.record, function)
    }
}

impl<T: Send + Sync + 'static> Region for BoundArray<'_, T, QsbrReader> {}

// SAFETY: this value borrows the `QsbrReader` exclusively. The reader's record publishes a token, and every method that changes
// the token takes this value exclusively.
unsafe impl<T: Send + Sync + 'static> Sealed for BoundArray<'_, T, QsbrReader> {
    #[inline(always)]
    fn core(&self) -> &Core {
        self.core
    }
}
