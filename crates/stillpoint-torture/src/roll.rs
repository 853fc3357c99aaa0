//! The roll: the ids of the threads of a part, for the threads that park them.

use std::sync::atomic::{AtomicU32, Ordering};

use fastrand::Rng;

/// One place for each slot.
#[derive(Debug)]
pub(crate) struct Roll(Box<[AtomicU32]>);

/// A thread on the roll, until this is dropped.
#[derive(Debug)]
pub(crate) struct Present<'r>(&'r AtomicU32);

// Relaxed throughout: an id that is out of date does no harm; its signal reaches no thread, or another thread.
impl Roll {
    pub(crate) fn new(slots: usize) -> Self {
        Self((0..slots).map(|_| AtomicU32::new(0)).collect())
    }

    /// Gives this slot to the calling thread.
    pub(crate) fn enter(&self, slot: usize) -> Present<'_> {
        self.0[slot].store(own_id(), Ordering::Relaxed);
        Present(&self.0[slot])
    }

    /// A random slot, and its thread.
    pub(crate) fn pick(&self, rng: &mut Rng) -> Option<(usize, u32)> {
        let slot = rng.usize(0..self.0.len());
        Some((slot, self.thread_of(slot)?))
    }

    /// The thread of this slot, if there is one.
    pub(crate) fn thread_of(&self, slot: usize) -> Option<u32> {
        let thread = self.0[slot].load(Ordering::Relaxed);
        (thread != 0).then_some(thread)
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// The kernel's id of the calling thread.
pub(crate) fn own_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}
