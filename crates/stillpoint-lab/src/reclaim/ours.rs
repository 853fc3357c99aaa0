//! stillpoint's own contenders, through its public and safe interface alone.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use stillpoint::rcu::{
    BackgroundReclaimer, BuildError, Domain, Help, RcuArray, Reclaimer, Retired, Submitter,
};
use stillpoint_peers::{
    Contender, Delays, Element, Lookups, ReadJob, ReadOutcome, Work, Writer, read_sections,
    read_until_stopped,
};

/// Lookups under one guard in `stillpoint/guard32`.
pub(super) const BURST: u32 = 32;

/// How the readers of a contender protect what they read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    Protected,
    Guard,
    GuardOfBurst,
    Qsbr,
}

/// How the domain of a contender helps preempted readers, by its name.
pub(super) fn help_of(name: &str) -> Help {
    match name {
        "stillpoint/guard+help" => Help::Realtime,
        "stillpoint/guard+migrate" => Help::Migrate,
        _ => Help::Off,
    }
}

/// Why this process cannot run the contender, if it cannot.
pub(crate) fn refusal(name: &str) -> Option<BuildError> {
    Domain::builder().help(help_of(name)).build().err()
}

/// The contenders that are wanted, with an element in each cell. Those that share a way to help share an array of
/// cells.
pub(crate) fn contenders(
    elements: usize,
    delays: &'static Delays,
    wanted: impl Fn(&str) -> bool,
) -> Vec<Box<dyn Contender>> {
    over(elements, |key| Some(Box::new(Element::new(key as u64, delays))), delays, helping, wanted)
}

/// The contenders that are wanted, with an element in each cell, and all of them in this domain.
pub(crate) fn contenders_of(
    domain: &Domain,
    elements: usize,
    delays: &'static Delays,
    wanted: impl Fn(&str) -> bool,
) -> Vec<Box<dyn Contender>> {
    let element = |key| Some(Box::new(Element::new(key as u64, delays)));
    over(elements, element, delays, |_| domain.clone(), wanted)
}

/// The contender of this name, over an array of empty cells; `None` if there is no such name.
pub(crate) fn alone(name: &str, cells: usize, delays: &'static Delays) -> Option<Box<dyn Contender>> {
    over(cells, |_| None, delays, helping, |of| of == name).pop()
}

const FENCES: &str = "a heavy fence for each delete";
/// Names, notes, and how they read.
pub(super) const CONTENDERS: [(&str, &str, Reading); 8] = [
    ("stillpoint/protected", FENCES, Reading::Protected),
    ("stillpoint/guard", FENCES, Reading::Guard),
    ("stillpoint/guard+help", "raises preempted readers to a real-time priority", Reading::Guard),
    ("stillpoint/guard+migrate", "moves preempted readers to the writer's CPU", Reading::Guard),
    ("stillpoint/guard32", "one guard for 32 lookups", Reading::GuardOfBurst),
    ("stillpoint/qsbr", "", Reading::Qsbr),
    ("stillpoint/qsbr+poll", "", Reading::Qsbr),
    (BACKGROUND, "", Reading::Qsbr),
];

fn over(
    cells: usize,
    element: impl Fn(usize) -> Option<Box<Element>>,
    delays: &'static Delays,
    domain: impl Fn(Help) -> Domain,
    wanted: impl Fn(&str) -> bool,
) -> Vec<Box<dyn Contender>> {
    let mut fields: Vec<(Help, Arc<Field>)> = Vec::new();
    let mut field = |help| match fields.iter().find(|(of, _)| *of == help) {
        Some((_, field)) => Arc::clone(field),
        None => {
            let field = Arc::new(Field::new(domain(help), cells, &element, delays));
            fields.push((help, Arc::clone(&field)));
            field
        }
    };
    let make = |(name, note, reading)| -> Box<dyn Contender> {
        let field = field(help_of(name));
        match name {
            BACKGROUND => Box::new(Background::new(field)),
            _ => Box::new(Polled { name, note, reading, field }),
        }
    };
    CONTENDERS.into_iter().filter(|(name, _, _)| wanted(name)).map(make).collect()
}

/// A domain that helps in this way.
///
/// # Panics
/// If this process may not: see [`refusal`].
pub(super) fn helping(help: Help) -> Domain {
    Domain::builder().help(help).build().expect("the plan leaves out what is refused")
}

/// Number of arrays that the contenders among `names` need.
pub(crate) fn arrays<'n>(names: impl Iterator<Item = &'n str>) -> usize {
    let mut helps: Vec<Help> = Vec::new();
    for help in names.filter(|name| name.starts_with("stillpoint/")).map(help_of) {
        if !helps.contains(&help) {
            helps.push(help);
        }
    }
    helps.len()
}

pub(super) const BACKGROUND: &str = "stillpoint/qsbr+background";

/// The array, and the domain that it belongs to. Contenders run one after the other, so that its readers are of
/// one kind at any time.
struct Field {
    domain: Domain,
    cells: RcuArray<Element>,
    delays: &'static Delays,
}

impl Field {
    fn new(
        domain: Domain,
        cells: usize,
        element: impl Fn(usize) -> Option<Box<Element>>,
        delays: &'static Delays,
    ) -> Self {
        let cells = RcuArray::new(&domain, cells, element);
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

    /// The same readers in sections that hold `work`. A burst of sections under one guard would be one section: there
    /// is a guard for each here.
    fn read_sections(
        &self,
        reading: Reading,
        job: &ReadJob<'_>,
        work: &Work,
        ready: &dyn Fn(),
    ) -> ReadOutcome {
        let len = self.cells.len();
        if reading == Reading::Qsbr {
            let mut reader = self.domain.qsbr_reader();
            let mut cells = self.cells.bind_qsbr(&mut reader);
            ready();
            let mut lookups = Lookups::new(job, len);
            let mut next = Some(lookups.index());
            while let Some(index) = next {
                lookups.count(work.inside(cells.load(index), index));
                cells.quiescent();
                if work.has_rest() {
                    cells.offline(|| work.rest());
                }
                next = lookups.next_index();
            }
            return lookups.outcome();
        }
        let mut reader = self.domain.reader();
        let mut cells = self.cells.bind(&mut reader);
        ready();
        if reading == Reading::Protected {
            read_sections(job, work, len, |index| {
                let element = cells.protect(index);
                work.inside(element.as_deref(), index)
            })
        } else {
            read_sections(job, work, len, |index| {
                let guard = cells.pin();
                work.inside(guard.load(index), index)
            })
        }
    }

    fn replace(&self, index: usize) -> Option<Retired<Element>> {
        self.publish(index, Some(Box::new(Element::new(index as u64, self.delays))))
    }

    /// Links `new` at `index` and returns what was there, stamped; `None` if the slot was empty.
    fn publish(&self, index: usize, new: Option<Box<Element>>) -> Option<Retired<Element>> {
        let old = self.cells.swap(index, new)?;
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

    fn read_sections(&self, job: &ReadJob<'_>, work: &Work, ready: &dyn Fn()) -> ReadOutcome {
        self.field.read_sections(self.reading, job, work, ready)
    }

    fn writer(&self) -> Box<dyn Writer + '_> {
        // Without a limit, as the peers are.
        let reclaimer = self.field.domain.reclaimer_builder().capacity(usize::MAX).build();
        Box::new(PollingWriter { field: &self.field, reclaimer })
    }
}

struct PollingWriter<'a> {
    field: &'a Field,
    reclaimer: Reclaimer,
}

impl PollingWriter<'_> {
    fn retire(&mut self, old: Retired<Element>) {
        self.reclaimer.retire(old).expect("a queue without a limit takes what is of its domain");
    }
}

impl Writer for PollingWriter<'_> {
    fn replace(&mut self, index: usize) {
        if let Some(old) = self.field.replace(index) {
            self.retire(old);
            self.reclaimer.poll();
        }
    }

    fn publish(&mut self, index: usize, new: Option<Box<Element>>) {
        if let Some(old) = self.field.publish(index, new) {
            self.retire(old);
        }
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
    fn new(field: Arc<Field>) -> Self {
        let (hand_over, taken_over) = channel();
        Self { field, hand_over, taken_over: Mutex::new(taken_over) }
    }
}

impl Contender for Background {
    fn name(&self) -> &'static str {
        BACKGROUND
    }

    fn note(&self) -> &'static str {
        "the second thread sleeps on a futex and shares the writer's CPU"
    }

    fn read(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        self.field.read(Reading::Qsbr, job, ready)
    }

    fn read_sections(&self, job: &ReadJob<'_>, work: &Work, ready: &dyn Fn()) -> ReadOutcome {
        self.field.read_sections(Reading::Qsbr, job, work, ready)
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

impl SubmittingWriter<'_> {
    fn retire(&mut self, mut old: Retired<Element>) {
        while let Err(error) = self.submitter.retire(old) {
            old = error.retired;
            thread::yield_now();
        }
    }
}

impl Writer for SubmittingWriter<'_> {
    fn replace(&mut self, index: usize) {
        if let Some(old) = self.field.replace(index) {
            self.retire(old);
        }
    }

    fn publish(&mut self, index: usize, new: Option<Box<Element>>) {
        if let Some(old) = self.field.publish(index, new) {
            self.retire(old);
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

    #[test]
    fn every_contender_frees_all_that_it_replaced() {
        let delays: &'static Delays = Box::leak(Box::new(Delays::new(1000)));
        check(contenders(256, delays, |name| refusal(name).is_none()), delays);
        let on_table = super::super::ours_on_table::contenders(256, delays, |name| refusal(name).is_none());
        check(on_table, delays);
    }

    /// Each contender reads, replaces and frees everything it replaced, three times in a row.
    fn check(contenders: Vec<Box<dyn Contender>>, delays: &'static Delays) {
        for contender in contenders {
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
