//! `stillpoint doctor`: what this machine offers, and what each missing feature costs.

mod kernel;
mod memory;
mod processor;

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use stillpoint_harness::error::Stop;
use stillpoint_harness::flags::JsonFlag;
use stillpoint_harness::machine::Machine;
use stillpoint_harness::output::json::Target;
use stillpoint_harness::output::say;
use stillpoint_harness::qemu::needs;

use crate::peers;

/// One feature that was examined.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) topic: &'static str,
    /// Whether the machine offers it.
    pub(crate) present: bool,
    pub(crate) found: String,
    /// What is lost without it, in one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<String>,
}

impl Finding {
    pub(crate) fn present(topic: &'static str, found: impl Into<String>) -> Self {
        Self { topic, present: true, found: found.into(), cost: None }
    }

    pub(crate) fn absent(topic: &'static str, found: impl Into<String>, cost: impl Into<String>) -> Self {
        Self { topic, present: false, found: found.into(), cost: Some(cost.into()) }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    json: JsonFlag,
}

#[derive(Serialize)]
struct Findings {
    findings: Vec<Finding>,
}

/// Examines the machine and prints what it finds. A missing feature is not a failure: the exit code is 0.
pub(crate) fn run(options: &Options) -> Result<(), Stop> {
    let target = Target::open(options.json.json.as_deref())?;
    let machine = Machine::look(peers::versions());
    let mut findings = Vec::new();
    findings.extend(processor::findings(&machine));
    findings.extend(kernel::findings());
    findings.extend(memory::findings(&machine));
    findings.push(match needs::parts() {
        Ok(found) => Finding::present("guest", found),
        Err(missing) => Finding::absent(
            "guest",
            missing,
            "`stillpoint guest` is skipped: readers whose virtual CPU is preempted cannot be measured",
        ),
    });
    findings.extend(peer_findings(&machine));
    if !target.takes_stdout() {
        print(&machine, &findings);
        say(
            "To see whether preempted readers hold up memory here: stillpoint bench reclaim --scenarios one-core --report results",
        );
    }
    target.write(&machine, &[], Findings { findings })
}

fn peer_findings(machine: &Machine) -> Vec<Finding> {
    let found =
        machine.peers.iter().map(|(name, version)| Finding::present("peer", format!("{name} {version}")));
    let missing = stillpoint_peers::missing().iter().map(|missing| {
        let cost = format!("the rows of {} are missing from every table", missing.contenders.join(", "));
        Finding::absent("peer", peers::how_to_get(missing), cost)
    });
    found.chain(missing).collect()
}

const HERE: Style = AnsiColor::Green.on_default();
const MISSING: Style = AnsiColor::Yellow.on_default();

fn print(machine: &Machine, findings: &[Finding]) {
    say(machine.summary());
    let width = findings.iter().map(|finding| finding.topic.len()).max().unwrap_or(0);
    for Finding { topic, present, found, cost } in findings {
        let (style, mark) = if *present { (HERE, "yes") } else { (MISSING, "no ") };
        say(format!("{style}{mark}{style:#} {topic:width$}  {found}"));
        if let Some(cost) = cost {
            say(format!("    {:width$}  cost: {cost}", ""));
        }
    }
}
