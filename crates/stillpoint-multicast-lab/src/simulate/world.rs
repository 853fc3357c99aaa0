//! The simulation itself: CPUs that do one step after the other, and what passes between them.
//!
//! Each CPU is a sequential process. It runs at most one task, the initiator's side of an operation, and interrupts are
//! handled between the steps of the task, never inside a handler. A message is a push onto the receiver's queue, and an
//! interrupt if that queue was empty. Accesses to a cache line by atomics are one after the other, and each takes the
//! time of the distance from the last one. Times are in nanoseconds.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use stillpoint_harness::interrupt;
use stillpoint_harness::random::Random;

use super::handler::Handler;
use super::machine::Machine;
use super::operation::{Message, Operation};
use super::places::{Distance, Places};
use super::task::{Measured, Task};

/// Events between two checks for Ctrl-C.
const LOOKS_UP: u64 = 4096;

/// What the next step of a process takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step {
    /// So long; its effect comes at the end.
    Takes(f64),
    /// Nothing, until another CPU wakes this one.
    Waits,
    /// There is none.
    Ends,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// The step of the CPU has ended.
    StepEnds,
    /// Something that the CPU waits for may have happened.
    Wake,
    /// An interrupt arrives.
    Interrupt,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Event {
    time: f64,
    /// Events of the same time keep their order.
    number: u64,
    cpu: usize,
    what: What,
}

impl Eq for Event {}

impl Ord for Event {
    /// The earliest is the greatest, which a heap gives first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.time.total_cmp(&self.time).then(other.number.cmp(&self.number))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// One logical CPU.
#[derive(Debug, Default)]
pub(super) struct Cpu {
    pub(super) queue: Vec<Message>,
    interrupted: bool,
    waits: bool,
    pub(super) handler: Option<Handler>,
    pub(super) task: Option<Task>,
    pub(super) measured: Option<Measured>,
    /// Time spent in handlers.
    pub(super) handling: f64,
    /// Time that the interrupted work loses afterwards: its pipeline, its caches.
    pub(super) disturbed: f64,
    /// How much longer everything takes as its core is shared.
    slowness: f64,
}

/// A cache line that is written by atomics.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Line {
    free: f64,
    owner: usize,
}

impl Line {
    pub(super) fn of(owner: usize) -> Self {
        Self { free: 0.0, owner }
    }
}

/// The mutex that Linux holds during an expedited membarrier; waiters are served in order.
#[derive(Debug, Default)]
pub(super) struct Mutex {
    owner: Option<usize>,
    waiting: VecDeque<usize>,
}

/// All CPUs, and the events to come.
#[derive(Debug)]
pub(super) struct World<'a> {
    pub(super) machine: &'a Machine,
    pub(super) places: Places,
    pub(super) now: f64,
    events: BinaryHeap<Event>,
    number: u64,
    random: Random,
    pub(super) cpus: Vec<Cpu>,
    /// Of each CPU as an initiator.
    pub(super) operations: Vec<Operation>,
    mutex: Mutex,
    /// Interrupt commands that were written.
    pub(super) commands: u64,
    /// The first invariant that was broken.
    pub(super) broken: Option<String>,
}

impl<'a> World<'a> {
    /// A world in which the CPUs in `active` are busy with something: with the tasks that are given to them, or with
    /// work of their own that interrupts take time from.
    pub(super) fn new(machine: &'a Machine, active: &[usize], seed: u64) -> Self {
        let places = Places::new(machine.topology);
        let mut busy = vec![false; machine.cpus()];
        for &cpu in active {
            busy[cpu] = true;
        }
        let slowness = |cpu| {
            let shared = places.siblings(cpu).any(|sibling| busy[sibling]);
            if shared { machine.noise.busy_sibling } else { 1.0 }
        };
        let cpus = (0..machine.cpus())
            .map(|cpu| Cpu { waits: true, slowness: slowness(cpu), ..Cpu::default() })
            .collect();
        Self {
            machine,
            now: 0.0,
            events: BinaryHeap::new(),
            number: 0,
            random: Random::new(seed),
            cpus,
            operations: (0..machine.cpus()).map(Operation::of).collect(),
            mutex: Mutex::default(),
            commands: 0,
            broken: None,
            places,
        }
    }

    /// Gives a CPU a task that begins after `delay`.
    pub(super) fn start(&mut self, cpu: usize, task: Task, delay: f64) {
        self.cpus[cpu].task = Some(task);
        self.after(delay, cpu, What::Wake);
    }

    /// Runs until no event is left, or until Ctrl-C, after which the measurements are not a result.
    pub(super) fn run(&mut self) {
        let mut events = 0u64;
        while let Some(event) = self.events.pop() {
            events += 1;
            if events.is_multiple_of(LOOKS_UP) && interrupt::requested() {
                self.broken.get_or_insert("interrupted".to_owned());
                return;
            }
            self.now = event.time;
            let cpu = &mut self.cpus[event.cpu];
            if event.what == What::Interrupt {
                cpu.interrupted = true;
            }
            if event.what == What::StepEnds || std::mem::take(&mut cpu.waits) {
                self.go_on(event.cpu);
            }
        }
        for (number, cpu) in self.cpus.iter().enumerate() {
            if cpu.task.is_some() || cpu.handler.is_some() || !cpu.queue.is_empty() {
                self.broken.get_or_insert(format!("CPU {number} was left in the middle of something"));
            }
        }
    }

    /// What the CPU does until its next step.
    fn go_on(&mut self, cpu: usize) {
        loop {
            let state = &mut self.cpus[cpu];
            if state.handler.is_none() && std::mem::take(&mut state.interrupted) {
                state.handler = Some(Handler::new(self.now));
            }
            let handles = state.handler.is_some();
            let step = match (handles, state.task.is_some()) {
                (true, _) => self.handle(cpu),
                (false, true) => self.work(cpu),
                (false, false) => Step::Waits,
            };
            match step {
                Step::Takes(time) => return self.after(time, cpu, What::StepEnds),
                Step::Waits => {
                    self.cpus[cpu].waits = true;
                    return;
                }
                Step::Ends if handles => {
                    self.cpus[cpu].handler = None;
                }
                Step::Ends => self.cpus[cpu].task = None,
            }
        }
    }

    fn after(&mut self, delay: f64, cpu: usize, what: What) {
        self.number += 1;
        self.events.push(Event { time: self.now + delay, number: self.number, cpu, what });
    }

    /// Lets a CPU check again what it waits for.
    pub(super) fn wake(&mut self, cpu: usize) {
        self.after(0.0, cpu, What::Wake);
    }

    /// The same at some later time.
    pub(super) fn wake_at(&mut self, time: f64, cpu: usize) {
        self.after((time - self.now).max(0.0), cpu, What::Wake);
    }

    /// What a step of `time` takes on this CPU, this time.
    pub(super) fn cost(&mut self, cpu: usize, time: f64) -> f64 {
        // From -1 to 1.
        let swing = self.uniform() * 2.0 - 1.0;
        time * self.cpus[cpu].slowness * (1.0 + self.machine.noise.jitter * swing)
    }

    /// An interrupt has ended whose handler touched that many cache lines: the work that goes on has lost its own.
    pub(super) fn disturb(&mut self, cpu: usize, lines: u32) {
        let rcu = self.machine.rcu;
        let state = &mut self.cpus[cpu];
        state.disturbed += (rcu.interrupted + rcu.displaced * f64::from(lines)) * state.slowness;
    }

    /// A random number from 0 to 1.
    pub(super) fn uniform(&mut self) -> f64 {
        (self.random.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn distance(&self, a: usize, b: usize) -> Distance {
        self.places.distance(a, b)
    }

    /// What an atomic access takes from now on: it waits for those before it.
    pub(super) fn atomic(&mut self, cpu: usize, line: impl Fn(&mut Self) -> &mut Line) -> f64 {
        let Line { free, owner } = *line(self);
        let own = self.cost(cpu, self.distance(cpu, owner).of(self.machine.nanoseconds.atomic));
        let done = self.now.max(free) + own;
        *line(self) = Line { free: done, owner: cpu };
        done - self.now
    }

    /// Puts a message into a queue; true if an interrupt has to follow.
    pub(super) fn push(&mut self, cpu: usize, message: Message) -> bool {
        let queue = &mut self.cpus[cpu].queue;
        queue.push(message);
        queue.len() == 1
    }

    /// The interrupts of a command that has just been written fly.
    pub(super) fn interrupt(&mut self, from: usize, to: impl IntoIterator<Item = usize>) {
        self.commands += 1;
        for cpu in to {
            let flight = self.distance(from, cpu).of(self.machine.nanoseconds.interrupt_flight);
            let flight = self.cost(from, flight);
            self.after(flight, cpu, What::Interrupt);
        }
    }

    /// Takes the mutex, or a place in its queue; true if it is taken.
    pub(super) fn lock(&mut self, cpu: usize) -> bool {
        match self.mutex.owner {
            None => self.mutex.owner = Some(cpu),
            Some(_) => self.mutex.waiting.push_back(cpu),
        }
        self.owns(cpu)
    }

    pub(super) fn owns(&self, cpu: usize) -> bool {
        self.mutex.owner == Some(cpu)
    }

    /// Hands the mutex to the next in its queue.
    pub(super) fn unlock(&mut self) {
        self.mutex.owner = self.mutex.waiting.pop_front();
        if let Some(next) = self.mutex.owner {
            self.wake(next);
        }
    }

    /// Notes the first invariant that does not hold.
    pub(super) fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds && self.broken.is_none() {
            self.broken = Some(what());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_event_comes_first_and_equal_ones_in_their_order() {
        let event = |time, number| Event { time, number, cpu: 0, what: What::Wake };
        let mut heap: BinaryHeap<Event> = [event(2.0, 1), event(1.0, 3), event(1.0, 2)].into();
        let order: Vec<u64> = std::iter::from_fn(|| heap.pop()).map(|event| event.number).collect();
        assert_eq!(order, [2, 3, 1]);
    }

    #[test]
    fn the_mutex_is_handed_over_in_the_order_of_arrival() {
        let machine = Machine::load("seed").unwrap();
        let mut world = World::new(&machine, &[], 1);
        assert!(world.lock(3) && !world.lock(1) && !world.lock(2));
        world.unlock();
        assert!(world.owns(1) && !world.owns(2));
        world.unlock();
        assert!(world.owns(2));
        world.unlock();
        assert!(world.lock(9));
    }
}
