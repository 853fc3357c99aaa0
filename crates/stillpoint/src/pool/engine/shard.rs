//! What belongs to one thread at a time: a cache, and lists of buckets.

use crossbeam_utils::CachePadded;

use super::cache::Cache;
use super::list::List;
use super::own::{OwnIsize, OwnU32, OwnUsize};
use super::row::{Row, Spot, NONE};
use super::Core;
use crate::pool::busted::{is, Variant};
use crate::pool::orders;
use stillpoint_sys::sync::atomic::{AtomicIsize, AtomicU32, AtomicUsize, Ordering};
use stillpoint_sys::work;

const FREE: u32 = 0;
const HELD: u32 = 1;

/// A shard is made once and never dies. It is held by the handle of a thread, or by nobody; then whoever needs one, or
/// needs its objects, takes hold of it.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) index: u32,
    pub(crate) cache: Cache,
    /// Objects taken out of buckets by this shard's holders, less those put back by them. The holder's.
    pub(crate) out: OwnIsize,
    /// Objects put into the depot by this shard's holders, less those taken out by them. The holder's.
    pub(crate) deposited: OwnIsize,
    /// Whether its holder has asked for a block since it last needed single objects: then what it frees is to make buckets
    /// whole. The holder's.
    pub(crate) wants_blocks: OwnU32,
    pub(crate) partial: List,
    pub(crate) whole: List,
    /// What its holders have done. Only the holder writes it, on a line that nobody else writes to.
    pub(crate) calls: CachePadded<Calls>,
    core: *const Core,
    /// The thread that holds it for longer, or 0.
    thread: AtomicUsize,
    state: AtomicU32,
    /// Rows whose remote word is not zero.
    inbox: CachePadded<Inbox>,
    /// Objects of this shard's buckets that were freed without any shard.
    pub(crate) strays: CachePadded<AtomicIsize>,
}

/// What was asked of a shard, in the order of [`CacheStats`](crate::pool::CacheStats).
#[derive(Debug, Default)]
pub(crate) struct Calls {
    pub(crate) drawn: OwnUsize,
    pub(crate) given: OwnUsize,
    pub(crate) blocks_got: OwnUsize,
    pub(crate) blocks_put: OwnUsize,
    pub(crate) failures: OwnUsize,
}

/// Two lists of rows, both taken as a whole.
#[derive(Debug)]
struct Inbox {
    /// Rows are put here one by one.
    posted: AtomicU32,
    /// What is left of such a list: whoever took it had enough, and has not come to these rows.
    rest: AtomicU32,
}

// SAFETY: cache, lists and counts are used by whoever holds the shard; see `try_hold`. The core outlives its shards.
unsafe impl Send for Shard {}
// SAFETY: as above; others only read counts, which are atomics.
unsafe impl Sync for Shard {}

impl Shard {
    pub(crate) fn new(index: u32, core: *const Core, cache: Cache) -> Self {
        Self {
            index,
            cache,
            out: OwnIsize::new(0),
            deposited: OwnIsize::new(0),
            wants_blocks: OwnU32::new(0),
            partial: List::new(Spot::Partial),
            whole: List::new(Spot::Whole),
            calls: CachePadded::new(Calls::default()),
            core,
            thread: AtomicUsize::new(0),
            state: AtomicU32::new(FREE),
            inbox: CachePadded::new(Inbox { posted: AtomicU32::new(NONE), rest: AtomicU32::new(NONE) }),
            strays: CachePadded::new(AtomicIsize::new(0)),
        }
    }

    /// The pool that it is a part of.
    #[inline(always)]
    pub(crate) fn core(&self) -> &Core {
        // SAFETY: the core owns its shards, and does not move (see `Core::new`).
        unsafe { &*self.core }
    }

    /// Takes hold of it, unless somebody has.
    pub(crate) fn try_hold(&self) -> bool {
        // Relaxed: spares the exchange where it would fail. Not in models, as in `take_inbox`.
        work::step();
        let free = cfg!(loom) || self.state.load(Ordering::Relaxed) == FREE;
        free && self.state.compare_exchange(FREE, HELD, orders::hold(), Ordering::Relaxed).is_ok()
    }

    /// Lets go of it.
    pub(crate) fn leave(&self) {
        // Relaxed: an answer of `is_of` was for the thread that asks.
        self.thread.store(0, Ordering::Relaxed);
        self.state.store(FREE, orders::leave());
    }

    /// Says which thread holds it for longer.
    pub(crate) fn settle(&self, thread: usize) {
        // Relaxed: see `is_of`.
        self.thread.store(thread, Ordering::Relaxed);
    }

    /// Whether `thread`, the calling one, holds it for longer: then it may use the shard.
    #[inline(always)]
    pub(crate) fn is_of(&self, thread: usize) -> bool {
        // Relaxed: only the thread itself stores its own name here, and its own handle takes it away.
        self.thread.load(Ordering::Relaxed) == thread
    }

    /// Puts a row into the inbox. Its remote word has just become other than zero, by the caller.
    pub(crate) fn post(&self, rows: &[Row], row: u32) {
        self.post_list(rows, row, row);
    }

    /// Puts a list of rows into the inbox, which are in the caller's hands.
    fn post_list(&self, rows: &[Row], first: u32, last: u32) {
        // A guess, which is right for an owner that keeps up.
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

    /// Takes everything that was posted: the first row, to be followed by `behind`.
    #[inline]
    pub(crate) fn take_posted(&self) -> u32 {
        Self::take(&self.inbox.posted)
    }

    /// Takes what is left of a list that was posted, as [`take_posted`](Shard::take_posted).
    #[inline]
    pub(crate) fn take_rest(&self) -> u32 {
        Self::take(&self.inbox.rest)
    }

    #[inline]
    fn take(list: &AtomicU32) -> u32 {
        // Relaxed: spares the exchange of nothing for nothing. Not in models: loom takes the last access alone for one that
        // another thread's may have to come before.
        if !cfg!(loom) && list.load(Ordering::Relaxed) == NONE {
            return NONE;
        }
        list.swap(NONE, orders::take_inbox())
    }

    /// Puts the rest of a list back that was taken, beginning with `first`.
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
        // Another thread has left one meanwhile.
        let mut last = first;
        loop {
            // Relaxed: the rows are the caller's.
            match rows[last as usize].far.behind.load(Ordering::Relaxed) {
                NONE => return self.post_list(rows, first, last),
                behind => last = behind,
            }
        }
    }

    /// The first rows of both lists, for a walk that is exact when nobody else uses the pool.
    pub(crate) fn lists_of_inbox(&self) -> [u32; 2] {
        // Acquire: pairs with the releases in `post_list` and `leave_rest`.
        [&self.inbox.posted, &self.inbox.rest].map(|list| list.load(Ordering::Acquire))
    }
}
