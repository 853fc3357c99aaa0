//! The mailbox of one thread: a list to which any thread pushes, and which its owner takes as a whole.

use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicPtr as PlainPtr;

use super::operation::Node;
use super::PLAIN;
use crate::orders;
use stillpoint_sys::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// In `head`, in place of a message: the mailbox is closed, and no message can be posted.
const CLOSED: *mut Node = ptr::without_provenance_mut(1);
/// In `head`, in place of a message: the mailbox is empty, and the owner sleeps.
const ASLEEP: *mut Node = ptr::without_provenance_mut(2);

#[derive(Debug)]
pub(crate) struct Mailbox {
    /// Null, the newest message, [`CLOSED`] or [`ASLEEP`]. Only the owner sets these two, and only the owner clears [`CLOSED`]. A post
    /// replaces [`ASLEEP`] by its message, and rings the bell. In the child of a `fork`, its only thread does what owners do.
    head: AtomicPtr<Node>,
    /// Messages that were taken and are not processed yet, the oldest first. Used only by the owner, and so not modelled. They are kept
    /// here so that a function that starts a multicast and waits also processes them: others may be waiting for that.
    work: PlainPtr<Node>,
    /// The futex on which the owner sleeps. Changes with each wake-up.
    bell: AtomicU32,
}

/// The result of posting a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Posted {
    /// The owner has left. The message stays with the sender.
    Closed,
    /// It is the first message: the owner has to be notified.
    First,
    /// The owner was notified, or is about to be.
    Queued,
}

impl Default for Mailbox {
    fn default() -> Self {
        Self { head: AtomicPtr::new(CLOSED), work: PlainPtr::new(ptr::null_mut()), bell: AtomicU32::new(0) }
    }
}

/// For senders.
impl Mailbox {
    /// Posts the message, unless the mailbox is closed.
    pub(super) fn post(&self, node: &Node) -> Posted {
        let mut head = self.head.load(orders::closed());
        loop {
            if head == CLOSED {
                return Posted::Closed;
            }
            node.set_next(if head == ASLEEP { ptr::null_mut() } else { head });
            let new = ptr::from_ref(node).cast_mut();
            match self.head.compare_exchange_weak(head, new, orders::post(), orders::closed()) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        if head == ASLEEP {
            ring(&self.bell);
            Posted::Queued
        } else if head.is_null() {
            Posted::First
        } else {
            Posted::Queued
        }
    }

    /// Whether messages can be posted. If not, the caller comes after everything that the last owner did.
    pub(super) fn is_open(&self) -> bool {
        self.head.load(orders::closed()) != CLOSED
    }

    pub(super) fn bell(&self) -> &AtomicU32 {
        &self.bell
    }
}

/// For the owner.
impl Mailbox {
    /// Opens a closed mailbox.
    pub(super) fn open(&self) {
        // Release: also publishes what the last owner released in `close` to threads that find the mailbox open.
        self.head.store(ptr::null_mut(), Ordering::Release);
    }

    /// Whether there is a message that was taken and is not processed yet.
    pub(super) fn has_taken(&self) -> bool {
        !self.work.load(PLAIN).is_null()
    }

    /// The oldest message that is not processed.
    pub(super) fn next(&self) -> Option<NonNull<Node>> {
        let first = self.work.load(PLAIN);
        let first = NonNull::new(if first.is_null() { reverse(self.take()) } else { first })?;
        // SAFETY: the message was posted and is not acknowledged, so the operation keeps it.
        self.work.store(unsafe { first.as_ref() }.next(), PLAIN);
        Some(first)
    }

    /// Closes the mailbox, and takes the messages in it, which come after those that were taken before.
    pub(super) fn close(&self) {
        let taken = reverse(messages(self.head.swap(CLOSED, orders::close())));
        let mut last = self.work.load(PLAIN);
        if last.is_null() {
            self.work.store(taken, PLAIN);
            return;
        }
        // SAFETY: each message in the list was posted and is not acknowledged, so its operation keeps it.
        while let Some(node) = unsafe { last.as_ref() } {
            last = node.next();
            if last.is_null() {
                node.set_next(taken);
            }
        }
    }

    /// Whether there is nothing to process.
    pub(super) fn is_empty(&self) -> bool {
        // Relaxed, both: `next` takes the messages with acquire.
        self.work.load(PLAIN).is_null() && messages(self.head.load(Ordering::Relaxed)).is_null()
    }

    /// Marks that the owner is about to sleep on the bell; it has read the bell before. False if there is a message.
    pub(super) fn doze(&self) -> bool {
        // Relaxed: nothing is published, and `next` takes the messages with acquire.
        let empty = self.work.load(PLAIN).is_null();
        let relaxed = Ordering::Relaxed;
        empty && self.head.compare_exchange(ptr::null_mut(), ASLEEP, relaxed, relaxed).is_ok()
    }

    /// Marks that the owner is awake.
    pub(super) fn rouse(&self) {
        // Relaxed: as in `doze`.
        let relaxed = Ordering::Relaxed;
        let _ = self.head.compare_exchange(ASLEEP, ptr::null_mut(), relaxed, relaxed);
    }

    /// In the child of a `fork`: forgets messages of the parent's threads.
    pub(super) fn reset(&self, open: bool) {
        // Relaxed: there is only one thread.
        self.work.store(ptr::null_mut(), PLAIN);
        self.head.store(if open { ptr::null_mut() } else { CLOSED }, Ordering::Relaxed);
    }

    /// All messages, the newest first.
    fn take(&self) -> *mut Node {
        // Relaxed: a hint. A closed mailbox stays closed.
        let head = self.head.load(Ordering::Relaxed);
        if messages(head).is_null() {
            return ptr::null_mut();
        }
        messages(self.head.swap(ptr::null_mut(), orders::take()))
    }
}

/// Wakes the threads that sleep on the bell.
pub(super) fn ring(bell: &AtomicU32) {
    // Release: pairs with the acquire loads of the bell. The change keeps a thread that has read the old value from falling asleep.
    bell.fetch_add(1, Ordering::Release);
    stillpoint_sys::linux::wake_all(bell);
}

fn messages(head: *mut Node) -> *mut Node {
    if head == CLOSED || head == ASLEEP {
        ptr::null_mut()
    } else {
        head
    }
}

fn reverse(mut list: *mut Node) -> *mut Node {
    let mut reversed = ptr::null_mut();
    // SAFETY: null, or a message that was posted to the caller and is not acknowledged.
    while let Some(node) = unsafe { list.as_ref() } {
        let next = node.next();
        node.set_next(reversed);
        reversed = list;
        list = next;
    }
    reversed
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    fn nodes<const N: usize>() -> [Node; N] {
        std::array::from_fn(|_| Node::new(NonNull::dangling()))
    }

    fn taken(mailbox: &Mailbox) -> Vec<*mut Node> {
        std::iter::from_fn(|| mailbox.next()).map(NonNull::as_ptr).collect()
    }

    fn addresses(nodes: &[Node]) -> Vec<*mut Node> {
        nodes.iter().map(|node| ptr::from_ref(node).cast_mut()).collect()
    }

    fn open() -> Mailbox {
        let mailbox = Mailbox::default();
        assert!(!mailbox.is_open() && mailbox.is_empty());
        mailbox.open();
        assert!(mailbox.is_open() && mailbox.is_empty());
        mailbox
    }

    #[test]
    fn messages_come_in_the_order_in_which_they_were_posted() {
        let (mailbox, nodes) = (open(), nodes::<5>());
        let [first, second, ..] = &nodes;
        assert_eq!((mailbox.post(first), mailbox.post(second)), (Posted::First, Posted::Queued));
        assert!(!mailbox.is_empty());
        assert_eq!(mailbox.next().map(NonNull::as_ptr), Some(ptr::from_ref(first).cast_mut()));
        assert!(!mailbox.is_empty(), "a message that was taken and not processed is lost");
        // A message that comes now follows those that were taken. The owner has to be notified: it may not poll
        // again.
        assert_eq!(mailbox.post(&nodes[2]), Posted::First);
        assert_eq!((mailbox.post(&nodes[3]), mailbox.post(&nodes[4])), (Posted::Queued, Posted::Queued));
        assert_eq!(taken(&mailbox), addresses(&nodes[1..]));
        assert!(mailbox.is_empty() && mailbox.is_open() && mailbox.next().is_none());
    }

    #[test]
    fn a_closed_mailbox_takes_nothing_and_gives_everything_it_has() {
        for taken_before in 0..=3 {
            let (mailbox, nodes) = (open(), nodes::<6>());
            for node in &nodes[..3] {
                mailbox.post(node);
            }
            let mut served = Vec::new();
            for _ in 0..taken_before {
                served.extend(mailbox.next().map(NonNull::as_ptr));
            }
            for node in &nodes[3..5] {
                mailbox.post(node);
            }
            mailbox.close();
            assert!(!mailbox.is_open() && !mailbox.is_empty());
            assert_eq!(mailbox.post(&nodes[5]), Posted::Closed);
            served.extend(taken(&mailbox));
            assert_eq!(served, addresses(&nodes[..5]));
            assert!(mailbox.is_empty() && !mailbox.is_open(), "it stays closed");
            mailbox.open();
            assert_eq!(mailbox.post(&nodes[5]), Posted::First);
        }
    }

    /// A sleeping owner is woken by the bell; another one is notified by the sender.
    #[test]
    fn a_bell_rings_for_who_sleeps_and_for_nobody_else() {
        let (mailbox, nodes) = (open(), nodes::<4>());
        let rung = || mailbox.bell().load(Ordering::Relaxed);
        assert!(mailbox.doze());
        assert!(mailbox.is_empty() && mailbox.is_open() && !mailbox.doze(), "it sleeps already");
        assert_eq!((mailbox.post(&nodes[0]), rung()), (Posted::Queued, 1));
        assert_eq!((mailbox.post(&nodes[1]), rung()), (Posted::Queued, 1), "it is awake");
        assert!(!mailbox.doze(), "there is a message");
        mailbox.rouse();
        assert_eq!(mailbox.next().map(NonNull::as_ptr), Some(ptr::from_ref(&nodes[0]).cast_mut()));
        assert!(!mailbox.doze(), "a message that was taken is not processed yet");
        assert_eq!(taken(&mailbox), addresses(&nodes[1..2]));
        // Woken without a message.
        assert!(mailbox.doze());
        mailbox.rouse();
        assert_eq!((mailbox.post(&nodes[2]), rung()), (Posted::First, 1));
        assert_eq!(taken(&mailbox), addresses(&nodes[2..3]));
        // An owner that leaves does not sleep.
        assert!(mailbox.doze());
        mailbox.close();
        assert!(!mailbox.doze() && mailbox.next().is_none());
        mailbox.rouse();
        assert_eq!((mailbox.post(&nodes[3]), rung(), mailbox.is_open()), (Posted::Closed, 1, false));
    }

    #[test]
    fn a_child_forgets_the_messages_of_its_parent() {
        for open_then in [false, true] {
            let (mailbox, nodes) = (open(), nodes::<3>());
            mailbox.post(&nodes[0]);
            mailbox.post(&nodes[1]);
            mailbox.next();
            mailbox.post(&nodes[2]);
            mailbox.reset(open_then);
            assert_eq!((mailbox.is_open(), mailbox.is_empty(), mailbox.next()), (open_then, true, None));
        }
    }

    #[test]
    fn a_ring_changes_the_bell() {
        let bell = AtomicU32::new(u32::MAX);
        ring(&bell);
        ring(&bell);
        assert_eq!(bell.into_inner(), 1);
    }
}
