//! The state that hardened pools record for each object, and the pattern in free objects.

use super::geometry::{Place, ROW};
use super::Core;
use stillpoint_sys::sync::atomic::{AtomicU64, Ordering};

/// The value of each byte of a free object.
const POISON: u8 = 0xa5;

/// For each object: 0 while it is free; otherwise one more than the tag of the thread that allocated it.
#[derive(Debug)]
pub(crate) struct Tags(Box<[AtomicU64]>);

impl Tags {
    pub(crate) fn new(rows: usize) -> Option<Self> {
        let mut tags = Vec::new();
        let objects = rows.checked_mul(ROW as usize)?;
        tags.try_reserve_exact(objects).ok()?;
        tags.extend((0..objects).map(|_| AtomicU64::new(0)));
        Some(Self(tags.into_boxed_slice()))
    }

    fn of(&self, place: Place) -> &AtomicU64 {
        &self.0[place.row as usize * ROW as usize + place.bit as usize]
    }
}

/// # Safety
/// Only the caller has the `size` bytes at `object`.
pub(crate) unsafe fn poison(object: *mut u8, size: usize) {
    // SAFETY: only the caller has these bytes, by its promise.
    unsafe { object.write_bytes(POISON, size) };
}

impl Core {
    pub(crate) fn verifies(&self) -> bool {
        self.tags.is_some()
    }

    /// Records that an object is allocated, and reports if it was written to while it was free.
    pub(crate) fn arm(&self, object: *mut u8, tag: u32) {
        let (Some(tags), Some(place)) = (&self.tags, self.place_of(object)) else { return };
        // Relaxed: the word publishes nothing else; the hand-over of the object orders the rest.
        tags.of(place).store(u64::from(tag) + 1, Ordering::Relaxed);
        if self.poison {
            // SAFETY: this was a free object of a pool that poisons. So its bytes are initialised, and only the caller
            // has them.
            let bytes = unsafe { std::slice::from_raw_parts(object, self.size) };
            if let Some(at) = bytes.iter().position(|&byte| byte != POISON) {
                self.report_written(object, at);
            }
        }
    }

    /// Records that an object is freed. False when it is free already.
    pub(crate) fn disarm(&self, object: *mut u8, place: Place) -> bool {
        let Some(tags) = &self.tags else { return true };
        // Relaxed: the word publishes nothing else. Of two concurrent frees, only one finds the object allocated.
        let was_out = tags.of(place).swap(0, Ordering::Relaxed) != 0;
        if was_out && self.poison {
            // SAFETY: the object was allocated, and its owner gives it up.
            unsafe { poison(object, self.size) };
        }
        was_out
    }

    /// Whether an object is recorded as allocated.
    pub(crate) fn is_armed(&self, place: Place) -> bool {
        // Relaxed: an early answer. The exchange in `disarm` decides.
        self.tags.as_ref().is_none_or(|tags| tags.of(place).load(Ordering::Relaxed) != 0)
    }

    /// The tag of an allocated object.
    pub(crate) fn tag_of(&self, place: Place) -> Option<u32> {
        let tags = self.tags.as_ref()?;
        // Relaxed: for a report.
        tags.of(place).load(Ordering::Relaxed).checked_sub(1).map(|tag| tag as u32)
    }

    /// Calls the user's validation of an object that is being freed.
    pub(crate) fn inspect(&self, object: *mut u8) {
        if self.life.validate.as_ref().is_some_and(|validate| !validate(object)) {
            self.report_invalid(object);
        }
    }
}
