//! One operation: its receivers, its nodes, and how messages go out.

use stillpoint_multicast::{Cut, Strategy};

use super::world::{Line, Step, World};

/// A message: "execute a barrier, and serve the receivers of this node".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) initiator: usize,
    pub(super) node: usize,
}

/// How an operation spreads and comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// As the kernel's `smp_call_function_many` does: first all queues, then all interrupts, with a command for each
    /// cluster of `cluster` CPUs, then a wait for each receiver's flag in turn. With `every`, receivers whose queue
    /// was not empty are interrupted, too.
    Kernel { cluster: usize, every: bool },
    /// Along a tree; acknowledgements combine on it, or count down one shared counter.
    Tree { strategy: Strategy, shared_counter: bool },
}

/// What one receiver, or the initiator, has to do in an operation.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Node {
    pub(super) begin: u32,
    pub(super) end: u32,
    pub(super) parent: usize,
    pub(super) pending: u32,
    pub(super) line: Line,
    /// Barriers executed for it; one when the operation ends.
    pub(super) executed: u32,
    /// Its flag, for the kernel's way.
    pub(super) done: bool,
}

/// The operation that a CPU has under way as the initiator.
#[derive(Debug)]
pub(super) struct Operation {
    initiator: usize,
    pub(super) way: Way,
    /// The time of the work that each receiver is asked to do, in nanoseconds.
    pub(super) work: f64,
    pub(super) receivers: Vec<usize>,
    /// A node for each receiver, and the initiator's node as the last one.
    pub(super) nodes: Vec<Node>,
}

impl Operation {
    pub(super) fn of(initiator: usize) -> Self {
        Self {
            initiator,
            way: Way::Kernel { cluster: 1, every: false },
            work: 0.0,
            receivers: Vec::new(),
            nodes: Vec::new(),
        }
    }

    /// Begins a new operation, which asks the receivers, in this order, for `work` nanoseconds each.
    pub(super) fn begin(&mut self, way: Way, work: f64, receivers: &[usize]) {
        self.way = way;
        self.work = work;
        self.receivers.clear();
        self.receivers.extend_from_slice(receivers);
        let count = receivers.len();
        self.nodes.clear();
        self.nodes.resize(count + 1, Node { line: Line::of(self.initiator), ..Node::default() });
        // The initiator's own acknowledgement, or that of every receiver.
        self.nodes[count].pending = if self.has_shared_counter() { count as u32 } else { 1 };
        self.nodes[count].end = count as u32;
    }

    /// The initiator's own node.
    pub(super) fn root(&self) -> usize {
        self.receivers.len()
    }

    /// Whether one counter, that of the root, takes all acknowledgements.
    fn has_shared_counter(&self) -> bool {
        matches!(self.way, Way::Tree { shared_counter: true, .. })
    }

    /// The node whose counter takes the acknowledgement of this one.
    pub(super) fn counter_of(&self, node: usize) -> usize {
        if self.has_shared_counter() { self.root() } else { node }
    }

    /// Whether all acknowledgements have come.
    pub(super) fn is_complete(&self) -> bool {
        match self.way {
            Way::Kernel { .. } => self.nodes[..self.root()].iter().all(|node| node.done),
            Way::Tree { .. } => self.nodes[self.root()].pending == 0,
        }
    }

    /// Why the operation should not have ended in this state, if there is a reason.
    pub(super) fn fault(&self) -> Option<String> {
        let executed = self.nodes[..self.root()].iter().map(|node| node.executed);
        if let Some(wrong) = executed.clone().find(|&times| times != 1) {
            return Some(format!("a receiver executed its barrier {wrong} times"));
        }
        (!self.is_complete()).then(|| "the operation ended before all acknowledgements".to_owned())
    }
}

/// How far a CPU has come that serves a range of receivers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sending {
    begin: u32,
    end: u32,
    stage: Stage,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    Next,
    Pushing(usize),
    Commanding(usize),
}

impl Sending {
    pub(super) fn new(node: &Node) -> Self {
        Self { begin: node.begin, end: node.end, stage: Stage::Next }
    }

    /// Whether its next step is a push onto a receiver's queue.
    pub(super) fn pushes(&self) -> bool {
        matches!(self.stage, Stage::Pushing(_))
    }
}

impl World<'_> {
    /// The next step of a CPU that serves the range of `sender`, its own node in the operation.
    pub(super) fn send(&mut self, cpu: usize, sender: Message, sending: &mut Sending) -> Step {
        let initiator = sender.initiator;
        let Way::Tree { strategy, shared_counter } = self.operations[initiator].way else {
            return Step::Ends;
        };
        loop {
            match sending.stage {
                Stage::Next => {
                    let Some(Cut { child, end }) = strategy.cut(sending.begin, sending.end) else {
                        return Step::Ends;
                    };
                    let operation = &mut self.operations[initiator];
                    operation.nodes[child as usize] = Node {
                        begin: child + 1,
                        end,
                        parent: sender.node,
                        pending: 1,
                        line: Line::of(cpu),
                        ..Node::default()
                    };
                    if !shared_counter {
                        operation.nodes[sender.node].pending += 1;
                    }
                    let receiver = operation.receivers[child as usize];
                    sending.end = child;
                    sending.stage = Stage::Pushing(child as usize);
                    let push = self.distance(cpu, receiver).of(self.machine.nanoseconds.push);
                    return Step::Takes(self.cost(cpu, push));
                }
                Stage::Pushing(node) => {
                    let receiver = self.operations[initiator].receivers[node];
                    sending.stage = Stage::Next;
                    if self.push(receiver, Message { initiator, node }) {
                        sending.stage = Stage::Commanding(receiver);
                        return Step::Takes(self.cost(cpu, self.machine.nanoseconds.interrupt_send));
                    }
                }
                Stage::Commanding(receiver) => {
                    self.interrupt(cpu, [receiver]);
                    sending.stage = Stage::Next;
                }
            }
        }
    }
}
