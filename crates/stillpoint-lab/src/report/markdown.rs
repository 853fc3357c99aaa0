//! The page of results of the book: the answer, and a line for each figure.

use std::fmt::Write as _;

use stillpoint_harness::output::figures::{Figure, Verdict};
use stillpoint_harness::output::format::number_of;
use stillpoint_harness::output::json::Read;
use stillpoint_harness::output::table::markdown;

use crate::reclaim;

use super::page::{fact, factor, warnings};
use super::sections::{self, Shown, Standing};

/// What the figures do not say by themselves.
const WHERE_WE_LOSE: &str = "\
## Where we lose, and when not to use this

Bold ratios above are losses. Behind most of them is one of these reasons:

- **Nothing is ever preempted.** Then regions cost less than protected loads: use QSBR or guards, ours or those of liburcu and DPDK. A writer of
  DPDK's that polls has the better median.
- **Our guards and QSBR readers**, when they are preempted, are no better than DPDK's, unless the domain boosts them.
- **haphazard** also protects objects, with a full fence for each load: it frees sooner in arrays on one core, since it interrupts no core. Its
  readers are slower.
- **Tables that are written most of the time.** scc and dashmap write in place, under a lock. An entry of ours never moves and is never written, since
  readers hold references to it: a write makes a new entry, and frees the old one after a grace period.
- **The list that is walked by protected loads** takes a slot at each node. With guards, writers protect nodes one by one.
- **The pool without caches, or between a producer and a consumer**: DPDK's drivers do not look at what an object belongs to.
- **Calls from C** check their handle and catch panics: that is some nanoseconds for each.
- **Fences by signals** wait for each thread that computes. They are for systems without `membarrier`.
- **`check`** of a token compares the domain as well.
";

/// The whole page.
pub(super) fn text(read: &[Read], figures: &[&'static Figure]) -> String {
    let mut page = String::from("# Performance\n\n");
    if let Some(answer) = read.iter().find_map(|read| reclaim::answer(&read.rows)) {
        let _ = write!(page, "**{} {answer}**\n\n", reclaim::QUESTION);
    }
    page += "![Mean delay from unlink to free against the number of readers on one CPU](../pictures/delay.svg)\n\n";
    page += "`stillpoint report --markdown` wrote this page from the results of these commands. Single runs vary, and so do machines: repeat them.\n\n";
    for of in read {
        let _ = write!(page, "- `{}`", of.command.replacen("stillpoint", "cargo run --release --", 1));
        for (name, value) in of.machine.iter().filter(|(name, _)| MACHINE.contains(&&***name)) {
            let [name, value] = fact(name, value);
            let _ = write!(page, "; {name}: {value}");
        }
        let _ = writeln!(page, "; {}", number_of(of.rows.len() as u64, "row"));
        for warning in warnings(of) {
            let _ = writeln!(page, "  **{warning}**");
        }
    }
    page += "\nEach line compares what a user gets who chooses nothing with the best of the others: 2.00x is twice as good, **0.50x** half as good. A \
             figure\nhas two lines if its settings differ: the worst for us, and the best. *Even* is within 5 %, or within the noise: the difference of a \
             contender\nthat was measured twice. [The laboratory](laboratory.md) says what is measured, and what makes it fair.\n\n";
    let mut lines =
        vec![["figure", "at", "ours", "best of the others", "ratio", "noise"].map(str::to_owned).to_vec()];
    let mut without = String::new();
    for section in &sections::of(read, figures) {
        for shown in &section.charts {
            lines.extend(of_figure(&section.experiment, shown));
            if let Some(undecided) = shown.undecided() {
                let _ = writeln!(without, "- {}: {}: {undecided}", section.experiment, shown.chart.title());
            }
        }
        for (row, why) in &section.void {
            let _ = writeln!(without, "- {row} does not count: {why}");
        }
    }
    let _ = writeln!(page, "{}", markdown(&lines));
    if !without.is_empty() {
        let _ = writeln!(page, "{without}");
    }
    page + WHERE_WE_LOSE
}

/// What is said of a machine.
const MACHINE: [&str; 4] = ["model", "kernel", "cpus_allowed", "memory_bytes"];

/// The lines of a figure: none if it compares nothing.
fn of_figure(experiment: &str, shown: &Shown) -> Vec<Vec<String>> {
    let Some((worst, best)) = shown.ends() else { return Vec::new() };
    let noise =
        shown.control.as_ref().map_or_else(String::new, |control| control.difference(control.percent_p50));
    let line = |verdict: &Verdict| {
        let amount =
            |(name, figure): &(String, f64)| format!("{name} {}", shown.chart.figure.amount(*figure));
        let ratio = match shown.standing_of(verdict) {
            Standing::Behind => format!("**{}**", factor(verdict)),
            Standing::Even => format!("{}, even", factor(verdict)),
            _ => factor(verdict),
        };
        let figure = format!("{experiment}: {}", shown.chart.title());
        vec![figure, verdict.at.clone(), amount(&verdict.ours), amount(&verdict.theirs), ratio, noise.clone()]
    };
    let mut lines = vec![line(worst)];
    if worst != best {
        lines.push(line(best));
    }
    lines
}
