//! The threads of a part: what they use, how they pass time, how they end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::io;
use rustix::thread::{CpuSet, sched_setaffinity};
use stillpoint_harness::interrupt;

use super::arena::{Context, Maker};
use super::roll::{Present, Roll};
use super::section::Sections;
use super::tally::{Count, Tally};

/// One thread of the mixed part.
pub(crate) struct Actor<'s> {
    /// The actor's slot in the sections of each world.
    pub(crate) slot: usize,
    pub(crate) maker: Maker,
    pub(crate) rng: Rng,
    pub(crate) tally: Tally,
    shared: &'s Shared<'s>,
}

/// Shared by the actors of a part.
pub(crate) struct Shared<'p> {
    pub(crate) stop: AtomicBool,
    pub(crate) roll: Roll,
    pub(crate) cpus: &'p [usize],
}

impl<'p> Shared<'p> {
    pub(crate) fn new(slots: usize, cpus: &'p [usize]) -> Self {
        Self { stop: AtomicBool::new(false), roll: Roll::new(slots), cpus }
    }

    pub(crate) fn stop(&self) {
        // Relaxed: a flag; the threads are joined.
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl<'s> Actor<'s> {
    pub(crate) fn new(slot: usize, maker: Maker, rng: Rng, shared: &'s Shared<'s>) -> Self {
        Self { slot, maker, rng, tally: Tally::default(), shared }
    }

    /// Makes the calling thread the actor's thread until the result is dropped.
    pub(crate) fn appear(&self) -> Present<'s> {
        self.shared.roll.enter(self.slot)
    }

    /// At the end of the thread, lets it run on all CPUs again, and counts how often it was preempted.
    pub(crate) fn settle(&mut self) {
        // The kernel may refuse this, as any change of the CPUs.
        let _ = run_on(self.shared.cpus);
        self.tally.counts.add_many(Count::Preempted, preemptions());
    }

    /// Notes that the actor has begun a section.
    pub(crate) fn begin(&self, sections: &Sections) -> Instant {
        sections.begin(self.slot);
        Instant::now()
    }

    /// Notes that the actor is about to end the section that it began at `begun`.
    pub(crate) fn end(&mut self, sections: &Sections, begun: Instant) {
        self.tally.sections.add(begun.elapsed());
        sections.end(self.slot);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        // Relaxed: a flag; the threads are joined.
        self.shared.stop.load(Ordering::Relaxed)
    }

    /// True in one of `number` calls, on average.
    pub(crate) fn once_in(&mut self, number: u32) -> bool {
        self.rng.u32(0..number) == 0
    }

    /// Passes time: none, some, or a lot.
    pub(crate) fn pause(&mut self) {
        match self.rng.u32(0..1000) {
            0..600 => {}
            600..850 => {
                let magnitude = self.rng.u32(1..14);
                let turns = self.rng.u32(0..1 << magnitude);
                (0..turns).for_each(|_| std::hint::spin_loop());
            }
            850..966 => thread::yield_now(),
            966..980 => self.move_away(),
            980..998 => self.sleep(Duration::from_micros(200)),
            _ => self.sleep(Duration::from_millis(4)),
        }
    }

    pub(crate) fn sleep(&mut self, longest: Duration) {
        self.tally.count(Count::Slept);
        thread::sleep(longest.mul_f64(self.rng.f64()));
    }

    /// Moves to another CPU, or allows all CPUs again.
    fn move_away(&mut self) {
        let cpus = self.shared.cpus;
        let moved = match cpus.get(self.rng.usize(0..=cpus.len())) {
            Some(&cpu) => run_on(&[cpu]),
            None => run_on(cpus),
        };
        if moved.is_ok() {
            self.tally.count(Count::Moved);
        }
    }
}

/// Restricts the calling thread to these CPUs.
pub(crate) fn run_on(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    sched_setaffinity(None, &set)
}

/// How often the calling thread was preempted.
fn preemptions() -> u64 {
    // SAFETY: all zeroes are a valid `rusage`, which the call fills.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is alive for the call.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    u64::try_from(usage.ru_nivcsw).unwrap_or(0)
}

/// Whether the run must end early.
pub(crate) fn is_over(context: &Context) -> bool {
    context.findings.any() || interrupt::requested()
}

/// Sleeps while the others work, unless the run ends early.
pub(crate) fn rest(context: &Context, duration: Duration) {
    let end = Instant::now() + duration;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || is_over(context) {
            return;
        }
        thread::sleep(left.min(Duration::from_millis(5)));
    }
}

/// Joins a thread. A panic of the thread is a finding.
pub(crate) fn join<T: Default>(context: &Context, thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        context.findings.add(|| format!("a thread panicked: {}", text.unwrap_or("without a message")));
        T::default()
    })
}
