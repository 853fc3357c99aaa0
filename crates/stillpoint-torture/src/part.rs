//! The parts that a run repeats.

use std::time::Duration;

use fastrand::Rng;
use stillpoint::fence::Mode;
use stillpoint_harness::output::say;

use crate::arena::Context;
use crate::counts::{Area, Tally};
use crate::findings::Watchdog;
use crate::trouble::Ordinary;

/// A part of a run, which is repeated, and counts what it does.
///
/// A new part goes into the list in `plan.rs`. Before `run` returns, it has to end all threads that it starts, and destroy all
/// objects that it makes from the stage's context.
pub(crate) trait Part {
    /// Its share of a cycle, in percent.
    fn share(&self) -> u32;

    /// Runs for `time`. An error is a reason why this machine cannot run it.
    fn run(&mut self, stage: &Stage<'_>, time: Duration, rng: &mut Rng) -> Result<(), String>;

    /// The events that happened too rarely, in words.
    fn missing(&self) -> Vec<String>;

    /// Prints the counts, without those that are 0.
    fn show(&self);
}

/// The environment of a part.
pub(crate) struct Stage<'p> {
    pub(crate) context: &'static Context,
    /// The CPUs that this process may use.
    pub(crate) cpus: &'p [usize],
    /// The fence modes that this machine has.
    pub(crate) modes: &'p [Mode],
    /// Threads of the parts that want more threads than CPUs.
    pub(crate) threads: usize,
    pub(crate) watchdog: &'p Watchdog,
    /// The state in which every thread has to be left.
    pub(crate) ordinary: &'p Ordinary,
}

impl Stage<'_> {
    /// Begins a stage: its name for findings, and its planned time.
    pub(crate) fn enter(&self, name: &str, time: Duration) {
        self.context.findings.enter(name);
        self.watchdog.expect_end_in(time);
    }

    /// A random fence mode.
    pub(crate) fn mode(&self, rng: &mut Rng) -> Mode {
        self.modes[rng.usize(0..self.modes.len())]
    }
}

/// A part that does the same each time.
pub(crate) struct Steady {
    area: Area,
    share: u32,
    work: Work,
    tally: Tally,
    time: Duration,
    rounds: u32,
}

/// What such a part does for a time.
type Work = fn(&Stage<'_>, Duration, &mut Rng) -> Result<Tally, String>;

impl Steady {
    pub(crate) fn boxed(area: Area, share: u32, work: Work) -> Box<dyn Part> {
        Box::new(Self { area, share, work, tally: Tally::default(), time: Duration::ZERO, rounds: 0 })
    }
}

impl Part for Steady {
    fn share(&self) -> u32 {
        self.share
    }

    fn run(&mut self, stage: &Stage<'_>, time: Duration, rng: &mut Rng) -> Result<(), String> {
        stage.enter(self.area.names().0, time);
        self.tally.merge(&(self.work)(stage, time, rng)?);
        self.time += time;
        self.rounds += 1;
        Ok(())
    }

    fn missing(&self) -> Vec<String> {
        self.tally.missing(self.area, self.time)
    }

    fn show(&self) {
        let (_, title) = self.area.names();
        say(format!("{title}: rounds: {}, of {:.1?} each", self.rounds, self.time / self.rounds.max(1)));
        self.tally.show(self.area);
    }
}
