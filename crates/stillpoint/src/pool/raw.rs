use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::ptr::NonNull;

use super::audit::{AnyPool, Leaks};
use super::engine::Handle;
use super::error::{Exhausted, FreeError, TooManyLocals};
use super::memory::Iova;
use super::PoolBuilder;

/// A pool of bare memory: objects of a size and an alignment that are known at run time.
///
/// What is handed out is an address. Its memory is the caller's until it is freed, and what it holds then is not
/// remembered. Nothing may be used after the pool was dropped.
///
/// ```
/// use stillpoint::pool::RawPool;
///
/// let pool = RawPool::builder(1_000, 2048, 64).build()?;
/// let local = pool.local()?;
/// let buffer = local.alloc().expect("nobody has one");
/// // SAFETY: 2048 bytes, which only this caller has.
/// unsafe { buffer.as_ptr().write_bytes(0, 2048) };
/// // SAFETY: handed out by this pool, and not used any more.
/// unsafe { local.free(buffer) }?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RawPool {
    any: AnyPool,
}

impl RawPool {
    /// A builder for at least `capacity` objects of `size` bytes at multiples of `align`, rounded up to whole buckets.
    ///
    /// ```
    /// use stillpoint::pool::RawPool;
    ///
    /// let pool = RawPool::builder(1_000, 2048, 64).cache(256).build()?;
    /// assert!(pool.stats().capacity >= 1_000);
    /// # Ok::<(), stillpoint::pool::BuildError>(())
    /// ```
    pub fn builder(capacity: usize, size: usize, align: usize) -> PoolBuilder<Self> {
        PoolBuilder::raw(capacity, size, align)
    }

    pub(super) fn from_any(any: AnyPool) -> Self {
        Self { any }
    }

    /// As [`Pool::local`](super::Pool::local).
    ///
    /// # Errors
    /// When as many threads use the pool as it allows.
    pub fn local(&self) -> Result<RawLocal<'_>, TooManyLocals> {
        self.any.handle().map(|handle| RawLocal { handle })
    }

    /// Whether an object of this pool begins at an address.
    pub fn owns(&self, object: *const u8) -> bool {
        self.any.core().place_of(object.cast_mut()).is_some()
    }

    /// The address of an object for a device; see [`Memory::iova`](super::Memory::iova).
    pub fn iova(&self, object: NonNull<u8>) -> Option<Iova> {
        self.any.iova(object)
    }

    /// Whether a block lies in one piece of physical memory; see
    /// [`Memory::physically_contiguous`](super::Memory::physically_contiguous).
    pub fn physically_contiguous(&self, block: &RawBlock) -> Option<bool> {
        let start = block.start.as_ptr().addr();
        self.any.physically_contiguous(start..start + block.len * block.stride)
    }

    /// As [`Pool::leaks`](super::Pool::leaks).
    pub fn leaks(&mut self) -> Leaks {
        self.any.leaks()
    }

    /// As [`Pool::close`](super::Pool::close).
    ///
    /// # Errors
    /// As [`Pool::close`](super::Pool::close).
    pub fn close(mut self) -> Result<(), Leaks> {
        self.any.close()
    }
}

impl Deref for RawPool {
    type Target = AnyPool;

    fn deref(&self) -> &AnyPool {
        &self.any
    }
}

impl fmt::Debug for RawPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawPool").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// A whole bucket of a [`RawPool`].
///
/// ```
/// use stillpoint::pool::RawPool;
///
/// let pool = RawPool::builder(512, 2048, 64).build()?;
/// let local = pool.local()?;
/// let block = local.alloc_block().expect("nobody has one");
/// let last = block.get(block.len() - 1).expect("the last one");
/// assert_eq!(last.addr().get(), block.start().addr().get() + (block.len() - 1) * block.stride());
/// assert!(pool.owns(last.as_ptr()));
/// if pool.physically_contiguous(&block) == Some(true) {
///     // A device can take the block as one buffer.
/// }
/// // SAFETY: handed out just now, and not used any more.
/// unsafe { local.free_block(block) }?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawBlock {
    start: NonNull<u8>,
    len: usize,
    stride: usize,
}

// SAFETY: an address and two numbers; what may be done with the memory is up to unsafe code.
unsafe impl Send for RawBlock {}
// SAFETY: as above.
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

    /// Address of the object at a position, which may be freed by itself.
    #[inline(always)]
    pub fn get(&self, index: usize) -> Option<NonNull<u8>> {
        // The pool may be gone by now, and the memory with it: the address is computed all the same.
        let at = || self.start.as_ptr().wrapping_add(index * self.stride);
        NonNull::new((index < self.len).then(at)?)
    }
}

/// One thread's access to a [`RawPool`]. It stays in its thread.
pub struct RawLocal<'p> {
    handle: Handle<'p>,
}

impl RawLocal<'_> {
    /// An object, or nothing when the pool is exhausted. Constant time, but for refills.
    #[inline(always)]
    pub fn alloc(&self) -> Option<NonNull<u8>> {
        self.handle.alloc()
    }

    /// Fills a slice with objects.
    ///
    /// # Errors
    /// When the caller cannot get that many: none was taken.
    ///
    /// ```
    /// use std::mem::MaybeUninit;
    ///
    /// let pool = stillpoint::pool::RawPool::builder(100, 64, 64).build()?;
    /// let local = pool.local()?;
    /// let mut burst = [const { MaybeUninit::uninit() }; 32];
    /// let burst = local.alloc_many(&mut burst)?;
    /// // SAFETY: handed out just now, and not used any more.
    /// unsafe { local.free_many(burst) }?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline(always)]
    pub fn alloc_many<'b>(
        &self,
        to: &'b mut [MaybeUninit<NonNull<u8>>],
    ) -> Result<&'b mut [NonNull<u8>], Exhausted> {
        let (start, count) = (to.as_mut_ptr(), to.len());
        // SAFETY: there is room for that many addresses, none of which is null.
        if unsafe { self.handle.alloc_many(start.cast(), count) } {
            // SAFETY: all of them were written.
            Ok(unsafe { std::slice::from_raw_parts_mut(start.cast(), count) })
        } else {
            Err(Exhausted { wanted: count })
        }
    }

    /// A whole bucket, or nothing when the pool has none that the caller can get.
    #[inline]
    pub fn alloc_block(&self) -> Option<RawBlock> {
        Some(self.block_at(self.handle.alloc_block()?))
    }

    /// The block that was handed out with this address of its first object, for places that have room only for an address. An address
    /// that is not a block's is refused when it is freed.
    ///
    /// ```
    /// # let pool = stillpoint::pool::RawPool::builder(512, 64, 64).build()?;
    /// let local = pool.local()?;
    /// let block = local.alloc_block().expect("nobody has one");
    /// assert_eq!(local.block_at(block.start()), block);
    /// # // SAFETY: handed out just now, and not used any more.
    /// # unsafe { local.free_block(block) }?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn block_at(&self, start: NonNull<u8>) -> RawBlock {
        let geometry = self.handle.core().geometry();
        RawBlock { start, len: geometry.objects() as usize, stride: geometry.stride() }
    }

    /// Fills a slice with blocks, as [`alloc_many`](RawLocal::alloc_many) does with objects. Complexity: as
    /// [`Local::alloc_blocks`](super::Local::alloc_blocks).
    ///
    /// # Errors
    /// When the caller cannot get that many: none was taken.
    ///
    /// ```
    /// use std::mem::MaybeUninit;
    ///
    /// let pool = stillpoint::pool::RawPool::builder(512, 64, 64).bucket_bytes(4096).build()?;
    /// let local = pool.local()?;
    /// let mut blocks = [const { MaybeUninit::uninit() }; 4];
    /// for block in local.alloc_blocks(&mut blocks)? {
    ///     // SAFETY: handed out just now, and not used any more.
    ///     unsafe { local.free_block(*block) }?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn alloc_blocks<'b>(
        &self,
        to: &'b mut [MaybeUninit<RawBlock>],
    ) -> Result<&'b mut [RawBlock], Exhausted> {
        let wanted = to.len();
        // A constructor cannot panic: there is none.
        for index in 0..wanted {
            let Some(block) = self.alloc_block() else {
                for block in &to[..index] {
                    // SAFETY: written below in an earlier turn, and handed out to this call.
                    let answer = unsafe { self.free_block(block.assume_init()) };
                    debug_assert!(answer.is_ok(), "{answer:?}");
                }
                return Err(Exhausted { wanted });
            };
            to[index].write(block);
        }
        // SAFETY: all of them were written.
        Ok(unsafe { std::slice::from_raw_parts_mut(to.as_mut_ptr().cast(), wanted) })
    }

    /// Frees an object, which any thread may have got.
    ///
    /// # Errors
    /// When it is none of the pool's, or, in a hardened pool, free already. Other pools find a double free when the object
    /// comes back to its bucket, unless it was handed out again before: [`AnyPool::misuses`].
    ///
    /// # Safety
    /// Nobody uses the object any more, and nobody else frees it.
    #[inline(always)]
    pub unsafe fn free(&self, object: NonNull<u8>) -> Result<(), FreeError> {
        // SAFETY: the caller's promise.
        unsafe { self.handle.free(object.as_ptr()) }
    }

    /// Frees objects: those of one bucket that follow each other at once.
    ///
    /// # Errors
    /// As [`free`](RawLocal::free). The error says which one; those before it were freed.
    ///
    /// # Safety
    /// As [`free`](RawLocal::free), for each of them.
    #[inline(always)]
    pub unsafe fn free_many(&self, objects: &[NonNull<u8>]) -> Result<(), FreeError> {
        // SAFETY: the same addresses.
        let objects = unsafe { std::slice::from_raw_parts(objects.as_ptr().cast(), objects.len()) };
        // SAFETY: the caller's promise.
        unsafe { self.handle.free_many(objects) }
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
        // SAFETY: the caller's promise.
        unsafe { self.handle.free_block(block.start.as_ptr()) }
    }

    /// As [`Local::park`](super::Local::park).
    pub fn park(&self) {
        self.handle.park();
    }

    /// As [`Local::set_tag`](super::Local::set_tag).
    pub fn set_tag(&self, tag: u32) {
        self.handle.set_tag(tag);
    }
}

impl fmt::Debug for RawLocal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawLocal").finish_non_exhaustive()
    }
}
