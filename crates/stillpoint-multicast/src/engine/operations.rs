//! The operations of a group: claiming them, and resuming or ending those that were given up.

use std::ptr;
use std::sync::atomic::AtomicUsize as PlainUsize;

use super::operation::Operation;
use super::PLAIN;
use stillpoint_sys::sync::atomic::{AtomicPtr, Ordering};

/// All operations of a group.
#[derive(Debug)]
pub(super) struct Operations {
    newest: AtomicPtr<Operation>,
    /// The number of operations that linger, or more. A hint, which saves walks when there are none. Not modelled.
    lingering: PlainUsize,
}

impl Operations {
    pub(super) fn new() -> Self {
        Self { newest: AtomicPtr::new(ptr::null_mut()), lingering: PlainUsize::new(0) }
    }

    /// Claims an operation that is not used. Lock-free.
    pub(super) fn claim(&self) -> &Operation {
        loop {
            // Acquire: pairs with the release below.
            let newest = self.newest.load(Ordering::Acquire);
            if let Some(operation) = self.from(newest).find(|operation| operation.try_claim(&self.lingering))
            {
                // SAFETY: claimed above; the count of an operation that lingered is 0.
                unsafe { operation.clear() };
                return operation;
            }
            let number = self.from(newest).next().map_or(0, |operation| operation.number.wrapping_add(1));
            let operation = Operation::new(number, newest).as_ptr();
            // Release: publishes the operation.
            if self.newest.compare_exchange(newest, operation, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                // SAFETY: published above, and freed only with the group.
                return unsafe { &*operation };
            }
            // SAFETY: it was made above and not published.
            drop(unsafe { Box::from_raw(operation) });
        }
    }

    /// As [`Operation::settle`].
    pub(super) fn settle(&self, operation: &Operation) {
        operation.settle(&self.lingering);
    }

    /// Resumes an operation that may be resumed, whose initiator has given up, and that a receiver has not acknowledged. Lock-free.
    #[cfg_attr(any(stillpoint_loom, miri), allow(dead_code, reason = "for fences by signals"))]
    pub(super) fn resume(&self) -> Option<&Operation> {
        if self.lingering.load(PLAIN) == 0 {
            return None;
        }
        // Acquire: as in `claim`.
        let mut operations = self.from(self.newest.load(Ordering::Acquire));
        let resumed = operations.find(|operation| {
            operation.give_back(&self.lingering);
            operation.try_resume(&self.lingering)
        })?;
        self.lingering.fetch_sub(1, PLAIN);
        Some(resumed)
    }

    /// As [`Operation::abandon`], and counts it.
    pub(super) fn abandon(&self, operation: &Operation) -> bool {
        // Counted first: a thread that resumes it decrements the count.
        self.lingering.fetch_add(1, PLAIN);
        let is_abandoned = operation.abandon(&self.lingering);
        if !is_abandoned {
            self.lingering.fetch_sub(1, PLAIN);
        }
        is_abandoned
    }

    /// The number of operations.
    #[cfg(all(test, not(stillpoint_loom)))]
    pub(super) fn count(&self) -> usize {
        // Acquire: as in `claim`.
        self.from(self.newest.load(Ordering::Acquire)).count()
    }

    /// In the child of a `fork`: drops all operations from the list, and leaks them. Those of the calling thread may still be
    /// acknowledged, and then end: they stay in the count of those that linger.
    #[cfg(not(any(stillpoint_loom, miri)))]
    pub(super) fn forget(&self) {
        // Relaxed: there is one thread only.
        self.newest.store(ptr::null_mut(), Ordering::Relaxed);
    }

    fn from(&self, mut next: *mut Operation) -> impl Iterator<Item = &Operation> {
        std::iter::from_fn(move || {
            // SAFETY: null, or an operation published by `claim` and read by an acquire load; freed with `self`.
            let operation = unsafe { next.as_ref() }?;
            next = operation.older;
            Some(operation)
        })
    }
}

impl Drop for Operations {
    fn drop(&mut self) {
        // Acquire: pairs with the release in `claim`. (The drop has exclusive access anyway.)
        let mut next = self.newest.load(Ordering::Acquire);
        while !next.is_null() {
            // SAFETY: each came from a box, and is in the list once. No mailbox refers to it any more.
            let operation = unsafe { Box::from_raw(next) };
            next = operation.older;
            // SAFETY: no thread can have a message any more.
            unsafe { operation.clear() };
        }
    }
}
