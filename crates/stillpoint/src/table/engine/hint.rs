//! A number that spreads threads over shelves and lists. Every write asks for it. Those that link or unlink also ask whether the
//! thread is in a function whose own writes are [noticed](crate::own_writes).

use super::bucket::NO_ENTRY;
use super::{Inner, Owned};
use crate::{frames, own_writes};

/// The number of the thread: threads made one after the other get different ones. Any value is correct.
#[inline(always)]
pub(crate) fn hint() -> usize {
    // In a model, all threads write to the same shelf.
    if cfg!(stillpoint_loom) {
        1
    } else {
        stillpoint_sys::os::thread_number() as usize
    }
}

/// Whether a function of the calling thread may be watched.
#[inline(always)]
fn may_be_watched() -> bool {
    !cfg!(stillpoint_loom) && !frames::is_empty()
}

impl<K, V, S> Inner<K, V, S> {
    /// How a [`Watch`] names the table.
    pub(super) fn place(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    /// The [`hint`], for a writer that is about to link an entry with this key.
    #[inline(always)]
    pub(super) fn hint_before_link(&self, key: &K) -> usize {
        if may_be_watched() {
            own_writes::announce(self.place(), key);
        }
        hint()
    }

    /// An entry that the caller has just unlinked, and `linked` in its place, unless that is [`NO_ENTRY`].
    #[inline(always)]
    pub(super) fn owned(&self, entry: u32, linked: u32) -> Owned {
        Owned::new(entry, self.hint_after(linked, entry))
    }

    /// The [`hint`], for a writer that has just linked and unlinked these entries; [`NO_ENTRY`] if there is none.
    #[inline(always)]
    pub(super) fn hint_after(&self, linked: u32, unlinked: u32) -> usize {
        if may_be_watched() {
            self.note(linked, unlinked);
        }
        hint()
    }

    #[cold]
    #[inline(never)]
    fn note(&self, linked: u32, unlinked: u32) {
        let number = |entry| (entry != NO_ENTRY).then_some(entry as usize);
        own_writes::note(self.place(), number(linked), number(unlinked));
    }
}
