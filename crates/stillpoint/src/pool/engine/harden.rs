//! What hardened pools record of each object, and the pattern that free ones hold.

use super::geometry::{Place, ROW};
use super::Core;
use stillpoint_sys::sync::atomic::{AtomicU64, Ordering};

/// A byte of a free object.
const POISON: u8 = 0xa5;

/// For each object 0 while it is free, else one more than the tag of whoever got it.
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
/// So many bytes at `object` are nobody else's.
pub(crate) unsafe fn poison(object: *mut u8, size: usize) {
    // SAFETY: the caller's promise.
    unsafe { object.write_bytes(POISON, size) };
}

impl Core {
    pub(crate) fn verifies(&self) -> bool {
        self.tags.is_some()
    }

    /// Records that an object is handed out, and looks whether it was left alone while it was free.
    pub(crate) fn arm(&self, object: *mut u8, tag: u32) {
        let (Some(tags), Some(place)) = (&self.tags, self.place_of(object)) else { return };
        // Relaxed: the word stands for itself; what hands the object over orders the rest.
        tags.of(place).store(u64::from(tag) + 1, Ordering::Relaxed);
        if self.poison {
            // SAFETY: a free object of a poisoned pool: its bytes were written, and are the caller's.
            let bytes = unsafe { std::slice::from_raw_parts(object, self.size) };
            if let Some(at) = bytes.iter().position(|&byte| byte != POISON) {
                self.report_written(object, at);
            }
        }
    }

    /// Records that an object comes back. False when it is free already.
    pub(crate) fn disarm(&self, object: *mut u8, place: Place) -> bool {
        let Some(tags) = &self.tags else { return true };
        // Relaxed: as above; of two frees at once, one finds the other.
        let was_out = tags.of(place).swap(0, Ordering::Relaxed) != 0;
        if was_out && self.poison {
            // SAFETY: the object was out, and its owner gives it up.
            unsafe { poison(object, self.size) };
        }
        was_out
    }

    /// Whether an object is out, as far as the pool knows.
    pub(crate) fn is_armed(&self, place: Place) -> bool {
        // Relaxed: as in `disarm`, which has the last word.
        self.tags.as_ref().is_none_or(|tags| tags.of(place).load(Ordering::Relaxed) != 0)
    }

    /// The tag of an object that is out.
    pub(crate) fn tag_of(&self, place: Place) -> Option<u32> {
        let tags = self.tags.as_ref()?;
        // Relaxed: a figure.
        tags.of(place).load(Ordering::Relaxed).checked_sub(1).map(|tag| tag as u32)
    }

    /// Has an object that comes back looked at by the user.
    pub(crate) fn inspect(&self, object: *mut u8) {
        if self.life.validate.as_ref().is_some_and(|validate| !validate(object)) {
            self.report_invalid(object);
        }
    }
}
