//! Access to a table that is not shared: its owner has it by value, or by `&mut`.

use std::ptr::NonNull;

use super::arena::Pair;
use super::array::Array;
use super::bucket::{Bucket, NO_ENTRY, SLOTS};
use super::{hint, Inner};
use stillpoint_sys::sync::atomic::Ordering;

/// Goes through the entries of a table, array by array. An index is in only one word at a time, even in the middle of a
/// growth.
#[derive(Debug)]
pub(crate) struct Cursor {
    /// Begins at `Inner::current`: the arrays before have no entries. Null after the last one.
    array: *const Array,
    bucket: usize,
    slot: usize,
}

// SAFETY: a cursor points to arrays, which are `Sync`. The contracts of its unsafe methods say when it may be used.
unsafe impl Send for Cursor {}
// SAFETY: a shared cursor gives access to nothing: it has no methods for a shared reference.
unsafe impl Sync for Cursor {}

impl Cursor {
    pub(crate) fn new<K, V, S>(inner: &Inner<K, V, S>) -> Self {
        // Relaxed: the caller has synchronized with all threads that used the table.
        Self { array: inner.current.load(Ordering::Relaxed), bucket: 0, slot: 0 }
    }

    /// The next entry: its bucket, slot and index.
    ///
    /// # Safety
    /// The table still exists, and no other thread uses it.
    unsafe fn next(&mut self) -> Option<(&Bucket, usize, u32)> {
        loop {
            // SAFETY: every array stays as long as the table.
            let array = unsafe { self.array.as_ref() }?;
            if self.bucket == array.total() {
                *self = Self { array: array.next_raw(), bucket: 0, slot: 0 };
                continue;
            }
            let (bucket, slot) = (array.nth(self.bucket), self.slot);
            self.slot += 1;
            if self.slot == SLOTS {
                (self.bucket, self.slot) = (self.bucket + 1, 0);
            }
            let entry = bucket.entry(slot);
            if entry != NO_ENTRY {
                return Some((bucket, slot, entry));
            }
        }
    }

    /// The pair of the next entry; returns each pair once.
    ///
    /// # Safety
    /// As for [`take`](Cursor::take).
    pub(crate) unsafe fn next_pair<K, V, S>(
        &mut self,
        inner: &Inner<K, V, S>,
    ) -> Option<NonNull<Pair<K, V>>> {
        // SAFETY: the cursor was made for this table, and no other thread uses it, by the caller's promise. The table
        // is borrowed, so it still exists.
        let (_, _, entry) = unsafe { self.next() }?;
        Some(inner.arena().pair(entry))
    }

    /// Unlinks the next entry, and returns its pair.
    ///
    /// # Safety
    /// The cursor was made for this table. No other thread uses the table, and no reader holds an entry.
    pub(crate) unsafe fn take<K, V, S>(&mut self, inner: &Inner<K, V, S>) -> Option<(K, V)> {
        // SAFETY: the cursor was made for this table, and no other thread uses it, by the caller's promise. The table
        // is borrowed, so it still exists.
        let (bucket, slot, entry) = unsafe { self.next() }?;
        bucket.unlink_entry(slot);
        // SAFETY: the entry was just unlinked, once, and no reader holds it.
        Some(unsafe { inner.take_pair(entry) })
    }
}

impl<K, V, S> Inner<K, V, S> {
    /// Moves the pair of an entry out, and frees its slot.
    ///
    /// # Safety
    /// The entry is unlinked, the caller owns it, and no reader can hold it any more.
    pub(crate) unsafe fn take_pair(&self, entry: u32) -> (K, V) {
        // SAFETY: the caller owns the entry, which no reader can hold, by the caller's promise. The pair is moved out
        // once; its slot is then freed.
        let pair = unsafe { self.arena().pair(entry).read() };
        // SAFETY: the pair was moved out, and only the caller has the slot, by its promise.
        unsafe { self.arena().free(entry, hint()) };
        (pair.key, pair.value)
    }
}
