//! The plan of a run, its parts and their times; its output; and its [`Course`]: objects that were destroyed per second, and objects
//! that wait for their destruction.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use stillpoint::fence::{self, Mode};
use stillpoint_harness::error::Stop;
use stillpoint_harness::machine::cpus;
use stillpoint_harness::output::figures::{Across, Better, Figure, Number, Up};
use stillpoint_harness::output::format::number_of;
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::say;
use stillpoint_harness::{figures, interrupt};

use crate::actor::{is_over, join};
use crate::arena::Context;
use crate::counts::{Area, show_destroyed};
use crate::findings::{Broken, Watchdog};
use crate::parked::Companion;
use crate::part::{Part, Stage, Steady};
use crate::races::Races;
use crate::trouble::{Ordinary, best_rank};
use crate::{counts, flood, forks, mixed, races, table};

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

/// Prints what is about to run.
pub(crate) fn introduce(plan: &Plan, broken: Option<Broken>) {
    let Plan { duration, seed, threads, cpus, modes } = plan;
    let (cpus, modes) = (cpus.len(), mode_names(modes));
    let (threads, cpus) = (number_of(*threads as u64, "thread"), number_of(cpus as u64, "CPU"));
    say(format!("Torture: {duration:?}, seed {seed}, {threads} on {cpus}, fences: {modes}"));
    say(format!("The hog is {}; it preempts the other threads in bursts", best_rank()));
    if let Some(broken) = broken {
        say(format!("Broken on purpose: {broken}: {}", broken.describe()));
    }
}

/// Prints all counts.
pub(crate) fn show(context: &Context, run: &Run) {
    // A run that ends early has parts that never began.
    for part in &run.parts[..run.begun] {
        say("");
        part.show();
    }
    say("");
    run.companion.show();
    say("");
    say("The objects of all parts");
    show_destroyed(&context.destroyed_by_age());
    counts::show(&[("unlink to destructor", &context.delays())]);
}

/// Prints the verdict.
pub(crate) fn judge(context: &Context, run: &Run, broken: Option<Broken>) -> Result<(), Stop> {
    let found = context.findings.number();
    if found != 0 {
        context.findings.say(broken);
        return Err(match broken {
            Some(broken) => Stop::Caught(broken.caught()),
            None => Stop::Failed(format!("{found} violations of the library's promises")),
        });
    }
    say("");
    if interrupt::requested() {
        say(format!("Interrupted after {:.1?}: nothing found so far", run.took));
        return Ok(());
    }
    let missing = run.missing();
    match broken {
        // Whatever is missing: the exit code says whether the variant was caught.
        Some(broken) => {
            say(format!(
                "Torture did not catch the broken variant {broken} in {:.1?}. It should: give it more --seconds, on quiet CPUs.",
                run.took
            ));
        }
        None if !missing.is_empty() => {
            return Err(Stop::Failed(format!("vacuous: too few {}", missing.join(", "))));
        }
        None => say(format!(
            "Clean: {} objects, each destroyed once and never too early; cycles: {}, in {:.1?}",
            context.made(),
            run.cycles,
            run.took
        )),
    }
    Ok(())
}

/// The number of points of a run; a short run has fewer.
const POINTS: u32 = 300;
const SHORTEST: Duration = Duration::from_millis(100);

const EXPERIMENT: &str = "torture";
const OVER_TIME: &str = "over-time";

const COMMON: Figure = Figure {
    experiment: EXPERIMENT,
    scenarios: &[OVER_TIME],
    across: Across::Numbers { of: Number::Param("second"), title: "seconds", logarithmic: false },
    ..Figure::PLAIN
};

/// The figures of a run.
pub const FIGURES: &[&Figure] = figures! {
    ..COMMON;
    "torture-throughput": "Torture: objects destroyed" {
        up: Up { better: Better::Neither, ..Up::more("destroyed_per_s", "objects destroyed a second") },
        words: "Parts of different kinds follow each other, so the rate goes up and down.",
    }
    "torture-waiting": "Torture: objects that wait" {
        up: Up { better: Better::Neither, ..Up::more("waiting", "objects unlinked and not destroyed") },
        words: "Parked readers hold some objects for a whole cycle. Between the parts there are next to none.",
    }
};

/// A moment of a run.
struct Moment {
    at: Duration,
    destroyed: u64,
    waiting: usize,
}

/// Samples a run, on its own thread, until the channel is closed.
pub(crate) struct Course {
    stop: Sender<()>,
    looker: thread::JoinHandle<Vec<Moment>>,
}

impl Course {
    /// Begins to sample a run that is planned to take `duration`.
    pub(crate) fn follow(context: &'static Context, duration: Duration) -> Self {
        let (begun, period) = (Instant::now(), (duration / POINTS).max(SHORTEST));
        let (stop, stopped) = mpsc::channel();
        let looker = thread::spawn(move || {
            let mut moments = Vec::new();
            loop {
                let is_last =
                    !moments.is_empty() && stopped.recv_timeout(period) != Err(RecvTimeoutError::Timeout);
                let (destroyed, waiting) = (context.destroyed(), context.waiting());
                moments.push(Moment { at: begun.elapsed(), destroyed, waiting });
                if is_last {
                    return moments;
                }
            }
        });
        Self { stop, looker }
    }

    /// A row for each moment except the first.
    pub(crate) fn rows(self) -> Vec<Row> {
        drop(self.stop);
        let moments = self.looker.join().unwrap_or_default();
        let row = |pair: &[Moment]| {
            let (before, now) = (pair.first()?, pair.last()?);
            let second = (now.at.as_secs_f64() * 1e3).round() / 1e3;
            let mut row = Row::new(EXPERIMENT, OVER_TIME, "stillpoint").with("second", second);
            let passed = (now.at - before.at).as_secs_f64().max(1e-9);
            row.put("destroyed_per_s", (now.destroyed - before.destroyed) as f64 / passed, 0);
            row.put("waiting", now.waiting as f64, 0);
            Some(row)
        };
        moments.windows(2).filter_map(row).collect()
    }
}
