//! Arrays of zeroed memory.

use std::ops::Range;
use std::ptr::NonNull;

pub(crate) use memory::{discard, Mapping};

/// # Safety
/// Zeroed memory is a valid value, and the type needs no drop.
pub(crate) unsafe trait Zeroed: Sized {
    /// The same value for a model, whose atomics need their constructors.
    #[cfg(stillpoint_loom)]
    fn zeroed() -> Self;
}

// SAFETY: it has the layout of its integer, for which zero is valid.
unsafe impl Zeroed for stillpoint_sys::sync::atomic::AtomicU32 {
    #[cfg(stillpoint_loom)]
    fn zeroed() -> Self {
        Self::new(0)
    }
}

/// When the kernel allocates the pages of a slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    /// At first use, as small pages: the kernel takes milliseconds to clear a huge page.
    Lazily,
    /// Now, as huge pages where the kernel has some.
    Now,
}

/// An owned array.
#[derive(Debug)]
pub(crate) struct Slab<T: Zeroed> {
    start: NonNull<T>,
    len: usize,
}

// SAFETY: a slab owns its values like a boxed slice.
unsafe impl<T: Zeroed + Send> Send for Slab<T> {}
// SAFETY: a slab owns its values like a boxed slice; a shared slab gives only shared access.
unsafe impl<T: Zeroed + Sync> Sync for Slab<T> {}

impl<T: Zeroed> Slab<T> {
    /// `len` zeroed values, at least one; `None` when there is no memory for them.
    pub(crate) fn new(len: usize, touch: Touch) -> Option<Self> {
        assert!(len > 0 && size_of::<T>() > 0, "a slab has bytes");
        Some(Self { start: memory::allocate(len, touch)?, len })
    }

    /// # Safety
    /// Start and length are those of a slab that was forgotten.
    pub(crate) unsafe fn from_raw(start: *mut T, len: usize) -> Self {
        // SAFETY: slabs do not start at null.
        Self { start: unsafe { NonNull::new_unchecked(start) }, len }
    }

    #[inline(always)]
    pub(crate) fn start(&self) -> *mut T {
        self.start.as_ptr()
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The slab's pages, if it was mapped. A smaller slab, from the allocator, is freed. Nothing refers to the values
    /// any more.
    pub(crate) fn into_mapping(self) -> Option<Mapping> {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: the start is from `allocate` with the same length. The slab is not dropped, and nothing refers to the
        // values.
        unsafe { memory::into_mapping(this.start, this.len) }
    }

    /// The size of a huge page.
    pub(crate) const BLOCK: usize = 2 << 20;

    /// The parts of the slab that lie between multiples of [`BLOCK`](Slab::BLOCK) in memory, as ranges of bytes. None if it is not mapped.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Range<usize>> {
        let bytes = if memory::is_mapped::<T>(self.len) { self.len * size_of::<T>() } else { 0 };
        let first = self.start.as_ptr().addr().wrapping_neg() % Self::BLOCK;
        let starts = (first..bytes).step_by(Self::BLOCK);
        let before = std::iter::once(0..first.min(bytes)).filter(|part| part.start < part.end);
        before.chain(starts.map(move |start| start..bytes.min(start + Self::BLOCK)))
    }

    /// Allows the kernel to gather small pages that are in use into huge ones.
    pub(crate) fn allow_huge_pages(&self) {
        memory::allow_huge_pages(self.start, self.len);
    }
}

impl<T: Zeroed> Drop for Slab<T> {
    fn drop(&mut self) {
        // SAFETY: the start is from `allocate` with the same length, and nothing refers to the slab any more.
        unsafe { memory::free(self.start, self.len) };
    }
}

#[cfg(stillpoint_loom)]
mod memory {
    use super::*;
    // A model has no pages.
    pub(crate) use stillpoint_sys::portable::pages::Mapping;

    pub(super) fn allocate<T: Zeroed>(len: usize, _touch: Touch) -> Option<NonNull<T>> {
        let values: Box<[T]> = (0..len).map(|_| T::zeroed()).collect();
        Some(NonNull::from(Box::leak(values)).cast())
    }

    pub(super) fn allow_huge_pages<T>(_start: NonNull<T>, _len: usize) {}

    pub(super) fn is_mapped<T>(_len: usize) -> bool {
        false
    }

    /// # Safety
    /// None is needed.
    pub(crate) unsafe fn discard(_start: NonNull<u8>, _bytes: usize) {}

    /// # Safety
    /// As for [`free`].
    pub(super) unsafe fn into_mapping<T>(start: NonNull<T>, len: usize) -> Option<Mapping> {
        // SAFETY: `start` came from `allocate` with the same length, by the caller's promise.
        unsafe { free(start, len) };
        None
    }

    /// # Safety
    /// As for [`Box::from_raw`].
    pub(super) unsafe fn free<T>(start: NonNull<T>, len: usize) {
        // SAFETY: the values came from a box, and the caller gives them up, by its promise.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(start.as_ptr(), len)) });
    }
}

#[cfg(not(stillpoint_loom))]
mod memory {
    use std::alloc::Layout;

    use super::*;
    use stillpoint_sys::os::pages;
    pub(crate) use stillpoint_sys::os::pages::discard;
    pub(crate) use stillpoint_sys::os::pages::Mapping;

    /// Slabs of at least this size are mapped, and the kernel clears their pages as they are touched. Smaller ones come
    /// from the allocator.
    const LARGE: usize = 64 << 10;

    pub(super) fn allocate<T: Zeroed>(len: usize, touch: Touch) -> Option<NonNull<T>> {
        let layout = Layout::array::<T>(len).ok()?;
        if is_mapped::<T>(len) {
            return Some(Mapping::new(layout.size(), touch == Touch::Now)?.into_start().cast());
        }
        // SAFETY: the size is not 0 (see `Slab::new`).
        NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).map(NonNull::cast)
    }

    pub(super) fn is_mapped<T>(len: usize) -> bool {
        len * size_of::<T>() >= LARGE && align_of::<T>() <= pages::SMALL && !cfg!(miri)
    }

    pub(super) fn allow_huge_pages<T>(start: NonNull<T>, len: usize) {
        if is_mapped::<T>(len) {
            pages::allow_huge(start.cast(), len * size_of::<T>());
        }
    }

    /// # Safety
    /// `start` came from [`allocate`] with the same length.
    pub(super) unsafe fn free<T>(start: NonNull<T>, len: usize) {
        // SAFETY: `start` came from `allocate` with the same length, by the caller's promise.
        drop(unsafe { into_mapping(start, len) });
    }

    /// # Safety
    /// As for [`free`].
    pub(super) unsafe fn into_mapping<T>(start: NonNull<T>, len: usize) -> Option<Mapping> {
        let layout = Layout::array::<T>(len).expect("the slab was allocated with this layout");
        if is_mapped::<T>(len) {
            // SAFETY: `start` came from `allocate`, by the caller's promise, so from a mapping of this size.
            return Some(unsafe { Mapping::from_start(start.cast(), layout.size()) });
        }
        // SAFETY: `start` came from `allocate`, by the caller's promise, so from the allocator with this layout.
        unsafe { std::alloc::dealloc(start.as_ptr().cast(), layout) };
        None
    }
}
