//! liburcu without `call_rcu`: each delete wakes a thread, which calls `synchronize_rcu` and frees.
//!
//! A program does this if its objects must not wait for the 10 ms between two batches of a `call_rcu` worker.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::urcu::{Field, Flavour, Membership, QSBR};
use crate::{Contender, Element, Entry, ReadJob, ReadOutcome, Writer};

pub(crate) const NAME: &str = "liburcu/qsbr+sync";

pub(crate) const ENTRY: Entry =
    Entry { name: NAME, peer: super::urcu::PEER, make: |slots, _| over(Field::Slots(Arc::clone(slots))) };

pub(super) static FLAVOUR: &Flavour = &QSBR;

pub(super) fn over(field: Field) -> Box<dyn Contender> {
    Box::new(Synchronizing { field, queue: Mutex::default(), arrived: Condvar::new(), freed: Condvar::new() })
}

/// How long the thread sleeps before it checks whether to end, since nothing wakes it for that.
const LOOK_FOR_THE_END: Duration = Duration::from_millis(10);

struct Synchronizing {
    field: Field,
    queue: Mutex<Queue>,
    arrived: Condvar,
    freed: Condvar,
}

#[derive(Default)]
struct Queue {
    unlinked: Vec<Unlinked>,
    /// How many elements a thread has taken but not freed yet.
    taken: usize,
}

/// An element that was unlinked just now, and that readers may still hold.
struct Unlinked(*mut Element);

// SAFETY: elements are `Send`, and the owner of this value frees the element.
unsafe impl Send for Unlinked {}

impl Synchronizing {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn retire(&self, element: *mut Element) {
        self.queue().unlinked.push(Unlinked(element));
        self.arrived.notify_one();
    }

    /// Takes all elements out of the queue, waits for a grace period, and frees them.
    fn free_all(&self, mut queue: MutexGuard<'_, Queue>) {
        let unlinked = mem::take(&mut queue.unlinked);
        let count = unlinked.len();
        queue.taken += count;
        drop(queue);
        self.synchronize();
        for Unlinked(element) in unlinked {
            // SAFETY: the element was unlinked before the grace period, which has ended, and was taken out of the queue once.
            unsafe { self.field.free(element) };
        }
        self.queue().taken -= count;
        self.freed.notify_all();
    }
}

impl Contender for Synchronizing {
    fn read(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        // SAFETY: unlinked elements are freed only by `free_all`, after a grace period.
        unsafe { self.field.read(FLAVOUR, job, ready) }
    }

    fn has_synchronize(&self) -> bool {
        true
    }

    fn synchronize(&self) {
        FLAVOUR.synchronize();
    }

    fn writer(&self) -> Box<dyn Writer + '_> {
        Box::new(SynchronizingWriter { contender: self, membership: Membership::new(FLAVOUR) })
    }

    fn background(&self, stop: &AtomicBool) {
        loop {
            let queue = self.queue();
            // Relaxed: the flag carries no data.
            let is_idle = |queue: &mut Queue| queue.unlinked.is_empty() && !stop.load(Ordering::Relaxed);
            let waited = self.arrived.wait_timeout_while(queue, LOOK_FOR_THE_END, is_idle);
            let (queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if !queue.unlinked.is_empty() {
                self.free_all(queue);
            } else if stop.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    fn needs_background(&self) -> bool {
        true
    }
}

/// The writer, which hands elements to the other thread. It is registered for the sections in which it writes a table, and offline
/// between them.
struct SynchronizingWriter<'a> {
    contender: &'a Synchronizing,
    membership: Membership,
}

impl Writer for SynchronizingWriter<'_> {
    fn replace(&mut self, index: usize) {
        self.publish(index, Some(self.contender.field.element(index)));
    }

    fn publish(&mut self, index: usize, new: Option<Box<Element>>) {
        self.contender.field.publish(index, new, &self.membership, |old| self.contender.retire(old));
    }

    /// Does nothing: the background thread frees.
    fn poll(&mut self) {}

    /// Frees the elements that the background thread has not taken, since that thread may have ended.
    fn drain(&mut self) {
        let mut queue = self.contender.queue();
        if !queue.unlinked.is_empty() {
            self.contender.free_all(queue);
            queue = self.contender.queue();
        }
        let waited = self.contender.freed.wait_while(queue, |queue| queue.taken > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for SynchronizingWriter<'_> {
    fn drop(&mut self) {
        self.drain();
    }
}
