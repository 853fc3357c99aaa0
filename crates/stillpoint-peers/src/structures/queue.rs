//! The queue of M. Michael and M. Scott.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::scheme::{Region, Scheme, Thread};
use super::{PushPop, PushPopThread};

struct Node {
    value: u64,
    next: AtomicPtr<Node>,
}

impl Node {
    fn boxed(value: u64) -> *mut Self {
        Box::into_raw(Box::new(Self { value, next: AtomicPtr::default() }))
    }
}

/// A root with a cache line to itself.
#[repr(align(128))]
struct Root(AtomicPtr<Node>);

/// Head and tail. The value of the first node has been popped; the nodes behind it hold the values of the queue.
struct Roots {
    head: Root,
    tail: Root,
}

pub(super) struct Queue<S> {
    roots: Roots,
    scheme: S,
}

impl<S: Scheme> Default for Queue<S> {
    fn default() -> Self {
        let first = Node::boxed(0);
        let root = || Root(AtomicPtr::new(first));
        Self { roots: Roots { head: root(), tail: root() }, scheme: S::default() }
    }
}

impl<S: Scheme> PushPop for Queue<S> {
    fn thread(&self) -> Box<dyn PushPopThread + '_> {
        Box::new(QueueThread { roots: &self.roots, thread: self.scheme.thread() })
    }
}

struct QueueThread<'s, T> {
    roots: &'s Roots,
    thread: T,
}

impl Roots {
    /// Moves the tail to the next node, unless another thread has.
    #[inline(always)]
    fn move_tail(&self, from: *mut Node, to: *mut Node) {
        // Release: pairs with the acquire in `Region::load`. An error means that another thread has moved it.
        let _ = self.tail.0.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed);
    }
}

impl<T: Thread> PushPopThread for QueueThread<'_, T> {
    #[inline(always)]
    fn push(&mut self, value: u64) {
        let new = Node::boxed(value);
        let mut region = self.thread.enter();
        loop {
            let tail = region.load(0, &self.roots.tail.0);
            // SAFETY: the tail led to this node, which the region keeps.
            let node = unsafe { &*tail };
            // Acquire: pairs with the release below.
            let next = node.next.load(Ordering::Acquire);
            if !next.is_null() {
                self.roots.move_tail(tail, next);
                continue;
            }
            // Release: pairs with the acquire in `Region::load`, and above.
            let answer =
                node.next.compare_exchange(ptr::null_mut(), new, Ordering::Release, Ordering::Relaxed);
            if answer.is_ok() {
                return self.roots.move_tail(tail, new);
            }
        }
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<u64> {
        let mut region = self.thread.enter();
        loop {
            let head = region.load(0, &self.roots.head.0);
            // SAFETY: the head led to this node, which the region keeps.
            let node = unsafe { &*head };
            // Relaxed: the address is only compared.
            let tail = self.roots.tail.0.load(Ordering::Relaxed);
            let next = region.load(1, &node.next);
            // Relaxed: the address is only compared. If the head is unchanged, the next node was linked when it was loaded.
            if self.roots.head.0.load(Ordering::Relaxed) != head {
                continue;
            }
            // SAFETY: `next` is null, or a node that was linked when the region began to keep it.
            let front = unsafe { next.as_ref() }?;
            if tail == head {
                self.roots.move_tail(tail, next);
            }
            // Release: pairs with the acquire in `Region::load`.
            let answer = self.roots.head.0.compare_exchange(head, next, Ordering::Release, Ordering::Relaxed);
            if answer.is_ok() {
                let value = front.value;
                // SAFETY: the node came from a box; head and tail have moved past it, and this thread has just unlinked it.
                unsafe { region.retire(head) };
                return Some(value);
            }
        }
    }
}

impl<S> Drop for Queue<S> {
    fn drop(&mut self) {
        let mut next = *self.roots.head.0.get_mut();
        while !next.is_null() {
            // SAFETY: every linked node came from a box, and no other thread uses the queue any more.
            next = *unsafe { Box::from_raw(next) }.next.get_mut();
        }
    }
}
