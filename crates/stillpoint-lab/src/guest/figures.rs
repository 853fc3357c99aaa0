//! What preempted virtual CPUs do to grace periods, delays and memory.

use stillpoint_harness::figures;
use stillpoint_harness::output::figures::{Across, Better, Figure, Number, Up};

use super::contenders::KERNEL;
use super::settings::OVER_TIME;

const BESIDE: &[&str] = &[
    "scenario",
    "readers",
    "policy",
    "elements",
    "section_us",
    "round_s",
    "host_cpus",
    "accel",
    "clock",
    "limit_bytes",
    "memory_mib",
    "asked_bytes",
    "grace_periods_by",
];
const COMMON: Figure = Figure {
    experiment: "guest",
    scenarios: &["baseline", "overcommit"],
    across: Across::Params(&["vcpus", "hogs", "neighbour", "guests"]),
    beside: BESIDE,
    named: &["mode"],
    words: "The paper measured the guest kernel's own RCU: grace periods of Postmark took 2.18 times as long under overcommit, the longest 26.37 times. Figures of one run are ratios within one accelerator: under software emulation no time means anything.",
    ..Figure::PLAIN
};

const COURSE: Figure = Figure {
    scenarios: &[OVER_TIME],
    across: Across::Numbers { of: Number::Param("second"), title: "seconds", logarithmic: false },
    beside: &["accel"],
    named: &["guest"],
    apart: true,
    words: "The last round of each guest: `2 on 2` is the baseline, with a CPU of the host for each virtual one. The paper drew baseline and overcommit over time in this way.",
    ..COMMON
};

const RATIOS: Figure = Figure {
    up: Up { better: Better::Neither, ..Up::less("", "times as much") },
    // All but `grace_periods_by`.
    beside: BESIDE.split_at(BESIDE.len() - 1).0,
    words: "",
    ..COMMON
};

pub(crate) const FIGURES: &[&Figure] = figures! {
    ..RATIOS;
    "guest-to-baseline": "Ratio to the baseline" {
        scenarios: &["overcommit"],
        across: Across::Metrics(&[
            ("gp_mean_to_baseline", "mean grace period"),
            ("gp_max_to_baseline", "longest"),
            ("delay_mean_to_baseline", "mean delay"),
            ("delay_max_to_baseline", "longest delay"),
            ("cpu_per_gp_to_baseline", "CPU/GP"),
            ("peak_pending_to_baseline", "peak pending"),
            ("synchronize_rcu_mean_to_baseline", "mean call"),
            ("synchronize_rcu_max_to_baseline", "longest call"),
            ("slab_to_baseline", "slab"),
        ]),
    }
    "guest-to-symmetric": "Ratio of asymmetric to symmetric fences" {
        across: Across::Metrics(&[
            ("gp_mean_to_symmetric", "mean grace period"),
            ("gp_max_to_symmetric", "longest"),
            ("delay_mean_to_symmetric", "mean delay"),
            ("lookups_to_symmetric", "lookups"),
        ]),
    }
    ..COMMON;
    "guest-grace-periods": "Grace periods inside guests" {
        up: Up::less("gp_us_mean", "mean grace period, in µs"), without: &[KERNEL],
    }
    "guest-delays": "From unlink to free inside guests" { up: Up::less("delay_us_mean", "mean delay, in µs") }
    "guest-grace-period-cpu": "CPU time for each grace period inside guests" {
        up: Up::less("cpu_us_per_gp", "CPU time for each grace period, in µs"), without: &[KERNEL],
        words: "The paper: 2.9 times as much for Postmark under overcommit.",
    }
    "guest-peak-pending": "Memory that waits inside guests, at its peak" {
        up: Up::less("peak_pending_bytes", "bytes unlinked and not freed"),
        words: "The paper: about half as much memory again at the peak under overcommit.",
    }
    "guest-swapped-out": "What a guest under a limit of memory swaps out" {
        up: Up::less("swapped_out_bytes", "bytes written to the swap in a round"),
    }
    "guest-changes": "Changes that the writer makes" { up: Up::more("changes_per_s", "changes a second") }
    "guest-yielded": "Memory that a guest yields to the host's balloon" {
        up: Up::more("yielded_bytes", "bytes in the balloon at the end of a round"),
    }
    "guest-synchronize-rcu": "Latency of synchronize_rcu inside guests" {
        up: Up {
            better: Better::Neither,
            ..Up::less("synchronize_rcu_us_mean", "mean latency of a call of the guest's kernel, in µs")
        },
    }
    ..COURSE;
    "guest-delays-over-time": "Delays inside guests over time" {
        up: Up {
            better: Better::Neither,
            ..Up::less("delay_us_max", "longest delay since the point before, in µs")
        },
    }
    "guest-pending-over-time": "Memory that waits inside guests over time" {
        up: Up { better: Better::Neither, ..Up::more("pending_bytes", "bytes unlinked and not freed") },
    }
};
