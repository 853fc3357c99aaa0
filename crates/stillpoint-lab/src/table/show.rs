//! The tables of the experiment: contenders by metrics, one table for each setting.

use stillpoint_harness::output::format::{self, rate};
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::say;
use stillpoint_harness::output::table::{self, Column};

const COLUMNS: &[Column<'_>] = &[
    ("contender", &|row| row.contender.clone()),
    ("lookups", &|row| row.shown_or_void("lookups_per_s", rate)),
    ("bursts", &|row| row.shown("bulk_lookups_per_s", rate)),
    ("90/10", &|row| row.shown("mix_90_10_per_s", rate)),
    ("50/50", &|row| row.shown("mix_50_50_per_s", rate)),
    ("insert+remove", &|row| row.shown("insert_remove_per_s", rate)),
    ("bytes", &|row| row.shown("bytes_per_entry", |bytes| format!("{bytes:.1}"))),
    ("insert p99.99", &|row| row.shown("insert_ns_p9999", micros)),
    ("p99.999", &|row| row.shown("insert_ns_p99999", micros)),
    ("slowest", &|row| row.shown("insert_ns_max", micros)),
];

fn micros(nanoseconds: f64) -> String {
    format::micros(nanoseconds / 1e3)
}

/// Prints a table for each kind of keys, choice of keys, and number of threads.
pub(super) fn tables(rows: &[Row], about_pages: &str) {
    let setting = |row: &Row| (row.param("key_bytes"), row.param("threads"));
    for rows in rows.chunk_by(|a, b| a.scenario == b.scenario && setting(a) == setting(b)) {
        let Row { scenario, params, .. } = &rows[0];
        let (key_bytes, threads) = (&params["key_bytes"], &params["threads"]);
        let caption = format!("Table: {scenario}, keys of {key_bytes} bytes, threads: {threads}");
        table::of_rows(&caption, COLUMNS, 1, rows);
    }
    say(
        "Median of rounds. 90/10, 50/50: lookups among removals and insertions. Insert+remove: a key is removed and \
         inserted again. Bytes: key, value and all around them.",
    );
    say("Slowest inserts: into a table that grows from nothing, with the clock's two reads.");
    say(format!("{about_pages}; stillpoint asks for transparent ones."));
}
