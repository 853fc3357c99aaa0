//! Memory for the entries: slots that never move, found by index, and used again through free lists.
//!
//! A free slot holds the index of the next free one in its own memory. Each list has a lock that is held for a short
//! time; a thread that finds it taken tries the next list. Each list also has a run of fresh slots, which were never
//! used, so that threads seldom contend for the counter of fresh slots. When a list becomes empty, it takes over all
//! slots of another list, or a new run.

use std::cell::UnsafeCell;
#[cfg(not(stillpoint_loom))]
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;
// Not modelled: the lists are used only under their locks.
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use crossbeam_utils::CachePadded;

use super::bucket::NO_ENTRY;
use super::chunks::Chunks;
use super::slab::{Touch, Zeroed};
use stillpoint_sys::sync::{Locked, TryLock};

/// Key and value of an entry.
#[derive(Debug)]
pub(crate) struct Pair<K, V> {
    pub(crate) key: K,
    pub(crate) value: V,
}

/// Memory of one entry. Its size is never zero, so that each entry has its own address.
pub(crate) struct Slot<K, V>(UnsafeCell<Contents<K, V>>);

/// The index and the pair share memory; in a model they do not, so that a late reader still finds the old pair.
#[cfg(not(stillpoint_loom))]
#[repr(C)]
union Contents<K, V> {
    /// In a free slot: the index of the next free one.
    next: u32,
    pair: ManuallyDrop<Pair<K, V>>,
}

#[cfg(stillpoint_loom)]
struct Contents<K, V> {
    next: u32,
    pair: std::mem::MaybeUninit<Pair<K, V>>,
}

// SAFETY: zeroed memory is a free slot, and a slot needs no drop.
unsafe impl<K, V> Zeroed for Slot<K, V> {
    #[cfg(stillpoint_loom)]
    fn zeroed() -> Self {
        Self(UnsafeCell::new(Contents { next: NO_ENTRY, pair: std::mem::MaybeUninit::uninit() }))
    }
}

// SAFETY: a slot is plain memory. The table decides which thread uses its contents, and demands `Send + Sync` of them.
unsafe impl<K: Send, V: Send> Send for Slot<K, V> {}
// SAFETY: a shared slot is plain memory, too. The table synchronizes every use of its contents.
unsafe impl<K: Send + Sync, V: Send + Sync> Sync for Slot<K, V> {}

/// The part of an arena that a lookup needs, small enough for registers.
pub(crate) struct Lens<'a, K, V> {
    first: *mut Slot<K, V>,
    len: usize,
    arena: &'a Arena<K, V>,
}

impl<K, V> Clone for Lens<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Lens<'_, K, V> {}

impl<'a, K, V> Lens<'a, K, V> {
    pub(crate) fn new(arena: &'a Arena<K, V>) -> Self {
        let (first, len) = arena.slots.first();
        Self { first, len, arena }
    }

    pub(crate) fn arena(&self) -> &'a Arena<K, V> {
        self.arena
    }

    /// As [`Arena::pair`].
    #[inline(always)]
    pub(crate) fn pair(&self, index: u32) -> NonNull<Pair<K, V>> {
        if (index as usize) < self.len {
            pair_in(self.first.wrapping_add(index as usize))
        } else {
            self.arena.pair(index)
        }
    }
}

/// The pair in a slot.
#[inline(always)]
fn pair_in<K, V>(slot: *mut Slot<K, V>) -> NonNull<Pair<K, V>> {
    // SAFETY: slots are in slabs, which do not start at null. No reference to the contents is made.
    unsafe { NonNull::new_unchecked((&raw mut (*(*slot).0.get()).pair).cast()) }
}

/// Number of free lists.
const LISTS: usize = 8;
/// Slots that [`Arena::shrink`] takes or gives back under one lock of a list.
const SHARE: u32 = 256;

/// The bit of a slot in its word, in a set of slots.
fn bit_of(slot: u32) -> u64 {
    1 << (slot % u64::BITS)
}

fn word_of(set: &mut [u64], slot: u32) -> &mut u64 {
    &mut set[(slot / u64::BITS) as usize]
}

fn is_in(set: &[u64], slot: u32) -> bool {
    set.get((slot / u64::BITS) as usize).is_some_and(|word| word & bit_of(slot) != 0)
}

/// Fresh slots that a list takes at a time.
const RUN: u32 = 32;

/// Spare slots beyond the limit, for entries that replace others: a replacement takes a second slot until no reader can
/// hold the old entry. At first, these are the slots with the lowest indices. Slots are interchangeable, though: while
/// a spare slot is owed, any slot that is freed becomes a spare one.
pub(crate) const SPARE: u32 = if cfg!(stillpoint_loom) { 1 } else { 64 };

/// The largest number of entries: an index has 32 bits.
pub(crate) const MOST: usize = (u32::MAX - 1 - SPARE) as usize;

pub(crate) struct Arena<K, V> {
    slots: Chunks<Slot<K, V>>,
    /// Slots from this index on were never used.
    fresh: CachePadded<AtomicU32>,
    /// All indices are below this.
    limit: u32,
    /// Number of spare slots in use. Changed only under the lock of `spare`.
    owed: AtomicU32,
    /// Spare slots from this index on were never used. Used only under the lock of `spare`.
    fresh_spare: AtomicU32,
    /// Spare slots that are free again.
    spare: FreeList,
    free: [CachePadded<FreeList>; LISTS],
    /// Ranges of slots whose memory was given back: as good as fresh ones.
    returned: TryLock<Vec<Range<u32>>>,
    /// Held by `shrink`, which has all free slots meanwhile.
    shrinking: Mutex<()>,
    is_shrinking: AtomicBool,
}

impl<K, V> Arena<K, V> {
    /// An arena with memory for `slots` entries before it allocates again, and for at most `limit` entries, besides the
    /// spare slots. `None` when there is no memory.
    pub(crate) fn new(slots: usize, limit: Option<usize>, touch: Touch) -> Option<Self> {
        // The index 0 means that there is no entry.
        let first = 1 + SPARE;
        let limit = limit.unwrap_or(MOST).min(MOST) + first as usize;
        let slots = slots.checked_add(first as usize)?.min(limit);
        Some(Self {
            slots: Chunks::new(slots, touch)?,
            fresh: CachePadded::new(AtomicU32::new(first)),
            limit: limit as u32,
            owed: AtomicU32::new(0),
            fresh_spare: AtomicU32::new(1),
            spare: FreeList::default(),
            free: Default::default(),
            returned: TryLock::new(Vec::new()),
            shrinking: Mutex::new(()),
            is_shrinking: AtomicBool::new(false),
        })
    }

    /// Whether a refusal is for want of room: no slot is fresh, and at most half of the others are free. Others may free some meanwhile.
    pub(crate) fn is_at_limit(&self) -> bool {
        // Relaxed: compared, not followed.
        self.fresh.load(Ordering::Relaxed) >= self.limit
            && self.free_slots() <= (self.limit - 1 - SPARE) as usize / 2
    }

    /// Free slots that are not fresh.
    fn free_slots(&self) -> usize {
        let returned: usize = self.returned.lock().iter().map(|range| range.len()).sum();
        returned + self.free.iter().map(|list| list.len()).sum::<usize>()
    }

    /// A slot, which the caller then owns; `None` when the limit is reached or there is no memory.
    #[inline(always)]
    pub(crate) fn allocate(&self, hint: usize) -> Option<u32> {
        let Some(list) = self.free[hint % LISTS].try_lock() else { return self.refill(hint, None) };
        let found = self.take(&list);
        if found.is_some() {
            return found;
        }
        self.refill(hint, Some(list))
    }

    /// For a thread that found its list empty or locked: takes over another list, or takes a run of fresh slots.
    #[cold]
    #[inline(never)]
    fn refill(&self, hint: usize, own: Option<Held<'_>>) -> Option<u32> {
        let lists = || (1..=LISTS).map(|turn| &self.free[hint.wrapping_add(turn) % LISTS]);
        // The list may belong to another thread, and have slots. If every list is locked, this waits for one.
        let own = own.or_else(|| lists().find_map(|list| list.try_lock()));
        let own = own.unwrap_or_else(|| self.free[hint % LISTS].lock());
        let mut found = self.take(&own);
        if found.is_none() {
            let other = lists().filter(|list| list.len() > 0).find_map(|list| list.try_lock());
            if let Some(other) = other {
                own.take_over(&other);
            }
            found = self.take(&own).or_else(|| self.take_run(&own));
        }
        drop(own);
        // No fresh slots are left, or no memory for them, and free slots or runs are only in locked lists. So this waits for all lists, in the
        // same order in every thread. Whoever has one list waits for no other, only for `returned`. While this thread has them all, no slot is
        // on its way from one list to another.
        while found.is_none() {
            let all: [_; LISTS] = std::array::from_fn(|list| self.free[list].lock());
            found = all.iter().find_map(|list| self.take(list)).or_else(|| self.take_run(&all[hint % LISTS]));
            // Acquire: pairs with the release at the end of `shrink`, which comes after the locks under which the slots were put back.
            if found.is_some() || !self.is_shrinking.load(Ordering::Acquire) {
                break;
            }
            drop(all);
            drop(self.shrinking.lock().unwrap_or_else(PoisonError::into_inner));
        }
        found
    }

    /// Takes a slot from a list, or from its run.
    #[inline(always)]
    fn take(&self, list: &Held<'_>) -> Option<u32> {
        let found = self.pop(list);
        if found.is_some() {
            return found;
        }
        list.next_of_run()
    }

    /// A spare slot, for an entry that replaces another; `None` when all are in use.
    pub(crate) fn allocate_spare(&self) -> Option<u32> {
        let spare = self.spare.lock();
        // Relaxed throughout: the lock orders its holders.
        let owed = self.owed.load(Ordering::Relaxed);
        if owed == SPARE {
            return None;
        }
        let index = self.pop(&spare).unwrap_or_else(|| self.fresh_spare.fetch_add(1, Ordering::Relaxed));
        self.owed.store(owed + 1, Ordering::Relaxed);
        Some(index)
    }

    #[inline(always)]
    fn pop(&self, list: &Held<'_>) -> Option<u32> {
        let index = list.head();
        if index == NO_ENTRY {
            return None;
        }
        // SAFETY: a slot in a list is free, and holds the next index; the list is locked.
        let next = unsafe { (*(*self.slots.get(index)).0.get()).next };
        list.set_head(next);
        list.count(-1);
        Some(index)
    }

    fn push(&self, list: &Held<'_>, index: u32) {
        // SAFETY: the caller owns the slot, by the contract of `free`; the list is locked.
        unsafe { (*(*self.slots.get(index)).0.get()).next = list.head() };
        list.set_head(index);
        list.count(1);
    }

    /// Gives an empty list a run of returned or fresh slots, and takes the first of them.
    fn take_run(&self, list: &Held<'_>) -> Option<u32> {
        if let Some(run) = self.take_returned() {
            list.set_run(run.start + 1, run.end);
            return Some(run.start);
        }
        // Relaxed, all: the number of a slot. `ensure` publishes the memory.
        let mut fresh = self.fresh.load(Ordering::Relaxed);
        loop {
            if fresh >= self.limit || !self.slots.ensure(fresh) {
                return None;
            }
            let end = fresh.saturating_add(RUN).min(self.limit).min(self.slots.end_of_chunk(fresh));
            match self.fresh.compare_exchange_weak(fresh, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    list.set_run(fresh + 1, end);
                    return Some(fresh);
                }
                Err(now) => fresh = now,
            }
        }
    }

    /// Up to [`RUN`] slots whose memory was given back.
    fn take_returned(&self) -> Option<Range<u32>> {
        let mut returned = self.returned.lock();
        let range = returned.last_mut()?;
        let run = range.start..range.end.min(range.start.saturating_add(RUN));
        range.start = run.end;
        if run.end == range.end {
            returned.pop();
        }
        Some(run)
    }

    /// Gives back the memory of [blocks](Chunks::blocks) in which no slot is in use. The free slots that are left are in ascending order
    /// afterwards.
    ///
    /// Takes time in proportion to the number of slots that were ever used, and a lock of a list for 256 of them at a time. It has the free
    /// slots for itself meanwhile: others take fresh ones, and whoever would be refused waits. The up to [`RUN`] slots that a list has just
    /// taken stay there. Without memory for a bit for each slot, it does nothing.
    pub(crate) fn shrink(&self) {
        let _alone = self.shrinking.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: slots that are used from now on stay in the lists.
        let used = self.fresh.load(Ordering::Relaxed);
        let blocks = self.slots.blocks().count();
        let (mut free, mut ranges) = (Vec::new(), Vec::<Range<u32>>::new());
        let words = used.div_ceil(u64::BITS) as usize;
        if blocks == 0 || free.try_reserve_exact(words).is_err() || ranges.try_reserve_exact(blocks).is_err()
        {
            return;
        }
        free.resize(words, 0_u64);
        // Release: pairs with the acquire in `refill`. Whoever misses a slot that this thread has taken has locked the list later.
        self.is_shrinking.store(true, Ordering::Release);
        let returned = std::mem::take(&mut *self.returned.lock());
        returned.into_iter().flatten().for_each(|slot| *word_of(&mut free, slot) |= bit_of(slot));
        for list in &self.free {
            self.take_all(list, used, |slot| *word_of(&mut free, slot) |= bit_of(slot));
        }
        for block in self.slots.blocks().filter(|block| block.values.clone().all(|slot| is_in(&free, slot))) {
            // SAFETY: only this thread has the slots, which are in no list.
            unsafe { block.discard() };
            match ranges.last_mut() {
                // They share a slot that is in part in both.
                Some(last) if last.end > block.values.start => last.end = block.values.end,
                _ => ranges.push(block.values),
            }
        }
        ranges.iter().cloned().flatten().for_each(|slot| *word_of(&mut free, slot) &= !bit_of(slot));
        *self.returned.lock() = ranges;
        for share in (0..used.div_ceil(SHARE)).rev() {
            let first = share * SHARE;
            let list = self.free[share as usize % LISTS].lock();
            let slots = (first..first.saturating_add(SHARE)).rev();
            slots.filter(|slot| is_in(&free, *slot)).for_each(|slot| self.push(&list, slot));
        }
        // Release: pairs with the acquire in `refill`.
        self.is_shrinking.store(false, Ordering::Release);
    }

    /// Takes the slots below `used` that are in a list now, a share of them under each lock.
    fn take_all(&self, list: &FreeList, used: u32, mut each: impl FnMut(u32)) {
        let mut left = list.len();
        while left > 0 {
            let held = list.lock();
            for _ in 0..left.min(SHARE as usize) {
                match self.pop(&held) {
                    Some(slot) if slot < used => each(slot),
                    Some(later) => {
                        self.push(&held, later);
                        return;
                    }
                    None => return,
                }
            }
            left = left.saturating_sub(SHARE as usize);
        }
    }

    /// Makes sure that there are free slots for `additional` entries, and touches the pages of new slots. False when
    /// there is no memory, or the limit is too low.
    pub(crate) fn reserve(&self, additional: usize) -> bool {
        // Relaxed: slots that other threads take meanwhile are not reserved for the caller.
        let mut fresh = self.fresh.load(Ordering::Relaxed);
        // `shrink` has the free slots for a while.
        let _still = self.shrinking.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = additional.saturating_sub(self.free_slots());
        let Some(end) = u32::try_from(missing).ok().and_then(|more| fresh.checked_add(more)) else {
            return false;
        };
        if end > self.limit {
            return false;
        }
        while fresh < end {
            if !self.slots.ensure_touched(fresh, Touch::Now) {
                return false;
            }
            fresh = self.slots.end_of_chunk(fresh);
        }
        true
    }

    /// Frees a slot, whose pair has been dropped or moved out.
    ///
    /// # Safety
    /// The slot came from [`allocate`](Arena::allocate) or [`allocate_spare`](Arena::allocate_spare), and only the
    /// caller has it.
    pub(crate) unsafe fn free(&self, index: u32, hint: usize) {
        // Relaxed: a spare slot is counted in `owed` before the entry that it replaces is retired, so before that entry
        // is freed. The thread that frees the entry therefore finds the slot owed, unless another freed slot has
        // already become the spare one. So every spare slot is made up for in the end.
        if self.owed.load(Ordering::Relaxed) > 0 && self.fill_up(index) {
            return;
        }
        let taken = (0..LISTS).find_map(|turn| self.free[hint.wrapping_add(turn) % LISTS].try_lock());
        let list = taken.unwrap_or_else(|| self.free[hint % LISTS].lock());
        self.push(&list, index);
    }

    /// Makes a slot a spare one, if one is owed. Returns whether it did.
    #[cold]
    fn fill_up(&self, index: u32) -> bool {
        let spare = self.spare.lock();
        // Relaxed, both: as in `allocate_spare`.
        let owed = self.owed.load(Ordering::Relaxed);
        if owed > 0 {
            self.push(&spare, index);
            self.owed.store(owed - 1, Ordering::Relaxed);
        }
        owed > 0
    }

    /// The pair in a slot.
    #[inline(always)]
    pub(crate) fn pair(&self, index: u32) -> NonNull<Pair<K, V>> {
        pair_in(self.slots.get(index))
    }

    pub(crate) fn index_of(&self, pair: NonNull<Pair<K, V>>) -> u32 {
        self.slots.index_of(pair.as_ptr().cast())
    }

    /// Memory reserved for entries, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.bytes()
    }
}

#[derive(Default)]
struct FreeList {
    lock: TryLock<()>,
    /// The first free slot. Like the fields below, changed only under the lock.
    head: AtomicU32,
    len: AtomicU32,
    /// The run: fresh slots from the first index to the second.
    run: AtomicU32,
    end_of_run: AtomicU32,
}

impl FreeList {
    /// Number of free slots, including the run.
    fn len(&self) -> usize {
        // Relaxed: counts that may be old by the time they are read.
        let run = self.end_of_run.load(Ordering::Relaxed).saturating_sub(self.run.load(Ordering::Relaxed));
        (self.len.load(Ordering::Relaxed) + run) as usize
    }

    #[inline]
    fn try_lock(&self) -> Option<Held<'_>> {
        self.lock.try_lock().map(|lock| Held { list: self, _lock: lock })
    }

    fn lock(&self) -> Held<'_> {
        Held { list: self, _lock: self.lock.lock() }
    }
}

/// A locked list.
struct Held<'l> {
    list: &'l FreeList,
    _lock: Locked<'l, ()>,
}

impl Held<'_> {
    // Relaxed in all of these methods: the lock orders its holders.
    #[inline]
    fn head(&self) -> u32 {
        self.list.head.load(Ordering::Relaxed)
    }

    #[inline]
    fn set_head(&self, index: u32) {
        self.list.head.store(index, Ordering::Relaxed);
    }

    #[inline]
    fn count(&self, more: i32) {
        let len = &self.list.len;
        len.store(len.load(Ordering::Relaxed).wrapping_add_signed(more), Ordering::Relaxed);
    }

    #[inline(always)]
    fn next_of_run(&self) -> Option<u32> {
        let run = self.list.run.load(Ordering::Relaxed);
        let is_left = run < self.list.end_of_run.load(Ordering::Relaxed);
        is_left.then(|| {
            self.list.run.store(run + 1, Ordering::Relaxed);
            run
        })
    }

    fn set_run(&self, first: u32, end: u32) {
        self.list.run.store(first, Ordering::Relaxed);
        self.list.end_of_run.store(end, Ordering::Relaxed);
    }

    /// Takes everything from another list. This list is empty.
    fn take_over(&self, other: &Held<'_>) {
        let take = |from: &AtomicU32, to: &AtomicU32| {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            from.store(0, Ordering::Relaxed);
        };
        let (own, other) = (self.list, other.list);
        take(&other.head, &own.head);
        take(&other.len, &own.len);
        take(&other.run, &own.run);
        take(&other.end_of_run, &own.end_of_run);
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::super::slab::Slab;
    use super::*;

    /// A slot is handed out once, whether or not its memory was given back; memory that was holds zeroes.
    #[test]
    fn memory_of_free_slots_is_given_back_and_used_again() {
        const SLOTS: usize = if cfg!(miri) { 500 } else { 100_000 };
        let arena = Arena::<u64, [u64; 12]>::new(SLOTS, Some(SLOTS), Touch::Lazily).unwrap();
        let taken: Vec<u32> = (0..SLOTS).map(|_| arena.allocate(0).unwrap()).collect();
        // SAFETY: the slots were allocated above.
        taken.iter().for_each(|&slot| unsafe { arena.pair(slot).write(Pair { key: 1, value: [1; 12] }) });
        let kept = taken[SLOTS / 2];
        let given_back: Vec<u32> = taken.iter().copied().filter(|slot| *slot != kept).collect();
        // SAFETY: allocated above, and given back once.
        given_back.iter().enumerate().for_each(|(number, &slot)| unsafe { arena.free(slot, number % 3) });
        arena.shrink();
        let returned: usize = arena.returned.lock().iter().map(|range| range.len()).sum();
        let blocks = SLOTS * size_of::<Slot<u64, [u64; 12]>>() / Slab::<Slot<u64, [u64; 12]>>::BLOCK;
        let each = Slab::<Slot<u64, [u64; 12]>>::BLOCK / size_of::<Slot<u64, [u64; 12]>>();
        if cfg!(not(any(miri, stillpoint_portable))) {
            // Not that of the slot in the middle.
            assert!(blocks >= 4 && returned >= (blocks - 2) * each && returned < SLOTS, "{returned}");
            let range = arena.returned.lock()[0].clone();
            // SAFETY: the slot's memory is mapped, and nobody uses it.
            let zero = unsafe { arena.pair(range.start + each as u32 / 2).cast::<u64>().as_ptr().read() };
            assert_eq!(zero, 0);
        }
        // What was used again since then goes back, too, but for what the list keeps ready.
        let some: Vec<u32> = (0..SLOTS / 10).map(|_| arena.allocate(1).unwrap()).collect();
        // SAFETY: allocated just now, and given back once.
        some.into_iter().for_each(|slot| unsafe { arena.free(slot, 1) });
        arena.shrink();
        let again: usize = arena.returned.lock().iter().map(|range| range.len()).sum();
        assert!(again + each >= returned, "{again} and {returned}");
        // SAFETY: the slot is still allocated.
        assert_eq!(unsafe { arena.pair(kept).as_ref() }.value, [1; 12]);
        assert!(arena.reserve(SLOTS - 1) && !arena.reserve(SLOTS));
        let again: std::collections::HashSet<u32> =
            (1..SLOTS).map(|hint| arena.allocate(hint).unwrap()).collect();
        assert_eq!(again, given_back.into_iter().collect());
        assert_eq!(arena.allocate(0), None);
    }

    /// Whoever finds no slot while they are sorted waits for them.
    #[test]
    fn nobody_is_refused_because_the_arena_shrinks() {
        const SLOTS: usize = 60_000;
        let arena = Arena::<u64, [u64; 12]>::new(SLOTS, Some(SLOTS), Touch::Lazily).unwrap();
        let taken: Vec<u32> = (0..SLOTS).map(|_| arena.allocate(0).unwrap()).collect();
        // SAFETY: allocated above, and given back once.
        taken.iter().for_each(|&slot| unsafe { arena.free(slot, 0) });
        let (done, rounds) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            let shrinks = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    arena.shrink();
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
            let wanted = if cfg!(miri) { 1 } else { 20 };
            let serve = || {
                while rounds.load(Ordering::Relaxed) < wanted && !shrinks.is_finished() {
                    for hint in 0..1_000 {
                        let slot = arena.allocate(hint).expect("nearly all slots are free");
                        // SAFETY: allocated just now, and given back once.
                        unsafe { arena.free(slot, hint) };
                    }
                    assert!(arena.reserve(SLOTS), "all slots are free");
                }
            };
            let served = std::panic::catch_unwind(std::panic::AssertUnwindSafe(serve));
            done.store(true, Ordering::Relaxed);
            served.expect("nobody is refused");
        });
        let again: std::collections::HashSet<u32> =
            (0..SLOTS).map(|hint| arena.allocate(hint).unwrap()).collect();
        assert_eq!(again.len(), SLOTS, "no slot is handed out twice, and none is lost");
    }

    #[test]
    fn slots_are_used_again_and_a_limit_holds() {
        let arena = Arena::<(), ()>::new(2, Some(5), Touch::Lazily).unwrap();
        let first = SPARE + 1;
        let taken: Vec<u32> = (0..5).map(|hint| arena.allocate(hint).unwrap()).collect();
        assert_eq!(taken, [first, first + 1, first + 2, first + 3, first + 4]);
        assert_eq!(arena.allocate(0), None);
        let addresses: std::collections::HashSet<_> = taken.iter().map(|&index| arena.pair(index)).collect();
        assert_eq!(addresses.len(), 5, "each entry of size zero has its own address");
        assert!(taken.iter().all(|&index| arena.index_of(arena.pair(index)) == index));
        // SAFETY: allocated above, and given back once.
        unsafe { arena.free(first + 2, 7) };
        assert_eq!((arena.allocate(1), arena.allocate(1)), (Some(first + 2), None));
    }

    /// There are `SPARE` slots besides the limit, and freed slots fill them up first.
    #[test]
    fn spare_slots_are_filled_up_first() {
        let arena = Arena::<u64, u64>::new(2, Some(3), Touch::Lazily).unwrap();
        let taken: Vec<u32> = (0..3).map(|hint| arena.allocate(hint).unwrap()).collect();
        for round in 0..3 {
            let spare: Vec<u32> = (0..SPARE).map(|_| arena.allocate_spare().unwrap()).collect();
            assert!(arena.allocate_spare().is_none() && arena.allocate(0).is_none());
            let all: std::collections::HashSet<_> = spare.iter().chain(&taken).collect();
            assert_eq!(all.len() as u32, SPARE + 3, "no slot is handed out twice");
            for slot in spare {
                // SAFETY: allocated above, and given back once.
                unsafe { arena.free(slot, round) };
                assert!(arena.allocate(0).is_none(), "the freed slot became a spare one");
            }
        }
        // SAFETY: the slots were allocated above, and each is given back once.
        taken.iter().for_each(|&slot| unsafe { arena.free(slot, 1) });
        assert_eq!((0..4).filter_map(|hint| arena.allocate(hint)).count(), 3);
    }

    #[test]
    fn what_was_given_back_is_reserved_first() {
        const MOST: usize = if cfg!(miri) { 40 } else { 1_000 };
        let arena = Arena::<u64, u64>::new(2, Some(MOST), Touch::Lazily).unwrap();
        assert!(arena.reserve(MOST) && !arena.reserve(MOST + 1));
        let taken: Vec<u32> = (0..MOST).map(|hint| arena.allocate(hint).unwrap()).collect();
        let bytes = arena.bytes();
        assert!(arena.reserve(0) && !arena.reserve(1));
        for (number, slot) in taken.into_iter().enumerate() {
            // SAFETY: allocated above, and given back once.
            unsafe { arena.free(slot, number) };
            assert!(
                arena.reserve(number + 1) && !arena.reserve(number + 2),
                "after {number} slots were given back"
            );
        }
        assert_eq!(arena.bytes(), bytes);
        assert!(arena.allocate(3).is_some() && arena.reserve(MOST - 1) && !arena.reserve(MOST));
    }

    /// An empty list takes over another list before it takes fresh slots.
    #[test]
    fn fresh_slots_come_last() {
        let arena = Arena::<u64, u64>::new(2, None, Touch::Lazily).unwrap();
        let mut taken: Vec<u32> = (0..RUN).map(|_| arena.allocate(0).unwrap()).collect();
        // SAFETY: allocated above, and given back once.
        taken.iter().for_each(|&slot| unsafe { arena.free(slot, 3) });
        let mut again: Vec<u32> = (0..RUN).map(|_| arena.allocate(1).unwrap()).collect();
        taken.sort_unstable();
        again.sort_unstable();
        assert_eq!(again, taken);
        assert_eq!(arena.allocate(1), Some(taken[0] + RUN), "only fresh slots are left");
    }

    /// Each of two threads has a slot at most, of two. One of them frees its slot to a list that the other may have searched, and then takes
    /// the slot of a list that the other has not searched yet.
    #[test]
    fn a_free_slot_is_not_missed_whoever_takes_others_meanwhile() {
        const TURNS: usize = if cfg!(miri) { 50 } else { 1_000_000 };
        let arena = Arena::<u64, u64>::new(2, Some(2), Touch::Lazily).unwrap();
        std::thread::scope(|scope| {
            for first in [0, 3] {
                let arena = &arena;
                scope.spawn(move || {
                    for turn in 0..TURNS {
                        let slot = arena.allocate(first + turn).expect("the other thread has one of the two");
                        // SAFETY: allocated just now, and given back once.
                        unsafe { arena.free(slot, first + turn * 5) };
                    }
                });
            }
        });
    }

    /// A thread of any list gets a slot that was freed into any list.
    #[test]
    fn slots_of_every_list_serve_everybody() {
        let arena = Arena::<u64, u64>::new(2, Some(1), Touch::Lazily).unwrap();
        let slot = arena.allocate(0).unwrap();
        for hint in 0..LISTS {
            for other in 0..LISTS {
                // SAFETY: allocated above, or below, and given back once.
                unsafe { arena.free(slot, hint) };
                assert_eq!(arena.allocate(other), Some(slot), "from {hint} to {other}");
            }
        }
    }

    /// A free slot in a locked list is found, after a wait for the lock.
    #[test]
    fn a_list_that_is_taken_is_waited_for() {
        const MEETINGS: u32 = if cfg!(miri) { 5 } else { 50 };
        let arena = Arena::<u64, u64>::new(2, Some(1), Touch::Lazily).unwrap();
        let (rounds, missed) = (AtomicU32::new(0), AtomicU32::new(0));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    match arena.allocate(0) {
                        // SAFETY: allocated just now, and given back once.
                        Some(slot) => unsafe { arena.free(slot, 0) },
                        None => _ = missed.fetch_add(1, Ordering::Relaxed),
                    }
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
            let mut meetings = 0;
            while meetings < MEETINGS {
                let lists: Vec<_> = arena.free.iter().map(|list| list.lock()).collect();
                meetings += u32::from(lists.iter().any(|list| list.head() != NO_ENTRY));
                std::thread::yield_now();
                drop(lists);
                let before = rounds.load(Ordering::Relaxed);
                while rounds.load(Ordering::Relaxed) == before {
                    std::thread::yield_now();
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(missed.into_inner(), 0, "no other thread takes a slot");
    }

    /// Another thread may give back the last owed slot between the check and the lock.
    #[test]
    fn no_slot_becomes_a_spare_one_that_is_not_owed() {
        let arena = Arena::<u64, u64>::new(2, Some(2), Touch::Lazily).unwrap();
        let (slot, spare) = (arena.allocate(0).unwrap(), arena.allocate_spare().unwrap());
        assert!(arena.fill_up(spare) && !arena.fill_up(slot));
    }
}
