//! The tables of the experiment: contenders by numbers of threads, a table for each scenario.

use stillpoint_harness::output::format::{bytes, number_of};
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::{say, table};

use super::PARKED;

/// Prints them.
pub(super) fn tables(rows: &[Row]) {
    for rows in rows.chunk_by(|a, b| a.scenario == b.scenario) {
        if rows[0].scenario == PARKED { pending(rows) } else { times(rows) }
    }
    say("Median of rounds. Threads push and pop in turn; the lists have some 128 of 256 keys.");
    say("ours over it: calls of stillpoint/protected over the contender's, in the same time.");
}

fn times(rows: &[Row]) {
    let mut threads: Vec<u64> = rows.iter().filter_map(|row| row.param("threads")).collect();
    threads.dedup();
    let of = |name: &str, threads: u64| {
        rows.iter().find(|row| row.contender == name && row.param("threads") == Some(threads))
    };
    let ours = |threads| of("stillpoint/protected", threads)?.metric("ns_per_op");
    let columns = |threads: &u64| [number_of(*threads, "thread"), "ours over it".to_owned()];
    let header: Vec<String> =
        std::iter::once("contender".to_owned()).chain(threads.iter().flat_map(columns)).collect();
    let cells = |name: &str, threads: u64| {
        let Some(row) = of(name, threads) else { return [String::new(), String::new()] };
        let over =
            row.metric("ns_per_op").zip(ours(threads)).map(|(time, ours)| format!("{:.2}", time / ours));
        [row.shown_or_void("ns_per_op", |time| format!("{time:.1}")), over.unwrap_or_default()]
    };
    let mut names: Vec<&str> = rows.iter().map(|row| row.contender.as_str()).collect();
    names.truncate(rows.iter().filter(|row| row.param("threads") == threads.first().copied()).count());
    let line = |name: &str| {
        let of_threads = threads.iter().flat_map(|&threads| cells(name, threads));
        std::iter::once(name.to_owned()).chain(of_threads).collect::<Vec<String>>()
    };
    let what = if rows[0].scenario.starts_with("list") { "of a call" } else { "of a push and a pop" };
    let caption = format!("Structures: {}; nanoseconds {what} of a thread", rows[0].scenario);
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    table::of_lines(&caption, &header, 1, names.into_iter().map(line));
}

fn pending(rows: &[Row]) {
    // The allocator keeps blocks for threads, so the difference can be negative: 0 is shown then.
    let shown = |row: &Row, name: &str| row.shown_or_void(name, |figure| bytes(figure.max(0.0) as u64));
    let columns: [table::Column<'_>; 3] = [
        ("contender", &|row| row.contender.clone()),
        ("one reader stalled", &|row| shown(row, "pending_bytes")),
        ("none stalled", &|row| shown(row, "pending_bytes_alone")),
    ];
    let replaced = &rows[0].params["replacements"];
    let caption = format!("Structures: {PARKED}; memory that waits after {replaced} entries were replaced");
    table::of_rows(&caption, &columns, 1, rows);
}
