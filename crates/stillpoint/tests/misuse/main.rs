//! What the safe interface lets one do wrong: it may leak, panic or refuse, but never dangle.

#![cfg(not(loom))]

mod attacks;
mod background;
mod exchange;
mod foreign;
mod forgotten;
mod limits;
mod nested;
mod order;
mod panics;
mod programs;
mod reentry;
mod shapes;
mod threads;
mod waiting;

#[path = "../support/census.rs"]
mod census;
#[path = "../support/child.rs"]
mod child;
#[path = "../support/random.rs"]
mod random;
#[path = "../support/then.rs"]
mod then;

use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::{Duration, Instant};

use stillpoint::rcu::{Domain, Reclaimer};

/// A limit for waits that are expected to end at once: long enough for a machine that is busy elsewhere.
const LONG: Duration = Duration::from_secs(20);
/// A limit for waits that are expected to fail.
const SHORT: Duration = Duration::from_millis(20);

/// A reclaimer whose polls start a grace period at once, whatever the last one did.
fn eager(domain: &Domain) -> Reclaimer {
    domain.reclaimer_builder().fence_interval(Duration::ZERO).build()
}

/// What `function` panics with.
fn panic_of<R>(function: impl FnOnce() -> R) -> Box<dyn Any + Send> {
    match catch_unwind(AssertUnwindSafe(function)) {
        Ok(_) => panic!("it should have panicked"),
        Err(payload) => payload,
    }
}

/// The message that `function` panics with.
fn message_of<R>(function: impl FnOnce() -> R) -> String {
    *panic_of(function).downcast::<String>().expect("the message is formatted")
}

/// Waits for something that another thread does.
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < LONG, "waited in vain: {what}");
        std::thread::yield_now();
    }
}
