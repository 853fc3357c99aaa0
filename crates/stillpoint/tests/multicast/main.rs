//! Multicasts to threads: what is promised, and what becomes of misuse.

#![cfg(not(loom))]

#[cfg(not(miri))]
#[path = "../support/census.rs"]
mod census;
#[cfg(not(miri))]
#[path = "../support/child.rs"]
mod child;
#[cfg(not(miri))]
mod churn;
#[path = "../support/forked.rs"]
mod forked;
#[cfg(not(miri))]
mod forks;
#[cfg(not(miri))]
mod inherited;
#[cfg(not(miri))]
mod litmus;
#[cfg(not(miri))]
mod memory;
#[cfg(not(miri))]
mod outliving;
mod polled;
#[cfg(not(miri))]
mod signals;
#[cfg(not(miri))]
#[path = "../support/skip.rs"]
mod skip;
#[cfg(not(miri))]
mod waking;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stillpoint::multicast::{Acknowledgement, Share, Strategy};

/// A limit for waits that are expected to end: long enough for a machine that is busy elsewhere.
const LONG: Duration = Duration::from_secs(60);

/// Every strategy, for some threads.
fn strategies() -> [Strategy; 6] {
    let split = |percent| Strategy::Split(Share::percent(percent).expect("from 1 to 99"));
    [Strategy::Flat, Strategy::Tree, split(1), split(30), split(99), Strategy::Hybrid(4)]
}

/// Every way to send and to acknowledge, with and without helping.
fn ways() -> Vec<(Strategy, Acknowledgement, bool)> {
    let acknowledgements = [Acknowledgement::Combining, Acknowledgement::SharedCounter];
    strategies()
        .into_iter()
        .flat_map(|strategy| acknowledgements.map(|acknowledgement| (strategy, acknowledgement)))
        .flat_map(|(strategy, acknowledgement)| [true, false].map(|helps| (strategy, acknowledgement, helps)))
        .collect()
}

/// Tells the threads of a test that it is over, when it is dropped.
#[derive(Clone, Copy)]
struct End<'e>(&'e AtomicBool);

impl End<'_> {
    fn has_come(&self) -> bool {
        // Relaxed: a flag that orders nothing.
        self.0.load(Ordering::Relaxed)
    }
}

struct Ending<'e>(&'e AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
