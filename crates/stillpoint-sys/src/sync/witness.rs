//! Lets loom check when an object is used.

#[cfg(stillpoint_loom)]
use super::UnsafeCell;

/// A part of an object: in a model, loom reports uses of the object that may come before it is made or after it is freed. Outside models it
/// has no size and does nothing.
#[derive(Debug)]
pub struct Witness(#[cfg(stillpoint_loom)] UnsafeCell<bool>);

impl Witness {
    /// The witness of an object that is being made.
    #[inline(always)]
    pub fn alive() -> Self {
        Self(
            #[cfg(stillpoint_loom)]
            UnsafeCell::new(true),
        )
    }

    /// Stands for a write to the object before it is shared, or for its free.
    #[inline(always)]
    pub fn set(&self, _is_alive: bool) {
        #[cfg(stillpoint_loom)]
        // SAFETY: the protocol under test excludes other accesses; if it does not, loom reports that.
        self.0.with_mut(|place| unsafe { *place = _is_alive });
    }

    /// Stands for a use of the object.
    #[inline(always)]
    pub fn read(&self) {
        // SAFETY: the protocol under test keeps the object alive; if it does not, loom reports that.
        #[cfg(stillpoint_loom)]
        assert!(
            self.0.with(|place| unsafe { *place }),
            "Causality violation: an object was read after it was freed"
        );
    }
}

// SAFETY: the models check that accesses are ordered.
#[cfg(stillpoint_loom)]
unsafe impl Sync for Witness {}
// SAFETY: the models check that accesses are ordered.
#[cfg(stillpoint_loom)]
unsafe impl Send for Witness {}
