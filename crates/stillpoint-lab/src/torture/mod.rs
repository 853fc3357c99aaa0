//! `stillpoint torture`: correctness under stress, in the manner of the Linux kernel's rcutorture.
//!
//! A run repeats a cycle of two kinds of parts until its time is up or something is found.
//!
//! - The *mixed* part ([`mixed`]): two domains, one in each fence mode, and more threads than CPUs. Readers of every
//!   kind, nested, overlapping, sleeping, forgotten, registered for a moment or for long ([`reader`]); writers by every
//!   primitive ([`writer`]).
//! - The *races* ([`races`]): two threads or a few that do one thing as fast as they can, each to provoke one fault
//!   whose window is too short for chance.
//!
//! What is checked:
//!
//! - Nothing is destroyed while a reader holds it. Objects stand for records that are never freed ([`arena`]), so a
//!   fault is found in the record, and does not depend on what is left in freed memory.
//! - No region reader holds an object whose grace period is over: unlinked objects *age* with each grace period, and
//!   each look is counted by age.
//! - When a token, a wait, or a callback says that a grace period is over, no section that began before it is still
//!   going on ([`section`]); and without readers, every token is over.
//! - At the end of each part every object has been destroyed, once, and every callback called.
//! - Threads that must be refused are refused, and no thread is stuck ([`watchdog`]).
//! - Enough of everything was tried ([`tally`]): a run that tried too little fails.
//!
//! Whether the checks can fail is shown by the broken variants of the library ([`controls`]). They run the same parts
//! for the same times.

mod actor;
mod arena;
mod controls;
mod findings;
mod litmus;
mod mixed;
mod options;
mod races;
mod reader;
mod report;
mod section;
mod stores;
mod tally;
mod tokens;
mod watchdog;
mod world;
mod writer;

use std::time::{Duration, Instant};

use fastrand::Rng;
use stillpoint::fence::{self, Mode};

use self::actor::is_over;
use self::arena::Context;
use self::mixed::Mixed;
use self::races::{Race, Runs};
use self::tally::Tally;
use self::watchdog::Watchdog;
use crate::error::Stop;
use crate::interrupt;
use crate::machine::cpus;

pub(crate) use self::options::Options;

/// About the length of a cycle through all parts.
const CYCLE: Duration = Duration::from_secs(3);
/// The share of a cycle that belongs to the mixed part; the races have the rest.
const MIXED_SHARE: f64 = 0.4;

/// What a run did.
struct Run {
    tally: Tally,
    races: Vec<(&'static Race, Runs)>,
    rounds: u32,
    took: Duration,
}

/// Runs for the time that was asked for, or until something is found.
pub(crate) fn run(options: &Options) -> Result<(), Stop> {
    if options.list_busted {
        report::list_variants();
        return Ok(());
    }
    let variant = options.busted.as_deref().map(controls::select).transpose()?;
    let plan = Plan::new(options);
    report::introduce(&plan, variant);
    interrupt::listen();
    let context = Context::leak(plan.threads + 1);
    let run = plan.run(context, &Watchdog::start(context, variant))?;
    report::show(&run);
    report::judge(context, &run, variant)
}

/// What is to be done.
struct Plan {
    duration: Duration,
    seed: u64,
    threads: usize,
    cpus: Vec<usize>,
    modes: Vec<Mode>,
}

impl Plan {
    fn new(options: &Options) -> Self {
        let cpus = cpus::allowed();
        let mut modes = vec![Mode::Symmetric];
        if fence::asymmetric_supported().is_ok() {
            modes.push(Mode::Asymmetric);
        }
        let threads = options.threads.map_or_else(|| (4 * cpus.len()).clamp(6, 64), usize::from);
        Self { duration: Duration::from_secs(options.seconds), seed: options.seed, threads, cpus, modes }
    }

    fn run(&self, context: &'static Context, watchdog: &Watchdog) -> Result<Run, Stop> {
        let begun = Instant::now();
        let mut rng = Rng::with_seed(self.seed);
        let races: Vec<&Race> = races::ALL.iter().filter(|race| self.modes.contains(&race.mode())).collect();
        let mut run = Run {
            tally: Tally::default(),
            races: races.iter().map(|&race| (race, Runs::default())).collect(),
            rounds: 0,
            took: Duration::ZERO,
        };
        // A short run goes through all parts as well.
        let cycles = (self.duration.as_secs_f64() / CYCLE.as_secs_f64()).floor().max(1.0);
        let cycle = self.duration.div_f64(cycles);
        let worlds = [self.modes[0], self.modes[self.modes.len() - 1]];
        let mixed = Mixed { worlds, threads: self.threads, cpus: &self.cpus };
        let mixed_time = cycle.mul_f64(MIXED_SHARE);
        let race_time = cycle.mul_f64((1.0 - MIXED_SHARE) / races.len() as f64);
        while begun.elapsed() + cycle / 2 < self.duration && !is_over(context) {
            watchdog.expect_end_in(mixed_time);
            let part = mixed.run(context, mixed_time, &mut rng).map_err(Stop::Usage)?;
            run.tally.merge(&part);
            run.rounds += 1;
            context.audit();
            for (race, runs) in &mut run.races {
                if is_over(context) {
                    break;
                }
                watchdog.expect_end_in(race_time);
                let part = race.run(context, &self.cpus, race_time, &mut rng).map_err(Stop::Usage)?;
                *runs = *runs + part;
                context.audit();
            }
        }
        run.took = begun.elapsed();
        Ok(run)
    }
}

/// Names the fence modes.
fn mode_names(modes: &[Mode]) -> String {
    modes.iter().map(Mode::to_string).collect::<Vec<_>>().join(" and ")
}
