//! Lets loom check that no thread accesses a node before it is made, or after it is freed.

#[cfg(stillpoint_loom)]
use stillpoint_sys::sync::UnsafeCell;

/// A part of each node; of size zero outside models.
pub(crate) struct Watch {
    #[cfg(stillpoint_loom)]
    freed: UnsafeCell<bool>,
}

impl Watch {
    #[cfg(not(stillpoint_loom))]
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self {}
    }

    #[cfg(not(stillpoint_loom))]
    #[inline(always)]
    pub(crate) fn touch(&self) {}

    #[cfg(not(stillpoint_loom))]
    #[inline(always)]
    pub(crate) fn look(&self) {}

    #[cfg(stillpoint_loom)]
    pub(crate) fn new() -> Self {
        let freed = UnsafeCell::new(true);
        // SAFETY: not shared yet.
        freed.with_mut(|freed| unsafe { *freed = false });
        Self { freed }
    }

    /// Must be the last write before the node is published, after all light fences. In a model, a light fence orders earlier
    /// writes, and so would hide that the publication is not a release.
    #[cfg(stillpoint_loom)]
    pub(crate) fn touch(&self) {
        // SAFETY: not shared yet.
        self.freed.with_mut(|freed| unsafe { *freed = false });
    }

    #[cfg(stillpoint_loom)]
    pub(crate) fn look(&self) {
        // SAFETY: the protocol under test keeps the node alive; if it does not, loom reports that.
        let freed = self.freed.with(|freed| unsafe { *freed });
        assert!(!freed, "Causality violation: a node was read after it was freed");
    }
}

#[cfg(stillpoint_loom)]
impl Drop for Watch {
    fn drop(&mut self) {
        // SAFETY: the protocol under test excludes other accesses; otherwise loom reports it.
        self.freed.with_mut(|freed| unsafe { *freed = true });
    }
}

// SAFETY: the models check that accesses are ordered.
#[cfg(stillpoint_loom)]
unsafe impl Sync for Watch {}
// SAFETY: the models check that accesses are ordered.
#[cfg(stillpoint_loom)]
unsafe impl Send for Watch {}
