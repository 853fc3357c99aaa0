//! Objects in contiguous buckets: blocks out, single objects back, from any thread.
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
//! A pool allocates memory once and never gives it back before its end. Its objects lie in *buckets*: power-of-two blocks
//! of contiguous memory. A thread gets single objects, many at a time, or a [`Block`], which is a whole bucket; any thread
//! frees any of them, one by one if it likes, and they are collected in their buckets until these are whole again.
//!
//! # Which pool, which call
//!
//! | | holds | who frees | for |
//! |---|---|---|---|
//! | [`Pool`] | initialised objects, made once and reused | [`Obj`] when dropped, or [`Local::free`] | Rust programs |
//! | [`RawPool`] | bare memory, of a size known at run time | [`RawLocal::free`], which is unsafe | packet buffers, bindings for C |
//!
//! What they tell of themselves is the same, and is in [`AnyPool`], to which both dereference.
//!
//! [`Local::free_many`] returns many objects of other threads with one exchange for each bucket; dropping each of them
//! takes one exchange for each object. [`Local::alloc_block`] changes one word for each 64 objects.
//!
//! # Who holds what
//!
//! Each thread works on a shard: a cache, and buckets that belong to it. Objects freed by other threads return to the
//! owner of their bucket. What a cache has too many of is handed over by the half cache, to whoever needs some. A shard keeps
//! a cache and a limited number of whole buckets to itself
//! ([`PoolBuilder::cache`], [`PoolBuilder::high_water`]); others go to a shared store. A thread that ends leaves its shard
//! to the next one, and to whoever finds the pool exhausted. **A thread that stays and does not use the pool** keeps its
//! cache, its whole buckets up to the high-water mark, and the free objects of its other buckets: [`Local::park`] lets go
//! of them. Objects of its buckets that other threads have freed can be had all the same; blocks of them only if a bucket
//! has up to 64 objects, and all of them have come back from other threads.
//!
//! # Work
//!
//! No call works off what other threads have done since the last one: it collects a limited number of what they have freed,
//! and moves buckets by the batch. In proportion to more are calls that grow the pool; an [`Local::alloc_block`] that finds no
//! whole bucket, which goes through all that others have freed and nobody has collected, and through what caches had too many
//! of; [`Local::park`], and the end of a
//! local, which give back what it holds; and [`AnyPool::audit`], [`Pool::leaks`] and [`Pool::close`], which look at every bucket.
//!
//! # Consistency
//!
//! [`AnyPool::stats`] always adds up. It is exact when nobody uses the pool at the moment; else each thread in a call may be
//! counted with or without what this call moves. An allocation that fails has looked at everything but what other threads
//! hold as above, and what they are moving at the moment.
//!
//! # Correctness
//!
//! The argument is in `docs/design/pool.md` of the repository; models run it under loom, with a broken variant for each
//! step. After A. Rybchenko and A. Andreev, "Bucket mempool driver", DPDK, 2018; the stacks of whole buckets after J.
//! Bonwick and J. Adams, "Magazines and Vmem", USENIX 2001.

mod audit;
mod block;
mod builder;
mod bulk;
mod busted;
mod engine;
mod error;
mod local;
mod memory;
#[cfg(all(test, loom))]
mod models;
mod obj;
mod orders;
#[expect(clippy::module_inception, reason = "the pool of the module `pool`")]
mod pool;
mod raw;

pub use audit::{AnyPool, AuditError, CacheStats, Census, Info, Leak, Leaks, MemoryInfo, Misuse, PoolStats};
pub use block::{Block, BlockObjects};
pub use builder::{Hardening, Objects, PoolBuilder};
pub use bulk::Bulk;
pub use error::{BuildError, Exhausted, FreeError, FreeErrorKind, TooManyLocals};
pub use local::Local;
pub use memory::{Backing, Iova, Memory, Pages};
pub use obj::Obj;
pub use pool::Pool;
pub use raw::{RawBlock, RawLocal, RawPool};
