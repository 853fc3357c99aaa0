//! The inputs of the model: each number, what it is, where it comes from, and how far it can be trusted.
//!
//! The table of inputs for the terminal and the JSON is made here. No number in it is a result.

use serde_json::Value;
use stillpoint_harness::output::json::{Row, number};

use super::machine::{MOST_CPUS, Machine, within};

/// The scenario of its rows.
pub(super) const INPUTS: &str = "inputs";

/// How far an input can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Confidence {
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
    fn name(self) -> &'static str {
        ["published", "fitted", "chosen", "assumed", "given"][self as usize]
    }
}

/// A number of the machine that can be halved and doubled.
#[derive(Debug)]
enum Slot<'a> {
    Time(&'a mut f64),
    ByDistance(&'a mut [f64; 3]),
    /// A factor; only its part above 1 is scaled.
    Above(&'a mut f64),
    Count(&'a mut usize),
    Few(&'a mut u32),
}

type Source = (Confidence, &'static str);

/// An input.
#[derive(Debug)]
pub(super) struct Input {
    /// Its field in the parameter file.
    pub(super) name: &'static str,
    /// What it is.
    about: &'static str,
    unit: &'static str,
    slot: for<'a> fn(&'a mut Machine) -> Slot<'a>,
    /// The values that are valid.
    least: f64,
    most: f64,
    seed: Source,
    kvm: Source,
}

const GUESS: Source = (Confidence::Assumed, "none");
const POSTER: &str = "the poster: 144 logical CPUs on four sockets (Intel Xeon E7-8890 v3)";
const MEMB: Source = (
    Confidence::Published,
    "liburcu's source, flavour memb. `stillpoint module` counts about four, since a writer that sleeps adds some",
);
const KVM: &str = "Linux commit 4180bf1b655a, its figures of a guest with 80 virtual CPUs";
const FITTED: Source = (Confidence::Fitted, KVM);
const INTEL: Source = (Confidence::Published, "Intel's manual: a cluster of x2APIC has at most 16 CPUs");
const OURS: Source = (Confidence::Chosen, "`split` is ours");
/// The longest time of an operation, in nanoseconds: one second.
const LONGEST: f64 = 1e9;
/// The shortest time of an interrupt. If it took no time, there would be nothing to compare. A nanosecond is also the
/// last digit of the figures.
const SHORTEST: f64 = 1.0;

macro_rules! inputs {
    ($($section:ident.$field:ident: $slot:ident, $unit:literal, $least:expr, $most:expr, $seed:expr, $kvm:expr, $about:literal;)*) => {
        &[$(Input {
            name: concat!(stringify!($section), ".", stringify!($field)),
            about: $about,
            unit: $unit,
            slot: |machine| Slot::$slot(&mut machine.$section.$field),
            least: $least,
            most: $most,
            seed: $seed,
            kvm: $kvm,
        },)*]
    };
}

/// All inputs but the topology, in the order of the parameter file: the kind of number, its unit, the least and the most
/// that is valid, the source for each machine of the program, and what it is.
pub(super) const ALL: &[Input] = inputs! {
    nanoseconds.system_call: Time, "ns", 0.0, LONGEST, GUESS, GUESS, "the call itself: entry, locks, exit";
    nanoseconds.scan_per_cpu: Time, "ns", 0.0, LONGEST, GUESS, GUESS,
        "the check whether an online CPU runs this process, for each CPU";
    nanoseconds.push: ByDistance, "ns", 0.0, LONGEST, GUESS, GUESS,
        "a push onto a receiver's queue: same core, same socket, other socket";
    nanoseconds.interrupt_send: Time, "ns", SHORTEST, LONGEST, GUESS, FITTED, "one write to the interrupt controller";
    nanoseconds.interrupt_each: Time, "ns", 0.0, LONGEST, GUESS, FITTED,
        "the extra time for each further receiver of one write";
    nanoseconds.interrupt_flight: ByDistance, "ns", SHORTEST, LONGEST, GUESS, FITTED,
        "from that write to the receiver's first instruction, by distance";
    nanoseconds.interrupt_enter: Time, "ns", SHORTEST, LONGEST, GUESS, FITTED, "the way into the handler";
    nanoseconds.interrupt_exit: Time, "ns", 0.0, LONGEST, GUESS, GUESS, "the way out of the handler";
    nanoseconds.barrier: Time, "ns", 0.0, LONGEST, GUESS, GUESS, "what membarrier asks of a receiver";
    nanoseconds.flush: Time, "ns", 0.0, LONGEST, GUESS, GUESS, "what mprotect asks of a receiver";
    nanoseconds.mprotect: Time, "ns", 0.0, LONGEST, GUESS, GUESS, "the work of mprotect itself";
    nanoseconds.atomic: ByDistance, "ns", 0.0, LONGEST, GUESS, GUESS,
        "an atomic access to a cache line that was written at that distance";
    nanoseconds.read: ByDistance, "ns", 0.0, LONGEST, GUESS, GUESS, "a read of such a line";
    nanoseconds.mutex_handover: Time, "ns", 0.0, LONGEST, GUESS, GUESS,
        "from the unlock until the next owner, which slept, runs";
    noise.jitter: Time, "", 0.0, 0.9, GUESS, GUESS, "variation of each time, as a share";
    noise.busy_sibling: Above, "", 1.0, 10.0, GUESS, GUESS, "factor on a core whose threads are all busy";
    multicast.cluster: Count, "CPUs", 1.0, MOST_CPUS as f64, INTEL, INTEL, "receivers of one write in cluster mode";
    multicast.split_percent: Few, "%", 1.0, 99.0, OURS, OURS, "the share that each message of `split` delegates";
    rcu.barriers_per_grace_period: Few, "", 1.0, 10.0, MEMB, MEMB,
        "barriers of a grace period whose writer does not sleep until a reader leaves";
    rcu.interrupted: Time, "ns", 0.0, LONGEST, GUESS, GUESS,
        "what a reader loses to an interrupt, in addition to the handler's time";
    rcu.displaced: Time, "ns", 0.0, LONGEST, GUESS, GUESS,
        "what it loses for each cache line that the handler touched";
};

impl Input {
    /// Its value in a machine: one number, or three by distance.
    fn numbers(&self, machine: &Machine) -> Vec<f64> {
        match (self.slot)(&mut machine.clone()) {
            Slot::Time(value) | Slot::Above(value) => vec![*value],
            Slot::ByDistance(values) => values.to_vec(),
            Slot::Count(value) => vec![*value as f64],
            Slot::Few(value) => vec![(*value).into()],
        }
    }

    /// Its value in a machine, with its unit.
    pub(super) fn value(&self, machine: &Machine) -> String {
        let short = |value: &f64| ((value * 100.0).round() / 100.0).to_string();
        let values: Vec<String> = self.numbers(machine).iter().map(short).collect();
        format!("{} {}", values.join(", "), self.unit).trim_end().to_owned()
    }

    /// The machine with this input multiplied by `factor`; `None` if that changes nothing, or gives a machine that is
    /// not valid.
    pub(super) fn scaled(&self, machine: &Machine, factor: f64) -> Option<Machine> {
        let changed = self.multiplied(machine, factor, |value| value);
        (changed != *machine && changed.check().is_ok()).then_some(changed)
    }

    /// The same, but each of its numbers stays within what is valid.
    pub(super) fn scaled_within(&self, machine: &Machine, factor: f64) -> Machine {
        self.multiplied(machine, factor, |value| value.clamp(self.least, self.most))
    }

    fn multiplied(&self, machine: &Machine, factor: f64, keep: impl Fn(f64) -> f64) -> Machine {
        let mut changed = machine.clone();
        let times = |value: f64| keep(value * factor);
        let whole = |value: f64| keep((value * factor).round().max(1.0));
        match (self.slot)(&mut changed) {
            Slot::Time(value) => *value = times(*value),
            Slot::ByDistance(values) => *values = values.map(times),
            Slot::Above(value) => *value = keep(1.0 + (*value - 1.0) * factor),
            Slot::Count(value) => *value = whole(*value as f64) as usize,
            Slot::Few(value) => *value = whole((*value).into()) as u32,
        }
        changed
    }
}

/// Refuses a machine with an input that is not valid; the error names the field.
pub(super) fn check(machine: &Machine) -> Result<(), String> {
    ALL.iter().try_for_each(|input| {
        let mut numbers = input.numbers(machine).into_iter();
        numbers.try_for_each(|number| within(input.name, number, input.least, input.most))
    })
}

/// The inputs of a machine as rows. Those that agree with `base`, a machine that comes with the program, have its
/// source; the others were given by `file`.
pub(super) fn rows(machine: &Machine, base: &str, file: &str) -> Vec<Row> {
    let known = Machine::load(base).ok();
    let row = |name, about: &str, numbers: &[f64], value: String, same, source: Source| {
        let (confidence, source) = if same { source } else { (Confidence::Given, file) };
        let mut row = Row::new("simulate", INPUTS, name)
            .with("confidence", confidence.name())
            .with("source", source)
            .with("about", about)
            .with("shown", value);
        let numbers: Vec<Value> =
            numbers.iter().map(|&value| number((value * 100.0).round() / 100.0)).collect();
        match numbers.as_slice() {
            [one] => row.metrics.insert("value".to_owned(), one.clone()),
            _ => row.metrics.insert("values".to_owned(), numbers.into()),
        };
        row
    };
    let of = machine.topology;
    let counts = [of.sockets, of.cores_per_socket, of.threads_per_core].map(|count| count as f64);
    let topology = row(
        "topology",
        "sockets, cores of each, threads of each core",
        &counts,
        counts.map(|count| count.to_string()).join(", "),
        known.as_ref().is_some_and(|known| known.topology == of),
        (Confidence::Published, if base == "kvm" { KVM } else { POSTER }),
    );
    let input = |input: &Input| {
        let value = input.value(machine);
        let same = known.as_ref().is_some_and(|known| input.value(known) == value);
        let source = if base == "kvm" { input.kvm } else { input.seed };
        row(input.name, input.about, &input.numbers(machine), value, same, source)
    };
    std::iter::once(topology).chain(ALL.iter().map(input)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed() -> Machine {
        Machine::load("seed").unwrap()
    }

    /// A number in the file that is missing in the table would be taken for a result.
    #[test]
    fn every_field_of_the_parameter_file_is_an_input() {
        for name in ["seed", "kvm"] {
            let mut machine = Machine::load(name).unwrap();
            machine.multicast.hybrid_threshold = None;
            let value: toml::Value = toml::from_str(&machine.text().unwrap()).unwrap();
            let lines = rows(&machine, name, "a file");
            for (section, fields) in value.as_table().unwrap() {
                let Some(fields) = fields.as_table().filter(|_| section != "topology") else { continue };
                for field in fields.keys() {
                    let name = format!("{section}.{field}");
                    assert!(
                        lines.iter().any(|line| line.contender == name),
                        "{name} is not in the table of inputs"
                    );
                }
            }
            assert_eq!(lines.len(), ALL.len() + 1);
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
        let of = |rows: &[Row], name: &str| {
            let row = rows.iter().find(|row| row.contender == name).unwrap();
            ["confidence", "source", "shown"].map(|field| row.params[field].as_str().unwrap().to_owned())
        };
        let given = |rows: &[Row]| rows.iter().filter(|row| row.params["confidence"] == "given").count();
        let lines = rows(&machine, "seed", "a file");
        assert_eq!(given(&lines), 0);
        assert_eq!(of(&lines, "noise.busy_sibling")[0], "assumed");
        let changed = ALL.iter().find(|input| input.name == "noise.busy_sibling").unwrap();
        let lines = rows(&changed.scaled(&machine, 2.0).unwrap(), "seed", "a file");
        assert_eq!(of(&lines, "noise.busy_sibling"), ["given", "a file", "1.7"]);
        assert_eq!(given(&lines), 1);
    }
}
