//! The nodes of callbacks, which are in the user's objects; a lane, to which any thread pushes; and chains of what was taken.
//!
//! ```text
//!   first --> node --> node -x- node <-- tail        x: pushed, and not linked yet
//! ```
//!
//! A push is an exchange of the tail, and a store that links the node to the one before it. Between the two the lane has a gap: a
//! take finds what is before the gap, and, once the gap is closed, what is behind it.

use std::cell::Cell;
use std::fmt;
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
/// While it is in no queue, its memory may hold anything: it need not be initialised by [`new`](Callback::new).
#[repr(C)]
pub struct Callback {
    /// The next one: of its lane, of its segment, or of those held.
    next: AtomicPtr<Callback>,
    function: Cell<Option<Function>>,
}

// SAFETY: who has pushed it leaves it to the queue, whose turns use it one at a time.
unsafe impl Send for Callback {}
// SAFETY: a shared reference gives access to nothing.
unsafe impl Sync for Callback {}

impl Callback {
    /// One that is in no queue.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { next: AtomicPtr::new(ptr::null_mut()), function: Cell::new(None) }
    }

    /// Loom's atomics cannot be made at compile time.
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self { next: AtomicPtr::new(ptr::null_mut()), function: Cell::new(None) }
    }
}

impl Default for Callback {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callback").finish_non_exhaustive()
    }
}

/// Three words in one of the user's own objects, for a callback that also waits for protected loads of the object: see
/// [`CallbackQueue::push_object`](crate::rcu::raw::CallbackQueue::push_object).
#[derive(Debug)]
#[repr(C)]
pub struct ObjectCallback {
    callback: Callback,
    /// The address that is protected.
    object: Cell<*const ()>,
}

// SAFETY: as for `Callback`.
unsafe impl Send for ObjectCallback {}
// SAFETY: as for `Callback`.
unsafe impl Sync for ObjectCallback {}

impl ObjectCallback {
    /// One that is in no queue.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { callback: Callback::new(), object: Cell::new(ptr::null()) }
    }
}

impl Default for ObjectCallback {
    fn default() -> Self {
        Self { callback: Callback::default(), object: Cell::new(ptr::null()) }
    }
}

/// A node in the user's memory that the queue has, or that the caller is about to push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Node(NonNull<Callback>);

impl Node {
    /// Makes a node from the user's memory.
    ///
    /// # Safety
    /// The memory is the caller's until the callback is called.
    pub(crate) unsafe fn prepare(callback: NonNull<Callback>, function: Function) -> Self {
        let fresh = Callback::new();
        fresh.function.set(Some(function));
        // SAFETY: the caller's promise. What was there before needs no destructor.
        unsafe { callback.write(fresh) };
        // For the callback.
        tsan::release(callback.as_ptr());
        Self(callback)
    }

    /// As [`prepare`](Node::prepare), for an object whose address is protected.
    ///
    /// # Safety
    /// As for [`prepare`](Node::prepare), of all three words.
    pub(crate) unsafe fn prepare_object(
        callback: NonNull<ObjectCallback>,
        object: *const (),
        function: Function,
    ) -> Self {
        // SAFETY: the caller's promise; a place in memory that is the caller's.
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
        // SAFETY: whoever has a node may use it: its memory stays until its callback is called.
        unsafe { &(*self.0.as_ptr()).next }
    }

    /// Makes a node that was in a queue ready for another one.
    pub(crate) fn renew(self) {
        // Relaxed: the exchange that pushes it comes after.
        self.link().store(ptr::null_mut(), Ordering::Relaxed);
    }

    /// Links the next one.
    fn set_next(self, next: Self) {
        self.link().store(next.0.as_ptr(), orders::link());
    }

    /// The next one, if there is one, and it is linked.
    fn next(self) -> Option<Self> {
        NonNull::new(self.link().load(orders::linked())).map(Self)
    }

    /// The address that is protected.
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
    /// No reader is in the way of it, and the node is in no chain.
    pub(crate) unsafe fn call(self) {
        // In a model, what frees the node uses all of it. SAFETY: the node is the caller's.
        #[cfg(loom)]
        unsafe { &mut *self.0.as_ptr() }.next.with_mut(|_| ());
        // SAFETY: the node is the caller's.
        let function = unsafe { (*self.0.as_ptr()).function.get() };
        let function = function.expect("it was prepared with one");
        if tsan::is_there() {
            tsan::acquire(self.0.as_ptr());
            let _heeded = tsan::heed();
            // SAFETY: as below.
            return unsafe { function(self.0) };
        }
        // SAFETY: who has pushed it has promised that it may be called then.
        unsafe { function(self.0) };
    }

    pub(crate) fn as_ptr(self) -> NonNull<Callback> {
        self.0
    }
}

/// Where callbacks are pushed.
#[derive(Debug)]
pub(crate) struct Lane {
    tail: AtomicPtr<Callback>,
    /// Null, too, while the first one has not been linked.
    first: AtomicPtr<Callback>,
}

impl Lane {
    pub(crate) fn new() -> Self {
        Self { tail: AtomicPtr::new(ptr::null_mut()), first: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Wait-free. The node belongs to the lane.
    #[inline]
    pub(crate) fn push(&self, node: Node) {
        let before = self.tail.swap(node.0.as_ptr(), orders::push_callback());
        match NonNull::new(before) {
            // It is not called before it is linked: see `Chain::pop`.
            Some(before) => Node(before).set_next(node),
            None => self.first.store(node.0.as_ptr(), orders::link()),
        }
    }

    /// Whether nothing was pushed since the last take.
    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: who sleeps for it is ordered by the fences of its event.
        self.tail.load(Ordering::Relaxed).is_null()
    }

    /// The first one, if there is one, and its push is complete.
    pub(crate) fn first(&self) -> Option<Node> {
        NonNull::new(self.first.load(orders::linked())).map(Node)
    }

    /// The one that was pushed last, perhaps not completely.
    pub(crate) fn last(&self) -> Option<Node> {
        // Relaxed: it is reached by links, which are acquired.
        NonNull::new(self.tail.load(Ordering::Relaxed)).map(Node)
    }

    /// In the child of a `fork`, where nobody completes a push: ends before the first one that is not complete. What is behind it is
    /// lost. Returns how many are left.
    pub(crate) fn end_at_gap(&self) -> usize {
        let mut whole = self.first().zip(self.last()).map(|(first, last)| Chain { first, last });
        whole.iter_mut().for_each(Chain::end_at_gap);
        let tail = whole.map_or(ptr::null_mut(), |chain| chain.last.0.as_ptr());
        // Relaxed: there is no other thread.
        self.tail.store(tail, Ordering::Relaxed);
        whole.map_or(0, |chain| chain.nodes().count())
    }

    /// Takes everything that was pushed, unless the very first push is not complete. One taker at a time.
    pub(crate) fn take(&self) -> Option<Chain> {
        let first = self.first()?;
        // Relaxed: before the exchange, which the next one who finds the lane empty acquires.
        self.first.store(ptr::null_mut(), Ordering::Relaxed);
        let last = self.tail.swap(ptr::null_mut(), orders::take_callbacks());
        let last = NonNull::new(last).map(Node).expect("what is first has a last one");
        Some(Chain { first, last })
    }
}

/// Callbacks in their order, from the first to the last one. There may be gaps until their pushes are complete.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chain {
    first: Node,
    last: Node,
}

impl Chain {
    pub(crate) fn of(node: Node) -> Self {
        Self { first: node, last: node }
    }

    /// Separates the first one from the others. [`Gap`] if there is a gap behind it: the thread that is about to close the gap
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

    /// Joins newer callbacks to the end.
    pub(crate) fn extend(&mut self, newer: Self) {
        // Nobody else uses the last one, whose lane has another tail.
        self.last.set_next(newer.first);
        self.last = newer.last;
    }

    /// All of them, up to the first gap.
    pub(crate) fn nodes(self) -> impl Iterator<Item = Node> {
        let mut rest = Some(self);
        std::iter::from_fn(move || {
            let (node, others) = rest?.pop().ok()?;
            rest = others;
            Some(node)
        })
    }

    /// All from one to another one, which was pushed later.
    pub(crate) fn from_to(first: Node, last: Node) -> Self {
        Self { first, last }
    }

    /// Whether there is only one.
    pub(crate) fn is_single(self) -> bool {
        self.first == self.last
    }

    /// From the one before the first gap on; from the last one, if there is no gap.
    pub(crate) fn up_to_gap(mut self) -> Self {
        while !self.is_single() {
            let Some(next) = self.first.next() else { break };
            self.first = next;
        }
        self
    }

    /// In the child of a `fork`, where nobody closes a gap: ends before the first one. What is behind it is lost.
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

/// A push is not complete: look again later.
#[derive(Debug)]
pub(crate) struct Gap;

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Callback>() == 2 * size_of::<usize>());
    assert!(size_of::<ObjectCallback>() == 3 * size_of::<usize>());
};

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    unsafe extern "C-unwind" fn nothing(_: NonNull<Callback>) {}

    fn nodes<const N: usize>() -> [Node; N] {
        // SAFETY: each is leaked.
        std::array::from_fn(|_| unsafe { Node::prepare(NonNull::from(Box::leak(Box::default())), nothing) })
    }

    fn free(nodes: &[Node]) {
        for node in nodes {
            // SAFETY: it was leaked, and is in no chain any more.
            drop(unsafe { Box::from_raw(node.as_ptr().as_ptr()) });
        }
    }

    /// The first step of a push, by a thread that is preempted then. Returns what does the second one.
    fn begin(lane: &Lane, node: Node) -> impl FnOnce() + '_ {
        let before = NonNull::new(lane.tail.swap(node.0.as_ptr(), Ordering::AcqRel));
        move || match before {
            Some(before) => Node(before).set_next(node),
            None => lane.first.store(node.0.as_ptr(), Ordering::Release),
        }
    }

    #[test]
    fn a_push_that_is_not_complete_holds_up_what_is_behind_it_only() {
        let (lane, all) = (Lane::new(), nodes::<4>());
        let first = begin(&lane, all[0]);
        lane.push(all[1]);
        assert!(lane.take().is_none() && !lane.is_empty(), "it has no first one");
        first();
        let third = begin(&lane, all[2]);
        lane.push(all[3]);
        let mut chain = lane.take().expect("it has a first one");
        assert!(lane.is_empty() && lane.take().is_none());
        for node in &all[..2] {
            // The second one is not called before the push behind it has done with it.
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
        let (lane, all) = (Lane::new(), nodes::<5>());
        lane.push(all[0]);
        lane.push(all[1]);
        drop(begin(&lane, all[2]));
        lane.push(all[3]);
        let chain = Chain::from_to(all[0], all[3]).up_to_gap();
        assert!((lane.first(), lane.last()) == (Some(all[0]), Some(all[3])));
        assert!(chain.first == all[1] && !chain.is_single());
        assert_eq!(lane.end_at_gap(), 2);
        assert!(Chain::from_to(all[0], lane.last().expect("it is the second")).up_to_gap().is_single());
        // What is pushed in the child is behind no gap.
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
