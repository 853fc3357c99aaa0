use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use super::any::AnyPool;
use super::engine::Core;
use super::error::{BuildError, TooManyLocals};
use super::local::Local;
use super::memory::Iova;
use super::obj::Obj;
use super::{Objects, PoolBuilder};
use crate::rcu::engine::core::garbage::Garbage;
use crate::rcu::Reclaimer;

/// A pool of initialised objects.
///
/// Threads share it by reference, and each makes its own [`Local`]. For threads that are not scoped, leak the pool:
/// `Box::leak(Box::new(pool))`.
///
/// ```
/// use stillpoint::pool::Pool;
///
/// let pool: Pool<String> = Pool::new(100, String::new)?;
/// let local = pool.local()?;
/// let mut name = local.alloc().expect("an object is free");
/// name.push_str("kept until the next user resets it");
/// drop(name); // back in the pool
/// assert_eq!(pool.stats().in_use, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// When the pool is dropped, all its objects are dropped, including those that were never given back. No thread can
/// still hold an object then, since each [`Obj`] borrows the pool. While objects [wait](Pool::retire) in a reclaimer, all are dropped
/// only when the last of these is freed, by the thread that frees it.
pub struct Pool<T: Send + 'static> {
    any: AnyPool,
    objects: PhantomData<fn(T) -> T>,
}

impl<T: Send + 'static> Pool<T> {
    /// At least `capacity` objects, rounded up to whole buckets, each made by `make`.
    ///
    /// # Errors
    /// As [`PoolBuilder::build`].
    ///
    /// # Panics
    /// With a panic of `make`. The objects made before are dropped.
    pub fn new(capacity: usize, make: impl Fn() -> T + Send + Sync + 'static) -> Result<Self, BuildError> {
        Self::builder(capacity, make).build()
    }

    /// As [`new`](Pool::new), with a choice of growth limit, sizes, memory and checks. `objects` is a function that
    /// makes an object, or an [`Objects`].
    ///
    /// ```
    /// use stillpoint::pool::{Objects, Pool};
    ///
    /// let names = Objects::new(|| String::with_capacity(64)).reset(String::clear);
    /// let pool = Pool::builder(100, names).max_objects(1_000).hardened(true).build()?;
    /// assert!(pool.info().hardened);
    /// # Ok::<(), stillpoint::pool::BuildError>(())
    /// ```
    pub fn builder(capacity: usize, objects: impl Into<Objects<T>>) -> PoolBuilder<Self> {
        let life = objects.into().into_life();
        let finish = |any| Self { any, objects: PhantomData };
        PoolBuilder::new(capacity, size_of::<T>(), align_of::<T>(), life, finish)
    }

    /// The calling thread's access to the pool. It takes over the shard of a thread that has ended, if there is one.
    ///
    /// # Errors
    /// When [`max_locals`](PoolBuilder::max_locals) threads use the pool already.
    pub fn local(&self) -> Result<Local<'_, T>, TooManyLocals> {
        // SAFETY: the pool's objects are of this type.
        self.any.handle().map(|handle| unsafe { Local::new(handle) })
    }

    /// The address of an object for a device; see [`RawPool::iova`](super::raw::RawPool::iova).
    ///
    /// ```
    /// use stillpoint::pool::memory::{Backing, Iova};
    ///
    /// let pool = stillpoint::pool::Pool::new(100, || [0u8; 2048])?;
    /// let packet = pool.local()?.alloc().expect("an object is free");
    /// match pool.iova(&packet) {
    ///     Some(Iova(address)) => println!("a device finds the packet at {address:#x}"),
    ///     None => println!("its pages may move, or the kernel does not say where they are"),
    /// }
    /// assert!(pool.iova(&packet).is_none() || pool.info().memory[0].backing == Backing::Reserved);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn iova(&self, object: &Obj<'_, T>) -> Option<Iova> {
        self.any.iova(object.address())
    }

    /// Hands an object to a reclaimer. The object comes back to the pool when no reader of the domain can hold it any
    /// more. Until then, it counts as in use, and is not changed.
    ///
    /// Use it for objects that were published by their address ([`Obj::into_raw`]) and have been unlinked. An object
    /// that waits in the reclaimer keeps the memory of the pool.
    ///
    /// # Errors
    /// When the reclaimer is full, and readers hold its objects up: the object is handed back. If readers may hold this one, do not drop it:
    /// that frees it at once. Try again, or keep its address ([`Obj::into_raw`]).
    ///
    /// # Panics
    /// If the object belongs to another pool; that pool takes it back. If the reclaimer was full, also as [`Reclaimer::retire`], with the panic
    /// of another object's destructor; this object is then left to the domain.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicPtr, Ordering};
    /// use stillpoint::{pool::Pool, rcu::Domain};
    ///
    /// let domain = Domain::new();
    /// let pool = Pool::new(2, || 0u64)?;
    /// let (local, mut reclaimer) = (pool.local()?, domain.reclaimer());
    /// let current = AtomicPtr::new(local.alloc().unwrap().into_raw().as_ptr());
    ///
    /// let reader = domain.reader();
    /// let guard = reader.pin();
    /// // SAFETY: an unlinked object is retired, and this guard is older than the unlinking.
    /// let seen = unsafe { &*current.load(Ordering::Acquire) };
    ///
    /// let old = current.swap(local.alloc().unwrap().into_raw().as_ptr(), Ordering::AcqRel);
    /// // SAFETY: the address came from `into_raw`, and is not linked any more.
    /// let old = unsafe { pool.from_raw(old) }.expect("one of this pool");
    /// pool.retire(old, &mut reclaimer).expect("there is room");
    /// reclaimer.poll();
    /// assert_eq!((*seen, pool.stats().in_use), (0, 2));
    /// drop(guard);
    /// reclaimer.flush()?;
    /// assert_eq!(pool.stats().in_use, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn retire<'p>(&'p self, object: Obj<'p, T>, reclaimer: &mut Reclaimer) -> Result<(), Obj<'p, T>>
    where
        T: Sync,
    {
        assert!(object.is_of(self.any.core()), "an object of one pool was retired to another pool");
        // Readers may hold it: a panic must not drop it.
        let object = ManuallyDrop::new(object);
        let context = Arc::into_raw(Arc::clone(self.any.core()));
        // SAFETY: this call owns the object. The context carries a reference count for it.
        let garbage = unsafe {
            Garbage::in_context(object.address().cast(), size_of::<T>(), context.cast(), take_back)
        };
        reclaimer.offer_object(garbage).map_err(|_| {
            // SAFETY: it is from `into_raw` above, and the reclaimer has not taken it.
            drop(unsafe { Arc::from_raw(context) });
            ManuallyDrop::into_inner(object)
        })
    }

    /// The object at an address that [`Obj::into_raw`] returned; `None` if no object of this pool is there.
    ///
    /// # Safety
    /// The address came from [`Obj::into_raw`] of one of this pool's objects, and is passed to this function once.
    /// Nothing else uses the object, except readers that only read it. Nobody reads it any more when the result is written to, freed or
    /// dropped: while there may be readers, [`retire`](Pool::retire) it.
    pub unsafe fn from_raw(&self, object: *mut T) -> Option<Obj<'_, T>> {
        let object = NonNull::new(object)?;
        let shard = self.any.core().owner_of(object.as_ptr().cast())?;
        // SAFETY: the object is one of this pool, and only this call has it, except for readers that only read it, by
        // the caller's promise.
        Some(unsafe { Obj::new(object, shard) })
    }

    /// The addresses of the objects that are in use: those that were never given back.
    ///
    /// Takes time in proportion to the number of objects. Every [`Obj`] borrows the pool, so these objects were
    /// forgotten, given away by [`Obj::into_raw`], or wait in a reclaimer. For their number, see
    /// [`stats`](AnyPool::stats).
    ///
    /// ```
    /// use stillpoint::pool::Pool;
    ///
    /// let mut pool = Pool::new(100, || 0u64)?;
    /// let object = pool.local()?.alloc().expect("an object is free").into_raw();
    /// assert_eq!(pool.leaks(), [object.cast()]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn leaks(&mut self) -> Vec<NonNull<u8>> {
        self.any.leaks()
    }
}

impl<T: Send + 'static> Deref for Pool<T> {
    type Target = AnyPool;

    fn deref(&self) -> &AnyPool {
        &self.any
    }
}

/// Takes back an object that has waited in a reclaimer.
///
/// # Safety
/// `context` came from `Arc::into_raw` of the core that `object` belongs to. This call gives up both.
unsafe extern "C-unwind" fn take_back(object: NonNull<()>, context: *const ()) {
    // SAFETY: the context came from `Arc::into_raw`, and this call gives it up, by the caller's promise.
    let core = unsafe { Arc::from_raw(context.cast::<Core>()) };
    core.free_without_shard(object.as_ptr().cast());
}

stillpoint_sys::debug!([T: Send + 'static] |this| Pool<T> { stats: this.stats(), .. });
