//! When objects are freed: not before their readers have released them, and then at once.

mod bound;
pub(crate) mod fences;
mod holding;
mod leaving;
mod objects;
mod own_loads;
mod regions;
mod registration;
mod stalls;
mod statistics;
mod tokens;
mod vouching;
mod waking;

use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use stillpoint::fence::Mode;
use stillpoint::rcu::wait::Stall;
use stillpoint::rcu::{Domain, RcuCell, Reclaimer};

use crate::census::{Census, Object};

/// A domain that says when a writer has found a reader in its way, and is about to wait.
fn noticing(mode: Mode) -> (Domain, Receiver<()>) {
    let (noticed, is_noticed) = mpsc::channel();
    let hook = move |_: &Stall| {
        let _ = noticed.send(()); // the test may not listen any more
    };
    let domain = Domain::builder().fence(mode).stall_hook(Duration::ZERO, hook).build();
    (domain.expect("the mode was probed"), is_noticed)
}

/// Replaces what is in `cell` and retires it.
fn retire_one(cell: &RcuCell<Object>, census: &Census, reclaimer: &mut Reclaimer) {
    reclaimer.retire(cell.replace(census.object()).expect("never empty here")).expect("there is room");
}
