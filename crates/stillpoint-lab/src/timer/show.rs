//! The tables of the experiment.

use crate::output::json::Row;
use crate::output::{say, table};

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

const REMOTE: &[Column] = &[
    ("add, source", "remote_source_cycles"),
    ("add, target", "remote_target_cycles"),
    ("with the wheel's own", "remote_target_whole_cycles"),
    ("cancel, source", "remote_cancel_cycles"),
    ("cancel, target", "remote_unlink_cycles"),
];

/// Prints a table for each number of timers, and one for two threads.
pub(super) fn tables(rows: &[Row]) {
    let bold = anstyle::Style::new().bold();
    let mut numbers: Vec<u64> =
        rows.iter().filter(|row| row.scenario == "own").map(|row| param(row, "timers")).collect();
    numbers.dedup();
    for timers in numbers {
        let of_number = rows.iter().filter(|row| row.scenario == "own" && param(row, "timers") == timers);
        say(format!("\n{bold}Timers: {timers} on one thread, TSC cycles each{bold:#}"));
        say(table::text(&of_rows(of_number, "contender", |row| row.contender.clone(), OWN)));
    }
    let mut remote = rows.iter().filter(|row| row.scenario == "remote").peekable();
    if remote.peek().is_some() {
        say(format!("\n{bold}Timers of another thread: TSC cycles each{bold:#}"));
        say(table::text(&of_rows(remote, "burst", |row| param(row, "burst").to_string(), REMOTE)));
    }
    say("Median of rounds. Mixed: added, nine of ten cancelled, the others fired. Steps of 64 ticks.");
    say("floor: lists of the same memory alone, without keys, levels or expiry.");
    say(
        "stillpoint/wheel takes the caller's time, +clock reads it at each call, as rte_timer does by itself.",
    );
}

fn param(row: &Row, name: &str) -> u64 {
    row.params.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0)
}

fn of_rows<'a>(
    rows: impl Iterator<Item = &'a Row>,
    first: &'static str,
    name: impl Fn(&Row) -> String,
    columns: &[Column],
) -> comfy_table::Table {
    let header: Vec<&str> = std::iter::once(first).chain(columns.iter().map(|column| column.0)).collect();
    let mut table = table::of_figures(&header, 1);
    for row in rows {
        let figure = |value: f64| match value.abs() {
            small if small < 99.95 => format!("{value:.1}"),
            _ => format!("{value:.0}"),
        };
        let figures = columns.iter().map(|column| row.metric(column.1).map(figure).unwrap_or_default());
        let mut cells: Vec<String> = std::iter::once(name(row)).chain(figures).collect();
        if let Some(void) = &row.void {
            cells[1].clone_from(void);
        }
        table.add_row(cells);
    }
    table
}
