//! The nodes of callbacks, which lie in the user's objects; lanes, to which any thread pushes; and chains of taken nodes.
//!
//! ```text
//!   first --> node --> node -x- node <-- tail        x: pushed, and not linked yet
//! ```
//!
//! A push exchanges the tail, then links the node to the one before it. Between the two steps, the lane has a gap. A
//! take finds the nodes before the gap, and, once the gap is closed, those behind it.

// Models have no `rcu::raw`, which exports these types.
#![cfg_attr(stillpoint_loom, expect(unreachable_pub))]

use std::cell::Cell;
use std::ptr::{self, NonNull};

use crate::busted::{self, Variant};
use crate::rcu::orders;
use stillpoint_sys::sync::atomic::{AtomicPtr, Ordering};
use stillpoint_sys::tsan;

/// The function of a callback. The thread that serves the queue calls it after a grace period, with the address of its
/// [`Callback`]. It may push that callback again, or free the memory that contains it, and may panic.
pub type Function = unsafe extern "C-unwind" fn(callback: NonNull<Callback>);

/// Two words in one of the user's own objects, for one callback at a time: see
/// [`CallbackQueue::push`](crate::rcu::raw::CallbackQueue::push).
///
/// While it is in no queue, its memory may hold anything: [`new`](Callback::new) need not initialise it.
#[repr(C)]
pub struct Callback {
    /// The next callback of its lane, of its segment, or of the held ones.
    next: AtomicPtr<Callback>,
    function: Cell<Option<Function>>,
}

// SAFETY: the thread that pushes it leaves it to the queue, whose turns use it one at a time.
unsafe impl Send for Callback {}
// SAFETY: a shared reference gives access to nothing.
unsafe impl Sync for Callback {}

impl Callback {
    /// A callback that is in no queue.
    #[cfg(not(stillpoint_loom))]
    pub const fn new() -> Self {
        Self { next: AtomicPtr::new(ptr::null_mut()), function: Cell::new(None) }
    }

    /// Loom's atomics have no constant constructors.
    #[cfg(stillpoint_loom)]
    pub(crate) fn new() -> Self {
        Self { next: AtomicPtr::new(ptr::null_mut()), function: Cell::new(None) }
    }
}

impl Default for Callback {
    fn default() -> Self {
        Self::new()
    }
}

stillpoint_sys::debug!(Callback { .. });

/// Three words in one of the user's own objects, for a callback that also waits for protected loads of the object: see
/// [`CallbackQueue::push_object`](crate::rcu::raw::CallbackQueue::push_object).
#[derive(Debug)]
#[repr(C)]
pub struct ObjectCallback {
    callback: Callback,
    /// The address that protected loads hold.
    object: Cell<*const ()>,
}

// SAFETY: the thread that pushes it leaves it to the queue, whose turns use it one at a time.
unsafe impl Send for ObjectCallback {}
// SAFETY: a shared reference gives access to nothing.
unsafe impl Sync for ObjectCallback {}

impl ObjectCallback {
    /// A callback that is in no queue.
    #[cfg(not(stillpoint_loom))]
    pub const fn new() -> Self {
        Self { callback: Callback::new(), object: Cell::new(ptr::null()) }
    }
}

impl Default for ObjectCallback {
    fn default() -> Self {
        Self { callback: Callback::default(), object: Cell::new(ptr::null()) }
    }
}

/// A node in the user's memory that belongs to the queue, or that the caller is about to push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Node(NonNull<Callback>);

impl Node {
    /// Makes a node from the user's memory.
    ///
    /// # Safety
    /// The memory belongs to the caller until the callback is called.
    pub(crate) unsafe fn prepare(callback: NonNull<Callback>, function: Function) -> Self {
        let fresh = Callback::new();
        fresh.function.set(Some(function));
        // SAFETY: the memory belongs to the caller. Its old content needs no destructor.
        unsafe { callback.write(fresh) };
        // Pairs with the acquire before the callback.
        tsan::release(callback.as_ptr());
        Self(callback)
    }

    /// As [`prepare`](Node::prepare), for an object whose address is protected.
    ///
    /// # Safety
    /// As for [`prepare`](Node::prepare), for all three words.
    pub(crate) unsafe fn prepare_object(
        callback: NonNull<ObjectCallback>,
        object: *const (),
        function: Function,
    ) -> Self {
        // SAFETY: the memory belongs to the caller, who may write to the field.
        unsafe {
            (&raw mut (*callback.as_ptr()).object).write(Cell::new(object));
            Self::prepare(callback.cast(), function)
        }
    }

    /// A node that was prepared.
    pub(crate) fn of(callback: NonNull<Callback>) -> Self {
        Self(callback)
    }

    fn link(&self) -> &AtomicPtr<Callback> {
        // SAFETY: the owner of a node may use it: its memory stays until its callback is called.
        unsafe { &(*self.0.as_ptr()).next }
    }

    /// Prepares a node that was in a queue for another push.
    pub(crate) fn renew(self) {
        // Relaxed: the exchange that pushes the node comes after.
        self.link().store(ptr::null_mut(), Ordering::Relaxed);
    }

    /// Links the next node.
    fn set_next(self, next: Self) {
        self.link().store(next.0.as_ptr(), orders::link());
    }

    /// The next node, if there is one and it is linked.
    fn next(self) -> Option<Self> {
        NonNull::new(self.link().load(orders::linked())).map(Self)
    }

    /// The address that protected loads hold.
    ///
    /// # Safety
    /// The node was made by [`prepare_object`](Node::prepare_object).
    pub(crate) unsafe fn object(self) -> *const () {
        // SAFETY: the node is the first part of an `ObjectCallback`, by the caller's promise.
        unsafe { (*self.0.cast::<ObjectCallback>().as_ptr()).object.get() }
    }

    /// Calls the callback, which may free the node's memory.
    ///
    /// # Safety
    /// No reader is in the way of the callback, and the node is in no chain.
    pub(crate) unsafe fn call(self) {
        // In a model, freeing the node uses all of it. SAFETY: the node belongs to the caller.
        #[cfg(stillpoint_loom)]
        unsafe { &mut *self.0.as_ptr() }.next.with_mut(|_| ());
        // SAFETY: the node belongs to the caller.
        let function = unsafe { (*self.0.as_ptr()).function.get() };
        let function = function.expect("it was prepared with one");
        if tsan::is_there() {
            tsan::acquire(self.0.as_ptr());
            let _heeded = tsan::heed();
            // SAFETY: the thread that pushed it has promised that it may be called now.
            return unsafe { function(self.0) };
        }
        // SAFETY: the thread that pushed it has promised that it may be called now.
        unsafe { function(self.0) };
    }

    pub(crate) fn as_ptr(self) -> NonNull<Callback> {
        self.0
    }
}

/// A list to which any thread pushes callbacks.
#[derive(Default)]
pub(crate) struct Lane {
    tail: AtomicPtr<Callback>,
    /// The first node. Also null while the first node has not been linked.
    first: AtomicPtr<Callback>,
}

impl Lane {
    /// Pushes a node, which then belongs to the lane. Wait-free.
    #[inline]
    pub(crate) fn push(&self, node: Node) {
        let before = self.tail.swap(node.0.as_ptr(), orders::swap_tail());
        match NonNull::new(before) {
            // The node before is not called before this one is linked to it: see `Chain::pop`.
            Some(before) => Node(before).set_next(node),
            None => self.first.store(node.0.as_ptr(), orders::link()),
        }
    }

    /// Whether nothing was pushed since the last take.
    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: the fences of the event order this for a thread that sleeps.
        self.tail.load(Ordering::Relaxed).is_null()
    }

    /// The first node, if there is one and its push is complete.
    pub(crate) fn first(&self) -> Option<Node> {
        NonNull::new(self.first.load(orders::linked())).map(Node)
    }

    /// The node that was pushed last. Its push may be incomplete.
    pub(crate) fn last(&self) -> Option<Node> {
        // Relaxed: the node is accessed only through links, which are acquired.
        NonNull::new(self.tail.load(Ordering::Relaxed)).map(Node)
    }

    /// In the child of a `fork`, where no thread completes a push: ends the lane before the first incomplete one. What is
    /// behind it is lost. Returns how many nodes are left.
    pub(crate) fn end_at_gap(&self) -> usize {
        let mut whole = self.first().zip(self.last()).map(|(first, last)| Chain { first, last });
        whole.iter_mut().for_each(Chain::end_at_gap);
        let tail = whole.map_or(ptr::null_mut(), |chain| chain.last.0.as_ptr());
        // Relaxed: there is no other thread.
        self.tail.store(tail, Ordering::Relaxed);
        whole.map_or(0, |chain| chain.nodes().count())
    }

    /// Takes everything that was pushed, unless the very first push is incomplete. One taker at a time.
    pub(crate) fn take(&self) -> Option<Chain> {
        let first = self.first()?;
        // Relaxed: comes before the exchange, which the next thread that finds the lane empty acquires.
        self.first.store(ptr::null_mut(), Ordering::Relaxed);
        let last = self.tail.swap(ptr::null_mut(), orders::swap_tail());
        let last = NonNull::new(last).map(Node).expect("a lane with a first node has a last one");
        Some(Chain { first, last })
    }
}

/// Callbacks in order, from the first to the last. Gaps may remain until their pushes are complete.
#[derive(Clone, Copy)]
pub(crate) struct Chain {
    first: Node,
    last: Node,
}

impl Chain {
    pub(crate) fn of(node: Node) -> Self {
        Self { first: node, last: node }
    }

    /// Separates the first node from the others. [`Gap`] if a gap follows it: the thread that is about to close the gap
    /// still uses the node.
    pub(crate) fn pop(self) -> Result<(Node, Option<Self>), Gap> {
        if self.is_single() {
            return Ok((self.first, None));
        }
        let Some(next) = self.first.next() else {
            return if busted::is(Variant::GapIgnored) { Ok((self.first, None)) } else { Err(Gap) };
        };
        Ok((self.first, Some(Self { first: next, ..self })))
    }

    /// Appends newer callbacks.
    pub(crate) fn extend(&mut self, newer: Self) {
        // No other thread uses the last node, whose lane has another tail.
        self.last.set_next(newer.first);
        self.last = newer.last;
    }

    /// All nodes, up to the first gap.
    pub(crate) fn nodes(self) -> impl Iterator<Item = Node> {
        let mut rest = Some(self);
        std::iter::from_fn(move || {
            let (node, others) = rest?.pop().ok()?;
            rest = others;
            Some(node)
        })
    }

    /// The nodes from `first` to `last`, which was pushed later.
    pub(crate) fn from_to(first: Node, last: Node) -> Self {
        Self { first, last }
    }

    /// Whether there is only one node.
    pub(crate) fn is_single(self) -> bool {
        self.first == self.last
    }

    /// The rest of the chain from the node before the first gap. If there is no gap, the last node.
    pub(crate) fn up_to_gap(mut self) -> Self {
        while !self.is_single() {
            let Some(next) = self.first.next() else { break };
            self.first = next;
        }
        self
    }

    /// In the child of a `fork`, where no thread closes a gap: ends the chain before the first gap. What is behind it is lost.
    pub(crate) fn end_at_gap(&mut self) {
        let mut node = self.first;
        while node != self.last {
            match node.next() {
                Some(next) => node = next,
                None => self.last = node,
            }
        }
    }
}

/// A push is incomplete: look again later.
pub(crate) struct Gap;

#[cfg(not(stillpoint_loom))]
const _: () = {
    assert!(size_of::<Callback>() == 2 * size_of::<usize>());
    assert!(size_of::<ObjectCallback>() == 3 * size_of::<usize>());
};

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    unsafe extern "C-unwind" fn nothing(_: NonNull<Callback>) {}

    fn nodes<const N: usize>() -> [Node; N] {
        // SAFETY: each is leaked, so its memory stays.
        std::array::from_fn(|_| unsafe { Node::prepare(NonNull::from(Box::leak(Box::default())), nothing) })
    }

    fn free(nodes: &[Node]) {
        for node in nodes {
            // SAFETY: it was leaked, and is in no chain any more.
            drop(unsafe { Box::from_raw(node.as_ptr().as_ptr()) });
        }
    }

    /// The first step of a push, by a thread that is then preempted. The result does the second step.
    fn begin(lane: &Lane, node: Node) -> impl FnOnce() + '_ {
        let before = NonNull::new(lane.tail.swap(node.0.as_ptr(), Ordering::AcqRel));
        move || match before {
            Some(before) => Node(before).set_next(node),
            None => lane.first.store(node.0.as_ptr(), Ordering::Release),
        }
    }

    #[test]
    fn a_push_that_is_not_complete_holds_up_what_is_behind_it_only() {
        let (lane, all) = (Lane::default(), nodes::<4>());
        let first = begin(&lane, all[0]);
        lane.push(all[1]);
        assert!(lane.take().is_none() && !lane.is_empty(), "it has no first one");
        first();
        let third = begin(&lane, all[2]);
        lane.push(all[3]);
        let mut chain = lane.take().expect("it has a first one");
        assert!(lane.is_empty() && lane.take().is_none());
        for node in &all[..2] {
            // The second node is not called before the push behind it has finished with it.
            assert_eq!(chain.nodes().count(), if *node == all[0] { 1 } else { 0 });
            match chain.pop() {
                Ok((popped, rest)) => {
                    assert!(popped == *node && *node == all[0]);
                    chain = rest.expect("there are more");
                }
                Err(Gap) => assert!(*node == all[1]),
            }
        }
        third();
        assert!(chain.nodes().eq(all[1..].iter().copied()));
        free(&all);
    }

    #[test]
    fn after_a_fork_a_lane_ends_before_its_first_gap() {
        let (lane, all) = (Lane::default(), nodes::<5>());
        lane.push(all[0]);
        lane.push(all[1]);
        drop(begin(&lane, all[2]));
        lane.push(all[3]);
        let chain = Chain::from_to(all[0], all[3]).up_to_gap();
        assert!((lane.first(), lane.last()) == (Some(all[0]), Some(all[3])));
        assert!(chain.first == all[1] && !chain.is_single());
        assert_eq!(lane.end_at_gap(), 2);
        assert!(Chain::from_to(all[0], lane.last().expect("it is the second")).up_to_gap().is_single());
        // What the child pushes is behind no gap.
        all[3].renew();
        lane.push(all[3]);
        let chain = lane.take().expect("it has a first one");
        assert!(chain.nodes().eq([all[0], all[1], all[3]]));
        drop(begin(&lane, all[4]));
        assert_eq!((lane.first(), lane.end_at_gap()), (None, 0));
        assert!(lane.is_empty(), "it is lost");
        free(&all);
    }
}
