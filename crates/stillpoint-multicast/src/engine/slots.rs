//! The places of registered threads. They are claimed without locks, never move, and are freed only with the group: a sender may
//! still use a place whose thread has left.
//!
//! A thread's id leads to its place, so that a signal handler finds it. A walk reads one word for each 64 places, and only in
//! chunks where a thread has a place; it does not touch free places. So a group that was large once is as fast as one that
//! never was.

use std::ptr;
use std::sync::atomic::{AtomicPtr as PlainPtr, AtomicU32 as PlainU32, AtomicU64 as PlainU64};

use crossbeam_utils::CachePadded;

use super::mailbox::Mailbox;
use super::PLAIN;
use crate::orders;
#[cfg(not(stillpoint_loom))]
use stillpoint_sys::bits::bits;
use stillpoint_sys::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use stillpoint_sys::work::step;

/// The number of places in the first chunk; each further chunk has twice as many.
const FIRST_CHUNK: usize = if cfg!(stillpoint_loom) { 4 } else { 16 };
/// In its chunk, a thread's place is at most this many places from the one to which its id leads.
const PROBES: usize = 8;
/// The number of places in one word of bits.
const BITS: usize = u64::BITS as usize;

/// A thread recognises its own place by the thread number. Others send signals to the thread id, which may be out of date. Only the
/// mailbox, and the bit that says whether the place is taken, are ordered and modelled.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(super) mailbox: Mailbox,
    /// How often the thread has joined without leaving. Used only by the owner. 64 bits: since registrations may be forgotten, 32
    /// could overflow.
    joins: PlainU64,
    /// The thread's id, to which signals are sent. 0 without a thread.
    tid: PlainU32,
    /// The thread's number, which no other thread ever has; 0 without a thread.
    thread: PlainU64,
}

#[derive(Debug)]
struct Chunk {
    slots: Box<[CachePadded<Slot>]>,
    /// A bit for each place, set while a thread has it.
    taken: Box<[AtomicU64]>,
    /// The number of taken places. A walk passes over a chunk without any.
    holders: CachePadded<AtomicUsize>,
    older: *mut Chunk,
}

#[derive(Debug)]
pub(super) struct Slots {
    newest: AtomicPtr<Chunk>,
    /// The place of the thread that forked this process: its new id does not lead to it. Null in a process that was not
    /// forked.
    moved: PlainPtr<Slot>,
}

// SAFETY: `Slots` owns its chunks, and hands out shared references to places that consist of atomics.
unsafe impl Send for Slots {}
// SAFETY: `Slots` owns its chunks, and hands out shared references to places that consist of atomics.
unsafe impl Sync for Slots {}

impl Slot {
    /// The thread's id; 0 without a thread. It may be out of date at once.
    pub(super) fn tid(&self) -> u32 {
        self.tid.load(PLAIN)
    }

    /// Whether this is the place of the thread with this number.
    pub(super) fn is_of(&self, thread: u64) -> bool {
        self.thread.load(PLAIN) == thread
    }

    /// Gives the place to the thread with this number, with one registration. The previous thread has ended.
    pub(super) fn hand_over(&self, thread: u64) {
        self.thread.store(thread, PLAIN);
        self.set_joins(1);
    }

    /// Counts a registration of the owner.
    pub(super) fn add_join(&self) {
        self.joins.fetch_add(1, PLAIN);
    }

    /// Takes one registration off the count.
    pub(super) fn remove_join(&self) {
        self.joins.fetch_sub(1, PLAIN);
    }

    /// The number of registrations.
    pub(super) fn joins(&self) -> u64 {
        self.joins.load(PLAIN)
    }

    pub(super) fn set_joins(&self, joins: u64) {
        self.joins.store(joins, PLAIN);
    }

    /// Clears the thread of the place.
    fn clear(&self) {
        self.tid.store(0, PLAIN);
        self.thread.store(0, PLAIN);
    }
}

impl Slots {
    pub(super) fn new() -> Self {
        Self { newest: AtomicPtr::new(ptr::null_mut()), moved: PlainPtr::new(ptr::null_mut()) }
    }

    /// Claims a place for the thread. Lock-free; allocates if all places to which the thread's id leads are taken.
    pub(super) fn claim(&self, tid: u32, thread: u64) -> &Slot {
        loop {
            // Acquire: pairs with the release below, which publishes the chunk.
            let newest = self.newest.load(Ordering::Acquire);
            if let Some(slot) = Chunk::take_in_oldest(chunks(newest), tid) {
                slot.tid.store(tid, PLAIN);
                slot.thread.store(thread, PLAIN);
                return slot;
            }
            let size = chunks(newest).next().map_or(FIRST_CHUNK, |chunk| chunk.slots.len() * 2);
            let chunk = Box::into_raw(Box::new(Chunk::new(size, newest)));
            // Release: publishes the chunk. Relaxed on failure: the next turn loads it again with acquire.
            if self.newest.compare_exchange(newest, chunk, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                // SAFETY: it came from `Box::into_raw` above and was not published.
                drop(unsafe { Box::from_raw(chunk) });
            }
        }
    }

    /// Gives a place back. The mailbox must be closed and empty.
    pub(super) fn release(&self, slot: &Slot) {
        slot.clear();
        // Acquire: as in `claim`.
        let place = chunks(self.newest.load(Ordering::Acquire))
            .find_map(|chunk| Some((chunk, chunk.place_of(slot)?)));
        let (chunk, place) = place.expect("a place is in one of the chunks");
        chunk.taken[place / BITS].fetch_and(!(1 << (place % BITS)), orders::give_back());
        chunk.holders.fetch_sub(1, orders::give_back());
    }

    /// The place of the thread with this id: its own, or that of a thread that had the same id and ended without leaving.
    /// Async-signal-safe. Reads some places of each chunk, however many threads there are.
    pub(super) fn find(&self, tid: u32) -> Option<&Slot> {
        // Acquire: pairs with the release in `claim`.
        for chunk in chunks(self.newest.load(Ordering::Acquire)) {
            for place in chunk.near(tid) {
                step();
                if chunk.slots[place].tid() == tid {
                    return Some(&chunk.slots[place]);
                }
            }
        }
        // SAFETY: null, or one of the places, which live as long as `self`.
        unsafe { self.moved.load(PLAIN).as_ref() }.filter(|moved| moved.tid() == tid)
    }

    /// The chunks that exist now. Later chunks have only places of threads that join later.
    pub(super) fn view(&self) -> View<'_> {
        // Acquire: pairs with the release in `claim`.
        View { newest: self.newest.load(Ordering::Acquire), slots: self }
    }

    /// In the child of a `fork`: gives back every place except that of the calling thread, whose id is new.
    #[cfg(not(stillpoint_loom))]
    pub(super) fn reset_after_fork(&self, tid: u32, thread: u64) {
        // Relaxed, throughout: there is one thread only.
        for chunk in chunks(self.newest.load(Ordering::Relaxed)) {
            let mut holders = 0;
            for (word, slots) in chunk.taken.iter().zip(chunk.slots.chunks(BITS)) {
                let is_own = |&bit: &u32| {
                    let slot = &slots[bit as usize];
                    let is_own = slot.is_of(thread);
                    slot.mailbox.reset(is_own);
                    if is_own {
                        slot.tid.store(tid, PLAIN);
                        self.moved.store(ptr::from_ref::<Slot>(slot).cast_mut(), PLAIN);
                    } else {
                        slot.set_joins(0);
                        slot.clear();
                    }
                    is_own
                };
                let kept =
                    bits(word.load(Ordering::Relaxed)).filter(is_own).fold(0, |kept, bit| kept | 1 << bit);
                word.store(kept, Ordering::Relaxed);
                holders += kept.count_ones() as usize;
            }
            // Counted anew: another thread of the parent may have been between setting its bit and counting.
            chunk.holders.store(holders, Ordering::Relaxed);
        }
    }
}

/// The places at one moment.
pub(super) struct View<'s> {
    newest: *mut Chunk,
    slots: &'s Slots,
}

impl<'s> View<'s> {
    /// The number of places, taken or not.
    #[cfg(all(test, not(stillpoint_loom)))]
    pub(super) fn len(&self) -> usize {
        chunks(self.newest).map(|chunk| chunk.slots.len()).sum()
    }

    /// The taken places. A place that is not among them was given back, and the caller comes after everything that its last
    /// thread did; or it was taken after the caller's fence.
    pub(super) fn iter(&self) -> Taken<'s> {
        let _alive: &'s Slots = self.slots;
        Taken { next: self.newest, slots: &[], words: [].iter(), first: 0, bits: 0 }
    }
}

/// An iterator over the taken places, from the newest chunk on.
#[derive(Clone)]
pub(super) struct Taken<'s> {
    /// The chunk after this one.
    next: *mut Chunk,
    slots: &'s [CachePadded<Slot>],
    /// The words after the current one.
    words: std::slice::Iter<'s, AtomicU64>,
    /// The first place of the current word.
    first: usize,
    /// The remaining bits of the current word.
    bits: u64,
}

impl<'s> Iterator for Taken<'s> {
    type Item = &'s Slot;

    fn next(&mut self) -> Option<&'s Slot> {
        while self.bits == 0 {
            if let Some(word) = self.words.next() {
                step();
                self.first = self.first.wrapping_add(BITS);
                self.bits = word.load(orders::passed());
                continue;
            }
            // SAFETY: null, or a chunk of the `Slots` that are borrowed for as long.
            let chunk: &'s Chunk = unsafe { self.next.as_ref() }?;
            step();
            self.next = chunk.older;
            if chunk.holders.load(orders::empty()) != 0 {
                self.slots = &chunk.slots;
                self.words = chunk.taken.iter();
                // Before the first word.
                self.first = 0usize.wrapping_sub(BITS);
            }
        }
        step();
        let place = self.bits.trailing_zeros() as usize;
        self.bits &= self.bits - 1;
        Some(&self.slots[self.first + place])
    }
}

impl Chunk {
    fn new(size: usize, older: *mut Chunk) -> Self {
        Self {
            slots: (0..size).map(|_| CachePadded::new(Slot::default())).collect(),
            taken: (0..size.div_ceil(BITS)).map(|_| AtomicU64::new(0)).collect(),
            holders: CachePadded::new(AtomicUsize::new(0)),
            older,
        }
    }

    /// The places in which a thread with this id may be.
    fn near(&self, tid: u32) -> impl Iterator<Item = usize> {
        // In a model, thread ids differ between runs, which must do the same.
        // The upper bits of the product, as many as the number of a place has.
        let bits = self.slots.len().ilog2();
        let first =
            if cfg!(stillpoint_loom) { 0 } else { tid.wrapping_mul(0x9e37_79b9) >> (u32::BITS - bits) };
        let mask = self.slots.len() - 1;
        (0..PROBES.min(self.slots.len())).map(move |probe| (first as usize + probe) & mask)
    }

    /// Takes a place in the oldest of these chunks that has a free one near. So the threads of a group that was large
    /// once are together in the small chunks, and walks pass over the large ones. Recursive, once for each chunk.
    fn take_in_oldest<'c>(mut chunks: impl Iterator<Item = &'c Chunk>, tid: u32) -> Option<&'c Slot> {
        let newest = chunks.next()?;
        let older: &mut dyn Iterator<Item = &'c Chunk> = &mut chunks;
        Self::take_in_oldest(older, tid)
            .or_else(|| newest.near(tid).find(|&place| newest.take(place)).map(|place| &*newest.slots[place]))
    }

    /// Takes a place. Returns whether it was free.
    fn take(&self, place: usize) -> bool {
        let (word, bit) = (&self.taken[place / BITS], 1 << (place % BITS));
        // Relaxed, for the first load: a hint. Acquire: pairs with the release in `release`.
        if word.load(Ordering::Relaxed) & bit != 0 || word.fetch_or(bit, Ordering::Acquire) & bit != 0 {
            return false;
        }
        // Relaxed, here and on the bit: the fence in `join` makes it visible, as it does the mailbox. A read-modify-write, which
        // continues the release sequences of threads that have left.
        self.holders.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// The index of a place in this chunk, if it is in the chunk.
    fn place_of(&self, slot: &Slot) -> Option<usize> {
        let size = size_of::<CachePadded<Slot>>();
        let place = ptr::from_ref(slot).addr().wrapping_sub(self.slots.as_ptr().addr()) / size;
        (place < self.slots.len()).then_some(place)
    }
}

/// The chunks from this one on. They live as long as the `Slots` that the caller borrows.
fn chunks<'s>(mut next: *mut Chunk) -> impl Iterator<Item = &'s Chunk> + Clone {
    std::iter::from_fn(move || {
        // SAFETY: null, or a chunk published by `claim` and read by an acquire load; chunks are freed only with the `Slots`,
        // which the caller borrows.
        let chunk = unsafe { next.as_ref() }?;
        next = chunk.older;
        Some(chunk)
    })
}

impl Drop for Slots {
    fn drop(&mut self) {
        // Acquire: pairs with the release in `claim`. (The drop has exclusive access anyway.)
        let mut next = self.newest.load(Ordering::Acquire);
        while !next.is_null() {
            // SAFETY: each chunk came from `Box::into_raw`, is in the list once, and nothing refers to it any more.
            let chunk = unsafe { Box::from_raw(next) };
            next = chunk.older;
        }
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use stillpoint_sys::work::steps_of;

    fn claim(slots: &Slots, tids: impl IntoIterator<Item = u32>) {
        tids.into_iter().for_each(|tid| _ = slots.claim(tid, tid.into()));
    }

    fn release(slots: &Slots, tids: impl IntoIterator<Item = u32>) {
        tids.into_iter().for_each(|tid| slots.release(slots.find(tid).expect("it was claimed")));
    }

    fn seen(slots: &Slots) -> Vec<u32> {
        let mut seen: Vec<u32> = slots.view().iter().map(Slot::tid).collect();
        seen.sort_unstable();
        seen
    }

    fn looks(slots: &Slots) -> usize {
        steps_of(|| _ = slots.view().iter().count()).0
    }

    #[test]
    fn every_thread_is_found_and_places_are_used_again() {
        let slots = Slots::new();
        for round in 0..3 {
            claim(&slots, 1..=1000);
            for tid in 1..=1000 {
                let slot = slots.find(tid).expect("it was claimed");
                assert!(slot.tid() == tid && slot.is_of(tid.into()), "round {round}");
            }
            assert!(slots.find(1001).is_none());
            assert_eq!(seen(&slots), (1..=1000).collect::<Vec<_>>(), "round {round}");
            release(&slots, 1..=1000);
            assert!(seen(&slots).is_empty());
        }
        assert!(slots.view().len() <= 4 * 1024, "{} places for 1000 threads", slots.view().len());
    }

    /// The ids of a process need not be consecutive.
    #[test]
    fn there_are_few_places_however_the_ids_lie() {
        for spread in [1, 7, 64, 0x0101_0101, 0x9e37_79b1] {
            let slots = Slots::new();
            claim(&slots, (1..=1000u32).map(|number| number.wrapping_mul(spread)));
            assert!(slots.view().len() <= 3 * 1024, "{} places, {spread:x} apart", slots.view().len());
        }
    }

    #[cfg_attr(miri, ignore = "slow")]
    #[test]
    fn ids_lead_to_all_parts_of_a_large_chunk() {
        let chunk = Chunk::new(1 << 17, ptr::null_mut());
        for part in 0..4 {
            assert!((1..=100).flat_map(|tid| chunk.near(tid)).any(|place| place >> 15 == part), "{part}");
        }
    }

    #[test]
    fn no_place_has_two_threads() {
        let slots = Slots::new();
        std::thread::scope(|scope| {
            for number in 1..=8 {
                let slots = &slots;
                scope.spawn(move || {
                    for round in 0..2000 {
                        // All of these threads have ids that lead to the same places.
                        let slot = slots.claim(1, number);
                        slot.add_join();
                        assert!(slot.joins() == 1 && slot.is_of(number), "round {round}");
                        slot.remove_join();
                        slots.release(slot);
                    }
                });
            }
        });
        assert_eq!((seen(&slots), looks(&slots)), (vec![], chunks(slots.view().newest).count()));
    }

    /// A walk reads each taken place, one word for 64 places of a chunk with threads, and each chunk.
    #[test]
    fn a_walk_does_not_look_at_places_that_were_left() {
        let (slots, fresh) = (Slots::new(), Slots::new());
        claim(&slots, 1..=4000);
        assert!(looks(&slots) > 4000);
        release(&slots, 1..=4000);
        let chunks = chunks(slots.view().newest).count();
        assert!(looks(&slots) == chunks && chunks < 16, "{} looks without a thread", looks(&slots));
        // New threads are as close together as in a group that was never large.
        claim(&slots, 5001..=5008);
        claim(&fresh, 5001..=5008);
        assert!(looks(&slots) <= looks(&fresh) + chunks, "{} and {}", looks(&slots), looks(&fresh));
        assert_eq!(seen(&slots), (5001..=5008).collect::<Vec<_>>());
    }

    /// One thread of each chunk stays, so that no chunk is passed over.
    #[test]
    fn a_walk_looks_at_one_word_for_64_places_that_were_left() {
        let slots = Slots::new();
        claim(&slots, 1..=4000);
        let mut stays = Vec::new();
        for chunk in chunks(slots.view().newest) {
            stays.extend(chunk.slots.iter().map(|slot| slot.tid()).find(|&tid| tid != 0));
        }
        release(&slots, (1..=4000).filter(|tid| !stays.contains(tid)));
        let bound = slots.view().len() / BITS + 4 * stays.len();
        assert!(looks(&slots) <= bound, "{} looks, {bound} expected", looks(&slots));
        stays.sort_unstable();
        assert_eq!(seen(&slots), stays);
    }

    #[test]
    fn a_thread_finds_its_place_by_some_looks_however_many_there_are() {
        let slots = Slots::new();
        claim(&slots, 1..=4000);
        let chunks = chunks(slots.view().newest).count();
        for tid in [1, 2000, 4000, 4001] {
            assert!(steps_of(|| _ = slots.find(tid)).0 <= PROBES * chunks, "in {chunks} chunks");
        }
        // Also in the child of a fork, where the id of the only thread does not lead to its place.
        slots.reset_after_fork(5000, 7);
        for tid in [5000, 5001] {
            assert!(steps_of(|| _ = slots.find(tid)).0 <= PROBES * chunks, "in {chunks} chunks");
        }
        let looks = looks(&slots);
        assert!(
            looks <= slots.view().len() / BITS + chunks + 1,
            "{looks} looks, although only one place is taken"
        );
    }

    #[test]
    fn the_thread_that_forked_has_its_place_and_nobody_else() {
        let slots = Slots::new();
        claim(&slots, 1..=100);
        for slot in slots.view().iter() {
            slot.add_join();
            slot.mailbox.open();
        }
        for (round, child) in [5000, 6000].into_iter().enumerate() {
            slots.reset_after_fork(child, 7);
            let own = slots.find(child).expect("it is there");
            assert!(own.is_of(7) && own.joins() == 1 && own.mailbox.is_open(), "round {round}");
            assert!((1..=100).chain([5000]).all(|tid| tid == child || slots.find(tid).is_none()));
            assert_eq!(seen(&slots), [child]);
            // Other threads come and go.
            claim(&slots, 201..=300);
            assert_eq!(seen(&slots).len(), 101);
            assert!(slots
                .view()
                .iter()
                .all(|slot| slot.is_of(7) || slot.joins() == 0 && !slot.mailbox.is_open()));
            release(&slots, 201..=300);
        }
        slots.release(slots.find(6000).expect("it is there"));
        assert!(slots.find(6000).is_none());
        assert_eq!(looks(&slots), chunks(slots.view().newest).count());
    }
}
