//! Calls of the structures, and the memory that waits while a reader is stalled.

use stillpoint_harness::figures;
use stillpoint_harness::output::figures::{Figure, Up};

use super::PARKED;

const COMMON: Figure =
    Figure { experiment: "structures", beside: &["keys", "replacements"], ..Figure::PLAIN };

pub(crate) const FIGURES: &[&Figure] = figures! {
    ..COMMON;
    "structures": "Calls of stack, queue and list" {
        scenarios: &["stack", "queue", "list-90-10", "list-50-50"],
        up: Up::less("ns_per_op", "nanoseconds for one call"),
    }
    "structures-parked": "Memory that waits while one reader is stalled" {
        scenarios: &[PARKED], up: Up::less("pending_bytes", "bytes not freed"),
    }
};
