//! The tables and charts of the experiment.

use stillpoint_harness::experiment::show;
use stillpoint_harness::machine::proc;
use stillpoint_harness::output::chart::{self, Bar};
use stillpoint_harness::output::format::{bytes, micros, multiple, number_of, rate};
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::table::{self, Column};
use stillpoint_harness::output::{heading, say};

use crate::experiment::Structure;
use crate::peers;
use crate::reclaim::Plan;
use crate::reclaim::names::{BASELINE, ONE_CORE, PROTECTED};
use crate::reclaim::plan::is_ours;
use crate::reclaim::setting::Setting;

const COLUMNS: &[Column<'_>] = &[
    ("contender", &|row| row.contender.clone()),
    ("policy", &|row| row.params["policy"].as_str().unwrap_or_default().to_owned()),
    ("mean", &|row| row.shown_or_failed("delay_us_mean", micros)),
    ("least..most", &|row| {
        let most = row.shown("delay_us_mean_most", |most| format!("..{}", micros(most)));
        row.shown("delay_us_mean_least", micros) + &most
    }),
    ("p50", &|row| row.shown("delay_us_p50", micros)),
    ("p99", &|row| row.shown("delay_us_p99", micros)),
    ("p99.9", &|row| row.shown("delay_us_p999", micros)),
    ("max", &|row| row.shown("delay_us_max", micros)),
    ("lookups", &|row| row.shown("lookups_per_s", rate)),
    ("peak pending", &|row| row.shown("peak_pending", |pending| pending.to_string())),
    ("CPUs", &|row| row.shown("cpus", |cpus| format!("{cpus:.2}"))),
];

/// Prints the table and the chart of one setting.
pub(crate) fn part(setting: &Setting, structure: Structure, rows: &[Row]) {
    let mean = |row: &Row| row.metric("delay_us_mean");
    let baseline = rows.iter().find(|row| row.contender == BASELINE).and_then(mean);
    let beside_baseline = |row: &Row| match mean(row).zip(baseline) {
        Some(_) if row.contender == BASELINE => "–".to_owned(),
        Some((mean, baseline)) => multiple(mean, baseline),
        None => String::new(),
    };
    let mut columns = COLUMNS.to_vec();
    if baseline.is_some() {
        columns.push(("of liburcu's", &beside_baseline));
    }
    let on = match structure {
        Structure::Array => "",
        Structure::Table => "; hash tables",
    };
    table::of_rows(&(setting.caption() + on), &columns, 2, rows);
    say(format!(
        "Delay from unlink to free, median of {}; least..most: the range of the means of the rounds.",
        number_of(rows[0].param("rounds").unwrap_or_default(), "round")
    ));
    show::disturbed(rows);
    show::failed(rows, |row| row.contender.clone());

    let bars: Vec<Bar<'_>> = rows
        .iter()
        .filter_map(|row| {
            Some(Bar { label: &row.contender, value: mean(row)?, ours: is_ours(&row.contender) })
        })
        .collect();
    heading("Mean delay, logarithmic");
    say(chart::logarithmic(&bars, micros));
    if let Some(answer) = answer(setting, rows) {
        say(answer);
    }
}

/// A mean delay, in microseconds, that only preemption explains: time slices take milliseconds.
const HELD_UP: f64 = 1_000.0;

/// What readers that share a core do on this machine, in words.
fn answer(setting: &Setting, rows: &[Row]) -> Option<String> {
    if setting.scenario != ONE_CORE || setting.readers() == 1 {
        return None;
    }
    let mean = |row: &Row| row.metric("delay_us_mean");
    let ours = mean(rows.iter().find(|row| row.contender == PROTECTED)?)?;
    // The least mean delay of each library.
    let mut others: Vec<(&str, f64)> = Vec::new();
    for row in rows.iter().filter(|row| !is_ours(&row.contender)) {
        let (group, Some(delay)) = (peers::group(&row.contender), mean(row)) else { continue };
        match others.iter_mut().find(|(known, _)| *known == group) {
            Some((_, least)) => *least = least.min(delay),
            None => others.push((group, delay)),
        }
    }
    if others.is_empty() {
        return None;
    }
    let held_up = others.iter().any(|&(_, delay)| delay > HELD_UP);
    let frees = |at| if at == 0 { " frees memory" } else { "" };
    let at_best = |at| if at == 0 { " at best" } else { "" };
    let delays: Vec<String> = others
        .iter()
        .enumerate()
        .map(|(at, (group, delay))| format!("{group}{} after {}{}", frees(at), micros(*delay), at_best(at)))
        .collect();
    Some(format!(
        "In words: with {} readers on one CPU, {}; stillpoint, with protected loads, after {}.{}",
        setting.readers(),
        delays.join(", "),
        micros(ours),
        if held_up { " So preempted readers hold up memory on this machine." } else { "" }
    ))
}

/// Prints the notes of the experiment.
pub(crate) fn notes(plan: &Plan, rows: &[Row]) {
    let resident = proc::resident_bytes()
        .map_or_else(String::new, |all| format!("; the process has {}", bytes(all as u64)));
    say(format!(
        "{} elements of {} bytes in each {}, filled once{resident}; {} deletes a second.",
        plan.elements,
        plan.bytes,
        plan.structure.name(),
        plan.deletes_per_s
    ));
    if plan.structure == Structure::Table && !rows.is_empty() {
        say(tables(|group| rows.iter().any(|row| peers::group(&row.contender) == group)));
    }
    let beside_baseline = match rows.iter().any(|row| row.contender == BASELINE) {
        true => format!("of liburcu's: the mean delay in multiples of that of {BASELINE}. "),
        false => String::new(),
    };
    say(beside_baseline + "CPUs: CPU time over wall time.");
}

/// The hash tables of the groups that have rows, and where their memory is from.
fn tables(has: impl Fn(&str) -> bool) -> String {
    let of = |all: &[(&str, &'static str)]| {
        all.iter().filter(|(group, _)| has(group)).map(|&(_, words)| words).collect::<Vec<_>>()
    };
    let tables = of(&[
        ("stillpoint", "stillpoint::table"),
        (
            "liburcu",
            "liburcu's cds_lfht, a bucket for each element and no resizing, written in read-side sections",
        ),
        ("dpdk", "DPDK's rte_hash, lock-free"),
        ("papaya", "papaya"),
    ]);
    let on_huge_pages = of(&[
        ("stillpoint", "stillpoint::table asks for transparent huge pages"),
        ("dpdk", "rte_hash uses reserved huge pages if it may"),
    ]);
    let on_small_pages = of(&[
        ("liburcu", "liburcu's table"),
        ("dpdk", "the elements of rte_hash"),
        ("papaya", "papaya's table"),
    ]);
    let mut text = format!("Tables: {}.", tables.join("; "));
    if !on_huge_pages.is_empty() {
        text += &format!(" Memory: {}.", on_huge_pages.join(", "));
    }
    if !on_small_pages.is_empty() {
        text += &format!(" From malloc, with small pages: {}.", on_small_pages.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(contender: &str, delay: f64) -> Row {
        let mut row = Row::new("reclaim", ONE_CORE, contender);
        row.put("delay_us_mean", delay, 3);
        row
    }

    #[test]
    fn the_answer_names_the_best_of_each_library() {
        let setting =
            |readers| Setting { scenario: ONE_CORE, reader_cpus: vec![0; readers], writer_cpu: 1, cores: 1 };
        let rows = [
            row(PROTECTED, 110.0),
            row("dpdk/rcu", 27_600.0),
            row("dpdk/rcu+background", 26_000.0),
            row("papaya", 28_500.0),
        ];
        let held_up = answer(&setting(8), &rows).unwrap();
        for part in [
            "8 readers",
            "dpdk frees memory after 26.0 ms at best, papaya after 28.5 ms;",
            "loads, after 110 µs",
            "hold up memory",
        ] {
            assert!(held_up.contains(part), "'{part}' is missing: {held_up}");
        }
        let quick = answer(&setting(2), &[row(PROTECTED, 110.0), row("papaya", 120.0)]).unwrap();
        assert!(!quick.contains("hold up memory"), "{quick}");
        assert_eq!(answer(&setting(1), &rows), None, "a single reader is not preempted");
        assert_eq!(answer(&setting(8), &rows[1..]), None, "ours was not measured");
    }

    #[test]
    fn only_tables_that_have_rows_are_explained() {
        assert_eq!(
            tables(|group| ["stillpoint", "papaya"].contains(&group)),
            "Tables: stillpoint::table; papaya. Memory: stillpoint::table asks for transparent huge pages. \
             From malloc, with small pages: papaya's table."
        );
    }
}
