//! seize: readers enter a collector; each retired batch counts the readers that were inside.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use seize::{Collector, Guard, reclaim};

use super::{RETIRED_TOGETHER, exchange};
use crate::contender::{Retire, Retiring};
use crate::{Contender, Element, Entry, Micro, ReadJob, ReadOutcome, Slots, Writer, read_loop};

const NAME: &str = "seize";

pub(crate) const ENTRY: Entry =
    Entry { name: NAME, peer: NAME, make: |slots, _| Box::new(Seize::new(slots)) };

struct Seize {
    slots: Arc<Slots>,
    collector: Collector,
}

impl Seize {
    fn new(slots: &Arc<Slots>) -> Self {
        Self { slots: Arc::clone(slots), collector: Collector::new() }
    }
}

impl Contender for Seize {
    fn read(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        ready();
        let slots = self.slots.as_slice();
        read_loop!(job, slots.len(), missing: false, |index, found| {
            let guard = self.collector.enter();
            // Acquire pairs with the release half of the swap in `Slots::publish`.
            let element = guard.protect(&slots[index], Ordering::Acquire);
            // SAFETY: `element` is null or was loaded under the guard; unlinked elements are freed only through this collector.
            found(unsafe { element.as_ref() })
        })
    }

    fn writer(&self) -> Box<dyn Writer + '_> {
        Box::new(Retiring(SeizeWriter(self)))
    }
}

struct SeizeWriter<'a>(&'a Seize);

impl Retire for SeizeWriter<'_> {
    fn slots(&self) -> &Slots {
        &self.0.slots
    }

    fn retire(&mut self, old: *mut Element) {
        // SAFETY: `old` came from a `Box`, is unlinked, and this thread does not read it any more.
        unsafe { self.0.collector.retire(old, reclaim::boxed) };
    }

    /// Flushes the batch. If no reader is inside, dropping the guard that flushed it frees it.
    fn poll(&mut self) {
        self.0.collector.enter().flush();
    }
}

pub(crate) const MICRO: &[Micro] = &[
    Micro {
        contender: NAME,
        operation: "pin",
        run: |iterations| {
            let collector = Collector::new();
            for _ in 0..iterations {
                drop(collector.enter());
            }
        },
    },
    Micro {
        contender: NAME,
        operation: "retire",
        run: |iterations| {
            let collector = Collector::new().batch_size(RETIRED_TOGETHER);
            // SAFETY: the objects come from boxes, and each was unlinked just now, once.
            exchange(iterations, |old| unsafe { collector.retire(old, reclaim::boxed) });
        },
    },
];
