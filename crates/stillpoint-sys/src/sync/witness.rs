//! Lets loom check when an object is used.

#[cfg(stillpoint_loom)]
use super::UnsafeCell;

/// A part of an object: in a model, loom reports uses of the object that may come before it is made or after it is freed. Outside models it
/// has no size and does nothing.
#[derive(Debug)]
pub struct Witness {
    #[cfg(stillpoint_loom)]
    is_alive: UnsafeCell<bool>,
}

impl Witness {
    /// The witness of an object that is being made.
    #[inline(always)]
    pub fn alive() -> Self {
        Self {
            #[cfg(stillpoint_loom)]
            is_alive: UnsafeCell::new(true),
        }
    }

    /// Stands for a write to the object, which is not shared yet.
    #[inline(always)]
    pub fn write(&self) {
        self.set(true);
    }

    /// Stands for a use of the object.
    #[inline(always)]
    pub fn read(&self) {
        #[cfg(stillpoint_loom)]
        {
            // SAFETY: the protocol under test keeps the object alive; if it does not, loom reports that.
            let is_alive = self.is_alive.with(|place| unsafe { *place });
            assert!(is_alive, "Causality violation: an object was read after it was freed");
        }
    }

    /// Stands for the free of the object.
    #[inline(always)]
    pub fn end(&self) {
        self.set(false);
    }

    #[inline(always)]
    fn set(&self, _is_alive: bool) {
        #[cfg(stillpoint_loom)]
        // SAFETY: the protocol under test excludes other accesses; if it does not, loom reports that.
        self.is_alive.with_mut(|place| unsafe { *place = _is_alive });
    }
}

// SAFETY: the models check that accesses are ordered.
#[cfg(stillpoint_loom)]
unsafe impl Sync for Witness {}
// SAFETY: the models check that accesses are ordered.
#[cfg(stillpoint_loom)]
unsafe impl Send for Witness {}
