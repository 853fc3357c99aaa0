//! Ways to interrupt every receiver, by name.

use stillpoint_multicast::{Share, Strategy};

use super::machine::{Machine, Rcu};
use super::operation::{EVERYBODY, Way};

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
    /// One command for everybody, if the receivers are all other CPUs; else flat.
    Shorthand,
    Tree,
    Split,
    Hybrid,
}

/// The contender that has a threshold.
pub(super) const HYBRID: &str = "hybrid";

/// `name: spread [what is true of it], "what it does"`
macro_rules! contenders {
    ($($name:tt: $spread:ident [$($flag:ident)*], $about:literal;)*) => {
        &[$({
            #[allow(unused_mut, reason = "most flags of most contenders are false")]
            let mut contender = Contender {
                name: $name,
                about: $about,
                spread: Spread::$spread,
                mutex: false,
                same_order: false,
                shared_counter: false,
                every: false,
                flushes: false,
            };
            $(contender.$flag = true;)*
            contender
        },)*]
    };
}

/// All of them, in the order of the tables.
pub(crate) const CONTENDERS: &[Contender] = contenders! {
    "flat": Flat [], "the kernel's smp_call_function_many(), one interrupt after the other: before Linux 5.4, and to a part of the CPUs";
    "flat+mutex": Flat [mutex], "the same under one mutex for the whole machine, as Linux has since 2024";
    "flat+every": Flat [every], "flat, with an interrupt even to a CPU that already has one on its way";
    "cluster": Cluster [], "the kernel's call, with one interrupt command for each cluster of CPUs";
    "shorthand": Shorthand [], "the kernel's call since Linux 5.4: one interrupt command if it is for all other CPUs";
    "tree": Tree [], "binomial tree, each initiator in its own order";
    "tree+mutex": Tree [mutex], "the same under the mutex";
    "tree+same-order": Tree [same_order], "all initiators in the same order: they share the inner nodes";
    "tree+flat-ack": Tree [shared_counter], "acknowledgements by one shared counter";
    "split": Split [], "tree in which each message delegates less than half: the share is in the machine's file";
    HYBRID: Hybrid [], "flat for few receivers, the tree for many";
    "mprotect": Flat [mutex flushes],
        "mprotect: flat, with a flush in place of the barrier, under the lock of the address space";
    "mprotect+tree": Tree [mutex flushes], "mprotect as it would be along a tree";
};

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
            seen.multicast.cluster = 1;
        }
        if ![Spread::Cluster, Spread::Shorthand].contains(&self.spread) {
            seen.nanoseconds.interrupt_each = 0.0;
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
            Spread::Shorthand if receivers + 1 == machine.cpus() => kernel(EVERYBODY),
            Spread::Shorthand => kernel(1),
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
