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
use crate::counts::Area;
use crate::findings::Watchdog;
use crate::parked::Companion;
use crate::part::{Part, Stage, Steady};
use crate::races::{self, Races};
use crate::trouble::Ordinary;
use crate::{flood, forks, mixed, table};

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
    pub(crate) fn new(seconds: u64, seed: u64, threads: Option<u16>) -> Self {
        let cpus = cpus::allowed();
        let mut modes = vec![Mode::Symmetric];
        if fence::asymmetric_supported().is_ok() {
            modes.push(Mode::Asymmetric);
        }
        let threads = threads.map_or_else(|| (4 * cpus.len()).clamp(6, 64), usize::from);
        Self { duration: Duration::from_secs(seconds), seed, threads, cpus, modes }
    }

    fn parts(&self) -> Vec<Box<dyn Part>> {
        let modes = &self.modes;
        vec![
            Steady::boxed(Area::Mixed, 30, mixed::run),
            Steady::boxed(Area::Flood, 5, flood::run),
            Box::new(Races::new(40, races::ALL, modes)),
            Steady::boxed(Area::Tables, 14, table::run),
            Box::new(Races::new(15, races::OF_TABLES, modes)),
            Steady::boxed(Area::Forks, 6, forks::run),
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
