//! The tables of the experiment: contenders by settings, one table for each scenario.

use stillpoint_harness::experiment::control::contender;
use stillpoint_harness::output::format::{number_of, rate};
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::{say, table};

use super::{CONTENDERS, TRANSMIT_HUGE, transmits};

/// Prints a table for each scenario and number of objects kept.
pub(super) fn tables(rows: &[Row], notes: &[String]) {
    let same = |a: &Row, b: &Row| {
        let same = |param: &str| a.params[param] == b.params[param];
        a.scenario == b.scenario && same("keep") && (same("cores") || cores_are_columns(a))
    };
    for rows in rows.chunk_by(same) {
        of_rows(rows);
    }
    say(
        "Median of rounds; objects of 2,048 bytes, each read once. A get and its put count as one operation.",
    );
    if rows.iter().any(|row| transmits(&row.scenario)) {
        say("Packets of 64 bytes, each written once; the device frees them one by one.");
    }
    notes.iter().for_each(say);
}

/// Whether the table has a column for each number of cores.
fn cores_are_columns(row: &Row) -> bool {
    row.scenario == "private" || transmits(&row.scenario)
}

/// The header of a column.
fn column(row: &Row) -> String {
    match (cores_are_columns(row), &row.params["put"]) {
        (true, _) => format!("cores: {}", row.params["cores"]),
        (_, whole) if *whole == 0 => format!("{}, whole", row.params["get"]),
        (_, put) => format!("{}, {put}", row.params["get"]),
    }
}

/// The position of a row in the table. The control comes last among the rows of its contender.
fn line(row: &Row) -> (Option<usize>, &str, Option<u64>) {
    let place = CONTENDERS.iter().position(|name| *name == contender(&row.contender));
    (place, &row.contender, row.param("cache"))
}

fn cell(row: &Row) -> String {
    match row.metrics.get("unfinished") {
        Some(reason) => reason.as_str().unwrap_or_default().to_owned(),
        None if transmits(&row.scenario) => row.shown_or_void("packets_per_s", rate),
        None => row.shown_or_void("objects_per_s", rate),
    }
}

fn of_rows(rows: &[Row]) {
    let mut columns: Vec<String> = Vec::new();
    for column in rows.iter().map(column) {
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    let header: Vec<&str> =
        ["contender", "cache"].into_iter().chain(columns.iter().map(String::as_str)).collect();
    let mut sorted: Vec<&Row> = rows.iter().collect();
    sorted.sort_by_key(|row| line(row));
    let lines = sorted.chunk_by(|a, b| line(a) == line(b)).map(|of_line| {
        let of_column = |name: &String| of_line.iter().find(|row| column(row) == *name);
        let cells = columns.iter().map(|name| of_column(name).map(|row| cell(row)).unwrap_or_default());
        let cache = of_line[0].param("cache").map(|cache| cache.to_string()).unwrap_or_default();
        [of_line[0].contender.clone(), cache].into_iter().chain(cells).collect::<Vec<String>>()
    });
    let Row { scenario, params, .. } = &rows[0];
    let kept = || number_of(params["keep"].as_u64().unwrap_or_default(), "object");
    let caption = match params["cores"].as_u64() {
        _ if transmits(scenario) => {
            let pages = if scenario == TRANSMIT_HUGE { "reserved huge pages" } else { "small pages" };
            format!("Pool: {scenario}, bursts of 32 from {pages}; packets a second")
        }
        Some(cores @ 2..) if !cores_are_columns(&rows[0]) => {
            format!("Pool: {scenario}, {} kept by each of {cores} threads; objects a second", kept())
        }
        _ => format!("Pool: {scenario}, {} kept; objects a second", kept()),
    };
    table::of_lines(&caption, &header, 1, lines);
}
