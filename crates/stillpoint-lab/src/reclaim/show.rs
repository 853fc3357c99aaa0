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
use crate::reclaim::names::BASELINE;
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
    ("fences", &|row| row.shown("fences_per_s", rate)),
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
    // An interrupt may end a round when some contenders had their turn.
    let rounds = || rows.iter().filter_map(|row| row.param("rounds"));
    let (fewest, most) = (rounds().min().unwrap_or_default(), rounds().max().unwrap_or_default());
    let from = if fewest < most { format!("{fewest} to ") } else { String::new() };
    say(format!(
        "Delay from unlink to free, median of {from}{}; least..most: the range of the means of the rounds.",
        number_of(most, "round")
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
}

/// Prints the notes of the experiment. `fence`: how long a heavy fence takes beside a running thread, in nanoseconds.
pub(crate) fn notes(plan: &Plan, rows: &[Row], huge_pages: bool, fence: Option<f64>) {
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
        say(tables(|group| rows.iter().any(|row| peers::group(&row.contender) == group), huge_pages));
    }
    let beside_baseline = match rows.iter().any(|row| row.contender == BASELINE) {
        true => format!("of liburcu's: the mean delay in multiples of that of {BASELINE}. "),
        false => String::new(),
    };
    let fence = fence.map_or_else(String::new, |fence| {
        format!(" One takes {} beside a thread that runs (median).", micros(fence / 1000.0))
    });
    say(beside_baseline
        + "CPUs: CPU time over wall time. fences: heavy fences of our writers, which interrupt readers."
        + &fence);
}

/// The hash tables of the groups that have rows, and where their memory is from. `huge_pages`: whether DPDK has reserved ones.
fn tables(has: impl Fn(&str) -> bool, huge_pages: bool) -> String {
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
    let on_large_pages = of(&[
        ("stillpoint", "stillpoint::table asks for transparent huge pages"),
        (
            "dpdk",
            if huge_pages {
                "rte_hash has reserved huge pages"
            } else {
                "rte_hash has small pages: none were reserved for it"
            },
        ),
    ]);
    let on_small_pages = of(&[
        ("liburcu", "liburcu's table"),
        ("dpdk", "the elements of rte_hash"),
        ("papaya", "papaya's table"),
    ]);
    let mut text = format!("Tables: {}.", tables.join("; "));
    if !on_large_pages.is_empty() {
        text += &format!(" Memory: {}.", on_large_pages.join(", "));
    }
    if !on_small_pages.is_empty() {
        text += &format!(" From malloc, with small pages: {}.", on_small_pages.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tables_that_have_rows_are_explained() {
        assert_eq!(
            tables(|group| ["stillpoint", "papaya"].contains(&group), false),
            "Tables: stillpoint::table; papaya. Memory: stillpoint::table asks for transparent huge pages. \
             From malloc, with small pages: papaya's table."
        );
    }
}
