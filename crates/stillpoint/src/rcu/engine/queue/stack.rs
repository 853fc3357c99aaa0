//! Hand-over of objects from any thread to one that will free them: a lock-free stack that is emptied whole.
//!
//! Pushing is one compare-and-swap in a loop; taking is one swap. Nothing is ever popped singly, so there is
//! no ABA problem, and any thread may take. A thread that is preempted anywhere holds nobody up.

use std::ptr::{self, NonNull};

use crate::rcu::engine::core::garbage::Garbage;
use crate::rcu::orders;
use stillpoint_sys::sync::atomic::{AtomicPtr, Ordering};

#[derive(Debug)]
pub(crate) struct Stack {
    newest: AtomicPtr<Node>,
}

/// An object in a chain: of a stack, where `next` is the next older one, or in the [`Orphans`](super::orphans::Orphans),
/// where it is the next newer one.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) garbage: Garbage,
    pub(crate) next: *mut Node,
}

impl Node {
    pub(crate) fn new(garbage: Garbage) -> Self {
        Self { garbage, next: ptr::null_mut() }
    }
}

impl Stack {
    pub(crate) fn new() -> Self {
        Self { newest: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Pushes one object. Lock-free; allocates a node.
    pub(crate) fn push(&self, garbage: Garbage) {
        let node = Box::into_raw(Box::new(Node::new(garbage)));
        // Relaxed: `newest` is not followed here.
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            // SAFETY: the node is not published yet, so this thread has it to itself.
            unsafe { (*node).next = newest };
            // Relaxed on failure: what is there is not followed.
            match self.newest.compare_exchange_weak(newest, node, orders::push(), Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => newest = now,
            }
        }
    }

    /// Puts objects back that were taken, behind what others have pushed meanwhile. Lock-free; takes as long as that
    /// is, however much is put back.
    pub(crate) fn give_back(&self, mut taken: Taken) {
        let mut newest = std::mem::replace(&mut taken.next, ptr::null_mut());
        while !newest.is_null() {
            // Release: as in `push`.
            let answer =
                self.newest.compare_exchange(ptr::null_mut(), newest, Ordering::Release, Ordering::Relaxed);
            if answer.is_ok() {
                return;
            }
            newest = self.take().in_front_of(newest);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        // Acquire: an object seen here is seen by a following `take`, too; and pairs with the release in `take`.
        self.newest.load(Ordering::Acquire).is_null()
    }

    /// Takes everything.
    pub(crate) fn take(&self) -> Taken {
        Taken { next: self.newest.swap(ptr::null_mut(), orders::take()) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        debug_assert!(self.is_empty(), "the owner frees what is left");
    }
}

// SAFETY: a stack owns garbage, which is `Send`, and shares nothing but its atomic head.
unsafe impl Send for Stack {}
// SAFETY: as above; every node is reached by one taker alone.
unsafe impl Sync for Stack {}

/// Objects taken from a [`Stack`], the newest first. To be emptied before it is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    next: *mut Node,
}

impl Taken {
    /// The newest node, or null. All of them belong to the caller now.
    pub(crate) fn into_raw(mut self) -> *mut Node {
        std::mem::replace(&mut self.next, ptr::null_mut())
    }

    /// Both chains in one, whose newest node is returned: `older` follows what is here.
    fn in_front_of(mut self, older: *mut Node) -> *mut Node {
        let newest = std::mem::replace(&mut self.next, ptr::null_mut());
        let Some(mut oldest) = NonNull::new(newest) else { return older };
        // SAFETY: the chain was taken from the stack, and belongs to this value alone until it is published again.
        while let Some(next) = NonNull::new(unsafe { oldest.as_ref().next }) {
            oldest = next;
        }
        // SAFETY: as above.
        unsafe { oldest.as_mut().next = older };
        newest
    }

    /// Turns the order round: the oldest first.
    pub(crate) fn oldest_first(mut self) -> Self {
        let mut turned = ptr::null_mut();
        let mut next = std::mem::replace(&mut self.next, ptr::null_mut());
        while !next.is_null() {
            // SAFETY: the chain belongs to this value alone.
            let older = unsafe { std::mem::replace(&mut (*next).next, turned) };
            turned = next;
            next = older;
        }
        Self { next: turned }
    }
}

impl Iterator for Taken {
    type Item = Garbage;

    fn next(&mut self) -> Option<Garbage> {
        if self.next.is_null() {
            return None;
        }
        // SAFETY: the node came from `Box::into_raw` in `push` and was taken from the stack by this value
        // alone.
        let node = unsafe { Box::from_raw(self.next) };
        self.next = node.next;
        Some(node.garbage)
    }
}

// SAFETY: the nodes belong to this value alone, and garbage is `Send`.
unsafe impl Send for Taken {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Objects that are told by their size.
    fn object(bytes: usize) -> Garbage {
        unsafe extern "C-unwind" fn nothing(_: NonNull<()>, _: *const ()) {}
        // SAFETY: the object has no memory, nothing is done with it, and the context is not used.
        unsafe { Garbage::in_context(NonNull::dangling(), bytes, ptr::null(), nothing) }
    }

    #[test]
    fn what_is_given_back_is_older_than_what_was_pushed_meanwhile() {
        for pushed in 0..4 {
            let stack = Stack::new();
            (0..5).for_each(|bytes| stack.push(object(bytes)));
            let mut taken = stack.take();
            assert_eq!(taken.next().map(|garbage| garbage.bytes()), Some(4), "the newest comes first");
            (5..5 + pushed).for_each(|bytes| stack.push(object(bytes)));
            stack.give_back(taken);
            let sizes: Vec<_> = stack.take().oldest_first().map(|garbage| garbage.bytes()).collect();
            assert!(sizes.iter().copied().eq((0..4).chain(5..5 + pushed)), "{sizes:?}");
            stack.give_back(stack.take());
            assert!(stack.is_empty(), "nothing is nothing");
        }
    }
}
