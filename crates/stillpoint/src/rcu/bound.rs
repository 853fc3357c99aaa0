use std::fmt;
use std::marker::PhantomData;

use super::engine::core::record::Record;
use super::engine::Core;
use super::link::Link;
use super::qsbr::QsbrReader;
use super::reader::{Protected, Reader};
use super::region::{sealed::Sealed, Region};
use crate::fence::ReaderFence;

/// An [`RcuArray`](super::RcuArray) as one reader sees it: made by [`RcuArray::bind`](super::RcuArray::bind).
///
/// It has the reader to itself, and hands out one protected object, or one guard, at a time. So a load neither
/// checks the domain, nor looks for a hazard slot, nor counts guards: what is left are the two stores and the
/// second load that the protocol needs. In a loop whose pace is set by cache misses each instruction less lets
/// the processor look further ahead.
pub struct BoundArray<'a, T: Send + Sync + 'static> {
    pub(super) links: &'a [Link<T>],
    pub(super) record: &'a Record,
    pub(super) core: &'a Core,
    pub(super) fence: ReaderFence,
    pub(super) reader: PhantomData<&'a mut Reader>,
}

impl<T: Send + Sync + 'static> BoundArray<'_, T> {
    /// Loads and pins the object at `index`, as [`RcuCell::protect`](super::RcuCell::protect) does.
    ///
    /// # Panics
    /// If `index` is out of bounds.
    #[inline(always)]
    pub fn protect(&mut self, index: usize) -> Option<Protected<'_, T>> {
        let (link, record) = (&self.links[index], self.record);
        // SAFETY: `bind` checked the domain, and this value has the reader to itself, as has the result this
        // value: the first slot is used for nothing else.
        unsafe { link.protect_in(self.fence, || record.first_hazard()) }
    }

    /// Begins a region, as [`Reader::pin`](super::Reader::pin) does.
    #[inline(always)]
    pub fn pin(&mut self) -> ArrayGuard<'_, T> {
        self.core.enter(self.fence, self.record);
        ArrayGuard { array: self }
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for BoundArray<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundArray").field("domain", &self.core.name()).finish_non_exhaustive()
    }
}

/// A region in which a [`BoundArray`] is read. It serves as a region for other cells of the domain, too.
#[must_use = "the region ends when the guard is dropped"]
pub struct ArrayGuard<'g, T: Send + Sync + 'static> {
    array: &'g BoundArray<'g, T>,
}

impl<T: Send + Sync + 'static> ArrayGuard<'_, T> {
    /// Loads the object at `index`. One acquire load.
    ///
    /// # Panics
    /// If `index` is out of bounds.
    #[inline(always)]
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

// SAFETY: the record publishes the token of `pin` until the guard is dropped: the array has the reader to itself,
// and the guard has the array, so that there is no other guard.
unsafe impl<T: Send + Sync + 'static> Sealed for ArrayGuard<'_, T> {
    #[inline(always)]
    fn core(&self) -> &Core {
        self.array.core
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for ArrayGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrayGuard").field("domain", &self.array.core.name()).finish_non_exhaustive()
    }
}

/// An [`RcuArray`](super::RcuArray) as a QSBR reader sees it: made by
/// [`RcuArray::bind_qsbr`](super::RcuArray::bind_qsbr).
pub struct QsbrBoundArray<'a, T: Send + Sync + 'static> {
    pub(super) links: &'a [Link<T>],
    pub(super) record: &'a Record,
    pub(super) core: &'a Core,
    pub(super) reader: PhantomData<&'a mut QsbrReader>,
}

impl<T: Send + Sync + 'static> QsbrBoundArray<'_, T> {
    /// Loads the object at `index`. One acquire load.
    ///
    /// # Panics
    /// If `index` is out of bounds.
    #[inline(always)]
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

impl<T: Send + Sync + 'static> Region for QsbrBoundArray<'_, T> {}

// SAFETY: as for `QsbrReader`, which this value has to itself: its record publishes a token, and whatever changes it
// takes the value exclusively.
unsafe impl<T: Send + Sync + 'static> Sealed for QsbrBoundArray<'_, T> {
    #[inline(always)]
    fn core(&self) -> &Core {
        self.core
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for QsbrBoundArray<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QsbrBoundArray").field("domain", &self.core.name()).finish_non_exhaustive()
    }
}
