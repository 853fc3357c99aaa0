//! A multicast under way: what is to be run, and a node for each receiver. Operations are used again and never freed
//! before their group: after a time limit, nodes may still lie in mailboxes.

use std::any::Any;
use std::panic::catch_unwind;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32 as PlainU32, AtomicUsize as PlainUsize};

use super::slots::Slot;
use super::{Options, PLAIN};
use crate::busted::{self, Variant};
use crate::orders;
use crate::plan::{rotation, Strategy};
use crate::run::Acknowledgement;
use stillpoint_sys::panics::discard;
use stillpoint_sys::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use stillpoint_sys::sync::UnsafeCell;
use stillpoint_sys::work::step;

/// In `range`: nobody has been told of the range yet.
const UNSENT: u32 = 0;
/// In `range`: whoever claims it forwards the range.
const OPEN: u32 = 1;
/// In `range`: it has been claimed, or is empty.
const CLAIMED: u32 = 2;
/// In `range`: the same, and the receiver's own part is done, or the receiver had left.
const DONE: u32 = 3;

/// In the count of a root: the initiator sleeps.
pub(super) const SLEEPING: u32 = 1 << 31;

/// An operation has room for a multiple of so many receivers.
const ROOM: usize = if cfg!(loom) { 4 } else { 16 };

/// In `state`: nobody uses the operation.
const FREE: u32 = 0;
/// In `state`: it belongs to an initiator.
const BUSY: u32 = 1;
/// In `state`: its initiator has given up waiting. It is free when its count is 0.
const LINGERING: u32 = 2;

/// The part of one receiver in one multicast.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Node {
    /// In a mailbox: the message that was posted before.
    next: AtomicPtr<Node>,
    operation: NonNull<Operation>,
    /// Written by the initiator before the first message, read by who sends to the receiver.
    receiver: UnsafeCell<*const Slot>,
    /// Written by who sends, read by the receiver and by who has claimed the range.
    message: UnsafeCell<Message>,
    /// [`UNSENT`], [`OPEN`], [`CLAIMED`] or [`DONE`].
    range: AtomicU32,
    /// 1 for the receiver's own part, and 1 for each child that is not done. In the root: 1 for the initiator, the same
    /// or 1 for each receiver, and [`SLEEPING`].
    pending: AtomicU32,
}

/// What a receiver is told, or an initiator sends by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    /// Who is told when everything below the node is done; null in the root.
    pub(super) parent: *const Node,
    /// The range that is delegated to the receiver.
    pub(super) begin: u32,
    pub(super) end: u32,
    /// Messages on the way to the receiver.
    pub(super) depth: u32,
    /// Messages that were sent one after the other before it was reached.
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
        // Relaxed, here and below: it comes to the receiver with the head of the mailbox.
        self.next.load(Ordering::Relaxed)
    }

    pub(super) fn set_next(&self, next: *mut Node) {
        self.next.store(next, Ordering::Relaxed);
    }

    /// # Safety
    /// The node's part in its operation is not acknowledged, or the operation is the caller's.
    pub(super) unsafe fn operation<'o>(&self) -> &'o Operation {
        // SAFETY: operations are freed with their group alone, which has no mailboxes then.
        unsafe { self.operation.as_ref() }
    }

    /// # Safety
    /// The node is one of the operation's receivers, whose part is not acknowledged, or the operation is the caller's.
    pub(super) unsafe fn receiver<'o>(&self) -> &'o Slot {
        // SAFETY: written by the initiator before; places are freed with the group alone.
        self.receiver.with(|receiver| unsafe { &**receiver })
    }

    /// # Safety
    /// The caller has got the message, or has claimed its range; and the node's part is not acknowledged, or the
    /// operation is the caller's.
    pub(super) unsafe fn message(&self) -> Message {
        // SAFETY: written before the message was sent, and the range opened.
        self.message.with(|message| unsafe { *message })
    }

    /// Writes the message.
    ///
    /// # Safety
    /// The node is in a range that the caller has claimed, and was not sent yet.
    pub(super) unsafe fn write(&self, message: Message) {
        // SAFETY: nobody else looks at it before it is sent, or its range is open.
        self.message.with_mut(|cell| unsafe { *cell = message });
        // Relaxed: comes with the message.
        self.pending.store(1, Ordering::Relaxed);
        // Release: pairs with the acquire in `claim`, by a helper, who has not got the message.
        self.range.store(if message.begin < message.end { OPEN } else { CLAIMED }, Ordering::Release);
    }

    /// Makes the range the caller's, unless it is somebody else's already, or empty, or not delegated yet.
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

    /// Whether the range has been forwarded, or is being.
    pub(super) fn is_claimed(&self) -> bool {
        // Relaxed: a hint.
        self.range.load(Ordering::Relaxed) >= CLAIMED
    }

    /// Says that the receiver's own part is done, for reports. The range is claimed.
    pub(super) fn set_done(&self) {
        // Relaxed: for reports.
        self.range.store(DONE, Ordering::Relaxed);
    }

    pub(super) fn pending(&self) -> &AtomicU32 {
        &self.pending
    }
}

/// What is to be run: a function, by its address and that of its data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) function: unsafe fn(*const ()),
    pub(crate) data: *const (),
    /// Gives the data back, if the operation owns them.
    pub(crate) release: Option<unsafe fn(*const ())>,
}

impl Call {
    /// A function that the caller keeps until the operation is over.
    pub(crate) fn borrowed<F: Fn() + Sync>(function: &F) -> Self {
        Self { function: call::<F>, data: ptr::from_ref(function).cast(), release: None }
    }

    /// A function that is the operation's.
    pub(crate) fn owned<F: Fn() + Send + Sync + 'static>(function: F) -> Self {
        let data = Box::into_raw(Box::new(function)).cast_const().cast();
        Self { function: call::<F>, data, release: Some(release::<F>) }
    }
}

/// # Safety
/// The data are an `F`, which may be called on this thread.
unsafe fn call<F: Fn()>(data: *const ()) {
    // SAFETY: the caller's promise.
    unsafe { (*data.cast::<F>())() }
}

/// # Safety
/// The data come from `Box::into_raw` of an `F`, and are not used any more.
unsafe fn release<F>(data: *const ()) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(data.cast_mut().cast::<F>()) });
}

/// What every receiver reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    /// Resolved for the number of receivers.
    pub(super) strategy: Strategy,
    pub(super) acknowledgement: Acknowledgement,
    pub(super) call: Call,
    pub(super) receivers: u32,
    /// Where in the list of receivers their numbers begin.
    rotation: u32,
    nodes: *const Node,
    /// Where the initiator sleeps.
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
        // SAFETY: `prepare` made room for that many, which is not replaced while the operation is under way.
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
    /// The initiator's to replace while nobody has a message.
    nodes: UnsafeCell<Box<[Node]>>,
    pub(super) number: u32,
    own_bell: AtomicU32,
    /// Receivers that had left. Counted by who sends, and told to the initiator by the acknowledgements.
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
        // SAFETY: it came from `into_raw`, and was taken out by this exchange alone.
        (!panic.is_null()).then(|| *unsafe { Box::from_raw(panic) })
    }
}

/// For the initiator.
impl Operation {
    /// Writes down who takes part, and what is to be done. `bell` is where the initiator sleeps.
    ///
    /// # Safety
    /// The operation is the caller's. The function may be called with its data, on any thread, until the operation is
    /// free again. The bell lives as long as the group.
    pub(super) unsafe fn prepare<'s>(
        &self,
        receivers: impl Iterator<Item = &'s Slot> + Clone,
        bell: Option<&AtomicU32>,
        options: Options,
        call: Call,
    ) -> Order {
        // SAFETY: nobody has a message of the operation, so that nobody looks at the nodes.
        let nodes = self.nodes.with_mut(|nodes| unsafe { &mut *nodes });
        let count = loop {
            let (mut count, mut receivers) = (0, receivers.clone());
            for (node, slot) in nodes.iter().zip(&mut receivers) {
                // SAFETY: as above.
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
        // SAFETY: the caller has the operation to itself.
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

    /// Gives back what the operation owns.
    ///
    /// # Safety
    /// The operation is the caller's, and every receiver has acknowledged.
    pub(super) unsafe fn clear(&self) {
        // SAFETY: the caller has the operation to itself.
        let order = self.order.with_mut(|order| unsafe { (*order).take() });
        if let Some(Call { release: Some(release), data, .. }) = order.map(|order| order.call) {
            // A panic of its destructor would be one of whoever uses the operation next. It goes no further.
            // SAFETY: nobody calls the function any more.
            let released = catch_unwind(|| unsafe { release(data) });
            released.unwrap_or_else(discard);
        }
        // One that came after its initiator had given up: nobody else is to get it.
        self.take_panic().into_iter().for_each(discard);
    }

    /// Ends an operation that every receiver has acknowledged.
    ///
    /// # Safety
    /// As for [`clear`](Operation::clear).
    pub(super) unsafe fn finish(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.clear() };
        self.state.store(FREE, orders::finish());
    }

    /// Leaves the operation to whoever acknowledges last, and to who [claims](Self::try_claim) it after that, or
    /// [resumes](Self::try_resume) it before. False if everybody has acknowledged: then it is the caller's as before.
    pub(super) fn abandon(&self) -> bool {
        // AcqRel, on success: as an acknowledgement. Acquire, on failure: as in `is_complete`.
        let (left, whole) = (Ordering::AcqRel, Ordering::Acquire);
        let others = |pending: u32| (pending != 1).then(|| pending - 1);
        if self.root.pending.fetch_update(left, whole, others).is_err() {
            return false;
        }
        // Release: pairs with the acquire in `try_claim` and `try_resume`.
        self.state.store(LINGERING, Ordering::Release);
        true
    }

    /// Makes an operation that lingers the caller's, who waits in its initiator's place. False if there is nothing to wait
    /// for.
    #[cfg_attr(any(loom, miri), allow(dead_code, reason = "for fences by signals"))]
    pub(super) fn try_resume(&self) -> bool {
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
        // The initiator's own part again. Relaxed: it continues the release sequences of the acknowledgements, which the
        // acquire in `is_complete` reads.
        let more = |pending: u32| (pending != 0).then(|| pending + 1);
        let is_under_way = self.root.pending.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if !is_under_way {
            // Release: as it was left.
            self.state.store(LINGERING, Ordering::Release);
        }
        is_under_way
    }

    /// The ids of the threads that were told, and whose part is not done. Who is to be told by one of these may have left
    /// long ago, and its place may be another thread's.
    pub(super) fn missing(&self, order: &Order) -> Vec<u32> {
        // SAFETY: the operation is the caller's.
        let nodes = (0..order.receivers).map(|number| unsafe { order.node(number) });
        // Relaxed: for reports.
        let nodes = nodes.inspect(|_| step());
        let missing = nodes.filter(|node| ![UNSENT, DONE].contains(&node.range.load(Ordering::Relaxed)));
        // SAFETY: as above. 0: it has left just now.
        missing.map(|node| unsafe { node.receiver() }.tid()).filter(|&tid| tid != 0).collect()
    }

    /// Ends an operation that lingers and that everybody has acknowledged.
    pub(super) fn give_back(&self, lingering: &PlainUsize) {
        // Relaxed: a hint.
        if self.state.load(Ordering::Relaxed) == LINGERING && self.try_claim(lingering) {
            // SAFETY: claimed above; if it had lingered, its count is 0.
            unsafe { self.finish() };
        }
    }

    /// Makes an operation that nobody uses the caller's. `lingering` is counted down if it was one of these.
    pub(super) fn try_claim(&self, lingering: &PlainUsize) -> bool {
        step();
        // Relaxed: a hint.
        let state = self.state.load(Ordering::Relaxed);
        if state == BUSY || (state == LINGERING && self.root.pending.load(orders::last_acknowledged()) != 0) {
            return false;
        }
        // Acquire: pairs with the release in `finish` and `abandon`. For one that lingers, the count is looked at again:
        // it may have been another round of the operation.
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
        // Release: as it was left.
        self.state.store(LINGERING, Ordering::Release);
        false
    }
}

// SAFETY: the order is written by the initiator alone, before it sends, and read by who has a message; everything else
// consists of atomics. What the order points to may be used on any thread: see `prepare`.
unsafe impl Send for Operation {}
// SAFETY: as above.
unsafe impl Sync for Operation {}
// SAFETY: a node consists of atomics and of a pointer to its operation.
unsafe impl Send for Node {}
// SAFETY: as above.
unsafe impl Sync for Node {}
