//! A multicast under way: the function to run, and a node for each receiver. Operations are used again, and not freed before
//! their group: after a time limit, nodes may still lie in mailboxes.

use std::any::Any;
use std::panic::catch_unwind;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32 as PlainU32, AtomicUsize as PlainUsize};

use super::slots::Slot;
use super::{Options, PLAIN};
use crate::busted::{self, Variant};
use crate::orders;
use crate::plan::Acknowledgement;
use crate::plan::{rotation, Strategy};
use stillpoint_sys::panics::discard;
use stillpoint_sys::sync::atomic::{fence, AtomicPtr, AtomicU32, Ordering};
use stillpoint_sys::sync::UnsafeCell;
use stillpoint_sys::work::step;

/// In `range`: the message was not sent yet.
const UNSENT: u32 = 0;
/// In `range`: the thread that claims the range forwards it.
const OPEN: u32 = 1;
/// In `range`: the range was claimed, or is empty.
const CLAIMED: u32 = 2;
/// In `range`: as [`CLAIMED`], and the receiver's own part is done, or the receiver had left.
const DONE: u32 = 3;

/// In the count of a root: the initiator sleeps.
pub(super) const SLEEPING: u32 = 1 << 31;

/// An operation has room for a multiple of this many receivers.
const ROOM: usize = if cfg!(stillpoint_loom) { 4 } else { 16 };

/// In `state`: the operation is not used.
const FREE: u32 = 0;
/// In `state`: it belongs to an initiator.
const BUSY: u32 = 1;
/// In `state`: its initiator has given up waiting. The operation is free when its count is 0.
const LINGERING: u32 = 2;

/// The part of one receiver in one multicast.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Node {
    /// The message that was posted before this one; in the owner's list, the next one to process; in a sender's, the one that was refused before.
    next: AtomicPtr<Node>,
    operation: NonNull<Operation>,
    /// Written by the initiator before the first message, read by the sender to the receiver.
    receiver: UnsafeCell<*const Slot>,
    /// Written by the sender, read by the receiver and by the thread that has claimed the range. That of a node that was refused is the sender's.
    message: UnsafeCell<Message>,
    /// [`UNSENT`], [`OPEN`], [`CLAIMED`] or [`DONE`].
    range: AtomicU32,
    /// 1 for the receiver's own part, and 1 for each child that has not acknowledged. In the root: 1 for the
    /// initiator, 1 for each child that has not acknowledged (for each receiver, if there is one shared counter), and
    /// [`SLEEPING`].
    pending: AtomicU32,
}

/// The message to a receiver.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    /// The node that is acknowledged when everything below this node is done; null in the root.
    pub(super) parent: *const Node,
    /// The range that is delegated to the receiver.
    pub(super) begin: u32,
    pub(super) end: u32,
    /// The number of messages on the way to the receiver.
    pub(super) depth: u32,
    /// The number of messages that were sent one after the other before the receiver was reached.
    pub(super) path: u32,
}

impl Node {
    pub(super) fn new(operation: NonNull<Operation>) -> Self {
        let message = Message { parent: ptr::null(), begin: 0, end: 0, depth: 0, path: 0 };
        Self {
            next: AtomicPtr::new(ptr::null_mut()),
            operation,
            receiver: UnsafeCell::new(ptr::null()),
            message: UnsafeCell::new(message),
            range: AtomicU32::new(UNSENT),
            pending: AtomicU32::new(0),
        }
    }

    pub(super) fn next(&self) -> *mut Node {
        // Relaxed, here and below: the head of the mailbox publishes it to the receiver.
        self.next.load(Ordering::Relaxed)
    }

    pub(super) fn set_next(&self, next: *mut Node) {
        self.next.store(next, Ordering::Relaxed);
    }

    /// # Safety
    /// The node's part in its operation is not acknowledged, or the operation belongs to the caller.
    pub(super) unsafe fn operation<'o>(&self) -> &'o Operation {
        // SAFETY: operations are freed only with their group, when there are no mailboxes.
        unsafe { self.operation.as_ref() }
    }

    /// # Safety
    /// The node is one of the operation's receivers, whose part is not acknowledged, or the operation belongs to the caller.
    pub(super) unsafe fn receiver<'o>(&self) -> &'o Slot {
        // SAFETY: written by the initiator before the first message; places are freed only with the group.
        self.receiver.with(|receiver| unsafe { &**receiver })
    }

    /// # Safety
    /// The caller has received the message, or has claimed its range; and the node's part is not acknowledged, or the operation
    /// belongs to the caller.
    pub(super) unsafe fn message(&self) -> Message {
        // SAFETY: written before the message was sent, and the range opened.
        self.message.with(|message| unsafe { *message })
    }

    /// Writes the message.
    ///
    /// # Safety
    /// The node is in a range that the caller has claimed, and its message was not sent yet.
    pub(super) unsafe fn write(&self, message: Message) {
        // SAFETY: no other thread reads the message before it is sent, or its range is open.
        self.message.with_mut(|cell| unsafe { *cell = message });
        // Relaxed: published with the message.
        self.pending.store(1, Ordering::Relaxed);
        // Release: pairs with the acquire in `claim`, by a helper, which does not receive the message.
        self.range.store(if message.begin < message.end { OPEN } else { CLAIMED }, Ordering::Release);
    }

    /// Keeps what the caller has left to send. Nobody else reads the message any more.
    ///
    /// # Safety
    /// The caller has claimed the range, and the node is in no mailbox.
    pub(super) unsafe fn keep(&self, rest: Message) {
        // SAFETY: only who has claimed the range, or receives the message, reads it.
        self.message.with_mut(|cell| unsafe { *cell = rest });
    }

    /// Claims the range for the caller. False if it was claimed, is empty, or was not sent yet.
    pub(super) fn claim(&self) -> bool {
        // Relaxed: a hint.
        if self.range.load(Ordering::Relaxed) != OPEN {
            return false;
        }
        if busted::is(Variant::HelpUnclaimed) {
            self.range.store(CLAIMED, Ordering::Relaxed);
            return true;
        }
        self.range.compare_exchange(OPEN, CLAIMED, orders::help(), Ordering::Relaxed).is_ok()
    }

    /// Whether the range was claimed: it has been forwarded, or is being forwarded.
    pub(super) fn is_claimed(&self) -> bool {
        // Relaxed: a hint.
        self.range.load(Ordering::Relaxed) >= CLAIMED
    }

    /// Marks the receiver's own part as done, for reports. The range is claimed.
    pub(super) fn set_done(&self) {
        // Relaxed: for reports.
        self.range.store(DONE, Ordering::Relaxed);
    }

    pub(super) fn pending(&self) -> &AtomicU32 {
        &self.pending
    }
}

/// The function to run: its address, and that of its data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) function: unsafe fn(*const ()),
    pub(crate) data: *const (),
    /// Frees the data, if the operation owns them.
    pub(crate) release: Option<unsafe fn(*const ())>,
    /// Whether another initiator may [resume](Operation::try_resume) it. One whose function left its thread without an
    /// acknowledgement never ends.
    pub(crate) is_resumable: bool,
}

impl Call {
    /// A function that the caller keeps alive until the operation is over.
    pub(crate) fn borrowed<F: Fn() + Sync>(function: &F) -> Self {
        Self { function: call::<F>, data: ptr::from_ref(function).cast(), release: None, is_resumable: false }
    }

    /// As `borrowed`, for a function that returns on every thread.
    #[cfg_attr(any(stillpoint_loom, miri), allow(dead_code, reason = "for fences by signals"))]
    pub(crate) fn resumable<F: Fn() + Sync>(function: &F) -> Self {
        Self { is_resumable: true, ..Self::borrowed(function) }
    }

    /// A function that the operation owns.
    pub(crate) fn owned<F: Fn() + Send + Sync + 'static>(function: F) -> Self {
        let data = Box::into_raw(Box::new(function)).cast_const().cast();
        Self { function: call::<F>, data, release: Some(release::<F>), is_resumable: false }
    }
}

/// # Safety
/// The data are an `F`, which may be called on this thread.
unsafe fn call<F: Fn()>(data: *const ()) {
    // SAFETY: the data are an `F`, which may be called on this thread, by the caller's promise.
    unsafe { (*data.cast::<F>())() }
}

/// # Safety
/// The data are from `Box::into_raw` of an `F`, and are not used any more.
unsafe fn release<F>(data: *const ()) {
    // SAFETY: the data are from `Box::into_raw` of an `F`, and nobody else uses them, by the caller's promise.
    drop(unsafe { Box::from_raw(data.cast_mut().cast::<F>()) });
}

/// The part of an operation that every receiver reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    /// Resolved for the number of receivers.
    pub(super) strategy: Strategy,
    pub(super) acknowledgement: Acknowledgement,
    pub(super) call: Call,
    pub(super) receivers: u32,
    /// The place in the list of receivers at which their numbers begin.
    rotation: u32,
    nodes: *const Node,
    /// The futex on which the initiator sleeps.
    bell: *const AtomicU32,
}

impl Order {
    /// The node of a receiver, by its number in the ranges.
    ///
    /// # Safety
    /// The caller is the initiator, or has a message of the operation that it has not acknowledged.
    pub(super) unsafe fn node<'o>(&self, number: u32) -> &'o Node {
        assert!(number < self.receivers, "a number of a range");
        let place = number + self.rotation;
        let place = if place < self.receivers { place } else { place - self.receivers };
        // SAFETY: `prepare` made that many nodes, which are not replaced while the operation is under way.
        unsafe { &*self.nodes.add(place as usize) }
    }

    /// # Safety
    /// The group is alive.
    pub(super) unsafe fn bell<'o>(&self) -> &'o AtomicU32 {
        // SAFETY: it lives as long as the group.
        unsafe { &*self.bell }
    }
}

#[derive(Debug)]
pub(crate) struct Operation {
    root: Node,
    state: AtomicU32,
    /// Written by the initiator before the first message, and read by receivers until they acknowledge.
    order: UnsafeCell<Option<Order>>,
    /// The initiator may replace them while no thread has a message.
    nodes: UnsafeCell<Box<[Node]>>,
    pub(super) number: u32,
    own_bell: AtomicU32,
    /// The number of receivers that had left. Senders count; the acknowledgements publish it to the initiator.
    adopted: PlainU32,
    panic: AtomicPtr<Box<dyn Any + Send>>,
    pub(super) older: *mut Operation,
}

impl Operation {
    pub(super) fn new(number: u32, older: *mut Operation) -> NonNull<Self> {
        let operation = Box::new(Self {
            root: Node::new(NonNull::dangling()),
            state: AtomicU32::new(BUSY),
            order: UnsafeCell::new(None),
            nodes: UnsafeCell::new(Box::default()),
            number,
            own_bell: AtomicU32::new(0),
            adopted: PlainU32::new(0),
            panic: AtomicPtr::new(ptr::null_mut()),
            older,
        });
        let mut operation = NonNull::from(Box::leak(operation));
        // SAFETY: it was made above, and is not shared yet.
        unsafe { operation.as_mut().root.operation = operation };
        operation
    }

    pub(super) fn root(&self) -> &Node {
        &self.root
    }

    /// # Safety
    /// The caller is the initiator, or has a message that it has not acknowledged.
    pub(super) unsafe fn order(&self) -> Order {
        // SAFETY: written before the first message, and not again before the last acknowledgement.
        self.order.with(|order| unsafe { *order }).expect("an operation under way has an order")
    }

    pub(super) fn count_adopted(&self) {
        self.adopted.fetch_add(1, PLAIN);
    }

    pub(super) fn adopted(&self) -> u32 {
        self.adopted.load(PLAIN)
    }

    /// Keeps the first panic of a receiver for the initiator; drops the others.
    pub(super) fn keep_panic(&self, panic: Box<dyn Any + Send>) {
        let new = Box::into_raw(Box::new(panic));
        // Release: pairs with the acquire in `take_panic`.
        if self.panic.compare_exchange(ptr::null_mut(), new, Ordering::Release, Ordering::Relaxed).is_err() {
            // SAFETY: it came from `into_raw` above and was not published.
            discard(*unsafe { Box::from_raw(new) });
        }
    }

    pub(super) fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        // Acquire: pairs with the release in `keep_panic`.
        let panic = self.panic.swap(ptr::null_mut(), Ordering::Acquire);
        // SAFETY: it came from `into_raw`, and only this exchange took it out.
        (!panic.is_null()).then(|| *unsafe { Box::from_raw(panic) })
    }
}

/// For the initiator.
impl Operation {
    /// Sets the receivers and the function. `bell` is the futex on which the initiator sleeps.
    ///
    /// # Safety
    /// The operation belongs to the caller. The function may be called with its data, on any thread, until the operation is
    /// free again. The bell lives as long as the group.
    pub(super) unsafe fn prepare<'s>(
        &self,
        receivers: impl Iterator<Item = &'s Slot> + Clone,
        bell: Option<&AtomicU32>,
        options: Options,
        call: Call,
    ) -> Order {
        // SAFETY: no thread has a message of the operation, so no other thread uses the nodes.
        let nodes = self.nodes.with_mut(|nodes| unsafe { &mut *nodes });
        let count = loop {
            let (mut count, mut receivers) = (0, receivers.clone());
            for (node, slot) in nodes.iter().zip(&mut receivers) {
                // SAFETY: no thread has a message of the operation, so no other thread uses the nodes.
                node.receiver.with_mut(|receiver| unsafe { *receiver = slot });
                // Relaxed: comes with the first message.
                node.range.store(UNSENT, Ordering::Relaxed);
                count += 1;
            }
            let beyond = receivers.count();
            if beyond == 0 {
                break count;
            }
            let room = (nodes.len() + beyond).next_multiple_of(ROOM);
            *nodes = (0..room).map(|_| Node::new(NonNull::from(self))).collect();
        };
        let order = Order {
            strategy: options.strategy.resolve(count),
            acknowledgement: options.acknowledgement,
            call,
            receivers: count,
            rotation: rotation(self.number, count),
            nodes: nodes.as_ptr(),
            bell: bell.unwrap_or(&self.own_bell),
        };
        // SAFETY: only the caller uses the operation.
        self.order.with_mut(|cell| unsafe { *cell = Some(order) });
        self.adopted.store(0, PLAIN);
        let pending = match options.acknowledgement {
            Acknowledgement::Combining => 1,
            #[cfg(feature = "lab")]
            Acknowledgement::SharedCounter => 1 + count,
        };
        // Relaxed: comes with the first message.
        self.root.pending.store(pending, Ordering::Relaxed);
        order
    }

    /// Frees what the operation owns.
    ///
    /// # Safety
    /// The operation belongs to the caller, and every receiver has acknowledged.
    pub(super) unsafe fn clear(&self) {
        // SAFETY: only the caller uses the operation.
        let order = self.order.with_mut(|order| unsafe { (*order).take() });
        if let Some(Call { release: Some(release), data, .. }) = order.map(|order| order.call) {
            // A panic of the function's destructor is discarded: it must not reach the next user of the operation.
            // SAFETY: no receiver calls the function any more.
            let released = catch_unwind(|| unsafe { release(data) });
            released.unwrap_or_else(discard);
        }
        // Discards a panic that came after the initiator had given up.
        self.take_panic().into_iter().for_each(discard);
    }

    /// Ends an operation that every receiver has acknowledged.
    ///
    /// # Safety
    /// As for [`clear`](Operation::clear).
    pub(super) unsafe fn finish(&self) {
        // SAFETY: the operation belongs to the caller, and every receiver has acknowledged, by the caller's promise.
        unsafe { self.clear() };
        self.state.store(FREE, orders::finish());
    }

    /// Gives up waiting. A thread that [resumes](Self::try_resume) the operation waits for it; after the last acknowledgement,
    /// a thread [gives it back](Self::give_back) or [claims](Self::try_claim) it. False if all receivers have acknowledged: then it
    /// still belongs to the caller.
    pub(super) fn abandon(&self, lingering: &PlainUsize) -> bool {
        // AcqRel, on success: this is an acknowledgement. Acquire, on failure: as in `is_complete`.
        let (left, whole) = (Ordering::AcqRel, Ordering::Acquire);
        let others = |pending: u32| (pending != 1).then(|| pending - 1);
        if self.root.pending.fetch_update(left, whole, others).is_err() {
            return false;
        }
        self.linger(lingering);
        true
    }

    /// Leaves a given-up operation to its receivers. Ends it if the last of them has acknowledged meanwhile.
    fn linger(&self, lingering: &PlainUsize) {
        // Release: pairs with the acquire in `try_claim` and `try_resume`.
        self.state.store(LINGERING, Ordering::Release);
        self.settle(lingering);
    }

    /// As [`give_back`](Self::give_back), for the thread that has left the operation to its receivers, and for the last of these.
    pub(super) fn settle(&self, lingering: &PlainUsize) {
        if !busted::is(Variant::SettleUnfenced) {
            // SeqCst: pairs with itself, on the other one of these two threads. The first one finds 0, or the last receiver finds
            // that the operation lingers.
            fence(Ordering::SeqCst);
        }
        self.give_back(lingering);
    }

    /// Takes an operation that lingers, so that the caller waits in its initiator's place. False if there is nothing to wait
    /// for, or it is not resumable.
    #[cfg_attr(any(stillpoint_loom, miri), allow(dead_code, reason = "for fences by signals"))]
    pub(super) fn try_resume(&self, lingering: &PlainUsize) -> bool {
        step();
        // Relaxed: a hint.
        if self.state.load(Ordering::Relaxed) != LINGERING {
            return false;
        }
        if self.state.compare_exchange(LINGERING, BUSY, orders::resume(), Ordering::Relaxed).is_err() {
            return false;
        }
        if busted::is(Variant::ResumeUncounted) {
            return true;
        }
        // The initiator's own part is counted again. Relaxed: a read-modify-write, which continues the release sequences of the
        // acknowledgements for the acquire in `is_complete`.
        let more = |pending: u32| (pending != 0).then(|| pending + 1);
        // SAFETY: the operation is the caller's until it lingers again.
        let is_resumable = unsafe { self.order() }.call.is_resumable;
        let is_under_way = is_resumable
            && self.root.pending.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if !is_under_way {
            self.linger(lingering);
        }
        is_under_way
    }

    /// The ids of the threads that were sent the message, and whose part is not done. Receivers to which one of these has still
    /// to forward are not included: they may have left long ago, and their places may belong to other threads.
    pub(super) fn missing(&self, order: &Order) -> Vec<u32> {
        // From the leaves on. SAFETY: the operation belongs to the caller.
        let nodes = (0..order.receivers).rev().map(|number| unsafe { order.node(number) });
        // Acquire: pairs with the release of OPEN in `Node::write`: who finds that a message was written finds its sender under way, or
        // done.
        let nodes = nodes.inspect(|_| step());
        let missing = nodes.filter(|node| ![UNSENT, DONE].contains(&node.range.load(Ordering::Acquire)));
        // SAFETY: the operation belongs to the caller. The id is 0 if the thread has just left.
        let missing = missing.map(|node| unsafe { node.receiver() }.tid()).filter(|&tid| tid != 0);
        let mut threads: Vec<u32> = missing.collect();
        threads.reverse();
        threads
    }

    /// Ends an operation that lingers, if all receivers have acknowledged.
    pub(super) fn give_back(&self, lingering: &PlainUsize) {
        // Relaxed: a hint.
        if self.state.load(Ordering::Relaxed) == LINGERING && self.try_claim(lingering) {
            // SAFETY: claimed above; the count of an operation that lingered is 0.
            unsafe { self.finish() };
        }
    }

    /// Claims an operation that is not used. Decrements `lingering` if it lingered.
    pub(super) fn try_claim(&self, lingering: &PlainUsize) -> bool {
        step();
        // Relaxed: a hint.
        let state = self.state.load(Ordering::Relaxed);
        if state == BUSY || (state == LINGERING && self.root.pending.load(orders::last_acknowledged()) != 0) {
            return false;
        }
        // Acquire: pairs with the release in `finish` and `linger`. If it lingers, the count is read again: the first read may
        // have been in an earlier use of the operation.
        if self.state.compare_exchange(state, BUSY, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        if state == FREE {
            return true;
        }
        if self.root.pending.load(orders::last_acknowledged()) == 0 {
            lingering.fetch_sub(1, PLAIN);
            return true;
        }
        self.linger(lingering);
        false
    }
}

// SAFETY: only the initiator writes the order, before it sends, and only threads with a message read it; everything else consists
// of atomics. What the order points to may be used on any thread: see `prepare`.
unsafe impl Send for Operation {}
// SAFETY: as for `Send`: only the initiator writes the order, before it sends, and only threads with a message read it.
unsafe impl Sync for Operation {}
// SAFETY: a node consists of atomics and of a pointer to its operation.
unsafe impl Send for Node {}
// SAFETY: a node consists of atomics and of a pointer to its operation.
unsafe impl Sync for Node {}
