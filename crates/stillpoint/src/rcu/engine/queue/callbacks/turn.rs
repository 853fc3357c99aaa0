//! The turn at a queue of callbacks: one thread at a time has it, and none while the queue is paused.

use std::sync::atomic::AtomicU64;

use crate::rcu::orders;
use stillpoint_sys::os;
use stillpoint_sys::sync::atomic::{AtomicU32, Ordering};

/// A thread has the turn.
const TAKEN: u32 = 1;
/// One pause.
const PAUSE: u32 = 2;

#[derive(Default)]
pub(super) struct Turn {
    /// [`TAKEN`], and the number of pauses.
    word: AtomicU32,
    /// The number of forks between the process that made the queue and this one. Not modelled.
    forks: AtomicU64,
    /// The number of the thread that has the turn. Not modelled: each thread compares it only with its own number.
    holder: AtomicU64,
}

impl Turn {
    /// Takes the turn, unless a thread has it, or pauses the queue.
    pub(super) fn try_take(&self) -> bool {
        // Relaxed on failure: the caller relies on nothing.
        let answer = self.word.compare_exchange(0, TAKEN, orders::turn_taken(), Ordering::Relaxed);
        if answer.is_ok() {
            // Relaxed: only this thread compares it with its own number.
            self.holder.store(os::thread_number(), Ordering::Relaxed);
        }
        answer.is_ok()
    }

    /// Ends the turn. Returns whether a pause waits for that.
    pub(super) fn end(&self) -> bool {
        // Relaxed: see `try_take`.
        self.holder.store(0, Ordering::Relaxed);
        self.word.fetch_and(!TAKEN, orders::turn_ended()) != TAKEN
    }

    /// Whether the calling thread has the turn.
    pub(super) fn is_mine(&self) -> bool {
        // Relaxed: see `try_take`.
        self.holder.load(Ordering::Relaxed) == os::thread_number()
    }

    /// Begins a pause: no thread takes the turn from now on. Returns the argument for [`end_pause`](Turn::end_pause).
    pub(super) fn begin_pause(&self) -> u64 {
        // Relaxed: a thread that waits for the end of the turn acquires that end.
        self.word.fetch_add(PAUSE, Ordering::Relaxed);
        self.forks()
    }

    /// Whether a thread has the turn. If not, the caller comes after all turns so far.
    pub(super) fn is_taken(&self) -> bool {
        self.word.load(orders::turn_taken()) & TAKEN != 0
    }

    pub(super) fn is_paused(&self) -> bool {
        // Relaxed: a hint.
        self.word.load(Ordering::Relaxed) >= PAUSE
    }

    /// Ends one pause, unless a `fork` has ended it. What was done in the pause comes before the next turn.
    pub(super) fn end_pause(&self, forks: u64) {
        if self.forks() == forks {
            self.word.fetch_sub(PAUSE, orders::turn_ended());
        }
    }

    /// The number of forks so far.
    pub(super) fn forks(&self) -> u64 {
        // Relaxed: written while there is no other thread.
        self.forks.load(Ordering::Relaxed)
    }

    /// In the child of a `fork`: ends all pauses, and the turn of any other thread. Returns whether
    /// another thread had the turn.
    pub(super) fn reset(&self) -> bool {
        // Relaxed, all: there is no other thread.
        let (is_mine, was_taken) = (self.is_mine(), self.word.load(Ordering::Relaxed) & TAKEN != 0);
        self.word.store(if is_mine { TAKEN } else { 0 }, Ordering::Relaxed);
        if !is_mine {
            self.holder.store(0, Ordering::Relaxed);
        }
        self.forks.fetch_add(1, Ordering::Relaxed);
        was_taken && !is_mine
    }
}
