//! A holder's short stack of free objects, in front of its buckets: most calls copy pointers and touch no header.

use std::cell::UnsafeCell;
use std::ptr::{self, NonNull};

use super::own::OwnUsize;

/// Objects that are ready. Its owner's alone; others read how many there are.
#[derive(Debug)]
pub(crate) struct Cache {
    len: OwnUsize,
    /// Frees do not fill it beyond this.
    limit: usize,
    slots: Box<[UnsafeCell<*mut u8>]>,
}

/// Each function may be called by the holder of the shard only, which the engine sees to.
impl Cache {
    /// For `limit` objects; refills may exceed that by `more`.
    pub(crate) fn new(limit: usize, more: usize) -> Self {
        let room = if limit == 0 { 0 } else { limit + more };
        let slots = (0..room).map(|_| UnsafeCell::new(ptr::null_mut())).collect();
        Self { len: OwnUsize::new(0), limit, slots }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len.get()
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Free slots, refills included.
    pub(crate) fn room(&self) -> usize {
        self.slots.len() - self.len.get()
    }

    #[inline(always)]
    fn start(&self) -> *mut *mut u8 {
        UnsafeCell::raw_get(self.slots.as_ptr())
    }

    /// Where a refill goes to.
    pub(crate) fn end(&self) -> *mut *mut u8 {
        self.start().wrapping_add(self.len.get())
    }

    /// Says that so many objects were written to the [`end`](Cache::end).
    ///
    /// # Safety
    /// They were, and there was room for them.
    pub(crate) unsafe fn grew(&self, by: usize) {
        self.len.set(self.len.get() + by);
    }

    /// The newest object.
    ///
    /// # Safety
    /// The caller holds the shard.
    #[inline(always)]
    pub(crate) unsafe fn pop(&self) -> Option<NonNull<u8>> {
        let left = self.len.get().checked_sub(1)?;
        self.len.set(left);
        // SAFETY: the slots below `len` hold objects, and no other thread looks at them.
        Some(unsafe { NonNull::new_unchecked(self.start().add(left).read()) })
    }

    /// False when it is full.
    ///
    /// # Safety
    /// The caller holds the shard. The object is not null.
    #[inline(always)]
    pub(crate) unsafe fn push(&self, object: *mut u8) -> bool {
        let len = self.len.get();
        let fits = len < self.limit;
        if fits {
            // SAFETY: there are at least `limit` slots, and no other thread looks at them.
            unsafe { self.start().add(len).write(object) };
            self.len.set(len + 1);
        }
        fits
    }

    /// Copies the newest `count` objects to `to`, in the order in which they came. False when there are fewer.
    ///
    /// # Safety
    /// The caller holds the shard, and has room for them.
    #[inline(always)]
    pub(crate) unsafe fn pop_many(&self, to: *mut *mut u8, count: usize) -> bool {
        let Some(left) = self.len.get().checked_sub(count) else { return false };
        // SAFETY: the slots below `len` hold objects, and no other thread looks at them.
        unsafe { ptr::copy_nonoverlapping(self.start().add(left), to, count) };
        self.len.set(left);
        true
    }

    /// Room for `count` more objects, to be written there and then counted by [`grew`](Cache::grew); `None` when the cache
    /// would be fuller than its limit.
    #[inline(always)]
    pub(crate) fn reserve(&self, count: usize) -> Option<*mut *mut u8> {
        let len = self.len.get();
        // Neither is near the end of the address space.
        (len + count <= self.limit).then(|| self.start().wrapping_add(len))
    }

    /// Hands the oldest `count` objects to `take`, and moves the others down.
    ///
    /// # Safety
    /// The caller holds the shard; `take` does not use this cache. There are so many.
    pub(crate) unsafe fn shift(&self, count: usize, take: impl FnOnce(&[*mut u8])) {
        let start = self.start();
        // SAFETY: the slots below `len` hold objects; nobody changes them meanwhile.
        take(unsafe { std::slice::from_raw_parts(start, count) });
        let left = self.len.get() - count;
        // SAFETY: within the slots below `len`.
        unsafe { ptr::copy(start.add(count), start, left) };
        self.len.set(left);
    }

    /// The objects.
    ///
    /// # Safety
    /// Nobody uses the shard as long as the slice is used.
    pub(crate) unsafe fn objects(&self) -> &[*mut u8] {
        // SAFETY: the slots below `len` hold objects; nobody changes them meanwhile.
        unsafe { std::slice::from_raw_parts(self.start(), self.len.get()) }
    }
}
