//! What hardened pools record for each object, and the pattern in free objects of bare memory.

use super::geometry::Place;
use super::{boxed, Core};
use stillpoint_sys::sync::atomic::{AtomicU64, Ordering};

/// The value of each byte of a free object.
const POISON: u8 = 0xa5;

/// For each row, a bit for each object that is allocated.
#[derive(Debug)]
pub(crate) struct Armed(Box<[AtomicU64]>);

impl Armed {
    pub(crate) fn new(rows: usize) -> Option<Self> {
        boxed(rows, || AtomicU64::new(0)).map(Self)
    }
}

/// # Safety
/// Only the caller has the `size` bytes at `object`.
pub(crate) unsafe fn poison(object: *mut u8, size: usize) {
    // SAFETY: only the caller has these bytes, by its promise.
    unsafe { object.write_bytes(POISON, size) };
}

impl Core {
    pub(crate) fn is_hardened(&self) -> bool {
        self.armed.is_some()
    }

    /// Whether the bytes of free objects hold the pattern: those of bare memory do.
    fn poisons(&self) -> bool {
        self.life.construct.is_none()
    }

    /// Records that an object is allocated, and counts a misuse if it was written to while it was free.
    pub(crate) fn arm(&self, object: *mut u8) {
        let (Some(armed), Some(place)) = (&self.armed, self.place_of(object)) else { return };
        // Relaxed: the word publishes nothing else; the hand-over of the object orders the rest.
        armed.0[place.row as usize].fetch_or(1 << place.bit, Ordering::Relaxed);
        if self.poisons() {
            // SAFETY: this was a free object of a pool that poisons. So its bytes are initialised, and only the caller
            // has them.
            let bytes = unsafe { std::slice::from_raw_parts(object, self.plan.size) };
            if bytes.iter().any(|&byte| byte != POISON) {
                self.misused(1);
            }
        }
    }

    /// Records that an object is freed. False when it is free already.
    pub(crate) fn disarm(&self, object: *mut u8, Place { row, bit }: Place) -> bool {
        let Some(armed) = &self.armed else { return true };
        // Relaxed: the word publishes nothing else. Of two concurrent frees, only one finds the object allocated.
        let was_out = armed.0[row as usize].fetch_and(!(1 << bit), Ordering::Relaxed) & 1 << bit != 0;
        if was_out && self.poisons() {
            // SAFETY: the object was allocated, and its owner gives it up.
            unsafe { poison(object, self.plan.size) };
        }
        was_out
    }

    /// Whether an object is recorded as allocated.
    pub(crate) fn is_armed(&self, Place { row, bit }: Place) -> bool {
        // Relaxed: an early answer. The exchange in `disarm` decides.
        let is_set = |armed: &Armed| armed.0[row as usize].load(Ordering::Relaxed) & 1 << bit != 0;
        self.armed.as_ref().is_none_or(is_set)
    }
}
