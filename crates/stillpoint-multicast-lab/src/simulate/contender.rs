//! Ways to interrupt every receiver, by name.

use stillpoint_multicast::{Share, Strategy};

use super::machine::{Machine, Rcu};
use super::operation::Way;

/// A way to interrupt every receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contender {
    /// Its name in tables and rows.
    pub(crate) name: &'static str,
    /// What it does, in one line.
    pub(super) about: &'static str,
    spread: Spread,
    /// All initiators queue for the mutex of Linux's system call.
    pub(super) mutex: bool,
    /// All initiators send to the receivers in the same order.
    pub(super) same_order: bool,
    /// Receivers count down one shared counter.
    pub(super) shared_counter: bool,
    /// Every receiver is interrupted, even if an interrupt is already on its way to it.
    every: bool,
    /// Receivers flush translations: the call is mprotect.
    pub(super) flushes: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spread {
    Flat,
    Cluster,
    Tree,
    Split,
    Hybrid,
}

const fn plain(name: &'static str, spread: Spread, about: &'static str) -> Contender {
    Contender {
        name,
        about,
        spread,
        mutex: false,
        same_order: false,
        shared_counter: false,
        every: false,
        flushes: false,
    }
}

/// The contender that has a threshold.
pub(super) const HYBRID: &str = "hybrid";

/// All of them, in the order of the tables.
pub(crate) const CONTENDERS: &[Contender] = &[
    plain("flat", Spread::Flat, "the kernel's smp_call_function_many(), one interrupt after the other"),
    Contender {
        mutex: true,
        ..plain(
            "flat+mutex",
            Spread::Flat,
            "the same under one mutex for the whole machine: Linux since 2024",
        )
    },
    Contender {
        every: true,
        ..plain(
            "flat+every",
            Spread::Flat,
            "flat, with an interrupt even to a CPU that already has one on its way",
        )
    },
    plain(
        "cluster",
        Spread::Cluster,
        "the kernel's call, with one interrupt command for each cluster of CPUs",
    ),
    plain("tree", Spread::Tree, "binomial tree, each initiator in its own order"),
    Contender { mutex: true, ..plain("tree+mutex", Spread::Tree, "the same under the mutex") },
    Contender {
        same_order: true,
        ..plain(
            "tree+same-order",
            Spread::Tree,
            "all initiators in the same order: they share the inner nodes",
        )
    },
    Contender {
        shared_counter: true,
        ..plain("tree+flat-ack", Spread::Tree, "acknowledgements by one shared counter")
    },
    plain(
        "split",
        Spread::Split,
        "tree in which each message delegates less than half: the share is in the machine's file",
    ),
    plain(HYBRID, Spread::Hybrid, "flat for few receivers, the tree for many"),
    Contender {
        mutex: true,
        flushes: true,
        ..plain(
            "mprotect",
            Spread::Flat,
            "mprotect: flat, with a flush in place of the barrier, under the lock of the address space",
        )
    },
    Contender {
        mutex: true,
        flushes: true,
        ..plain("mprotect+tree", Spread::Tree, "mprotect as it would be along a tree")
    },
];

/// The names, for the command line.
pub(crate) fn names() -> Vec<&'static str> {
    CONTENDERS.iter().map(|contender| contender.name).collect()
}

/// The contender of this name.
pub(super) fn find(name: &str) -> Option<Contender> {
    CONTENDERS.iter().copied().find(|contender| contender.name == name)
}

impl Contender {
    /// The machine, with fixed values for the inputs that do not affect operations of this contender.
    pub(super) fn seen(&self, machine: &Machine) -> Machine {
        let mut seen = machine.clone();
        seen.rcu = Rcu { barriers_per_grace_period: 1, interrupted: 0.0, displaced: 0.0 };
        if !self.mutex {
            seen.nanoseconds.mutex_handover = 0.0;
        }
        match self.flushes {
            true => seen.nanoseconds.barrier = 0.0,
            false => (seen.nanoseconds.flush, seen.nanoseconds.mprotect) = (0.0, 0.0),
        }
        if self.spread != Spread::Cluster {
            (seen.nanoseconds.interrupt_each, seen.multicast.cluster) = (0.0, 1);
        }
        if self.spread != Spread::Split {
            seen.multicast.split_percent = 50;
        }
        seen
    }

    /// How it spreads to that many receivers on this machine.
    pub(super) fn way(&self, machine: &Machine, receivers: usize) -> Way {
        let kernel = |cluster| Way::Kernel { cluster, every: self.every };
        let tree = |strategy| Way::Tree { strategy, shared_counter: self.shared_counter };
        let threshold = machine.multicast.hybrid_threshold.unwrap_or(0);
        match self.spread {
            Spread::Flat => kernel(1),
            Spread::Cluster => kernel(machine.multicast.cluster),
            Spread::Tree => tree(Strategy::Tree),
            // The share is valid: the file was checked.
            Spread::Split => {
                tree(Share::percent(machine.multicast.split_percent).map_or(Strategy::Tree, Strategy::Split))
            }
            Spread::Hybrid => match Strategy::Hybrid(threshold).resolve(receivers as u32) {
                Strategy::Flat => kernel(1),
                strategy => tree(strategy),
            },
        }
    }
}
