//! What waits stays within its limits, whoever retires and whoever never comes back; and nothing is lost.

#![cfg(not(loom))]

mod assist;
mod bounded;
mod domain;
mod policies;
mod random;
mod stress;
mod tables;

#[path = "../support/census.rs"]
mod census;
#[path = "../support/modes.rs"]
mod modes;
#[path = "../support/parked.rs"]
mod parked;
#[path = "../support/skip.rs"]
mod skip;
#[path = "../support/then.rs"]
mod then;

use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Duration;

use stillpoint::rcu::{Domain, Reclaimer, Retired, Stats};

/// A limit for waits that are expected to end at once: long enough for a machine that is busy elsewhere.
const LONG: Duration = Duration::from_secs(20);
/// A limit for waits that are expected to fail.
const SHORT: Duration = Duration::from_millis(20);

fn retired<T: Send + Sync + 'static>(domain: &Domain, object: T) -> Retired<T> {
    domain.cell(object).take().expect("the cell is full")
}

/// A domain in which so many objects may wait.
fn limited(objects: usize) -> Domain {
    Domain::builder().capacity(objects).build().expect("the default mode is always to be had")
}

/// A reclaimer whose polls start a grace period at once, whatever the last one did.
fn eager(domain: &Domain) -> Reclaimer {
    domain.reclaimer_builder().fence_interval(Duration::ZERO).build()
}

/// How often objects were handed back, retirements waited, and retirers assisted.
fn troubles(stats: &Stats) -> [u64; 3] {
    [stats.handed_back, stats.waits, stats.assists]
}

/// What `function` panics with.
fn panic_of<R>(function: impl FnOnce() -> R) -> Box<dyn Any + Send> {
    match catch_unwind(AssertUnwindSafe(function)) {
        Ok(_) => panic!("it should have panicked"),
        Err(payload) => payload,
    }
}
