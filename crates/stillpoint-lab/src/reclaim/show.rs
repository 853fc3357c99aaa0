//! The tables and charts of the experiment.

use stillpoint_peers::Contender;

use crate::experiment::Structure;
use crate::output::chart::{self, Bar};
use crate::output::format::{micros, percent_below, rate};
use crate::output::json::Row;
use crate::output::{say, table};
use crate::reclaim::names::BASELINE;
use crate::reclaim::plan::is_ours;
use crate::reclaim::setting::Setting;

const HEADER: [&str; 11] = [
    "contender",
    "policy",
    "mean",
    "least..most",
    "p50",
    "p99",
    "p99.9",
    "max",
    "lookups",
    "peak pending",
    "CPUs",
];

/// Prints the table and the chart of one setting.
pub(crate) fn part(setting: &Setting, structure: Structure, rows: &[Row]) {
    if rows.is_empty() {
        return;
    }
    let baseline =
        rows.iter().find(|row| row.contender == BASELINE).and_then(|row| row.metric("delay_us_mean"));
    let mut header = HEADER.to_vec();
    if baseline.is_some() {
        header.push("vs liburcu");
    }
    let mut table = table::of_figures(&header, 2);
    for row in rows {
        table.add_row(cells(row, baseline));
    }
    let bold = anstyle::Style::new().bold();
    let on = match structure {
        Structure::Array => "",
        Structure::Table => "; hash tables",
    };
    say(format!("\n{bold}{}{on}{bold:#}", setting.caption()));
    say(table::text(&table));
    say(format!(
        "Delay from unlink to free, median of {} rounds; least..most: of the means of the rounds.",
        rows[0].params["rounds"]
    ));
    disturbed(rows);
    for (row, reason) in rows.iter().filter_map(|row| Some((row, row.void.as_ref()?))) {
        say(format!("{} failed: {reason}", row.contender));
    }

    let bars: Vec<Bar<'_>> = rows
        .iter()
        .filter_map(|row| {
            let value = row.metric("delay_us_mean")?;
            Some(Bar { label: &row.contender, value, ours: is_ours(&row.contender) })
        })
        .collect();
    say(format!("\n{bold}Mean delay, logarithmic{bold:#}\n{}", chart::logarithmic(&bars, micros)));
}

/// The share of a CPU that spoils a figure.
const DISTURBANCE: f64 = 0.08;
/// The kernel accounts for CPU time in ticks of 10 ms: fewer seconds than this in a round are not to be told from
/// none.
const DISTINCT: f64 = 0.03;

/// Says when other programs took part of the CPUs.
fn disturbed(rows: &[Row]) {
    let foreign: Vec<f64> = rows
        .iter()
        .filter_map(|row| Some((row.metric("foreign_cpus")?, row.params["round_s"].as_f64()?)))
        .filter(|&(cpus, seconds)| cpus > DISTURBANCE && cpus * seconds > DISTINCT)
        .map(|(cpus, _)| cpus)
        .collect();
    if let Some(most) = foreign.iter().copied().max_by(f64::total_cmp) {
        let disturbed = foreign.len();
        say(format!(
            "Other programs ran on these CPUs during {disturbed} of {} rows (up to {most:.2} CPUs): \
             their figures are worse than they should be.",
            rows.len()
        ));
    }
}

fn cells(row: &Row, baseline: Option<f64>) -> Vec<String> {
    let policy = row.params["policy"].as_str().unwrap_or_default().to_owned();
    let mut cells = vec![row.contender.clone(), policy];
    if row.void.is_some() {
        cells.push("failed".to_owned());
        return cells;
    }
    let value = |name| row.metric(name).unwrap_or(f64::NAN);
    let delay = |name| micros(value(name));
    let mean = value("delay_us_mean");
    cells.extend([
        micros(mean),
        format!("{}..{}", delay("delay_us_mean_least"), delay("delay_us_mean_most")),
        delay("delay_us_p50"),
        delay("delay_us_p99"),
        delay("delay_us_p999"),
        delay("delay_us_max"),
        rate(value("lookups_per_s")),
        format!("{}", value("peak_pending")),
        format!("{:.2}", value("cpus")),
    ]);
    cells.extend(baseline.map(|baseline| match row.contender == BASELINE {
        true => "–".to_owned(),
        false => percent_below(mean, baseline),
    }));
    cells
}

/// Prints the handicaps of the contenders.
pub(crate) fn notes(contenders: &[Box<dyn Contender>]) {
    say(
        "vs liburcu: by how much the mean delay lies below that of liburcu/qsbr. CPUs: CPU time over wall time.",
    );
    for contender in contenders {
        if !contender.note().is_empty() {
            say(format!("{}: {}", contender.name(), contender.note()));
        }
    }
}
