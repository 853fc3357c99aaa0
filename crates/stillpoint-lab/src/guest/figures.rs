//! What preempted virtual CPUs do to grace periods and delays.

use stillpoint_harness::output::figures::{Across, Figure, Up};

const COMMON: Figure = Figure {
    experiment: "guest",
    scenarios: &["baseline", "overcommit"],
    across: Across::Params(&["vcpus", "hogs"]),
    beside: &["scenario", "readers", "policy", "elements", "round_s", "host_cpus", "accel", "clock"],
    named: &["mode"],
    words: "The paper measured the guest kernel's own RCU: grace periods of Postmark took 2.18 times as long under overcommit, the longest 26.37 times. Figures of one run are ratios within one accelerator: under software emulation no time means anything.",
    ..Figure::PLAIN
};

pub(crate) const FIGURES: &[&Figure] = &[
    &Figure {
        name: "guest-grace-periods",
        title: "Grace periods inside guests",
        up: Up::less("gp_us_mean", "mean grace period, in µs"),
        ..COMMON
    },
    &Figure {
        name: "guest-delays",
        title: "From unlink to free inside guests",
        up: Up::less("delay_us_mean", "mean delay, in µs"),
        ..COMMON
    },
];
