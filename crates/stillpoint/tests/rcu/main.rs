//! `rcu`: when objects are freed and when they are not, whatever users do.

#![cfg(not(stillpoint_loom))]

#[cfg(not(miri))]
mod all;
mod delays;
mod futures;
mod grace;
mod groups;
mod handover;
mod limits;
mod misuse;
mod raw;
#[cfg(not(miri))]
mod stalls;
mod stress;

#[path = "../support/census.rs"]
mod census;
#[path = "../support/child.rs"]
mod child;
#[path = "../support/ending.rs"]
mod ending;
#[path = "../support/modes.rs"]
mod modes;
#[path = "../support/other.rs"]
mod other;
#[path = "../support/parked.rs"]
mod parked;
#[path = "../support/random.rs"]
mod random;
#[path = "../support/skip.rs"]
mod skip;
#[path = "../support/then.rs"]
mod then;

use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Duration;

use stillpoint::rcu::{Domain, RcuCell, Reclaimer};

use census::{Census, Object};

/// A limit for waits that are expected to end at once. It is long enough for a busy machine.
const LONG: Duration = Duration::from_secs(20);
/// A limit for waits that are expected to fail.
const SHORT: Duration = Duration::from_millis(20);

/// A reclaimer whose polls start a grace period at once, however recent the last one is.
fn eager(domain: &Domain) -> Reclaimer {
    domain.reclaimer_builder().fence_interval(Duration::ZERO).build()
}

/// A cell with an object, and a reclaimer that is [`eager`].
fn with_cell(domain: &Domain) -> (Census, RcuCell<Object>, Reclaimer) {
    let census = Census::default();
    let cell = domain.cell(census.object());
    (census, cell, eager(domain))
}

/// The payload of the panic of `function`.
fn panic_of<R>(function: impl FnOnce() -> R) -> Box<dyn Any + Send> {
    match catch_unwind(AssertUnwindSafe(function)) {
        Ok(_) => panic!("it should have panicked"),
        Err(payload) => payload,
    }
}
