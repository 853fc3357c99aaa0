//! The open sections of region readers, to check the promises of tokens.
//!
//! A reader numbers its sections, and publishes the number *after* it has begun a section and *before* it ends it: the number is
//! odd while it is certainly inside. A thread that starts a grace period notes the open sections. When the library says that the
//! grace period is over, all of them must have ended.

use std::sync::atomic::{AtomicU64, Ordering};

use super::arena::Context;

/// The sections of one domain, one slot for each thread.
#[derive(Debug)]
pub(crate) struct Sections(Box<[Slot]>);

/// A slot in its own cache line: a reader's store must not wait for another reader's.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot(AtomicU64);

impl Sections {
    pub(crate) fn new(slots: usize) -> Self {
        Self((0..slots).map(|_| Slot::default()).collect())
    }

    /// Notes that the thread of this slot has begun a section.
    pub(crate) fn begin(&self, slot: usize) {
        self.step(slot);
    }

    /// Notes that the thread of this slot is about to end its section.
    pub(crate) fn end(&self, slot: usize) {
        self.step(slot);
    }

    /// Whether the thread of this slot is inside a section.
    pub(crate) fn is_inside(&self, slot: usize) -> bool {
        // Relaxed: for statistics.
        self.0[slot].0.load(Ordering::Relaxed) % 2 == 1
    }

    fn step(&self, slot: usize) {
        let Slot(number) = &self.0[slot];
        // Relaxed: the thread reads its own store. Release: pairs with the acquire load in `now`: the section began before a
        // thread that sees its number started its token.
        number.store(number.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// The open sections. Take them before you start the grace period.
    pub(crate) fn now(&self) -> Snapshot {
        let inside = self.0.iter().enumerate().filter_map(|(slot, Slot(number))| {
            // Acquire: pairs with the release in `step`.
            let number = number.load(Ordering::Acquire);
            (number % 2 == 1).then_some((slot, number))
        });
        Snapshot(inside.collect())
    }
}

/// The sections that were open at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot(Vec<(usize, u64)>);

impl Snapshot {
    /// Checks that all of them have ended. `what` names what claims to be over, for the finding.
    pub(crate) fn verify(&self, sections: &Sections, context: &Context, what: &str) {
        for &(slot, number) in &self.0 {
            // Relaxed: the reader's store before the end of its section happens before the claim that the grace period is over.
            if sections.0[slot].0.load(Ordering::Relaxed) == number {
                context.findings.add(|| {
                    format!("{what} was over although section {number} of thread {slot}, which began before it, had not ended")
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings::Findings;
    use super::*;

    #[test]
    fn a_section_that_goes_on_is_found() {
        let (sections, context) = (Sections::new(2), Context::leak(1, Findings::leak()));
        sections.begin(1);
        let snapshot = sections.now();
        snapshot.verify(&sections, context, "token");
        assert_eq!(context.findings.number(), 1);
        assert!(context.findings.texts()[0].contains("token was over although section 1 of thread 1"));
    }

    #[test]
    fn sections_that_ended_or_began_later_are_not() {
        let (sections, context) = (Sections::new(2), Context::leak(1, Findings::leak()));
        sections.begin(0);
        let snapshot = sections.now();
        sections.end(0);
        sections.begin(0);
        sections.begin(1);
        snapshot.verify(&sections, context, "token");
        assert!(!context.findings.any());
    }
}
