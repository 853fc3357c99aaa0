//! Boosts of preempted readers: they happen, and leave no trace.
//!
//! Readers that wait for a CPU are made by pinning them to one CPU together with threads that compute.

#![cfg(not(any(stillpoint_loom, miri)))]

#[path = "../support/asleep.rs"]
mod asleep;
#[path = "../support/child.rs"]
mod child;
mod crowd;
mod endings;
mod given;
mod refused;
#[path = "../support/skip.rs"]
mod skip;
mod soon;

use std::time::{Duration, Instant};

use stillpoint::rcu::{Boost, BuildError, Domain};

use skip::skipped;

/// The limit for everything that must happen eventually.
const LONG: Duration = Duration::from_secs(60);

/// A domain that boosts in this way, and at once. `None`, after a message, if this process may not boost in this way.
fn domain(boost: Boost) -> Option<Domain> {
    match Domain::builder().boost(boost).boost_after(Duration::ZERO).build() {
        Ok(domain) => Some(domain),
        Err(error) => {
            skipped(&error.to_string());
            None
        }
    }
}

/// Calls `test` for each way to boost that this process may use.
fn in_each_way(test: impl Fn(Domain)) {
    [Boost::Realtime, Boost::Migrate].into_iter().filter_map(domain).for_each(test);
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < LONG, "waited in vain: {what}");
    }
}

/// The error says what is missing.
fn names_the_right(error: &BuildError) -> bool {
    let text = error.to_string();
    text.contains("CAP_SYS_NICE") && text.contains("RLIMIT_RTPRIO") && text.contains("boost_fallback")
}
