//! The course of a run: objects that were destroyed per second, and objects that wait for their destruction.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use stillpoint_harness::output::figures::{Across, Better, Figure, Number, Up};
use stillpoint_harness::output::json::Row;

use super::arena::Context;

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
pub const FIGURES: &[&Figure] = &[
    &Figure {
        name: "torture-throughput",
        title: "Torture: objects destroyed",
        up: Up { better: Better::Neither, ..Up::more("destroyed_per_s", "objects destroyed a second") },
        words: "Parts of different kinds follow each other, so the rate goes up and down.",
        ..COMMON
    },
    &Figure {
        name: "torture-waiting",
        title: "Torture: objects that wait",
        up: Up { better: Better::Neither, ..Up::more("waiting", "objects unlinked and not destroyed") },
        words: "Parked readers hold some objects for a whole cycle. Between the parts there are next to none.",
        ..COMMON
    },
];

/// A moment of a run.
struct Moment {
    at: Duration,
    destroyed: u64,
    waiting: usize,
}

/// Samples a run, on its own thread.
pub(crate) struct Course {
    stop: Arc<AtomicBool>,
    looker: thread::JoinHandle<Vec<Moment>>,
}

impl Course {
    /// Begins to sample a run that is planned to take `duration`.
    pub(crate) fn follow(context: &'static Context, duration: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, begun) = (Arc::clone(&stop), Instant::now());
        let period = (duration / POINTS).max(SHORTEST);
        let looker = thread::spawn(move || {
            let mut moments = Vec::new();
            loop {
                moments.push(Moment {
                    at: begun.elapsed(),
                    destroyed: context.destroyed(),
                    waiting: context.waiting(),
                });
                // Relaxed: a flag; the thread is joined.
                if stopped.load(Ordering::Relaxed) {
                    return moments;
                }
                thread::park_timeout(period);
            }
        });
        Self { stop, looker }
    }

    /// A row for each moment except the first.
    pub(crate) fn rows(self) -> Vec<Row> {
        // Relaxed: see `follow`.
        self.stop.store(true, Ordering::Relaxed);
        self.looker.thread().unpark();
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
