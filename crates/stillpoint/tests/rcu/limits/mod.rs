//! Waiting objects stay within their limits, whoever retires, and even if some thread never comes back. And no object
//! is lost.

mod bounded;
mod domain;
mod policies;
mod random;
mod reclaim;
mod stress;
mod tables;

use stillpoint::rcu::{Domain, Retired, Stats};

fn retired<T: Send + Sync + 'static>(domain: &Domain, object: T) -> Retired<T> {
    domain.cell(object).take().expect("the cell is full")
}

/// A domain in which this many objects may wait.
fn limited(objects: usize) -> Domain {
    Domain::builder().max_pending(objects).build().expect("the default mode is always available")
}

/// How often objects were handed back, retirements waited, and retirements freed objects of others.
fn troubles(stats: &Stats) -> [u64; 3] {
    [stats.handed_back, stats.waits, stats.reclaims_by_retirers]
}
