//! Where the CPUs are, and how far they are from each other.

use super::machine::{ByDistance, Topology};

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
