//! The race of boosts: readers on one CPU preempt each other inside their sections, and a writer boosts them until their sections
//! end.
//!
//! Each thread checks its state when its reader is dropped: its boost must end soon after.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use stillpoint::fence::Mode;
use stillpoint::rcu::{Boost, Domain, RcuCell};

use super::Runs;
use crate::actor::{join, rest, run_on};
use crate::arena::{Context, Handle, Maker};
use crate::leftover::Ordinary;

const READERS: usize = 4;
/// Longest section, as a power of two of turns of a spinning loop.
const LONGEST_SPIN: u32 = 10;
/// The most sections of one reader.
const SECTIONS: u32 = 4;
/// A short time, so that boosts meet readers that come and go.
const BOOST_AFTER: Duration = Duration::from_micros(1);

/// Runs a race of boosts.
pub(super) fn run(
    boost: Boost,
    context: &'static Context,
    cpus: &[usize],
    duration: Duration,
    rng: &mut Rng,
) -> Result<Runs, String> {
    let builder = Domain::builder().fence(Mode::Symmetric).boost(boost).boost_fallback(Boost::Migrate);
    let domain = builder.boost_after(BOOST_AFTER).build().map_err(|error| error.to_string())?;
    let mut maker = Maker::new(context, 0);
    let cell = RcuCell::empty_in(&domain);
    let stop = AtomicBool::new(false);
    let (own, others) = cpus.split_first().ok_or("no CPU is allowed")?;
    let other = *others.first().unwrap_or(own);
    Ok(thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                let (domain, stop, rng) = (&domain, &stop, rng.fork());
                scope.spawn(move || read(context, domain, *own, stop, rng))
            })
            .collect();
        let writer = scope.spawn({
            let (domain, cell, stop) = (&domain, &cell, &stop);
            move || retire(domain, cell, &mut maker, other, stop)
        });
        rest(context, duration);
        // Relaxed: a flag; the threads are joined.
        stop.store(true, Ordering::Relaxed);
        join(context, writer);
        let tries = readers.into_iter().map(|reader| join(context, reader)).sum();
        Runs { tries, over: domain.stats().boosted }
    }))
}

/// Returns the number of sections.
fn read(context: &Context, domain: &Domain, cpu: usize, stop: &AtomicBool, mut rng: Rng) -> u64 {
    // If it is refused, the readers preempt each other less often. The counts show if that is too rarely.
    let _ = run_on(&[cpu]);
    let Some(ordinary) = Ordinary::of_caller() else { return 0 };
    let mut sections = 0;
    // Relaxed: see `run`.
    while !stop.load(Ordering::Relaxed) {
        let reader = domain.reader();
        for _ in 0..rng.u32(1..=SECTIONS) {
            let guard = reader.pin();
            let magnitude = rng.u32(0..=LONGEST_SPIN);
            (0..rng.u32(0..1 << magnitude)).for_each(|_| std::hint::spin_loop());
            // The booster finds this thread waiting for the CPU, and the thread runs again at any moment of the boost.
            (0..rng.u32(0..3)).for_each(|_| thread::yield_now());
            drop(guard);
            sections += 1;
        }
        drop(reader);
        ordinary.check_caller(context.findings);
    }
    sections
}

/// Polls without a pause, so that a reader holds it up at any time.
fn retire(domain: &Domain, cell: &RcuCell<Handle>, maker: &mut Maker, cpu: usize, stop: &AtomicBool) {
    let _ = run_on(&[cpu]);
    let mut reclaimer = domain.reclaimer_builder().batch(1).build();
    // Relaxed: see `run`.
    while !stop.load(Ordering::Relaxed) {
        if reclaimer.pending() < 16
            && let Some(old) = cell.swap(maker.make())
        {
            // A refused object is left to the domain.
            drop(reclaimer.retire(old));
        }
        reclaimer.poll();
    }
}
