//! Pools of objects in contiguous buckets: a thread allocates blocks or single objects, and any thread frees them.
//!
//! ```
//! use stillpoint::pool::Pool;
//!
//! let pool = Pool::new(1_000, || [0u8; 1500])?;
//! let local = pool.local()?; // one for each thread, kept
//!
//! let mut packet = local.alloc().expect("the pool has more");
//! packet[0] = 1;
//! std::thread::scope(|scope| {
//!     scope.spawn(move || drop(packet)); // freed by another thread, back in its bucket
//! });
//!
//! let block = local.alloc_block().expect("whole buckets are left");
//! assert_eq!(block.len(), pool.info().objects_per_block);
//! for packet in block {
//!     local.free(packet);
//! }
//! assert_eq!(pool.stats().in_use, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A pool keeps its memory until it is dropped. Its objects lie in *buckets*: contiguous memory whose size is a power
//! of two. A thread allocates one object, several at a time, or a [`Block`], which is a whole bucket. Any thread may
//! free any of them, even the objects of a block one by one. Freed objects return to their buckets, until these are
//! whole again.
//!
//! # Which pool, which call
//!
//! | | holds | who frees | for |
//! |---|---|---|---|
//! | [`Pool`] | initialised objects, made once and reused | [`Obj`] when dropped, or [`Local::free`] | Rust programs |
//! | [`RawPool`](raw::RawPool) | bare memory, of a size known at run time | [`RawLocal::free`](raw::RawLocal::free), which is unsafe | packet buffers, bindings for C |
//!
//! Both dereference to [`AnyPool`], which has their statistics and audits. A program needs three types: [`Pool`], a
//! [`Local`] for each thread, and [`Obj`], or [`Bulk`] for many objects at a time. The rest is for
//!
//! - sizes, limits, growth and checks: [`PoolBuilder`], [`Objects`];
//! - what is in use, and where the free objects are: [`audit`];
//! - huge pages, NUMA nodes and devices: [`memory`];
//! - bare memory: [`raw`].
//!
//! [`Local::free_many`] returns objects of other threads with one atomic exchange for each bucket; dropping them takes
//! one for each object. [`Local::alloc_block`] changes one word for each 64 objects.
//!
//! # Who holds what
//!
//! Each thread works on a shard: a cache, and buckets that belong to it. Objects freed by other threads return to the
//! owner of their bucket. A cache that is too full hands half of its objects to other threads. A shard keeps a cache
//! and a limited number of whole buckets ([`PoolBuilder::cache`], [`PoolBuilder::high_water`]); further whole buckets
//! go to a shared store. When a thread ends, its shard goes to the next new thread, and threads that find the pool
//! exhausted take its free objects. **A thread that stays and does not use the pool** keeps its cache, its whole
//! buckets up to the high-water mark, and the free objects of its other buckets; [`Local::park`] releases them. Objects
//! of its buckets that other threads have freed stay available to all threads. They are available as a block only if
//! the bucket has at most 64 objects and other threads have freed all of them.
//!
//! # Fork
//!
//! Fork while no other thread is in a call on a pool that the child uses: the child has what that thread left half done. What the parent's other
//! threads keep stays with their locals, which nobody drops in the child: caches and buckets are out of reach there, and these locals
//! count towards [`max_locals`](PoolBuilder::max_locals).
//!
//! Reserved huge pages are reserved only for the parent. When the parent or the child first writes to such a page after the fork, the kernel makes a
//! copy. If no huge page is free, the child ends by SIGBUS, at once or when it next uses the page. So make the pool after the fork, or with
//! [`Pages::Transparent`](memory::Pages::Transparent).
//!
//! # Work
//!
//! The cost of a call does not depend on what other threads have done since the last one: it collects a limited number
//! of the objects that they have freed, and moves buckets in batches. There are five exceptions. Some calls grow the
//! pool. If [`Local::alloc_block`] finds no whole bucket, it goes through all objects that other threads have freed and
//! that are not collected yet, and through those that caches have handed over. [`Local::park`] and the drop of a local
//! give back everything that the local holds. [`AnyPool::audit`] and [`Pool::leaks`] read every bucket. A thread that finds
//! that another one has left uncollected objects at the same moment goes through these once.
//!
//! # Consistency
//!
//! The counts of [`AnyPool::stats`] always add up. They are exact when no thread is in a call of the pool; otherwise
//! the objects that a call moves may or may not be counted. An allocation fails only if no object is free, apart from
//! those that other threads keep (see above), and those that they are moving at that moment.
//!
//! # Correctness
//!
//! The argument is in `docs/design/pool.md` of the repository. Models check the engine under loom, with a broken
//! variant for each step. The design of the buckets is after A. Rybchenko and A. Andreev, "Bucket mempool driver",
//! DPDK, 2018. The magazines are after J. Bonwick and J. Adams, "Magazines and Vmem", USENIX 2001. The stack of whole
//! buckets is after R. K. Treiber, "Systems Programming: Coping with Parallelism", IBM RJ 5118, 1986.

mod any;
pub mod audit;
mod block;
mod builder;
mod bulk;
mod busted;
mod engine;
mod error;
mod local;
pub mod memory;
#[cfg(all(test, stillpoint_loom))]
mod models;
mod obj;
mod orders;
#[expect(clippy::module_inception, reason = "the pool of the module `pool`")]
mod pool;
pub mod raw;

pub use any::AnyPool;
pub use block::{Block, BlockObjects};
pub use builder::{Objects, PoolBuilder};
pub use bulk::Bulk;
pub use error::{BuildError, Exhausted, TooManyLocals};
pub use local::Local;
pub use obj::Obj;
pub use pool::Pool;
