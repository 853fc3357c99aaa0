use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use super::engine::{Core, Shard};
use super::obj::{Obj, Owns};

/// A whole bucket: contiguous objects, [`Info::stride`](super::audit::Info::stride) bytes apart.
///
/// Dropping it frees it as a whole, which costs as much as one object. Iterating over it by value gives its single
/// objects.
///
/// ```
/// use stillpoint::pool::Pool;
///
/// let pool = Pool::new(100, || 0u64)?;
/// let local = pool.local()?;
/// let mut block = local.alloc_block().expect("nothing is out");
/// block.iter_mut().for_each(|object| *object = 7);
/// if let Some(first) = block.get_mut(0) {
///     *first = 8;
/// }
/// assert_eq!((block.get(0), block.get(1), block.get(block.len())), (Some(&8), Some(&7), None));
/// assert!(block.as_ptr().is_aligned()); // the address of the first object, for a device, say
///
/// assert_eq!(block.iter().sum::<u64>(), 8 + 7 * (block.len() as u64 - 1));
/// let mut objects = block.into_iter();
/// assert_eq!(objects.next().as_deref(), Some(&8)); // now an object by itself
/// assert!(objects.all(|object| *object == 7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Block<'p, T: Send + 'static> {
    start: NonNull<T>,
    shard: &'p Shard,
    owns: Owns<T>,
}

// SAFETY: a block owns its objects, which are `Send`, and a shard is `Sync`.
unsafe impl<T: Send + 'static> Send for Block<'_, T> {}
// SAFETY: a shared reference gives only shared access to the objects.
unsafe impl<T: Send + Sync + 'static> Sync for Block<'_, T> {}

impl<'p, T: Send + 'static> Block<'p, T> {
    /// # Safety
    /// `start` is the first object of a bucket of the shard's pool, and the caller owns all its objects.
    #[inline(always)]
    pub(super) unsafe fn new(start: NonNull<T>, shard: &'p Shard) -> Self {
        Self { start, shard, owns: PhantomData }
    }

    /// The number of objects.
    #[expect(clippy::len_without_is_empty, reason = "a bucket has at least one object")]
    pub fn len(&self) -> usize {
        self.shard.core().geometry().objects() as usize
    }

    /// Address of the first object.
    pub fn as_ptr(&self) -> *const T {
        self.start.as_ptr()
    }

    fn at(&self, index: usize) -> NonNull<T> {
        let offset = index * self.shard.core().geometry().stride();
        // SAFETY: callers pass an index below `len`, and a bucket is one allocation.
        unsafe { self.start.byte_add(offset) }
    }

    /// The object at a position.
    pub fn get(&self, index: usize) -> Option<&T> {
        // SAFETY: this block owns the object.
        (index < self.len()).then(|| unsafe { self.at(index).as_ref() })
    }

    /// The object at a position, mutably.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        // SAFETY: this block owns the object.
        (index < self.len()).then(|| unsafe { self.at(index).as_mut() })
    }

    /// The objects in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        // SAFETY: this block owns the objects.
        (0..self.len()).map(|index| unsafe { self.at(index).as_ref() })
    }

    /// The objects in order, mutably.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut T> {
        let this: &Self = self;
        // SAFETY: this block owns the objects, and is borrowed exclusively. Each is returned once.
        (0..this.len()).map(|index| unsafe { this.at(index).as_mut() })
    }
}

impl<T: Send + 'static> Drop for Block<'_, T> {
    fn drop(&mut self) {
        // SAFETY: this block owned all objects of the bucket, and gives them up here.
        unsafe { Core::free_block_anywhere(self.shard, self.start.as_ptr().cast()) };
    }
}

impl<'p, T: Send + 'static> IntoIterator for Block<'p, T> {
    type Item = Obj<'p, T>;
    type IntoIter = BlockObjects<'p, T>;

    fn into_iter(self) -> BlockObjects<'p, T> {
        let len = self.len();
        BlockObjects { block: ManuallyDrop::new(self), next: 0, len }
    }
}

/// The objects of a block, one by one and in order: see [`Block`]. Those that were not taken are freed when it is dropped.
pub struct BlockObjects<'p, T: Send + 'static> {
    block: ManuallyDrop<Block<'p, T>>,
    next: usize,
    len: usize,
}

impl<'p, T: Send + 'static> Iterator for BlockObjects<'p, T> {
    type Item = Obj<'p, T>;

    #[inline]
    fn next(&mut self) -> Option<Obj<'p, T>> {
        if self.next == self.len {
            return None;
        }
        let object = self.block.at(self.next);
        self.next += 1;
        // SAFETY: the object belongs to the block, which is not dropped as a whole. Each is returned once.
        Some(unsafe { Obj::new(object, self.block.shard) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len - self.next, Some(self.len - self.next))
    }
}

impl<T: Send + 'static> ExactSizeIterator for BlockObjects<'_, T> {}
impl<T: Send + 'static> FusedIterator for BlockObjects<'_, T> {}

impl<T: Send + 'static> Drop for BlockObjects<'_, T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

impl<T: Send + fmt::Debug + 'static> fmt::Debug for Block<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

stillpoint_sys::debug!([T: Send + 'static] |this| BlockObjects<'_, T> { left: this.len - this.next, .. });
