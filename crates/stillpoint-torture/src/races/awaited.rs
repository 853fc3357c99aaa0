//! The race for the waker: futures begin to wait for a reader while it leaves.
//!
//! The reader waits for the futures outside its section, and begins no other section meanwhile. So a lost wake-up is not made up
//! for by a later one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use stillpoint::fence::Mode;
use stillpoint::rcu::Domain;

use super::Runs;
use crate::actor::{is_over, join};
use crate::arena::Context;
use crate::awaiting::block_on;
use crate::stores::Stores;
use crate::world::PATIENCE;

const WAITERS: usize = 2;
/// Longest section, as a power of two of turns of a spinning loop.
const LONGEST_SPIN: u32 = 9;
/// Most stores before the end of a section: about what a store buffer holds.
const MOST_STORES: usize = 60;

/// Shared by the reader and the waiters.
struct Rounds {
    /// The round whose section is open, or was the last one.
    number: AtomicU64,
    /// The number of rounds that all waiters together have finished.
    done: AtomicU64,
    stop: AtomicBool,
}

pub(super) fn run(
    mode: Mode,
    context: &'static Context,
    duration: Duration,
    stores: &Stores,
    rng: &mut Rng,
) -> Result<Runs, String> {
    let domain = Domain::builder().fence(mode).build().map_err(|error| error.to_string())?;
    let rounds = Rounds { number: AtomicU64::new(0), done: AtomicU64::new(0), stop: AtomicBool::new(false) };
    Ok(thread::scope(|scope| {
        let waiters: Vec<_> = (0..WAITERS).map(|_| scope.spawn(|| rounds.wait(context, &domain))).collect();
        let tries = rounds.read(context, &domain, Instant::now() + duration, stores, rng);
        // Relaxed: a flag; the threads are joined.
        rounds.stop.store(true, Ordering::Relaxed);
        let over = waiters.into_iter().map(|waiter| join(context, waiter)).sum();
        Runs { tries, over }
    }))
}

impl Rounds {
    /// Returns the number of rounds.
    fn read(&self, context: &Context, domain: &Domain, end: Instant, stores: &Stores, rng: &mut Rng) -> u64 {
        let reader = domain.reader();
        let mut round = 0;
        while Instant::now() < end && !is_over(context) {
            round += 1;
            let guard = reader.pin();
            // Release: pairs with the acquire in `wait`: the section has begun.
            self.number.store(round, Ordering::Release);
            let magnitude = rng.u32(0..=LONGEST_SPIN);
            (0..rng.u32(0..1 << magnitude)).for_each(|_| std::hint::spin_loop());
            stores.fill(if rng.bool() { 0 } else { rng.usize(0..MOST_STORES) });
            drop(guard);
            let deadline = Instant::now() + PATIENCE;
            // Acquire: pairs with the release in `wait`.
            while self.done.load(Ordering::Acquire) < round * WAITERS as u64 && Instant::now() < deadline {
                thread::yield_now();
            }
        }
        round
    }

    /// Returns the number of grace periods that were awaited.
    fn wait(&self, context: &Context, domain: &Domain) -> u64 {
        let mut awaited = 0;
        // Relaxed: see `run`.
        while !self.stop.load(Ordering::Relaxed) {
            // Acquire: pairs with the release in `read`.
            if self.number.load(Ordering::Acquire) == awaited {
                thread::yield_now();
                continue;
            }
            if block_on(domain.grace_period(domain.start()), PATIENCE).is_none() {
                context.findings.add(|| format!("a future was not woken within {PATIENCE:?}"));
            }
            awaited += 1;
            // Release: pairs with the acquire in `read`.
            self.done.fetch_add(1, Ordering::Release);
        }
        awaited
    }
}
