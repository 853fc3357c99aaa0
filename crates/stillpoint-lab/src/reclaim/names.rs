//! The stable names of scenarios and contenders, and how each contender waits for its readers.

use clap::ValueEnum;

/// Each reader on a CPU of its own, the writer on another one: the talk's figure A.
pub(crate) const OWN_CORE: &str = "own-core";
/// All readers on one CPU, the writer on another one: figure B.
pub(crate) const ONE_CORE: &str = "one-core";
/// The readers spread over several CPUs, the writer on the last of them: figure C.
pub(crate) const SPREAD: &str = "spread";

/// A reader, and on its CPU one that sleeps in its sections: in the same group, or in another one.
pub(crate) const GROUPS: &str = "groups";

/// The names of all scenarios.
pub(crate) const SCENARIOS: &[&str] = &[OWN_CORE, ONE_CORE, SPREAD, GROUPS];

/// Our contender whose readers protect single entries.
pub(crate) const PROTECTED: &str = "stillpoint/protected";

/// How the writer spends the time until the next delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// It sleeps, and frees what is ready at each delete.
    Delete,
    /// It frees what is ready, repeatedly.
    Poll,
    /// It sleeps, and a second thread frees.
    Background,
}

stillpoint_harness::named!(pub(crate) Policy);

/// When a contender takes part in a short run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quick {
    /// In every scenario.
    Always,
    /// Only in `own-core`, where nothing is preempted.
    OwnCore,
    /// Only in `one-core`, where most readers are preempted.
    OneCore,
    Never,
}

/// A contender of the experiment.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) policy: Policy,
    pub(crate) quick: Quick,
}

pub(crate) const fn entry(name: &'static str, policy: Policy, quick: Quick) -> Entry {
    Entry { name, policy, quick }
}

/// All contenders, in the order of the tables. A short run has only those with a bar.
pub(crate) const CONTENDERS: &[Entry] = &[
    entry(PROTECTED, Policy::Poll, Quick::Always),
    entry("stillpoint/get", Policy::Poll, Quick::Always),
    entry("stillpoint/guard", Policy::Poll, Quick::OwnCore),
    entry("stillpoint/guard+boost", Policy::Poll, Quick::Always),
    entry("stillpoint/guard+migrate", Policy::Poll, Quick::OneCore),
    entry("stillpoint/qsbr", Policy::Delete, Quick::OwnCore),
    entry("stillpoint/qsbr+poll", Policy::Poll, Quick::OwnCore),
    entry("stillpoint/qsbr+background", Policy::Background, Quick::OwnCore),
    entry("liburcu/qsbr", Policy::Background, Quick::Always),
    entry("liburcu/qsbr+sync", Policy::Background, Quick::Always),
    entry("liburcu/qsbr+rt", Policy::Background, Quick::Never),
    entry("liburcu/memb", Policy::Background, Quick::Never),
    entry("liburcu/mb", Policy::Background, Quick::Never),
    entry("dpdk/rcu", Policy::Delete, Quick::Always),
    entry("dpdk/rcu+poll", Policy::Poll, Quick::Always),
    entry("dpdk/rcu+background", Policy::Background, Quick::Always),
    entry("ck/epoch", Policy::Poll, Quick::Never),
    entry("crossbeam-epoch", Policy::Poll, Quick::Never),
    entry("seize", Policy::Poll, Quick::Never),
    entry("haphazard", Policy::Poll, Quick::Always),
    entry("papaya", Policy::Poll, Quick::Always),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for (at, entry) in CONTENDERS.iter().enumerate() {
            assert!(CONTENDERS[at + 1..].iter().all(|other| other.name != entry.name), "{}", entry.name);
        }
    }
}
