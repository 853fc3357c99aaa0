//! The tables of the experiment.

use crate::output::format::{bytes, micros, rate};
use crate::output::json::Row;
use crate::output::{say, table};
use crate::preempt::bars::{self, times};
use crate::preempt::plan::{BASELINE, Plan, Setting};
use crate::preempt::workload::Workload;

const HEADER: [&str; 14] = [
    "contender",
    "a core",
    "GP mean",
    "GP p99",
    "GP max",
    "CPU/GP",
    "CPU/free",
    "free p50",
    "free p99",
    "free p99.9",
    "free max",
    "peak pending",
    "resident",
    "sections",
];

/// The ratios that are shown, each with its column.
const RATIOS: [(&str, &str); 7] = [
    ("max GP", "gp_us_max"),
    ("mean GP", "gp_us_mean"),
    ("CPU/GP", "cpu_us_per_gp"),
    ("CPU/free", "cpu_us_per_free"),
    ("peak pending", "peak_pending_bytes"),
    ("peak resident", "peak_resident_bytes"),
    ("resident per used", "resident_per_used"),
];

/// The figures of the paper in the order of [`RATIOS`]: Linux's RCU in guests whose virtual CPUs are overcommitted.
fn of_the_paper(workload: Workload) -> (&'static str, [&'static str; 7]) {
    match workload {
        Workload::Mail => ("ATC 2017, Postmark", ["26.37x", "2.18x", "2.9x", "", "", "", ""]),
        Workload::Memory | Workload::MemoryMax => {
            ("ATC 2017, micro-benchmark", ["3.62x", "1.30x", "", "", "", "1.5x", "2.55x"])
        }
    }
}

/// A setting in a few words.
pub(super) fn name(setting: &Setting) -> String {
    let Setting { workload, section_us, inside } = setting;
    format!("{}, sections of {section_us} µs, {}", workload.name(), inside.in_words())
}

/// Prints the tables of one setting: the rows, what overcommit changes, and the bars.
pub(super) fn part(plan: &Plan, setting: &Setting, rows: &[Row]) {
    if rows.is_empty() {
        return;
    }
    let bold = anstyle::Style::new().bold();
    say(format!("\n{bold}Preempt: {} ({}){bold:#}", name(setting), plan.places()));
    let mut measured = table::of_figures(&HEADER, 1);
    for row in rows {
        measured.add_row(cells(row));
    }
    say(table::text(&measured));
    for (row, reason) in rows.iter().filter_map(|row| Some((row, row.void.as_ref()?))) {
        say(format!("{} with {} a core failed: {reason}", row.contender, row.params["readers_per_core"]));
    }
    disturbed(rows);

    let (crowded, compared) = ratios(rows);
    if !compared.is_empty() {
        say(format!("\n{bold}Overcommit against the baseline: {crowded} readers a core over 1{bold:#}"));
        let mut header = vec!["contender"];
        header.extend(RATIOS.map(|(title, _)| title));
        let mut ratios = table::of_figures(&header, 1);
        for (contender, values) in compared {
            ratios.add_row([contender].into_iter().chain(values.map(times)));
        }
        let (paper, figures) = of_the_paper(setting.workload);
        ratios.add_row([paper].into_iter().chain(figures));
        say(table::text(&ratios));
    }
    for verdict in bars::verdicts(rows) {
        say(format!("{} {}", if verdict.met { "met:   " } else { "missed:" }, verdict.text));
    }
}

/// The contenders with a baseline and a row with more readers, the most that there are; and that number.
fn ratios(rows: &[Row]) -> (usize, Vec<(String, [f64; 7])>) {
    let per_core = |row: &Row| row.params["readers_per_core"].as_u64().unwrap_or_default() as usize;
    let crowded = rows.iter().map(per_core).max().unwrap_or_default();
    let of = |base: &Row| {
        let over = rows.iter().find(|row| row.contender == base.contender && per_core(row) == crowded)?;
        let ratio = |metric| Some(over.metric(metric)? / base.metric(metric)?);
        let mut values = [0.0; 7];
        for (value, (_, metric)) in values.iter_mut().zip(RATIOS) {
            *value = ratio(metric)?;
        }
        Some((base.contender.clone(), values))
    };
    let compared = match crowded > BASELINE {
        true => rows.iter().filter(|row| per_core(row) == BASELINE).filter_map(of).collect(),
        false => Vec::new(),
    };
    (crowded, compared)
}

fn cells(row: &Row) -> Vec<String> {
    let mut cells = vec![row.contender.clone(), row.params["readers_per_core"].to_string()];
    if row.void.is_some() {
        cells.push("failed".to_owned());
        return cells;
    }
    let value = |name| row.metric(name).unwrap_or(f64::NAN);
    let times = [
        "gp_us_mean",
        "gp_us_p99",
        "gp_us_max",
        "cpu_us_per_gp",
        "cpu_us_per_free",
        "delay_us_p50",
        "delay_us_p99",
        "delay_us_p999",
        "delay_us_max",
    ];
    cells.extend(times.map(|name| micros(value(name))));
    cells.push(bytes(value("peak_pending_bytes") as u64));
    cells.push(format!("{:.2}", value("resident_per_used")));
    cells.push(rate(value("sections_per_s")));
    cells
}

/// The share of a CPU that spoils a figure.
const DISTURBANCE: f64 = 0.08;

/// Says when other programs took part of the CPUs.
fn disturbed(rows: &[Row]) {
    let foreign: Vec<f64> =
        rows.iter().filter_map(|row| row.metric("foreign_cpus")).filter(|&cpus| cpus > DISTURBANCE).collect();
    if let Some(most) = foreign.iter().copied().max_by(f64::total_cmp) {
        say(format!(
            "Other programs ran on these CPUs during {} of {} rows (up to {most:.2} CPUs): \
             their figures are worse than they should be.",
            foreign.len(),
            rows.len()
        ));
    }
}

const HOW_TO_READ: &str = "
Median of rounds, each in a process of its own. GP: from the unlink of a probe, one at a time, to its free; of liburcu, a
call of synchronize_rcu, as call_rcu collects callbacks for 10 ms; one that comes in the middle of the worker's grace period
waits for the next. Free: unlink to free, every object. CPU: the scheme's calls on the writer's side, and its hidden worker.
Resident: process memory over what is linked or pending, at its peak. The figures of the paper (ATC 2017) are of Linux's own
RCU in overcommitted guests, as published; they were not measured here.";

/// Prints how the figures are to be read.
pub(super) fn notes(rows: &[Row]) {
    if rows.is_empty() {
        return;
    }
    say(HOW_TO_READ);
    let has = |name: &str| rows.iter().any(|row| row.contender == name);
    if has("crossbeam-epoch") || has("seize") {
        say("crossbeam-epoch and seize free on the readers' time, too, which CPU leaves out.");
    }
    if has("stillpoint/protected") || has("haphazard") {
        say(
            "stillpoint/protected and haphazard protect the one object that a section reads, the others all objects.",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, Value};

    fn row(contender: &str, per_core: usize, value: f64) -> Row {
        Row {
            experiment: "preempt".into(),
            scenario: "overcommit".to_owned(),
            contender: contender.to_owned(),
            params: Map::from_iter([("readers_per_core".to_owned(), per_core.into())]),
            metrics: RATIOS.iter().map(|(_, metric)| ((*metric).to_owned(), Value::from(value))).collect(),
            void: None,
        }
    }

    #[test]
    fn ratios_are_of_the_most_crowded_row_over_the_baseline() {
        let mut rows = vec![row("seize", 1, 2.0), row("seize", 8, 9.0), row("seize", 16, 20.0)];
        assert_eq!(ratios(&rows), (16, vec![("seize".to_owned(), [10.0; 7])]));
        rows.push(row("ck/epoch", 16, 1.0));
        assert_eq!(ratios(&rows).1.len(), 1, "without a baseline there is nothing to compare to");
        assert!(ratios(&rows[1..2]).1.is_empty());
    }
}
