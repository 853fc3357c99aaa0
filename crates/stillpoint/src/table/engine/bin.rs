//! Removed entries, until they are freed.
//!
//! There are a few retire lists. Each has a lock that is only tried: a writer takes the first list whose lock is free,
//! and pushes its entry on a stack when all are taken. So a writer waits neither for another writer nor for a reader.
//! No entry is lost: an entry that cannot be freed yet stays in its list, with its memory.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
// Not modelled: counts.
use std::sync::atomic::{AtomicU64, AtomicUsize};

use crossbeam_utils::CachePadded;

use crate::rcu::engine::core::garbage::Garbage;
use crate::rcu::engine::queue::account::Limits;
use crate::rcu::engine::queue::retire_list::{Pace, RetireList, GATHERED};
use crate::rcu::engine::queue::stack::Stack;
use crate::rcu::engine::Core;
use stillpoint_sys::os::{ticks, TICKS_PER_MICRO};
use stillpoint_sys::panics::{keep_first, resume, Panic};
use stillpoint_sys::sync::atomic::Ordering;
use stillpoint_sys::sync::{Locked, TryLock};

const SHARDS: usize = if cfg!(stillpoint_loom) { 1 } else { 4 };
/// The most destructors that one call of a writer runs.
pub(crate) const FREED_PER_CALL: usize = 32;
/// In ticks. Writers' calls within this time share one poll.
const INTERVAL: u64 = 5 * TICKS_PER_MICRO;
/// The most calls that share one poll; a power of two.
const POLLED_TOGETHER: usize = FREED_PER_CALL;
/// From this number of waiting objects on, each call polls.
const BACKLOG: usize = 2 * GATHERED * Pace::DEFAULT.batch;
/// The arena limits the number of entries, if anything does.
const UNLIMITED: Limits = Limits { objects: usize::MAX, bytes: usize::MAX };
/// A writer whose own shard is empty polls another shard once in this number of calls.
const FOREIGN: usize = 16;

pub(crate) struct Bin {
    shards: [CachePadded<Shard>; SHARDS],
    /// Entries that were retired while every shard was locked.
    stack: Stack,
    stacked: AtomicUsize,
}

struct Shard {
    /// Length of the retire list, written under the lock.
    pending: AtomicUsize,
    /// Calls of writers, some of which poll.
    turns: AtomicUsize,
    /// Time of the last poll by a writer, in ticks.
    polled: AtomicU64,
    list: TryLock<RetireList>,
}

impl Bin {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        let shard = || Shard {
            pending: AtomicUsize::new(0),
            turns: AtomicUsize::new(0),
            polled: AtomicU64::new(0),
            list: TryLock::new(RetireList::new(Arc::clone(core), Pace::DEFAULT, UNLIMITED)),
        };
        Self {
            shards: std::array::from_fn(|_| CachePadded::new(shard())),
            stack: Stack::new(),
            stacked: AtomicUsize::new(0),
        }
    }

    /// Takes an entry that was just unlinked. Never waits, and frees nothing.
    pub(crate) fn put(&self, garbage: Garbage, hint: usize) {
        match self.any(hint) {
            Some(mut shard) => shard.list.retire(garbage),
            None => self.stack(garbage),
        }
    }

    /// As [`put`](Bin::put), and then [`poll`](Bin::poll), under one lock. Polls only the caller's own shard. If that
    /// shard is locked, a destructor in its poll may have made this call, and polls must not nest from shard to shard.
    ///
    /// # Panics
    /// With the panic of a destructor.
    #[inline]
    pub(crate) fn put_and_poll(&self, garbage: Garbage, hint: usize) {
        let Some(mut shard) = self.shards[hint % SHARDS].try_lock() else { return self.put(garbage, hint) };
        shard.list.retire(garbage);
        if shard.shard.is_due() {
            self.poll_held(shard, FREED_PER_CALL);
        }
    }

    #[cold]
    fn stack(&self, garbage: Garbage) {
        // Relaxed: a count.
        self.stacked.fetch_add(1, Ordering::Relaxed);
        self.stack.push(garbage);
    }

    /// Frees a bounded number of the objects that are ready. Never waits. Does nothing when nothing is pending here, or
    /// when another thread holds the lock.
    ///
    /// # Panics
    /// With the panic of a destructor.
    #[inline]
    pub(crate) fn poll(&self, hint: usize) {
        let shard = &self.shards[hint % SHARDS];
        // Relaxed: a hint.
        if shard.pending.load(Ordering::Relaxed) > 0 {
            if shard.is_due() {
                self.poll_shard(hint, FREED_PER_CALL);
            }
        } else {
            let turn = shard.next_turn();
            if turn % FOREIGN == 0 {
                self.poll_shard(hint.wrapping_add(turn / FOREIGN), FREED_PER_CALL);
            }
        }
    }

    fn poll_shard(&self, hint: usize, limit: usize) -> usize {
        self.shards[hint % SHARDS].try_lock().map_or(0, |shard| self.poll_held(shard, limit))
    }

    #[inline(never)]
    fn poll_held(&self, mut shard: Held<'_>, limit: usize) -> usize {
        self.unstack(&mut shard);
        shard.list.poll_own(limit)
    }

    /// Moves the entries of the stack to a list.
    fn unstack(&self, shard: &mut Held<'_>) {
        // Relaxed: a hint.
        if self.stacked.load(Ordering::Relaxed) > 0 {
            for garbage in self.stack.take() {
                self.stacked.fetch_sub(1, Ordering::Relaxed);
                shard.list.retire(garbage);
            }
        }
    }

    /// Frees all that is ready, in every shard.
    ///
    /// # Panics
    /// With the first panic of a destructor, after all that was ready has been freed.
    pub(crate) fn poll_all(&self) -> usize {
        let (mut freed, mut first) = (0, None);
        for shard in 0..SHARDS {
            // A panic in one shard must not keep the others from being polled.
            match catch_unwind(AssertUnwindSafe(|| self.poll_shard(shard, usize::MAX))) {
                Ok(more) => freed += more,
                Err(panic) => keep_first(&mut first, panic),
            }
        }
        resume(first);
        freed
    }

    /// For a caller that found no free slot: runs up to `limit` destructors, as many as are ready, and returns their
    /// number. Starts a grace period at once, regardless of the pace. Looks at every entry once. Leaves out the shards
    /// that other writers hold, since it never waits.
    ///
    /// # Panics
    /// With the first panic of a destructor, after the others have run.
    pub(crate) fn press(&self, limit: usize) -> usize {
        for shard in &self.shards {
            if let Some(mut shard) = shard.try_lock() {
                self.unstack(&mut shard);
                shard.list.close();
            }
        }
        let (mut freed, mut first) = (0, None);
        for shard in &self.shards {
            if freed >= limit {
                break;
            }
            let Some(mut shard) = shard.try_lock() else { continue };
            shard.list.close();
            let len = shard.list.len();
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| shard.list.free_some(limit - freed))) {
                keep_first(&mut first, panic);
            }
            freed += len - shard.list.len();
        }
        resume(first);
        freed
    }

    pub(crate) fn pending(&self) -> usize {
        // Relaxed: counts that may be old by the time they are read.
        let shards = self.shards.iter().map(|shard| shard.pending.load(Ordering::Relaxed));
        shards.sum::<usize>() + self.stacked.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn any(&self, hint: usize) -> Option<Held<'_>> {
        let own = self.shards[hint % SHARDS].try_lock();
        if own.is_some() {
            return own;
        }
        self.any_other(hint)
    }

    #[cold]
    #[inline(never)]
    fn any_other(&self, hint: usize) -> Option<Held<'_>> {
        (0..SHARDS).find_map(|turn| self.shards[hint.wrapping_add(turn) % SHARDS].try_lock())
    }

    /// Frees the objects of `context` at once. Returns the first panic of a destructor.
    ///
    /// # Safety
    /// No reader can hold an object of `context` any more.
    pub(crate) unsafe fn free_unreachable(&mut self, context: *const ()) -> Option<Panic> {
        let mut first = None;
        let mut stacked = self.stack.take();
        for shard in &mut self.shards {
            let list = shard.list.get_mut();
            for garbage in &mut stacked {
                list.retire(garbage);
            }
            // SAFETY: no reader can hold an object of `context` any more, by the caller's promise.
            let panic = unsafe { list.free_unreachable(context) };
            if let Some(panic) = panic {
                keep_first(&mut first, panic);
            }
        }
        first
    }
}

impl Shard {
    #[inline(always)]
    fn try_lock(&self) -> Option<Held<'_>> {
        self.list.try_lock().map(|list| Held { shard: self, list })
    }

    /// The number of this call.
    fn next_turn(&self) -> usize {
        // Relaxed, both: a hint. An increment may be lost.
        let turn = self.turns.load(Ordering::Relaxed).wrapping_add(1);
        self.turns.store(turn, Ordering::Relaxed);
        turn
    }

    /// Whether a writer should poll: after enough calls, some time after the last poll, or when many objects wait.
    #[inline]
    fn is_due(&self) -> bool {
        if cfg!(stillpoint_loom) || self.next_turn() % POLLED_TOGETHER == 0 {
            return true;
        }
        let now = ticks();
        // Relaxed, all: hints.
        let due = now.wrapping_sub(self.polled.load(Ordering::Relaxed)) >= INTERVAL;
        if due {
            self.polled.store(now, Ordering::Relaxed);
        }
        due || self.pending.load(Ordering::Relaxed) >= BACKLOG
    }
}

/// A locked shard. Its drop stores the number of pending objects.
struct Held<'b> {
    shard: &'b Shard,
    list: Locked<'b, RetireList>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // Relaxed: a count.
        self.shard.pending.store(self.list.len(), Ordering::Relaxed);
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use std::cell::Cell;
    use std::ptr::NonNull;

    use super::*;
    use crate::rcu::engine::core::record::set_hazard;
    use crate::rcu::Domain;

    /// A context that counts the destructors of its objects, and can make them panic.
    #[derive(Default)]
    struct Freed {
        count: Cell<usize>,
        panics: Cell<bool>,
    }

    impl Freed {
        fn context(&self) -> *const () {
            std::ptr::from_ref(self).cast()
        }

        fn garbage(&self) -> Garbage {
            self.garbage_at(NonNull::dangling())
        }

        fn garbage_at(&self, address: NonNull<()>) -> Garbage {
            unsafe extern "C-unwind" fn destroy(_: NonNull<()>, context: *const ()) {
                // SAFETY: each test keeps its context until the end, and has one thread.
                let freed = unsafe { &*context.cast::<Freed>() };
                freed.count.set(freed.count.get() + 1);
                assert!(!freed.panics.get(), "a destructor panics");
            }
            // SAFETY: there is no object, and the context stays until the end of the test.
            unsafe { Garbage::in_context(address, 8, self.context(), destroy) }
        }
    }

    fn bin() -> Bin {
        Bin::new(Domain::new().core())
    }

    /// An entry in each shard, and one on the stack.
    fn fill(bin: &Bin, freed: &Freed) {
        (0..SHARDS).for_each(|hint| bin.put(freed.garbage(), hint));
        let shards: Vec<_> = bin.shards.iter().map(|shard| shard.try_lock().unwrap()).collect();
        bin.put(freed.garbage(), 0);
        drop(shards);
        assert_eq!(bin.pending(), SHARDS + 1);
    }

    #[test]
    fn what_finds_every_shard_taken_is_counted_and_freed() {
        let (freed, bin) = (Freed::default(), bin());
        fill(&bin, &freed);
        // At this pace, the entry from the stack may wait for the next grace period.
        while bin.pending() > 0 {
            bin.poll_all();
            assert_eq!(freed.count.get() + bin.pending(), SHARDS + 1);
        }
    }

    /// Every object is freed, although each destructor panics; the first panic is handed back.
    #[test]
    fn a_table_that_goes_frees_what_is_left_anywhere() {
        for panics in [false, true] {
            let (freed, mut bin) = (Freed::default(), bin());
            freed.panics.set(panics);
            fill(&bin, &freed);
            // SAFETY: the objects do not exist, so no reader holds one.
            let panic = unsafe { bin.free_unreachable(freed.context()) };
            assert_eq!((panic.is_some(), freed.count.get()), (panics, SHARDS + 1));
        }
    }

    /// A writer also polls the shards of threads that have stopped writing.
    #[test]
    fn what_is_left_in_any_shard_is_freed_by_the_polls_of_one_writer() {
        for left in 0..SHARDS {
            let (freed, bin) = (Freed::default(), bin());
            bin.put(freed.garbage(), left);
            // The first poll of a shard may begin its grace period, and the second one free the object.
            (0..2 * (SHARDS + 1) * FOREIGN).for_each(|_| bin.poll(left + 1));
            assert_eq!(freed.count.get(), 1, "from {left}");
        }
    }

    /// However many entries readers protect, a call looks at each entry once, and goes on with others.
    #[test]
    fn pressure_frees_up_to_a_limit_and_looks_once() {
        const PINNED: usize = 300;
        let (freed, domain) = (Freed::default(), Domain::new());
        let (bin, reader) = (Bin::new(domain.core()), domain.reader());
        let protected = NonNull::from(&freed).cast();
        let slot = reader.record().free_hazard();
        set_hazard(&slot, protected.as_ptr());
        for _ in 0..PINNED {
            bin.put(freed.garbage_at(protected), 0);
            bin.put(freed.garbage(), 0);
        }
        let mut left = PINNED;
        for limit in [1, 32, 1, 7, PINNED, 1, 32] {
            let (steps, more) = stillpoint_sys::work::steps_of(|| bin.press(limit));
            assert_eq!(more, limit.min(left));
            left -= more;
            assert_eq!((freed.count.get(), bin.pending()), (PINNED - left, PINNED + left));
            assert!(steps <= 3 * PINNED, "{steps} steps");
        }
        // SAFETY: it came from `free_hazard`, and is not used any more.
        unsafe { slot.release() };
        assert_eq!(bin.press(usize::MAX), PINNED);
    }

    /// Regardless of the pace, an object that was just put there is freed at once, in every round.
    #[test]
    fn pressure_waits_for_no_pace() {
        let (freed, bin) = (Freed::default(), bin());
        for round in 1..=100 {
            (0..SHARDS).for_each(|hint| bin.put(freed.garbage(), hint));
            bin.press(usize::MAX);
            assert_eq!((freed.count.get(), bin.pending()), (round * SHARDS, 0));
        }
    }
}
