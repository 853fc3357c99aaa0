//! crossbeam-epoch: readers pin an epoch, and garbage of two epochs ago is freed.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crossbeam_epoch::{Atomic, Collector, Guard, LocalHandle, Owned, Shared};

use super::Object;
use crate::contender::{Retire, Retiring};
use crate::{Contender, Element, Entry, Micro, ReadJob, ReadOutcome, Slots, Writer, read_loop};

const NAME: &str = "crossbeam-epoch";

pub(crate) const ENTRY: Entry =
    Entry { name: NAME, peer: NAME, make: |slots, _| Box::new(Epoch::new(slots)) };

struct Epoch {
    slots: Arc<Slots>,
    collector: Collector,
    /// Counted by the deferred functions, which may run on any pinning thread.
    freed: Arc<AtomicUsize>,
}

impl Epoch {
    fn new(slots: &Arc<Slots>) -> Self {
        Self { slots: Arc::clone(slots), collector: Collector::new(), freed: Arc::default() }
    }

    /// Frees an element that was unlinked just now, under `guard`.
    fn defer_free(&self, guard: &Guard, old: *mut Element) {
        let freed = Arc::clone(&self.freed);
        let free = move || {
            // SAFETY: the function is deferred after the unlink, so it runs after every pin that can have seen the element.
            drop(unsafe { Box::from_raw(old) });
            // Release pairs with the acquire load in `drain`.
            freed.fetch_add(1, Ordering::Release);
        };
        // SAFETY: the function may run on any thread at any later time, since it owns all that it uses and any thread may free an
        // element.
        unsafe { guard.defer_unchecked(free) };
    }
}

impl Contender for Epoch {
    fn read(&self, job: &ReadJob<'_>, ready: &dyn Fn()) -> ReadOutcome {
        let handle = self.collector.register();
        ready();
        let slots = self.slots.as_slice();
        read_loop!(job, slots.len(), missing: false, |index, found| {
            let _guard = handle.pin();
            // Acquire pairs with the release half of the swap in `Slots::publish`.
            let element = slots[index].load(Ordering::Acquire);
            // SAFETY: `element` is null or was still linked after the pin, and unlinked elements are freed only by deferred functions.
            found(unsafe { element.as_ref() })
        })
    }

    fn writer(&self) -> Box<dyn Writer + '_> {
        // Relaxed: the last writer waited for this count.
        let retired = self.freed.load(Ordering::Relaxed);
        Box::new(Retiring(EpochWriter { epoch: self, handle: self.collector.register(), retired }))
    }
}

struct EpochWriter<'a> {
    epoch: &'a Epoch,
    handle: LocalHandle,
    retired: usize,
}

impl Retire for EpochWriter<'_> {
    fn slots(&self) -> &Slots {
        &self.epoch.slots
    }

    fn retire(&mut self, old: *mut Element) {
        self.retired += 1;
        self.epoch.defer_free(&self.handle.pin(), old);
    }

    fn poll(&mut self) {
        self.handle.pin().flush();
    }

    fn drain(&mut self) {
        // Acquire pairs with the release in the deferred function, which counts after its free.
        while self.epoch.freed.load(Ordering::Acquire) != self.retired {
            self.poll();
            thread::yield_now();
        }
    }
}

pub(crate) const MICRO: &[Micro] = &[
    Micro {
        contender: NAME,
        operation: "pin",
        run: |iterations| {
            let handle = Collector::new().register();
            for _ in 0..iterations {
                drop(handle.pin());
            }
        },
    },
    Micro {
        contender: NAME,
        operation: "retire",
        run: |iterations| {
            let handle = Collector::new().register();
            let shared = Atomic::<Object>::null();
            let exchange = |new: Shared<'_, Object>| {
                let guard = handle.pin();
                let old = shared.swap(new, Ordering::AcqRel, &guard);
                if !old.is_null() {
                    // SAFETY: `old` came from the `Owned` of an earlier iteration, and has just been unlinked, once.
                    unsafe { guard.defer_destroy(old) };
                }
            };
            for number in 0..iterations {
                let object: Owned<Object> = black_box(Owned::new([number; 8]));
                exchange(object.into_shared(&handle.pin()));
            }
            exchange(Shared::null());
        },
    },
];
