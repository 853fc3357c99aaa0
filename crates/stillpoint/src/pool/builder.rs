use std::ptr::NonNull;

use super::any::AnyPool;
use super::audit::Info;
use super::engine::common;
use super::engine::geometry::Geometry;
use super::engine::{Core, Given, Life, Plan};
use super::error::BuildError;
use super::memory::Pages;

type Reset<T> = Box<dyn Fn(&mut T) + Send + Sync>;

/// Makes a pool of type `P`: a [`Pool`](super::Pool) or a [`RawPool`](super::raw::RawPool). Made by
/// [`Pool::builder`](super::Pool::builder) and [`RawPool::builder`](super::raw::RawPool::builder).
///
/// ```
/// use stillpoint::pool::memory::Pages;
/// use stillpoint::pool::raw::RawPool;
///
/// let pool = RawPool::builder(1_000, 2048, 64)
///     .bucket_bytes(64 << 10)
///     .cache(256)
///     .pages(Pages::Transparent)
///     .build()?;
/// assert!(pool.stats().capacity >= 1_000);
/// assert_eq!(pool.info().objects_per_block, 31);
/// # Ok::<(), stillpoint::pool::BuildError>(())
/// ```
///
/// What threads keep, and where the memory lies:
///
/// ```
/// use stillpoint::pool::Pool;
///
/// let builder = Pool::builder(1_000, || [0u8; 1500])
///     .high_water(4) // whole buckets that a thread keeps to itself
///     .max_locals(2);
/// let node = None; // from the configuration
/// let pool = match node {
///     Some(node) => builder.node(node),
///     None => builder,
/// }
/// .build()?;
/// assert_eq!((pool.info().high_water, pool.info().memory[0].node), (4, None));
///
/// let locals = [pool.local()?, pool.local()?];
/// assert!(pool.local().is_err()); // `TooManyLocals`
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PoolBuilder<P> {
    capacity: usize,
    size: usize,
    align: usize,
    life: Life,
    max_objects: Option<usize>,
    growth_step: Option<usize>,
    bucket_bytes: Option<usize>,
    cache: Option<usize>,
    high_water: Option<u32>,
    max_locals: usize,
    pages: Pages,
    node: Option<u32>,
    hardened: bool,
    counts_calls: bool,
    stride: Option<usize>,
    given: Option<Given>,
    /// Gives the pool its type, which is that of the objects that `life` makes. A subtype cannot take its place, since
    /// pools are invariant in the type of their objects.
    finish: fn(AnyPool) -> P,
}

/// How the objects of a [`Pool`](super::Pool) are made and reset.
///
/// An object is made once, with its memory, and dropped once, with the pool. From one user to the next, it keeps its
/// state, except for what [`reset`](Objects::reset) changes. A function that makes an object can be converted into an
/// `Objects`.
///
/// ```
/// use stillpoint::pool::{Objects, Pool};
///
/// let buffers = Objects::new(|| Vec::<u8>::with_capacity(1500)).reset(Vec::clear);
/// let pool = Pool::builder(1, buffers).build()?;
/// let local = pool.local()?;
/// local.alloc().unwrap().push(1);
/// let again = local.alloc().unwrap();
/// assert!(again.is_empty() && again.capacity() >= 1500);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Objects<T> {
    make: Box<dyn Fn() -> T + Send + Sync>,
    reset: Option<Reset<T>>,
}

impl<T> Objects<T> {
    /// `make` makes each object. If the pool grows, it runs while other threads may wait for it: see
    /// [`max_objects`](PoolBuilder::max_objects) for the locks that it must not take.
    pub fn new(make: impl Fn() -> T + Send + Sync + 'static) -> Self {
        Self { make: Box::new(make), reset: None }
    }

    /// `reset` is called for each object that is allocated. If it panics, all objects of the same call are freed.
    pub fn reset(mut self, reset: impl Fn(&mut T) + Send + Sync + 'static) -> Self {
        self.reset = Some(Box::new(reset));
        self
    }
}

impl<T, F: Fn() -> T + Send + Sync + 'static> From<F> for Objects<T> {
    fn from(make: F) -> Self {
        Self::new(make)
    }
}

impl<T: 'static> Objects<T> {
    pub(super) fn into_life(self) -> Life {
        unsafe fn destroy<T>(object: *mut u8) {
            // SAFETY: the pool passes an object that nothing else uses any more.
            unsafe { object.cast::<T>().drop_in_place() };
        }
        let make = self.make;
        Life {
            // SAFETY: the pool passes aligned memory for an object, which holds none.
            construct: Some(Box::new(move |place| unsafe { place.cast::<T>().write(make()) })),
            destroy: Some(destroy::<T>),
            reset: self.reset.map(|reset| -> Box<dyn Fn(*mut u8) + Send + Sync> {
                // SAFETY: the pool passes an object that only the caller has.
                Box::new(move |object| reset(unsafe { &mut *object.cast::<T>() }))
            }),
        }
    }
}

stillpoint_sys::debug!([T] Objects<T> { .. });

impl<P> PoolBuilder<P> {
    /// The largest default for [`cache`](PoolBuilder::cache).
    const CACHE: usize = 512;

    /// By default, the most steps in which a pool grows to its limit.
    const STEPS: usize = 8;

    pub(super) fn new(
        capacity: usize,
        size: usize,
        align: usize,
        life: Life,
        finish: fn(AnyPool) -> P,
    ) -> Self {
        Self {
            capacity,
            size,
            align,
            life,
            max_objects: None,
            growth_step: None,
            bucket_bytes: None,
            cache: None,
            high_water: None,
            max_locals: 256,
            pages: Pages::Best,
            node: None,
            hardened: false,
            counts_calls: false,
            stride: None,
            given: None,
            finish,
        }
    }

    /// The number of objects that the pool may grow to, rounded up to whole buckets; at least the capacity. The pool
    /// grows when an allocation finds too few free objects, unless there would be too few even then. By default it never
    /// grows.
    ///
    /// Address space and headers for all of them are reserved when the pool is built. An allocation that grows the pool
    /// takes as long as the kernel and the constructors of the new objects take. They run under a lock of the pool: an allocation in another
    /// thread that finds too few objects waits for them. So a constructor must not wait for a thread that may be allocating from the pool,
    /// nor take a lock under which others allocate: both threads would wait for ever.
    ///
    /// ```
    /// use stillpoint::pool::Pool;
    ///
    /// let pool = Pool::builder(64, || 0u64).max_objects(128).build()?;
    /// assert_eq!((pool.stats().capacity, pool.info().max_objects), (64, 128));
    /// let local = pool.local()?;
    /// let objects: Vec<_> = std::iter::from_fn(|| local.alloc()).collect();
    /// assert_eq!((objects.len(), pool.stats().capacity), (128, 128));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_objects(mut self, objects: usize) -> Self {
        self.max_objects = Some(objects);
        self
    }

    /// The number of objects that a pool with [`max_objects`](PoolBuilder::max_objects) grows by at a time, rounded up
    /// to whole buckets; a call for many objects adds as many times this number as it needs. 0 means one bucket; with
    /// `usize::MAX`, the pool grows to its limit at once. The default is an eighth of the objects that may be added. Has no
    /// effect on a pool that never grows.
    ///
    /// With reserved huge pages, make the pool and its steps multiples of 2 MiB: after a smaller piece, the pool may
    /// not be able to grow. Steps of less than 64 KiB waste headers.
    ///
    /// ```
    /// use stillpoint::pool::Pool;
    ///
    /// let pool = Pool::builder(64, || 0u64).max_objects(1024).growth_step(usize::MAX).build()?;
    /// let local = pool.local()?;
    /// let objects: Vec<_> = (0..65).map(|_| local.alloc()).collect();
    /// assert_eq!(pool.stats().capacity, 1024);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn growth_step(mut self, objects: usize) -> Self {
        self.growth_step = Some(objects);
        self
    }

    /// Bytes of a bucket, a power of two. The default is the largest size for at most 64 objects. If that is above 64
    /// KiB, it is at most twice the size of all objects of the capacity: a pool of one object of 4 MiB takes 8 MiB. Set
    /// a size for a pool that begins with few objects and grows.
    pub fn bucket_bytes(mut self, bytes: usize) -> Self {
        self.bucket_bytes = Some(bytes);
        self
    }

    /// Bytes from one object to the next: a multiple of the alignment, at least the size of an object, and from 8 bytes to
    /// 1 GiB. The default is
    /// an odd number of cache lines, which spreads the first lines of objects over all sets of a cache. A power of two
    /// would put them into a few sets. Set this when something else determines the layout.
    ///
    /// ```
    /// use stillpoint::pool::raw::RawPool;
    /// use stillpoint::pool::BuildError;
    ///
    /// let pool = RawPool::builder(1_000, 2048, 64).stride(2048).build()?;
    /// assert_eq!(pool.info().stride, 2048);
    /// let refused = RawPool::builder(1_000, 2048, 64).stride(2000).build().unwrap_err();
    /// assert!(matches!(refused, BuildError::Stride { bytes: 2000, least: 2048, align: 64 }));
    /// # Ok::<(), BuildError>(())
    /// ```
    pub fn stride(mut self, bytes: usize) -> Self {
        self.stride = Some(bytes);
        self
    }

    /// Uses the caller's memory for the objects: `bytes` bytes from `start` on. `start` is a multiple of the alignment
    /// of the objects. `release` is called when the pool does not use the memory any more: when the pool has been
    /// dropped and no object waits in a reclaimer, or when the pool could not be built. Headers and caches still come
    /// from the allocator.
    ///
    /// The pool uses the buckets that the capacity needs, from `start` on, and does not grow; [`BuildError::Given`]
    /// says how many bytes that takes. [`pages`](Self::pages) and [`node`](Self::node) have no effect. The pool gives
    /// no device addresses for its objects: the caller, who has mapped the memory, knows them.
    ///
    /// # Safety
    /// Until `release` is called, the memory is valid for reads and writes by any thread, and nothing else uses it.
    ///
    /// ```
    /// use std::ptr::NonNull;
    /// use stillpoint::pool::memory::Backing;
    /// use stillpoint::pool::raw::RawPool;
    ///
    /// let memory: &'static mut [u64] = vec![0u64; 1 << 16].leak();
    /// let (start, bytes) = (NonNull::from(&mut *memory).cast(), size_of_val(memory));
    /// // SAFETY: the memory was leaked, and nothing else uses it.
    /// let pool = unsafe { RawPool::builder(100, 256, 8).memory(start, bytes, || {}) }.build()?;
    /// assert_eq!(pool.info().memory[0].backing, Backing::Given);
    /// let object = pool.local()?.alloc().expect("an object is free");
    /// assert!(object.addr() >= start.addr());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn memory(
        mut self,
        start: NonNull<u8>,
        bytes: usize,
        release: impl FnOnce() + Send + Sync + 'static,
    ) -> Self {
        self.given = Some(Given { start, bytes, release: Some(Box::new(release)) });
        self
    }

    /// Objects that the cache of each thread holds; 0 for no cache. The default is an eighth of the capacity, at least
    /// 32 and at most 512, and no more than an eighth of [`max_objects`](Self::max_objects).
    ///
    /// A *small* pool has no caches by default: one that never has more than 512 objects, nor more than 64 buckets.
    /// There, any thread can allocate any free object, whatever idle threads have allocated before. An allocation and a
    /// free each take an exchange on a shared word. To make them faster, set a cache: other threads cannot allocate what
    /// is in it.
    ///
    /// ```
    /// use stillpoint::pool::Pool;
    ///
    /// let pool = Pool::new(64, || 0u64)?;
    /// let (idle, needy) = (pool.local()?, pool.local()?);
    /// let _one = idle.alloc().expect("an object is free");
    /// let rest: Vec<_> = std::iter::from_fn(|| needy.alloc()).collect();
    /// assert_eq!((rest.len(), pool.info().cache), (63, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cache(mut self, objects: usize) -> Self {
        self.cache = Some(objects);
        self
    }

    /// Whole buckets that a thread keeps; beyond this number, the oldest ones go to the shared store. The default is
    /// one for each 16 buckets of the pool, at least 1 and at most 32, and none in a [small](Self::cache) pool. If you set
    /// another number than 0, the pool does not count as small. In a pool that is not small, a thread also keeps the free
    /// objects of the buckets that it has begun.
    pub fn high_water(mut self, buckets: u32) -> Self {
        self.high_water = Some(buckets);
        self
    }

    /// Threads that may use the pool at a time. The default is 256.
    pub fn max_locals(mut self, threads: usize) -> Self {
        self.max_locals = threads;
        self
    }

    /// The kinds of pages that the memory may consist of.
    pub fn pages(mut self, pages: Pages) -> Self {
        self.pages = pages;
        self
    }

    /// The NUMA node of the memory. Before Linux 5.14, which cannot allocate all pages at once, there are no reserved huge
    /// pages with this: if the node lacked one, the first access to it would end the process.
    pub fn node(mut self, node: u32) -> Self {
        self.node = Some(node);
        self
    }

    /// Whether the pool counts calls and objects, including what its caches serve: see [`AnyPool::call_stats`](super::AnyPool::call_stats).
    /// Then calls take longer, and objects that are dropped, not freed through a local, are returned to their buckets as if by another
    /// thread. Where the option is off, calls for single objects are as without it, and those for blocks test one word more.
    ///
    /// ```
    /// use stillpoint::pool::Pool;
    ///
    /// let pool = Pool::builder(100, || 0u64).count_calls(true).build()?;
    /// let local = pool.local()?;
    /// let mut burst = local.bulk(32);
    /// local.alloc_bulk(32, &mut burst)?;
    /// local.free_bulk(32, &mut burst);
    /// drop(local.alloc());
    /// let calls = pool.call_stats();
    /// assert_eq!((calls.gets, calls.got, calls.puts, calls.put), (2, 33, 2, 33));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn count_calls(mut self, counts: bool) -> Self {
        self.counts_calls = counts;
        self
    }

    /// Whether the pool makes additional checks. Every pool refuses pointers to other memory, and detects a double free
    /// when the object comes back to its bucket. A hardened pool also
    ///
    /// - refuses double frees at once;
    /// - fills free objects of bare memory with a pattern, and finds a write to a free object when it is allocated again;
    /// - allocates late what was freed just now: a thread takes its whole buckets before others, and 64 objects of a bucket in turn (in a
    ///   [small](Self::cache) pool that has not grown, all objects in turn).
    ///
    /// It has no cache: each object goes to its bucket. [`PoolStats::misuses`](super::audit::PoolStats::misuses) counts
    /// what was found too late to be refused.
    ///
    /// ```
    /// use stillpoint::pool::raw::{FreeError, RawPool};
    ///
    /// let pool = RawPool::builder(100, 64, 64).hardened(true).build()?;
    /// let local = pool.local()?;
    /// let object = local.alloc().expect("an object is free");
    /// // SAFETY: nothing uses the object any more. The pool refuses the second free.
    /// let answers = unsafe { [local.free(object), local.free(object)] };
    /// assert_eq!(answers, [Ok(()), Err(FreeError::AlreadyFree(0))]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn hardened(mut self, hardened: bool) -> Self {
        self.hardened = hardened;
        self
    }

    /// Makes the pool, and all its objects.
    ///
    /// # Errors
    /// When the pool cannot be made as requested. The [`BuildError`] says why, and what to do.
    ///
    /// # Panics
    /// With the panic of a function that makes an object. The objects made before are dropped.
    ///
    /// ```
    /// use stillpoint::pool::raw::RawPool;
    /// use stillpoint::pool::Pool;
    ///
    /// let pool = Pool::builder(100, || Vec::<u8>::with_capacity(1500)).build()?;
    /// let local = pool.local()?;
    /// let mut buffer = local.alloc().expect("an object is free");
    /// buffer.push(1);
    ///
    /// let pool = RawPool::builder(100, 2048, 64).build()?;
    /// assert_eq!(pool.info().object_bytes, 2048);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn build(self) -> Result<P, BuildError> {
        let plan = self.plan()?;
        Ok((self.finish)(AnyPool::new(Core::new(plan, self.life, self.given)?)))
    }

    /// What [`info`](AnyPool::info) will say of the pool, before it has memory, for callers that find that memory themselves.
    ///
    /// # Errors
    /// Those of [`build`](Self::build) that have nothing to do with memory.
    ///
    /// ```
    /// use stillpoint::pool::raw::RawPool;
    ///
    /// let info = RawPool::builder(1_000, 2048, 64).bucket_bytes(64 << 10).info()?;
    /// let buckets = info.max_objects / info.objects_per_block;
    /// assert_eq!((buckets * info.bucket_bytes, info.memory.len()), (33 * (64 << 10), 0));
    /// # Ok::<(), stillpoint::pool::BuildError>(())
    /// ```
    pub fn info(&self) -> Result<Info, BuildError> {
        self.plan().map(|plan| plan.info())
    }

    fn plan(&self) -> Result<Plan, BuildError> {
        let (size, align) = (self.size, self.align);
        let geometry = Geometry::with_stride(size, align, self.stride, self.bucket_bytes, self.capacity)?;
        let buckets = |objects: usize| {
            let buckets = objects.div_ceil(geometry.objects() as usize);
            u32::try_from(buckets).ok().filter(|&buckets| buckets > 0).ok_or(BuildError::Capacity { objects })
        };
        let first = buckets(self.capacity)?;
        let (most, step) = match self.max_objects {
            Some(most) if most < self.capacity => {
                return Err(BuildError::Capacity { objects: self.capacity })
            }
            Some(most) => {
                let more = most - self.capacity;
                let step = self.growth_step.unwrap_or(more.div_ceil(Self::STEPS));
                // A step adds at least one bucket, and at most all that may be added.
                (buckets(most)?, buckets(step.clamp(1, more.max(1)))?)
            }
            None => (first, 0),
        };
        if self.max_locals == 0 || self.max_locals > 1 << 16 {
            return Err(BuildError::Locals { locals: self.max_locals });
        }
        let objects = most as usize * geometry.objects() as usize;
        let keeps_none = self.cache.unwrap_or(0) == 0 && self.high_water.unwrap_or(0) == 0;
        let is_small = keeps_none && objects <= common::OBJECTS && most <= common::BUCKETS;
        let usual = match is_small {
            true => 0,
            false => (self.capacity / 8).max(32).min(objects / 8).min(Self::CACHE),
        };
        let cache = self.cache.unwrap_or(usual).min(objects);
        Ok(Plan {
            geometry,
            size,
            buckets: first,
            most_buckets: most,
            step,
            cache,
            common: is_small,
            high_water: if is_small { Some(0) } else { self.high_water },
            locals: self.max_locals,
            hardened: self.hardened,
            counts_calls: self.counts_calls,
            want: self.pages.want(self.node),
        })
    }
}

stillpoint_sys::debug!([P] |this| PoolBuilder<P> {
    capacity: this.capacity,
    max_objects: this.max_objects,
    growth_step: this.growth_step,
    bucket_bytes: this.bucket_bytes,
    pages: this.pages,
    hardened: this.hardened,
    counts_calls: this.counts_calls,
    ..
});
