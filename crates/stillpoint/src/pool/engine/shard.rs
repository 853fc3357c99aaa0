//! The state that one thread holds at a time: a cache, and lists of buckets.

use crossbeam_utils::CachePadded;

use super::cache::Cache;
use super::list::List;
use super::own::{OwnIsize, OwnU32, OwnUsize};
use super::row::{Row, NONE};
use super::Core;
use crate::pool::busted::{is, Variant};
use crate::pool::orders;
use stillpoint_sys::sync::atomic::{AtomicIsize, AtomicU32, AtomicUsize, Ordering};
use stillpoint_sys::work;

const FREE: u32 = 0;
const HELD: u32 = 1;

/// A shard is made once, and stays until the pool is dropped. It is held by a thread's handle, or free. A thread takes
/// hold of a free shard to use it, or to take its objects.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) index: u32,
    pub(crate) cache: Cache,
    /// Objects that this shard's holders have taken out of buckets, less those they have put back. For the holder.
    pub(crate) out: OwnIsize,
    /// Objects that this shard's holders have put into the depot, less those they have taken out. For the holder.
    pub(crate) deposited: OwnIsize,
    /// Whether the holder has allocated a block since its last refill of single objects. If so, freed objects go to
    /// their buckets, to make these whole. For the holder.
    pub(crate) wants_blocks: OwnU32,
    pub(crate) partial: List,
    pub(crate) whole: List,
    /// For the holder.
    pub(crate) open: Open,
    /// Counts of the holders' calls. Only the holder writes to this cache line.
    pub(crate) calls: CachePadded<Calls>,
    core: *const Core,
    /// The thread whose handle holds the shard, or 0.
    thread: AtomicUsize,
    state: AtomicU32,
    /// Rows whose remote word is not zero.
    inbox: CachePadded<Inbox>,
    /// Number of objects of this shard's buckets that were freed without a shard.
    pub(crate) strays: CachePadded<AtomicIsize>,
}

/// The open row of a shard, or none: see `open`.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) row: OwnU32,
    /// Its bucket.
    bucket: OwnU32,
    /// Its objects: none, if no row is open.
    pub(crate) objects: OwnU32,
    /// The address of the first one, and the bytes from there to the end of the last one.
    pub(crate) start: OwnUsize,
    bytes: OwnUsize,
}

impl Open {
    pub(crate) fn none() -> Self {
        Self {
            row: OwnU32::new(NONE),
            bucket: OwnU32::new(NONE),
            objects: OwnU32::new(0),
            start: OwnUsize::new(0),
            bytes: OwnUsize::new(0),
        }
    }

    pub(crate) fn bucket(&self) -> Option<u32> {
        let bucket = self.bucket.get();
        (bucket != NONE).then_some(bucket)
    }

    pub(crate) fn set(&self, row: u32, bucket: u32, objects: u32, start: usize, bytes: usize) {
        self.row.set(row);
        self.bucket.set(bucket);
        self.objects.set(objects);
        self.start.set(start);
        self.bytes.set(bytes);
    }

    pub(crate) fn unset(&self) {
        self.set(NONE, NONE, 0, 0, 0);
    }

    /// The position of an object in the row, if it is one of its objects.
    #[inline(always)]
    pub(crate) fn index_of(&self, core: &Core, object: *mut u8) -> Option<u32> {
        let within = object.addr().wrapping_sub(self.start.get());
        if within < self.bytes.get() {
            core.geometry.index_of(within)
        } else {
            None
        }
    }
}

/// Counts of a shard, in the order of [`CacheStats`](crate::pool::audit::CacheStats).
#[derive(Debug, Default)]
pub(crate) struct Calls {
    pub(crate) drawn: OwnUsize,
    pub(crate) given: OwnUsize,
    pub(crate) blocks_got: OwnUsize,
    pub(crate) blocks_put: OwnUsize,
    pub(crate) failures: OwnUsize,
    /// Of all calls, in a pool that counts them.
    pub(crate) all: Tally<OwnUsize>,
}

/// Counts of calls, in the order of [`CallStats`](crate::pool::audit::CallStats).
#[derive(Debug, Default)]
pub(crate) struct Tally<N> {
    pub(crate) gets: N,
    pub(crate) got: N,
    pub(crate) failed_gets: N,
    pub(crate) not_got: N,
    pub(crate) puts: N,
    pub(crate) put: N,
    pub(crate) failed_puts: N,
    pub(crate) block_gets: N,
    pub(crate) failed_block_gets: N,
    pub(crate) block_puts: N,
    pub(crate) failed_block_puts: N,
}

/// Two lists of rows. Each is taken as a whole.
#[derive(Debug)]
struct Inbox {
    /// Rows are posted here one by one.
    posted: AtomicU32,
    /// The rest of a posted list: the rows that the thread that took it has not used.
    rest: AtomicU32,
}

// SAFETY: only the holder of the shard uses cache, lists and counts; see `try_hold`. The core outlives its shards.
unsafe impl Send for Shard {}
// SAFETY: other threads only read counts, which are atomics, and use the inbox, which is atomic, too.
unsafe impl Sync for Shard {}

impl Shard {
    pub(crate) fn new(index: u32, core: *const Core, cache: Cache) -> Self {
        Self {
            index,
            cache,
            out: OwnIsize::new(0),
            deposited: OwnIsize::new(0),
            wants_blocks: OwnU32::new(0),
            partial: List::new(),
            whole: List::new(),
            open: Open::none(),
            calls: CachePadded::new(Calls::default()),
            core,
            thread: AtomicUsize::new(0),
            state: AtomicU32::new(FREE),
            inbox: CachePadded::new(Inbox { posted: AtomicU32::new(NONE), rest: AtomicU32::new(NONE) }),
            strays: CachePadded::new(AtomicIsize::new(0)),
        }
    }

    /// The pool that the shard is a part of.
    #[inline(always)]
    pub(crate) fn core(&self) -> &Core {
        // SAFETY: the core owns its shards, and does not move (see `Core::new`).
        unsafe { &*self.core }
    }

    /// Takes hold of the shard, if it is free.
    pub(crate) fn try_hold(&self) -> bool {
        // Relaxed: avoids an exchange that would fail. Not in models, for the reason given in `take`.
        work::step();
        let free = cfg!(stillpoint_loom) || self.state.load(Ordering::Relaxed) == FREE;
        free && self.state.compare_exchange(FREE, HELD, orders::hold(), Ordering::Relaxed).is_ok()
    }

    /// Leaves the shard.
    pub(crate) fn leave(&self) {
        // Relaxed: only the thread whose number is stored acts on this word. See `is_of`.
        self.thread.store(0, Ordering::Relaxed);
        self.state.store(FREE, orders::leave());
    }

    /// Stores the thread whose handle holds the shard.
    pub(crate) fn settle(&self, thread: usize) {
        // Relaxed: see `is_of`.
        self.thread.store(thread, Ordering::Relaxed);
    }

    /// Whether a handle of `thread`, the calling thread, holds the shard. If so, the thread may use it.
    #[inline(always)]
    pub(crate) fn is_of(&self, thread: usize) -> bool {
        // Relaxed: only the thread itself stores its own number here, and only its own handle removes it.
        self.thread.load(Ordering::Relaxed) == thread
    }

    /// Puts a row into the inbox. The caller has just changed the row's remote word from zero.
    pub(crate) fn post(&self, rows: &[Row], row: u32) {
        self.post_list(rows, row, row);
    }

    /// Puts a list of rows into the inbox. The caller owns the rows until then.
    fn post_list(&self, rows: &[Row], first: u32, last: u32) {
        // A first guess: the inbox is empty if its owner collects often.
        let mut head = NONE;
        loop {
            // Relaxed: published by the exchange.
            rows[last as usize].far.behind.store(head, Ordering::Relaxed);
            match self.inbox.posted.compare_exchange_weak(head, first, orders::post(), Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes all posted rows. Returns the first; `behind` links to the next.
    #[inline]
    pub(crate) fn take_posted(&self) -> u32 {
        Self::take(&self.inbox.posted)
    }

    /// Takes the rest of a posted list, as [`take_posted`](Shard::take_posted).
    #[inline]
    pub(crate) fn take_rest(&self) -> u32 {
        Self::take(&self.inbox.rest)
    }

    /// Whether the inbox has rows. If this is seen too late, they are collected later.
    #[inline(always)]
    pub(crate) fn has_posted(&self) -> bool {
        // Relaxed, both: whoever takes the lists does so by an exchange.
        let [posted, rest] = [&self.inbox.posted, &self.inbox.rest].map(|list| list.load(Ordering::Relaxed));
        posted & rest != NONE
    }

    #[inline]
    fn take(list: &AtomicU32) -> u32 {
        // Relaxed: avoids an exchange on an empty list. Not in models: loom explores orders with other threads only at
        // the last access to an object, which should be the exchange.
        if !cfg!(stillpoint_loom) && list.load(Ordering::Relaxed) == NONE {
            return NONE;
        }
        list.swap(NONE, orders::take_inbox())
    }

    /// Puts back the rest of a list that was taken, beginning with `first`.
    pub(crate) fn leave_rest(&self, rows: &[Row], first: u32) {
        let right = orders::leave_rest();
        if is(Variant::RestOverwrites) {
            return self.inbox.rest.store(first, right);
        }
        if is(Variant::RestForgotten)
            || self.inbox.rest.compare_exchange(NONE, first, right, Ordering::Relaxed).is_ok()
        {
            return;
        }
        // Another thread has left the rest of its list meanwhile: find the last row of this one, and post it.
        let mut last = first;
        loop {
            work::step();
            // Relaxed: the caller owns the rows.
            match rows[last as usize].far.behind.load(Ordering::Relaxed) {
                NONE => return self.post_list(rows, first, last),
                behind => last = behind,
            }
        }
    }

    /// The first rows of both lists, for an audit, which is exact when no other thread uses the pool.
    pub(crate) fn lists_of_inbox(&self) -> [u32; 2] {
        // Acquire: pairs with the releases in `post_list` and `leave_rest`.
        [&self.inbox.posted, &self.inbox.rest].map(|list| list.load(Ordering::Acquire))
    }
}
