//! The tables of the experiment.

use serde_json::Value;
use stillpoint_harness::experiment::show::failed;
use stillpoint_harness::output::format::{self, rate};
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::say;
use stillpoint_harness::output::table::{self, Column};

use super::service::{self, SERVICE};

const COLUMNS: &[Column<'_>] = &[
    ("contender", &|row| row.contender.clone()),
    ("lookups", &|row| row.shown_or_void("lookups_per_s", rate)),
    ("bursts", &|row| row.shown("bulk_lookups_per_s", rate)),
    ("get_or_insert", &|row| row.shown("get_or_insert_per_s", rate)),
    ("90/10", &|row| row.shown("mix_90_10_per_s", rate)),
    ("50/50", &|row| row.shown("mix_50_50_per_s", rate)),
    ("insert+remove", &|row| row.shown("insert_remove_per_s", rate)),
    ("update", &|row| row.shown("updates_per_s", rate)),
    ("lookups after these", &|row| row.shown("churned_lookups_per_s", rate)),
    ("bytes", &|row| row.shown("bytes_per_entry", bytes)),
];

const GROWTH: &[Column<'_>] = &[
    ("contender", &|row| row.contender.clone()),
    ("bytes an entry", &|row| row.shown_or_void("bytes_per_entry", bytes)),
    ("resident", &|row| row.shown("resident_bytes", mebibytes)),
    ("in huge pages", &|row| row.shown("huge_page_bytes", mebibytes)),
    ("half removed", &|row| row.shown("resident_bytes_halved", mebibytes)),
    ("bytes an entry then", &|row| row.shown("bytes_per_entry_halved", bytes)),
    ("insert mean", &|row| row.shown("insert_ns_mean", micros)),
    ("p99.99", &|row| row.shown("insert_ns_p9999", micros)),
    ("p99.999", &|row| row.shown("insert_ns_p99999", micros)),
    ("slowest", &|row| row.shown("insert_ns_max", micros)),
];

fn bytes(bytes: f64) -> String {
    format!("{bytes:.1}")
}

fn mebibytes(bytes: f64) -> String {
    format!("{:.0} MiB", bytes / f64::from(1 << 20))
}

fn micros(nanoseconds: f64) -> String {
    format::micros(nanoseconds / 1e3)
}

/// Prints a table for each kind of keys, number of entries, choice of keys, and number of threads.
pub(super) fn tables(rows: &[Row], about_pages: &str) {
    let setting =
        |row: &Row| ["key_bytes", "entries", "threads"].map(|name| row.param(name).unwrap_or_default());
    for rows in rows.chunk_by(|a, b| a.scenario == b.scenario && setting(a) == setting(b)) {
        let [key_bytes, entries, threads] = setting(&rows[0]);
        let scenario = &rows[0].scenario;
        let caption = format!("Table: {scenario}, {entries} keys of {key_bytes} bytes, threads: {threads}");
        table::of_rows(&caption, COLUMNS, 1, rows);
    }
    say(
        "Median of rounds. Lookups, bursts of 32, and get_or_insert of present keys: in tables as they were filled. \
        90/10, 50/50: lookups mixed with removals and insertions. Insert+remove: a key is removed and inserted again. \
        Update: a new value from the old one. Bytes: all memory of a table, for each entry that it was made for.",
    );
    say(format!("{about_pages}; malloc and stillpoint ask for transparent ones, for every contender."));
}

/// The setting of a row that is measured in a separate process, in words.
pub(super) fn caption(row: &Row) -> String {
    let text = |name: &str| {
        row.params.get(name).map_or_else(String::new, |value| value.to_string().replace('"', ""))
    };
    let pairs = format!("keys {}, values of {} bytes", text("keys"), text("value_bytes"));
    match row.scenario.as_str() {
        SERVICE => {
            let [mix, entries, threads] = ["mix", "entries", "threads"].map(text);
            format!("a service, {mix}, {entries} {pairs}, threads: {threads}")
        }
        "growth" => format!("growth from 0 to {} entries, {pairs}", text("entries")),
        harness => format!("{harness}, {pairs}, capacity {}, threads: {}", text("capacity"), text("threads")),
    }
}

/// Prints a table for each growth, one for the mixes of each harness, and one for services.
pub(super) fn singles(rows: &[Row]) {
    let (services, others): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.scenario == SERVICE);
    let (growth, mut mixes): (Vec<&Row>, Vec<&Row>) =
        others.into_iter().partition(|row| row.scenario == "growth");
    for rows in growth.chunk_by(|a, b| caption(a) == caption(b)) {
        table::of_rows(&format!("Table: {}", caption(rows[0])), GROWTH, 1, rows.iter().copied());
    }
    // In the plan, a mix has all of its numbers of threads one after the other.
    mixes.sort_by_key(|row| (row.params["keys"] == "String", row.scenario.clone(), row.param("threads")));
    for rows in mixes.chunk_by(|a, b| caption(a) == caption(b)) {
        let of_first = rows.iter().filter(|row| row.contender == rows[0].contender);
        let names: Vec<&Value> = of_first.map(|row| &row.params["mix"]).collect();
        let header: Vec<&str> =
            std::iter::once("contender").chain(names.iter().filter_map(|name| name.as_str())).collect();
        let mut contenders: Vec<&str> = rows.iter().map(|row| row.contender.as_str()).collect();
        contenders.sort_by_key(|name| rows.iter().position(|row| row.contender == **name));
        contenders.dedup();
        let line = |contender: &str| {
            let of = |name: &Value| {
                let row = rows.iter().find(|row| row.contender == contender && row.params["mix"] == *name);
                row.map(|row| row.shown_or_failed("ops_per_s", rate)).unwrap_or_default()
            };
            let rates = names.iter().map(|name| of(name));
            std::iter::once(contender.to_owned()).chain(rates).collect::<Vec<String>>()
        };
        table::of_lines(
            &format!("Table: {}", caption(rows[0])),
            &header,
            1,
            contenders.into_iter().map(line),
        );
    }
    if !growth.is_empty() {
        say(
            "Growth: median of rounds, each in a new process. The time of an insertion includes two reads of the clock.",
        );
    }
    if !mixes.is_empty() {
        say(
            "Mixes: operations a second of all threads, median of rounds, each in a new process. Insert heavy and rapid grow \
             begin with an empty table, the others with a table that is three quarters full.",
        );
    }
    service::show(&services);
    failed(rows, |row| format!("{} ({})", row.contender, caption(row)));
}
