//! The tables of the experiment: contenders by metrics, one table for each setting.

use super::CONTENDERS;
use crate::output::json::Row;
use crate::output::{format, say, table};

/// Prints a table for each kind of keys, choice of keys, and number of threads.
pub(super) fn tables(rows: &[Row], about_pages: &str) {
    let setting =
        |row: &Row| (row.params["key_bytes"].clone(), row.scenario.clone(), row.params["threads"].clone());
    let mut settings: Vec<_> = rows.iter().map(setting).collect();
    settings.dedup();
    let bold = anstyle::Style::new().bold();
    for wanted in settings {
        let mut rows: Vec<&Row> = rows.iter().filter(|row| setting(row) == wanted).collect();
        rows.sort_by_key(|row| CONTENDERS.iter().position(|name| *name == row.contender));
        let (key_bytes, scenario, threads) = wanted;
        say(format!("\n{bold}Table: {scenario}, keys of {key_bytes} bytes, threads: {threads}{bold:#}"));
        say(table::text(&of_rows(&rows)));
    }
    say(
        "Median of rounds. 90/10, 50/50: lookups among removals and insertions. Insert+remove: a key is removed and \
         inserted again. Bytes: key, value and all around them.",
    );
    say("Slowest inserts: into a table that grows from nothing, with the clock's two reads.");
    say(format!("{about_pages}; stillpoint asks for transparent ones."));
}

fn of_rows(rows: &[&Row]) -> comfy_table::Table {
    let header = [
        "contender",
        "lookups",
        "bursts",
        "90/10",
        "50/50",
        "insert+remove",
        "bytes",
        "insert p99.99",
        "p99.999",
        "slowest",
    ];
    let mut table = table::of_figures(&header, 1);
    for row in rows {
        let cell = |name: &str, show: fn(f64) -> String| row.metric(name).map(show).unwrap_or_default();
        let micros = |nanoseconds: f64| format::micros(nanoseconds / 1e3);
        table.add_row([
            row.contender.clone(),
            row.void.clone().unwrap_or_else(|| cell("lookups_per_s", format::rate)),
            cell("bulk_lookups_per_s", format::rate),
            cell("mix_90_10_per_s", format::rate),
            cell("mix_50_50_per_s", format::rate),
            cell("insert_remove_per_s", format::rate),
            cell("bytes_per_entry", |bytes| format!("{bytes:.1}")),
            cell("insert_ns_p9999", micros),
            cell("insert_ns_p99999", micros),
            cell("insert_ns_max", micros),
        ]);
    }
    table
}
