//! What the results were measured on.

pub(crate) mod cpus;
pub(crate) mod huge_pages;
pub(crate) mod load;
pub(crate) mod proc;
pub(crate) mod tsc;

use std::collections::BTreeMap;

use serde::Serialize;

/// The machine, as it goes into every JSON result and into the first line of every table.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Machine {
    pub(crate) model: String,
    pub(crate) arch: &'static str,
    pub(crate) kernel: String,
    pub(crate) cpus_online: Vec<usize>,
    pub(crate) cpus_allowed: Vec<usize>,
    pub(crate) numa_nodes: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) virtual_machine: bool,
    pub(crate) tsc_hz: Option<u64>,
    pub(crate) tsc_invariant: bool,
    /// How stillpoint's domains order their readers and writers here: `asymmetric` or `symmetric`.
    pub(crate) fence: String,
    /// Peers that were built in, with their versions.
    pub(crate) peers: BTreeMap<String, String>,
}

impl Machine {
    /// This machine; the peers are those that the program was built with.
    pub(crate) fn look(peers: BTreeMap<String, String>) -> Self {
        let uname = rustix::system::uname();
        let flags = proc::cpu_flags();
        let has = |flag: &str| flags.iter().any(|have| have == flag);
        Self {
            model: proc::cpu_model(),
            arch: std::env::consts::ARCH,
            kernel: format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy()),
            cpus_online: cpus::online(),
            cpus_allowed: cpus::allowed(),
            numa_nodes: proc::numa_nodes(),
            memory_bytes: proc::memory("MemTotal").unwrap_or(0),
            virtual_machine: has("hypervisor"),
            tsc_hz: tsc::frequency(),
            tsc_invariant: has("constant_tsc") && has("nonstop_tsc"),
            fence: fence_mode(),
            peers,
        }
    }

    /// One line for the head of a table.
    pub(crate) fn summary(&self) -> String {
        let mut line = format!(
            "{}, {} CPUs allowed ({}), {} GiB, {}",
            self.model,
            self.cpus_allowed.len(),
            cpus::format_list(&self.cpus_allowed),
            self.memory_bytes >> 30,
            self.kernel,
        );
        if self.virtual_machine {
            line += ", virtual machine";
        }
        if let Some(hz) = self.tsc_hz {
            line += &format!(", TSC {}", crate::output::format::hertz(hz));
        }
        line + &format!(", {} fences", self.fence)
    }
}

fn fence_mode() -> String {
    stillpoint::rcu::Domain::new().fence_mode().to_string().to_lowercase()
}
