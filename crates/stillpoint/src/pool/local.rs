use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::block::Block;
use super::bulk::Bulk;
use super::engine::Handle;
use super::error::Exhausted;
use super::obj::Obj;

/// Number of addresses gathered on the stack before they are freed together.
const CHUNK: usize = 64;

/// One thread's access to a [`Pool`](super::Pool). It stays on its thread.
///
/// When dropped, it leaves its free objects and buckets to other threads. Objects that are still in use come back to
/// these buckets.
///
/// ```
/// use stillpoint::pool::Pool;
///
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

    /// Allocates an object; `None` when the pool is exhausted. Its contents are those that its last user left, except
    /// for what [`Objects::reset`](super::Objects::reset) changes.
    ///
    /// # Panics
    /// With the panic of `reset`, after the object has been freed; or with the panic of a constructor, if the pool
    /// grows.
    #[inline(always)]
    pub fn alloc(&self) -> Option<Obj<'p, T>> {
        let object = self.handle.alloc()?;
        // Read before user code runs, which may park the handle.
        let shard = self.handle.shard();
        self.reset(std::iter::once(object.as_ptr()));
        // SAFETY: allocated by this call; the objects are of this type (see `new`).
        Some(unsafe { Obj::new(object.cast(), shard) })
    }

    /// Resets objects that were allocated for the caller. If that panics, all of them are freed.
    #[inline(always)]
    fn reset(&self, objects: impl Iterator<Item = *mut u8> + Clone) {
        let core = self.handle.core();
        if let Some(reset) = &core.life.reset {
            let all = core.unless_it_panics(objects.clone());
            objects.for_each(reset);
            std::mem::forget(all);
        }
    }

    /// Appends `count` objects, or none: after an error or a panic, the vector is unchanged, and the objects are back
    /// in the pool.
    ///
    /// # Errors
    /// When the caller cannot get that many from the pool.
    ///
    /// # Panics
    /// As [`alloc`](Local::alloc).
    pub fn alloc_many(&self, count: usize, to: &mut Vec<Obj<'p, T>>) -> Result<(), Exhausted> {
        if count > self.handle.core().maximum() {
            self.handle.count_refused(count);
            return Err(Exhausted { wanted: count });
        }
        to.reserve(count);
        let room = to.spare_capacity_mut().as_mut_ptr();
        // An `Obj` is larger than an address. So the addresses are written first, in the same memory.
        const { assert!(size_of::<Obj<'_, T>>() >= size_of::<*mut u8>()) };
        let addresses = room.cast::<*mut u8>();
        // SAFETY: there is room for that many, and nothing else accesses it.
        if !unsafe { self.handle.alloc_many(addresses, count) } {
            return Err(Exhausted { wanted: count });
        }
        // Read before user code runs, which may park the handle.
        let shard = self.handle.shard();
        // SAFETY: the addresses were written above, and are not overwritten before the loop below.
        self.reset(unsafe { std::slice::from_raw_parts(addresses, count) }.iter().copied());
        // From the last to the first: an `Obj` overwrites its own address and later ones, which have been read already.
        for index in (0..count).rev() {
            // SAFETY: the address was written above, and is not overwritten yet; addresses of objects are not null.
            let object = unsafe { NonNull::new_unchecked(addresses.add(index).read().cast()) };
            // SAFETY: allocated by this call; the objects are of this type (see `new`). `reserve` made the room.
            unsafe { room.add(index).write(MaybeUninit::new(Obj::new(object, shard))) };
        }
        // SAFETY: there is room for that many, and they were written above.
        unsafe { to.set_len(to.len() + count) };
        Ok(())
    }

    /// An empty [`Bulk`] with room for `room` objects, for [`alloc_bulk`](Local::alloc_bulk).
    ///
    /// # Panics
    /// When a vector cannot have that capacity.
    pub fn bulk(&self, room: usize) -> Bulk<'p, T> {
        Bulk::new(self.handle.shard(), room)
    }

    /// Appends `count` objects, or none, as [`alloc_many`](Local::alloc_many).
    ///
    /// # Errors
    /// When the caller cannot get that many from the pool.
    ///
    /// # Panics
    /// As [`alloc`](Local::alloc), and when the bulk belongs to another pool.
    #[inline(always)]
    #[track_caller]
    pub fn alloc_bulk(&self, count: usize, to: &mut Bulk<'p, T>) -> Result<(), Exhausted> {
        assert!(to.is_of(self.handle.core()), "the bulk belongs to another pool");
        if count > self.handle.core().maximum() {
            self.handle.count_refused(count);
            return Err(Exhausted { wanted: count });
        }
        let addresses = to.room(count);
        // SAFETY: there is room for that many, and nothing else accesses it.
        if !unsafe { self.handle.alloc_many(addresses, count) } {
            return Err(Exhausted { wanted: count });
        }
        // SAFETY: the addresses were written above.
        self.reset(unsafe { std::slice::from_raw_parts(addresses, count) }.iter().copied());
        // SAFETY: allocated by this call; the objects are of this type (see `new`).
        unsafe { to.grew(count) };
        Ok(())
    }

    /// Frees the newest `count` objects of a bulk, or all if there are fewer. Any thread may have allocated them.
    /// Objects of another pool go back to that pool.
    #[inline(always)]
    pub fn free_bulk(&self, count: usize, from: &mut Bulk<'p, T>) {
        if !from.is_of(self.handle.core()) {
            return (0..count).map_while(|_| from.pop()).for_each(drop);
        }
        // SAFETY: `give_up` hands the objects to this call.
        let answer = unsafe { self.handle.free_many(from.give_up(count)) };
        debug_assert!(answer.is_ok(), "{answer:?}");
    }

    /// Allocates a whole bucket; `None` when the caller cannot get one. Changes one word for each 64 objects. When
    /// there is no whole bucket, takes time in proportion to the number of objects that other threads have freed and
    /// that are not collected yet.
    ///
    /// # Panics
    /// As [`alloc`](Local::alloc), after the block has been freed.
    #[inline]
    pub fn alloc_block(&self) -> Option<Block<'p, T>> {
        let start = self.handle.alloc_block(1)?;
        // Read before user code runs, which may park the handle.
        let shard = self.handle.shard();
        self.reset(self.handle.core().objects_from(start.as_ptr()));
        // SAFETY: allocated by this call; the objects are of this type (see `new`).
        Some(unsafe { Block::new(start.cast(), shard) })
    }

    /// Frees an object, which any thread may have allocated. An object of another pool goes back to that pool.
    #[inline(always)]
    pub fn free(&self, object: Obj<'p, T>) {
        if object.is_of(self.handle.core()) {
            // SAFETY: this call owns the object, and gives it up.
            let answer = unsafe { self.handle.free(object.into_raw().as_ptr().cast()) };
            debug_assert!(answer.is_ok(), "{answer:?}");
        }
    }

    /// Frees objects, which any thread may have allocated. Consecutive objects of one bucket take one atomic exchange.
    ///
    /// One thread takes a whole block of buffers and fills them, as a device does; another one frees them:
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use stillpoint::pool::Pool;
    ///
    /// let pool = Pool::new(1_000, || [0_u8; 1500]).expect("there is memory");
    /// let (send, packets) = mpsc::channel();
    ///
    /// std::thread::scope(|scope| {
    ///     let pool = &pool;
    ///     scope.spawn(move || {
    ///         let local = pool.local().expect("there are fewer threads than the pool allows");
    ///         local.free_many(packets); // another thread allocated them
    ///     });
    ///     let local = pool.local().expect("as above");
    ///     let block = local.alloc_block().expect("the pool is new");
    ///     for mut packet in block {
    ///         packet[0] = 0x45;
    ///         send.send(packet).expect("the other thread receives");
    ///     }
    ///     drop(send);
    /// });
    /// assert_eq!(pool.stats().in_use, 0);
    /// ```
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

    /// Releases everything that this thread keeps. For a thread that will not use the pool for a while. The next call
    /// takes a shard again. If other threads hold all shards by then, allocations fail, and frees are slower. Takes
    /// time in proportion to what the thread keeps, and to what other threads have freed of its buckets.
    ///
    /// ```
    /// use stillpoint::pool::Pool;
    ///
    /// let pool = Pool::new(64, || 0u64)?;
    /// let idle = pool.local()?;
    /// drop(idle.alloc());
    /// idle.park();
    /// assert_eq!(pool.audit()?.held + pool.audit()?.cached, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn park(&self) {
        self.handle.park();
    }
}

/// Objects that will be freed together, even if their iterator panics.
struct Chunk<'l, 'p> {
    handle: &'l Handle<'p>,
    objects: [MaybeUninit<*mut u8>; CHUNK],
    filled: usize,
}

impl Chunk<'_, '_> {
    fn flush(&mut self) {
        let filled = std::mem::take(&mut self.filled);
        // SAFETY: `filled` addresses were written. They are those of objects of this pool, which their owner has given
        // up.
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

stillpoint_sys::debug!([T: Send + 'static] Local<'_, T> { .. });
