//! The work of the writer: the changes to the store, one after the other.
//!
//! The store is an index of slots, each empty or with one object. Only the writer changes it, so the model here knows what
//! each change unlinks.

use clap::ValueEnum;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stillpoint_harness::random::Random;
use stillpoint_peers::Element;

/// A workload, which is a scenario of the experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub(crate) enum Workload {
    /// A mail server's mix: messages are created, read, appended to and deleted.
    Mail,
    /// Objects of one size, updated in bursts at a set rate.
    Memory,
    /// The same without a pause.
    MemoryMax,
}

stillpoint_harness::named!(pub(crate) Workload);

/// The names of the workloads.
pub(crate) const SCENARIOS: &[&str] = &["mail", "memory", "memory-max"];

/// Half of them hold a message: about as many as Postmark's usual 20,000 files.
const MAIL_SLOTS: usize = 1 << 15;
const MEMORY_SLOTS: usize = 1 << 14;
/// Objects of the micro-benchmark have this many words of 8 bytes beside their header.
const MEMORY_WORDS: usize = 24;
/// A new message has from 256 bytes to 4 KiB, short ones more often than long ones.
const SHORTEST: usize = 32;
const DOUBLINGS: u64 = 4;
/// A message that has become longer than 8 KiB is replaced by a new one.
const LONGEST: usize = 1024;

/// What a workload asks for.
pub(crate) struct Spec {
    /// Slots of the index, a power of two.
    pub(crate) slots: usize,
    /// Changes that follow each other at once.
    pub(crate) burst: usize,
    /// Time between the beginnings of two bursts: 10,000 changes a second to mail, 50,000 to memory.
    pub(crate) interval: Duration,
    /// The fewest changes between two measured grace periods: at a set rate, a millisecond's, counted in changes so that a
    /// writer that was held up and catches up measures as many.
    pub(crate) changes_per_probe: usize,
    /// More changes a second than any machine completes.
    pub(crate) most_changes_per_s: usize,
}

impl Workload {
    pub(crate) fn spec(self) -> Spec {
        let (slots, burst, interval_us, changes_per_probe, most_changes_per_s) = match self {
            Self::Mail => (MAIL_SLOTS, 1, 100, 10, 10_000),
            Self::Memory => (MEMORY_SLOTS, 50, 1_000, 50, 50_000),
            Self::MemoryMax => (MEMORY_SLOTS, 100, 0, 1_000, 20_000_000),
        };
        let interval = Duration::from_micros(interval_us);
        Spec { slots, burst, interval, changes_per_probe, most_changes_per_s }
    }
}

/// A change of one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) slot: usize,
    /// Words of the new object's body; `None` to leave the slot empty.
    pub(crate) words: Option<usize>,
    /// Bytes of the object that this change unlinks, 0 if there is none.
    pub(crate) unlinked: usize,
}

/// The content of the store, and what the next changes are.
#[derive(Debug)]
pub(crate) struct Store {
    workload: Workload,
    random: Random,
    /// Words of the body of each slot's object.
    objects: Vec<Option<usize>>,
    filled: usize,
    live_bytes: usize,
}

impl Store {
    /// An empty store.
    pub(crate) fn new(workload: Workload, seed: u64) -> Self {
        Self {
            workload,
            random: Random::new(seed),
            objects: vec![None; workload.spec().slots],
            filled: 0,
            live_bytes: 0,
        }
    }

    /// Bytes of the objects that are linked.
    pub(crate) fn live_bytes(&self) -> usize {
        self.live_bytes
    }

    /// The changes that fill the store: every other slot with mail, all of them in the micro-benchmark.
    pub(crate) fn fill(&mut self) -> Vec<Change> {
        let step = if self.workload == Workload::Mail { 2 } else { 1 };
        (0..self.objects.len()).step_by(step).map(|slot| self.create(slot)).collect()
    }

    /// The next change. Half of the changes to mail are appends; the others create or delete, so that the number of messages
    /// stays about the same.
    pub(crate) fn next(&mut self) -> Change {
        let slot = self.random.draw() as usize % self.objects.len();
        if self.workload != Workload::Mail {
            return self.create(slot);
        }
        match self.random.draw() % 4 {
            0 | 1 => {
                let slot = self.nearest(slot, |object| object.is_some());
                self.append(slot)
            }
            _ if self.random.draw() as usize % self.objects.len() >= self.filled => {
                let slot = self.nearest(slot, |object| object.is_none());
                self.create(slot)
            }
            _ => {
                let slot = self.nearest(slot, |object| object.is_some());
                self.change(slot, None)
            }
        }
    }

    fn create(&mut self, slot: usize) -> Change {
        let words = if self.workload == Workload::Mail { self.length() } else { MEMORY_WORDS };
        self.change(slot, Some(words))
    }

    fn append(&mut self, slot: usize) -> Change {
        let longer = self.objects[slot].unwrap_or(0) + self.length() / 4;
        let words = if longer > LONGEST { self.length() } else { longer };
        self.change(slot, Some(words))
    }

    /// The words of a new message.
    fn length(&mut self) -> usize {
        let least = SHORTEST << (self.random.draw() % DOUBLINGS);
        least + self.random.draw() as usize % least
    }

    fn change(&mut self, slot: usize, words: Option<usize>) -> Change {
        let bytes = |object: Option<usize>| object.map_or(0, Element::bytes_with_body);
        let old = std::mem::replace(&mut self.objects[slot], words);
        self.filled = self.filled + usize::from(words.is_some()) - usize::from(old.is_some());
        self.live_bytes = self.live_bytes + bytes(words) - bytes(old);
        Change { slot, words, unlinked: bytes(old) }
    }

    /// The first slot of that kind from `slot` on; `slot` itself if there is none.
    fn nearest(&self, slot: usize, wanted: impl Fn(Option<usize>) -> bool) -> usize {
        let len = self.objects.len();
        (slot..slot + len).map(|at| at % len).find(|&at| wanted(self.objects[at])).unwrap_or(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_keeps_its_size_and_knows_what_it_unlinks() {
        let mut store = Store::new(Workload::Mail, 3);
        let (mut model, mut live) = (vec![0; MAIL_SLOTS], 0);
        let (mut appended, mut created, mut deleted) = (0, 0, 0);
        let mut follow = |change: Change| {
            assert_eq!(model[change.slot], change.unlinked);
            let bytes = change.words.map_or(0, Element::bytes_with_body);
            assert!(bytes <= Element::bytes_with_body(LONGEST));
            match (change.unlinked, bytes) {
                (0, _) => created += 1,
                (_, 0) => deleted += 1,
                _ => appended += 1,
            }
            model[change.slot] = bytes;
            live = live + bytes - change.unlinked;
        };
        for change in store.fill() {
            follow(change);
        }
        for _ in 0..20_000 {
            let change = store.next();
            follow(change);
        }
        assert_eq!(live, store.live_bytes());
        assert!((15_500..17_500).contains(&store.filled), "{} messages", store.filled);
        assert!((9_500..10_500).contains(&appended), "{appended} appended");
        assert!(created > 20_000 && deleted > 4_000, "{created} created, {deleted} deleted");
    }

    #[test]
    fn every_change_to_memory_replaces_an_object_of_the_same_size() {
        let mut store = Store::new(Workload::Memory, 3);
        assert_eq!(store.fill().len(), MEMORY_SLOTS);
        let live = store.live_bytes();
        for _ in 0..1_000 {
            let change = store.next();
            assert_eq!(change.unlinked, Element::bytes_with_body(MEMORY_WORDS));
        }
        assert_eq!(store.live_bytes(), live);
        let names: Vec<String> = Workload::value_variants().iter().map(|workload| workload.name()).collect();
        assert_eq!(names, SCENARIOS);
    }
}
