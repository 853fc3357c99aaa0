//! Pools of bare memory: the size and the alignment of objects are set at run time, and frees are unsafe.

use std::mem::MaybeUninit;
use std::ops::Deref;
use std::ptr::NonNull;

use super::any::AnyPool;
use super::engine::{Handle, Life};
use super::error::{Exhausted, TooManyLocals};
use super::memory::Iova;
use super::PoolBuilder;

pub use super::error::FreeError;

/// A pool of bare memory: the size and the alignment of objects are set at run time.
///
/// An allocation returns an address. The caller owns the memory until it frees it; the contents are not kept. No object
/// may be used after the pool has been dropped.
///
/// ```
/// use stillpoint::pool::raw::RawPool;
///
/// let pool = RawPool::builder(1_000, 2048, 64).build()?;
/// let local = pool.local()?;
/// let buffer = local.alloc().expect("an object is free");
/// // SAFETY: the object has 2048 bytes, which only this caller has.
/// unsafe { buffer.as_ptr().write_bytes(0, 2048) };
/// // SAFETY: the object came from this pool, and is not used any more.
/// unsafe { local.free(buffer) }?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RawPool {
    any: AnyPool,
}

impl RawPool {
    /// A builder for at least `capacity` objects of `size` bytes, aligned to `align`; rounded up to whole buckets.
    ///
    /// ```
    /// use stillpoint::pool::raw::RawPool;
    ///
    /// let pool = RawPool::builder(1_000, 2048, 64).cache(256).build()?;
    /// assert!(pool.stats().capacity >= 1_000);
    /// # Ok::<(), stillpoint::pool::BuildError>(())
    /// ```
    pub fn builder(capacity: usize, size: usize, align: usize) -> PoolBuilder<Self> {
        PoolBuilder::new(capacity, size, align, Life::default(), |any| Self { any })
    }

    /// As [`Pool::local`](super::Pool::local).
    ///
    /// # Errors
    /// When [`max_locals`](PoolBuilder::max_locals) threads use the pool already.
    pub fn local(&self) -> Result<RawLocal<'_>, TooManyLocals> {
        self.any.handle().map(|handle| RawLocal { handle })
    }

    /// As [`local`](RawPool::local), for `stillpoint.h`; `None` when there is no memory. Then nothing has changed.
    ///
    /// # Errors
    /// As for `local`.
    #[doc(hidden)]
    pub fn try_local(&self) -> Result<Option<RawLocal<'_>>, TooManyLocals> {
        Ok(self.any.try_handle()?.map(|handle| RawLocal { handle }))
    }

    /// Whether an object of this pool begins at an address. Perhaps also true of addresses between two pieces of a pool that has grown.
    pub fn owns(&self, object: *const u8) -> bool {
        self.any.core().place_of(object.cast_mut()).is_some()
    }

    /// The address of an object for a device. `None` for addresses outside the pool, for pages that the kernel may move,
    /// and when the kernel hides frame numbers from this process (it shows them with `CAP_SYS_ADMIN`). Takes two or
    /// more system calls.
    ///
    /// After a `fork`, the first write to a page gives it another address, as long as the child has the page too. If the process forks while a
    /// device has addresses, call `madvise` with `MADV_DONTFORK` for the pool's memory.
    pub fn iova(&self, object: NonNull<u8>) -> Option<Iova> {
        self.any.iova(object)
    }

    /// Whether a block lies in one piece of physical memory. `None` when that is unknown, or may change.
    ///
    /// ```
    /// use stillpoint::pool::memory::Pages;
    /// use stillpoint::pool::raw::RawPool;
    ///
    /// let pool = RawPool::builder(512, 2048, 64).pages(Pages::Small).build()?;
    /// let block = pool.local()?.alloc_block().expect("whole buckets are left");
    /// // The kernel may move small pages.
    /// assert_eq!((pool.physically_contiguous(&block), pool.iova(block.start())), (None, None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn physically_contiguous(&self, block: &RawBlock) -> Option<bool> {
        let start = block.start.as_ptr().addr();
        // A bucket has at most 1 GiB, but a caller may have made the block of any address.
        self.any.physically_contiguous(start..start.checked_add(block.len * block.stride)?)
    }

    /// As [`Pool::leaks`](super::Pool::leaks).
    pub fn leaks(&mut self) -> Vec<NonNull<u8>> {
        self.any.leaks()
    }
}

impl Deref for RawPool {
    type Target = AnyPool;

    fn deref(&self) -> &AnyPool {
        &self.any
    }
}

stillpoint_sys::debug!(|this| RawPool { stats: this.stats(), .. });

/// A whole bucket of a [`RawPool`].
///
/// ```
/// use stillpoint::pool::raw::RawPool;
///
/// let pool = RawPool::builder(512, 2048, 64).build()?;
/// let local = pool.local()?;
/// let block = local.alloc_block().expect("an object is free");
/// let last = block.get(block.len() - 1).expect("the last one");
/// assert_eq!(last.addr().get(), block.start().addr().get() + (block.len() - 1) * block.stride());
/// assert!(pool.owns(last.as_ptr()));
/// if pool.physically_contiguous(&block) == Some(true) {
///     // A device can take the block as one buffer.
/// }
/// // SAFETY: allocated just now, and not used any more.
/// unsafe { local.free_block(block) }?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawBlock {
    start: NonNull<u8>,
    len: usize,
    stride: usize,
}

// SAFETY: a block consists of an address and two numbers. Only unsafe code uses the memory.
unsafe impl Send for RawBlock {}
// SAFETY: a block consists of an address and two numbers. Only unsafe code uses the memory.
unsafe impl Sync for RawBlock {}

impl RawBlock {
    /// Address of the first object.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The number of objects.
    #[expect(clippy::len_without_is_empty, reason = "a bucket has at least one object")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes from one object to the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Address of the object at a position. The object may be freed by itself.
    #[inline(always)]
    pub fn get(&self, index: usize) -> Option<NonNull<u8>> {
        // `wrapping_add`, since the pool and its memory may be gone by now.
        let at = || self.start.as_ptr().wrapping_add(index * self.stride);
        NonNull::new((index < self.len).then(at)?)
    }
}

/// One thread's access to a [`RawPool`]. It stays on its thread.
pub struct RawLocal<'p> {
    handle: Handle<'p>,
}

impl RawLocal<'_> {
    /// Allocates an object; `None` when the pool is exhausted. Constant time, except for refills of the cache.
    #[inline(always)]
    pub fn alloc(&self) -> Option<NonNull<u8>> {
        self.handle.alloc()
    }

    /// Fills a slice with objects.
    ///
    /// # Errors
    /// When the caller cannot get that many: none was allocated.
    ///
    /// ```
    /// use std::mem::MaybeUninit;
    ///
    /// let pool = stillpoint::pool::raw::RawPool::builder(100, 64, 64).build()?;
    /// let local = pool.local()?;
    /// let mut burst = [const { MaybeUninit::uninit() }; 32];
    /// let burst = local.alloc_many(&mut burst)?;
    /// // SAFETY: allocated just now, and not used any more.
    /// unsafe { local.free_many(burst) }?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline(always)]
    pub fn alloc_many<'b>(
        &self,
        to: &'b mut [MaybeUninit<NonNull<u8>>],
    ) -> Result<&'b mut [NonNull<u8>], Exhausted> {
        let (start, count) = (to.as_mut_ptr(), to.len());
        // SAFETY: there is room for `count` addresses, and no object is at null.
        if unsafe { self.handle.alloc_many(start.cast(), count) } {
            // SAFETY: all of them were written.
            Ok(unsafe { std::slice::from_raw_parts_mut(start.cast(), count) })
        } else {
            Err(Exhausted { wanted: count })
        }
    }

    /// Allocates a whole bucket; `None` when the caller cannot get one.
    #[inline]
    pub fn alloc_block(&self) -> Option<RawBlock> {
        self.alloc_block_of(1)
    }

    /// As [`alloc_block`](RawLocal::alloc_block), for a caller that wants this many, this one included. If the pool may not have them all, it
    /// does not grow.
    #[doc(hidden)]
    #[inline]
    pub fn alloc_block_of(&self, wanted: usize) -> Option<RawBlock> {
        Some(self.block_at(self.handle.alloc_block(wanted.max(1))?))
    }

    /// The block whose first object is at this address, for callers that store only addresses. If no block begins at
    /// the address, its free is refused.
    ///
    /// ```
    /// # let pool = stillpoint::pool::raw::RawPool::builder(512, 64, 64).build()?;
    /// let local = pool.local()?;
    /// let block = local.alloc_block().expect("an object is free");
    /// assert_eq!(local.block_at(block.start()), block);
    /// # // SAFETY: allocated just now, and not used any more.
    /// # unsafe { local.free_block(block) }?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn block_at(&self, start: NonNull<u8>) -> RawBlock {
        let geometry = self.handle.core().geometry();
        RawBlock { start, len: geometry.objects() as usize, stride: geometry.stride() }
    }

    /// Fills a slice with blocks, as [`alloc_many`](RawLocal::alloc_many) does with objects.
    ///
    /// Complexity: that of a call of [`alloc_block`](RawLocal::alloc_block) for each; when there are too few blocks, also
    /// that of freeing those that were found.
    ///
    /// # Errors
    /// When the caller cannot get that many: none was allocated.
    ///
    /// ```
    /// use std::mem::MaybeUninit;
    ///
    /// let pool = stillpoint::pool::raw::RawPool::builder(512, 64, 64).bucket_bytes(4096).build()?;
    /// let local = pool.local()?;
    /// let mut blocks = [const { MaybeUninit::uninit() }; 4];
    /// for block in local.alloc_blocks(&mut blocks)? {
    ///     // SAFETY: allocated just now, and not used any more.
    ///     unsafe { local.free_block(*block) }?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn alloc_blocks<'b>(
        &self,
        to: &'b mut [MaybeUninit<RawBlock>],
    ) -> Result<&'b mut [RawBlock], Exhausted> {
        let wanted = to.len();
        // No undo on panic is needed: a raw pool calls no constructor.
        for index in 0..wanted {
            let Some(block) = self.alloc_block_of(wanted - index) else {
                // SAFETY: written below in an earlier iteration.
                let starts = to[..index].iter().map(|block| unsafe { block.assume_init() }.start);
                // SAFETY: allocated by this call, and nothing has their addresses.
                unsafe { self.put_back_blocks(starts) };
                return Err(Exhausted { wanted });
            };
            to[index].write(block);
        }
        // SAFETY: all of them were written.
        Ok(unsafe { std::slice::from_raw_parts_mut(to.as_mut_ptr().cast(), wanted) })
    }

    /// Frees blocks that were allocated in vain, since there are too few. As with [`alloc_blocks`](RawLocal::alloc_blocks), other threads find
    /// them.
    ///
    /// # Safety
    /// As [`free_block`](RawLocal::free_block), for each block that begins at one of these addresses.
    ///
    /// ```
    /// use stillpoint::pool::raw::RawPool;
    ///
    /// let pool = RawPool::builder(512, 64, 64).build()?;
    /// let local = pool.local()?;
    /// let block = local.alloc_block().expect("whole buckets are left");
    /// // SAFETY: allocated just now, and not used any more.
    /// unsafe { local.put_back_blocks([block.start()].into_iter()) };
    /// assert_eq!(pool.stats().in_use, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(hidden)]
    pub unsafe fn put_back_blocks(&self, starts: impl Iterator<Item = NonNull<u8>>) {
        // SAFETY: the caller gives up all their objects, by its promise.
        unsafe { self.handle.put_back_blocks(starts.map(NonNull::as_ptr)) };
    }

    /// Frees an object, which any thread may have allocated.
    ///
    /// # Errors
    /// When the address is outside the pool. In a hardened pool, also when no object begins at it, or the object is free already. Other pools
    /// find these where objects go to their buckets, unless the cache has handed the address out again before: see
    /// [`PoolStats::misuses`](super::audit::PoolStats::misuses).
    ///
    /// # Safety
    /// Nothing uses the object any more, and nothing else frees it.
    #[inline(always)]
    pub unsafe fn free(&self, object: NonNull<u8>) -> Result<(), FreeError> {
        // SAFETY: the caller gives the object up, by its promise. An object that is not of this pool is refused.
        unsafe { self.handle.free(object.as_ptr()) }
    }

    /// Frees objects. Consecutive objects of one bucket are freed together.
    ///
    /// # Errors
    /// As [`free`](RawLocal::free). The error has the index of the object that was not freed. Those before it were
    /// freed, and those after it were not.
    ///
    /// # Safety
    /// As [`free`](RawLocal::free), for each of them.
    #[inline(always)]
    pub unsafe fn free_many(&self, objects: &[NonNull<u8>]) -> Result<(), FreeError> {
        // SAFETY: the same addresses.
        let objects = unsafe { std::slice::from_raw_parts(objects.as_ptr().cast(), objects.len()) };
        // SAFETY: the caller gives the objects up, by its promise. An object that is not of this pool is refused.
        unsafe { self.handle.free_many(objects) }
    }

    /// As [`alloc`](RawLocal::alloc), but only from the cache: nothing can panic. So the functions of `stillpoint.h` begin with this and the three
    /// that follow, before their frame that catches panics. `None`: nothing happened.
    #[doc(hidden)]
    #[inline(always)]
    pub fn alloc_from_cache(&self) -> Option<NonNull<u8>> {
        self.handle.alloc_from_cache()
    }

    /// As [`alloc_many`](RawLocal::alloc_many), but only from the cache.
    #[doc(hidden)]
    #[inline(always)]
    pub fn alloc_many_from_cache(&self, to: &mut [MaybeUninit<NonNull<u8>>]) -> bool {
        // SAFETY: there is room for as many addresses as the slice has.
        unsafe { self.handle.alloc_many_from_cache(to.as_mut_ptr().cast(), to.len()) }
    }

    /// As [`free`](RawLocal::free), but only to the cache. False if it has no room or the address is outside the pool.
    ///
    /// # Safety
    /// As [`free`](RawLocal::free).
    #[doc(hidden)]
    #[inline(always)]
    pub unsafe fn free_to_cache(&self, object: NonNull<u8>) -> bool {
        // SAFETY: the caller gives the object up, by its promise.
        unsafe { self.handle.free_to_cache(object.as_ptr()) }
    }

    /// As [`free_many`](RawLocal::free_many), but only to the cache. The addresses may be null, and are refused then.
    ///
    /// # Safety
    /// As [`free`](RawLocal::free), for each of them.
    #[doc(hidden)]
    #[inline(always)]
    pub unsafe fn free_many_to_cache(&self, objects: &[*mut u8]) -> bool {
        // SAFETY: the caller gives the objects up, by its promise.
        unsafe { self.handle.free_many_to_cache(objects) }
    }

    /// Frees a block as a whole.
    ///
    /// # Errors
    /// As [`free`](RawLocal::free).
    ///
    /// # Safety
    /// As [`free`](RawLocal::free), for each of its objects.
    #[inline]
    pub unsafe fn free_block(&self, block: RawBlock) -> Result<(), FreeError> {
        // SAFETY: the caller gives up all objects of the block, by its promise. A block that is not of this pool is
        // refused.
        unsafe { self.handle.free_block(block.start.as_ptr()) }
    }

    /// As [`Local::park`](super::Local::park).
    pub fn park(&self) {
        self.handle.park();
    }
}

stillpoint_sys::debug!(RawLocal<'_> { .. });
