//! Contenders with a deliberate defect, to check that the rounds detect it.

use std::sync::atomic::Ordering;
use std::thread;

use stillpoint_peers::{
    Contender, Delays, Element, ReadJob, ReadOutcome, Slots, Writer, free_element, read_loop,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defect {
    None,
    Leaks,
    SeesFreedElements,
    /// The memory of an element is reused for another one while readers can still reach it.
    ReusesAtOnce,
    ReaderPanicsAtOnce,
    ReaderPanicsLater,
}

/// A contender that frees what was unlinked when its readers have left, with one defect.
pub(crate) struct Defective {
    slots: Slots,
    delays: &'static Delays,
    defect: Defect,
}

impl Defective {
    /// With an element in every slot.
    pub(crate) fn full(slots: usize, delays: &'static Delays, defect: Defect) -> Self {
        Self { slots: Slots::new(slots, delays), delays, defect }
    }

    pub(crate) fn empty(slots: usize, delays: &'static Delays, defect: Defect) -> Self {
        Self { slots: Slots::empty(slots, delays), delays, defect }
    }
}

impl Contender for Defective {
    fn name(&self) -> &'static str {
        "defective"
    }

    fn read(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        assert!(self.defect != Defect::ReaderPanicsAtOnce, "as asked");
        ready();
        if job.work.is_some() && matches!(self.defect, Defect::None | Defect::ReusesAtOnce) {
            let slots = self.slots.as_slice();
            return read_loop!(job, slots.len(), missing: false, |index, found| {
                // Acquire pairs with the swap in `Slots::publish`.
                let element = slots[index].load(Ordering::Acquire);
                // SAFETY: null, or an element that only `drain` frees, when no reader is left.
                found(unsafe { element.as_ref() })
            });
        }
        while !job.stop.load(Ordering::Relaxed) {
            assert!(self.defect != Defect::ReaderPanicsLater, "as asked");
            thread::yield_now();
        }
        ReadOutcome { lookups: 1, mismatches: u64::from(self.defect == Defect::SeesFreedElements) }
    }

    fn writer(&self) -> Box<dyn Writer + '_> {
        Box::new(DefectiveWriter { of: self, unlinked: Vec::new() })
    }
}

struct DefectiveWriter<'a> {
    of: &'a Defective,
    unlinked: Vec<*mut Element>,
}

impl Writer for DefectiveWriter<'_> {
    fn replace(&mut self, index: usize) {
        self.unlinked.push(self.of.slots.replace(index));
    }

    fn publish(&mut self, index: usize, new: Option<Box<Element>>) {
        let reused = self.of.defect == Defect::ReusesAtOnce && !self.unlinked.is_empty();
        let new = new.map(|new| match reused {
            true => Box::new(Element::new(index as u64 + 1, self.of.delays)),
            false => new,
        });
        self.unlinked.extend(self.of.slots.publish(index, new));
    }

    fn poll(&mut self) {}

    fn drain(&mut self) {
        let kept = usize::from(self.of.defect == Defect::Leaks);
        for element in self.unlinked.drain(kept..) {
            // SAFETY: unlinked, freed once, and no reader is left.
            unsafe { free_element(element) };
        }
    }
}
