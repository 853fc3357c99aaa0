//! seize: readers enter a collector; each retired batch counts the readers that were inside.

use std::hint::black_box;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use seize::{Collector, Guard, reclaim};

use super::{Object, RETIRED_TOGETHER};
use crate::{
    Contender, Element, Entry, Micro, ReadJob, ReadOutcome, Slots, Work, Writer, read_sections,
    read_until_stopped,
};

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
    fn name(&self) -> &'static str {
        NAME
    }

    fn read(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        ready();
        let slots = self.slots.as_slice();
        read_until_stopped(job, slots.len(), |index| {
            let guard = self.collector.enter();
            // Acquire pairs with the release half of the swap in `Slots::replace`.
            let element = guard.protect(&slots[index], Ordering::Acquire);
            // SAFETY: the element was loaded under the guard, and replaced elements are freed only through this collector.
            unsafe { (*element).holds(index as u64) }
        })
    }

    fn read_sections(&self, job: &ReadJob<'_>, work: &Work, ready: &dyn Fn()) -> ReadOutcome {
        ready();
        let slots = self.slots.as_slice();
        read_sections(job, work, slots.len(), |index| {
            let guard = self.collector.enter();
            // Acquire pairs with the release half of the swap in `Slots::publish`.
            let element = guard.protect(&slots[index], Ordering::Acquire);
            // SAFETY: `element` is null or was loaded under the guard; unlinked elements are freed only through this collector.
            work.inside(unsafe { element.as_ref() }, index)
        })
    }

    fn writer(&self) -> Box<dyn Writer + '_> {
        Box::new(SeizeWriter { seize: self })
    }
}

struct SeizeWriter<'a> {
    seize: &'a Seize,
}

impl SeizeWriter<'_> {
    /// Takes over an element that was unlinked just now.
    fn retire(&mut self, old: *mut Element) {
        // SAFETY: `old` came from a `Box`, is unlinked, and this thread does not read it any more.
        unsafe { self.seize.collector.retire(old, reclaim::boxed) };
    }
}

impl Writer for SeizeWriter<'_> {
    fn replace(&mut self, index: usize) {
        self.retire(self.seize.slots.replace(index));
    }

    fn publish(&mut self, index: usize, new: Option<Box<Element>>) {
        if let Some(old) = self.seize.slots.publish(index, new) {
            self.retire(old);
        }
    }

    fn poll(&mut self) {
        self.seize.collector.enter().flush();
    }

    /// Flushes the batch. Since no reader is inside, dropping the guard that flushed it frees it.
    fn drain(&mut self) {
        self.poll();
    }
}

impl Drop for SeizeWriter<'_> {
    fn drop(&mut self) {
        self.drain();
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
            let shared = AtomicPtr::<Object>::default();
            let exchange = |new: *mut Object| {
                let old = shared.swap(new, Ordering::AcqRel);
                if !old.is_null() {
                    // SAFETY: the object came from a `Box`, and was unlinked just now, once.
                    unsafe { collector.retire(old, reclaim::boxed) };
                }
            };
            for number in 0..iterations {
                exchange(Box::into_raw(black_box(Box::new([number; 8]))));
            }
            exchange(ptr::null_mut());
        },
    },
    Micro {
        contender: NAME,
        operation: "heavy",
        run: |iterations| {
            let collector = Collector::new();
            let guard = collector.enter();
            for _ in 0..iterations {
                // `flush` issues the barrier before it looks at the batch, which is empty here.
                guard.flush();
            }
        },
    },
];
