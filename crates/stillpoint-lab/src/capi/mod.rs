//! The experiment `capi`: the C interface beside the same things in Rust, and the drop-ins beside the libraries that
//! they replace.
//!
//! It has no loops. Single operations are measured as in `micro`, delays as in `reclaim`, timers as in `timer`.

mod figures;
mod ours;
mod workers;

use stillpoint_harness::error::Stop;
use stillpoint_harness::experiment::rounds;
use stillpoint_harness::output;
use stillpoint_harness::output::figures::Figure;

use self::workers::Workers;
use crate::experiment::{
    self, BenchArgs, Experiment, Measured, NOTHING, Structure, asked_for, in_scenario, present,
};
use crate::micro::{self, Operation};
use crate::reclaim::names::{Entry, ONE_CORE, OWN_CORE, Policy, Quick, entry};
use crate::reclaim::plan::{BUDGET, contenders};
use crate::reclaim::setting::settings;
use crate::{peers, reclaim, timer};

/// Single operations; from unlink to free; from `call_rcu` to its callback; `rte_timer`; the end of workers.
const SCENARIOS: &[&str] = &[CALLS, DELAYS, CALLBACKS, TIMERS, WORKERS];
const CALLS: &str = "calls";
const DELAYS: &str = "delays";
const CALLBACKS: &str = "callbacks";
const TIMERS: &str = "timers";
const WORKERS: &str = "free-workers";

/// The operations, in the order of the table.
const OPERATIONS: &[&str] = &[
    "quiescent",
    "pin",
    "pin-linked",
    "protect",
    "check",
    "retire",
    "call",
    "lookup",
    "burst",
    "lookup-1m",
    "burst-1m",
];

/// The contenders of the operations, in the order of the table.
const CALLERS: &[&str] = &[
    "stillpoint/qsbr",
    "c/qsbr",
    "stillpoint/guard",
    "c/guard",
    "stillpoint/protected",
    "c/protected",
    "liburcu/qsbr",
    "drop-in/urcu-qsbr",
    "liburcu/memb",
    "drop-in/urcu-memb",
    "dpdk/rcu",
    "drop-in/rte_rcu_qsbr",
];

/// The contenders that free by polling, in Rust and in C.
const POLLED: &[Entry] = &[
    entry("stillpoint/protected", Policy::Poll, Quick::Always),
    entry("c/protected", Policy::Poll, Quick::Always),
    entry("stillpoint/guard", Policy::Poll, Quick::Always),
    entry("c/guard", Policy::Poll, Quick::Always),
    entry("stillpoint/qsbr+poll", Policy::Poll, Quick::Always),
    entry("c/qsbr", Policy::Poll, Quick::Always),
];

/// The contenders that hand objects to `call_rcu`.
const CALLING: &[Entry] = &[
    entry("liburcu/memb", Policy::Background, Quick::Always),
    entry("drop-in/urcu-memb", Policy::Background, Quick::Always),
    entry("drop-in/urcu-mb+boost", Policy::Background, Quick::Always),
    entry("liburcu/qsbr", Policy::Background, Quick::Always),
    entry("drop-in/urcu-qsbr", Policy::Background, Quick::Always),
];

const OF_TIMERS: &[&str] = &["drop-in/rte_timer", "dpdk/rte_timer"];

/// The contenders with workers that can be freed.
const OF_WORKERS: &[&str] = &["liburcu/memb", "drop-in/urcu-memb"];

/// The number of readers that share a CPU.
const READERS: usize = 8;

/// A part of a plan, which is measured when it is called.
type Part = Box<dyn Fn() -> Result<Measured, Stop>>;

fn part<P: experiment::Plan + 'static>(plan: P) -> Part {
    Box::new(move || plan.run())
}

/// What to measure; nearly each part is the plan of another experiment.
pub(crate) struct Plan {
    parts: Vec<Part>,
    /// The scenarios that this build cannot measure, and why; a line each.
    left_out: Vec<String>,
}

impl experiment::Plan for Plan {
    const EXPERIMENT: Experiment = Experiment::Capi;
    const SCENARIOS: &'static [&'static str] = SCENARIOS;
    const TIMED: &'static [&'static str] = &[CALLS, DELAYS, CALLBACKS];
    const OPTIONS: &'static [&'static str] = &["readers", "elements", "deletes", "bytes"];
    const FIGURES: &'static [&'static Figure] = figures::FIGURES;

    fn contenders() -> Vec<&'static str> {
        let delayed = POLLED.iter().chain(CALLING).map(|entry| entry.name);
        output::each_once(CALLERS.iter().copied().chain(delayed).chain(OF_TIMERS.iter().copied()))
    }

    fn new(args: &BenchArgs, cpus: &[usize], scenarios: &[String]) -> Result<Self, Stop> {
        let (scenarios, left_out) = possible(&args.contenders, scenarios, peers::hint)?;
        let asked = |name| scenarios.contains(&name);
        let mut parts = Vec::new();
        if asked(CALLS) {
            parts.extend(calls(args, cpus)?.map(part));
        }
        parts.extend(delays(args, cpus, &scenarios)?.map(part));
        if asked(TIMERS) {
            parts.extend(timer::Plan::of(args, cpus, OF_TIMERS).map(part));
        }
        if asked(WORKERS) {
            let measured = |workers: Workers| -> Part { Box::new(move || Ok((workers.rows(), Vec::new()))) };
            parts.extend(Workers::new(args).map(measured));
        }
        match (parts.is_empty(), left_out.is_empty()) {
            (true, true) => Err(Stop::usage(NOTHING)),
            (true, false) => Err(Stop::usage(left_out.join("; "))),
            (false, _) => Ok(Self { parts, left_out }),
        }
    }

    fn run(&self) -> Result<Measured, Stop> {
        let is_told = |hint: &String| self.left_out.iter().any(|line| line.contains(hint));
        let missing = stillpoint_peers::missing().iter().map(peers::how_to_get);
        missing.filter(|hint| !is_told(hint)).for_each(output::leave_out);
        self.left_out.iter().for_each(output::leave_out);
        let (mut rows, mut notes) = (Vec::new(), Vec::new());
        for part in &self.parts {
            let (measured, about) = part()?;
            rows.extend(measured);
            notes.extend(about);
        }
        for row in &mut rows {
            row.experiment = "capi".into();
        }
        Ok((rows, notes))
    }
}

/// The names of a scenario's contenders.
fn of_scenario(scenario: &str) -> Vec<&'static str> {
    let names = |entries: &'static [Entry]| entries.iter().map(|entry| entry.name).collect();
    match scenario {
        CALLS => CALLERS.to_vec(),
        DELAYS => names(POLLED),
        CALLBACKS => names(CALLING),
        TIMERS => OF_TIMERS.to_vec(),
        _ => OF_WORKERS.to_vec(),
    }
}

/// Those of the scenarios that were asked for that have a contender in this build; and a line for each that has none.
/// `missing` says how to get a contender that is not built in.
///
/// # Errors
/// When a scenario without contenders, or a contender that is not built in, was asked for by its name.
fn possible(
    asked: &[String],
    scenarios: &[String],
    missing: impl Fn(&str) -> Option<String>,
) -> Result<(Vec<&'static str>, Vec<String>), Stop> {
    let (mut possible, mut left_out) = (Vec::new(), Vec::new());
    for &scenario in SCENARIOS.iter().filter(|scenario| in_scenario(scenario, scenarios)) {
        let (here, hints) = present(of_scenario(scenario), asked, &missing)?;
        if here.is_empty() && !hints.is_empty() {
            left_out.push(format!("no {scenario}: {}", hints.join("; ")));
        } else {
            possible.push(scenario);
        }
    }
    match left_out.first().filter(|_| !scenarios.is_empty()) {
        Some(line) => Err(Stop::usage(line)),
        None => Ok((possible, left_out)),
    }
}

/// The single operations of those that were asked for.
fn calls(args: &BenchArgs, cpus: &[usize]) -> Result<Option<micro::Plan>, Stop> {
    let cpu = *cpus.last().ok_or_else(|| Stop::usage("no CPU was chosen to measure on"))?;
    let of_peers = stillpoint_peers::micro().into_iter().map(Operation::from);
    let timed = stillpoint_peers::timed().into_iter().map(Operation::from);
    let all = ours::operations().into_iter().chain(of_peers).chain(timed);
    let is_asked = |operation: &Operation| {
        CALLERS.contains(&operation.contender)
            && OPERATIONS.contains(&operation.name)
            && asked_for(operation.contender, &args.contenders)
    };
    let operations: Vec<Operation> = all.filter(is_asked).collect();
    Ok((!operations.is_empty()).then(|| micro::Plan::of(operations, args, cpu)))
}

/// One reader on its own CPU, and [`READERS`] on one CPU.
fn delays(args: &BenchArgs, cpus: &[usize], scenarios: &[&str]) -> Result<Option<reclaim::Plan>, Stop> {
    let (mut parts, mut left_out) = (Vec::new(), Vec::new());
    for (scenario, entries) in [(DELAYS, POLLED), (CALLBACKS, CALLING)] {
        let is_asked = |entry: &Entry| asked_for(entry.name, &args.contenders);
        if !scenarios.contains(&scenario) || !entries.iter().any(is_asked) {
            continue;
        }
        // Missing contenders are reported below.
        let (mut present, _) = contenders(entries, &args.contenders)?;
        if let Some(error) = reclaim::ours::refusal("stillpoint/guard+boost") {
            present.retain(|entry| !entry.name.ends_with("+boost"));
            left_out.push(format!("boosting left out: {error}"));
        }
        for (place, readers) in [(OWN_CORE, 1), (ONE_CORE, READERS)] {
            match settings(cpus, &[place.to_owned()], &[readers], &args.length) {
                Ok((settings, _)) => parts.extend(
                    settings.into_iter().map(|setting| rounds::Part { contenders: present.clone(), setting }),
                ),
                Err(reason) => left_out.push(format!("left out: {reason}")),
            }
        }
    }
    if parts.is_empty() {
        left_out.iter().for_each(output::leave_out);
        return Ok(None);
    }
    left_out.dedup();
    let (rounds, round) = BUDGET.timing(&args.length, rounds::rows(&parts));
    reclaim::Plan::of(args, Structure::Array, parts, (rounds, round), left_out).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A build without this peer: the words of the contenders that it would have, and its package.
    fn plan_without(
        peer: (&'static str, &'static str),
        contenders: &[&str],
        scenarios: &[&str],
    ) -> Result<(Vec<&'static str>, Vec<String>), String> {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let (word, package) = peer;
        let missing = |name: &str| name.contains(word).then(|| format!("install {package}"));
        possible(&owned(contenders), &owned(scenarios), missing).map_err(|stop| stop.to_string())
    }

    const URCU: (&str, &str) = ("urcu-", "liburcu-dev");
    const LIBURCU: (&str, &str) = ("urcu", "liburcu-dev");
    const DPDK: (&str, &str) = ("rte_timer", "libdpdk-dev");

    #[test]
    fn a_scenario_whose_contenders_are_all_missing_is_left_out_and_the_others_run() {
        let (here, left_out) = plan_without(LIBURCU, &[], &[]).unwrap();
        assert_eq!(here, [CALLS, DELAYS, TIMERS]);
        assert_eq!(left_out, ["no callbacks: install liburcu-dev", "no free-workers: install liburcu-dev"]);
        let (here, left_out) = plan_without(DPDK, &[], &[]).unwrap();
        assert_eq!(here, [CALLS, DELAYS, CALLBACKS, WORKERS]);
        assert_eq!(left_out, ["no timers: install libdpdk-dev"]);
        // The originals are there, without what stands in for them.
        assert_eq!(plan_without(URCU, &[], &[]).unwrap(), (SCENARIOS.to_vec(), Vec::new()));
    }

    #[test]
    fn a_group_that_is_missing_leaves_the_scenarios_of_the_other_groups() {
        let (here, left_out) = plan_without(LIBURCU, &["liburcu", "c"], &[]).unwrap();
        assert!(here.contains(&DELAYS) && !here.contains(&CALLBACKS), "{here:?}");
        assert_eq!(left_out.len(), 2, "{left_out:?}");
    }

    #[test]
    fn what_was_asked_for_by_its_name_and_is_missing_is_an_error() {
        let refused = |peer, contenders: &[&str], scenarios: &[&str]| {
            plan_without(peer, contenders, scenarios).unwrap_err()
        };
        assert_eq!(refused(LIBURCU, &[], &["delays", "callbacks"]), "no callbacks: install liburcu-dev");
        assert_eq!(refused(LIBURCU, &["liburcu/memb", "c/guard"], &[]), "install liburcu-dev");
        assert_eq!(refused(DPDK, &[], &["timers"]), "no timers: install libdpdk-dev");
    }

    #[test]
    fn every_contender_of_this_build_that_has_workers_is_listed() {
        let timed = stillpoint_peers::timed();
        let all: Vec<&str> =
            timed.iter().filter(|timed| timed.operation == WORKERS).map(|timed| timed.contender).collect();
        assert!(all.is_empty() || all == OF_WORKERS, "{all:?}");
    }
}
