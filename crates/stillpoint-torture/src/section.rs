//! Which region sections are going on: what the promises of tokens are checked against.
//!
//! A reader numbers its sections and publishes the number *after* it has begun one and *before* it ends one: odd
//! while it is inside for certain. Whoever starts a grace period takes note of the sections it sees, and when the
//! library says that the grace period is over, none of them may still be going on.

use std::sync::atomic::{AtomicU64, Ordering};

use super::arena::Context;

/// The sections of one domain, one slot a thread.
#[derive(Debug)]
pub(crate) struct Sections(Box<[Slot]>);

/// A slot in a line of its own: a reader's store must not wait for another reader's.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot(AtomicU64);

impl Sections {
    pub(crate) fn new(slots: usize) -> Self {
        Self((0..slots).map(|_| Slot::default()).collect())
    }

    /// The thread of this slot has begun a section.
    pub(crate) fn begin(&self, slot: usize) {
        self.step(slot);
    }

    /// The thread of this slot is about to end its section.
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
        // Relaxed: the thread reads what it wrote itself. Release: pairs with the acquire load in `now`: the
        // section had begun before whoever sees its number started its token.
        number.store(number.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// The sections that are going on. To be taken before the grace period is started.
    pub(crate) fn now(&self) -> Snapshot {
        let inside = self.0.iter().enumerate().filter_map(|(slot, Slot(number))| {
            // Acquire: pairs with the release in `step`.
            let number = number.load(Ordering::Acquire);
            (number % 2 == 1).then_some((slot, number))
        });
        Snapshot(inside.collect())
    }
}

/// Sections that were going on at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot(Vec<(usize, u64)>);

impl Snapshot {
    /// Checks that all of them have ended. `what` is said to be over.
    pub(crate) fn verify(&self, sections: &Sections, context: &Context, what: &str) {
        for &(slot, number) in &self.0 {
            // Relaxed: the reader's store before its section ended happens before whatever tells of the end.
            if sections.0[slot].0.load(Ordering::Relaxed) == number {
                context.findings.add(|| {
                    format!("{what} was over although section {number} of thread {slot}, which began before, was not")
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
