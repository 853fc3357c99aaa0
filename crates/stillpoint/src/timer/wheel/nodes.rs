//! The wheel over nodes in the user's own structures.
//!
//! Nodes are accessed through the pointers that were passed to [`NodeWheel::add`], never through references. **Every
//! pointer in a link is that of a head or of a node in the wheel.** Heads live as long as the wheel, and the caller of
//! `add` promises that the node stays in place until it is taken out. Afterwards, no pointer to it is left.

use alloc::boxed::Box;
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::marker::PhantomPinned;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};

use super::engine::{Core, Store};
use super::level::{ASIDE, LATE, READY, SENTINELS};
use super::lists::{touch, Link, Links, Lists};
use super::moves::MOVES;
use super::{Schedule, WheelStats};

/// A timer of a [`NodeWheel`], inside the user's own structure. It takes 32 bytes.
///
/// ```
/// use stillpoint::timer::Node;
///
/// struct Connection {
///     timeout: Node,
///     number: u32,
/// }
/// let connection = Connection { timeout: Node::new(), number: 7 };
/// assert_eq!(connection.number, 7);
/// assert_eq!(size_of::<Node>(), 32);
/// ```
#[repr(transparent)]
pub struct Node {
    /// A cell, because the wheel writes to the node while the user may have references to the structure around it.
    inner: UnsafeCell<Inner>,
    _stays: PhantomPinned,
}

#[repr(C)]
struct Inner {
    /// Null in a node that is in no wheel.
    links: NodeLink,
    deadline: u64,
    flags: u32,
}

/// A head, or the first field of a node.
#[derive(Clone, Copy)]
struct NodeLink(Link<*mut NodeLink>);

const APART: NodeLink = NodeLink(Link { prev: ptr::null_mut(), next: ptr::null_mut() });

// SAFETY: a node that is in no wheel is plain data. A node that is in a wheel is accessed by the wheel's thread, which
// the caller of `add` has allowed.
unsafe impl Send for Node {}

impl Node {
    /// A node that is in no wheel.
    pub const fn new() -> Self {
        let inner = Inner { links: APART, deadline: 0, flags: 0 };
        Self { inner: UnsafeCell::new(inner), _stays: PhantomPinned }
    }

    /// The deadline with which the node was last in a wheel; 0 if it never was.
    ///
    /// ```
    /// use std::ptr::NonNull;
    /// use stillpoint::timer::{Node, NodeWheel, Schedule};
    ///
    /// let (node, mut wheel) = (Node::new(), NodeWheel::new(0));
    /// // SAFETY: until the node is popped, it stays in place, and only the wheel uses it.
    /// unsafe { wheel.add(NonNull::from(&node), Schedule::at(70)) };
    /// wheel.advance(75);
    /// assert!(wheel.pop().is_some());
    /// // SAFETY: the node is in no wheel any more.
    /// assert_eq!(unsafe { node.last_deadline() }, 70);
    /// ```
    ///
    /// # Safety
    /// The node is in no wheel.
    #[inline]
    pub unsafe fn last_deadline(&self) -> u64 {
        // SAFETY: by the caller's promise, nothing writes to it.
        unsafe { (*self.inner.get()).deadline }
    }
}

impl Default for Node {
    fn default() -> Self {
        Self::new()
    }
}

stillpoint_sys::debug!(Node { .. });

/// The heads of the lists, which are accessed only through pointers.
struct Heads {
    start: NonNull<NodeLink>,
}

/// Owns the heads.
struct Owned(Heads);

// SAFETY: this value owns the heads. The caller of `add` promises that the thread of the wheel may access the nodes.
unsafe impl Send for Owned {}
// SAFETY: a shared reference allows only reads.
unsafe impl Sync for Owned {}

impl Owned {
    fn new() -> Result<Self, TryReserveError> {
        let mut heads = Vec::new();
        heads.try_reserve_exact(SENTINELS as usize)?;
        heads.resize(SENTINELS as usize, APART);
        let heads = Box::into_raw(heads.into_boxed_slice()).cast();
        // SAFETY: the address of a box is not null.
        let mut owned = Self(Heads { start: unsafe { NonNull::new_unchecked(heads) } });
        for list in 0..SENTINELS {
            let head = owned.head(list);
            owned.set(head, Link { prev: head, next: head });
        }
        Ok(owned)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let heads = ptr::slice_from_raw_parts_mut(self.0.start.as_ptr(), SENTINELS as usize);
        // SAFETY: the pointer was made from a box of this length.
        drop(unsafe { Box::from_raw(heads) });
    }
}

impl Deref for Owned {
    type Target = Heads;

    #[inline(always)]
    fn deref(&self) -> &Heads {
        &self.0
    }
}

impl DerefMut for Owned {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Heads {
        &mut self.0
    }
}

impl Links for Heads {
    type Name = *mut NodeLink;

    #[inline(always)]
    fn head(&self, list: u32) -> *mut NodeLink {
        self.start.as_ptr().wrapping_add(list as usize)
    }

    #[inline(always)]
    fn list(&self, head: *mut NodeLink) -> u32 {
        ((head.addr() - self.start.as_ptr().addr()) / size_of::<NodeLink>()) as u32
    }

    #[inline(always)]
    fn link(&self, name: *mut NodeLink) -> Link<*mut NodeLink> {
        touch();
        // SAFETY: every name is that of a link (see the module's documentation).
        unsafe { (*name).0 }
    }

    #[inline(always)]
    fn set(&mut self, name: *mut NodeLink, link: Link<*mut NodeLink>) {
        touch();
        // SAFETY: every name is that of a link (see the module's documentation). The wheel is borrowed mutably, so
        // nothing else uses its links.
        unsafe { (*name).0 = link };
    }

    #[inline(always)]
    fn set_prev(&mut self, name: *mut NodeLink, prev: *mut NodeLink) {
        touch();
        // SAFETY: every name is that of a link, and nothing else uses the links of a wheel that is borrowed mutably.
        unsafe { (*name).0.prev = prev };
    }

    #[inline(always)]
    fn set_next(&mut self, name: *mut NodeLink, next: *mut NodeLink) {
        touch();
        // SAFETY: every name is that of a link, and nothing else uses the links of a wheel that is borrowed mutably.
        unsafe { (*name).0.next = next };
    }
}

struct Nodes {
    lists: Lists<Owned>,
    len: usize,
}

impl Store for Nodes {
    type Links = Owned;

    #[inline(always)]
    fn lists(&self) -> &Lists<Owned> {
        &self.lists
    }

    #[inline(always)]
    fn lists_mut(&mut self) -> &mut Lists<Owned> {
        &mut self.lists
    }

    #[inline(always)]
    fn when(&self, name: *mut NodeLink) -> (u64, u32) {
        touch();
        let inner = name.cast::<Inner>();
        // SAFETY: callers pass the name of a node, whose first field is the link.
        unsafe { ((*inner).deadline, (*inner).flags) }
    }
}

#[inline(always)]
fn name(node: NonNull<Node>) -> *mut NodeLink {
    node.as_ptr().cast()
}

/// A [`Wheel`](super::Wheel) whose timers are [nodes](Node) in the user's own structures.
///
/// It allocates 34 KiB when it is made, and nothing after that: additions never fail. It makes no callbacks: after
/// [`advance`](Self::advance), each [`pop`](Self::pop) takes one node that is due. The wheel then has no pointer to
/// that node, so the node's memory may be reused or freed at once. The same holds after [`cancel`](Self::cancel), even
/// for a node that is due and was not popped yet.
///
/// Levels, lists and the order of expiries are those of [`Wheel`](super::Wheel), and its section about short polls
/// applies. Nodes fire once; for a periodic timer, add the node again.
///
/// | operation | complexity |
/// |---|---|
/// | [`add`](Self::add), [`cancel`](Self::cancel), [`reset`](Self::reset), [`take_any`](Self::take_any), [`take_aside`](Self::take_aside) | constant |
/// | [`set_aside`](Self::set_aside) | proportional to the occupied slots, 2,112 at most |
/// | [`advance`](Self::advance) | proportional to the occupied slots that were reached, 2,112 at most; moves at most 64 nodes for each level in use |
/// | [`pop`](Self::pop) | constant when a node is ready; otherwise moves at most 64 nodes for each level in use |
///
/// Dropping the wheel does not touch the nodes that are in it. They have to be [made anew](Node::new) before they are
/// added to another wheel.
///
/// ```
/// use std::ptr::NonNull;
/// use stillpoint::timer::{Node, NodeWheel, Schedule};
///
/// #[repr(C)]
/// struct Connection {
///     timeout: Node, // the first field, so that its address is that of the connection
///     number: u32,
/// }
///
/// let mut wheel = NodeWheel::new(0);
/// for number in [7, 8] {
///     let connection = Box::new(Connection { timeout: Node::new(), number });
///     let node = NonNull::from(Box::leak(connection)).cast();
///     // SAFETY: the connection stays there, and nothing else uses the node, until it is popped.
///     unsafe { wheel.add(node, Schedule::at(u64::from(number) * 10)) };
/// }
///
/// wheel.advance(75);
/// let node = wheel.pop().expect("70 is past");
/// // SAFETY: the connection was leaked above, and the wheel has no pointer to its node any more.
/// let connection = unsafe { Box::from_raw(node.cast::<Connection>().as_ptr()) };
/// assert_eq!(connection.number, 7);
/// drop(connection);
/// assert_eq!((wheel.pop(), wheel.len()), (None, 1));
/// # let rest = wheel.take_any().expect("the other one");
/// # drop(unsafe { Box::from_raw(rest.cast::<Connection>().as_ptr()) });
/// ```
pub struct NodeWheel {
    core: Core<Nodes>,
}

impl NodeWheel {
    /// An empty wheel, at the time `now`.
    ///
    /// As in the standard library, the process aborts when there is no memory: see [`try_new`](Self::try_new).
    pub fn new(now: u64) -> Self {
        Self::try_new(now).unwrap_or_else(|_| {
            alloc::alloc::handle_alloc_error(core::alloc::Layout::new::<[NodeLink; SENTINELS as usize]>())
        })
    }

    /// An empty wheel, at the time `now`.
    ///
    /// # Errors
    /// When there is no memory.
    ///
    /// ```
    /// use stillpoint::timer::NodeWheel;
    ///
    /// let wheel = NodeWheel::try_new(5)?;
    /// assert_eq!((wheel.now(), wheel.is_empty()), (5, true));
    /// # Ok::<(), std::collections::TryReserveError>(())
    /// ```
    pub fn try_new(now: u64) -> Result<Self, TryReserveError> {
        Ok(Self { core: Core::new(Nodes { lists: Lists::over(Owned::new()?), len: 0 }, now) })
    }

    /// The time of the last advance.
    #[inline]
    pub fn now(&self) -> u64 {
        self.core.now
    }

    /// The number of nodes, including those that are due and were not popped.
    #[inline]
    pub fn len(&self) -> usize {
        self.core.store.len
    }

    /// Whether there is no node.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The counts of the wheel. `capacity` is the number of nodes in it.
    pub fn stats(&self) -> WheelStats {
        self.core.stats(self.len(), self.len())
    }

    /// Adds a node. If its deadline is not in the future, it can be popped after the next advance.
    ///
    /// A [period](Schedule::every) is ignored: nodes fire once. [`Schedule::after`] counts from the time of the last
    /// advance.
    ///
    /// # Safety
    /// Until the node is popped, cancelled or taken, or the wheel is dropped,
    ///
    /// - the node stays valid and in place;
    /// - nothing else reads, writes or moves the node; it is in no other wheel, and only once in this one;
    /// - no exclusive reference (`&mut`) to the node, or to a structure around it, is made, and none that was made
    ///   before `node` is used again: access structures through pointers, or through shared references.
    ///
    /// If the wheel is moved to another thread, that thread may access the node. `pop` returns the pointer that was
    /// passed here. Through it, the same memory around the node may be accessed as through `node`.
    #[inline]
    pub unsafe fn add(&mut self, node: NonNull<Node>, schedule: Schedule) {
        let schedule = schedule.resolved(self.core.now);
        let inner = node.as_ptr().cast::<Inner>();
        // SAFETY: the node is valid, and only the wheel uses it from now on, by the caller's promise.
        unsafe {
            debug_assert!((*inner).links.0.next.is_null(), "the node is in a wheel already");
            (*inner).deadline = schedule.deadline;
            (*inner).flags = schedule.flags;
        }
        self.core.file(name(node), schedule.deadline, schedule.flags, LATE);
        self.core.store.len += 1;
    }

    /// Takes a node out, even if it is due. Returns whether it was in the wheel. The wheel then has no pointer to the
    /// node.
    ///
    /// ```
    /// use std::ptr::NonNull;
    /// use stillpoint::timer::{Node, NodeWheel, Schedule};
    ///
    /// let (node, mut wheel) = (Node::new(), NodeWheel::new(0));
    /// let node = NonNull::from(&node);
    /// // SAFETY: until the node is cancelled, it stays in place, and only the wheel uses it.
    /// unsafe {
    ///     wheel.add(node, Schedule::at(70));
    ///     assert!(wheel.contains(node) && wheel.deadline(node) == Some(70));
    ///     assert_eq!(wheel.earliest_deadline(), Some(70));
    ///     assert!(wheel.next_deadline() <= Some(70)); // a lower bound
    ///     assert!(wheel.cancel(node) && !wheel.contains(node));
    /// }
    /// wheel.set_time(5);
    /// assert_eq!((wheel.now(), wheel.stats().timers), (5, 0));
    /// ```
    ///
    /// # Safety
    /// The node is valid, and either in this wheel or in none.
    #[inline]
    pub unsafe fn cancel(&mut self, node: NonNull<Node>) -> bool {
        // SAFETY: the node is valid, and in this wheel or in none, by the caller's promise.
        if !unsafe { self.contains(node) } {
            return false;
        }
        self.core.store.lists.unlink(name(node));
        self.release(name(node));
        true
    }

    /// Gives a node another deadline, even if it is due. Returns whether it was in the wheel.
    ///
    /// # Safety
    /// As [`cancel`](Self::cancel).
    #[inline]
    pub unsafe fn reset(&mut self, node: NonNull<Node>, deadline: u64) -> bool {
        // SAFETY: the node is valid, and in this wheel or in none, by the caller's promise.
        if !unsafe { self.contains(node) } {
            return false;
        }
        self.core.store.lists.unlink(name(node));
        let inner = node.as_ptr().cast::<Inner>();
        // SAFETY: the node is valid, by the caller's promise. It is in the wheel, so nothing else uses it.
        let flags = unsafe {
            (*inner).deadline = deadline;
            (*inner).flags
        };
        self.core.file(name(node), deadline, flags, LATE);
        true
    }

    /// Whether a node is in the wheel.
    ///
    /// # Safety
    /// As [`cancel`](Self::cancel).
    #[inline]
    pub unsafe fn contains(&self, node: NonNull<Node>) -> bool {
        // SAFETY: the node is valid, and in this wheel or in none, by the caller's promise.
        unsafe { !(*name(node)).0.next.is_null() }
    }

    /// The deadline of a node; `None` when it is not in the wheel.
    ///
    /// # Safety
    /// As [`cancel`](Self::cancel).
    #[inline]
    pub unsafe fn deadline(&self, node: NonNull<Node>) -> Option<u64> {
        // SAFETY: the node is valid, and in this wheel or in none, by the caller's promise.
        unsafe { self.contains(node).then(|| self.core.store.when(name(node)).0) }
    }

    /// Sets the time, as [`Wheel::advance`](super::Wheel::advance).
    pub fn advance(&mut self, now: u64) {
        self.core.go_on(now, MOVES);
    }

    /// Takes a node that is due at the time of the last [`advance`](Self::advance), as
    /// [`Wheel::pop`](super::Wheel::pop). The wheel then has no pointer to the node.
    ///
    /// Between two calls, other nodes may be added and cancelled, including those that are due.
    #[inline]
    pub fn pop(&mut self) -> Option<NonNull<Node>> {
        let found = self.core.store.lists.pop(READY).or_else(|| self.pop_slowly())?;
        Some(self.release(found))
    }

    #[cold]
    fn pop_slowly(&mut self) -> Option<*mut NodeLink> {
        self.core.move_some(MOVES);
        let found = self.core.store.lists.pop(READY);
        if found.is_none() {
            self.core.look_ahead();
        }
        found
    }

    /// Takes any node out, due or not; repeated calls empty the wheel. Constant time.
    pub fn take_any(&mut self) -> Option<NonNull<Node>> {
        let list = self.core.store.lists.any()?;
        let found = self.core.store.lists.pop(list)?;
        Some(self.release(found))
    }

    /// Sets all nodes aside for [`take_aside`](Self::take_aside), to take these out one by one while others are added: they do not expire
    /// until [`set_time`](Self::set_time) files them again. Otherwise they are as before: cancelled, reset, and counted.
    ///
    /// ```
    /// use std::ptr::NonNull;
    /// use stillpoint::timer::{Node, NodeWheel, Schedule};
    ///
    /// let mut wheel = NodeWheel::new(0);
    /// let [first, later] = [(); 2].map(|()| NonNull::from(Box::leak(Box::new(Node::new()))));
    /// // SAFETY: the nodes stay there, and nothing else uses them.
    /// unsafe { wheel.add(first, Schedule::at(9)) };
    /// wheel.set_aside();
    /// // SAFETY: as above.
    /// unsafe { wheel.add(later, Schedule::at(5)) };
    /// assert_eq!((wheel.take_aside(), wheel.take_aside()), (Some(first), None));
    /// assert_eq!(wheel.take_any(), Some(later));
    /// # [first, later].map(|node| drop(unsafe { Box::from_raw(node.as_ptr()) }));
    /// ```
    pub fn set_aside(&mut self) {
        self.core.splice_all(ASIDE);
    }

    /// Takes one of the nodes out that were [set aside](Self::set_aside).
    pub fn take_aside(&mut self) -> Option<NonNull<Node>> {
        let found = self.core.store.lists.pop(ASIDE)?;
        Some(self.release(found))
    }

    /// Marks an unlinked node as in no wheel. No pointer to it is left.
    #[inline]
    fn release(&mut self, name: *mut NodeLink) -> NonNull<Node> {
        self.core.store.len -= 1;
        // SAFETY: the node was in the wheel until now, so it is valid.
        unsafe {
            *name = APART;
            NonNull::new_unchecked(name.cast())
        }
    }

    /// When to advance next, as [`Wheel::next_deadline`](super::Wheel::next_deadline): a lower bound.
    pub fn next_deadline(&self) -> Option<u64> {
        self.core.next_deadline()
    }

    /// The earliest deadline of all nodes, as [`Wheel::earliest_deadline`](super::Wheel::earliest_deadline).
    pub fn earliest_deadline(&self) -> Option<u64> {
        self.core.earliest().map(|(deadline, _)| deadline)
    }

    /// Sets the time, also to an earlier one, as [`Wheel::set_time`](super::Wheel::set_time). Complexity: proportional
    /// to the number of nodes.
    pub fn set_time(&mut self, now: u64) {
        self.core.set_time(now);
    }
}

stillpoint_sys::debug!(|this| NodeWheel {
    nodes: this.len(),
    now: this.now(),
    next_deadline: this.next_deadline(),
    ..
});
