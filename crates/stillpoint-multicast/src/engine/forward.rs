//! Sending, processing, acknowledging, helping. What runs here may run in a signal handler: atomics, system calls, and
//! nothing else.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::{self, NonNull};

use super::mailbox::{ring, Posted};
use super::operation::{Message, Node, Operation, Order, SLEEPING};
use super::Core;
use crate::busted::{self, Variant};
use crate::orders;
use crate::run::Acknowledgement;
use crate::transport::Transport;
use stillpoint_sys::sync::atomic::Ordering;
use stillpoint_sys::work::step;

/// Who sends.
#[derive(Debug, Clone, Copy)]
struct Sender<'o> {
    /// Where acknowledgements go to.
    node: &'o Node,
    /// Messages on the way to the sender.
    depth: u32,
    /// Messages that come before the sender's first one.
    path: u32,
}

impl<T: Transport> Core<T> {
    /// Sends to everybody. Returns the number of messages that the initiator sent.
    pub(super) fn forward_all(&self, operation: &Operation, order: &Order) -> u32 {
        let root = Sender { node: operation.root(), depth: 0, path: 0 };
        self.forward(operation, order, root, (0, order.receivers))
    }

    /// Sends to a range that is the caller's. Returns the number of messages.
    ///
    /// Who sends has not acknowledged itself, so that the operation stays.
    fn forward(
        &self,
        operation: &Operation,
        order: &Order,
        from: Sender<'_>,
        (begin, mut end): (u32, u32),
    ) -> u32 {
        let mut sent = 0;
        let pending = (order.acknowledgement == Acknowledgement::Combining).then(|| from.node.pending());
        // Relaxed, in both directions: the caller's own part keeps the count above 0, and whoever counts down the child
        // comes after the message.
        let count = |change: u32| pending.map(|pending| pending.fetch_add(change, Ordering::Relaxed));
        while let Some(cut) = order.strategy.cut(begin, end) {
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
            // SAFETY: the range is the caller's, and each of its nodes is sent once.
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
                // The receiver has left. What it would have forwarded is the caller's, unless it is a helper's.
                operation.count_adopted();
                if child.claim() && !busted::is(Variant::NotAdopted) {
                    let from = Sender { path: message.path, ..from };
                    sent += self.forward(operation, order, from, (message.begin, message.end));
                }
                child.set_done();
                match pending {
                    Some(_) => _ = count(1u32.wrapping_neg()),
                    None => count_down_root(operation, order),
                }
            }
        }
        sent
    }

    /// Posts the message, and tells the receiver if need be. False if it has left.
    fn send(&self, node: &Node) -> bool {
        // SAFETY: the caller is about to send to it.
        let receiver = unsafe { node.receiver() };
        match receiver.mailbox.post(node) {
            Posted::Closed => return false,
            // The node is the receiver's now. If that one has left meanwhile, the id is out of date, or another
            // thread's: this does no harm.
            Posted::First => self.transport.notify(receiver.tid()),
            Posted::Queued => {}
        }
        true
    }

    /// Does the receiver's part.
    pub(super) fn process(&self, received: NonNull<Node>) {
        // SAFETY: sent to the caller, and not acknowledged before the end of this function.
        let (node, operation) = unsafe { (received.as_ref(), received.as_ref().operation()) };
        // SAFETY: as above.
        let (order, message) = unsafe { (operation.order(), node.message()) };
        if busted::is(Variant::AckEarly) {
            // SAFETY: a broken variant.
            unsafe { acknowledge(operation, &order, received) };
        }
        if node.claim() {
            let sender = Sender { node, depth: message.depth, path: message.path };
            self.forward(operation, &order, sender, (message.begin, message.end));
        }
        self.call(operation, &order);
        if !busted::is(Variant::AckEarly) {
            node.set_done();
            // SAFETY: this is the last use of the node.
            unsafe { acknowledge(operation, &order, received) };
        }
    }

    /// Runs the function.
    pub(super) fn call(&self, operation: &Operation, order: &Order) {
        // SAFETY: who starts a multicast vouches for it until the operation is over.
        let function = || unsafe { (order.call.function)(order.call.data) };
        if !T::CATCHES {
            return function();
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(function)) {
            operation.keep_panic(panic);
        }
    }

    /// Takes a range over that its receiver has not come to. Returns the number of messages sent, 0 if there is none.
    /// The initiator has sent `sent` before.
    ///
    /// It looks from receiver `next` on, and leaves there where to look next time: what is sent goes to receivers with
    /// higher numbers, so that one round finds all the ranges that the initiator opens itself.
    ///
    /// For the initiator: what it sends hangs under the root, whose count its own part keeps above 0.
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

/// Says that the receiver's part is done. The last one below a node does so for the node.
///
/// # Safety
/// The node's part is not acknowledged. It must not be used any more.
unsafe fn acknowledge(operation: &Operation, order: &Order, received: NonNull<Node>) {
    let root = ptr::from_ref(operation.root());
    let mut node = received.as_ptr().cast_const();
    while order.acknowledgement == Acknowledgement::Combining && node != root {
        // SAFETY: the node's count holds 1 for the caller.
        let parent = unsafe { (*node).message() }.parent;
        // SAFETY: as above. After it, the node may be gone.
        if unsafe { (*node).pending() }.fetch_sub(1, orders::acknowledge()) != 1 {
            return;
        }
        node = parent;
    }
    count_down_root(operation, order);
}

/// Counts down what the initiator waits for, and wakes it if it was the last one.
fn count_down_root(operation: &Operation, order: &Order) {
    if operation.root().pending().fetch_sub(1, orders::acknowledge()) == SLEEPING | 2 {
        // The operation may be over, and another initiator's, since its own has woken for another reason; the bell is
        // there nevertheless, and rings in vain.
        // SAFETY: the group is alive: the caller is a member, or starts a multicast.
        ring(unsafe { order.bell() });
    }
}
