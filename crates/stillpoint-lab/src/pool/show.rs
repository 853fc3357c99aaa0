//! The tables of the experiment: contenders by settings, one table for each scenario.

use super::{CONTENDERS, SCENARIOS};
use crate::output::json::Row;
use crate::output::{format, say, table};

/// Prints a table for each scenario and number of objects kept.
pub(super) fn tables(rows: &[Row], notes: &[String]) {
    let bold = anstyle::Style::new().bold();
    for scenario in SCENARIOS {
        let of_scenario: Vec<&Row> = rows.iter().filter(|row| row.scenario == *scenario).collect();
        let mut keeps: Vec<u64> = of_scenario.iter().map(|row| param(row, "keep").unwrap_or(0)).collect();
        keeps.dedup();
        for keep in keeps {
            let rows: Vec<&Row> =
                of_scenario.iter().copied().filter(|row| param(row, "keep") == Some(keep)).collect();
            say(format!("\n{bold}Pool: {scenario}, {keep} objects kept; objects a second{bold:#}"));
            say(table::text(&of_rows(&rows)));
        }
    }
    say("Median of rounds; objects of 2,048 bytes, each read once. A get with its put counts as one.");
    notes.iter().for_each(say);
}

fn param(row: &Row, name: &str) -> Option<u64> {
    row.params.get(name)?.as_u64()
}

/// How a column is headed.
fn column(row: &Row) -> String {
    let (get, put) = (param(row, "get").unwrap_or(0), param(row, "put").unwrap_or(0));
    let put = if put == 0 { "whole".to_owned() } else { put.to_string() };
    match (row.scenario.as_str(), param(row, "cores")) {
        ("private", Some(cores)) => format!("cores: {cores}"),
        _ => format!("{get}, {put}"),
    }
}

fn line(row: &Row) -> (usize, u64) {
    let position = CONTENDERS.iter().position(|name| *name == row.contender);
    (position.unwrap_or(usize::MAX), param(row, "cache").unwrap_or(0))
}

fn of_rows(rows: &[&Row]) -> comfy_table::Table {
    let mut columns: Vec<String> = Vec::new();
    for row in rows {
        let column = column(row);
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    let header: Vec<&str> =
        ["contender", "cache"].into_iter().chain(columns.iter().map(String::as_str)).collect();
    let mut table = table::of_figures(&header, 1);
    let mut lines: Vec<(usize, u64)> = rows.iter().map(|row| line(row)).collect();
    lines.sort_unstable();
    lines.dedup();
    for wanted in lines {
        let of_line: Vec<&&Row> = rows.iter().filter(|row| line(row) == wanted).collect();
        let cell = |name: &String| {
            let row = of_line.iter().find(|row| column(row) == *name)?;
            Some(
                row.void
                    .clone()
                    .or_else(|| Some(row.metrics.get("unfinished")?.as_str()?.to_owned()))
                    .unwrap_or_else(|| row.metric("objects_per_s").map(format::rate).unwrap_or_default()),
            )
        };
        let first = of_line.first().map(|row| row.contender.clone()).unwrap_or_default();
        let cache = of_line.first().and_then(|row| param(row, "cache"));
        let cache = cache.map(|cache| cache.to_string()).unwrap_or_default();
        let cells = columns.iter().map(|name| cell(name).unwrap_or_default());
        table.add_row([first, cache].into_iter().chain(cells));
    }
    table
}
