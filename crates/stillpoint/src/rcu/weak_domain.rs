//! How cells and retired objects refer to their domain without keeping it alive.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::{Arc, Weak};

use super::engine::directory::Name;
use super::engine::Core;

/// A weak reference to a domain, compared by address in a single instruction.
///
/// The address is not reused as long as the reference exists, so equality is identity.
pub(super) struct WeakDomain(*const Core);

// SAFETY: a `WeakDomain` is a `Weak<Core>` taken apart, and `Core` is `Send` and `Sync`.
unsafe impl Send for WeakDomain {}
// SAFETY: a `WeakDomain` is a `Weak<Core>` taken apart, and `Core` is `Send` and `Sync`.
unsafe impl Sync for WeakDomain {}

impl WeakDomain {
    pub(super) fn new(core: &Arc<Core>) -> Self {
        Self(Arc::downgrade(core).into_raw())
    }

    #[inline(always)]
    pub(super) fn is(&self, core: &Core) -> bool {
        ptr::eq(self.0, core)
    }

    /// How objects that were unlinked from this cell name their domain.
    #[inline(always)]
    pub(super) fn name(&self) -> Name {
        // SAFETY: the weak count keeps the memory of the core. The name is neither changed nor dropped with the core. A core is
        // not `Unpin`, so the exclusive reference of its drop does not exclude this shared one.
        unsafe { (&raw const (*self.0).reference).read() }
    }

    /// The domain, unless its last handle is gone.
    pub(super) fn core(&self) -> Option<Arc<Core>> {
        // SAFETY: it came from `into_raw`, and is not dropped here.
        ManuallyDrop::new(unsafe { Weak::from_raw(self.0) }).upgrade()
    }

    /// Panics unless `core` is this domain.
    #[inline(always)]
    #[track_caller]
    pub(super) fn verify(&self, core: &Core) {
        if !self.is(core) {
            self.reject(core);
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn reject(&self, other: &Core) -> ! {
        panic!(
            "a reader of domain `{}` was used with a cell of domain `{self}`; pass a reader of `{self}`",
            other.name()
        )
    }
}

impl Drop for WeakDomain {
    fn drop(&mut self) {
        // SAFETY: it came from `into_raw`, and is dropped once.
        drop(unsafe { Weak::from_raw(self.0) });
    }
}

impl fmt::Display for WeakDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name().fmt(f)
    }
}
