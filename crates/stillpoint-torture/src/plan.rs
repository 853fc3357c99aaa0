//! The interface of the parts that a run repeats.
//!
//! The plan of a run: its parts and their times.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use stillpoint::fence::{self, Mode};
use stillpoint_harness::error::Stop;
use stillpoint_harness::machine::cpus;

use crate::actor::{is_over, join};
use crate::arena::Context;
use crate::findings::Watchdog;
use crate::flood::Flood;
use crate::forks::Forks;
use crate::mixed::Mixed;
use crate::options::Options;
use crate::parked::Companion;
use crate::races::Races;
use crate::table::{TableRaces, Tables};
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

/// The approximate length of a cycle through all parts.
const CYCLE: Duration = Duration::from_secs(4);

/// If a run has tried too little of something when its time is up, it continues until it has tried enough, or has had
/// this many times its planned number of cycles: on a busy machine, a thread may not have got a CPU when it needed one.
const LONGEST: u32 = 4;

/// How long readers are parked in a long run, from its second cycle on.
const LONG_STAY: Duration = Duration::from_secs(60);

/// The parts and settings of a run.
pub(crate) struct Plan {
    pub(crate) duration: Duration,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    pub(crate) cpus: Vec<usize>,
    pub(crate) modes: Vec<Mode>,
}

/// The results of a run.
pub(crate) struct Run {
    pub(crate) parts: Vec<Box<dyn Part>>,
    /// The number of parts that have begun: the first ones.
    pub(crate) begun: usize,
    pub(crate) companion: Companion,
    pub(crate) cycles: u32,
    pub(crate) took: Duration,
}

impl Run {
    /// The events that happened too rarely, in words.
    pub(crate) fn missing(&self) -> Vec<String> {
        let of_parts = self.parts.iter().flat_map(|part| part.missing());
        of_parts.chain(self.companion.missing()).collect()
    }
}

impl Plan {
    pub(crate) fn new(options: &Options) -> Self {
        let cpus = cpus::allowed();
        let mut modes = vec![Mode::Symmetric];
        if fence::asymmetric_supported().is_ok() {
            modes.push(Mode::Asymmetric);
        }
        let threads = options.threads.map_or_else(|| (4 * cpus.len()).clamp(6, 64), usize::from);
        Self { duration: Duration::from_secs(options.seconds), seed: options.seed, threads, cpus, modes }
    }

    fn parts(&self) -> Vec<Box<dyn Part>> {
        vec![
            Box::new(Mixed::default()),
            Box::new(Flood::default()),
            Box::new(Races::new(&self.modes)),
            Box::new(Tables::default()),
            Box::new(TableRaces::new(&self.modes)),
            Box::new(Forks::default()),
        ]
    }

    pub(crate) fn run(&self, context: &'static Context, watchdog: &Watchdog) -> Result<Run, Stop> {
        let (begun, mut rng) = (Instant::now(), Rng::with_seed(self.seed));
        let Self { cpus, modes, threads, .. } = self;
        let ordinary = Ordinary::of_caller()
            .ok_or_else(|| Stop::usage("the scheduling policy of threads cannot be read on this machine"))?;
        let stage = Stage { context, cpus, modes, threads: *threads, watchdog, ordinary: &ordinary };
        let companion = Companion::new(context.findings);
        let mut run = Run { parts: self.parts(), begun: 0, companion, cycles: 0, took: Duration::ZERO };
        let shares: u32 = run.parts.iter().map(|part| part.share()).sum();
        // A short run also goes through all parts.
        let cycles = (self.duration.as_secs_f64() / CYCLE.as_secs_f64()).floor().max(1.0);
        let cycle = self.duration.div_f64(cycles);
        let is_time_for =
            |from: Instant, span: Duration| from.elapsed() + cycle / 2 < span && !is_over(context);
        let is_thin = |run: &Run| {
            run.cycles > 0 && f64::from(run.cycles) < cycles * f64::from(LONGEST) && !run.missing().is_empty()
        };
        while is_time_for(begun, self.duration) || is_thin(&run) && !is_over(context) {
            let is_thin = is_thin(&run);
            let mut turn = rng.fork();
            let stop = AtomicBool::new(false);
            let Run { parts, begun: parts_begun, companion, cycles, .. } = &mut run;
            let left = self.duration.saturating_sub(begun.elapsed());
            let stay = if *cycles > 0 && left > LONG_STAY { LONG_STAY } else { cycle };
            let parked = Instant::now();
            let done = thread::scope(|scope| {
                let companion = scope.spawn(|| Some(companion.run(modes, &stop, &mut turn)));
                let mut one_cycle = || -> Result<(), String> {
                    parts.iter_mut().enumerate().try_for_each(|(at, part)| -> Result<(), String> {
                        // A busy machine may be late. The first cycle is never cut short.
                        let is_late = *cycles > 0 && !is_thin && begun.elapsed() > self.duration;
                        if is_over(context) || is_late {
                            return Ok(());
                        }
                        *parts_begun = (at + 1).max(*parts_begun);
                        part.run(&stage, cycle * part.share() / shares, &mut rng)?;
                        context.audit();
                        ordinary.check_all(context.findings);
                        Ok(())
                    })?;
                    *cycles += 1;
                    Ok(())
                };
                let mut done = one_cycle();
                while done.is_ok() && is_time_for(parked, stay) && is_time_for(begun, self.duration) {
                    done = one_cycle();
                }
                watchdog.expect_end_in(Duration::ZERO);
                // Relaxed: a flag; the thread is joined.
                stop.store(true, Ordering::Relaxed);
                done.and(join(context, companion).unwrap_or(Ok(())))
            });
            done.map_err(Stop::Usage)?;
        }
        run.took = begun.elapsed();
        Ok(run)
    }
}

/// The names of the fence modes.
pub(crate) fn mode_names(modes: &[Mode]) -> String {
    modes.iter().map(Mode::to_string).collect::<Vec<_>>().join(", ")
}
