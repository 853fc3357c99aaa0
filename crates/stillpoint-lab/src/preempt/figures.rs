//! What the paper's evaluation measured, against the number of readers on a CPU.

use stillpoint_harness::figures;
use stillpoint_harness::output::figures::{Across, Figure, Up};

const COMMON: Figure = Figure {
    experiment: "preempt",
    // A baseline is the first point of overcommit.
    scenarios: &["baseline", "overcommit"],
    across: Across::param("readers_per_core", "readers on each CPU"),
    beside: &["scenario", "policy", "cores", "round_s"],
    ..Figure::PLAIN
};

pub(crate) const FIGURES: &[&Figure] = figures! {
    ..COMMON;
    "grace-periods": "Mean grace period" {
        up: Up::less("gp_us_mean", "mean grace period, in µs"),
        words: "The paper, of virtual CPUs under overcommit against a baseline: 2.18 times as long for Postmark, 1.30 times for the memory benchmark.",
    }
    "longest-grace-period": "Longest grace period" {
        up: Up::less("gp_us_max", "longest grace period, in µs"),
        words: "The paper: 26.37 times as long for Postmark, 3.62 times for the memory benchmark.",
    }
    "grace-period-cpu": "CPU time for each grace period" {
        up: Up::less("cpu_us_per_gp", "CPU time for each grace period, in µs"),
        words: "The paper: 2.9 times as much for Postmark.",
    }
    "peak-pending": "Memory that waits, at its peak" {
        up: Up::less("peak_pending_bytes", "bytes unlinked and not freed"),
        words: "The paper: about half as much memory again at the peak.",
    }
};
