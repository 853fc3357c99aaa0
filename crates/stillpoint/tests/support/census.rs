//! Objects that count how many were freed, and notice when they are read after that.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

const ALIVE: u64 = 0xA11C_E0B1_EC75_FA17;
const DEAD: u64 = 0xDEAD_0B1E_C7DE_AD00;

/// Counts the objects that it has made. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Census(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    made: AtomicUsize,
    freed: AtomicUsize,
}

/// An object of a [`Census`].
#[derive(Debug)]
pub(crate) struct Object {
    /// Volatile enough to survive the destructor: the compiler does not remove atomic stores.
    canary: AtomicU64,
    census: Census,
}

impl Census {
    pub(crate) fn object(&self) -> Object {
        // Relaxed: a count that orders nothing.
        self.0.made.fetch_add(1, Ordering::Relaxed);
        Object { canary: AtomicU64::new(ALIVE), census: self.clone() }
    }

    /// Objects whose destructor has run.
    pub(crate) fn freed(&self) -> usize {
        // Acquire: pairs with the release in the destructor, for tests that check what else it did.
        self.0.freed.load(Ordering::Acquire)
    }

    /// Objects whose destructor has not run.
    pub(crate) fn alive(&self) -> usize {
        let freed = self.freed();
        // Relaxed: a test that needs an exact answer has joined the threads that make objects.
        self.0.made.load(Ordering::Relaxed) - freed
    }
}

impl Object {
    /// Panics if the destructor has run.
    pub(crate) fn verify(&self) {
        // Relaxed: the only writer of another value is the destructor, which must not run at the same time.
        assert_eq!(self.canary.load(Ordering::Relaxed), ALIVE, "read after it was freed");
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // Relaxed: as in `verify`.
        assert_eq!(self.canary.swap(DEAD, Ordering::Relaxed), ALIVE, "freed twice");
        // Release: pairs with the acquire load in `freed`.
        self.census.0.freed.fetch_add(1, Ordering::Release);
    }
}
