//! The places of timers, which keys name.
//!
//! **Every index is that of a timer.** Only this file puts indices into the free list and gives them to the lists of
//! timers. `find` and `remove` compare the index of a key with the number of timers. Other callers pass indices that
//! they got from here since the wheel was last passed to a callback. `shrink` frees only places that are not in use,
//! and makes the free list anew.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::engine::Store;
use super::key::Key;
use super::level::SENTINELS;
use super::lists::{Link, Lists};
use super::schedule::{Schedule, LENT};

/// The end of the free list: the index of a list head.
const NONE: u32 = 0;
/// The places at which a [search](Slab::take_from) looks.
const LOOKED: usize = 1024;
/// The end of such searches: no timer has this index.
pub(crate) const END: u32 = u32::MAX;
/// The number of timers that 32-bit indices can name besides the list heads.
const INDICES: usize = (u32::MAX - SENTINELS) as usize;
/// The highest generation of a place that may be freed. Places that are allocated later in its stead have 2³⁰
/// generations left.
const MOST_USED: u32 = 0xC000_0000;
/// The number of places that are added at once when there are few.
const BATCH: usize = 64;

/// A timer, without its link and its period: 16 bytes and the value. A cancellation, an expiry and an addition need all
/// of them.
#[derive(Debug)]
pub(super) struct Timer<T> {
    pub(super) deadline: u64,
    /// The generation of the present key; in a free timer, that of the next key.
    generation: u32,
    pub(super) flags: u32,
    /// `None` in a free timer, and while the value is lent to a callback.
    pub(super) value: Option<T>,
}

#[derive(Debug)]
pub(super) struct Slab<T> {
    pub(super) lists: Lists<Vec<Link<u32>>>,
    /// Timer `index` is in place `index - SENTINELS`.
    timers: Vec<Timer<T>>,
    /// The periods of periodic timers: one element for each of `timers`.
    periods: Vec<u64>,
    free: u32,
    /// The generation of new places. At first, it is in the lower half, so that each place has 2³¹ uses. After a
    /// `shrink`, it is at least that of every freed place, so that no key is used twice.
    first_generation: u32,
    len: usize,
    /// The number of places whose generations are used up. They are replaced by others.
    worn: usize,
    limit: usize,
    /// The number of values that were lent to callbacks and did not come back, including those that are lost.
    lent: usize,
    /// The number of lent values that are lost: their callbacks have put other wheels in the place of this one, which may
    /// be anywhere when they end. Shared with the polls of this wheel, which tell wheels apart by its address.
    pub(super) lost: Arc<AtomicUsize>,
}

/// Wheels made so far in this process.
static WHEELS: AtomicU32 = AtomicU32::new(0);

impl<T> Slab<T> {
    #[track_caller]
    pub(super) fn new(capacity: usize, limit: usize) -> Self {
        // Relaxed: wheels only need different numbers. The multiplier, 2³² divided by the golden ratio, keeps the first
        // generations of a few wheels far apart.
        let spread = WHEELS.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B1) >> 1;
        // The first generation is not 0: a generation that wraps to 0 marks a worn-out place.
        let first_generation = spread.max(1);
        assert!(capacity <= INDICES, "a wheel for {capacity} timers is impossible: at most {INDICES}");
        let limit = limit.min(INDICES);
        let mut slab = Self {
            lists: Lists::new(capacity),
            timers: Vec::with_capacity(capacity),
            // The allocator may provide zeros without writing them.
            periods: vec![0; capacity],
            free: NONE,
            first_generation,
            len: 0,
            worn: 0,
            limit,
            lent: 0,
            lost: Arc::new(AtomicUsize::new(0)),
        };
        slab.extend(capacity);
        slab
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The number of places that are not worn out.
    pub(super) fn capacity(&self) -> usize {
        self.timers.len() - self.worn
    }

    /// Adds `count` free places, in the order of their indices.
    fn extend(&mut self, count: usize) {
        let generation = self.first_generation;
        self.timers.extend((0..count).map(|_| Timer { deadline: 0, generation, flags: 0, value: None }));
        self.periods.resize(self.timers.len(), 0);
        if count > 0 {
            debug_assert_eq!(self.free, NONE);
            self.free = self.lists.grow(count, NONE);
        }
    }

    /// Whether there is a free place, or one can be added.
    #[inline]
    pub(super) fn has_room(&mut self) -> bool {
        self.free != NONE || self.grow()
    }

    /// Doubles the number of places, up to the limit. Worn-out places do not count towards the limit. Returns false if
    /// no place was added: the limit is reached, or there is no memory.
    #[cold]
    fn grow(&mut self) -> bool {
        let have = self.capacity();
        let indices = INDICES - self.timers.len();
        let count = have.max(BATCH).min(self.limit - have).min(indices);
        if count == 0
            || self.lists.reserve(count).is_err()
            || self.timers.try_reserve_exact(count).is_err()
            || self.periods.try_reserve_exact(count).is_err()
        {
            return false;
        }
        self.extend(count);
        true
    }

    /// Puts `value` into a free place, and appends the timer to the list of `head`. Hands the value back when there is
    /// no place.
    #[inline]
    pub(super) fn insert(&mut self, head: u32, deadline: u64, value: T) -> Result<Key, T> {
        if !self.has_room() {
            return Err(value);
        }
        Ok(self.fill(head, deadline, || value))
    }

    /// As `insert`, for a value that is made in its place.
    #[cfg(feature = "std")]
    #[inline(always)]
    pub(super) fn insert_made(&mut self, head: u32, deadline: u64, make: impl FnOnce() -> T) -> Option<Key> {
        self.has_room().then(|| self.fill(head, deadline, make))
    }

    /// Fills a free place; there must be one.
    #[inline(always)]
    fn fill(&mut self, head: u32, deadline: u64, make: impl FnOnce() -> T) -> Key {
        let index = self.free;
        self.free = self.lists.left_in(index);
        self.lists.append(head, index);
        self.len += 1;
        let timer = self.timer_mut(index);
        timer.deadline = deadline;
        let free = timer.value.replace(make());
        let key = Key::new(index, timer.generation);
        // The old value is `None`. Forgetting it keeps the compiler from adding a drop here.
        core::mem::forget(free);
        key
    }

    /// Sets flags and period, which `insert` does not.
    pub(super) fn set_schedule(&mut self, index: u32, schedule: Schedule) {
        self.timer_mut(index).flags = schedule.flags;
        if let Some(period) = schedule.period {
            self.periods[(index - SENTINELS) as usize] = period.get();
        }
    }

    /// The period of a periodic timer.
    pub(super) fn period(&self, index: u32) -> u64 {
        self.periods[(index - SENTINELS) as usize]
    }

    /// The index of a key's timer, unless the key is stale.
    #[inline]
    pub(super) fn find(&self, key: Key) -> Option<u32> {
        let index = key.index();
        let timer = self.timers.get(index.wrapping_sub(SENTINELS) as usize)?;
        (timer.generation == key.generation() && timer.is_used()).then_some(index)
    }

    /// The key of a timer in use.
    #[inline]
    pub(super) fn key(&self, index: u32) -> Key {
        Key::new(index, self.timer(index).generation)
    }

    /// Frees the place of a timer that is in use and unlinked. Returns the value: taken last, so that it is copied once, from
    /// its place to where it is used.
    #[inline]
    pub(super) fn release(&mut self, key: Key) -> Option<T> {
        let (index, generation) = (key.index(), key.generation().wrapping_add(1));
        // A place whose generations are used up is not used again.
        if generation != 0 {
            self.lists.leave_in(index, self.free);
            self.free = index;
        } else {
            self.worn += 1;
        }
        self.len -= 1;
        let timer = self.timer_mut(index);
        timer.generation = generation;
        timer.flags = 0;
        timer.value.take()
    }

    /// Unlinks a timer and frees its place, unless the key is stale or `may` refuses the value. Returns the value.
    #[inline]
    pub(super) fn remove_if(&mut self, key: Key, may: impl FnOnce(&T) -> bool) -> Option<T> {
        let index = self.find(key)?;
        if self.timer(index).value.as_ref().is_some_and(|value| !may(value)) {
            return None;
        }
        self.lists.unlink(index);
        self.release(key)
    }

    #[inline]
    pub(super) fn timer(&self, index: u32) -> &Timer<T> {
        super::lists::touch();
        let place = index.wrapping_sub(SENTINELS) as usize;
        debug_assert!(place < self.timers.len());
        // SAFETY: every index is that of a timer (see the module's documentation).
        unsafe { self.timers.get_unchecked(place) }
    }

    #[inline]
    pub(super) fn timer_mut(&mut self, index: u32) -> &mut Timer<T> {
        super::lists::touch();
        let place = index.wrapping_sub(SENTINELS) as usize;
        debug_assert!(place < self.timers.len());
        // SAFETY: every index is that of a timer (see the module's documentation).
        unsafe { self.timers.get_unchecked_mut(place) }
    }

    /// Lends the value of a timer to its callback; `None` when it is lent already.
    pub(super) fn lend(&mut self, key: Key) -> Option<T> {
        let index = self.find(key)?;
        let timer = self.timer_mut(index);
        let value = timer.value.take()?;
        timer.flags |= LENT;
        self.lent += 1;
        Some(value)
    }

    /// Whether a timer has no value, and no callback that would give it back.
    pub(super) fn is_lost(&self, index: u32) -> bool {
        // Relaxed: a wheel that does not see that the last callback has ended looks again at the next beat. Only this wheel
        // adds to `lent`, so the numbers are equal only if none of its callbacks has a value.
        self.timer(index).value.is_none() && self.lost.load(Ordering::Relaxed) == self.lent
    }

    /// Puts a lent value back into its timer. If the timer is gone, hands the value back to the caller.
    pub(super) fn give_back(&mut self, key: Key, value: T) -> Option<T> {
        self.lent -= 1;
        match self.find(key).map(|index| self.timer_mut(index)) {
            Some(timer) if timer.flags & LENT != 0 => {
                timer.flags &= !LENT;
                timer.value.replace(value)
            }
            _ => Some(value),
        }
    }

    /// Takes out the first timer in use, at `from` or after it, and sets `from` to the index behind it. Returns the timer's
    /// key, its deadline and its value. `None` if there is none among the next [`LOOKED`] places; `from` is then behind these, or
    /// [`END`].
    pub(super) fn take_from(&mut self, from: &mut u32) -> Option<(Key, u64, T)> {
        loop {
            let first = from.saturating_sub(SENTINELS);
            let Some(rest) = self.timers.get(first as usize..).filter(|rest| !rest.is_empty()) else {
                *from = END;
                return None;
            };
            let looked = rest.len().min(LOOKED);
            let further = rest[..looked].iter().position(Timer::is_used);
            *from = SENTINELS + first + further.map_or(looked, |further| further + 1) as u32;
            further?;
            let index = *from - 1;
            self.lists.unlink(index);
            let (key, deadline) = (self.key(index), self.timer(index).deadline);
            // `None` for a periodic timer whose callback is running.
            if let Some(value) = self.release(key) {
                return Some((key, deadline, value));
            }
        }
    }

    /// Frees the places after the last one that is in use, worn out, or above [`MOST_USED`].
    pub(super) fn shrink(&mut self) {
        let is_kept =
            |timer: &Timer<T>| timer.is_used() || timer.generation == 0 || timer.generation > MOST_USED;
        let kept = self.timers.iter().rposition(is_kept).map_or(0, |last| last + 1);
        for timer in self.timers.drain(kept..) {
            self.first_generation = self.first_generation.max(timer.generation);
        }
        self.periods.truncate(kept);
        self.timers.shrink_to_fit();
        self.periods.shrink_to_fit();
        self.lists.shrink(kept);
        self.free = NONE;
        for place in (0..kept).rev() {
            let timer = &self.timers[place];
            if !timer.is_used() && timer.generation != 0 {
                let index = SENTINELS + place as u32;
                self.lists.leave_in(index, self.free);
                self.free = index;
            }
        }
    }

    /// The numbers of links (without the heads), timers and periods that there is memory for.
    #[cfg(all(test, not(stillpoint_loom)))]
    pub(super) fn memory(&self) -> [usize; 3] {
        let links = self.lists.memory() - SENTINELS as usize;
        [links, self.timers.capacity(), self.periods.capacity()]
    }

    /// Gives the timer the last generation, as after 2³¹ uses.
    #[cfg(all(test, not(stillpoint_loom)))]
    pub(super) fn wear_out(&mut self, key: Key) -> Key {
        self.use_up(key, u32::MAX)
    }

    /// Gives the timer a later generation, as after many uses.
    #[cfg(all(test, not(stillpoint_loom)))]
    pub(super) fn use_up(&mut self, key: Key, generation: u32) -> Key {
        self.timer_mut(key.index()).generation = generation;
        self.key(key.index())
    }
}

impl<T> Store for Slab<T> {
    type Links = Vec<Link<u32>>;

    #[inline(always)]
    fn lists(&self) -> &Lists<Self::Links> {
        &self.lists
    }

    #[inline(always)]
    fn lists_mut(&mut self) -> &mut Lists<Self::Links> {
        &mut self.lists
    }

    #[inline(always)]
    fn when(&self, index: u32) -> (u64, u32) {
        let timer = self.timer(index);
        (timer.deadline, timer.flags)
    }
}

impl<T> Timer<T> {
    /// A key with the right generation may be invented: a free timer has the generation of its next key.
    #[inline]
    fn is_used(&self) -> bool {
        self.value.is_some() || self.flags & LENT != 0
    }
}
