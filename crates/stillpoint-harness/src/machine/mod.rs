//! The machine that the results were measured on.

pub mod cpus;
pub mod huge_pages;
pub mod load;
pub mod proc;
pub mod tsc;

use std::collections::BTreeMap;

use serde::Serialize;

/// The machine, as it goes into every JSON result and into the first line of every table.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// The processor.
    pub model: String,
    /// The architecture, by Rust's name.
    pub arch: &'static str,
    /// The kernel's name and release.
    pub kernel: String,
    /// CPUs that are online.
    pub cpus_online: Vec<usize>,
    /// CPUs that this process may run on.
    pub cpus_allowed: Vec<usize>,
    /// The number of NUMA nodes.
    pub numa_nodes: usize,
    /// The total memory.
    pub memory_bytes: u64,
    /// Whether it is a virtual machine, by the processor's flags.
    pub virtual_machine: bool,
    /// Ticks a second of the time stamp counter.
    pub tsc_hz: Option<u64>,
    /// Whether the counter has the same rate in all states of the processor.
    pub tsc_invariant: bool,
    /// How stillpoint's domains order their readers and writers here: `asymmetric` or `symmetric`.
    pub fence: String,
    /// Peers that were built in, with their versions.
    pub peers: BTreeMap<String, String>,
}

impl Machine {
    /// This machine, with the peers that the program was built with.
    pub fn look(peers: BTreeMap<String, String>) -> Self {
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

    /// One line to print above a table.
    pub fn summary(&self) -> String {
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
