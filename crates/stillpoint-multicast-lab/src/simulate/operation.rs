//! One operation: its receivers, its nodes, how messages go out, and what runs in an interrupt.

use stillpoint_multicast::{Cut, Strategy};

use super::world::{Line, Step, World};

/// A message: "execute a barrier, and serve the receivers of this node".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) initiator: usize,
    pub(super) node: usize,
}

/// A cluster of all CPUs, whatever their sockets.
pub(super) const EVERYBODY: usize = usize::MAX;

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
                    let receiver = operation.receivers[child as usize];
                    sending.end = child;
                    sending.stage = Stage::Pushing(child as usize);
                    let push = self.distance(cpu, receiver).of(self.machine.nanoseconds.push);
                    let mut takes = self.cost(cpu, push);
                    if !shared_counter {
                        // The child counts in the sender's node, before the child is told.
                        self.operations[initiator].nodes[sender.node].pending += 1;
                        let node = sender.node;
                        takes += self.atomic(cpu, |world| &mut world.operations[initiator].nodes[node].line);
                    }
                    return Step::Takes(takes);
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

/// The handler of an interrupt, which serves all messages that it finds.
#[derive(Debug)]
pub(super) struct Handler {
    began: f64,
    messages: Vec<Message>,
    next: usize,
    /// The number of cache lines of other CPUs that it touched.
    pub(super) lines: u32,
    stage: Handling,
}

#[derive(Debug, Clone, Copy)]
enum Handling {
    Enters,
    Entered,
    NextMessage,
    Sends(Message, Sending),
    /// The barrier is executed.
    Executed(Message),
    /// The flag of the kernel's way is written.
    Flagged(Message),
    /// The counter of a node, or the shared one, is counted down.
    Counts(Message),
    Counted(Message),
    Left,
}

impl Handler {
    pub(super) fn new(now: f64) -> Self {
        Self { began: now, messages: Vec::new(), next: 0, lines: 0, stage: Handling::Enters }
    }
}

impl World<'_> {
    /// The next step of the handler on this CPU.
    pub(super) fn handle(&mut self, cpu: usize) -> Step {
        let Some(mut handler) = self.cpus[cpu].handler.take() else { return Step::Ends };
        let step = self.step(cpu, &mut handler);
        self.cpus[cpu].handler = Some(handler);
        step
    }

    fn step(&mut self, cpu: usize, handler: &mut Handler) -> Step {
        let times = self.machine.nanoseconds;
        loop {
            match handler.stage {
                Handling::Enters => {
                    handler.stage = Handling::Entered;
                    return Step::Takes(self.cost(cpu, times.interrupt_enter));
                }
                Handling::Entered => {
                    // Touches the head of the queue.
                    handler.lines += 1;
                    handler.messages = std::mem::take(&mut self.cpus[cpu].queue);
                    handler.stage = Handling::NextMessage;
                }
                Handling::NextMessage => match handler.messages.get(handler.next) {
                    Some(&message) => {
                        handler.next += 1;
                        // Touches the message.
                        handler.lines += 1;
                        let node = &self.operations[message.initiator].nodes[message.node];
                        handler.stage = Handling::Sends(message, Sending::new(node));
                    }
                    None => {
                        handler.stage = Handling::Left;
                        return Step::Takes(self.cost(cpu, times.interrupt_exit));
                    }
                },
                Handling::Sends(message, mut sending) => match self.send(cpu, message, &mut sending) {
                    Step::Ends => {
                        handler.stage = Handling::Executed(message);
                        return Step::Takes(self.cost(cpu, self.operations[message.initiator].work));
                    }
                    step => {
                        if sending.pushes() {
                            // Touches the receiver's queue.
                            handler.lines += 1;
                        }
                        handler.stage = Handling::Sends(message, sending);
                        return step;
                    }
                },
                Handling::Executed(message) => {
                    let operation = &mut self.operations[message.initiator];
                    operation.nodes[message.node].executed += 1;
                    if let Way::Kernel { .. } = operation.way {
                        handler.stage = Handling::Flagged(message);
                        let flag = self.distance(cpu, message.initiator).of(times.atomic);
                        return Step::Takes(self.cost(cpu, flag));
                    }
                    handler.stage = Handling::Counts(message);
                }
                Handling::Flagged(message) => {
                    self.operations[message.initiator].nodes[message.node].done = true;
                    self.wake(message.initiator);
                    handler.stage = Handling::NextMessage;
                }
                Handling::Counts(message) => {
                    handler.stage = Handling::Counted(message);
                    handler.lines += 1;
                    return Step::Takes(self.count(cpu, message));
                }
                Handling::Counted(message) => {
                    handler.stage = match self.counted(message) {
                        Some(parent) => Handling::Counts(parent),
                        None => Handling::NextMessage,
                    };
                }
                Handling::Left => {
                    self.cpus[cpu].handling += self.now - handler.began;
                    self.disturb(cpu, handler.lines);
                    return Step::Ends;
                }
            }
        }
    }

    /// The time of the decrement that acknowledges this node.
    pub(super) fn count(&mut self, cpu: usize, Message { initiator, node }: Message) -> f64 {
        let counter = self.operations[initiator].counter_of(node);
        self.atomic(cpu, |world| &mut world.operations[initiator].nodes[counter].line)
    }

    /// The effect of the decrement: the node to acknowledge next, if this was the last one below it.
    pub(super) fn counted(&mut self, Message { initiator, node }: Message) -> Option<Message> {
        let operation = &mut self.operations[initiator];
        let (counter, root) = (operation.counter_of(node), operation.root());
        let Node { pending, parent, .. } = &mut operation.nodes[counter];
        let (parent, enough) = (*parent, *pending > 0);
        *pending = pending.saturating_sub(1);
        let is_last = *pending == 0;
        self.check(enough, || format!("CPU {initiator}'s operation was acknowledged too often"));
        if is_last && counter == root {
            self.wake(initiator);
        }
        (is_last && counter != root).then_some(Message { initiator, node: parent })
    }
}
