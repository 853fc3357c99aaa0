//! Sending, processing, acknowledging, helping. This code may run in a signal handler: it uses only atomics and system calls.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::{self, NonNull};

use super::mailbox::{ring, Posted};
use super::operation::{Message, Node, Operation, Order, SLEEPING};
use super::Core;
use crate::busted::{self, Variant};
use crate::orders;
use crate::plan::Acknowledgement;
use crate::transport::Transport;
use stillpoint_sys::sync::atomic::Ordering;
use stillpoint_sys::work::step;

/// A sender.
#[derive(Debug, Clone, Copy)]
struct Sender<'o> {
    /// The node that gets the acknowledgements.
    node: &'o Node,
    /// The number of messages on the way to the sender.
    depth: u32,
    /// The number of messages that were sent one after the other before the sender's first one.
    path: u32,
}

impl<T: Transport> Core<T> {
    /// Sends to all receivers. Returns the number of messages that the initiator sent.
    pub(super) fn forward_all(&self, operation: &Operation, order: &Order) -> u32 {
        let root = Sender { node: operation.root(), depth: 0, path: 0 };
        self.forward(operation, order, root, (0, order.receivers))
    }

    /// Sends to a range that belongs to the caller, and to the ranges of receivers that have left. Returns the number of messages. A loop, not
    /// recursive: of those who have left, each may have been about to forward to the next, and a signal handler has a small stack.
    ///
    /// The sender has not acknowledged, so the operation stays.
    fn forward(
        &self,
        operation: &Operation,
        order: &Order,
        from: Sender<'_>,
        (mut begin, mut end): (u32, u32),
    ) -> u32 {
        let mut sent = 0;
        // Nodes of receivers that have left, linked by `next`: each keeps what was left to send when its range took precedence.
        let mut left: *mut Node = ptr::null_mut();
        let pending = (order.acknowledgement == Acknowledgement::Combining).then(|| from.node.pending());
        // Relaxed for increments and decrements: the caller's own part keeps the count above 0, and the child's acknowledgement
        // comes after the message.
        let count = |change: u32| pending.map(|pending| pending.fetch_add(change, Ordering::Relaxed));
        loop {
            let Some(cut) = order.strategy.cut(begin, end) else {
                // SAFETY: the operation stays, and with it its nodes.
                let Some(node) = (unsafe { left.as_ref() }) else { return sent };
                // SAFETY: the range of a node that is linked here was claimed by this thread.
                let rest = unsafe { node.message() };
                (begin, end) = (rest.begin, rest.end);
                left = node.next();
                continue;
            };
            end = cut.child;
            sent += 1;
            // SAFETY: the operation stays.
            let child = unsafe { order.node(cut.child) };
            let message = Message {
                parent: from.node,
                begin: cut.child + 1,
                end: cut.end,
                depth: from.depth + 1,
                path: from.path + sent,
            };
            // SAFETY: the range belongs to the caller, and each of its nodes is sent once.
            unsafe { child.write(message) };
            let late = busted::is(Variant::CountLate);
            if !late {
                count(1);
            }
            let is_sent = self.send(child);
            if late {
                count(1);
            }
            if !is_sent {
                // The receiver has left. The caller forwards its range, unless a helper has claimed it.
                operation.count_adopted();
                if child.claim() && !busted::is(Variant::NotAdopted) {
                    // SAFETY: claimed by this thread, and it is in no mailbox.
                    unsafe { child.keep(Message { begin, end, ..message }) };
                    child.set_next(left);
                    left = ptr::from_ref(child).cast_mut();
                    (begin, end) = (message.begin, message.end);
                }
                child.set_done();
                match pending {
                    Some(_) => _ = count(1u32.wrapping_neg()),
                    // Not the last one: the caller's own part is counted.
                    None => _ = count_down_root(operation, order),
                }
            }
        }
    }

    /// Posts the message, and notifies the receiver if it is the first one. False if the receiver has left.
    fn send(&self, node: &Node) -> bool {
        // SAFETY: the caller is about to send to it.
        let receiver = unsafe { node.receiver() };
        match receiver.mailbox.post(node) {
            Posted::Closed => return false,
            // The receiver has the node now. If it has left meanwhile, the id may be invalid, or another thread's. That does no
            // harm.
            Posted::First => self.transport.notify(receiver.tid()),
            Posted::Queued => {}
        }
        true
    }

    /// Does the receiver's part: forwards, runs the function, and acknowledges.
    pub(super) fn process(&self, received: NonNull<Node>) {
        // SAFETY: sent to the caller, and not acknowledged before the end of this function.
        let (node, operation) = unsafe { (received.as_ref(), received.as_ref().operation()) };
        // SAFETY: sent to the caller, and not acknowledged before the end of this function.
        let (order, message) = unsafe { (operation.order(), node.message()) };
        if busted::is(Variant::AckEarly) {
            // SAFETY: a broken variant.
            _ = unsafe { acknowledge(operation, &order, received) };
        }
        if node.claim() {
            let sender = Sender { node, depth: message.depth, path: message.path };
            self.forward(operation, &order, sender, (message.begin, message.end));
        }
        self.call(operation, &order);
        if !busted::is(Variant::AckEarly) {
            node.set_done();
            // SAFETY: this is the last use of the node.
            let is_last = unsafe { acknowledge(operation, &order, received) };
            // Otherwise the function might never be dropped: it may keep the group alive. A signal handler must not free anything.
            if is_last && T::CATCHES {
                self.operations.settle(operation);
            }
        }
    }

    /// Runs the function.
    pub(super) fn call(&self, operation: &Operation, order: &Order) {
        // SAFETY: the initiator has promised that it may be called until the operation is over.
        let function = || unsafe { (order.call.function)(order.call.data) };
        if !T::CATCHES {
            return function();
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(function)) {
            operation.keep_panic(panic);
        }
    }

    /// Claims a range that its receiver has not claimed, and forwards it. Returns the number of messages, 0 if there is no such
    /// range. `sent` is the number of messages that the initiator has sent before.
    ///
    /// The search begins at receiver `next`, and sets it for the next call. Messages go to receivers with higher numbers, so one
    /// round finds all ranges that the initiator itself opens.
    ///
    /// For the initiator only: its messages are counted in the root, whose count its own part keeps above 0.
    pub(super) fn help(&self, operation: &Operation, order: &Order, sent: u32, next: &mut u32) -> u32 {
        // SAFETY: the caller is the initiator.
        let node = |number| unsafe { order.node(number) };
        let mut numbers = (*next..order.receivers).chain(0..*next).inspect(|_| step());
        let Some(number) = numbers.find(|&number| node(number).claim()) else { return 0 };
        *next = number + 1;
        let node = node(number);
        // SAFETY: claimed above, by the initiator.
        let message = unsafe { node.message() };
        let under = if busted::is(Variant::HelpUnderHelped) { node } else { operation.root() };
        let sender = Sender { node: under, depth: 0, path: sent };
        self.forward(operation, order, sender, (message.begin, message.end))
    }
}

/// Acknowledges the receiver's part. The last acknowledgement below a node also acknowledges the node. Returns whether it was the
/// last one of an operation that was given up.
///
/// # Safety
/// The node's part is not acknowledged. The node must not be used after the call.
unsafe fn acknowledge(operation: &Operation, order: &Order, received: NonNull<Node>) -> bool {
    let root = ptr::from_ref(operation.root());
    let mut node = received.as_ptr().cast_const();
    while order.acknowledgement == Acknowledgement::Combining && node != root {
        // SAFETY: the node's count includes 1 for the caller.
        let parent = unsafe { (*node).message() }.parent;
        // SAFETY: the node's count includes 1 for the caller until this decrement. After it, the node may be gone.
        if unsafe { (*node).pending() }.fetch_sub(1, orders::acknowledge()) != 1 {
            return false;
        }
        node = parent;
    }
    count_down_root(operation, order)
}

/// Decrements the count for which the initiator waits, and wakes the initiator if this was the last acknowledgement. Returns whether
/// it was that, and the initiator had given up.
fn count_down_root(operation: &Operation, order: &Order) -> bool {
    let before = operation.root().pending().fetch_sub(1, orders::acknowledge());
    if before == SLEEPING | 2 {
        // The initiator may have woken for another reason and ended the operation, which may have another initiator now. The bell
        // still exists, and rings for nothing.
        // SAFETY: the group is alive: the caller is a member, or starts a multicast.
        ring(unsafe { order.bell() });
    }
    before == 1
}
