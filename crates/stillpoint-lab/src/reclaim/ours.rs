//! stillpoint's own contenders, through its public and safe interface alone.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use stillpoint::rcu::{BackgroundReclaimer, Domain, RcuArray, Reclaimer, Retired, Submitter};
use stillpoint_peers::{
    Contender, Delays, Element, Lookups, ReadJob, ReadOutcome, Writer, read_until_stopped,
};

/// Lookups under one guard in `stillpoint/guard32`.
const BURST: u32 = 32;

/// How the readers of a contender protect what they read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    Protected,
    Guard,
    GuardOfBurst,
    Qsbr,
}

/// All contenders, over one array of cells.
pub(crate) fn contenders(elements: usize, delays: &'static Delays) -> Vec<Box<dyn Contender>> {
    let field = Arc::new(Field::new(elements, delays));
    let polled = |name, note, reading| -> Box<dyn Contender> {
        Box::new(Polled { name, note, reading, field: Arc::clone(&field) })
    };
    vec![
        polled("stillpoint/protected", "a heavy fence for each delete", Reading::Protected),
        polled("stillpoint/guard", "a heavy fence for each delete", Reading::Guard),
        polled("stillpoint/guard32", "one guard for 32 lookups", Reading::GuardOfBurst),
        polled("stillpoint/qsbr", "", Reading::Qsbr),
        polled("stillpoint/qsbr+poll", "", Reading::Qsbr),
        Box::new(Background::new(&field)),
    ]
}

/// The array, and the domain that it belongs to. Contenders run one after the other, so that its readers are of
/// one kind at any time.
struct Field {
    domain: Domain,
    cells: RcuArray<Element>,
    delays: &'static Delays,
}

impl Field {
    fn new(elements: usize, delays: &'static Delays) -> Self {
        let domain = Domain::new();
        let cells = RcuArray::new(&domain, elements, |key| Some(Box::new(Element::new(key as u64, delays))));
        Self { domain, cells, delays }
    }

    /// Each loop is a function of its own, as each peer's is: loops that share one share its registers.
    fn read(&self, reading: Reading, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        match reading {
            Reading::Protected => self.read_protected(job, ready),
            Reading::Guard => self.read_guarded(job, ready),
            Reading::GuardOfBurst => self.read_bursts(job, ready),
            Reading::Qsbr => self.read_qsbr(job, ready),
        }
    }

    #[inline(never)]
    fn read_protected(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        let mut reader = self.domain.reader();
        let mut cells = self.cells.bind(&mut reader);
        ready();
        read_until_stopped(job, self.cells.len(), |index| {
            cells.protect(index).is_some_and(|element| element.holds(index as u64))
        })
    }

    #[inline(never)]
    fn read_guarded(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        let mut reader = self.domain.reader();
        let mut cells = self.cells.bind(&mut reader);
        ready();
        read_until_stopped(job, self.cells.len(), |index| {
            let guard = cells.pin();
            guard.load(index).is_some_and(|element| element.holds(index as u64))
        })
    }

    #[inline(never)]
    fn read_bursts(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        let mut reader = self.domain.reader();
        let mut cells = self.cells.bind(&mut reader);
        ready();
        let mut lookups = Lookups::new(job, self.cells.len());
        loop {
            let guard = cells.pin();
            for _ in 0..BURST {
                let Some(index) = lookups.next_index() else { return lookups.outcome() };
                lookups.count(guard.load(index).is_some_and(|element| element.holds(index as u64)));
            }
        }
    }

    #[inline(never)]
    fn read_qsbr(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        let mut reader = self.domain.qsbr_reader();
        let mut cells = self.cells.bind_qsbr(&mut reader);
        ready();
        read_until_stopped(job, self.cells.len(), |index| {
            let found = cells.load(index).is_some_and(|element| element.holds(index as u64));
            cells.quiescent();
            found
        })
    }

    /// Links a new element at `index` and returns the old one, stamped; `None` if the slot was empty.
    fn replace(&self, index: usize) -> Option<Retired<Element>> {
        let old = self.cells.swap(index, Some(Box::new(Element::new(index as u64, self.delays))))?;
        old.stamp_unlinked();
        Some(old)
    }
}

/// Contenders whose writer frees on its own calls, at each delete or while idle too.
struct Polled {
    name: &'static str,
    note: &'static str,
    reading: Reading,
    field: Arc<Field>,
}

impl Contender for Polled {
    fn name(&self) -> &'static str {
        self.name
    }

    fn note(&self) -> &'static str {
        self.note
    }

    fn read(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        self.field.read(self.reading, job, ready)
    }

    fn writer(&self) -> Box<dyn Writer + '_> {
        Box::new(PollingWriter { field: &self.field, reclaimer: self.field.domain.reclaimer() })
    }
}

struct PollingWriter<'a> {
    field: &'a Field,
    reclaimer: Reclaimer,
}

impl Writer for PollingWriter<'_> {
    fn replace(&mut self, index: usize) {
        let Some(mut old) = self.field.replace(index) else { return };
        // A full queue hands the object back; it empties as soon as a reader moves on.
        while let Err(error) = self.reclaimer.retire(old) {
            old = error.retired;
            self.reclaimer.poll();
            thread::yield_now();
        }
        self.reclaimer.poll();
    }

    fn poll(&mut self) {
        self.reclaimer.poll();
    }

    fn drain(&mut self) {
        while self.reclaimer.pending() > 0 {
            if self.reclaimer.poll() == 0 {
                thread::yield_now();
            }
        }
    }
}

/// The contender whose writer hands everything to a second thread.
struct Background {
    field: Arc<Field>,
    /// From the writer, which makes the reclaimer of its round, to the thread that runs it.
    hand_over: Sender<BackgroundReclaimer>,
    taken_over: Mutex<Receiver<BackgroundReclaimer>>,
}

impl Background {
    fn new(field: &Arc<Field>) -> Self {
        let (hand_over, taken_over) = channel();
        Self { field: Arc::clone(field), hand_over, taken_over: Mutex::new(taken_over) }
    }
}

impl Contender for Background {
    fn name(&self) -> &'static str {
        "stillpoint/qsbr+background"
    }

    fn note(&self) -> &'static str {
        "the second thread sleeps on a futex and shares the writer's CPU"
    }

    fn read(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        self.field.read(Reading::Qsbr, job, ready)
    }

    fn writer(&self) -> Box<dyn Writer + '_> {
        let reclaimer = self.field.domain.background();
        let submitter = reclaimer.submitter();
        // The receiver lives as long as the contender.
        let _ = self.hand_over.send(reclaimer);
        Box::new(SubmittingWriter { field: &self.field, submitter })
    }

    /// Ends when the writer's `drain` has stopped the reclaimer, which finishes its work first.
    fn background(&self, _stop: &AtomicBool) {
        let reclaimer = self.taken_over.lock().unwrap_or_else(PoisonError::into_inner).recv();
        if let Ok(mut reclaimer) = reclaimer {
            reclaimer.run();
        }
    }

    fn needs_background(&self) -> bool {
        true
    }
}

struct SubmittingWriter<'a> {
    field: &'a Field,
    submitter: Submitter,
}

impl Writer for SubmittingWriter<'_> {
    fn replace(&mut self, index: usize) {
        let Some(mut old) = self.field.replace(index) else { return };
        while let Err(error) = self.submitter.retire(old) {
            old = error.retired;
            thread::yield_now();
        }
    }

    fn poll(&mut self) {}

    fn drain(&mut self) {
        self.submitter.stop();
        while self.submitter.pending() > 0 {
            thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    /// Each contender reads, replaces and frees everything it replaced, twice in a row.
    #[test]
    fn every_contender_frees_all_that_it_replaced() {
        let delays: &'static Delays = Box::leak(Box::new(Delays::new(1000)));
        for contender in contenders(256, delays) {
            let mut lookups = 0;
            for _ in 0..3 {
                let (stop, stop_background) = (AtomicBool::new(false), AtomicBool::new(false));
                let (ready, is_ready) = channel();
                let outcome = thread::scope(|scope| {
                    let reader = scope.spawn({
                        let (contender, stop) = (&contender, &stop);
                        let ready = move || ready.send(()).unwrap();
                        move || contender.read(&ReadJob { index: 0, seed: 9, stop }, &ready)
                    });
                    if contender.needs_background() {
                        scope.spawn(|| contender.background(&stop_background));
                    }
                    is_ready.recv().unwrap();
                    let mut writer = contender.writer();
                    for index in 0..500 {
                        writer.replace(index & 255);
                        if index % 16 == 0 {
                            thread::yield_now();
                        }
                    }
                    // Relaxed: nothing is published with it.
                    stop.store(true, Ordering::Relaxed);
                    let outcome = reader.join().unwrap();
                    writer.drain();
                    outcome
                });
                assert_eq!(delays.freed(), 500, "{}", contender.name());
                assert_eq!(delays.take().len(), 500);
                assert_eq!(outcome.mismatches, 0, "{}", contender.name());
                lookups += outcome.lookups;
            }
            assert!(lookups > 0, "{} never read", contender.name());
        }
    }
}
