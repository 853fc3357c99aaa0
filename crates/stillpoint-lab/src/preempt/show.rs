//! The tables of the experiment.

use stillpoint_harness::experiment::show::{disturbed, failed};
use stillpoint_harness::output::format::{bytes, micros, rate};
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::say;
use stillpoint_harness::output::table::{self, Column};

use crate::preempt::bars::{self, times};
use crate::preempt::plan::{BASELINE, Plan, Setting};
use crate::preempt::workload::Workload;

const COLUMNS: &[Column<'_>] = &[
    ("contender", &|row| row.contender.clone()),
    ("a core", &|row| row.params["readers_per_core"].to_string()),
    ("GP mean", &|row| row.shown_or_failed("gp_us_mean", micros)),
    ("GP p99", &|row| row.shown("gp_us_p99", micros)),
    ("GP max", &|row| row.shown("gp_us_max", micros)),
    ("CPU/GP", &|row| row.shown("cpu_us_per_gp", micros)),
    ("CPU/free", &|row| row.shown("cpu_us_per_free", micros)),
    ("free p50", &|row| row.shown("delay_us_p50", micros)),
    ("free p99", &|row| row.shown("delay_us_p99", micros)),
    ("free p99.9", &|row| row.shown("delay_us_p999", micros)),
    ("free max", &|row| row.shown("delay_us_max", micros)),
    ("peak pending", &|row| row.shown("peak_pending_bytes", |size| bytes(size as u64))),
    ("resident", &|row| row.shown("resident_per_used", |share| format!("{share:.2}"))),
    ("sections", &|row| row.shown("sections_per_s", rate)),
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
    table::of_rows(&format!("Preempt: {} ({})", name(setting), plan.places()), COLUMNS, 1, rows);
    failed(rows, |row| format!("{} with {} a core", row.contender, row.params["readers_per_core"]));
    disturbed(rows);

    let (crowded, compared) = ratios(rows);
    if !compared.is_empty() {
        let caption = format!("Overcommit against the baseline: {crowded} readers a core over 1");
        let header: Vec<&str> = ["contender"].into_iter().chain(RATIOS.map(|(title, _)| title)).collect();
        let line = |name: String, figures: [String; 7]| [name].into_iter().chain(figures);
        let (paper, figures) = of_the_paper(setting.workload);
        let measured = compared.into_iter().map(|(contender, values)| line(contender, values.map(times)));
        let published = line(paper.to_owned(), figures.map(str::to_owned));
        table::of_lines(&caption, &header, 1, measured.chain([published]));
    }
    for verdict in bars::verdicts(rows) {
        say(format!("{} {}", if verdict.met { "met:   " } else { "missed:" }, verdict.text));
    }
}

/// The ratios of the contenders that have a baseline and a row with the most readers; and that number of readers.
fn ratios(rows: &[Row]) -> (usize, Vec<(String, [f64; 7])>) {
    let per_core = |row: &Row| row.param("readers_per_core").unwrap_or_default() as usize;
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

const HOW_TO_READ: &str = "
Median of rounds, each in a separate process. GP: from the unlink of a probe, one at a time, to its free; for liburcu, a call
of synchronize_rcu, as call_rcu collects callbacks for 10 ms; a call in the middle of the worker's grace period waits for the
next. Free: unlink to free, every object. CPU: the scheme's calls on the writer's side, and its hidden worker. Resident:
process memory over what is linked or pending, at its peak. The figures of the paper (ATC 2017) are of Linux's own RCU in
overcommitted guests, as published; they were not measured here.";

/// Prints how to read the figures.
pub(super) fn notes(rows: &[Row]) {
    if rows.is_empty() {
        return;
    }
    say(HOW_TO_READ);
    let has = |name: &str| rows.iter().any(|row| row.contender == name);
    if has("crossbeam-epoch") || has("seize") {
        say("crossbeam-epoch and seize also free on the readers' threads; CPU does not include that.");
    }
    if has("stillpoint/protected") || has("haphazard") {
        say(
            "stillpoint/protected and haphazard protect only the object that a section reads, the others all objects.",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(contender: &str, per_core: usize, value: f64) -> Row {
        let mut row = Row::new("preempt", "overcommit", contender).with("readers_per_core", per_core);
        RATIOS.iter().for_each(|&(_, metric)| row.put(metric, value, 3));
        row
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
