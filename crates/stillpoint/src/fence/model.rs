//! The asymmetric pair as loom models it.
//!
//! Read-modify-writes of one location are totally ordered, and the later of two acquires what the earlier one
//! released. So of a `light` and a `heavy`, one is ordered after the other, as promised. A sequentially consistent
//! fence on the reader's side would promise much more: it would also be an acquire fence for the loads before it,
//! and hide a missing acquire there. The model still promises a little too much: two `light`s are ordered, too.

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
