//! What waits stays within its limits, whoever retires and whoever never comes back; and nothing is lost.

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

/// A domain in which that many objects may wait.
fn limited(objects: usize) -> Domain {
    Domain::builder().max_pending(objects).build().expect("the default mode is always available")
}

/// How often objects were handed back, retirements waited, and retirers freed what others had retired.
fn troubles(stats: &Stats) -> [u64; 3] {
    [stats.handed_back, stats.waits, stats.reclaims_by_retirers]
}
