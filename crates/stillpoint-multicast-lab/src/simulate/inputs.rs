//! The inputs of the model: each number, what it is, where it comes from, and how far it can be trusted.
//!
//! The table of inputs for the terminal, the JSON and the guide is made here. No number in it is a result.

use serde_json::Value;
use stillpoint_harness::output::json::{Row, number};

use super::machine::Machine;

/// The scenario of its rows.
pub(super) const INPUTS: &str = "inputs";

/// How far an input can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Confidence {
    /// A source states it.
    Published,
    /// Chosen so that the model gives a published or measured figure. That figure then says nothing about the model.
    Fitted,
    /// A choice of ours, not a property of the machine.
    Chosen,
    /// No source: a guess, of the usual order of magnitude for such machines.
    Assumed,
    /// From a parameter file; only its author knows the source.
    Given,
}

impl Confidence {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Fitted => "fitted",
            Self::Chosen => "chosen",
            Self::Assumed => "assumed",
            Self::Given => "given",
        }
    }
}

/// A number of the machine that can be halved and doubled.
#[derive(Debug)]
enum Slot<'a> {
    Time(&'a mut f64),
    ByDistance(&'a mut [f64; 3]),
    /// A factor; only its part above 1 is scaled.
    Above(&'a mut f64),
    Share(&'a mut f64),
    Count(&'a mut usize),
    Percent(&'a mut u32),
    Few(&'a mut u32),
}

/// An input.
#[derive(Debug)]
pub(super) struct Input {
    /// Its field in the parameter file.
    pub(super) name: &'static str,
    /// What it is.
    pub(super) about: &'static str,
    unit: &'static str,
    slot: for<'a> fn(&'a mut Machine) -> Slot<'a>,
    seed: (Confidence, &'static str),
    kvm: (Confidence, &'static str),
}

const GUESS: (Confidence, &str) = (Confidence::Assumed, "none");
const POSTER: &str = "the poster: 144 logical CPUs on four sockets (Intel Xeon E7-8890 v3)";
const MEMB: (Confidence, &str) = (
    Confidence::Published,
    "liburcu's source, flavour memb. `stillpoint module` counts about four, since a writer that sleeps adds some",
);
const KVM: &str = "Linux commit 4180bf1b655a, its figures of a guest with 80 virtual CPUs";

/// All inputs but the topology, in the order of the parameter file.
pub(super) const ALL: &[Input] = &[
    time("nanoseconds.system_call", "the call itself: entry, locks, exit", |m| {
        Slot::Time(&mut m.nanoseconds.system_call)
    }),
    time(
        "nanoseconds.scan_per_cpu",
        "the check whether an online CPU runs this process, for each CPU",
        |m| Slot::Time(&mut m.nanoseconds.scan_per_cpu),
    ),
    time("nanoseconds.push", "a push onto a receiver's queue: same core, same socket, other socket", |m| {
        Slot::ByDistance(&mut m.nanoseconds.push)
    }),
    Input {
        kvm: (Confidence::Fitted, KVM),
        ..time("nanoseconds.interrupt_send", "one write to the interrupt controller", |m| {
            Slot::Time(&mut m.nanoseconds.interrupt_send)
        })
    },
    Input {
        kvm: (Confidence::Fitted, KVM),
        ..time("nanoseconds.interrupt_each", "the extra time for each further receiver of one write", |m| {
            Slot::Time(&mut m.nanoseconds.interrupt_each)
        })
    },
    Input {
        kvm: (Confidence::Fitted, KVM),
        ..time(
            "nanoseconds.interrupt_flight",
            "from that write to the receiver's first instruction, by distance",
            |m| Slot::ByDistance(&mut m.nanoseconds.interrupt_flight),
        )
    },
    Input {
        kvm: (Confidence::Fitted, KVM),
        ..time("nanoseconds.interrupt_enter", "the way into the handler", |m| {
            Slot::Time(&mut m.nanoseconds.interrupt_enter)
        })
    },
    time("nanoseconds.interrupt_exit", "the way out of the handler", |m| {
        Slot::Time(&mut m.nanoseconds.interrupt_exit)
    }),
    time("nanoseconds.barrier", "what membarrier asks of a receiver", |m| {
        Slot::Time(&mut m.nanoseconds.barrier)
    }),
    time("nanoseconds.flush", "what mprotect asks of a receiver", |m| Slot::Time(&mut m.nanoseconds.flush)),
    time("nanoseconds.mprotect", "the work of mprotect itself", |m| Slot::Time(&mut m.nanoseconds.mprotect)),
    time("nanoseconds.atomic", "an atomic access to a cache line that was written at that distance", |m| {
        Slot::ByDistance(&mut m.nanoseconds.atomic)
    }),
    time("nanoseconds.read", "a read of such a line", |m| Slot::ByDistance(&mut m.nanoseconds.read)),
    time("nanoseconds.mutex_handover", "from the unlock until the next owner, which slept, runs", |m| {
        Slot::Time(&mut m.nanoseconds.mutex_handover)
    }),
    Input {
        unit: "",
        ..time("noise.jitter", "variation of each time, as a share", |m| Slot::Share(&mut m.noise.jitter))
    },
    Input {
        unit: "",
        ..time("noise.busy_sibling", "factor on a core whose threads are all busy", |m| {
            Slot::Above(&mut m.noise.busy_sibling)
        })
    },
    Input {
        unit: "CPUs",
        seed: (Confidence::Published, "Intel's manual: a cluster of x2APIC has at most 16 CPUs"),
        kvm: (Confidence::Published, "Intel's manual: a cluster of x2APIC has at most 16 CPUs"),
        ..time("multicast.cluster", "receivers of one write in cluster mode", |m| {
            Slot::Count(&mut m.multicast.cluster)
        })
    },
    Input {
        unit: "%",
        seed: (Confidence::Chosen, "`split` is ours"),
        kvm: (Confidence::Chosen, "`split` is ours"),
        ..time("multicast.split_percent", "the share that each message of `split` delegates", |m| {
            Slot::Percent(&mut m.multicast.split_percent)
        })
    },
    Input {
        unit: "",
        seed: MEMB,
        kvm: MEMB,
        ..time(
            "rcu.barriers_per_grace_period",
            "barriers of a grace period whose writer does not sleep until a reader leaves",
            |m| Slot::Few(&mut m.rcu.barriers_per_grace_period),
        )
    },
    time("rcu.interrupted", "what a reader loses to an interrupt, in addition to the handler's time", |m| {
        Slot::Time(&mut m.rcu.interrupted)
    }),
    time("rcu.displaced", "what it loses for each cache line that the handler touched", |m| {
        Slot::Time(&mut m.rcu.displaced)
    }),
];

const fn time(
    name: &'static str,
    about: &'static str,
    slot: for<'a> fn(&'a mut Machine) -> Slot<'a>,
) -> Input {
    Input { name, about, unit: "ns", slot, seed: GUESS, kvm: GUESS }
}

impl Input {
    /// Its value in a machine, with its unit.
    pub(super) fn value(&self, machine: &Machine) -> String {
        let mut machine = machine.clone();
        let short = |value: f64| ((value * 100.0).round() / 100.0).to_string();
        let value = match (self.slot)(&mut machine) {
            Slot::Time(value) | Slot::Above(value) | Slot::Share(value) => short(*value),
            Slot::ByDistance(values) => values.map(short).join(", "),
            Slot::Count(value) => value.to_string(),
            Slot::Percent(value) | Slot::Few(value) => value.to_string(),
        };
        format!("{value} {}", self.unit).trim_end().to_owned()
    }

    /// The machine with this input multiplied by `factor`; `None` if that changes nothing, or gives a machine that is
    /// not valid.
    pub(super) fn scaled(&self, machine: &Machine, factor: f64) -> Option<Machine> {
        let mut changed = machine.clone();
        let whole = |value: f64| value.round().max(1.0);
        match (self.slot)(&mut changed) {
            Slot::Time(value) | Slot::Share(value) => *value *= factor,
            Slot::ByDistance(values) => *values = values.map(|value| value * factor),
            Slot::Above(value) => *value = 1.0 + (*value - 1.0) * factor,
            Slot::Count(value) => *value = whole(*value as f64 * factor) as usize,
            Slot::Percent(value) | Slot::Few(value) => *value = whole(f64::from(*value) * factor) as u32,
        }
        (changed != *machine && changed.check().is_ok()).then_some(changed)
    }
}

/// Where the numbers of a machine come from. Numbers that agree with a known machine have its sources; the others
/// have another source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    /// The machine that comes with the program.
    pub(super) base: &'static str,
    /// The source of the numbers that differ from it.
    pub(super) other: (Confidence, String),
}

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) value: String,
    pub(super) confidence: Confidence,
    pub(super) source: String,
}

/// The table of the inputs of a machine.
pub(super) fn table(machine: &Machine, origin: &Origin) -> Vec<Line> {
    let base = Machine::load(origin.base).ok();
    let sourced = |same: bool, seed: (Confidence, &str), kvm: (Confidence, &str)| match (same, origin.base) {
        (false, _) => origin.other.clone(),
        (true, "kvm") => (kvm.0, kvm.1.to_owned()),
        (true, _) => (seed.0, seed.1.to_owned()),
    };
    let topology = {
        let of = machine.topology;
        let same = base.as_ref().is_some_and(|base| base.topology == of);
        let known = Confidence::Published;
        let (confidence, source) = sourced(same, (known, POSTER), (known, KVM));
        Line {
            name: "topology",
            about: "sockets, cores of each, threads of each core",
            value: format!("{}, {}, {}", of.sockets, of.cores_per_socket, of.threads_per_core),
            confidence,
            source,
        }
    };
    let line = |input: &Input| {
        let value = input.value(machine);
        let same = base.as_ref().is_some_and(|base| input.value(base) == value);
        let (confidence, source) = sourced(same, input.seed, input.kvm);
        Line { name: input.name, about: input.about, value, confidence, source }
    };
    std::iter::once(topology).chain(ALL.iter().map(line)).collect()
}

/// The table as rows.
pub(super) fn rows(lines: &[Line]) -> Vec<Row> {
    let row = |line: &Line| {
        let numbers: Vec<Value> =
            line.value.split([',', ' ']).filter_map(|part| part.parse::<f64>().ok()).map(number).collect();
        let mut row = Row::new("simulate", INPUTS, line.name)
            .with("confidence", line.confidence.name())
            .with("source", line.source.as_str())
            .with("about", line.about)
            .with("shown", line.value.as_str());
        match numbers.as_slice() {
            [one] => row.metrics.insert("value".to_owned(), one.clone()),
            _ => row.metrics.insert("values".to_owned(), numbers.into()),
        };
        row
    };
    lines.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed() -> Machine {
        Machine::load("seed").unwrap()
    }

    fn origin(base: &'static str) -> Origin {
        Origin { base, other: (Confidence::Given, "a file".to_owned()) }
    }

    /// A number in the file that is missing in the table would be taken for a result.
    #[test]
    fn every_field_of_the_parameter_file_is_an_input() {
        for name in ["seed", "kvm"] {
            let mut machine = Machine::load(name).unwrap();
            machine.multicast.hybrid_threshold = None;
            let value: toml::Value = toml::from_str(&machine.text().unwrap()).unwrap();
            let lines = table(&machine, &origin(name));
            for (section, fields) in value.as_table().unwrap() {
                let Some(fields) = fields.as_table().filter(|_| section != "topology") else { continue };
                for field in fields.keys() {
                    let name = format!("{section}.{field}");
                    assert!(
                        lines.iter().any(|line| line.name == name),
                        "{name} is not in the table of inputs"
                    );
                }
            }
            assert_eq!(rows(&lines).len(), ALL.len() + 1);
        }
    }

    #[test]
    fn an_input_that_is_scaled_is_the_only_one_that_changes() {
        let machine = seed();
        for input in ALL {
            for factor in [0.5, 2.0] {
                let Some(changed) = input.scaled(&machine, factor) else {
                    assert_eq!(input.name, "nanoseconds.interrupt_each", "it is 0");
                    continue;
                };
                let differs = |other: &&Input| other.value(&machine) != other.value(&changed);
                let names: Vec<&str> = ALL.iter().filter(differs).map(|other| other.name).collect();
                assert_eq!(names, [input.name], "by {factor}");
            }
        }
    }

    #[test]
    fn a_number_has_the_source_of_the_machine_whose_it_is() {
        let machine = seed();
        let of = |lines: &[Line], name: &str| lines.iter().find(|line| line.name == name).unwrap().clone();
        let lines = table(&machine, &origin("seed"));
        assert!(lines.iter().all(|line| line.confidence != Confidence::Given));
        assert_eq!(of(&lines, "noise.busy_sibling").confidence, Confidence::Assumed);
        let changed = ALL.iter().find(|input| input.name == "noise.busy_sibling").unwrap();
        let lines = table(&changed.scaled(&machine, 2.0).unwrap(), &origin("seed"));
        let line = of(&lines, "noise.busy_sibling");
        assert_eq!(
            (line.confidence, line.source.as_str(), line.value.as_str()),
            (Confidence::Given, "a file", "1.7")
        );
        assert_eq!(lines.iter().filter(|line| line.confidence == Confidence::Given).count(), 1);
    }
}
