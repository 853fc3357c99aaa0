//! The figures of the RFC, and those of an application.

use stillpoint_harness::figures;
use stillpoint_harness::output::figures::{Across, Figure, Published, Up};

const CYCLES: Up = Up::less("", "TSC cycles");
// Only older results have `floor`.
const COMMON: Figure =
    Figure { experiment: "timer", beside: &["time"], without: &["floor"], ..Figure::PLAIN };
/// Figures of the application, in which the time is real for every contender.
const APPLICATION: Figure = Figure {
    experiment: "timer",
    scenarios: &["connections"],
    beside: &["time", "timeout_ms"],
    ..Figure::PLAIN
};
const CHOICE: Across = Across::Params(&["choice"]);
/// What the figures do not say.
const WORDS: &str = "Compare only contenders with the same source of time: an integer costs nothing, an Instant and a Duration some arithmetic, and +clock and rte_timer read the clock themselves.";
/// The number of timers that the RFC's authors measured.
const TEN_THOUSAND: &[(&str, &str)] = &[("timers", "10000")];

pub(crate) const FIGURES: &[&Figure] = figures! {
    ..COMMON;
    "timers": "Timers of the calling thread" {
        scenarios: &["own"],
        across: Across::Metrics(&[
            ("add_cycles", "add"),
            ("cancel_cycles", "cancel"),
            ("cancel_shuffled_cycles", "cancel, shuffled"),
            ("reset_cycles", "reset"),
            ("expire_cycles", "expire"),
            ("manage_idle_cycles", "idle poll"),
        ]),
        up: CYCLES,
        words: WORDS,
        published: &[
            Published::at_names("RFC: htimer (5900X)", TEN_THOUSAND, &[("add", 28.0), ("cancel", 10.0)]),
            Published::at_names("RFC: rte_timer (5900X)", TEN_THOUSAND, &[("add", 253.0), ("cancel", 412.0)]),
        ],
    }
    "timers-steady": "Polls of a wheel whose timers never end" {
        scenarios: &["steady"],
        across: Across::Metrics(&[
            ("poll_cycles_p50", "median"),
            ("poll_cycles_p99", "99 %"),
            ("poll_cycles_p999", "99.9 %"),
            ("poll_cycles_max", "longest"),
        ]),
        up: CYCLES,
    }
    "timers-remote": "Timers of another thread" {
        scenarios: &["remote"],
        across: Across::Metrics(&[
            ("remote_source_cycles", "add, at the source"),
            ("remote_target_cycles", "add, at the target"),
            ("remote_cancel_cycles", "cancel, at the source"),
            ("remote_result_cycles", "result, at the source"),
        ]),
        up: CYCLES, beside: &["time", "timers"], named: &["burst"],
        published: &[Published::at_names(
            "RFC: htimer (5900X)",
            &[],
            &[("add, at the source", 64.0), ("add, at the target", 13.0)],
        )],
    }
    "timers-queues": "Queues of delays, read by a task" {
        scenarios: &["queues"],
        across: Across::Metrics(&[
            ("insert_ns", "insert"),
            ("take_ns", "take"),
            ("insert_and_take_ns", "insert and take"),
            ("reset_ns", "reset"),
        ]),
        up: Up::less("", "ns"),
    }
    "timers-late": "How late an item is that is inserted while a task waits" {
        scenarios: &["queues"],
        across: Across::Metrics(&[
            ("late_us_p50", "median"),
            ("late_us_p99", "99 %"),
            ("late_us_max", "longest"),
        ]),
        up: Up::less("", "after the deadline, in µs"),
    }
    ..APPLICATION;
    "connections": "Connections whose timeouts are renewed by packets: packets for a second of work" {
        across: CHOICE, up: Up::more("packets_per_s", "packets a second"),
    }
    "connections-poll": "The same: the longest poll" {
        across: CHOICE, up: Up::less("poll_us_max", "longest poll, in µs"),
    }
    "connections-memory": "The same: memory" {
        across: CHOICE, up: Up::less("bytes_per_connection", "bytes a connection"),
    }
};
