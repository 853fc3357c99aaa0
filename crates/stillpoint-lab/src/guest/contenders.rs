//! The contenders in the guest: stillpoint's readers under both kinds of fences, beside the flavours of liburcu.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use stillpoint::fence::{self, Mode};
use stillpoint::rcu::Domain;
use stillpoint_peers::{Contender, Delays, Slots, catalogue};

use crate::experiment::{asked_for, names_and_groups};
use crate::peers::{group, has_array};
use crate::reclaim::names::Policy;
use crate::reclaim::ours;

/// The kind of fences that a contender has, as in `params.mode`.
pub(super) const ASYMMETRIC: &str = "asymmetric";
/// See [`ASYMMETRIC`].
pub(super) const SYMMETRIC: &str = "symmetric";
/// The readers have no fences.
pub(super) const NONE: &str = "none";

/// A contender, and the fences between its readers and its writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) mode: &'static str,
    /// How its writer waits until the next delete.
    pub(super) policy: Policy,
    /// Whether it takes part in mail and memory, whose writers sleep between two changes.
    pub(super) stores: Stores,
}

/// When a contender takes part in mail and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stores {
    /// In a short run too.
    Always,
    /// Unless the run is a short one.
    Usual,
    Never,
}

const fn entry(name: &'static str, mode: &'static str, policy: Policy, stores: Stores) -> Entry {
    Entry { name, mode, policy, stores }
}

/// The RCU of the guest's own kernel, the only contender under the load `kernel`.
pub(super) const KERNEL: &str = "linux/rcu";

/// All of them, in the order of the tables. QSBR readers have no fences, so our two rows of them are a control: they
/// differ only by the noise of the machine.
pub(super) const CONTENDERS: &[Entry] = &[
    entry("stillpoint/protected", ASYMMETRIC, Policy::Poll, Stores::Always),
    entry("stillpoint/protected", SYMMETRIC, Policy::Poll, Stores::Always),
    entry("stillpoint/guard", ASYMMETRIC, Policy::Poll, Stores::Usual),
    entry("stillpoint/guard", SYMMETRIC, Policy::Poll, Stores::Usual),
    entry("stillpoint/qsbr+poll", ASYMMETRIC, Policy::Poll, Stores::Never),
    entry("stillpoint/qsbr+poll", SYMMETRIC, Policy::Poll, Stores::Never),
    entry("liburcu/memb", ASYMMETRIC, Policy::Background, Stores::Always),
    entry("liburcu/mb", SYMMETRIC, Policy::Background, Stores::Usual),
    entry("liburcu/qsbr", NONE, Policy::Background, Stores::Usual),
];

/// The values that `--contenders` takes here.
pub(crate) fn names() -> Vec<&'static str> {
    names_and_groups(CONTENDERS.iter().map(|entry| entry.name).chain([KERNEL]))
}

/// Those of mail and memory that were asked for and are here; fewer in a `short` run.
pub(super) fn of_stores(asked: &[String], short: bool) -> Vec<&'static Entry> {
    let wanted = |entry: &&Entry| match entry.stores {
        Stores::Always => true,
        Stores::Usual => !short,
        Stores::Never => false,
    };
    let is_here = |entry: &&Entry| group(entry.name) == "stillpoint" || has_array(entry.name);
    CONTENDERS
        .iter()
        .filter(|entry| wanted(entry) && is_here(entry) && asked_for(entry.name, asked))
        .collect()
}

/// A contender that is ready to run.
pub(super) struct Subject {
    pub(super) entry: &'static Entry,
    /// Kept until the machine is switched off: nothing is learnt from freeing the elements.
    pub(super) contender: ManuallyDrop<Box<dyn Contender>>,
    /// The domain of our own contenders.
    domain: Option<Domain>,
}

impl Subject {
    /// Waits until no reader holds anything that was unlinked before. Protected loads hold only single objects: for them,
    /// waits until every later scan sees what they hold.
    pub(super) fn wait_for_readers(&self) -> Result<(), String> {
        match &self.domain {
            Some(domain) => domain.synchronize().map_err(|error| error.to_string()),
            None => {
                self.contender.synchronize();
                Ok(())
            }
        }
    }

    /// Runs only the writer's fence, for the contenders that offer it separately.
    pub(super) fn fence(&self) -> Option<fn() -> Result<(), String>> {
        match self.entry.mode {
            _ if self.entry.name != "stillpoint/protected" => None,
            ASYMMETRIC => Some(|| fence::heavy().map_err(|error| error.to_string())),
            _ => Some(|| {
                // SeqCst: what `Mode::Symmetric` issues; here it orders nothing.
                std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
                Ok(())
            }),
        }
    }
}

/// Makes the contenders asked for, for up to `readers` readers, over arrays of `elements`.
pub(super) fn make(
    asked: &[String],
    elements: usize,
    readers: usize,
    delays: &'static Delays,
) -> Result<Vec<Subject>, String> {
    let wanted = |entry: &&Entry| asked_for(entry.name, asked);
    let mut subjects = Vec::new();
    for (mode, of_mode) in [(Mode::Asymmetric, ASYMMETRIC), (Mode::Symmetric, SYMMETRIC)] {
        let domain = Domain::builder().fence(mode).build().map_err(|error| error.to_string())?;
        let of = |contender: &str| {
            let same = |entry: &&Entry| entry.name == contender && entry.mode == of_mode;
            CONTENDERS.iter().filter(wanted).find(same)
        };
        for (name, contender) in
            ours::contenders_of(&domain, elements, delays, |contender| of(contender).is_some())
        {
            if let Some(entry) = of(name) {
                let (contender, domain) = (ManuallyDrop::new(contender), Some(domain.clone()));
                subjects.push(Subject { entry, contender, domain });
            }
        }
    }
    let slots = Arc::new(Slots::new(elements, delays));
    for peer in catalogue() {
        let Some(entry) = CONTENDERS.iter().filter(wanted).find(|entry| entry.name == peer.name) else {
            continue;
        };
        let contender = ManuallyDrop::new(peer.make(&slots, readers));
        subjects.push(Subject { entry, contender, domain: None });
    }
    subjects.sort_by_key(|subject| CONTENDERS.iter().position(|entry| entry == subject.entry));
    Ok(subjects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_be_asked_for_and_are_those_of_reclaim() {
        let names = names();
        for entry in CONTENDERS {
            assert!(names.contains(&entry.name), "{}", entry.name);
            let policy = crate::reclaim::names::CONTENDERS
                .iter()
                .find(|other| other.name == entry.name)
                .map(|other| other.policy);
            assert_eq!(policy, Some(entry.policy), "{}", entry.name);
        }
        assert!(
            names.contains(&"liburcu")
                && names.contains(&KERNEL)
                && !names.iter().any(|name| name.starts_with("dpdk"))
        );
    }

    #[test]
    fn each_is_made_once_and_waits_with_nobody_there() {
        let delays: &'static Delays = Box::leak(Box::new(Delays::new(16)));
        let subjects = make(&[], 256, 1, delays).unwrap();
        let present: Vec<&Entry> = CONTENDERS
            .iter()
            .filter(|entry| entry.name.starts_with("stillpoint") || crate::peers::is_built_in(entry.name))
            .collect();
        assert_eq!(subjects.iter().map(|subject| subject.entry).collect::<Vec<_>>(), present);
        for subject in &subjects {
            assert!(
                subject.domain.is_some() || subject.contender.has_synchronize(),
                "{}",
                subject.entry.name
            );
            subject.wait_for_readers().unwrap();
            if let Some(fence) = subject.fence() {
                fence().unwrap();
            }
        }
        assert_eq!(subjects.iter().filter(|subject| subject.fence().is_some()).count(), 2);
        let guards = make(&["stillpoint/guard".to_owned()], 256, 1, delays).unwrap();
        assert_eq!(
            guards.iter().map(|subject| subject.entry.mode).collect::<Vec<_>>(),
            [ASYMMETRIC, SYMMETRIC]
        );
    }
}
