//! Lets loom check that no thread accesses a node before it is made, or after it is freed.

use stillpoint_sys::sync::Witness;

/// A part of each node; of size zero outside models.
pub(crate) struct Watch(Witness);

impl Watch {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        let watch = Self(Witness::alive());
        watch.touch();
        watch
    }

    /// Must be the last write before the node is published, after all light fences. In a model, a light fence orders earlier
    /// writes, and so would hide that the publication is not a release.
    #[inline(always)]
    pub(crate) fn touch(&self) {
        self.0.set(true);
    }

    #[inline(always)]
    pub(crate) fn look(&self) {
        self.0.read();
    }
}

#[cfg(stillpoint_loom)]
impl Drop for Watch {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
