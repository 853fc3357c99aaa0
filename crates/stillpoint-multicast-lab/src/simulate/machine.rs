//! The machine that is simulated, as a checked parameter file; where its CPUs are, and how far they are from each other.

use std::fmt::Display;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use stillpoint_harness::error::Stop;

use super::inputs;

/// The machines that come with the program, by name.
pub(super) const BUILT_IN: &[(&str, &str)] =
    &[("seed", include_str!("machines/seed.toml")), ("kvm", include_str!("machines/kvm.toml"))];

/// More CPUs than this are taken for a mistake.
pub(super) const MOST_CPUS: usize = 4096;
/// The longest name: names go to the terminal and into figures.
const LONGEST_NAME: usize = 100;

/// A machine, and how it multicasts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Machine {
    pub(super) name: String,
    pub(super) topology: Topology,
    pub(super) nanoseconds: Times,
    pub(super) noise: Noise,
    pub(super) multicast: Multicast,
    pub(super) rcu: Rcu,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Topology {
    pub(super) sockets: usize,
    pub(super) cores_per_socket: usize,
    pub(super) threads_per_core: usize,
}

/// A time on the same core, on the same socket, and between sockets.
pub(super) type ByDistance = [f64; 3];

/// What each step takes, in nanoseconds. `machines/seed.toml` explains the steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Times {
    pub(super) system_call: f64,
    pub(super) scan_per_cpu: f64,
    pub(super) push: ByDistance,
    pub(super) interrupt_send: f64,
    pub(super) interrupt_each: f64,
    pub(super) interrupt_flight: ByDistance,
    pub(super) interrupt_enter: f64,
    pub(super) interrupt_exit: f64,
    pub(super) barrier: f64,
    pub(super) flush: f64,
    pub(super) mprotect: f64,
    pub(super) atomic: ByDistance,
    pub(super) read: ByDistance,
    pub(super) mutex_handover: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Noise {
    pub(super) jitter: f64,
    pub(super) busy_sibling: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Multicast {
    pub(super) cluster: usize,
    pub(super) split_percent: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) hybrid_threshold: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rcu {
    pub(super) barriers_per_grace_period: u32,
    pub(super) interrupted: f64,
    pub(super) displaced: f64,
}

impl Machine {
    /// A machine that comes with the program, or one from a file.
    ///
    /// # Errors
    /// If the file cannot be read, or one of its fields is not valid. The message names the file and the field.
    pub(super) fn load(name: &str) -> Result<Self, Stop> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Self::parse(text)
                .map_err(|reason| Stop::Failed(format!("cannot use the machine {name}: {reason}")));
        }
        let known: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
        let text = fs::read_to_string(Path::new(name)).map_err(|error| {
            Stop::usage(format!(
                "cannot read {name}: {error}; --machine takes {} or a parameter file",
                known.join(", ")
            ))
        })?;
        Self::parse(&text).map_err(|reason| Stop::usage(format!("cannot use {name} as a machine: {reason}")))
    }

    /// Reads and checks a parameter file; the error is a line that names the field.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let machine: Self = toml::from_str(text).map_err(|error| {
            let reason = error.message().trim().replace('\n', " ");
            match error.span() {
                Some(span) => {
                    let line = text[..span.start].matches('\n').count();
                    let source = text.lines().nth(line).unwrap_or_default().trim();
                    format!("line {}, '{source}': {reason}", line + 1)
                }
                None => reason,
            }
        })?;
        machine.check()?;
        Ok(machine)
    }

    /// The parameter file of this machine.
    pub(super) fn text(&self) -> Result<String, Stop> {
        toml::to_string(self)
            .map_err(|error| Stop::Failed(format!("the machine cannot be written as TOML: {error}")))
    }

    /// Logical CPUs.
    pub(super) fn cpus(&self) -> usize {
        let Topology { sockets, cores_per_socket, threads_per_core } = self.topology;
        sockets * cores_per_socket * threads_per_core
    }

    /// The same machine without noise: its times follow only from the parameters.
    pub(super) fn noiseless(&self) -> Self {
        Self { noise: Noise { jitter: 0.0, ..self.noise }, ..self.clone() }
    }

    /// Refuses invalid values; the error names the field.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.name.chars().any(char::is_control) || self.name.chars().count() > LONGEST_NAME {
            return Err(format!(
                "name must be at most {LONGEST_NAME} characters, none of them a control character"
            ));
        }
        let Topology { sockets, cores_per_socket, threads_per_core } = self.topology;
        within("topology.sockets", sockets, 1, MOST_CPUS)?;
        within("topology.cores_per_socket", cores_per_socket, 1, MOST_CPUS)?;
        within("topology.threads_per_core", threads_per_core, 1, 16)?;
        // The product cannot overflow: each factor is at most 4096.
        within("topology", self.cpus(), 2, MOST_CPUS).map_err(|reason| format!("{reason} CPUs in all"))?;
        if let Some(threshold) = self.multicast.hybrid_threshold {
            within("multicast.hybrid_threshold", threshold, 0, MOST_CPUS as u32)?;
        }
        inputs::check(self)
    }
}

/// Refuses values outside the range, and NaN.
pub(super) fn within<T: PartialOrd + Display>(
    field: &str,
    value: T,
    least: T,
    most: T,
) -> Result<(), String> {
    if value >= least && value <= most {
        Ok(())
    } else {
        Err(format!("{field} is {value}; it must be from {least} to {most}"))
    }
}

/// How far two CPUs are apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Distance {
    Core,
    Socket,
    Remote,
}

impl Distance {
    /// The time at this distance.
    pub(super) fn of(self, times: ByDistance) -> f64 {
        times[self as usize]
    }
}

/// The place of each CPU, in the order of Linux: the first threads of all cores, socket by socket, then the second ones.
#[derive(Debug, Clone)]
pub(super) struct Places {
    topology: Topology,
    /// The core and the socket of each CPU, stored because every event needs them.
    of: Vec<(u16, u16)>,
}

impl Places {
    pub(super) fn new(topology: Topology) -> Self {
        let cores = topology.sockets * topology.cores_per_socket;
        // No machine has more than 4,096 CPUs.
        let of = |cpu: usize| ((cpu % cores) as u16, (cpu % cores / topology.cores_per_socket) as u16);
        Self { topology, of: (0..cores * topology.threads_per_core).map(of).collect() }
    }

    fn cores(&self) -> usize {
        self.topology.sockets * self.topology.cores_per_socket
    }

    /// The core, numbered through all sockets.
    fn core(&self, cpu: usize) -> usize {
        self.of[cpu].0.into()
    }

    fn socket(&self, cpu: usize) -> usize {
        self.of[cpu].1.into()
    }

    /// The position in an order in which neighbours are side by side.
    pub(super) fn neighbourhood(&self, cpu: usize) -> (usize, usize) {
        (self.core(cpu), cpu / self.cores())
    }

    pub(super) fn distance(&self, a: usize, b: usize) -> Distance {
        if self.socket(a) != self.socket(b) {
            Distance::Remote
        } else if self.core(a) == self.core(b) {
            Distance::Core
        } else {
            Distance::Socket
        }
    }

    /// The other threads of the CPU's core.
    pub(super) fn siblings(&self, cpu: usize) -> impl Iterator<Item = usize> {
        let (core, cores) = (self.core(cpu), self.cores());
        (0..self.topology.threads_per_core)
            .map(move |thread| thread * cores + core)
            .filter(move |&c| c != cpu)
    }

    /// The cluster of this CPU: the CPUs that one command reaches, if clusters have `size` CPUs.
    pub(super) fn cluster(&self, cpu: usize, size: usize) -> (usize, usize) {
        let in_socket = self.core(cpu) % self.topology.cores_per_socket;
        let thread = cpu / self.cores();
        (self.socket(cpu), (in_socket * self.topology.threads_per_core + thread) / size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed() -> &'static str {
        BUILT_IN[0].1
    }

    #[test]
    fn the_machines_of_the_program_are_sound() {
        for (name, _) in BUILT_IN {
            Machine::load(name).unwrap_or_else(|stop| panic!("{name}: {stop}"));
        }
        assert_eq!(Machine::load("seed").unwrap().cpus(), 144);
    }

    #[test]
    fn a_machine_that_is_written_can_be_read_again() {
        let machine = Machine::load("kvm").unwrap();
        assert_eq!(Machine::parse(&machine.text().unwrap()), Ok(machine));
    }

    #[test]
    fn nonsense_is_refused_and_the_field_is_named() {
        let refused = |from: &str, to: &str, parts: &[&str]| {
            assert!(seed().contains(from), "'{from}' is not in the file");
            let reason = Machine::parse(&seed().replacen(from, to, 1)).unwrap_err();
            for part in parts {
                assert!(reason.contains(part), "'{part}' is not in: {reason}");
            }
            assert!(!reason.contains('\n'), "{reason:?}");
        };
        refused("sockets = 4", "sockets = 0", &["topology.sockets is 0", "from 1"]);
        refused("sockets = 4", "sockets = -4", &["line 6", "sockets = -4"]);
        refused("sockets = 4", "sockets = 4096", &["topology is 147456", "4096 CPUs in all"]);
        refused("sockets = 4", "", &["missing field `sockets`"]);
        refused("sockets = 4", "sockets = 4\nrings = 2", &["rings", "unknown field"]);
        refused("system_call = 200", "system_call = \"fast\"", &["line 11", "system_call = \"fast\""]);
        refused("system_call = 200", "system_call = nan", &["nanoseconds.system_call is NaN"]);
        refused("system_call = 200", "system_call = -1", &["nanoseconds.system_call is -1"]);
        refused("system_call = 200", "system_call = inf", &["nanoseconds.system_call is inf"]);
        refused("push = [40, 110, 230]", "push = [40, 110]", &["push = [40, 110]"]);
        refused("push = [40, 110, 230]", "push = [40, 110, -2]", &["nanoseconds.push is -2"]);
        for field in ["interrupt_send = 150", "interrupt_enter = 350"] {
            let name = field.split(' ').next().unwrap();
            refused(field, &format!("{name} = 0"), &[&format!("nanoseconds.{name} is 0"), "from 1"]);
        }
        refused(
            "flight = [500, 700, 1000]",
            "flight = [500, 0, 1000]",
            &["nanoseconds.interrupt_flight is 0"],
        );
        refused("name = \"4 sockets", "name = \"\\u001b[31m", &["name must be", "control character"]);
        refused("name = \"4 sockets", &format!("name = \"{}", "x".repeat(100)), &["at most 100"]);
        refused("jitter = 0.10", "jitter = 1.5", &["noise.jitter is 1.5"]);
        refused("busy_sibling = 1.35", "busy_sibling = 0.5", &["noise.busy_sibling is 0.5"]);
        refused("split_percent = 30", "split_percent = 100", &["multicast.split_percent is 100"]);
        refused(
            "split_percent = 30",
            "split_percent = 30\nhybrid_threshold = 9999",
            &["multicast.hybrid_threshold is 9999"],
        );
        refused(
            "barriers_per_grace_period = 2",
            "barriers_per_grace_period = 0",
            &["rcu.barriers_per_grace"],
        );
        refused("[rcu]", "[rcu", &["line "]);
        assert!(Machine::parse("").unwrap_err().contains("missing field `name`"));
    }

    #[test]
    fn a_file_that_is_not_there_is_named_with_what_would_do() {
        let message = Machine::load("/nonexistent.toml").unwrap_err().to_string();
        assert!(message.contains("/nonexistent.toml") && message.contains("seed, kvm"), "{message}");
    }

    const SEED: Topology = Topology { sockets: 4, cores_per_socket: 18, threads_per_core: 2 };

    #[test]
    fn cpus_are_numbered_as_linux_does() {
        let places = Places::new(SEED);
        assert_eq!(places.distance(0, 72), Distance::Core);
        assert_eq!(places.distance(0, 17), Distance::Socket);
        assert_eq!(places.distance(0, 18), Distance::Remote);
        assert_eq!(places.distance(71, 143), Distance::Core);
        assert_eq!(places.siblings(5).collect::<Vec<_>>(), [77]);
    }

    #[test]
    fn a_cluster_holds_neighbours_of_one_socket_and_no_more_than_its_size() {
        let places = Places::new(SEED);
        for cpu in 0..144 {
            let together = |other: &usize| places.cluster(*other, 16) == places.cluster(cpu, 16);
            let members: Vec<usize> = (0..144).filter(together).collect();
            assert!(members.len() <= 16);
            assert!(members.iter().all(|&other| places.socket(other) == places.socket(cpu)));
        }
        assert_eq!(places.cluster(0, 16), places.cluster(72, 16), "threads of one core");
    }
}
