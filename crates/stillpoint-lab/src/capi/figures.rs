//! C beside Rust, and the drop-ins beside the libraries that they replace.

use stillpoint_harness::figures;
use stillpoint_harness::output::figures::{Across, Figure, Up};

use super::WORKERS;
use crate::reclaim::names::{ONE_CORE, OWN_CORE};

const COMMON: Figure = Figure { experiment: "capi", ..Figure::PLAIN };

pub(crate) const FIGURES: &[&Figure] = figures! {
    ..COMMON;
    "c-calls": "Single operations from C" {
        scenarios: &["quiescent", "pin", "pin-linked", "protect", "check", "retire", "call"],
        up: Up::less("ns_per_op", "nanoseconds for one operation"),
    }
    "c-lookups": "Lookups from C" {
        scenarios: &["lookup", "burst", "lookup-1m", "burst-1m"],
        up: Up::less("ns_per_op", "nanoseconds for one key"),
    }
    "c-delay": "From unlink, or from call_rcu, to the destructor" {
        scenarios: &[OWN_CORE, ONE_CORE], across: Across::param("readers", "readers"),
        up: Up::less("delay_us_mean", "mean delay, in µs")
            .between("delay_us_mean_least", "delay_us_mean_most"),
        beside: &["policy", "cores", "elements", "structure", "round_s", "deletes_per_s", "bytes"],
    }
    "c-timers": "rte_timer, and its drop-in" {
        scenarios: &["own"],
        across: Across::Metrics(&[
            ("add_cycles", "add"),
            ("reset_cycles", "reset"),
            ("cancel_cycles", "cancel"),
            ("expire_cycles", "expire"),
            ("manage_idle_cycles", "idle poll"),
        ]),
        up: Up::less("", "TSC cycles"), beside: &["time"],
    }
    "c-workers": "The end of idle workers of call_rcu" {
        scenarios: &[WORKERS], up: Up::less("ms", "milliseconds for all of them"), beside: &["workers"],
    }
};
