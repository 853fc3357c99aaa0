//! Values that count their creations and drops.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

/// Counts the [`Counted`] values that are alive.
#[derive(Debug, Clone, Default)]
pub(crate) struct Census(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    made: AtomicUsize,
    dropped: AtomicUsize,
}

impl Census {
    pub(crate) fn value(&self, value: u64) -> Counted {
        self.0.made.fetch_add(1, Relaxed);
        Counted { value, census: self.clone() }
    }

    /// While other threads make and drop values, the result may be too low, but not too high.
    pub(crate) fn alive(&self) -> usize {
        let made = self.made();
        made.saturating_sub(self.0.dropped.load(Relaxed))
    }

    pub(crate) fn made(&self) -> usize {
        self.0.made.load(Relaxed)
    }
}

/// A counted key or value.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) value: u64,
    census: Census,
}

/// A clone counts as one more value.
impl Clone for Counted {
    fn clone(&self) -> Self {
        self.census.value(self.value)
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Eq for Counted {}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.value.hash(state);
    }
}

impl std::borrow::Borrow<u64> for Counted {
    fn borrow(&self) -> &u64 {
        &self.value
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        assert_ne!(std::mem::replace(&mut self.value, u64::MAX), u64::MAX, "dropped twice");
        self.census.0.dropped.fetch_add(1, Relaxed);
    }
}
