//! The tables and charts of the experiment.

use stillpoint_harness::experiment::show;
use stillpoint_harness::machine::proc;
use stillpoint_harness::output::chart::{self, Bar};
use stillpoint_harness::output::format::{bytes, micros, percent_below, rate};
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::table::{self, Column};
use stillpoint_harness::output::{heading, say};
use stillpoint_peers::Contender;

use crate::experiment::Structure;
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
    ("CPUs", &|row| row.shown("cpus", |cpus| format!("{cpus:.2}"))),
];

/// Prints the table and the chart of one setting.
pub(crate) fn part(setting: &Setting, structure: Structure, rows: &[Row]) {
    let mean = |row: &Row| row.metric("delay_us_mean");
    let baseline = rows.iter().find(|row| row.contender == BASELINE).and_then(mean);
    let below_baseline = |row: &Row| match mean(row).zip(baseline) {
        Some(_) if row.contender == BASELINE => "–".to_owned(),
        Some((mean, baseline)) => percent_below(mean, baseline),
        None => String::new(),
    };
    let mut columns = COLUMNS.to_vec();
    if baseline.is_some() {
        columns.push(("vs liburcu", &below_baseline));
    }
    let on = match structure {
        Structure::Array => "",
        Structure::Table => "; hash tables",
    };
    table::of_rows(&(setting.caption() + on), &columns, 2, rows);
    say(format!(
        "Delay from unlink to free, median of {} rounds; least..most: the range of the means of the rounds.",
        rows[0].params["rounds"]
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

/// Prints the notes of the contenders.
pub(crate) fn notes(plan: &Plan, contenders: &[Box<dyn Contender>]) {
    let resident = proc::resident_bytes()
        .map_or_else(String::new, |all| format!("; the process has {}", bytes(all as u64)));
    say(format!(
        "{} elements of {} bytes in each {}, filled once{resident}; {} deletes a second.",
        plan.elements,
        plan.bytes,
        plan.structure.name(),
        plan.deletes_per_s
    ));
    if plan.structure == Structure::Table {
        say(
            "Tables: stillpoint::table; liburcu's cds_lfht, a bucket for each element and no resizing, written in read-side \
             sections; DPDK's rte_hash, lock-free; papaya. stillpoint::table asks for transparent huge pages, and rte_hash \
             uses reserved ones if it may. The others, and the elements of rte_hash, are from malloc, with small pages.",
        );
    }
    say(
        "vs liburcu: by how much the mean delay lies below that of liburcu/qsbr+sync. CPUs: CPU time over wall time.",
    );
    for contender in contenders {
        if !contender.note().is_empty() {
            say(format!("{}: {}", contender.name(), contender.note()));
        }
    }
}
