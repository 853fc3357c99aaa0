//! The output of a run.

use stillpoint_harness::error::Stop;
use stillpoint_harness::interrupt;
use stillpoint_harness::output::format::number_of;
use stillpoint_harness::output::say;

use super::arena::Context;
use super::hog;
use super::plan::{Plan, Run, mode_names};
use super::variant::Broken;

/// Prints what is about to run.
pub(crate) fn introduce(plan: &Plan, broken: Option<Broken>) {
    let Plan { duration, seed, threads, cpus, modes } = plan;
    let (cpus, modes) = (cpus.len(), mode_names(modes));
    let (threads, cpus) = (number_of(*threads as u64, "thread"), number_of(cpus as u64, "CPU"));
    say(format!("Torture: {duration:?}, seed {seed}, {threads} on {cpus}, fences: {modes}"));
    say(format!("The hog is {}; it preempts the other threads in bursts", hog::best_rank()));
    if let Some(broken) = broken {
        say(format!("Broken on purpose: {broken}: {}", broken.describe()));
    }
}

/// Prints all counts.
pub(crate) fn show(run: &Run) {
    // A run that ends early has parts that never began.
    for part in &run.parts[..run.begun] {
        say("");
        part.show();
    }
    say("");
    run.companion.show();
}

/// Prints the verdict.
pub(crate) fn judge(context: &Context, run: &Run, broken: Option<Broken>) -> Result<(), Stop> {
    let found = context.findings.number();
    if found != 0 {
        context.findings.say(broken);
        return Err(match broken {
            Some(broken) => Stop::Caught(broken.caught()),
            None => Stop::Failed(format!("{found} violations of the library's promises")),
        });
    }
    say("");
    if interrupt::requested() {
        say(format!("Interrupted after {:.1?}: nothing found so far", run.took));
        return Ok(());
    }
    let missing = run.missing();
    if !missing.is_empty() {
        return Err(Stop::Failed(format!("vacuous: too few {}", missing.join(", "))));
    }
    match broken {
        Some(broken) => {
            say(format!(
                "Torture did not catch the broken variant {broken} in {:.1?}. It should: give it more --seconds, on quiet CPUs.",
                run.took
            ));
        }
        None => say(format!(
            "Clean: {} objects, each destroyed once and never too early; cycles: {}, in {:.1?}",
            context.made(),
            run.cycles,
            run.took
        )),
    }
    Ok(())
}
