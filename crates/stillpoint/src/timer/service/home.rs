//! What all handles of a service share: the hints of cancelled timers, and the rings that are to be served.
//!
//! The hints are a stack, linked through the records, that the owner takes as a whole. A record is on it once at most: its
//! mark says so. The stack of a service that is gone is closed for good, so that records and service do not keep each
//! other alive.

use std::sync::{Arc, PoisonError, TryLockError};

use crossbeam_utils::CachePadded;

use super::alarm::Bed;
use super::record::Record;
use super::ring::{ring, Sink, Source};
use crate::timer::busted::{self, Variant};
use crate::timer::orders;
use stillpoint_sys::os::{thread_handle, wait, wake_all};
use stillpoint_sys::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use stillpoint_sys::sync::Mutex;

pub(super) struct Home<T> {
    hints: AtomicPtr<Record<T>>,
    /// Rings that the owner does not know yet; `None` once the service is gone.
    rings: Mutex<Option<Vec<Sink<T>>>>,
    /// Whether there are such rings.
    has_rings: AtomicBool,
    /// The thread that runs callbacks, or did the last time.
    runner: CachePadded<AtomicUsize>,
    /// Callbacks that have ended while somebody waited for it: a futex.
    ended: AtomicU32,
    /// Of a service that sleeps between its calls.
    pub(super) bed: Option<Bed>,
}

/// Not a record: stands on top of a stack that is closed.
fn closed<T>() -> *mut Record<T> {
    std::ptr::without_provenance_mut(std::mem::align_of::<Record<T>>())
}

impl<T> Home<T> {
    pub(super) fn new() -> Self {
        Self {
            hints: AtomicPtr::new(std::ptr::null_mut()),
            rings: Mutex::new(Some(Vec::new())),
            has_rings: AtomicBool::new(false),
            runner: CachePadded::new(AtomicUsize::new(0)),
            ended: AtomicU32::new(0),
            bed: None,
        }
    }

    /// Wakes the owner if it sleeps until this time or longer. The owner then sees what the caller has published before.
    #[inline]
    pub(super) fn rouse(&self, deadline: u64) {
        if let Some(bed) = &self.bed {
            bed.rouse(deadline);
        }
    }

    /// Whether all work for the owner is in the rings that it knows.
    pub(super) fn is_quiet(&self) -> bool {
        // Relaxed: ordered by the fence in `Bed::sleep`.
        !self.has_rings.load(Ordering::Relaxed) && self.has_no_hints()
    }

    /// The calling thread, of this name, is about to run a callback.
    #[inline]
    pub(super) fn run_in(&self, me: usize) {
        // Relaxed, both: whoever sees that a callback has begun sees this. It is rarely another thread than before, so the line is
        // written to only if the name differs.
        if self.runner.load(Ordering::Relaxed) != me {
            self.runner.store(me, Ordering::Relaxed);
        }
    }

    /// Whether a callback that runs does so in the calling thread.
    pub(super) fn runs_here(&self) -> bool {
        // Relaxed: the caller has seen by an acquire that a callback had begun. Only this thread stores its own name.
        self.runner.load(Ordering::Relaxed) == thread_handle()
    }

    /// How many callbacks have ended that somebody waited for.
    pub(super) fn ended(&self) -> u32 {
        self.ended.load(orders::await_end())
    }

    pub(super) fn tell_end(&self) {
        if busted::is(Variant::EndUntold) {
            return;
        }
        self.ended.fetch_add(1, orders::end());
        wake_all(&self.ended);
    }

    /// Sleeps until another one has ended. It may return early.
    pub(super) fn await_end(&self, seen: u32) {
        wait(&self.ended, seen, None);
    }

    /// Makes a ring that the owner will serve; one that is closed when the service is gone.
    pub(super) fn ring(&self, capacity: usize) -> Source<T> {
        let (source, sink) = ring(capacity);
        let refused = match &mut *self.rings.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(rings) => {
                rings.push(sink);
                None
            }
            None => Some(sink),
        };
        if let Some(sink) = refused {
            sink.close();
        }
        // Relaxed: the lock orders the rings; this says when to look. It comes after the ring, and `take_rings` clears it
        // before it looks: a ring that is missed there is announced after that.
        self.has_rings.store(true, Ordering::Relaxed);
        source
    }

    /// Takes the rings that were made since; whether there may be more. It waits for nobody: when another thread is just
    /// making one, all are left for the next time.
    #[inline]
    pub(super) fn take_rings(&self, into: &mut Vec<Sink<T>>) -> bool {
        // Relaxed: as above.
        if !self.has_rings.load(Ordering::Relaxed) {
            return false;
        }
        // Relaxed: as above.
        self.has_rings.store(false, Ordering::Relaxed);
        let mut rings = match self.rings.try_lock() {
            Ok(rings) => rings,
            // What is in it is whole after a panic, too.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                // Relaxed: as above.
                self.has_rings.store(true, Ordering::Relaxed);
                return true;
            }
        };
        into.extend(rings.iter_mut().flat_map(std::mem::take));
        false
    }

    /// No ring is made for the owner any more: those that it does not know.
    pub(super) fn close_rings(&self) -> Vec<Sink<T>> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
    }

    /// Tells the owner that a timer was cancelled.
    pub(super) fn hint(&self, record: &Arc<Record<T>>) {
        // AcqRel: pairs with the same in `Hints::pop`: either the owner, clearing the mark later, sees the cancellation,
        // or the mark is clear here.
        if record.hinted.swap(true, Ordering::AcqRel) {
            return;
        }
        let pushed = Arc::into_raw(Arc::clone(record)).cast_mut();
        // Relaxed: the operation below orders.
        let mut top = self.hints.load(Ordering::Relaxed);
        loop {
            if top == closed() {
                // SAFETY: it was made from an `Arc` above, and nobody else was told.
                drop(unsafe { Arc::from_raw(pushed) });
                return;
            }
            // Relaxed: published by the operation below.
            record.next.store(top, Ordering::Relaxed);
            match self.hints.compare_exchange_weak(top, pushed, orders::hint(), Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => top = other,
            }
        }
    }

    pub(super) fn has_no_hints(&self) -> bool {
        // Relaxed: only whether it is worth while to look again.
        self.hints.load(Ordering::Relaxed).is_null()
    }

    /// Takes all hints.
    #[inline]
    pub(super) fn take_hints(&self) -> Hints<T> {
        if self.has_no_hints() {
            return Hints::default();
        }
        // Acquire: pairs with the release in `hint`.
        Hints { top: self.hints.swap(std::ptr::null_mut(), Ordering::Acquire) }
    }

    /// The last hints: whoever comes later finds the stack closed.
    pub(super) fn close_hints(&self) -> Hints<T> {
        // Acquire: as above.
        let top = self.hints.swap(closed(), Ordering::Acquire);
        Hints { top: if top == closed() { std::ptr::null_mut() } else { top } }
    }
}

/// Hints that the owner has taken.
pub(super) struct Hints<T> {
    top: *mut Record<T>,
}

// SAFETY: it owns what it links, records that can be sent and shared when values can be sent.
unsafe impl<T: Send> Send for Hints<T> {}

impl<T> Default for Hints<T> {
    fn default() -> Self {
        Self { top: std::ptr::null_mut() }
    }
}

impl<T> Hints<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.top.is_null()
    }

    /// The next record. Its mark is cleared: what is done with the timer from now on gives another hint.
    pub(super) fn pop(&mut self) -> Option<Arc<Record<T>>> {
        if self.top.is_null() {
            return None;
        }
        // SAFETY: what was pushed was made from an `Arc`, and is popped once.
        let record = unsafe { Arc::from_raw(self.top.cast_const()) };
        // Relaxed: ordered by `take_hints`; nobody pushes the record again before its mark is cleared.
        self.top = record.next.load(Ordering::Relaxed);
        if busted::is(Variant::HintByStore) {
            record.hinted.store(false, Ordering::Relaxed);
        } else if !busted::is(Variant::HintMarkLate) {
            // AcqRel: pairs with the same in `Home::hint`.
            record.hinted.swap(false, Ordering::AcqRel);
        }
        Some(record)
    }
}

impl<T> Drop for Hints<T> {
    fn drop(&mut self) {
        while let Some(record) = self.pop() {
            drop(record);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::timer::{Limit, Progress, TimerService};

    /// As while another thread is making a mailbox.
    #[test]
    fn mailboxes_that_cannot_be_looked_at_are_left_for_the_next_call() {
        let mut service = TimerService::new(0);
        let remote = service.remote();
        let mut mailbox = remote.mailbox(1);
        mailbox.add(&remote.timer(), 5, 1).unwrap();
        let making = remote.home.rings.lock().unwrap();
        assert_eq!(service.process(usize::MAX, |_, _| {}), Progress::More(0));
        assert_eq!(service.run(5, Limit::NONE, |_, _| {}), Progress::More(0));
        drop(making);
        assert_eq!(service.run(5, Limit::NONE, |_, _| {}), Progress::Done(1));
    }
}
