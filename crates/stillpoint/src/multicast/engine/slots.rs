//! The places of registered threads. They are claimed without locks, never move, and are freed with the group alone: a
//! sender may hold on to one whose thread has left.

use std::ptr;
use std::sync::atomic::{AtomicU32 as PlainU32, AtomicUsize as PlainUsize};

use crossbeam_utils::CachePadded;

use super::mailbox::Mailbox;
use super::PLAIN;
use crate::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Places of the first chunk; each further one has twice as many.
const FIRST_CHUNK: usize = if cfg!(loom) { 4 } else { 16 };
/// A thread has its place among so many from the one that its id leads to, in some chunk.
const PROBES: usize = 8;

/// Its id and its handle tell a thread its own place, and others where to send a signal, which may go astray. Only what
/// says whose the place is, and the mailbox, are ordered, and modelled.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(super) mailbox: Mailbox,
    is_taken: AtomicBool,
    /// How often its thread has joined and not left. For the owner alone.
    joins: PlainU32,
    /// The thread's id: where a signal goes to.
    tid: PlainU32,
    /// The thread's handle, which survives `fork`; 0 without a thread. A thread looks for its own.
    thread: PlainUsize,
}

#[derive(Debug)]
struct Chunk {
    slots: Box<[CachePadded<Slot>]>,
    older: *mut Chunk,
}

#[derive(Debug)]
pub(super) struct Slots {
    newest: AtomicPtr<Chunk>,
    /// Whether a thread may be at a place that its id does not lead to.
    #[cfg(not(loom))]
    has_moved: AtomicBool,
}

// SAFETY: `Slots` owns its chunks, and hands out shared references to places that consist of atomics.
unsafe impl Send for Slots {}
// SAFETY: as above.
unsafe impl Sync for Slots {}

impl Slot {
    /// The thread's id; 0 without a thread. Somebody else's a moment later.
    pub(super) fn tid(&self) -> u32 {
        self.tid.load(PLAIN)
    }

    /// Whether it is the place of the thread with this handle.
    pub(super) fn is_of(&self, thread: usize) -> bool {
        self.thread.load(PLAIN) == thread
    }

    /// Whether it is the place of the thread with this handle and this id. A thread that was ended behind the C library's
    /// back leaves its place, and a later one may have its handle.
    pub(super) fn is_held_by(&self, thread: usize, tid: impl FnOnce() -> u32) -> bool {
        self.is_of(thread) && self.tid() == tid()
    }

    /// In a model: makes the place the calling thread's, which another one has claimed for it.
    #[cfg(all(test, loom))]
    pub(super) fn take_over(&self) {
        self.thread.store(crate::sys::thread_handle(), PLAIN);
    }

    /// Counts a registration of the owner.
    pub(super) fn add_join(&self) {
        self.joins.fetch_add(1, PLAIN);
    }

    /// Counts one less.
    pub(super) fn remove_join(&self) {
        self.joins.fetch_sub(1, PLAIN);
    }

    /// How many there are.
    pub(super) fn joins(&self) -> u32 {
        self.joins.load(PLAIN)
    }

    pub(super) fn set_joins(&self, joins: u32) {
        self.joins.store(joins, PLAIN);
    }

    /// Gives the place back. Nothing may be in the mailbox, and it is closed.
    pub(super) fn release(&self) {
        self.tid.store(0, PLAIN);
        self.thread.store(0, PLAIN);
        // Release: pairs with the acquire in `try_take`.
        self.is_taken.store(false, Ordering::Release);
    }

    fn try_take(&self, tid: u32, thread: usize) -> bool {
        // Acquire: pairs with the release in `release`. Relaxed on the look before, which is a hint.
        let taken = self.is_taken.load(Ordering::Relaxed)
            || self.is_taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err();
        if !taken {
            self.tid.store(tid, PLAIN);
            self.thread.store(thread, PLAIN);
        }
        !taken
    }
}

impl Slots {
    pub(super) fn new() -> Self {
        Self {
            newest: AtomicPtr::new(ptr::null_mut()),
            #[cfg(not(loom))]
            has_moved: AtomicBool::new(false),
        }
    }

    /// Claims a place for the thread. Lock-free; allocates when there is none where the thread may have it.
    pub(super) fn claim(&self, tid: u32, thread: usize) -> &Slot {
        loop {
            // Acquire: pairs with the release below; the chunk is read.
            let newest = self.newest.load(Ordering::Acquire);
            let found =
                chunks(newest).find_map(|chunk| chunk.near(tid).find(|slot| slot.try_take(tid, thread)));
            if let Some(slot) = found {
                return slot;
            }
            let size = chunks(newest).next().map_or(FIRST_CHUNK, |chunk| chunk.slots.len() * 2);
            let slots = (0..size).map(|_| CachePadded::new(Slot::default())).collect();
            let chunk = Box::into_raw(Box::new(Chunk { slots, older: newest }));
            // Release: publishes the chunk. Acquire on failure is left to the next turn.
            if self.newest.compare_exchange(newest, chunk, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                // SAFETY: it came from `Box::into_raw` above and was not published.
                drop(unsafe { Box::from_raw(chunk) });
            }
        }
    }

    /// The place of the thread with this id. Async-signal-safe.
    #[cfg(not(loom))]
    pub(super) fn find(&self, tid: u32) -> Option<&Slot> {
        // Acquire: pairs with the release in `claim`.
        let newest = self.newest.load(Ordering::Acquire);
        let near = chunks(newest).find_map(|chunk| chunk.near(tid).find(|slot| slot.tid() == tid));
        // Relaxed: written when there was one thread alone.
        if near.is_none() && self.has_moved.load(Ordering::Relaxed) {
            return chunks(newest)
                .flat_map(|chunk| chunk.slots.iter())
                .map(|slot| &**slot)
                .find(|s| s.tid() == tid);
        }
        near
    }

    /// The places that there are now. Those that come later belong to threads that join later.
    pub(super) fn view(&self) -> View<'_> {
        // Acquire: pairs with the release in `claim`.
        View { newest: self.newest.load(Ordering::Acquire), slots: self }
    }

    /// In the child of a `fork`: gives every place back but those of the calling thread, whose id is new.
    #[cfg(not(loom))]
    pub(super) fn reset_after_fork(&self, tid: u32, thread: usize) {
        // Relaxed: there is one thread alone.
        self.has_moved.store(true, Ordering::Relaxed);
        for slot in self.view().iter() {
            let is_own = slot.is_of(thread);
            slot.mailbox.reset(is_own);
            if is_own {
                slot.tid.store(tid, PLAIN);
            } else {
                slot.set_joins(0);
                slot.release();
            }
        }
    }
}

/// The places at one time.
pub(super) struct View<'s> {
    newest: *mut Chunk,
    slots: &'s Slots,
}

impl<'s> View<'s> {
    /// How many there are.
    #[cfg(all(test, not(loom)))]
    fn len(&self) -> usize {
        self.iter().count()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &'s Slot> + Clone {
        let _alive: &'s Slots = self.slots;
        chunks(self.newest).flat_map(|chunk| chunk.slots.iter()).map(|slot| &**slot)
    }
}

impl Chunk {
    /// The places where a thread with this id may be.
    fn near(&self, tid: u32) -> impl Iterator<Item = &Slot> {
        let first = (tid.wrapping_mul(0x9e37_79b9) >> 16) as usize;
        let mask = self.slots.len() - 1;
        (0..PROBES.min(self.slots.len())).map(move |probe| &*self.slots[(first + probe) & mask])
    }
}

/// The chunks from this one on. They live as long as the `Slots` that the caller borrows.
fn chunks<'s>(mut next: *mut Chunk) -> impl Iterator<Item = &'s Chunk> + Clone {
    std::iter::from_fn(move || {
        // SAFETY: null, or a chunk published by `claim` and read by an acquire load; chunks are freed with the
        // `Slots` alone, which the caller borrows.
        let chunk = unsafe { next.as_ref() }?;
        next = chunk.older;
        Some(chunk)
    })
}

impl Drop for Slots {
    fn drop(&mut self) {
        // Acquire: pairs with the release in `claim`, although whoever drops has it to itself.
        let mut next = self.newest.load(Ordering::Acquire);
        while !next.is_null() {
            // SAFETY: each chunk came from `Box::into_raw`, is in the list once, and nothing refers to it any more.
            let chunk = unsafe { Box::from_raw(next) };
            next = chunk.older;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_thread_is_found_and_places_are_used_again() {
        let slots = Slots::new();
        for round in 0..3 {
            for tid in 1..=1000 {
                slots.claim(tid, tid as usize);
            }
            for tid in 1..=1000 {
                let slot = slots.find(tid).expect("it was claimed");
                assert!(slot.tid() == tid && slot.is_of(tid as usize), "round {round}");
            }
            assert!(slots.find(1001).is_none());
            slots.view().iter().filter(|slot| slot.tid() != 0).for_each(Slot::release);
        }
        assert!(slots.view().len() <= 16 * 1024, "{} places for 1000 threads", slots.view().len());
    }

    #[test]
    fn a_thread_with_a_new_id_is_found() {
        let slots = Slots::new();
        (1..=100).for_each(|tid| _ = slots.claim(tid, tid as usize));
        slots.reset_after_fork(5000, 7);
        assert!(slots.find(5000).is_some_and(|slot| slot.is_of(7)));
        assert!((1..=100).all(|tid| slots.find(tid).is_none()));
    }
}
