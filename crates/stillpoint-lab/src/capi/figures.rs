//! C beside Rust, and the drop-ins beside the libraries that they replace.

use stillpoint_harness::output::figures::{Across, Figure, Up};

use super::WORKERS;
use crate::reclaim::names::{ONE_CORE, OWN_CORE};

const COMMON: Figure = Figure { experiment: "capi", ..Figure::PLAIN };

pub(crate) const FIGURES: &[&Figure] = &[
    &Figure {
        name: "c-calls",
        scenarios: &["quiescent", "pin", "pin-linked", "protect", "check", "retire", "call"],
        title: "Single operations from C",
        up: Up::less("ns_per_op", "nanoseconds for one operation"),
        ..COMMON
    },
    &Figure {
        name: "c-lookups",
        scenarios: &["lookup", "burst", "lookup-1m", "burst-1m"],
        title: "Lookups from C",
        up: Up::less("ns_per_op", "nanoseconds for one key"),
        ..COMMON
    },
    &Figure {
        name: "c-delay",
        scenarios: &[OWN_CORE, ONE_CORE],
        title: "From unlink, or from call_rcu, to the destructor",
        across: Across::param("readers", "readers"),
        up: Up::less("delay_us_mean", "mean delay, in µs")
            .between("delay_us_mean_least", "delay_us_mean_most"),
        beside: &["policy", "cores", "elements", "structure", "round_s", "deletes_per_s", "bytes"],
        ..COMMON
    },
    &Figure {
        name: "c-timers",
        scenarios: &["own"],
        title: "rte_timer, and its drop-in",
        across: Across::Metrics(&[
            ("add_cycles", "add"),
            ("reset_cycles", "reset"),
            ("cancel_cycles", "cancel"),
            ("expire_cycles", "expire"),
            ("manage_idle_cycles", "idle poll"),
        ]),
        up: Up::less("", "TSC cycles"),
        beside: &["time"],
        ..COMMON
    },
    &Figure {
        name: "c-workers",
        scenarios: &[WORKERS],
        title: "The end of idle workers of call_rcu",
        up: Up::less("ms", "milliseconds for all of them"),
        beside: &["workers"],
        ..COMMON
    },
];
