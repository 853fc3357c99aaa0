//! The tables of the experiment: contenders by settings, one table for each scenario.

use stillpoint_harness::output::format::rate;
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::{say, table};

use super::{AGAIN, BARE, CONTENDERS};

/// Prints a table for each scenario and number of objects kept.
pub(super) fn tables(rows: &[Row], notes: &[String]) {
    for rows in rows.chunk_by(|a, b| a.scenario == b.scenario && a.params["keep"] == b.params["keep"]) {
        of_rows(rows);
    }
    say("Median of rounds; objects of 2,048 bytes, each read once. A get with its put counts as one.");
    control(rows).iter().for_each(say);
    notes.iter().for_each(say);
}

/// How far the control is from what it repeats.
fn control(rows: &[Row]) -> Option<String> {
    let of = |name: &'static str| rows.iter().filter(move |row| row.contender == name);
    let rate = |row: &Row| row.metrics.get("objects_per_s").and_then(|rate| rate.as_f64());
    let ratio = |row: &Row| {
        let same = |first: &&Row| first.scenario == row.scenario && first.params == row.params;
        Some(rate(row)? / rate(of(BARE).find(same)?)?)
    };
    let mut ratios: Vec<f64> = of(AGAIN).filter_map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let (least, most) = (ratios.first()?, ratios.last()?);
    let quartile = |part: usize| ratios[part * (ratios.len() - 1) / 4];
    Some(format!(
        "Control: {AGAIN} did {least:.2} to {most:.2} of what {BARE} did, half of the {} cells {:.2} to {:.2}",
        ratios.len(),
        quartile(1),
        quartile(3)
    ))
}

/// How a column is headed.
fn column(row: &Row) -> String {
    match (row.scenario.as_str(), &row.params["put"]) {
        ("private", _) => format!("cores: {}", row.params["cores"]),
        (_, whole) if *whole == 0 => format!("{}, whole", row.params["get"]),
        (_, put) => format!("{}, {put}", row.params["get"]),
    }
}

/// The place of a row's contender.
fn line(row: &Row) -> (Option<usize>, Option<u64>) {
    (CONTENDERS.iter().position(|name| *name == row.contender), row.param("cache"))
}

fn cell(row: &Row) -> String {
    match row.metrics.get("unfinished") {
        Some(reason) => reason.as_str().unwrap_or_default().to_owned(),
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
    let caption = format!("Pool: {scenario}, {} objects kept; objects a second", params["keep"]);
    table::of_lines(&caption, &header, 1, lines);
}
