//! The child process in which timers are measured: DPDK can be initialised once per process alone.

use std::process::ExitCode;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::Plan;
use crate::child::{self, OnInterrupt};
use crate::error::Stop;
use crate::output::json::Row;

/// Holds the plan, in the child alone.
const VARIABLE: &str = "STILLPOINT_BENCH_TIMER";

#[derive(Deserialize)]
struct ReadRow {
    scenario: String,
    contender: String,
    params: Map<String, Value>,
    metrics: Map<String, Value>,
    void: Option<String>,
}

/// Runs a plan in a child.
pub(super) fn run(plan: &Plan) -> Result<Vec<Row>, Stop> {
    let rows: Option<Vec<ReadRow>> = child::ask(VARIABLE, "measures timers", plan, OnInterrupt::Wait)?;
    let rows = rows.unwrap_or_default().into_iter().map(|row| Row {
        experiment: "timer",
        scenario: row.scenario,
        contender: row.contender,
        params: row.params,
        metrics: row.metrics,
        void: row.void,
    });
    Ok(rows.collect())
}

/// In the child: measures what the variable says. `None` in a process that is no such child.
pub(crate) fn run_if_child() -> Option<ExitCode> {
    child::answer(VARIABLE, |plan: Plan| super::measure::run(&plan))
}
