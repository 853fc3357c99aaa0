//! The race for room: several threads fill a small domain at the same time, and destructors are slow.
//!
//! The limit must hold at any moment. An object counts until its destructor has run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use stillpoint::fence::Mode;
use stillpoint::rcu::limits::WhenFull;
use stillpoint::rcu::{Domain, RcuCell};

use super::Runs;
use crate::actor::{join, rest};
use crate::arena::Context;

const RETIRERS: usize = 3;
const CAPACITY: u64 = 3;
/// Retirements between two looks at the stop flag.
const BATCH: u32 = 64;

/// Shared by the retiring threads.
#[derive(Debug, Default)]
struct Counted {
    taken_in: AtomicU64,
    destroyed: AtomicU64,
}

/// An object whose destructor takes a moment.
struct Slow<'c>(&'c Counted);

impl Drop for Slow<'_> {
    fn drop(&mut self) {
        thread::yield_now();
        // Release: pairs with the acquire in `retire`.
        self.0.destroyed.fetch_add(1, Ordering::Release);
    }
}

pub(super) fn run(
    mode: Mode,
    context: &'static Context,
    duration: Duration,
    rng: &mut Rng,
) -> Result<Runs, String> {
    let builder = Domain::builder().fence(mode).max_pending(CAPACITY as usize);
    let domain = builder.build().map_err(|error| error.to_string())?;
    // Leaked, because any thread may free the objects.
    let (counted, stop): (&'static Counted, _) = (Box::leak(Box::default()), AtomicBool::new(false));
    let runs = thread::scope(|scope| {
        let retirers: Vec<_> = (0..RETIRERS)
            .map(|_| {
                let (domain, stop, rng) = (&domain, &stop, rng.fork());
                scope.spawn(move || retire(context, domain, counted, stop, rng))
            })
            .collect();
        rest(context, duration);
        // Relaxed: a flag; the threads are joined.
        stop.store(true, Ordering::Relaxed);
        retirers.into_iter().fold(Runs::default(), |sum, retirer| sum + join(context, retirer))
    });
    let stats = domain.stats();
    if stats.pending != 0 || stats.beyond_limits != 0 {
        context.findings.add(|| format!("a domain with a limit has miscounted its objects: {stats:?}"));
    }
    Ok(runs)
}

/// Retires its own objects, as fast as there is room.
fn retire(
    context: &Context,
    domain: &Domain,
    counted: &'static Counted,
    stop: &AtomicBool,
    mut rng: Rng,
) -> Runs {
    let cell = RcuCell::new_in(domain, Slow(counted));
    let when_full = if rng.bool() { WhenFull::Reclaim } else { WhenFull::HandBack };
    let mut reclaimer = domain.reclaimer_builder().batch(1).when_full(when_full).build();
    let mut runs = Runs::default();
    let mut spare = None;
    // Relaxed: see `run`.
    while !stop.load(Ordering::Relaxed) && !context.findings.any() {
        for _ in 0..BATCH {
            let Some(old) = spare.take().or_else(|| cell.replace(Slow(counted))) else { continue };
            runs.tries += 1;
            match reclaimer.retire(old) {
                Ok(()) => {
                    // Acquire: pairs with the release below, so that the next read is not older.
                    let taken_in = counted.taken_in.fetch_add(1, Ordering::AcqRel) + 1;
                    // Acquire: pairs with the release in `drop`.
                    let waiting = taken_in.saturating_sub(counted.destroyed.load(Ordering::Acquire));
                    let pending = domain.stats().pending;
                    if waiting.max(pending) > CAPACITY {
                        context.findings.add(|| {
                            format!("{waiting} objects wait, of which the domain counts {pending}, above the limit of {CAPACITY}")
                        });
                    }
                    runs.over += 1;
                }
                Err(error) => spare = Some(error.into_inner()),
            }
            if rng.bool() {
                reclaimer.poll();
            }
        }
    }
    while reclaimer.pending() != 0 {
        reclaimer.poll();
    }
    // Objects that were never accepted. They are counted only after they have been destroyed, so that no thread finds too many
    // objects waiting.
    let mut unused = u64::from(cell.into_inner().is_some());
    while let Some(old) = spare.take() {
        spare = old.try_free().err();
        unused += u64::from(spare.is_none());
    }
    counted.taken_in.fetch_add(unused, Ordering::AcqRel);
    runs
}
