//! How cells and retired objects refer to their domain without keeping it alive.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::{fence, Ordering};
use std::sync::{Arc, Weak};

use super::engine::Core;

/// A weak reference to a domain, compared by address in a single instruction.
///
/// The address is not used again as long as the reference exists, so that equality is identity.
pub(super) struct WeakDomain(*const Core);

// SAFETY: a `WeakDomain` is a `Weak<Core>` taken apart, and `Core` is `Send` and `Sync`.
unsafe impl Send for WeakDomain {}
// SAFETY: as above.
unsafe impl Sync for WeakDomain {}

impl WeakDomain {
    pub(super) fn new(core: &Arc<Core>) -> Self {
        Self(Arc::downgrade(core).into_raw())
    }

    #[inline(always)]
    pub(super) fn is(&self, core: &Core) -> bool {
        ptr::eq(self.0, core)
    }

    fn weak(&self) -> ManuallyDrop<Weak<Core>> {
        // SAFETY: the pointer came from `into_raw`, and the reference is not dropped here.
        ManuallyDrop::new(unsafe { Weak::from_raw(self.0) })
    }

    /// The domain, unless its last handle is gone.
    pub(super) fn core(&self) -> Option<Arc<Core>> {
        let core = self.weak().upgrade();
        if core.is_none() {
            // Acquire: pairs with the release decrement of each handle's drop. `upgrade` has read the last one, or what
            // followed it in its release sequence, by a relaxed load: whatever readers did before they dropped their
            // handles happens before what the caller does with an object that no domain looks after.
            fence(Ordering::Acquire);
        }
        core
    }

    /// Panics unless `core` is this domain.
    #[inline(always)]
    pub(super) fn verify(&self, core: &Core) {
        if !self.is(core) {
            self.reject(core);
        }
    }

    #[cold]
    #[inline(never)]
    fn reject(&self, other: &Core) -> ! {
        panic!("a reader of domain `{}` was used with a cell of domain `{self}`", other.name())
    }
}

impl Clone for WeakDomain {
    fn clone(&self) -> Self {
        Self(Weak::clone(&self.weak()).into_raw())
    }
}

impl Drop for WeakDomain {
    fn drop(&mut self) {
        drop(ManuallyDrop::into_inner(self.weak()));
    }
}

impl fmt::Display for WeakDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.core() {
            Some(core) => f.write_str(core.name()),
            None => f.write_str("(its last handle was dropped)"),
        }
    }
}
