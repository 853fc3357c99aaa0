//! The receiver's side: what runs in an interrupt.

use super::operation::{Message, Node, Sending, Way};
use super::world::{Step, World};

/// The handler of an interrupt, which serves all messages that it finds.
#[derive(Debug)]
pub(super) struct Handler {
    began: f64,
    messages: Vec<Message>,
    next: usize,
    /// The number of cache lines of other CPUs that it touched.
    pub(super) lines: u32,
    stage: Stage,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
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
        Self { began: now, messages: Vec::new(), next: 0, lines: 0, stage: Stage::Enters }
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
                Stage::Enters => {
                    handler.stage = Stage::Entered;
                    return Step::Takes(self.cost(cpu, times.interrupt_enter));
                }
                Stage::Entered => {
                    // Touches the head of the queue.
                    handler.lines += 1;
                    handler.messages = std::mem::take(&mut self.cpus[cpu].queue);
                    handler.stage = Stage::NextMessage;
                }
                Stage::NextMessage => match handler.messages.get(handler.next) {
                    Some(&message) => {
                        handler.next += 1;
                        // Touches the message.
                        handler.lines += 1;
                        let node = &self.operations[message.initiator].nodes[message.node];
                        handler.stage = Stage::Sends(message, Sending::new(node));
                    }
                    None => {
                        handler.stage = Stage::Left;
                        return Step::Takes(self.cost(cpu, times.interrupt_exit));
                    }
                },
                Stage::Sends(message, mut sending) => match self.send(cpu, message, &mut sending) {
                    Step::Ends => {
                        handler.stage = Stage::Executed(message);
                        return Step::Takes(self.cost(cpu, self.operations[message.initiator].work));
                    }
                    step => {
                        if sending.pushes() {
                            // Touches the receiver's queue.
                            handler.lines += 1;
                        }
                        handler.stage = Stage::Sends(message, sending);
                        return step;
                    }
                },
                Stage::Executed(message) => {
                    let operation = &mut self.operations[message.initiator];
                    operation.nodes[message.node].executed += 1;
                    if let Way::Kernel { .. } = operation.way {
                        handler.stage = Stage::Flagged(message);
                        let flag = self.distance(cpu, message.initiator).of(times.atomic);
                        return Step::Takes(self.cost(cpu, flag));
                    }
                    handler.stage = Stage::Counts(message);
                }
                Stage::Flagged(message) => {
                    self.operations[message.initiator].nodes[message.node].done = true;
                    self.wake(message.initiator);
                    handler.stage = Stage::NextMessage;
                }
                Stage::Counts(message) => {
                    handler.stage = Stage::Counted(message);
                    handler.lines += 1;
                    return Step::Takes(self.count(cpu, message));
                }
                Stage::Counted(message) => {
                    handler.stage = match self.counted(message) {
                        Some(parent) => Stage::Counts(parent),
                        None => Stage::NextMessage,
                    };
                }
                Stage::Left => {
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
