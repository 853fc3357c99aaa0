//! The threads: what they may use, how they let time pass, how they end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::io;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::arena::{Context, Maker};
use super::tally::{Count, Tally};
use crate::interrupt;

/// One thread of the mixed part.
pub(super) struct Actor<'s> {
    /// Its slot in the sections of each world.
    pub(super) slot: usize,
    pub(super) maker: Maker,
    pub(super) rng: Rng,
    pub(super) tally: Tally,
    stop: &'s AtomicBool,
    cpus: &'s [usize],
}

impl<'s> Actor<'s> {
    pub(super) fn new(slot: usize, maker: Maker, rng: Rng, stop: &'s AtomicBool, cpus: &'s [usize]) -> Self {
        Self { slot, maker, rng, tally: Tally::default(), stop, cpus }
    }

    pub(super) fn is_stopped(&self) -> bool {
        // Relaxed: a flag; the threads are joined.
        self.stop.load(Ordering::Relaxed)
    }

    /// True once in `number` times, on average.
    pub(super) fn once_in(&mut self, number: u32) -> bool {
        self.rng.u32(0..number) == 0
    }

    /// Lets time pass: none, some, or more than is good.
    pub(super) fn pause(&mut self) {
        match self.rng.u32(0..1000) {
            0..600 => {}
            600..850 => {
                let magnitude = self.rng.u32(1..14);
                let turns = self.rng.u32(0..1 << magnitude);
                (0..turns).for_each(|_| std::hint::spin_loop());
            }
            850..970 => thread::yield_now(),
            970..980 => self.move_away(),
            980..998 => self.sleep(Duration::from_micros(200)),
            _ => self.sleep(Duration::from_millis(4)),
        }
    }

    fn sleep(&mut self, longest: Duration) {
        self.tally.count(Count::Slept);
        thread::sleep(longest.mul_f64(self.rng.f64()));
    }

    /// Changes to another CPU, or sets the thread free again.
    fn move_away(&mut self) {
        let cpu = self.rng.usize(0..=self.cpus.len());
        let moved = match self.cpus.get(cpu) {
            Some(&cpu) => run_on(&[cpu]),
            None => run_on(self.cpus),
        };
        if moved.is_ok() {
            self.tally.count(Count::Moved);
        }
    }
}

/// Lets the calling thread run on these CPUs only.
pub(super) fn run_on(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    sched_setaffinity(None, &set)
}

/// Whether the run is to end before its time.
pub(super) fn is_over(context: &Context) -> bool {
    context.findings.any() || interrupt::requested()
}

/// Lets the others work, unless the run is over early.
pub(super) fn rest(context: &Context, duration: Duration) {
    let end = Instant::now() + duration;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || is_over(context) {
            return;
        }
        thread::sleep(left.min(Duration::from_millis(5)));
    }
}

/// Joins a thread; that it panicked is a finding.
pub(super) fn join<T: Default>(context: &Context, thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        context.findings.add(|| format!("a thread panicked: {}", text.unwrap_or("without a message")));
        T::default()
    })
}
