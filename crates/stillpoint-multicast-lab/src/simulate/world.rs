//! The simulation itself: CPUs, which do one step after the other, and what passes between them.
//!
//! Each CPU is a sequential process. It runs at most one task, which is the initiator's side of an operation.
//! Interrupts are handled between the steps of the task, and never inside a handler. To send a message is to push it
//! onto the receiver's queue, and to interrupt the receiver if the queue was empty. Atomic accesses to a cache line
//! follow each other, and each takes a time that depends on the distance to the CPU of the one before. Times are in
//! nanoseconds.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use stillpoint_harness::interrupt;
use stillpoint_harness::random::Random;

use super::machine::{Distance, Machine, Places};
use super::operation::{Handler, Message, Operation};
use super::task::{Measured, Task};

/// Events between two checks for Ctrl-C.
const LOOKS_UP: u64 = 4096;

/// What the next step of a process takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step {
    /// It takes this long; its effect comes at the end.
    Takes(f64),
    /// There is no step until the CPU is woken.
    Waits,
    /// There is no further step.
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

/// An event, in two words that compare as events do: by time, and at the same time by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    /// The bits of the time. A time is never negative, so its bits have the order of the times.
    time: u64,
    /// From the upper bits down: the event's number, its CPU, and what happens.
    rest: u64,
}

impl Event {
    const CPU_BITS: u32 = 13;
    const WHAT_BITS: u32 = 2;

    fn new(time: f64, number: u64, cpu: usize, what: What) -> Self {
        debug_assert!(time >= 0.0 && cpu < 1 << Self::CPU_BITS, "{time}, CPU {cpu}");
        let place = (number << Self::CPU_BITS) | cpu as u64;
        Self { time: time.to_bits(), rest: (place << Self::WHAT_BITS) | what as u64 }
    }

    fn time(self) -> f64 {
        f64::from_bits(self.time)
    }

    fn cpu(self) -> usize {
        (self.rest >> Self::WHAT_BITS) as usize & ((1 << Self::CPU_BITS) - 1)
    }

    fn what(self) -> What {
        match self.rest & ((1 << Self::WHAT_BITS) - 1) {
            what if what == What::StepEnds as u64 => What::StepEnds,
            what if what == What::Wake as u64 => What::Wake,
            _ => What::Interrupt,
        }
    }
}

/// One logical CPU.
#[derive(Debug, Default)]
pub(super) struct Cpu {
    pub(super) queue: Vec<Message>,
    interrupted: bool,
    waits: bool,
    /// In boxes, because each step takes them out and puts them back.
    pub(super) handler: Option<Box<Handler>>,
    pub(super) task: Option<Box<Task>>,
    pub(super) measured: Option<Measured>,
    /// Time spent in handlers.
    pub(super) handling: f64,
    /// Time that the interrupted work loses afterwards, to refill its pipeline and its caches.
    pub(super) disturbed: f64,
    /// A factor on every time, above 1 if the core is shared.
    slowness: f64,
}

/// A cache line for atomic accesses.
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

/// All CPUs, and the events that are to come.
#[derive(Debug)]
pub(super) struct World<'a> {
    pub(super) machine: &'a Machine,
    pub(super) places: Places,
    pub(super) now: f64,
    events: BinaryHeap<Reverse<Event>>,
    /// Whether the first event of the heap is happening now. Then the next new event takes its place.
    happens: bool,
    number: u64,
    random: Random,
    pub(super) cpus: Vec<Cpu>,
    /// The operation of each CPU as an initiator.
    pub(super) operations: Vec<Operation>,
    mutex: Mutex,
    /// Tasks that have ended.
    ended: usize,
    /// Interrupt commands that were written.
    pub(super) commands: u64,
    /// The first invariant that was broken.
    pub(super) broken: Option<String>,
}

impl<'a> World<'a> {
    /// A world in which the CPUs in `active` are busy: with the tasks that they are given, or with other work, from
    /// which interrupts take time.
    pub(super) fn new(machine: &'a Machine, active: &[usize], seed: u64) -> Self {
        let places = Places::new(machine.topology);
        let mut busy = vec![false; machine.cpus()];
        for &cpu in active {
            busy[cpu] = true;
        }
        let slowness = |cpu| {
            let shares =
                places.siblings(cpu).next().is_some() && places.siblings(cpu).all(|sibling| busy[sibling]);
            if shares { machine.noise.busy_sibling } else { 1.0 }
        };
        let cpus = (0..machine.cpus())
            .map(|cpu| Cpu { waits: true, slowness: slowness(cpu), ..Cpu::default() })
            .collect();
        Self {
            machine,
            now: 0.0,
            events: BinaryHeap::new(),
            happens: false,
            number: 0,
            random: Random::new(seed),
            cpus,
            operations: (0..machine.cpus()).map(Operation::of).collect(),
            mutex: Mutex::default(),
            ended: 0,
            commands: 0,
            broken: None,
            places,
        }
    }

    /// Gives a CPU a task that begins after `delay`.
    pub(super) fn start(&mut self, cpu: usize, task: Task, delay: f64) {
        self.cpus[cpu].task = Some(Box::new(task));
        self.after(delay, cpu, What::Wake);
    }

    /// Runs until no event is left, or until Ctrl-C; after Ctrl-C the measurements do not count.
    pub(super) fn run(&mut self) {
        self.run_until(usize::MAX);
        for (number, cpu) in self.cpus.iter().enumerate() {
            if cpu.task.is_some() || cpu.handler.is_some() || !cpu.queue.is_empty() {
                self.broken
                    .get_or_insert(format!("CPU {number} has a task, a handler or messages left at the end"));
            }
        }
    }

    /// As [`run`](Self::run), but stops as soon as `ended` tasks have ended, and leaves the others as they are.
    pub(super) fn run_until(&mut self, ended: usize) {
        let mut events = 0u64;
        while self.ended < ended
            && let Some(event) = self.next()
        {
            events += 1;
            if events.is_multiple_of(LOOKS_UP) && interrupt::requested() {
                self.broken.get_or_insert("interrupted".to_owned());
                return;
            }
            self.now = event.time();
            let (number, what) = (event.cpu(), event.what());
            let cpu = &mut self.cpus[number];
            if what == What::Interrupt {
                cpu.interrupted = true;
            }
            if what == What::StepEnds || std::mem::take(&mut cpu.waits) {
                self.go_on(number);
            }
        }
    }

    /// The next event. It stays in the heap until a new event takes its place. Most events lead to a new one, and to
    /// replace the first event costs less than to remove it and to insert another.
    fn next(&mut self) -> Option<Event> {
        if std::mem::take(&mut self.happens) {
            self.events.pop();
        }
        let Reverse(event) = *self.events.peek()?;
        self.happens = true;
        Some(event)
    }

    /// Lets the CPU go on until it begins its next step, waits, or ends.
    fn go_on(&mut self, cpu: usize) {
        loop {
            let state = &mut self.cpus[cpu];
            if state.handler.is_none() && std::mem::take(&mut state.interrupted) {
                state.handler = Some(Box::new(Handler::new(self.now)));
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
                Step::Ends => {
                    self.cpus[cpu].task = None;
                    self.ended += 1;
                }
            }
        }
    }

    fn after(&mut self, delay: f64, cpu: usize, what: What) {
        self.number += 1;
        let event = Event::new(self.now + delay, self.number, cpu, what);
        match self.events.peek_mut() {
            // Replaces the event that happens now, which was the earliest one; the heap then moves the new event to
            // its place.
            Some(mut first) if std::mem::take(&mut self.happens) => *first = Reverse(event),
            first => {
                drop(first);
                self.events.push(Reverse(event));
            }
        }
    }

    /// Lets a CPU check again what it waits for. A CPU that does not wait checks before it begins to wait.
    pub(super) fn wake(&mut self, cpu: usize) {
        if self.cpus[cpu].waits {
            self.after(0.0, cpu, What::Wake);
        }
    }

    /// As [`wake`](Self::wake), at a later time.
    pub(super) fn wake_at(&mut self, time: f64, cpu: usize) {
        self.after((time - self.now).max(0.0), cpu, What::Wake);
    }

    /// How long a step of `time` takes on this CPU, with noise.
    pub(super) fn cost(&mut self, cpu: usize, time: f64) -> f64 {
        // From -1 to 1.
        let swing = self.uniform() * 2.0 - 1.0;
        time * self.cpus[cpu].slowness * (1.0 + self.machine.noise.jitter * swing)
    }

    /// Adds what the interrupted work loses after a handler that touched this many cache lines.
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

    /// How long an atomic access takes from now on: it waits for the accesses before it.
    pub(super) fn atomic(&mut self, cpu: usize, line: impl Fn(&mut Self) -> &mut Line) -> f64 {
        let Line { free, owner } = *line(self);
        let own = self.cost(cpu, self.distance(cpu, owner).of(self.machine.nanoseconds.atomic));
        let done = self.now.max(free) + own;
        *line(self) = Line { free: done, owner: cpu };
        done - self.now
    }

    /// Puts a message into a queue. Returns whether an interrupt has to follow.
    pub(super) fn push(&mut self, cpu: usize, message: Message) -> bool {
        let queue = &mut self.cpus[cpu].queue;
        queue.push(message);
        queue.len() == 1
    }

    /// Sends the interrupts of a command that has just been written.
    pub(super) fn interrupt(&mut self, from: usize, to: impl IntoIterator<Item = usize>) {
        self.commands += 1;
        for cpu in to {
            let flight = self.distance(from, cpu).of(self.machine.nanoseconds.interrupt_flight);
            let flight = self.cost(from, flight);
            self.after(flight, cpu, What::Interrupt);
        }
    }

    /// Takes the mutex, or a place in its queue. Returns whether the CPU has the mutex.
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

    /// Records the first invariant that does not hold.
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
        let machine = Machine::load("seed").unwrap();
        let mut world = World::new(&machine, &[], 1);
        for (delay, cpu) in [(2.0, 9), (1.0, 8), (1.0, 3), (0.0, 4095), (1e18, 5)] {
            world.after(delay, cpu, What::Interrupt);
        }
        let mut order = Vec::new();
        while let Some(event) = world.next() {
            order.push((event.time(), event.cpu(), event.what()));
            // While an event happens, it leads to two others, one of which takes its place.
            if event.cpu() == 4095 {
                world.after(1.5, 6, What::Wake);
                world.after(1.0, 7, What::StepEnds);
            }
        }
        let (interrupt, wake, ends) = (What::Interrupt, What::Wake, What::StepEnds);
        assert_eq!(
            order,
            [
                (0.0, 4095, interrupt),
                (1.0, 8, interrupt),
                (1.0, 3, interrupt),
                (1.0, 7, ends),
                (1.5, 6, wake),
                (2.0, 9, interrupt),
                (1e18, 5, interrupt)
            ]
        );
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
