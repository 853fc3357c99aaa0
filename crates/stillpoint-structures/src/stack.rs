use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

use stillpoint::rcu::link::{Atomic, Owned, ProtectedLink, Unprotected};
use stillpoint::rcu::{Domain, Reader, Reclaimer};
use stillpoint_sys::sync::atomic::Ordering;

use crate::busted::{self, Variant};
use crate::chain::{end_chain, Link};
use crate::orders;
use crate::watch::Watch;

/// A node of a stack or of a queue. The thread that pops the value moves it out, so dropping a node drops no value.
#[cfg_attr(stillpoint_loom, repr(align(256)))]
pub(crate) struct Node<T> {
    /// Moved out by the thread that has unlinked the node (of a stack), or made it the first one (of a queue). No other thread
    /// accesses it.
    value: UnsafeCell<MaybeUninit<T>>,
    pub(crate) next: Atomic<Node<T>>,
    pub(crate) watch: Watch,
}

// SAFETY: one thread moves the value in, another moves it out, and it is never shared. Nothing else drops it.
unsafe impl<T: Send> Send for Node<T> {}
// SAFETY: a value is moved in by one thread and out by another, and never shared.
unsafe impl<T: Send> Sync for Node<T> {}

impl<T> Node<T> {
    pub(crate) fn new(value: MaybeUninit<T>) -> Self {
        Self { value: UnsafeCell::new(value), next: Atomic::null(), watch: Watch::new() }
    }

    /// # Safety
    /// The node has a value, which the caller owns, and which was published to the caller.
    pub(crate) unsafe fn take_value(&self) -> T {
        // SAFETY: the node has a value, which the caller owns.
        unsafe { (*self.value.get()).assume_init_read() }
    }
}

impl<T> Link for Node<T> {
    fn next(&mut self) -> &mut Atomic<Self> {
        &mut self.next
    }

    fn end(node: Owned<Self>) {
        // SAFETY: a node that is linked in a stack, or behind the first one of a queue, has its value; the caller owns the node.
        drop(unsafe { node.take_value() });
    }
}

/// A stack that any number of threads push to and pop from: the stack of R. K. Treiber.
///
/// A pop protects the first node, so that the node is not freed, and its address is not used again, meanwhile: there is no ABA
/// problem. A thread that is preempted within a pop holds up only that node. Lock-free. A stack that is dropped drops what it
/// holds.
///
/// ```
/// use stillpoint::rcu::Domain;
/// use stillpoint_structures::Stack;
///
/// let domain = Domain::new();
/// let stack = Stack::new_in(&domain);
/// let (reader, mut reclaimer) = (domain.reader(), domain.reclaimer());
/// stack.push("first", &reader);
/// stack.push("second", &reader);
/// assert_eq!(stack.pop(&reader, &mut reclaimer), Some("second"));
/// assert_eq!(stack.pop(&reader, &mut reclaimer), Some("first"));
/// assert_eq!(stack.pop(&reader, &mut reclaimer), None);
/// assert!(stack.is_empty());
/// assert_eq!(reclaimer.flush(), Ok(())); // frees the nodes
/// ```
///
/// Values that cannot be sent to another thread are refused:
///
/// ```compile_fail,E0277
/// # let domain = stillpoint::rcu::Domain::new();
/// let stack = stillpoint_structures::Stack::new_in(&domain);
/// stack.push(std::rc::Rc::new(1), &domain.reader());
/// ```
/// ```
/// # let domain = stillpoint::rcu::Domain::new();
/// let stack = stillpoint_structures::Stack::new_in(&domain);
/// stack.push(std::sync::Arc::new(1), &domain.reader());
/// ```
pub struct Stack<T: Send + 'static> {
    head: Atomic<Node<T>>,
    domain: Domain,
}

impl<T: Send + 'static> Stack<T> {
    /// An empty stack, read and reclaimed in `domain`.
    pub fn new_in(domain: &Domain) -> Self {
        Self { head: Atomic::null(), domain: domain.clone() }
    }

    /// Puts a value on top. Allocates.
    ///
    /// # Panics
    /// If `reader` belongs to another domain.
    pub fn push(&self, value: T, reader: &Reader) {
        reader.verify(&self.domain);
        let mut new = Owned::new(Node::new(MaybeUninit::new(value)));
        let mut head = ProtectedLink::null(reader);
        loop {
            // Protected: the exchange compares only addresses. If the first node were freed meanwhile, another node could be at
            // its address, and the new node would link to it by a pointer that was made from the freed one.
            head.load(&self.head);
            // Relaxed: the exchange below publishes it.
            new.next.store(head.shared(), Ordering::Relaxed);
            new.watch.touch();
            let order = orders::stack_push();
            match self.head.compare_exchange_weak(head.shared(), new, order, Ordering::Relaxed, &Unprotected)
            {
                Ok(_) => return,
                Err(error) => new = error.new,
            }
        }
    }

    /// Takes the value from the top; `None` if the stack is empty. The node goes to `reclaimer`.
    ///
    /// # Panics
    /// If `reader` or `reclaimer` belongs to another domain. If the reclaimer is full, this call may free other objects. If one
    /// of their destructors panics, so does this call, with that panic, and the value is dropped.
    pub fn pop(&self, reader: &Reader, reclaimer: &mut Reclaimer) -> Option<T> {
        reader.verify(&self.domain);
        reclaimer.verify(&self.domain);
        let mut head = ProtectedLink::null(reader);
        loop {
            let found = if busted::is(Variant::StackUnprotected) {
                self.head.load(Ordering::Acquire, &Unprotected)
            } else {
                head.load(&self.head);
                head.shared()
            };
            // SAFETY: the stack keeps the contract of links: the head is its root, and the node is protected.
            let node = unsafe { found.as_ref() }?;
            node.watch.look();
            // Relaxed: written before the node was published, and never changed.
            let next = node.next.load(Ordering::Relaxed, &Unprotected);
            // Relaxed: publishes nothing. A thread that finds `next` there comes after its push, since the release sequence
            // continues.
            let answer = self.head.compare_exchange_weak(
                found,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
                &Unprotected,
            );
            if answer.is_ok() {
                // SAFETY: this thread has unlinked the node and owns its value, which the push has published to the protected load.
                let value = unsafe { node.take_value() };
                // SAFETY: this thread has unlinked the node above, and the node's readers are of the domain.
                unsafe { found.retire(reclaimer) };
                return Some(value);
            }
        }
    }

    /// Whether the stack was empty at some moment during the call. A push that does not *happen before* the call may be missed: a thread
    /// that says it will sleep, and then looks here, needs a `SeqCst` fence in between; so does a pusher that then looks for sleepers.
    pub fn is_empty(&self) -> bool {
        // Relaxed: the head is not followed.
        self.head.load(Ordering::Relaxed, &Unprotected).is_null()
    }
}

impl<T: Send + 'static> Drop for Stack<T> {
    fn drop(&mut self) {
        // SAFETY: the caller owns the stack, with all linked nodes.
        unsafe { end_chain(&mut self.head) };
    }
}

stillpoint_sys::debug!([T: Send + 'static] |this| Stack<T> { domain: this.domain.name(), .. });
