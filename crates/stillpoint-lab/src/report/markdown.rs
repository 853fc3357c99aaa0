//! The page of results of the book: the answer, three pictures, and a line for each thing that a user does.

use std::fmt::Write as _;

use stillpoint_harness::output::format::number_of;
use stillpoint_harness::output::json::Read;
use stillpoint_harness::output::table::markdown;

use crate::reclaim;

use super::page::{fact, warnings};
use super::tasks::{self, Task};

/// What the figures do not say by themselves.
const WHERE_WE_LOSE: &str = "\
## Where we lose, and when not to use this

Bold ratios are losses, mostly for one of these reasons:

- **Nothing is ever preempted.** Then regions cost less than protected loads: use QSBR or guards, ours or those of liburcu and DPDK. A writer of
  DPDK's that polls has the better median.
- **Our guards and QSBR readers**, when they are preempted, are no better than DPDK's, unless the domain boosts them.
- **haphazard** also protects objects, with a full fence for each load: it frees sooner in arrays on one core, since it interrupts no core. Its
  readers are slower.
- **Tables that are written most of the time.** scc and dashmap write in place, under a lock. An entry of ours never moves and is never written, since
  readers hold references to it: a write makes a new entry, and frees the old one after a grace period.
- **The list that is walked by protected loads** takes a slot at each node. With guards, writers protect nodes one by one.
- **Calls from C** check their handle and catch panics: that is some nanoseconds for each.
- **Pools without caches**, in bulks: DPDK's stack and ring copy addresses, while ours looks each bucket up.
- **The longest poll** of many connections takes up to twice `rte_timer`'s.
- **Fences by signals** wait for each thread that computes. They are for systems without `membarrier`.
- **`check`** of a token compares the domain as well.
";

/// The pictures, and what they show.
const PICTURES: [(&str, &str); 3] = [
    ("delay", "Mean delay from unlink to free against the number of readers on one CPU"),
    ("lookups", "Lookups of these readers against their number"),
    (
        "memory",
        "Memory that waits, at most, against the number of readers on each CPU, most of them preempted",
    ),
];

/// The whole page.
pub(super) fn text(read: &[Read]) -> String {
    let mut page = String::from("# Performance\n\n");
    if let Some(answer) = read.iter().find_map(|read| reclaim::answer(&read.rows)) {
        let _ = write!(page, "**{} {answer}**\n\n", reclaim::QUESTION);
    }
    for (picture, shows) in PICTURES {
        let _ = write!(page, "![{shows}](../pictures/{picture}.svg)\n\n");
    }
    page += "`stillpoint report docs/results --markdown docs/guide/performance.md` wrote this page from the results of these commands. Repeat them: runs and\n\
             machines vary.\n\n";
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
    page += "\nEach line compares what a user gets who chooses nothing with the best of the others in the same run: 2.00x is twice as good, **0.50x** \
             half as\ngood. *Even* is within 5 %, or within the noise: the difference between two measurements of ours in that run, if there were two. \
             All figures are on the page that\n`cargo run --release -- report docs/results` writes. [The laboratory](laboratory.md) says what is measured, and what \
             makes it fair.\n\n";
    page += &markdown(&lines(read));
    page += "\n";
    for (row, why) in
        read.iter().flat_map(|read| &read.rows).filter_map(|row| Some((row, row.void.as_ref()?)))
    {
        let _ =
            writeln!(page, "- {}: {}, {} does not count: {why}", row.experiment, row.scenario, row.contender);
    }
    page + WHERE_WE_LOSE
}

/// What is said of a machine.
const MACHINE: [&str; 4] = ["model", "kernel", "cpus_allowed", "memory_bytes"];

/// The lines of the table: what a user does, where it was measured.
fn lines(read: &[Read]) -> Vec<Vec<String>> {
    let mut lines = vec![
        ["what a user does", "ours", "best of the others", "ratio", "noise"].map(str::to_owned).to_vec(),
    ];
    for task in tasks::all() {
        lines.extend(match task {
            Task::Group(name) => Some(
                [format!("**{name}**"), String::new(), String::new(), String::new(), String::new()].to_vec(),
            ),
            Task::Line(line) => {
                read.iter().find_map(|read| line.cells(&read.rows)).map(|cells| cells.to_vec())
            }
        });
    }
    lines
}
