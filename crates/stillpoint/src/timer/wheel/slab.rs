//! Timers in their places, which keys name.
//!
//! **Every index is that of a timer.** Those in the free list and in lists of timers were given to them here; the index of a
//! key is compared with the number of timers in `find` and `remove`; callers pass indices that they have got from here since
//! the wheel was last lent to a callback. `shrink` gives back only timers that are not in use, and makes the free list anew.

use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use super::engine::Store;
use super::key::Key;
use super::level::SENTINELS;
use super::lists::{Link, Lists};
use super::schedule::{Schedule, LENT};

/// The end of the list of free timers: a sentinel is never free.
const NONE: u32 = 0;
/// Timers that indices of 32 bits can name beside the heads of the lists.
const INDICES: usize = (u32::MAX - SENTINELS) as usize;
/// A generation up to which a place may be given back: those that come in its stead have 2³⁰ left.
const MOST_USED: u32 = 0xC000_0000;
/// Timers that are made at once when there are few.
const BATCH: usize = 64;

/// 16 bytes and the value, which a cancellation, an expiry and an addition need together.
#[derive(Debug)]
pub(super) struct Timer<T> {
    pub(super) deadline: u64,
    /// Of the present key; in a timer that is free: of the next one.
    generation: u32,
    pub(super) flags: u32,
    /// Missing in a timer that is free, and while the value is lent to a callback.
    pub(super) value: Option<T>,
}

#[derive(Debug)]
pub(super) struct Slab<T> {
    pub(super) lists: Lists<Vec<Link<u32>>>,
    /// Timer `index` is in place `index - SENTINELS`.
    timers: Vec<Timer<T>>,
    /// Of periodic timers; as many as there are timers.
    periods: Vec<u64>,
    free: u32,
    /// Of a timer that was never used: at first in the lower half, so that each has 2³¹ uses; after a `shrink` beyond those
    /// of all places that were given back, so that no key comes twice.
    first_generation: u32,
    len: usize,
    /// Timers whose generations are used up: others take their places.
    worn: usize,
    limit: usize,
}

/// Wheels made so far in this process.
static WHEELS: AtomicU32 = AtomicU32::new(0);

impl<T> Slab<T> {
    pub(super) fn new(capacity: usize, limit: usize) -> Self {
        // Relaxed: only that wheels have different numbers matters. The multiplier, 2³² divided by the golden section, keeps
        // the first generations of few wheels far apart.
        let spread = WHEELS.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B1) >> 1;
        // 0 is what the last generation of all is followed by.
        let first_generation = spread.max(1);
        assert!(capacity <= INDICES, "a wheel for {capacity} timers: at most {INDICES} can be had");
        let limit = limit.min(INDICES);
        let mut slab = Self {
            lists: Lists::new(capacity),
            timers: Vec::with_capacity(capacity),
            // From the allocator, which has zeros without writing them.
            periods: vec![0; capacity],
            free: NONE,
            first_generation,
            len: 0,
            worn: 0,
            limit,
        };
        slab.extend(capacity);
        slab
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Timers that can be used.
    pub(super) fn capacity(&self) -> usize {
        self.timers.len() - self.worn
    }

    /// Makes so many timers, free ones, in the order of their indices.
    fn extend(&mut self, count: usize) {
        let generation = self.first_generation;
        self.timers.extend((0..count).map(|_| Timer { deadline: 0, generation, flags: 0, value: None }));
        self.periods.resize(self.timers.len(), 0);
        if count > 0 {
            debug_assert_eq!(self.free, NONE);
            self.free = self.lists.grow(count, NONE);
        }
    }

    /// Whether there is a free timer, or one can be made.
    #[inline]
    pub(super) fn has_room(&mut self) -> bool {
        self.free != NONE || self.grow()
    }

    /// Doubles the number of timers, up to the limit, in which those that are worn out do not count; whether that was
    /// possible.
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

    /// Takes a free timer for `value`, and appends it to the list of `head`; hands the value back when there is none.
    #[inline]
    pub(super) fn insert(&mut self, head: u32, deadline: u64, value: T) -> Result<Key, T> {
        if !self.has_room() {
            return Err(value);
        }
        Ok(self.fill(head, deadline, || value))
    }

    /// The same for a value that is made in its place.
    #[cfg(feature = "std")]
    #[inline(always)]
    pub(super) fn insert_made(&mut self, head: u32, deadline: u64, make: impl FnOnce() -> T) -> Option<Key> {
        self.has_room().then(|| self.fill(head, deadline, make))
    }

    /// Takes a free timer; there must be one.
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
        // It is nothing; without this, the compiler would see to a destructor here.
        core::mem::forget(free);
        key
    }

    /// Sets what `insert` does not.
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

    /// The timer of a key that is not stale.
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

    /// Gives a timer back that has been unlinked.
    #[inline]
    pub(super) fn release(&mut self, index: u32) -> Option<T> {
        self.retire(index);
        self.timer_mut(index).value.take()
    }

    /// Unlinks a timer and gives it back, unless the key is stale.
    #[inline]
    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        let index = key.index();
        let timer = self.timers.get_mut(index.wrapping_sub(SENTINELS) as usize)?;
        if timer.generation != key.generation() {
            return None;
        }
        let value = timer.value.take();
        if value.is_some() || timer.flags & LENT != 0 {
            self.lists.unlink(index);
            self.retire(index);
        }
        value
    }

    #[inline]
    fn retire(&mut self, index: u32) {
        let timer = self.timer_mut(index);
        timer.generation = timer.generation.wrapping_add(1);
        timer.flags = 0;
        // A timer whose generations are used up is not used again.
        if timer.generation != 0 {
            self.lists.leave_in(index, self.free);
            self.free = index;
        } else {
            self.worn += 1;
        }
        self.len -= 1;
    }

    #[inline]
    pub(super) fn timer(&self, index: u32) -> &Timer<T> {
        super::lists::touch();
        let place = index.wrapping_sub(SENTINELS) as usize;
        debug_assert!(place < self.timers.len());
        // SAFETY: every index is that of a timer, as the module says.
        unsafe { self.timers.get_unchecked(place) }
    }

    #[inline]
    pub(super) fn timer_mut(&mut self, index: u32) -> &mut Timer<T> {
        super::lists::touch();
        let place = index.wrapping_sub(SENTINELS) as usize;
        debug_assert!(place < self.timers.len());
        // SAFETY: every index is that of a timer, as the module says.
        unsafe { self.timers.get_unchecked_mut(place) }
    }

    /// The value of a timer for its callback; none when it is with one already.
    pub(super) fn lend(&mut self, key: Key) -> Option<T> {
        let index = self.find(key)?;
        let timer = self.timer_mut(index);
        let value = timer.value.take()?;
        timer.flags |= LENT;
        Some(value)
    }

    /// Takes a lent value back, unless the timer is gone.
    pub(super) fn give_back(&mut self, key: Key, value: Option<T>) -> Option<T> {
        match self.find(key).map(|index| self.timer_mut(index)) {
            Some(timer) if timer.flags & LENT != 0 => {
                timer.flags &= !LENT;
                core::mem::replace(&mut timer.value, value)
            }
            _ => value,
        }
    }

    /// The first timer in use, of those from `index` on.
    pub(super) fn in_use(&self, index: u32) -> Option<u32> {
        let from = index.saturating_sub(SENTINELS);
        let rest = self.timers.get(from as usize..)?;
        rest.iter().position(Timer::is_used).map(|further| SENTINELS + from + further as u32)
    }

    /// Gives back the places behind the last one that is in use, worn out, or much used.
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

    /// Places there is memory for: of links beside the heads, timers, and periods.
    #[cfg(all(test, not(loom)))]
    pub(super) fn memory(&self) -> [usize; 3] {
        let links = self.lists.memory() - SENTINELS as usize;
        [links, self.timers.capacity(), self.periods.capacity()]
    }

    /// Makes the timer's generations end with its present use, as after 2³¹ uses.
    #[cfg(all(test, not(loom)))]
    pub(super) fn wear_out(&mut self, key: Key) -> Key {
        self.use_up(key, u32::MAX)
    }

    /// Gives the timer a later generation, as after many uses.
    #[cfg(all(test, not(loom)))]
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
    /// The generation of a free timer is that of the next key: a key that nobody was given yet may be asked for, too.
    #[inline]
    fn is_used(&self) -> bool {
        self.value.is_some() || self.flags & LENT != 0
    }
}
