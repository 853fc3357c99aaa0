//! Shared by the tests of deferred functions.

#![allow(dead_code, reason = "each test program uses a part")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use stillpoint_epoch::{domain, Collector, LocalHandle, Owned};

/// A counter.
#[derive(Clone, Default)]
pub(crate) struct Count(Arc<AtomicUsize>);

impl Count {
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Counts its drop.
pub(crate) struct Dropped(pub(crate) Count);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.add();
    }
}

/// Defers the destruction of an object that was never linked.
pub(crate) fn defer_destroy(handle: &LocalHandle, count: &Count) {
    let guard = handle.pin();
    let object = Owned::new(Dropped(count.clone())).into_shared(&guard);
    // SAFETY: no other thread has the object.
    unsafe { guard.defer_destroy(object) };
}

/// The number of functions that wait in a collector.
pub(crate) fn pending(collector: &Collector) -> u64 {
    domain::of(collector).stats().pending
}

/// The number of rounds of a test. Miri is slow.
pub(crate) fn rounds(full: usize, under_miri: usize) -> usize {
    if cfg!(miri) {
        under_miri
    } else {
        full
    }
}
