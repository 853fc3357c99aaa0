//! What a run prints.

use stillpoint::busted::Variant;

use super::arena::{Context, Kind};
use super::races::Runs;
use super::tally::{Count, Times};
use super::{Plan, Run, controls, mode_names};
use crate::error::Stop;
use crate::interrupt;
use crate::output::format::micros;
use crate::output::say;

/// A race that was run so rarely proves nothing.
const LEAST_RUNS: u64 = 200;

/// The broken variants, with who catches each.
pub(super) fn list_variants() {
    for &variant in Variant::ALL {
        say(format!("{:<22} {:<14} {}", variant.name(), controls::checkers(variant), variant.describe()));
    }
}

/// What is about to run.
pub(super) fn introduce(plan: &Plan, variant: Option<Variant>) {
    let Plan { duration, seed, threads, cpus, modes } = plan;
    let (cpus, modes) = (cpus.len(), mode_names(modes));
    say(format!("Torture: {duration:?}, seed {seed}, {threads} threads on {cpus} CPUs, {modes} fences"));
    if let Some(variant) = variant {
        say(format!("Broken on purpose: {}: {}", variant.name(), variant.describe()));
    }
}

/// Everything that was counted.
pub(super) fn show(run: &Run) {
    say(format!("\nMixed part: {} rounds", run.rounds));
    for &count in Count::ALL {
        say(format!("  {:>12}  {}", run.tally.of(count), count.text()));
    }
    say("\nLooks at objects, by age: a region reader must see none whose grace period is over");
    let ages = ["linked", "unlinked", "1 period", "2", "3", "4", "5 and more"];
    say(format!("  {:<16}{}", "", ages.map(|age| format!("{age:>11}")).concat()));
    for kind in Kind::ALL {
        say(format!("  {:<16}{}", kind.text(), row(run.tally.looks(kind))));
    }
    show_times("From the start of a token until it was found over", &run.tally.grace);
    show_times("Waits for a grace period", &run.tally.synchronize);
    say("\nRaces                                                tries         freed");
    for (race, Runs { tries, over }) in &run.races {
        say(format!("  {:<42} {tries:>13} {over:>13}", race.title()));
    }
}

fn row(numbers: &[u64]) -> String {
    numbers.iter().map(|number| format!("{number:>11}")).collect()
}

fn show_times(title: &str, times: &Times) {
    say(format!("\n{title}: {}", times.number()));
    for (nanos, number) in times.buckets() {
        say(format!("  {:>12}  from {}", number, micros(nanos as f64 / 1e3)));
    }
}

/// What was found.
pub(super) fn say_findings(context: &Context, variant: Option<Variant>) {
    let after = context.findings.first_after().unwrap_or_default();
    match variant {
        Some(variant) => say(format!("\ncaught: {} after {after:.2?}", variant.name())),
        None => say(format!("\nFAILED after {after:.2?}")),
    }
    for text in context.findings.texts() {
        say(format!("  {text}"));
    }
}

/// The verdict.
pub(super) fn judge(context: &Context, run: &Run, variant: Option<Variant>) -> Result<(), Stop> {
    let found = context.findings.number();
    if found != 0 {
        say_findings(context, variant);
        return Err(Stop::Failed(format!("{found} violations of the library's promises")));
    }
    say("");
    if interrupt::requested() {
        say(format!("Interrupted after {:.1?}: nothing found so far", run.took));
        return Ok(());
    }
    let missing = missing(run);
    if !missing.is_empty() {
        return Err(Stop::Failed(format!("vacuous: too few {}", missing.join(", "))));
    }
    match variant {
        Some(variant) => {
            let checkers = controls::checkers(variant);
            say(format!("NOT caught: {}, in {:.1?}; to be caught by: {checkers}", variant.name(), run.took));
        }
        None => say(format!(
            "Clean: {} objects, each destroyed once and never too early, in {:.1?}",
            context.made(),
            run.took
        )),
    }
    Ok(())
}

/// What was tried too rarely.
fn missing(run: &Run) -> Vec<String> {
    let races = run.races.iter().filter(|(_, runs)| runs.tries.min(runs.over) < LEAST_RUNS);
    run.tally.missing().into_iter().chain(races.map(|(race, _)| race.title())).collect()
}
