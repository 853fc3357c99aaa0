//! The operations of a group: which one is used next, and what becomes of those that were given up.

use std::ptr;
use std::sync::atomic::{AtomicPtr as PlainPtr, AtomicUsize as PlainUsize, Ordering as PlainOrdering};

use super::operation::Operation;
use super::PLAIN;
use stillpoint_sys::sync::atomic::{AtomicPtr, Ordering};

/// All operations of a group.
#[derive(Debug)]
pub(super) struct Operations {
    newest: AtomicPtr<Operation>,
    /// How many linger. A hint, so that who looks for one to resume does not walk past those that do not. Not modelled.
    lingering: PlainUsize,
    /// Where the next [`sweep`](Operations::sweep) looks; null: at the newest. Not modelled.
    next: PlainPtr<Operation>,
}

impl Operations {
    pub(super) fn new() -> Self {
        let (newest, next) = (AtomicPtr::new(ptr::null_mut()), PlainPtr::new(ptr::null_mut()));
        Self { newest, lingering: PlainUsize::new(0), next }
    }

    /// An operation that nobody uses, for the caller. Lock-free.
    pub(super) fn claim(&self) -> &Operation {
        loop {
            // Acquire: pairs with the release below.
            let newest = self.newest.load(Ordering::Acquire);
            self.sweep(newest);
            if let Some(operation) = self.from(newest).find(|operation| operation.try_claim(&self.lingering))
            {
                // SAFETY: claimed above; if it had lingered, its count is 0.
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

    /// Looks at one operation more, if some linger: else one that nobody uses, because there are newer ones, would never
    /// give back what it owns.
    fn sweep(&self, newest: *mut Operation) {
        if self.lingering.load(PLAIN) == 0 {
            return;
        }
        // Acquire: pairs with the release below. What is there was published by an exchange that its writer has read.
        let next = self.next.load(PlainOrdering::Acquire);
        if let Some(operation) = self.from(if next.is_null() { newest } else { next }).next() {
            operation.give_back(&self.lingering);
            self.next.store(operation.older, PlainOrdering::Release);
        }
    }

    /// An operation whose initiator has given up, and that somebody has not acknowledged, for the caller. Lock-free.
    #[cfg_attr(any(loom, miri), allow(dead_code, reason = "for fences by signals"))]
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

    /// Leaves one of them to whoever acknowledges last: see [`Operation::abandon`].
    pub(super) fn abandon(&self, operation: &Operation) -> bool {
        // Before: who resumes it counts down.
        self.lingering.fetch_add(1, PLAIN);
        let is_abandoned = operation.abandon();
        if !is_abandoned {
            self.lingering.fetch_sub(1, PLAIN);
        }
        is_abandoned
    }

    /// How many there are.
    #[cfg(all(test, not(loom)))]
    pub(super) fn count(&self) -> usize {
        // Acquire: as in `claim`.
        self.from(self.newest.load(Ordering::Acquire)).count()
    }

    /// In the child of a `fork`: leaves what threads of the parent have begun as it is for ever. What was under way on
    /// the calling thread may still be acknowledged.
    #[cfg(not(any(loom, miri)))]
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
        // Acquire: pairs with the release in `claim`, although whoever drops has it to itself.
        let mut next = self.newest.load(Ordering::Acquire);
        while !next.is_null() {
            // SAFETY: each came from a box, and is in the list once. No mailbox is left that could refer to it.
            let operation = unsafe { Box::from_raw(next) };
            next = operation.older;
            // SAFETY: no thread is left that could have a message.
            unsafe { operation.clear() };
        }
    }
}
