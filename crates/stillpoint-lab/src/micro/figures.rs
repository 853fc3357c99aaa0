//! The costs of single operations.

use stillpoint_harness::output::figures::{Figure, Up};

use super::OPERATIONS;

pub(crate) const FIGURES: &[&Figure] = &[&Figure {
    name: "operations",
    experiment: "micro",
    scenarios: OPERATIONS,
    title: "Costs of single operations",
    up: Up::less("ns_per_op", "nanoseconds for one operation"),
    without: &["malloc"],
    ..Figure::PLAIN
}];
