//! When objects are freed: not before their readers have let go, and at once after.

#![cfg(not(loom))]

mod bound;
mod fences;
mod holding;
mod leaving;
mod objects;
mod own_loads;
mod regions;
mod registration;
mod stalls;
mod statistics;
mod tokens;
mod waking;

#[path = "../support/census.rs"]
mod census;
#[path = "../support/modes.rs"]
mod modes;
#[path = "../support/skip.rs"]
mod skip;

use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use census::{Census, Object};
use stillpoint::fence::Mode;
use stillpoint::rcu::{Domain, RcuCell, Reclaimer, Stall};

/// A limit for waits that are expected to end at once: long enough for a machine that is busy elsewhere.
const LONG: Duration = Duration::from_secs(20);
/// A limit for waits that are expected to fail.
const SHORT: Duration = Duration::from_millis(20);

/// A reclaimer whose polls start a grace period at once, whatever the last one did.
fn eager(domain: &Domain) -> Reclaimer {
    domain.reclaimer_builder().fence_interval(Duration::ZERO).build()
}

/// A domain that tells when somebody in it has found a reader in its way, and is about to wait.
fn noticing(mode: Mode) -> (Domain, Receiver<()>) {
    let (noticed, is_noticed) = mpsc::channel();
    let hook = move |_: &Stall| {
        let _ = noticed.send(()); // nobody may want to know
    };
    let domain = Domain::builder().fence(mode).stall_hook(Duration::ZERO, hook).build();
    (domain.expect("the mode was probed"), is_noticed)
}

/// Replaces what is in `cell` and retires it.
fn retire_one(cell: &RcuCell<Object>, census: &Census, reclaimer: &mut Reclaimer) {
    reclaimer.retire(cell.replace(census.object()).expect("never empty here")).expect("there is room");
}
