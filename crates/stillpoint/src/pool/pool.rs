use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use super::builder::{Kind, LeakHook};
use super::engine::{Core, Handle};
use super::error::{BuildError, TooManyLocals};
use super::local::Local;
use super::misuse::Misuse;
use super::obj::Obj;
use super::region::{self, Iova};
use super::report::{self, AuditError, Census, Counts, Info, Leaks};
use super::PoolBuilder;
use crate::rcu::engine::core::garbage::Garbage;
use crate::rcu::Reclaimer;

/// A pool of initialised objects.
///
/// Threads share it by reference, and each makes a [`Local`] of its own. For threads that are not scoped, leak it:
/// `Box::leak(Box::new(pool))`.
///
/// When it is dropped, its objects are dropped, those that were never given back included; nobody can have one of these.
///
/// ```
/// use stillpoint::pool::Pool;
///
/// let pool: Pool<String> = Pool::new(100, String::new)?;
/// let local = pool.local()?;
/// let mut name = local.alloc().expect("nobody has one");
/// name.push_str("kept until the next user resets it");
/// drop(name); // back in the pool
/// assert_eq!(pool.counts().in_use, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pool<T: Send + 'static> {
    core: Arc<Core>,
    kind: Kind,
    leak_hook: Option<LeakHook>,
    objects: PhantomData<fn(T) -> T>,
}

impl<T: Send + 'static> Pool<T> {
    /// At least `capacity` objects, each made by `make`.
    ///
    /// # Errors
    /// As [`PoolBuilder::build`].
    ///
    /// # Panics
    /// As `make`.
    pub fn new(capacity: usize, make: impl Fn() -> T + Send + Sync + 'static) -> Result<Self, BuildError> {
        PoolBuilder::new(capacity).build(make)
    }

    pub(super) fn new_of(core: Arc<Core>, kind: Kind, leak_hook: Option<LeakHook>) -> Self {
        Self { core, kind, leak_hook, objects: PhantomData }
    }

    /// The calling thread's access to the pool. It takes over what a thread has left that ended, if there is one.
    ///
    /// # Errors
    /// When as many threads use the pool as it allows.
    pub fn local(&self) -> Result<Local<'_, T>, TooManyLocals> {
        let handle = Handle::new(&self.core).ok_or(TooManyLocals { limit: self.kind.locals })?;
        // SAFETY: the pool's objects are of this type.
        Ok(unsafe { Local::new(handle) })
    }

    /// What the pool is made of.
    pub fn info(&self) -> Info {
        report::info(&self.core, &self.kind)
    }

    /// How many objects there are, and are out. Takes time in proportion to the threads that have used the pool.
    ///
    /// ```
    /// # use stillpoint::pool::Pool;
    /// let pool = Pool::new(100, || 0u64)?;
    /// let local = pool.local()?;
    /// let objects = [local.alloc(), local.alloc()];
    /// let counts = pool.counts();
    /// assert_eq!((counts.in_use, counts.available), (2, counts.capacity - 2));
    /// # drop(objects);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn counts(&self) -> Counts {
        report::counts(&self.core)
    }

    /// Walks through the whole pool: is every bucket in exactly one place, and do the counts add up? Takes time in
    /// proportion to the number of buckets.
    ///
    /// # Errors
    /// The first thing that does not fit. Nothing is wrong with that while others use the pool.
    ///
    /// ```
    /// # use stillpoint::pool::Pool;
    /// let pool = Pool::new(100, || 0u64)?;
    /// assert_eq!(pool.audit()?.objects_out, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn audit(&self) -> Result<Census, AuditError> {
        report::census(&self.core)
    }

    /// The first 64 cases of misuse that were found after the call that did it had returned.
    pub fn misuses(&self) -> Vec<Misuse> {
        self.core.ledger.first()
    }

    /// How many there were.
    pub fn misuse_count(&self) -> usize {
        self.core.ledger.count()
    }

    /// The address of an object for a device; see [`Region::iova`](super::Region::iova).
    pub fn iova(&self, object: &Obj<'_, T>) -> Option<Iova> {
        iova(&self.core, object.address())
    }

    /// Hands an object to a reclaimer: it comes back to the pool when no reader of the domain can hold it any more. Until
    /// then it counts as in use, and what other threads read of it is left alone.
    ///
    /// It is for objects that were published by their address ([`Obj::into_raw`]) and have been unlinked. An object that waits
    /// keeps the memory of the pool.
    ///
    /// # Errors
    /// When the reclaimer is full of objects that readers hold up: the object is handed back.
    ///
    /// # Panics
    /// If the object is of another pool (it is freed there); and as [`Reclaimer::retire`], if the reclaimer was full.
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
    /// // SAFETY: what is unlinked is retired, and this guard is older.
    /// let seen = unsafe { &*current.load(Ordering::Acquire) };
    ///
    /// let old = current.swap(local.alloc().unwrap().into_raw().as_ptr(), Ordering::AcqRel);
    /// // SAFETY: it came from `into_raw`, and is linked no more.
    /// let old = unsafe { pool.from_raw(old) }.expect("one of this pool");
    /// pool.retire(old, &mut reclaimer).expect("there is room");
    /// reclaimer.poll();
    /// assert_eq!((*seen, pool.counts().in_use), (0, 2));
    /// drop(guard);
    /// reclaimer.flush()?;
    /// assert_eq!(pool.counts().in_use, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn retire<'p>(&'p self, object: Obj<'p, T>, reclaimer: &mut Reclaimer) -> Result<(), Obj<'p, T>>
    where
        T: Sync,
    {
        assert!(object.is_of(&self.core), "an object of one pool was retired to another one");
        let (address, bytes) = (object.address(), size_of::<T>());
        let taken = reclaimer.offer(bytes, || {
            let context = Arc::into_raw(Arc::clone(&self.core)).cast::<()>();
            // SAFETY: the object is this call's, which forgets it when it is taken in. The context is counted for it.
            unsafe { Garbage::in_context(address.cast(), bytes, context, take_back) }
        });
        if taken {
            std::mem::forget(object);
            Ok(())
        } else {
            Err(object)
        }
    }

    /// The object behind an address that [`Obj::into_raw`] gave; `None` for one that is no object of this pool.
    ///
    /// # Safety
    /// The address came from `into_raw` of one of this pool's objects, once for each call, and nobody else uses the object
    /// but readers that only read.
    pub unsafe fn from_raw(&self, object: *mut T) -> Option<Obj<'_, T>> {
        let object = NonNull::new(object)?;
        let shard = self.core.owner_of(object.as_ptr().cast())?;
        // SAFETY: the caller's promise.
        Some(unsafe { Obj::new(object, shard) })
    }

    /// The objects that were never given back.
    ///
    /// Takes time in proportion to the number of objects. Nobody can have one of them, as every [`Obj`] borrows the pool: they were forgotten, given away by
    /// [`Obj::into_raw`], or wait in a reclaimer.
    ///
    /// ```
    /// # use stillpoint::pool::Pool;
    /// let mut pool = Pool::new(100, || 0u64)?;
    /// std::mem::forget(pool.local()?.alloc());
    /// assert_eq!(pool.leaks().0.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn leaks(&mut self) -> Leaks {
        // SAFETY: every local and every object borrows the pool, which is the caller's alone. What waits in reclaimers comes
        // back without a shard.
        unsafe { report::leaks(&self.core) }
    }

    /// Drops the pool, and says what was never given back. Takes time in proportion to the number of objects.
    ///
    /// # Errors
    /// The list of it; the memory is freed all the same.
    pub fn close(mut self) -> Result<(), Leaks> {
        self.leak_hook = None;
        match self.leaks() {
            leaks if leaks.0.is_empty() => Ok(()),
            leaks => Err(leaks),
        }
    }
}

impl<T: Send + 'static> Drop for Pool<T> {
    fn drop(&mut self) {
        if let Some(hook) = self.leak_hook.take() {
            let leaks = self.leaks();
            if !leaks.0.is_empty() {
                hook(&leaks);
            }
        }
    }
}

/// Takes an object back that has waited in a reclaimer.
///
/// # Safety
/// `context` came from `Arc::into_raw` of the core that `object` belongs to, and is given up with it.
unsafe fn take_back(object: NonNull<()>, context: *const ()) {
    // SAFETY: the caller's promise.
    let core = unsafe { Arc::from_raw(context.cast::<Core>()) };
    core.free_without_shard(object.as_ptr().cast());
}

/// The device's address of an object.
pub(super) fn iova(core: &Core, object: NonNull<u8>) -> Option<Iova> {
    let address = object.as_ptr().addr();
    let regions = report::regions(core, None);
    let region =
        regions.iter().find(|region| (region.start..region.start + region.bytes).contains(&address))?;
    region::iova(region.backing, address)
}

impl<T: Send + 'static> fmt::Debug for Pool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("counts", &self.counts()).finish_non_exhaustive()
    }
}
