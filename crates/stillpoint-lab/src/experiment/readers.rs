//! The readers of a round: a thread for each, through the trait of the peers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::thread;

use stillpoint_harness::experiment::threads::StopOnDrop;
use stillpoint_harness::gate::{Gate, OpenOnDrop};
use stillpoint_harness::machine::cpus;
use stillpoint_harness::random::Random;
use stillpoint_peers::{ReadJob, ReadOutcome, Work};

/// Runs `work` beside readers, one on each of `cpus`, whose sections have `work_of_readers`, and ends the readers when `work` returns. `work` gets a function that
/// lets the readers begin, and returns whether all of them were started. The error says what went wrong with a reader.
pub(crate) fn beside_readers<R>(
    cpus: &[usize],
    seed: u64,
    work_of_readers: Option<&Work>,
    read: impl Fn(&ReadJob<'_>, &dyn Fn()) -> Result<ReadOutcome, String> + Sync,
    work: impl FnOnce(&dyn Fn() -> bool) -> R,
) -> (R, Result<Vec<ReadOutcome>, String>) {
    let (gate, stop) = (Gate::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        // The readers end only when they are told to. A panic of `work` tells them, too.
        let ending = (StopOnDrop(&stop), OpenOnDrop(&gate));
        let (mut readers, mut refused) = (Vec::with_capacity(cpus.len()), None);
        for (index, &cpu) in cpus.iter().enumerate() {
            let job = ReadJob { index, seed: reader_seed(seed, index), stop: &stop, work: work_of_readers };
            let (gate, body) = (&gate, &read);
            let thread = thread::Builder::new().name(format!("reader {index}"));
            match thread.spawn_scoped(scope, move || self::read(&job, cpu, gate, body)) {
                Ok(reader) => readers.push(reader),
                Err(error) => refused = Some(format!("cannot start reader {index}: {error}")),
            }
        }
        let ready = refused.is_none() && gate.gathered(readers.len());

        let done = work(&|| {
            gate.open();
            ready
        });
        drop(ending);
        let outcomes: Vec<Result<ReadOutcome, String>> = readers
            .into_iter()
            .map(|reader| reader.join().unwrap_or_else(|_| Err("a reader panicked".to_owned())))
            .collect();
        (done, refused.map_or_else(|| outcomes.into_iter().collect(), Err))
    })
}

/// Runs one reader on its CPU; it passes the gate when all readers have come to it.
fn read(
    job: &ReadJob<'_>,
    cpu: usize,
    gate: &Gate,
    read: impl Fn(&ReadJob<'_>, &dyn Fn()) -> Result<ReadOutcome, String>,
) -> Result<ReadOutcome, String> {
    let outcome = cpus::pin(cpu).and_then(|()| {
        catch_unwind(AssertUnwindSafe(|| read(job, &|| gate.pass())))
            .unwrap_or_else(|_| Err(format!("reader {} panicked", job.index)))
    });
    if outcome.is_err() {
        gate.fail();
    }
    outcome
}

/// Checks that no lookup has found a wrong element, and that all that was unlinked is freed. The error says why the round does not count.
pub(crate) fn check(outcomes: &[ReadOutcome], unlinked: usize, freed: usize) -> Result<(), String> {
    match outcomes.iter().map(|outcome| outcome.mismatches).sum::<u64>() {
        0 if freed == unlinked => Ok(()),
        0 => Err(format!("{unlinked} objects were unlinked and {freed} freed")),
        found => Err(format!("{found} lookups found an element that was freed under the reader")),
    }
}

/// The number of lookups of all readers.
pub(crate) fn lookups(outcomes: &[ReadOutcome]) -> f64 {
    outcomes.iter().map(|outcome| outcome.lookups).sum::<u64>() as f64
}

/// The state in which one reader's keys begin.
///
/// Mixed twice: a number that is drawn from the generator of the round is a state of it, so a reader that began there would follow the
/// writer, and the other readers, from key to key.
fn reader_seed(seed: u64, index: usize) -> u64 {
    Random::new(Random::new(seed).nth(index + 1)).draw()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use stillpoint_peers::Lookups;

    use super::*;

    #[test]
    fn no_reader_follows_another_one_or_the_writer() {
        const KEYS: usize = 4096;
        let stop = AtomicBool::new(false);
        let mut writer = Random::new(1);
        let mut seen: HashSet<u64> = (0..KEYS).map(|_| writer.draw()).collect();
        for index in 0..8 {
            let seed = reader_seed(1, index);
            let job = ReadJob { index, seed, stop: &stop, work: None };
            let mut lookups = Lookups::new(&job, 1 << 63);
            let keys = (0..KEYS).map(|_| lookups.index() as u64);
            // All bits of a key but the highest are in its index.
            let drawn = |key: u64| [key, key | 1 << 63];
            let met = keys.flat_map(drawn).filter(|key| !seen.insert(*key)).count();
            assert_eq!(met, 0, "reader {index}");
        }
    }
}

/// Contenders with a deliberate defect, to check that the rounds detect it.
#[cfg(test)]
pub(crate) mod defective {
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
        /// When the table is filled, so before the readers begin.
        WriterPanicsAtOnce,
        /// When the writer polls. It also has a call that waits for a grace period.
        WriterPanicsLater,
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

        fn has_synchronize(&self) -> bool {
            self.defect == Defect::WriterPanicsLater
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
            assert!(self.of.defect != Defect::WriterPanicsAtOnce, "as asked");
            let reused = self.of.defect == Defect::ReusesAtOnce && !self.unlinked.is_empty();
            let new = new.map(|new| match reused {
                true => Box::new(Element::new(index as u64 + 1, self.of.delays)),
                false => new,
            });
            self.unlinked.extend(self.of.slots.publish(index, new));
        }

        fn poll(&mut self) {
            assert!(self.of.defect != Defect::WriterPanicsLater, "as asked");
        }

        fn drain(&mut self) {
            let kept = usize::from(self.of.defect == Defect::Leaks);
            for element in self.unlinked.drain(kept..) {
                // SAFETY: unlinked, freed once, and no reader is left.
                unsafe { free_element(element) };
            }
        }
    }
}
