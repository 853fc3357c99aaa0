//! The child process in which barriers are measured: its threads are all that they have to reach.

use std::process::ExitCode;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::Plan;
use crate::child::{self, OnInterrupt};
use crate::error::Stop;
use crate::output::json::Row;

/// Holds the plan, in the child alone.
const VARIABLE: &str = "STILLPOINT_BENCH_MEMBARRIER";

#[derive(Deserialize)]
struct ReadRow {
    scenario: String,
    contender: String,
    params: Map<String, Value>,
    metrics: Map<String, Value>,
    void: Option<String>,
}

/// Runs a plan in a child. Returns its rows.
pub(super) fn run(plan: &Plan) -> Result<Vec<Row>, Stop> {
    let rows: Option<Vec<ReadRow>> = child::ask(VARIABLE, "measures barriers", plan, OnInterrupt::Wait)?;
    let rows = rows.unwrap_or_default().into_iter().map(|row| Row {
        experiment: "membarrier",
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
