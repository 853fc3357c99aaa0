use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use super::block::Block;
use super::engine::Handle;
use super::error::Exhausted;
use super::obj::Obj;

/// Addresses that are moved at a time on the stack.
const CHUNK: usize = 64;

/// One thread's access to a [`Pool`](super::Pool). It stays in its thread.
///
/// When dropped, it leaves its objects and buckets to others; objects that are out come back to these buckets.
///
/// ```
/// # use stillpoint::pool::Pool;
/// let pool = Pool::new(1_000, || [0u8; 64])?;
/// let local = pool.local()?;
/// let mut burst = Vec::with_capacity(32);
/// local.alloc_many(32, &mut burst)?;
/// local.free_many(burst.drain(..));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Local<'p, T: Send + 'static> {
    handle: Handle<'p>,
    objects: PhantomData<fn(T) -> T>,
}

impl<'p, T: Send + 'static> Local<'p, T> {
    /// # Safety
    /// The pool's objects are of this type.
    pub(super) unsafe fn new(handle: Handle<'p>) -> Self {
        Self { handle, objects: PhantomData }
    }

    /// An object, or nothing when the pool is exhausted. Its contents are those that its last user has left, but for what
    /// [`Objects::reset`](super::Objects::reset) does.
    ///
    /// # Panics
    /// As `reset`; the object goes back then. As the constructor, if the pool grows.
    #[inline(always)]
    pub fn alloc(&self) -> Option<Obj<'p, T>> {
        let object = self.handle.alloc()?;
        // SAFETY: handed out just now.
        let object = unsafe { self.own(object) };
        Some(object)
    }

    /// # Safety
    /// The pool has handed the object out, to the caller.
    #[inline(always)]
    unsafe fn own(&self, object: NonNull<u8>) -> Obj<'p, T> {
        // SAFETY: the caller's promise; the objects are of this type (see `new`).
        let owned = unsafe { Obj::new(object.cast(), self.handle.shard()) };
        if let Some(reset) = &self.handle.core().life.reset {
            reset(object.as_ptr());
        }
        owned
    }

    /// Appends `count` objects, or none.
    ///
    /// # Errors
    /// When the pool has not so many that the caller can get.
    ///
    /// # Panics
    /// As [`alloc`](Local::alloc).
    pub fn alloc_many(&self, count: usize, to: &mut Vec<Obj<'p, T>>) -> Result<(), Exhausted> {
        let before = to.len();
        if count > self.handle.core().maximum() {
            return Err(Exhausted { wanted: count });
        }
        to.reserve(count);
        let mut chunk = [const { MaybeUninit::<*mut u8>::uninit() }; CHUNK];
        let mut missing = count;
        while missing > 0 {
            let some = missing.min(CHUNK);
            // SAFETY: there is room for so many.
            if !unsafe { self.handle.alloc_many(chunk.as_mut_ptr().cast(), some) } {
                self.free_many(to.drain(before..));
                return Err(Exhausted { wanted: count });
            }
            // All of them are owned before any code of the user's runs.
            let shard = self.handle.shard();
            // SAFETY: written above; handed out to this call; the objects are of this type (see `new`).
            let owned = chunk[..some].iter().map(|object| unsafe {
                Obj::new(NonNull::new_unchecked(object.assume_init().cast()), shard)
            });
            to.extend(owned);
            missing -= some;
        }
        if let Some(reset) = &self.handle.core().life.reset {
            to[before..].iter().for_each(|object| reset(object.address().as_ptr()));
        }
        Ok(())
    }

    /// A whole bucket, or nothing when the pool has none that the caller can get.
    ///
    /// # Panics
    /// As [`alloc`](Local::alloc); the block goes back then.
    #[inline]
    pub fn alloc_block(&self) -> Option<Block<'p, T>> {
        let start = self.handle.alloc_block()?;
        // SAFETY: handed out just now; the objects are of this type (see `new`).
        let mut block = unsafe { Block::new(start.cast(), self.handle.shard()) };
        if let Some(reset) = &self.handle.core().life.reset {
            block.iter_mut().for_each(|object: &mut T| reset(ptr::from_mut(object).cast()));
        }
        Some(block)
    }

    /// Frees an object, of whatever thread. One of another pool is freed there.
    #[inline(always)]
    pub fn free(&self, object: Obj<'p, T>) {
        if object.is_of(self.handle.core()) {
            // SAFETY: the object is given up here.
            let answer = unsafe { self.handle.free(object.into_raw().as_ptr().cast()) };
            debug_assert!(answer.is_ok(), "{answer:?}");
        }
    }

    /// Frees objects, of whatever threads: those of the same bucket with one exchange, if they follow each other.
    pub fn free_many(&self, objects: impl IntoIterator<Item = Obj<'p, T>>) {
        let mut chunk =
            Chunk { handle: &self.handle, objects: [const { MaybeUninit::uninit() }; CHUNK], filled: 0 };
        for object in objects.into_iter().filter(|object| object.is_of(self.handle.core())) {
            chunk.objects[chunk.filled].write(object.into_raw().as_ptr().cast());
            chunk.filled += 1;
            if chunk.filled == CHUNK {
                chunk.flush();
            }
        }
    }

    /// Lets go of all that this thread keeps to itself, for a thread that will not use the pool for a while. The next call
    /// takes hold of something again; if others have everything then, allocations fail, and frees take the slow way.
    ///
    /// ```
    /// # use stillpoint::pool::Pool;
    /// let pool = Pool::new(64, || 0u64)?;
    /// let idle = pool.local()?;
    /// drop(idle.alloc());
    /// idle.park();
    /// assert_eq!(pool.audit()?.objects_held + pool.audit()?.objects_cached, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn park(&self) {
        self.handle.park();
    }

    /// Recorded with each object that this thread gets from now on, in pools that do so
    /// ([`Hardening::Trace`](super::Hardening::Trace)).
    pub fn set_tag(&self, tag: u32) {
        self.handle.set_tag(tag);
    }
}

/// Objects that are to be freed together, even if the iterator panics that they come from.
struct Chunk<'l, 'p> {
    handle: &'l Handle<'p>,
    objects: [MaybeUninit<*mut u8>; CHUNK],
    filled: usize,
}

impl Chunk<'_, '_> {
    fn flush(&mut self) {
        let filled = std::mem::take(&mut self.filled);
        // SAFETY: so many were written; objects of this pool, which were given up.
        let answer = unsafe {
            self.handle.free_many(std::slice::from_raw_parts(self.objects.as_ptr().cast(), filled))
        };
        debug_assert!(answer.is_ok(), "{answer:?}");
    }
}

impl Drop for Chunk<'_, '_> {
    fn drop(&mut self) {
        self.flush();
    }
}

impl<T: Send + 'static> fmt::Debug for Local<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").finish_non_exhaustive()
    }
}
