//! The operations of a group: claiming them, and resuming or ending those that were given up.

use std::ptr;
use std::sync::atomic::{AtomicPtr as PlainPtr, AtomicUsize as PlainUsize, Ordering as PlainOrdering};

use super::operation::Operation;
use super::PLAIN;
use stillpoint_sys::sync::atomic::{AtomicPtr, Ordering};

/// All operations of a group.
#[derive(Debug)]
pub(super) struct Operations {
    newest: AtomicPtr<Operation>,
    /// The number of operations that linger. A hint, which saves walks when there are none. Not modelled.
    lingering: PlainUsize,
    /// The operation that the next [`sweep`](Operations::sweep) visits; null: the newest. Not modelled.
    next: PlainPtr<Operation>,
}

impl Operations {
    pub(super) fn new() -> Self {
        let (newest, next) = (AtomicPtr::new(ptr::null_mut()), PlainPtr::new(ptr::null_mut()));
        Self { newest, lingering: PlainUsize::new(0), next }
    }

    /// Claims an operation that is not used. Lock-free.
    pub(super) fn claim(&self) -> &Operation {
        loop {
            // Acquire: pairs with the release below.
            let newest = self.newest.load(Ordering::Acquire);
            self.sweep(newest);
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

    /// If some operations linger, visits one of them, and ends it if it is over. Without this, an operation that is
    /// never used again, because there are newer ones, would never free its function.
    fn sweep(&self, newest: *mut Operation) {
        if self.lingering.load(PLAIN) == 0 {
            return;
        }
        // Acquire: pairs with the release below. The thread that wrote it had read the exchange that published this
        // operation.
        let next = self.next.load(PlainOrdering::Acquire);
        if let Some(operation) = self.from(if next.is_null() { newest } else { next }).next() {
            operation.give_back(&self.lingering);
            self.next.store(operation.older, PlainOrdering::Release);
        }
    }

    /// Resumes an operation whose initiator has given up, and that a receiver has not acknowledged. Lock-free.
    #[cfg_attr(any(stillpoint_loom, miri), allow(dead_code, reason = "for fences by signals"))]
    pub(super) fn resume(&self) -> Option<&Operation> {
        if self.lingering.load(PLAIN) == 0 {
            return None;
        }
        // Acquire: as in `claim`.
        let mut operations = self.from(self.newest.load(Ordering::Acquire));
        let resumed = operations.find(|operation| {
            operation.give_back(&self.lingering);
            operation.try_resume()
        })?;
        self.lingering.fetch_sub(1, PLAIN);
        Some(resumed)
    }

    /// As [`Operation::abandon`], and counts it.
    pub(super) fn abandon(&self, operation: &Operation) -> bool {
        // Counted first: a thread that resumes it decrements the count.
        self.lingering.fetch_add(1, PLAIN);
        let is_abandoned = operation.abandon();
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
    /// acknowledged.
    #[cfg(not(any(stillpoint_loom, miri)))]
    pub(super) fn forget(&self) {
        // Relaxed: there is one thread only.
        self.newest.store(ptr::null_mut(), Ordering::Relaxed);
        self.lingering.store(0, PLAIN);
        self.next.store(ptr::null_mut(), PLAIN);
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
