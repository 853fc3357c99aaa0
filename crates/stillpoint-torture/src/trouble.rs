//! The threads that disturb a part while it runs: the hog, and the one that parks threads in a signal handler.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use fastrand::Rng;

use super::actor::join;
use super::arena::Context;
use super::hog;
use super::park::Parked;
use super::roll::Roll;

/// The longest time between two parkings.
const PAUSE: Duration = Duration::from_millis(3);
/// The longest ordinary stay.
const STAY: Duration = Duration::from_millis(2);
/// The longest stay in one of sixteen parkings: longer than a time slice. (`parked` parks readers for seconds.)
const LONG_STAY: Duration = Duration::from_millis(40);

/// The two threads, while they run.
pub(crate) struct Trouble<'s> {
    hog: ScopedJoinHandle<'s, u64>,
    parker: ScopedJoinHandle<'s, Parkings>,
}

/// The counts of parkings.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Parkings {
    pub(crate) bursts: u64,
    pub(crate) parked: u64,
    /// Parkings of a thread that was inside a section.
    pub(crate) inside: u64,
}

impl<'s> Trouble<'s> {
    /// Disturbs the threads on the roll until stopped. `is_inside` returns whether the thread of a slot is inside a section.
    pub(crate) fn start(
        scope: &'s Scope<'s, '_>,
        stop: &'s AtomicBool,
        (roll, cpus): (&'s Roll, &'s [usize]),
        rng: &mut Rng,
        is_inside: impl Fn(usize) -> bool + Send + 's,
    ) -> Self {
        let (hogs, parkers) = (rng.fork(), rng.fork());
        Self {
            hog: scope.spawn(move || hog::run(stop, cpus, hogs)),
            parker: scope.spawn(move || park(stop, roll, parkers, is_inside)),
        }
    }

    /// Joins the two threads, after `stop` was set.
    pub(crate) fn join(self, context: &Context) -> Parkings {
        let bursts = join(context, self.hog);
        Parkings { bursts, ..join(context, self.parker) }
    }
}

fn park(stop: &AtomicBool, roll: &Roll, mut rng: Rng, is_inside: impl Fn(usize) -> bool) -> Parkings {
    let mut parkings = Parkings::default();
    // Relaxed: a flag; the thread is joined.
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(PAUSE.mul_f64(rng.f64()));
        let Some((slot, thread)) = roll.pick(&mut rng) else { continue };
        let Some(parked) = Parked::park(thread) else { continue };
        parkings.parked += 1;
        parkings.inside += u64::from(is_inside(slot));
        let longest = if rng.u32(0..16) == 0 { LONG_STAY } else { STAY };
        thread::sleep(longest.mul_f64(rng.f64()));
        drop(parked);
    }
    parkings
}
