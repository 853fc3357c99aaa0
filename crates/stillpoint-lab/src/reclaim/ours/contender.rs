//! The contenders over any structure of elements.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use stillpoint::rcu::{BackgroundReclaimer, Boost, Domain, RetireHandle};
use stillpoint_peers::{Contender, Element, Named, ReadJob, ReadOutcome, Writer};

use super::{BACKGROUND, CONTENDERS, Reading, boost_of};

/// A structure of elements, and the domain that it belongs to. Contenders run one after the other, so all its readers are
/// of the same kind at any time.
pub(super) trait Field: Send + Sync + 'static {
    fn domain(&self) -> &Domain;

    /// Looks up elements. Each loop is a separate function, as each peer's is: loops in one function would share registers.
    fn read(&self, reading: Reading, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        match reading {
            Reading::Protected => self.read_protected(job, ready),
            Reading::Unbound => self.read_unbound(job, ready),
            Reading::Guard => self.read_guarded(job, ready),
            Reading::Qsbr => self.read_qsbr(job, ready),
        }
    }

    fn read_protected(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome;
    fn read_unbound(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome;
    fn read_guarded(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome;
    fn read_qsbr(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome;

    /// A writer that frees on its own calls.
    fn polling(&self) -> Box<dyn Writer + '_>;

    /// [`Writer::replace`] for a writer that hands everything to a second thread.
    fn submit_replaced(&self, index: usize, handle: &RetireHandle);

    /// [`Writer::publish`] for such a writer.
    fn submit_published(&self, index: usize, new: Option<Box<Element>>, handle: &RetireHandle);
}

/// The contenders that are wanted. Those that boost in the same way share a structure.
pub(super) fn over<F: Field>(make: impl Fn(Boost) -> F, wanted: impl Fn(&str) -> bool) -> Vec<Named> {
    let mut fields: Vec<(Boost, Arc<F>)> = Vec::new();
    let mut field = |boost| match fields.iter().find(|(of, _)| *of == boost) {
        Some((_, field)) => Arc::clone(field),
        None => {
            let field = Arc::new(make(boost));
            fields.push((boost, Arc::clone(&field)));
            field
        }
    };
    let contender = |(name, reading)| -> Named {
        let (hand_over, taken_over) = channel();
        let field = field(boost_of(name));
        let (in_background, taken_over) = (name == BACKGROUND, Mutex::new(taken_over));
        (name, Box::new(Ours { in_background, reading, field, hand_over, taken_over }))
    };
    CONTENDERS.into_iter().filter(|(name, _)| wanted(name)).map(contender).collect()
}

/// A contender whose writer frees on its own thread, at each delete or also while idle, or hands everything to a second thread.
struct Ours<F> {
    in_background: bool,
    reading: Reading,
    field: Arc<F>,
    /// Carries the reclaimer of a round from the writer, which makes it, to the thread that runs it.
    hand_over: Sender<BackgroundReclaimer>,
    taken_over: Mutex<Receiver<BackgroundReclaimer>>,
}

impl<F: Field> Contender for Ours<F> {
    fn read(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        self.field.read(self.reading, job, ready)
    }

    fn heavy_fences(&self) -> Option<u64> {
        Some(self.field.domain().stats().heavy_fences)
    }

    fn writer(&self) -> Box<dyn Writer + '_> {
        if !self.needs_background() {
            return self.field.polling();
        }
        let reclaimer = self.field.domain().background();
        let handle = reclaimer.retire_handle();
        // The receiver lives as long as the contender.
        let _ = self.hand_over.send(reclaimer);
        Box::new(SubmittingWriter { field: &*self.field, handle })
    }

    /// Ends when the writer's `drain` has stopped the reclaimer, which finishes its work first.
    fn background(&self, _stop: &AtomicBool) {
        let taken_over = self.taken_over.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut reclaimer) = self.needs_background().then(|| taken_over.recv().ok()).flatten() {
            reclaimer.run();
        }
    }

    fn needs_background(&self) -> bool {
        self.in_background
    }
}

/// A writer that hands everything to a second thread.
struct SubmittingWriter<'a, F> {
    field: &'a F,
    handle: RetireHandle,
}

impl<F: Field> Writer for SubmittingWriter<'_, F> {
    fn replace(&mut self, index: usize) {
        self.field.submit_replaced(index, &self.handle);
    }

    fn publish(&mut self, index: usize, new: Option<Box<Element>>) {
        self.field.submit_published(index, new, &self.handle);
    }

    fn poll(&mut self) {}

    /// Ends the second thread, and waits until it has freed everything.
    fn drain(&mut self) {
        self.handle.stop();
        while self.handle.pending() > 0 {
            thread::yield_now();
        }
    }
}
