//! The tables of the experiment.

use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::{say, table};

/// A column: its header and its metric.
type Column = (&'static str, &'static str);

const OWN: &[Column] = &[
    ("add", "add_cycles"),
    ("cancel", "cancel_cycles"),
    ("shuffled", "cancel_shuffled_cycles"),
    ("reset", "reset_cycles"),
    ("expire", "expire_cycles"),
    ("mixed", "mixed_cycles"),
    ("idle poll", "manage_idle_cycles"),
    ("in steps", "step_cycles"),
    ("p99.9 of a step", "step_cycles_p999"),
    ("hour's jump", "jump_cycles"),
];

const STEADY: &[Column] = &[
    ("mean", "poll_cycles"),
    ("p50", "poll_cycles_p50"),
    ("p99", "poll_cycles_p99"),
    ("p99.9", "poll_cycles_p999"),
    ("max", "poll_cycles_max"),
    ("p99.9, µs", "poll_us_p999"),
    ("most fired", "most_fired"),
    ("latest, ms", "latest_ms"),
];

const CONNECTIONS: &[Column] = &[
    ("packets/s", "packets_per_s"),
    ("poll, p50", "poll_us_p50"),
    ("p99.9", "poll_us_p999"),
    ("max", "poll_us_max"),
    ("latest", "late_us_max"),
    ("expired of 1,000", "expired_per_1000_packets"),
    ("dropped, %", "dropped_percent"),
    ("bytes each", "bytes_per_connection"),
];

const DELAYS: &[Column] = &[
    ("insert, ns", "insert_ns"),
    ("take, ns", "take_ns"),
    ("insert and take, ns", "insert_and_take_ns"),
    ("reset, ns", "reset_ns"),
];

const LATE: &[Column] =
    &[("p50, µs", "late_us_p50"), ("p99, µs", "late_us_p99"), ("longest, µs", "late_us_max")];

const REMOTE: &[Column] = &[
    ("add, source", "remote_source_cycles"),
    ("add, target", "remote_target_cycles"),
    ("with the wheel's own", "remote_target_whole_cycles"),
    ("cancel, source", "remote_cancel_cycles"),
    ("cancel, target", "remote_unlink_cycles"),
];

/// Where the time comes from, in words.
const TIMES: [(&str, &str); 3] = [
    ("integer", "time as an integer"),
    ("std", "time as Instants and Durations"),
    ("clock", "a clock read at each call"),
];

/// Prints a table for each number of timers and source of time, and one for two threads.
pub(super) fn tables(rows: &[Row]) {
    for (scenario, what, columns) in [
        ("own", "on one thread, TSC cycles each", OWN),
        ("steady", "with timeouts of 300 s, polled each millisecond: TSC cycles of a poll", STEADY),
    ] {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.scenario == scenario).collect();
        for rows in rows.chunk_by(|a, b| a.params["timers"] == b.params["timers"]) {
            for (time, in_words) in TIMES {
                let rows: Vec<&Row> = rows.iter().copied().filter(|row| row.params["time"] == time).collect();
                if !rows.is_empty() {
                    let caption = format!("Timers: {} {what}; {in_words}", rows[0].params["timers"]);
                    of_rows(&caption, "contender", |row| row.contender.clone(), columns, &rows);
                }
            }
        }
    }
    let remote: Vec<&Row> = rows.iter().filter(|row| row.scenario == "remote").collect();
    if !remote.is_empty() {
        let caption = "Timers of another thread: TSC cycles each";
        let name = |row: &Row| format!("{}, bursts of {}", row.contender, row.params["burst"]);
        of_rows(caption, "contender", name, REMOTE, &remote);
    }
    let connections: Vec<&Row> = rows.iter().filter(|row| row.scenario == "connections").collect();
    for rows in connections.chunk_by(|a, b| a.params["choice"] == b.params["choice"]) {
        let Row { params, .. } = rows[0];
        let (timers, timeout, choice) = (&params["timers"], &params["timeout_ms"], &params["choice"]);
        let choice = choice.as_str().unwrap_or_default();
        let caption = format!("{timers} connections with timeouts of {timeout} ms, {choice}; times in µs");
        of_rows(&caption, "contender", |row| row.contender.clone(), CONNECTIONS, rows);
    }
    let delays: Vec<&Row> = rows.iter().filter(|row| row.scenario == "queues").collect();
    for rows in delays.chunk_by(|a, b| a.params["timers"] == b.params["timers"]) {
        let (caption, columns) = match &rows[0].params["timers"] {
            one if *one == 1 => ("How late an item is that is inserted while a task waits".to_owned(), LATE),
            items => (format!("A queue of {items} delays, read by a task"), DELAYS),
        };
        of_rows(&caption, "contender", |row| row.contender.clone(), columns, rows);
    }
    say(
        "Median of rounds. Mixed: all timers are added, nine of ten cancelled, the others fired. In steps: of 64 ticks.",
    );
    say(
        "Timeouts of 300 s: in one poll, stillpoint/wheel fires at most 64 timers, and moves at most 64 on each level (Limit::expiries).",
    );
    if !connections.is_empty() {
        say(
            "Connections: packets for each second of work, without the waits for bursts. A million packets a second come, in \
             bursts of 32. Packets that do not fit into a ring of 1,024 are dropped; then more connections expire.",
        );
    }
    say(
        "Compare only contenders with the same source of time: an integer costs nothing, an Instant and a Duration some \
        arithmetic, and +clock and rte_timer read the clock themselves.",
    );
}

fn of_rows(caption: &str, first: &str, name: impl Fn(&Row) -> String, columns: &[Column], rows: &[&Row]) {
    let header: Vec<&str> = std::iter::once(first).chain(columns.iter().map(|column| column.0)).collect();
    let line = |row: &&Row| {
        let figures = columns.iter().map(|column| row.shown(column.1, figure));
        let mut cells: Vec<String> = std::iter::once(name(row)).chain(figures).collect();
        if let Some(void) = &row.void {
            cells[1].clone_from(void);
        }
        cells
    };
    table::of_lines(caption, &header, 1, rows.iter().map(line));
}

fn figure(value: f64) -> String {
    match value.abs() {
        small if small < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
