//! The printed tables: inputs, comparisons and conclusions, and for each metric a line for each point and a column
//! for each contender.

use stillpoint_harness::output::format::{micros, rate};
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::{heading, say, table};

use super::contender;
use super::inputs::INPUTS;
use super::machine::Machine;
use super::page::{self, Table};
use super::published::{self, Beside, PUBLISHED};
use super::reach::REACH;
use super::rows::{HERTZ, INITIATORS, RECEIVERS, SYNCHRONIZE};
use super::sensitivity::{Analysis, CONCLUSIONS, THRESHOLDS};

/// A table of one metric: its scenario, which is also its parameter except for [`SYNCHRONIZE`], the metric, what it shows,
/// and its cells.
type Shown = (&'static str, &'static str, &'static str, fn(f64) -> String);

const TABLES: [Shown; 6] = [
    (RECEIVERS, "latency_us_p50", "Median latency, by receivers", micros),
    (
        INITIATORS,
        "latency_us_p50",
        "Median latency, by concurrent initiators; all other CPUs receive",
        micros,
    ),
    (INITIATORS, "ops_per_s", "Operations a second, sustained, by concurrent initiators", rate),
    (
        SYNCHRONIZE,
        "reached_hertz",
        "Grace periods a second that were reached, by the frequency asked for (0: as often as possible)",
        rate,
    ),
    (
        SYNCHRONIZE,
        "reader_throughput_percent",
        "Throughput of readers, as a share of that without grace periods",
        percent,
    ),
    (
        SYNCHRONIZE,
        "reader_loss_beside_flat_percent",
        "Throughput that readers lose, compared with flat at the frequency reached",
        percent,
    ),
];

/// Prints the inputs, the comparison with published figures, the results, and the conclusions.
pub(super) fn all(machine: &Machine, published: &[Beside], rows: &[Row], analysis: Option<&Analysis>) {
    let hybrid = machine
        .multicast
        .hybrid_threshold
        .map_or_else(String::new, |threshold| format!("; hybrid: flat up to {threshold} receivers"));
    say(format!("Simulated: {}, {} CPUs", machine.name, machine.cpus()));
    say(format!("split: {} %{hybrid}", machine.multicast.split_percent));
    grid(rows, INPUTS);
    if let Some(judgement) = published::judgement(published) {
        grid(rows, PUBLISHED);
        say(judgement);
    }
    TABLES.iter().for_each(|shown| one(shown, rows));
    say("");
    for contender in contender::CONTENDERS {
        let is_of_it = |row: &Row| {
            row.contender == contender.name && TABLES.iter().any(|(scenario, ..)| *scenario == row.scenario)
        };
        if rows.iter().any(is_of_it) {
            say(format!("{}: {}", contender.name, contender.about));
        }
    }
    if let Some(analysis) = analysis {
        let rows = analysis.rows(9);
        grid(&rows, CONCLUSIONS);
        grid(&rows, THRESHOLDS);
        let (least, most) = analysis.crossovers();
        say(format!("Flat and tree take equally long at {least} to {most} receivers."));
    }
    grid(rows, REACH);
}

/// Prints the table of a scenario.
fn grid(rows: &[Row], scenario: &str) {
    if let Some(Table { caption, header, lines }) = page::table(rows, scenario) {
        table::of_lines(caption, header, header.len(), lines);
    }
}

fn one(&(scenario, metric, caption, show): &Shown, rows: &[Row]) {
    let parameter = if scenario == SYNCHRONIZE { HERTZ } else { scenario };
    let rows: Vec<&Row> = rows.iter().filter(|row| row.scenario == scenario).collect();
    let at = |row: &Row| row.params.get(parameter).and_then(serde_json::Value::as_f64);
    let mut points: Vec<f64> = rows.iter().filter_map(|row| at(row)).collect();
    points.sort_by(f64::total_cmp);
    points.dedup();
    if points.is_empty() {
        return;
    }
    let mut names: Vec<&str> = rows.iter().map(|row| row.contender.as_str()).collect();
    names.dedup();
    let header: Vec<&str> = std::iter::once(parameter).chain(names.iter().copied()).collect();
    let mut table = table::of_figures(&header, 0);
    for point in points {
        let cell = |name: &&str| {
            let row = rows.iter().find(|row| row.contender == **name && at(row) == Some(point));
            row.and_then(|row| row.metric(metric)).map(show).unwrap_or_default()
        };
        table.add_row(std::iter::once(point.to_string()).chain(names.iter().map(cell)).collect::<Vec<_>>());
    }
    heading(caption);
    say(table::text(&table));
}

fn percent(value: f64) -> String {
    format!("{value:.2} %")
}
