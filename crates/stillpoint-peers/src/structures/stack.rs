//! The stack of R. K. Treiber.

use std::sync::atomic::{AtomicPtr, Ordering};

use super::scheme::{Region, Scheme, Thread};
use super::{PushPop, PushPopThread};

struct Node {
    value: u64,
    next: *mut Node,
}

// SAFETY: other threads only read the node's link, and only while they protect the node.
unsafe impl Send for Node {}

#[derive(Default)]
pub(super) struct Stack<S> {
    head: AtomicPtr<Node>,
    scheme: S,
}

impl<S: Scheme> PushPop for Stack<S> {
    fn thread(&self) -> Box<dyn PushPopThread + '_> {
        Box::new(StackThread { head: &self.head, thread: self.scheme.thread() })
    }
}

struct StackThread<'s, T> {
    head: &'s AtomicPtr<Node>,
    thread: T,
}

impl<T: Thread> PushPopThread for StackThread<'_, T> {
    #[inline(always)]
    fn push(&mut self, value: u64) {
        // Relaxed: the head is only linked behind the new node, not followed.
        let mut head = self.head.load(Ordering::Relaxed);
        let new = Box::into_raw(Box::new(Node { value, next: head }));
        // Release: pairs with the acquire in `Region::load`.
        while let Err(now) = self.head.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed)
        {
            head = now;
            // SAFETY: the node is not linked yet.
            unsafe { (*new).next = head };
        }
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<u64> {
        let mut region = self.thread.enter();
        loop {
            let head = region.load(0, self.head);
            // SAFETY: `head` is null, or the node to which the root led, which the region keeps.
            let node = unsafe { head.as_ref() }?;
            let next = node.next;
            // Relaxed: this publishes nothing, and continues the release sequence of the push that linked `next`.
            if self.head.compare_exchange_weak(head, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                let value = node.value;
                // SAFETY: the node came from a box, and this thread has just unlinked it.
                unsafe { region.retire(head) };
                return Some(value);
            }
        }
    }
}

impl<S> Drop for Stack<S> {
    fn drop(&mut self) {
        let mut next = *self.head.get_mut();
        while !next.is_null() {
            // SAFETY: every linked node came from a box, and no other thread uses the stack any more.
            next = unsafe { Box::from_raw(next) }.next;
        }
    }
}
