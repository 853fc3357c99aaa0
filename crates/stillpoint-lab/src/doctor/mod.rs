//! `stillpoint doctor`: what this machine offers, what each missing feature costs, and how to get it.

mod kernel;
mod memory;
mod processor;

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use stillpoint_harness::error::Stop;
use stillpoint_harness::flags::JsonFlag;
use stillpoint_harness::machine::Machine;
use stillpoint_harness::output::json::Target;
use stillpoint_harness::output::{heading, own_command, say};
use stillpoint_harness::qemu::needs;

use crate::peers;

/// One feature that was examined.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Finding {
    pub(crate) topic: &'static str,
    /// Whether the machine offers it.
    pub(crate) present: bool,
    pub(crate) found: String,
    /// What is lost without it, in one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<String>,
    /// How to get it, or what to do without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

impl Finding {
    pub(crate) fn present(topic: &'static str, found: impl Into<String>) -> Self {
        Self { topic, present: true, found: found.into(), cost: None, remedy: None }
    }

    pub(crate) fn absent(
        topic: &'static str,
        found: impl Into<String>,
        cost: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let (cost, remedy) = (Some(cost.into()), Some(remedy.into()));
        Self { topic, present: false, found: found.into(), cost, remedy }
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
    let groups = [
        ("Machine", [processor::findings(&machine), memory::findings(&machine)].concat()),
        ("Kernel", kernel::findings()),
        ("Peers to compare with", peer_findings(&machine)),
        ("Tools", vec![guest()]),
    ];
    if !target.takes_stdout() {
        say(machine.summary());
        groups.iter().for_each(|(name, findings)| print(name, findings));
        say(format!(
            "\nTo see whether preempted readers hold up memory here: {}\ndocs/design/glossary.md explains the words.",
            own_command("bench reclaim --report results")
        ));
    }
    let findings = groups.into_iter().flat_map(|(_, findings)| findings).collect();
    target.write(&machine, &[], Findings { findings })
}

fn guest() -> Finding {
    match needs::parts() {
        Ok(found) => Finding::present("guest", found),
        Err(missing) => Finding::absent(
            "guest",
            missing,
            "`stillpoint guest` is skipped: readers whose virtual CPU is preempted cannot be measured",
            "install what is named above; a virtual machine with /dev/kvm is much faster than one without",
        ),
    }
}

fn peer_findings(machine: &Machine) -> Vec<Finding> {
    let found =
        machine.peers.iter().map(|(name, version)| Finding::present("peer", format!("{name} {version}")));
    let missing = stillpoint_peers::missing().iter().map(|missing| {
        let cost = format!("the rows of {} are missing from every table", missing.contenders.join(", "));
        let remedy = format!("install {}, then build again", missing.package);
        Finding::absent("peer", format!("{}: {}", missing.peer, missing.why), cost, remedy)
    });
    found.chain(missing).collect()
}

const HERE: Style = AnsiColor::Green.on_default();
const MISSING: Style = AnsiColor::Yellow.on_default();

/// The width of the topics.
const WIDTH: usize = 22;

/// Prints a group. Findings of the same topic that are there share a line.
fn print(group: &str, findings: &[Finding]) {
    heading(group);
    let mut told: Vec<&str> = Vec::new();
    for Finding { topic, present, found, cost, remedy } in findings {
        let (style, mark) = if *present { (HERE, "yes") } else { (MISSING, "no ") };
        let found = match present {
            true if told.contains(topic) => continue,
            true => {
                told.push(topic);
                let same = findings.iter().filter(|other| other.present && other.topic == *topic);
                same.map(|other| other.found.as_str()).collect::<Vec<_>>().join(", ")
            }
            false => found.clone(),
        };
        say(format!("{style}{mark}{style:#} {topic:WIDTH$}  {found}"));
        for (name, text) in [("cost", cost), ("do", remedy)] {
            if let Some(text) = text {
                say(format!("    {:WIDTH$}  {name}: {text}", ""));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_is_disturbed_is_told_apart_from_a_quiet_one() {
        let [quiet, whole] = processor::disturbances(Some(0.2), Some(0.001)).try_into().unwrap();
        assert!(quiet.present && whole.present, "{quiet:?} {whole:?}");
        let [busy, stolen] = processor::disturbances(Some(40.0), Some(0.08)).try_into().unwrap();
        assert!(!busy.present && busy.found.contains("40.00"), "{busy:?}");
        assert!(!stolen.present && stolen.found.contains("8.0 %"), "{stolen:?}");
        assert!(processor::disturbances(None, None).is_empty(), "/proc does not show them everywhere");
    }
}
