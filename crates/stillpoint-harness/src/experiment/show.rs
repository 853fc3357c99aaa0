//! What spoils the figures of any experiment.

use crate::output::format::number_of;
use crate::output::json::Row;

/// The share of a CPU that spoils a figure.
const DISTURBANCE: f64 = 0.08;
/// The kernel counts CPU time in ticks of 10 ms: fewer seconds than this in a round cannot be distinguished from none.
const DISTINCT: f64 = 0.03;

/// The line that says that other programs ran on the CPUs; `None` if they took too little time to matter.
pub fn disturbance<'r>(rows: impl IntoIterator<Item = &'r Row>) -> Option<String> {
    let watched: Vec<(f64, f64)> = rows
        .into_iter()
        .filter_map(|row| Some((row.metric("foreign_cpus")?, row.params.get("round_s")?.as_f64()?)))
        .collect();
    let disturbs = |&&(cpus, seconds): &&(f64, f64)| cpus > DISTURBANCE && cpus * seconds > DISTINCT;
    let disturbed = watched.iter().filter(disturbs).count();
    let (most, _) = watched.iter().filter(disturbs).max_by(|one, other| one.0.total_cmp(&other.0))?;
    Some(format!(
        "Other programs ran on these CPUs during {disturbed} of {} (up to {most:.2} CPUs): \
         their figures are worse than they should be.",
        number_of(watched.len() as u64, "watched row")
    ))
}
