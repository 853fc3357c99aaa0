//! The initiator's side: one operation after the other.

use super::contender::Contender;
use super::operation::{EVERYBODY, Message, Operation, Sending, Way};
use super::world::{Step, World};

/// When an initiator begins an operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Pace {
    /// This many operations, one right after the other.
    Operations(usize),
    /// `count` grace periods, which begin at least `apart` nanoseconds after each other. Each has `operations`
    /// operations, and after each operation a look at every reader's record.
    GracePeriods { count: usize, apart: f64, operations: u32 },
}

/// The measurements of an initiator that has ended.
#[derive(Debug)]
pub(super) struct Measured {
    /// The latency of each operation, in nanoseconds.
    pub(super) latencies: Vec<f64>,
    /// The time at which each operation ended.
    pub(super) ends: Vec<f64>,
    pub(super) ended: f64,
}

/// What an initiator does.
#[derive(Debug)]
pub(super) struct Task {
    contender: Contender,
    /// All CPUs that run the process, neighbours side by side: the order of the trees.
    members: Vec<usize>,
    pace: Pace,
    /// Operations, or grace periods, that have begun.
    begun: usize,
    /// Operations that have begun in the current grace period.
    within: u32,
    next_begin: f64,
    operation_began: f64,
    latencies: Vec<f64>,
    ends: Vec<f64>,
    stage: Stage,
}

#[derive(Debug, Clone)]
enum Stage {
    Idle,
    Called,
    WaitsForMutex,
    Owns,
    Scanned,
    /// The kernel's way: the queue of the receiver with this number is next, and the one before it has its message.
    Queue(usize, Vec<usize>),
    /// Then the commands: the cluster whose command is written, and those that are still to be interrupted, the next one
    /// last.
    Command(Vec<usize>, Vec<Vec<usize>>),
    /// Then the wait for the flag of the receiver with this number.
    Await(usize),
    /// Along a tree: the initiator sends.
    Sends(Sending),
    Counted,
    AwaitTree,
    Over,
}

impl Task {
    pub(super) fn new(contender: Contender, members: &[usize], pace: Pace) -> Self {
        Self {
            contender,
            members: members.to_vec(),
            pace,
            begun: 0,
            within: 0,
            next_begin: 0.0,
            operation_began: 0.0,
            latencies: Vec::new(),
            ends: Vec::new(),
            stage: Stage::Idle,
        }
    }

    /// Its measurements until now.
    pub(super) fn measured(self, now: f64) -> Measured {
        Measured { latencies: self.latencies, ends: self.ends, ended: now }
    }

    /// The receivers of an operation of this CPU, in the order in which it sends to them. The kernel's own call walks
    /// a mask from the lowest CPU, whichever CPU calls.
    fn receivers(&self, cpu: usize, way: Way) -> Vec<usize> {
        if let Way::Kernel { .. } = way {
            let mut receivers: Vec<usize> =
                self.members.iter().copied().filter(|&member| member != cpu).collect();
            receivers.sort_unstable();
            return receivers;
        }
        let at = self.members.iter().position(|&member| member == cpu);
        let first = match at {
            Some(at) if !self.contender.same_order => at + 1,
            _ => 0,
        };
        let rotated = self.members.iter().cycle().skip(first).take(self.members.len());
        rotated.copied().filter(|&member| member != cpu).collect()
    }
}

impl World<'_> {
    /// The next step of the task on this CPU.
    pub(super) fn work(&mut self, cpu: usize) -> Step {
        let Some(mut task) = self.cpus[cpu].task.take() else { return Step::Ends };
        let step = self.advance(cpu, &mut task);
        if step == Step::Ends {
            self.cpus[cpu].measured = Some(task.measured(self.now));
            return step;
        }
        self.cpus[cpu].task = Some(task);
        step
    }

    fn advance(&mut self, cpu: usize, task: &mut Task) -> Step {
        let times = self.machine.nanoseconds;
        let own = Message { initiator: cpu, node: self.operations[cpu].root() };
        loop {
            match std::mem::replace(&mut task.stage, Stage::Idle) {
                Stage::Idle => match self.begin(cpu, task) {
                    Some(step) => return step,
                    None => {
                        task.operation_began = self.now;
                        task.stage = Stage::Called;
                        return Step::Takes(self.cost(cpu, times.system_call));
                    }
                },
                Stage::Called if !task.contender.mutex || self.lock(cpu) => task.stage = Stage::Owns,
                Stage::Called => task.stage = Stage::WaitsForMutex,
                Stage::WaitsForMutex if self.owns(cpu) => {
                    task.stage = Stage::Owns;
                    return Step::Takes(self.cost(cpu, times.mutex_handover));
                }
                Stage::WaitsForMutex => {
                    task.stage = Stage::WaitsForMutex;
                    return Step::Waits;
                }
                Stage::Owns => {
                    task.stage = Stage::Scanned;
                    let scan = times.scan_per_cpu * self.cpus.len() as f64;
                    let own = if task.contender.flushes { times.mprotect } else { 0.0 };
                    return Step::Takes(self.cost(cpu, own + scan));
                }
                Stage::Scanned => {
                    let others = task.members.iter().filter(|&&member| member != cpu).count();
                    let way = task.contender.way(self.machine, others);
                    let receivers = task.receivers(cpu, way);
                    let operation = &mut self.operations[cpu];
                    let work = if task.contender.flushes { times.flush } else { times.barrier };
                    operation.begin(way, work, &receivers);
                    task.stage = match way {
                        Way::Kernel { .. } => Stage::Queue(0, Vec::new()),
                        Way::Tree { .. } => Stage::Sends(Sending::new(&operation.nodes[operation.root()])),
                    };
                    return self.advance(cpu, task);
                }
                Stage::Queue(node, mut needed) => {
                    let Operation { way, receivers, .. } = &self.operations[cpu];
                    let Way::Kernel { cluster, every } = *way else { return Step::Ends };
                    let next = receivers.get(node).copied();
                    let last = node.checked_sub(1).map(|node| (node, receivers[node]));
                    if let Some((node, receiver)) = last
                        && (self.push(receiver, Message { initiator: cpu, node }) || every)
                    {
                        needed.push(receiver);
                    }
                    let Some(receiver) = next else {
                        // One command for everybody is for all, or for nobody.
                        let is_for_all = cluster != EVERYBODY || needed.len() == node;
                        let cluster = if is_for_all { cluster } else { 1 };
                        task.stage = Stage::Command(Vec::new(), self.clusters(&needed, cluster));
                        continue;
                    };
                    task.stage = Stage::Queue(node + 1, needed);
                    let push = self.distance(cpu, receiver).of(times.push);
                    return Step::Takes(self.cost(cpu, push));
                }
                Stage::Command(written, mut clusters) => {
                    if !written.is_empty() {
                        self.interrupt(cpu, written);
                    }
                    let Some(next) = clusters.pop() else {
                        task.stage = Stage::Await(0);
                        continue;
                    };
                    let further = (next.len() - 1) as f64;
                    task.stage = Stage::Command(next, clusters);
                    let command = times.interrupt_send + times.interrupt_each * further;
                    return Step::Takes(self.cost(cpu, command));
                }
                Stage::Await(node) if node == own.node => task.stage = Stage::Over,
                Stage::Await(node) if self.operations[cpu].nodes[node].done => {
                    task.stage = Stage::Await(node + 1);
                    let read = self.distance(cpu, self.operations[cpu].receivers[node]).of(times.read);
                    return Step::Takes(self.cost(cpu, read));
                }
                Stage::Await(node) => {
                    task.stage = Stage::Await(node);
                    return Step::Waits;
                }
                Stage::Sends(mut sending) => match self.send(cpu, own, &mut sending) {
                    Step::Ends if task.contender.shared_counter => task.stage = Stage::AwaitTree,
                    Step::Ends => {
                        task.stage = Stage::Counted;
                        return Step::Takes(self.count(cpu, own));
                    }
                    step => {
                        task.stage = Stage::Sends(sending);
                        return step;
                    }
                },
                Stage::Counted => {
                    self.counted(own);
                    task.stage = Stage::AwaitTree;
                }
                Stage::AwaitTree if self.operations[cpu].is_complete() => {
                    task.stage = Stage::Over;
                    return Step::Takes(self.cost(cpu, times.read[1]));
                }
                Stage::AwaitTree => {
                    task.stage = Stage::AwaitTree;
                    return Step::Waits;
                }
                Stage::Over => {
                    if task.contender.mutex {
                        self.unlock();
                    }
                    if let Some(fault) = self.operations[cpu].fault() {
                        self.check(false, || fault);
                    }
                    task.latencies.push(self.now - task.operation_began);
                    task.ends.push(self.now);
                    if let Pace::GracePeriods { .. } = task.pace {
                        let look: f64 = self.operations[cpu]
                            .receivers
                            .iter()
                            .map(|&reader| self.distance(cpu, reader).of(times.read))
                            .sum();
                        return Step::Takes(self.cost(cpu, look));
                    }
                }
            }
        }
    }

    /// Begins the next operation, and returns `None`; or returns the step with which the task waits for its time, or
    /// ends.
    fn begin(&mut self, cpu: usize, task: &mut Task) -> Option<Step> {
        match task.pace {
            Pace::Operations(count) if task.begun == count => return Some(Step::Ends),
            Pace::Operations(_) => task.begun += 1,
            Pace::GracePeriods { operations, .. } if task.within > 0 && task.within < operations => {
                task.within += 1;
            }
            Pace::GracePeriods { count, apart, .. } => {
                if task.within > 0 {
                    // A grace period has ended.
                    task.within = 0;
                    task.next_begin = (task.next_begin + apart).max(self.now);
                }
                if self.now < task.next_begin {
                    self.wake_at(task.next_begin, cpu);
                    return Some(Step::Waits);
                }
                if task.begun == count {
                    return Some(Step::Ends);
                }
                task.begun += 1;
                task.within = 1;
            }
        }
        None
    }

    /// The CPUs by cluster, the first cluster last.
    fn clusters(&self, cpus: &[usize], size: usize) -> Vec<Vec<usize>> {
        if size == 1 {
            return cpus.iter().rev().map(|&cpu| vec![cpu]).collect();
        }
        let mut clusters: Vec<Vec<usize>> = Vec::new();
        for &cpu in cpus {
            let same = |cluster: &&mut Vec<usize>| {
                size == EVERYBODY || self.places.cluster(cluster[0], size) == self.places.cluster(cpu, size)
            };
            match clusters.iter_mut().find(same) {
                Some(cluster) => cluster.push(cpu),
                None => clusters.push(vec![cpu]),
            }
        }
        clusters.reverse();
        clusters
    }
}
