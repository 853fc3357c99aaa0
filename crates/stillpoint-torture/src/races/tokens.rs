//! The race for the counter: threads on every core start tokens as fast as they can, while readers sleep.
//!
//! If a token is counted twice, or the counter steps back because a thread was preempted between its load and its store, later
//! tokens are over before they were started.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use stillpoint::fence::Mode;
use stillpoint::rcu::Domain;

use super::Runs;
use crate::actor::{join, rest};
use crate::arena::Context;
use crate::section::Sections;

/// Two readers: while one is outside, the other one is likely to be inside.
const READERS: usize = 2;
/// Tokens that are started for each one that is checked.
const BURST: u64 = 8;
/// The longest sleep of a reader.
const LONGEST_SLEEP: Duration = Duration::from_micros(300);

/// More threads than CPUs, so that they are preempted anywhere.
pub(super) fn run(
    mode: Mode,
    context: &'static Context,
    cpus: &[usize],
    duration: Duration,
    rng: &mut Rng,
) -> Result<Runs, String> {
    let domain = Domain::builder().fence(mode).build().map_err(|error| error.to_string())?;
    let (sections, stop) = (Sections::new(READERS), AtomicBool::new(false));
    Ok(thread::scope(|scope| {
        for slot in 0..READERS {
            let mut rng = rng.fork();
            let (domain, sections, stop) = (&domain, &sections, &stop);
            scope.spawn(move || sleep_inside(domain, sections, slot, stop, &mut rng));
        }
        let starters: Vec<_> =
            (0..=2 * cpus.len()).map(|_| scope.spawn(|| start(context, &domain, &sections, &stop))).collect();
        rest(context, duration);
        // Relaxed: a flag; the threads are joined.
        stop.store(true, Ordering::Relaxed);
        starters.into_iter().fold(Runs::default(), |sum, starter| sum + join(context, starter))
    }))
}

fn sleep_inside(domain: &Domain, sections: &Sections, slot: usize, stop: &AtomicBool, rng: &mut Rng) {
    let reader = domain.reader();
    // Relaxed: see `run`.
    while !stop.load(Ordering::Relaxed) {
        let guard = reader.pin();
        sections.begin(slot);
        thread::sleep(LONGEST_SLEEP.mul_f64(rng.f64()));
        sections.end(slot);
        drop(guard);
        thread::sleep(LONGEST_SLEEP.mul_f64(rng.f64()));
    }
}

fn start(context: &Context, domain: &Domain, sections: &Sections, stop: &AtomicBool) -> Runs {
    let mut runs = Runs::default();
    // Relaxed: see `run`.
    while !stop.load(Ordering::Relaxed) {
        for _ in 1..BURST {
            domain.start();
        }
        let inside = sections.now();
        let token = domain.start();
        runs.tries += BURST;
        if domain.check(token) {
            inside.verify(sections, context, "a token");
            runs.over += 1;
        }
    }
    runs
}
