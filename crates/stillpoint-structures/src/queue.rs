use std::mem::MaybeUninit;

use stillpoint::rcu::link::{Atomic, Owned, ProtectedLink, Shared, Unprotected};
use stillpoint::rcu::{Domain, Reader, Reclaimer};
use stillpoint_sys::sync::atomic::Ordering;

use crate::busted::{self, Variant};
use crate::chain::end_chain;
use crate::orders;
use crate::stack::Node;

/// Takes whole cache lines, so that threads that push and threads that pop do not share one.
#[repr(align(128))]
struct Padded<T>(T);

/// A first-in, first-out queue that any number of threads push to and pop from: the queue of M. Michael and M. Scott.
///
/// A call protects at most two nodes. A thread that is preempted within a call holds up only those. Lock-free; unbounded.
/// A queue that is dropped drops what it holds.
///
/// ```
/// use stillpoint::rcu::Domain;
/// use stillpoint_structures::Queue;
///
/// let domain = Domain::new();
/// let queue = Queue::new_in(&domain);
/// let (reader, mut reclaimer) = (domain.reader(), domain.reclaimer());
/// queue.push(1, &reader);
/// queue.push(2, &reader);
/// assert_eq!(queue.pop(&reader, &mut reclaimer), Some(1));
/// assert_eq!(queue.pop(&reader, &mut reclaimer), Some(2));
/// assert_eq!(queue.pop(&reader, &mut reclaimer), None);
/// ```
pub struct Queue<T: Send + 'static> {
    /// The first node, whose value is gone. The values are in the nodes behind it.
    head: Padded<Atomic<Node<T>>>,
    /// The last node, or one before it.
    tail: Padded<Atomic<Node<T>>>,
    domain: Domain,
}

impl<T: Send + 'static> Queue<T> {
    /// An empty queue, read and reclaimed in `domain`.
    pub fn new_in(domain: &Domain) -> Self {
        let first = Owned::new(Node::new(MaybeUninit::uninit())).into_shared(&Unprotected);
        Self { head: Padded(Atomic::from(first)), tail: Padded(Atomic::from(first)), domain: domain.clone() }
    }

    /// Puts a value at the end. Allocates.
    ///
    /// # Panics
    /// If `reader` belongs to another domain.
    pub fn push(&self, value: T, reader: &Reader) {
        reader.verify(&self.domain);
        let mut new = Owned::new(Node::new(MaybeUninit::new(value)));
        let mut tail = ProtectedLink::null(reader);
        loop {
            tail.load(&self.tail.0);
            // SAFETY: the tail is a root: a node is retired only after the tail has passed it.
            let node = unsafe { tail.as_ref() }.expect("a queue has a node");
            node.watch.look();
            let next = node.next.load(orders::queue_next(), &Unprotected);
            if !next.is_null() {
                // Another thread is between the two exchanges below. The next node is not retired before the tail has passed it.
                self.move_tail(tail.shared(), next);
                continue;
            }
            new.watch.touch();
            let order = orders::queue_link();
            match node.next.compare_exchange(Shared::null(), new, order, Ordering::Relaxed, &Unprotected) {
                Ok(linked) => return self.move_tail(tail.shared(), linked),
                Err(error) => new = error.new,
            }
        }
    }

    /// Moves the tail on, unless another thread has moved it: then the caller has read a later tail (step 5).
    fn move_tail(&self, from: Shared<'_, Node<T>>, to: Shared<'_, Node<T>>) {
        let order = orders::queue_tail();
        // Relaxed on failure: it is enough to have read the later tail.
        let _ = self.tail.0.compare_exchange(from, to, order, Ordering::Relaxed, &Unprotected);
    }

    /// Takes the value at the front; `None` if the queue is empty. A node goes to `reclaimer`.
    ///
    /// # Panics
    /// If `reader` or `reclaimer` belongs to another domain. If the reclaimer is full, this call may free other objects. If one
    /// of their destructors panics, so does this call, with that panic, and the value is dropped.
    pub fn pop(&self, reader: &Reader, reclaimer: &mut Reclaimer) -> Option<T> {
        reader.verify(&self.domain);
        reclaimer.verify(&self.domain);
        let (mut head, mut next) = (ProtectedLink::null(reader), ProtectedLink::null(reader));
        loop {
            head.load(&self.head.0);
            // SAFETY: the head is a root.
            let node = unsafe { head.as_ref() }.expect("a queue has a node");
            node.watch.look();
            // The thread that moved the head to this node had found the tail there, or beyond. The load of the head has acquired
            // this, so the tail that is loaded here is there or beyond, too.
            // Relaxed: the tail is not followed. It only matters that it is loaded before the retirement below: see step 5.
            let tail = self.tail.0.load(Ordering::Relaxed, &Unprotected);
            next.load(&node.next);
            // Relaxed: for comparison. Links of a queue have no marks; this load shows that the next node was not retired
            // when its slot was set.
            let now = self.head.0.load(Ordering::Relaxed, &Unprotected);
            if now != head.shared() && !busted::is(Variant::QueueNoLook) {
                continue;
            }
            // SAFETY: the next node is protected, and the head was compared since.
            let front = unsafe { next.as_ref() }?;
            front.watch.look();
            if tail == head.shared() {
                // The head must not pass the tail.
                self.move_tail(tail, next.shared());
            }
            let order = orders::queue_head();
            let answer = self.head.0.compare_exchange(
                head.shared(),
                next.shared(),
                order,
                Ordering::Relaxed,
                &Unprotected,
            );
            if answer.is_ok() {
                // SAFETY: the thread that made the node the first one owns its value, which the push has published.
                let value = unsafe { front.take_value() };
                // SAFETY: neither the head nor the tail leads to the node any more: this thread has moved them on, or has seen
                // that another thread did. Nodes link only to later ones.
                unsafe { head.shared().retire(reclaimer) };
                return Some(value);
            }
        }
    }
}

impl<T: Send + 'static> Drop for Queue<T> {
    fn drop(&mut self) {
        // SAFETY: the caller owns the queue, with all linked nodes.
        if let Some(mut first) = unsafe { self.head.0.take_owned() } {
            // SAFETY: the caller owns the queue. The first node, which is left out, has no value.
            unsafe { end_chain(&mut first.next) };
        }
    }
}

stillpoint_sys::debug!([T: Send + 'static] |this| Queue<T> { domain: this.domain.name(), .. });
