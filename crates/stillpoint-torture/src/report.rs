//! The output of a run, and its [`Course`]: objects that were destroyed per second, and objects that wait for their
//! destruction.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use stillpoint_harness::error::Stop;
use stillpoint_harness::figures;
use stillpoint_harness::interrupt;
use stillpoint_harness::output::figures::{Across, Better, Figure, Number, Up};
use stillpoint_harness::output::format::number_of;
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::say;

use crate::arena::Context;
use crate::counts::{self, show_destroyed};
use crate::plan::{Plan, Run, mode_names};
use crate::trouble::best_rank;
use crate::variant::Broken;

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
