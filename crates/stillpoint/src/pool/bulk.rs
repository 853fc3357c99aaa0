use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use super::engine::{Core, Shard};
use super::obj::{Obj, Owns};

/// Allocated objects of one pool, held by address. To allocate and free them costs as little as in a
/// [`RawPool`](super::raw::RawPool). An object takes eight bytes here; an [`Obj`] takes sixteen, and is checked for its pool
/// when it is freed.
///
/// [`Local::alloc_bulk`](super::Local::alloc_bulk) fills a bulk, and [`Local::free_bulk`](super::Local::free_bulk)
/// empties it. When a bulk is dropped, the objects left in it are freed one by one, as each [`Obj`] is.
///
/// ```
/// use stillpoint::pool::Pool;
///
/// let pool = Pool::new(1_000, || [0u8; 64])?;
/// let local = pool.local()?;
/// let mut burst = local.bulk(32); // room for a burst of packets
/// local.alloc_bulk(32, &mut burst)?;
/// burst.iter_mut().for_each(|packet| packet[0] = 4);
/// if let Some(packet) = burst.get_mut(7) {
///     packet[0] = 6;
/// }
/// assert_eq!(burst.iter().filter(|packet| packet[0] == 6).count(), 1);
/// assert_eq!(burst.get(7).map(|packet| packet[0]), Some(6));
///
/// local.free_bulk(31, &mut burst); // all but the oldest
/// assert_eq!(burst.pop().map(|packet| packet[0]), Some(4));
/// assert!(burst.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Bulk<'p, T: Send + 'static> {
    /// Owned by this value. The objects are initialised, and belong to the shard's pool.
    objects: Vec<NonNull<T>>,
    /// The shard of the local that made it.
    shard: &'p Shard,
    owns: Owns<T>,
}

// SAFETY: a bulk owns its objects, which are `Send`, and a shard is `Sync`.
unsafe impl<T: Send + 'static> Send for Bulk<'_, T> {}
// SAFETY: a shared reference gives only shared access to the objects.
unsafe impl<T: Send + Sync + 'static> Sync for Bulk<'_, T> {}

impl<'p, T: Send + 'static> Bulk<'p, T> {
    /// An empty bulk.
    pub(super) fn new(shard: &'p Shard, room: usize) -> Self {
        Self { objects: Vec::with_capacity(room), shard, owns: PhantomData }
    }

    /// Room for `count` more objects at the end.
    #[inline(always)]
    pub(super) fn room(&mut self, count: usize) -> *mut *mut u8 {
        self.objects.reserve(count);
        self.objects.spare_capacity_mut().as_mut_ptr().cast()
    }

    /// # Safety
    /// `count` initialised objects of the shard's pool were written to the [`room`](Bulk::room), and only the caller
    /// has them.
    #[inline(always)]
    pub(super) unsafe fn grew(&mut self, count: usize) {
        // SAFETY: `count` objects were written behind the others, by the caller's promise.
        unsafe { self.objects.set_len(self.objects.len() + count) };
    }

    /// Removes the newest `count` objects, or all if there are fewer: the caller frees them. The slice is valid until
    /// the next call.
    #[inline(always)]
    pub(super) fn give_up(&mut self, count: usize) -> &[*mut u8] {
        let (len, start) = (self.objects.len(), self.objects.as_ptr());
        let left = len.saturating_sub(count);
        // SAFETY: `left` is not above the length.
        unsafe { self.objects.set_len(left) };
        // SAFETY: these addresses were in the vector, and nothing overwrites them while the bulk is borrowed.
        unsafe { std::slice::from_raw_parts(start.add(left).cast(), len - left) }
    }

    #[inline(always)]
    pub(super) fn is_of(&self, core: &Core) -> bool {
        std::ptr::eq(self.shard.core(), core)
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The object at a position.
    pub fn get(&self, index: usize) -> Option<&T> {
        // SAFETY: this value owns the object, which is initialised.
        self.objects.get(index).map(|object| unsafe { object.as_ref() })
    }

    /// The object at a position, mutably.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        // SAFETY: this value owns the object, which is initialised, and is borrowed exclusively.
        self.objects.get_mut(index).map(|object| unsafe { object.as_mut() })
    }

    /// The objects, the newest one last.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> + DoubleEndedIterator {
        // SAFETY: this value owns the objects, which are initialised.
        self.objects.iter().map(|object| unsafe { object.as_ref() })
    }

    /// The objects, mutably.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut T> + DoubleEndedIterator {
        // SAFETY: this value owns the objects, which are initialised, and is borrowed exclusively. Each object is
        // returned once.
        self.objects.iter_mut().map(|object| unsafe { object.as_mut() })
    }

    /// Takes the newest object out.
    pub fn pop(&mut self) -> Option<Obj<'p, T>> {
        // SAFETY: the object belongs to the shard's pool, and this value does not own it any more.
        self.objects.pop().map(|object| unsafe { Obj::new(object, self.shard) })
    }
}

impl<T: Send + 'static> Drop for Bulk<'_, T> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

impl<T: Send + fmt::Debug + 'static> fmt::Debug for Bulk<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
