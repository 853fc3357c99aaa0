//! A bounded ring from one source to the owner.

use std::sync::Arc;

use crossbeam_utils::CachePadded;

use super::record::Record;
use crate::timer::orders;
use stillpoint_sys::sync;
use stillpoint_sys::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use stillpoint_sys::sync::UnsafeCell;

type Slot<T> = UnsafeCell<Option<Arc<Record<T>>>>;

/// Positions only increase, and wrap. The lower bits of a position are the index of its slot.
pub(super) struct Ring<T> {
    slots: Box<[Slot<T>]>,
    /// The owner has taken all messages before this position.
    head: CachePadded<AtomicUsize>,
    /// The source has published all messages before this position.
    tail: CachePadded<AtomicUsize>,
    closed: AtomicBool,
    sourceless: AtomicBool,
}

// SAFETY: the only `Source` writes a slot, and the only `Sink` takes its content. `head` and `tail` order the two: see
// the methods of both. Records can be sent and shared if the values can be sent.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: `head` and `tail` order the two ends of a ring, as for `Send`.
unsafe impl<T: Send> Sync for Ring<T> {}

/// The two ends of a ring with `capacity` places, rounded up to a power of two.
pub(super) fn ring<T>(capacity: usize) -> (Source<T>, Sink<T>) {
    let slots = capacity.max(1).next_power_of_two();
    let ring = sync::Arc::new(Ring {
        slots: (0..slots).map(|_| UnsafeCell::new(None)).collect(),
        head: CachePadded::new(AtomicUsize::new(0)),
        tail: CachePadded::new(AtomicUsize::new(0)),
        closed: AtomicBool::new(false),
        sourceless: AtomicBool::new(false),
    });
    (
        Source { ring: sync::Arc::clone(&ring), head: 0, tail: 0, published: 0 },
        Sink { ring, head: 0, tail: 0, held_up: false },
    )
}

impl<T> Ring<T> {
    fn slot(&self, position: usize) -> &Slot<T> {
        &self.slots[position & (self.slots.len() - 1)]
    }
}

/// The sender's end.
pub(super) struct Source<T> {
    ring: sync::Arc<Ring<T>>,
    /// A position up to which the owner is known to have taken everything.
    head: usize,
    tail: usize,
    published: usize,
}

impl<T> Source<T> {
    pub(super) fn capacity(&self) -> usize {
        self.ring.slots.len()
    }

    /// Whether the owner is gone.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        // Relaxed: the flag only says that no message will be taken any more.
        self.ring.closed.load(Ordering::Relaxed)
    }

    /// Whether there is room for one more.
    #[inline]
    pub(super) fn has_room(&mut self) -> bool {
        if self.tail.wrapping_sub(self.head) < self.ring.slots.len() {
            return true;
        }
        // Acquire: pairs with the release in `Sink::give_back`: the slot was emptied before it is written again.
        self.head = self.ring.head.load(Ordering::Acquire);
        self.tail.wrapping_sub(self.head) < self.ring.slots.len()
    }

    /// Writes into the ring, which has room. The owner sees the message after `publish`.
    #[inline]
    pub(super) fn push(&mut self, record: Arc<Record<T>>) {
        let slot = self.ring.slot(self.tail);
        // SAFETY: there is room. The owner has emptied the slot, by its release and the acquire in `has_room`, and does
        // not access it before `tail` includes it. There is only one source.
        slot.with_mut(|slot| unsafe { *slot = Some(record) });
        self.tail = self.tail.wrapping_add(1);
    }

    /// Returns whether there was something to publish.
    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        let is_new = self.published != self.tail;
        if is_new {
            self.published = self.tail;
            self.ring.tail.store(self.tail, orders::publish());
        }
        is_new
    }
}

impl<T> Drop for Source<T> {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `Sink::is_over`, which then sees everything published.
        self.ring.sourceless.store(true, Ordering::Release);
    }
}

/// The owner's end.
pub(super) struct Sink<T> {
    ring: sync::Arc<Ring<T>>,
    head: usize,
    /// A position up to which messages are known to be published.
    tail: usize,
    /// Whether the wheel had no room for the next message, in the last call of `process`.
    pub(super) held_up: bool,
}

impl<T> Sink<T> {
    /// The next message, which stays in the ring.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<&Record<T>> {
        if self.head == self.tail {
            // Acquire: pairs with the release in `publish`: the slots' contents are visible.
            self.tail = self.ring.tail.load(Ordering::Acquire);
            if self.head == self.tail {
                return None;
            }
        }
        self.at(self.head)
    }

    /// How many messages there are now.
    #[inline]
    pub(super) fn look(&mut self) -> usize {
        // Acquire: pairs with the release in `publish`: the slots' contents are visible.
        self.tail = self.ring.tail.load(Ordering::Acquire);
        self.tail.wrapping_sub(self.head)
    }

    /// A later message, if it is known to be published.
    #[inline]
    pub(super) fn peek_ahead(&self, distance: usize) -> Option<&Record<T>> {
        if distance < self.tail.wrapping_sub(self.head) {
            self.at(self.head.wrapping_add(distance))
        } else {
            None
        }
    }

    fn at(&self, position: usize) -> Option<&Record<T>> {
        // SAFETY: the position is between `head` and `tail`: the source has written the slot, and does not access it
        // until it is taken. Taking needs this sink exclusively.
        self.ring.slot(position).with(|slot| unsafe { (*slot).as_deref() })
    }

    /// Takes the next message.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Arc<Record<T>>> {
        self.peek()?;
        // SAFETY: `at` has found the slot filled: the source has written it, and does not access it before `give_back`.
        let record = self.ring.slot(self.head).with_mut(|slot| unsafe { (*slot).take() });
        self.head = self.head.wrapping_add(1);
        record
    }

    /// Gives the source the room of the messages that were taken so far.
    #[inline]
    pub(super) fn give_back(&self) {
        self.ring.head.store(self.head, orders::give_back());
    }

    /// Whether the source is gone, and all its messages were taken.
    pub(super) fn is_over(&mut self) -> bool {
        // Acquire: pairs with the release in `Source::drop`.
        self.ring.sourceless.load(Ordering::Acquire) && self.peek().is_none()
    }

    pub(super) fn close(&self) {
        // Relaxed: the flag only says that no message will be taken any more.
        self.ring.closed.store(true, Ordering::Relaxed);
    }
}

impl<T> Drop for Sink<T> {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        Unread(self.slots.iter_mut()).by_ref().for_each(drop);
    }
}

/// The values of messages that the owner has not taken. Even if the drop of a value panics, the other timers are ended.
struct Unread<'a, T>(std::slice::IterMut<'a, Slot<T>>);

impl<T> Iterator for Unread<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.find_map(|slot| {
            // SAFETY: the ring is being dropped: no other thread has it.
            slot.with_mut(|slot| unsafe { (*slot).take() })?.abandon()
        })
    }
}

impl<T> Drop for Unread<'_, T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}
