//! The asymmetric pair as loom sees it.
//!
//! Read-modify-writes of one location are totally ordered, and the later of two receives what the earlier one
//! released. So of a `light` and a `heavy`, one is ordered after the other: the promise. A sequentially consistent
//! fence on the reader's side would promise much more: it would be an acquire fence for the loads before it as well,
//! and hide an acquire that is missing there. A little more than the promise remains: two `light`s are ordered, too.

use std::cell::Cell;

use loom::sync::atomic::{AtomicUsize, Ordering};

loom::lazy_static! {
    static ref PAIR: AtomicUsize = AtomicUsize::new(0);
}

std::thread_local! {
    /// Whether the model has futures. loom runs all threads of a model on one thread of the system.
    pub(crate) static HAS_REQUESTS: Cell<bool> = const { Cell::new(false) };
}

pub(super) fn meet() {
    // AcqRel: pairs with itself.
    PAIR.fetch_add(1, Ordering::AcqRel);
}
