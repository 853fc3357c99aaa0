//! The tables of the experiment.

use serde_json::Value;
use stillpoint_harness::experiment::control::contender;
use stillpoint_harness::output::format::{micros, number_of, rate};
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::say;
use stillpoint_harness::output::table::{self, Column};

use super::CONTENDERS;

const BARRIERS: &[Column<'_>] = &[
    ("contender", &|row| row.contender.clone()),
    ("median", &|row| row.shown_or_void("latency_us_p50", micros)),
    ("of rounds", &|row| {
        row.shown("latency_us_least", |least| micros(least) + " … ") + &row.shown("latency_us_most", micros)
    }),
    ("p99", &|row| row.shown("latency_us_p99", micros)),
    ("send", &|row| row.shown("send_us_p50", micros)),
    ("helped", &|row| match row.metric("send_us_p50") {
        Some(_) => row.shown("helped", |helped| format!("{helped:.0}")),
        None => String::new(),
    }),
    ("all initiators", &|row| row.shown("ops_per_s", rate)),
];

const READERS: &[Column<'_>] = &[
    ("mode", &|row| row.contender.clone()),
    ("asked", &|row| match &row.params["synchronize_per_s"] {
        Value::String(most) => most.clone(),
        number => format!("{number}/s"),
    }),
    ("synchronized", &|row| row.shown("synchronized_per_s", rate)),
    ("sections", &|row| row.shown("sections_per_s", rate)),
    ("loss", &|row| row.shown("reader_loss_percent", percent)),
    ("of windows", &loss_of_windows),
    ("below the syscall", &|row| row.shown("below_syscall_percent", percent)),
    ("interrupts", &|row| row.shown("interrupts_per_barrier", each)),
    ("depth", &|row| row.shown("barrier_depth", each)),
];

const PACES: &[Column<'_>] = &[
    ("pace", &|row| row.contender.clone()),
    ("p50", &|row| row.shown("delay_us_p50", micros)),
    ("p99", &|row| row.shown("delay_us_p99", micros)),
    ("fences", &|row| row.shown("fences_per_s", rate)),
    ("loss", &|row| row.shown("reader_loss_percent", percent)),
    ("of windows", &loss_of_windows),
];

fn each(value: f64) -> String {
    format!("{value:.2}")
}

fn percent(value: f64) -> String {
    format!("{value:.1} %")
}

/// What readers lost, from the first quartile of the windows to the third.
fn loss_of_windows(row: &Row) -> String {
    let least = row.shown("reader_loss_percent_q1", |least| format!("{least:.1} … "));
    least + &row.shown("reader_loss_percent_q3", percent)
}

/// Prints a table for each setting of threads, and one for the readers.
pub(super) fn tables(rows: &[Row]) {
    let (paces, rows): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.scenario == "paces");
    let (mut readers, barriers): (Vec<&Row>, Vec<&Row>) =
        rows.into_iter().partition(|row| row.scenario == "readers");
    let setting = |row: &Row| ["threads", "initiators", "state"].map(|name| row.params[name].clone());
    for rows in barriers.chunk_by(|a, b| setting(a) == setting(b)) {
        let [threads, initiators, state] = setting(rows[0]);
        let state = state.as_str().unwrap_or_default();
        let number = |value: &serde_json::Value, noun| number_of(value.as_u64().unwrap_or_default(), noun);
        let (threads, initiators) = (number(&threads, "thread"), number(&initiators, "initiator"));
        let caption = format!("Barriers: {threads}, {state}; {initiators}");
        table::of_rows(&caption, BARRIERS, 1, rows.iter().copied());
    }
    if !readers.is_empty() {
        readers.sort_by_key(|row| CONTENDERS.iter().position(|name| *name == contender(&row.contender)));
        let caption = "Readers: sections a second while a writer synchronizes, on a CPU of its own";
        table::of_rows(caption, READERS, 1, readers);
        say(
            "Loss: sections lost in a window in which the writer synchronizes, against the windows before and after, in \
            which it sleeps; median, and first and third quartile. Below the syscall: the sections that are left, against \
            those of mode/asymmetric. Interrupts and depth: of a barrier of the module, by its own counters.",
        );
    }
    if !paces.is_empty() {
        let caption =
            "Paces: a reader on each other CPU, and a writer that retires 10000 objects a second and polls";
        table::of_rows(caption, PACES, 1, paces);
        say(
            "From unlink to free, by the shortest time between two heavy fences for less than a batch: 50 µs is the default. \
            fence: only the heavy fence, at the same rate.",
        );
    }
    say(
        "Medians of rounds. Send: until the initiator's last message, before it waits. Helped: messages that it sent \
        in place of threads that had not sent theirs yet.",
    );
}
