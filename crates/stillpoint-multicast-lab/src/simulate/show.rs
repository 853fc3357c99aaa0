//! The printed tables: inputs, comparisons and conclusions, and for each metric a line for each point and a column
//! for each contender.

use stillpoint_harness::output::format::{micros, rate};
use stillpoint_harness::output::json::Row;
use stillpoint_harness::output::{heading, say, table};

use super::contender;
use super::inputs;
use super::machine::Machine;
use super::page;
use super::published::{self, Beside};
use super::rows::{HERTZ, INITIATORS, RECEIVERS, SYNCHRONIZE};
use super::sensitivity::Analysis;

/// A table of one metric.
struct Shown {
    scenario: &'static str,
    parameter: &'static str,
    metric: &'static str,
    caption: &'static str,
    cell: fn(f64) -> String,
}

const TABLES: [Shown; 6] = [
    Shown {
        scenario: RECEIVERS,
        parameter: RECEIVERS,
        metric: "latency_us_p50",
        caption: "Median latency, by receivers",
        cell: micros,
    },
    Shown {
        scenario: INITIATORS,
        parameter: INITIATORS,
        metric: "latency_us_p50",
        caption: "Median latency, by concurrent initiators; all other CPUs receive",
        cell: micros,
    },
    Shown {
        scenario: INITIATORS,
        parameter: INITIATORS,
        metric: "ops_per_s",
        caption: "Operations a second, sustained, by concurrent initiators",
        cell: rate,
    },
    Shown {
        scenario: SYNCHRONIZE,
        parameter: HERTZ,
        metric: "reached_hertz",
        caption: "Grace periods a second that were reached, by the frequency asked for (0: as often as possible)",
        cell: rate,
    },
    Shown {
        scenario: SYNCHRONIZE,
        parameter: HERTZ,
        metric: "reader_throughput_percent",
        caption: "Throughput of readers, as a share of that without grace periods",
        cell: percent,
    },
    Shown {
        scenario: SYNCHRONIZE,
        parameter: HERTZ,
        metric: "reader_loss_beside_flat_percent",
        caption: "Throughput that readers lose, compared with flat at the frequency reached",
        cell: percent,
    },
];

/// Prints the inputs, the comparison with published figures, the results, and the conclusions.
pub(super) fn all(
    machine: &Machine,
    inputs: &[inputs::Line],
    published: &[Beside],
    rows: &[Row],
    analysis: Option<&Analysis>,
) {
    let hybrid = machine
        .multicast
        .hybrid_threshold
        .map_or_else(String::new, |threshold| format!("; hybrid: flat up to {threshold} receivers"));
    say(format!("Simulated: {}, {} CPUs", machine.name, machine.cpus()));
    say(format!("split: {} %{hybrid}", machine.multicast.split_percent));
    grid(page::INPUTS_ARE, &page::inputs(inputs));
    if let Some(judgement) = published::judgement(published) {
        grid(page::PUBLISHED_ARE, &page::published(published));
        say(judgement);
    }
    for shown in &TABLES {
        one(shown, rows);
    }
    say("");
    for contender in contender::CONTENDERS {
        if rows.iter().any(|row| row.contender == contender.name) {
            say(format!("{}: {}", contender.name, contender.about));
        }
    }
    if let Some(analysis) = analysis {
        grid(page::CONCLUSIONS_ARE, &page::conclusions(analysis));
        let (least, most) = analysis.crossovers();
        grid(
            "A hybrid's threshold: what it loses to the better order, at the worst number of receivers",
            &page::thresholds(analysis),
        );
        say(format!("Flat and tree take equally long at {least} to {most} receivers."));
    }
}

/// Prints cells; the first line is the header.
fn grid(caption: &str, cells: &[Vec<String>]) {
    let Some((header, lines)) = cells.split_first() else { return };
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    table::of_lines(caption, &header, header.len(), lines.iter().cloned());
}

fn one(shown: &Shown, rows: &[Row]) {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.scenario == shown.scenario).collect();
    let at = |row: &Row| row.params.get(shown.parameter).and_then(serde_json::Value::as_f64);
    let mut points: Vec<f64> = rows.iter().filter_map(|row| at(row)).collect();
    points.sort_by(f64::total_cmp);
    points.dedup();
    if points.is_empty() {
        return;
    }
    let mut names: Vec<&str> = rows.iter().map(|row| row.contender.as_str()).collect();
    names.dedup();
    let header: Vec<&str> = std::iter::once(shown.parameter).chain(names.iter().copied()).collect();
    let mut table = table::of_figures(&header, 0);
    for point in points {
        let cell = |name: &&str| {
            let row = rows.iter().find(|row| row.contender == **name && at(row) == Some(point));
            row.and_then(|row| row.metric(shown.metric)).map(shown.cell).unwrap_or_default()
        };
        table.add_row(std::iter::once(point.to_string()).chain(names.iter().map(cell)).collect::<Vec<_>>());
    }
    heading(shown.caption);
    say(table::text(&table));
}

fn percent(value: f64) -> String {
    format!("{value:.2} %")
}
