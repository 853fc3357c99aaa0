//! papaya's table, whose entries are freed by seize.

use foldhash::quality::RandomState;
use papaya::{Guard, HashMap, ResizeMode};

use crate::{Contender, Element, ReadJob, ReadOutcome, Recipe, Writer, read_loop};

pub(super) const NAME: &str = "papaya";

pub(super) struct Papaya {
    map: HashMap<u64, Element, RandomState>,
    elements: usize,
    recipe: Recipe,
}

impl Papaya {
    pub(super) fn new(elements: usize, recipe: Recipe) -> Self {
        let hasher = RandomState::default();
        // A resize that is not finished keeps removed entries. A large table with half of its room free does not resize during a run.
        let map =
            HashMap::builder().capacity(elements).hasher(hasher).resize_mode(ResizeMode::Blocking).build();
        let pinned = map.pin();
        for key in 0..elements as u64 {
            pinned.insert(key, recipe.element(key));
        }
        drop(pinned);
        Self { map, elements, recipe }
    }
}

impl Contender for Papaya {
    fn read(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        ready();
        read_loop!(job, self.elements, missing: true, |index, found| found(self.map.pin().get(&(index as u64))))
    }

    fn writer(&self) -> Box<dyn Writer + '_> {
        Box::new(PapayaWriter(self))
    }
}

struct PapayaWriter<'a>(&'a Papaya);

impl Writer for PapayaWriter<'_> {
    fn replace(&mut self, index: usize) {
        let new = self.0.recipe.element(index as u64);
        self.publish(index, Some(Box::new(new)));
    }

    fn publish(&mut self, index: usize, new: Option<Box<Element>>) {
        let pinned = self.0.map.pin();
        if let Some(old) = pinned.remove(&(index as u64)) {
            old.stamp_unlinked();
        }
        if let Some(new) = new {
            pinned.insert(index as u64, *new);
        }
    }

    fn poll(&mut self) {
        self.0.map.guard().flush();
    }

    /// Flushes the batch. Since no reader is inside, dropping the guard that flushed it frees it.
    fn drain(&mut self) {
        self.poll();
    }
}

impl Drop for PapayaWriter<'_> {
    fn drop(&mut self) {
        self.drain();
    }
}
