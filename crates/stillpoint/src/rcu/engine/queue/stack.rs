//! Hand-over of objects from any thread to a thread that will free them: a lock-free stack that is emptied as a whole.
//!
//! A push is a compare-and-swap in a loop; a take is a swap. No node is ever popped singly, so there is
//! no ABA problem, and any thread may take. A thread that is preempted anywhere holds up no other thread.

use std::ptr::{self, NonNull};

use crate::rcu::engine::core::garbage::Garbage;
use crate::rcu::orders;
use stillpoint_sys::sync::atomic::{AtomicPtr, Ordering};

#[derive(Debug)]
pub(crate) struct Stack {
    newest: AtomicPtr<Node>,
}

/// An object in a chain; `next` is taken after it.
#[derive(Debug)]
struct Node {
    garbage: Garbage,
    next: *mut Node,
}

impl Stack {
    pub(crate) fn new() -> Self {
        Self { newest: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Pushes one object. Lock-free; allocates a node.
    pub(crate) fn push(&self, garbage: Garbage) {
        self.push_all(std::iter::once(garbage));
    }

    /// Pushes objects, which will be taken in this order. Lock-free; allocates a node for each.
    pub(crate) fn push_all(&self, objects: impl Iterator<Item = Garbage>) {
        let new = |garbage| Box::into_raw(Box::new(Node { garbage, next: ptr::null_mut() }));
        let mut nodes = objects.map(new);
        let Some(first) = nodes.next() else { return };
        let last = nodes.fold(first, |last, node| {
            // SAFETY: the nodes are not published yet, so only this thread has access.
            unsafe { (*last).next = node };
            node
        });
        // Relaxed: `newest` is not followed here.
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            // SAFETY: as above.
            unsafe { (*last).next = newest };
            // Relaxed on failure: the other node is not accessed.
            match self.newest.compare_exchange_weak(newest, first, orders::push(), Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => newest = now,
            }
        }
    }

    /// Puts taken objects back, behind what others have pushed meanwhile. Lock-free. Takes time in proportion to what others have
    /// pushed, however much is put back.
    pub(crate) fn give_back(&self, mut taken: Taken) {
        let mut newest = std::mem::replace(&mut taken.next, ptr::null_mut());
        while !newest.is_null() {
            // Relaxed on failure: `take` below acquires.
            let answer =
                self.newest.compare_exchange(ptr::null_mut(), newest, orders::push(), Ordering::Relaxed);
            if answer.is_ok() {
                return;
            }
            newest = self.take().in_front_of(newest);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        // Acquire: pairs with the release in `push`, so that a following `take` also sees an object that is seen here, and with
        // the release in `take`.
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
// SAFETY: only the head is shared, which is atomic; each node is taken by one thread only.
unsafe impl Sync for Stack {}

/// Objects taken from a [`Stack`]: what was pushed last comes first. Must be emptied before it is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    next: *mut Node,
}

impl Default for Taken {
    fn default() -> Self {
        Self { next: ptr::null_mut() }
    }
}

impl Taken {
    pub(crate) fn is_empty(&self) -> bool {
        self.next.is_null()
    }

    /// Joins both chains: `older` follows this one. Returns the newest node.
    fn in_front_of(mut self, older: *mut Node) -> *mut Node {
        let newest = std::mem::replace(&mut self.next, ptr::null_mut());
        let Some(mut oldest) = NonNull::new(newest) else { return older };
        // SAFETY: the chain was taken from the stack, and belongs only to this value until it is published again.
        while let Some(next) = NonNull::new(unsafe { oldest.as_ref().next }) {
            oldest = next;
        }
        // SAFETY: the node is the last of the chain, which belongs only to this value.
        unsafe { oldest.as_mut().next = older };
        newest
    }

    /// Reverses the order: the oldest comes first.
    pub(crate) fn oldest_first(mut self) -> Self {
        let mut turned = ptr::null_mut();
        let mut next = std::mem::replace(&mut self.next, ptr::null_mut());
        while !next.is_null() {
            // SAFETY: the chain belongs only to this value.
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
        if self.is_empty() {
            return None;
        }
        // SAFETY: the node came from `Box::into_raw` in `push_all`, and only this value took it from the
        // stack.
        let node = unsafe { Box::from_raw(self.next) };
        self.next = node.next;
        Some(node.garbage)
    }
}

// SAFETY: the nodes belong only to this value, and garbage is `Send`.
unsafe impl Send for Taken {}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    /// An object that the test recognises by its size.
    fn object(bytes: usize) -> Garbage {
        unsafe extern "C-unwind" fn nothing(_: NonNull<()>, _: *const ()) {}
        // SAFETY: the object has no memory, its destructor does nothing, and the context is not used.
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
            assert!(stack.is_empty(), "giving nothing back changes nothing");
        }
    }
}
