//! Misuse of the safe interface may lead to leaks, panics or errors, but never to dangling references.

mod attacks;
mod background;
mod exchange;
mod foreign;
mod foreign_code;
mod forgotten;
mod limits;
mod nested;
mod order;
mod own_room;
mod panics;
mod programs;
mod reentry;
mod shapes;
mod threads;
mod waiting;

use std::time::Instant;

use stillpoint::rcu::Domain;

use crate::other::Other;
use crate::{panic_of, LONG};

/// A thread within a region, until this is dropped.
fn in_region(domain: &Domain) -> Other {
    let domain = domain.clone();
    Other::start(move |turns| {
        let reader = domain.reader();
        let _guard = reader.pin();
        turns.for_each(drop);
    })
}

/// The message that `function` panics with.
fn message_of<R>(function: impl FnOnce() -> R) -> String {
    *panic_of(function).downcast::<String>().expect("the message is formatted")
}

/// Waits for an action of another thread.
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < LONG, "waited in vain: {what}");
        std::thread::yield_now();
    }
}
