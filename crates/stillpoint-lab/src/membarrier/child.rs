//! The child process in which barriers are measured: its threads are all that they have to reach.

use std::process::ExitCode;

use super::Plan;
use crate::child::{self, OnInterrupt};
use crate::error::Stop;
use crate::output::json::Row;

/// Holds the plan, in the child alone.
const VARIABLE: &str = "STILLPOINT_BENCH_MEMBARRIER";

/// Runs a plan in a child. Returns its rows.
pub(super) fn run(plan: &Plan) -> Result<Vec<Row>, Stop> {
    Ok(child::ask(VARIABLE, "measures barriers", plan, OnInterrupt::Wait)?.unwrap_or_default())
}

/// In the child: measures what the variable says. `None` in a process that is no such child.
pub(crate) fn run_if_child() -> Option<ExitCode> {
    child::answer(VARIABLE, |plan: Plan| super::measure::run(&plan))
}
