//! haphazard: hazard pointers, one for each reader.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::AtomicPtr;
use std::thread;

use haphazard::{Domain, HazardPointer};

use super::{Object, exchange};
use crate::contender::{Retire, Retiring};
use crate::{Contender, Element, Entry, Micro, ReadJob, ReadOutcome, Slots, Writer, read_loop};

const NAME: &str = "haphazard";

pub(crate) const ENTRY: Entry =
    Entry { name: NAME, peer: NAME, make: |slots, _| Box::new(Haphazard::new(slots)) };

/// Marks the hazard pointers and domains of this file.
#[non_exhaustive]
struct Family;

struct Haphazard {
    slots: Arc<Slots>,
    domain: Domain<Family>,
}

impl Haphazard {
    fn new(slots: &Arc<Slots>) -> Self {
        Self { slots: Arc::clone(slots), domain: Domain::new(&Family) }
    }
}

impl Contender for Haphazard {
    fn read(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        let mut hazard = HazardPointer::new_in_domain(&self.domain);
        ready();
        let slots = self.slots.as_slice();
        read_loop!(job, slots.len(), missing: false, |index, found| {
            // SAFETY: a slot is empty or holds a live element, and unlinked ones are retired only to this domain.
            let right = found(unsafe { hazard.protect(&slots[index]) });
            hazard.reset_protection();
            right
        })
    }

    fn writer(&self) -> Box<dyn Writer + '_> {
        Box::new(Retiring(HaphazardWriter { haphazard: self, pending: 0 }))
    }
}

struct HaphazardWriter<'a> {
    haphazard: &'a Haphazard,
    /// How many elements are retired and not yet freed. Only writers reclaim.
    pending: usize,
}

impl Retire for HaphazardWriter<'_> {
    fn slots(&self) -> &Slots {
        &self.haphazard.slots
    }

    fn retire(&mut self, old: *mut Element) {
        // SAFETY: `old` came from a `Box`, is unlinked, and is retired once.
        let freed = unsafe { self.haphazard.domain.retire_ptr::<Element, Box<Element>>(old) };
        self.pending = self.pending + 1 - freed;
    }

    fn poll(&mut self) {
        self.pending -= self.haphazard.domain.eager_reclaim();
    }

    fn drain(&mut self) {
        while self.pending != 0 {
            self.poll();
            thread::yield_now();
        }
    }
}

pub(crate) const MICRO: &[Micro] = &[
    Micro {
        contender: NAME,
        operation: "protect",
        run: |iterations| {
            let domain = Domain::new(&Family);
            let mut hazard = HazardPointer::new_in_domain(&domain);
            let mut object: Object = [0; 8];
            let slot = AtomicPtr::new(&raw mut object);
            for _ in 0..iterations {
                // SAFETY: the object outlives the loop and is never retired.
                black_box(unsafe { hazard.protect(&slot) });
                hazard.reset_protection();
            }
        },
    },
    Micro {
        contender: NAME,
        operation: "retire",
        run: |iterations| {
            let domain = Domain::new(&Family);
            // SAFETY: the objects come from boxes, and each was unlinked just now, once.
            exchange(iterations, |old| unsafe { _ = domain.retire_ptr::<Object, Box<Object>>(old) });
        },
    },
];
