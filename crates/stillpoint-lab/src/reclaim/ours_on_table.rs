//! stillpoint's own contenders on its hash table, through its public and safe interface alone.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use stillpoint::rcu::{BackgroundReclaimer, Domain, Help, Submitter};
use stillpoint::table::{Removed, Table};
use stillpoint_peers::{
    Contender, Delays, Element, Lookups, ReadJob, ReadOutcome, Work, Writer, read_sections,
    read_until_stopped,
};

use super::ours::{BACKGROUND, BURST, CONTENDERS, Reading, help_of, helping};

/// The contenders that are wanted. Those that share a way to help share a table.
pub(super) fn contenders(
    elements: usize,
    delays: &'static Delays,
    wanted: impl Fn(&str) -> bool,
) -> Vec<Box<dyn Contender>> {
    let mut fields: Vec<(Help, Arc<Field>)> = Vec::new();
    let mut field = |help| match fields.iter().find(|(of, _)| *of == help) {
        Some((_, field)) => Arc::clone(field),
        None => {
            let field = Arc::new(Field::new(helping(help), elements, delays));
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

/// The table, and the domain that it belongs to.
struct Field {
    domain: Domain,
    table: Table<u64, Element>,
    elements: usize,
    delays: &'static Delays,
}

/// A key that is removed for the moment is no mismatch.
fn is_right(element: Option<&Element>, index: usize) -> bool {
    element.is_none_or(|element| element.holds(index as u64))
}

impl Field {
    fn new(domain: Domain, elements: usize, delays: &'static Delays) -> Self {
        let table = Table::with_capacity(&domain, elements);
        let field = Self { domain, table, elements, delays };
        (0..elements).for_each(|index| field.insert(index));
        field
    }

    fn insert(&self, index: usize) {
        self.link(index, Element::new(index as u64, self.delays));
    }

    /// The slot of a removed element may still be in use: the table takes another one then.
    fn link(&self, index: usize, element: Element) {
        let old = self.table.insert(index as u64, element);
        assert!(old.is_ok(), "there is no memory for an element");
    }

    /// Removes an element, and stamps it.
    fn remove(&self, index: usize) -> Option<Removed<'_, u64, Element>> {
        let old = self.table.remove(&(index as u64))?;
        old.stamp_unlinked();
        Some(old)
    }

    /// Each loop is a function of its own, as for the array.
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
        let mut table = self.table.reader(&mut reader);
        ready();
        read_until_stopped(job, self.elements, |index| is_right(table.get(&(index as u64)).as_deref(), index))
    }

    #[inline(never)]
    fn read_guarded(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        let mut reader = self.domain.reader();
        let mut table = self.table.reader(&mut reader);
        ready();
        read_until_stopped(job, self.elements, |index| is_right(table.pin().get(&(index as u64)), index))
    }

    #[inline(never)]
    fn read_bursts(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        let mut reader = self.domain.reader();
        let mut table = self.table.reader(&mut reader);
        ready();
        let mut lookups = Lookups::new(job, self.elements);
        loop {
            let guard = table.pin();
            for _ in 0..BURST {
                let Some(index) = lookups.next_index() else { return lookups.outcome() };
                lookups.count(is_right(guard.get(&(index as u64)), index));
            }
        }
    }

    #[inline(never)]
    fn read_qsbr(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        let mut reader = self.domain.qsbr_reader();
        ready();
        read_until_stopped(job, self.elements, |index| {
            let right = is_right(self.table.get_in(&reader, &(index as u64)), index);
            reader.quiescent();
            right
        })
    }
}

impl Field {
    /// The same readers in sections that hold `work`.
    fn read_sections(
        &self,
        reading: Reading,
        job: &ReadJob<'_>,
        work: &Work,
        ready: &dyn Fn(),
    ) -> ReadOutcome {
        if reading == Reading::Qsbr {
            let mut reader = self.domain.qsbr_reader();
            ready();
            let mut lookups = Lookups::new(job, self.elements);
            let mut next = Some(lookups.index());
            while let Some(index) = next {
                lookups.count(work.inside(self.table.get_in(&reader, &(index as u64)), index));
                reader.quiescent();
                if work.has_rest() {
                    reader.offline(|| work.rest());
                }
                next = lookups.next_index();
            }
            return lookups.outcome();
        }
        let mut reader = self.domain.reader();
        let mut table = self.table.reader(&mut reader);
        ready();
        if reading == Reading::Protected {
            read_sections(job, work, self.elements, |index| {
                let element = table.get(&(index as u64));
                work.inside(element.as_deref(), index)
            })
        } else {
            read_sections(job, work, self.elements, |index| {
                let guard = table.pin();
                work.inside(guard.get(&(index as u64)), index)
            })
        }
    }
}

/// Contenders whose table frees on the writer's calls.
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
        Box::new(PollingWriter(&self.field))
    }
}

struct PollingWriter<'a>(&'a Field);

impl Writer for PollingWriter<'_> {
    fn replace(&mut self, index: usize) {
        drop(self.0.remove(index));
        self.0.insert(index);
    }

    fn publish(&mut self, index: usize, new: Option<Box<Element>>) {
        drop(self.0.remove(index));
        if let Some(new) = new {
            self.0.link(index, *new);
        }
    }

    fn poll(&mut self) {
        self.0.table.poll();
    }

    fn drain(&mut self) {
        while self.0.table.pending() > 0 {
            if self.0.table.poll() == 0 {
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
    fn remove(&self, index: usize) {
        let mut rest = self.field.remove(index);
        while let Some(old) = rest {
            rest = old.submit_to(&self.submitter).err();
            if rest.is_some() {
                thread::yield_now();
            }
        }
    }
}

impl Writer for SubmittingWriter<'_> {
    fn replace(&mut self, index: usize) {
        self.remove(index);
        self.field.insert(index);
    }

    fn publish(&mut self, index: usize, new: Option<Box<Element>>) {
        self.remove(index);
        if let Some(new) = new {
            self.field.link(index, *new);
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
