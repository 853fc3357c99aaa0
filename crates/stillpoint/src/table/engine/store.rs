//! What outlives a table when something that was removed from it waits elsewhere: the memory of its entries.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::arena::{Arena, Pair};
use super::array::Array;
use super::hint;
use super::scrap::Scrap;
use crate::rcu::engine::core::garbage::Garbage;

pub(crate) struct Store<K, V> {
    pub(crate) arena: Arena<K, V>,
    pub(crate) scrap: Scrap,
}

impl<K, V> Store<K, V> {
    /// What [`Garbage::is_of`] is asked about by the table that goes.
    pub(crate) fn context(&self) -> *const () {
        ptr::from_ref(self).cast()
    }

    /// An entry for a retire list of the table's own, which the table's drop empties.
    ///
    /// # Safety
    /// The entry is unlinked, and the caller's; its parts are `Send + Sync + 'static`.
    pub(crate) unsafe fn entry(&self, entry: u32) -> Garbage {
        // SAFETY: the caller's promise; the store is alive as long as the table, which takes back what is left.
        unsafe {
            Garbage::in_context(self.arena.pair(entry).cast(), Self::BYTES, self.context(), destroy::<K, V>)
        }
    }

    /// An entry for a retire list that may outlive the table: it keeps the store.
    ///
    /// # Safety
    /// As for [`entry`](Store::entry).
    pub(crate) unsafe fn entry_counted(self: &Arc<Self>, entry: u32) -> Garbage {
        let object = self.arena.pair(entry).cast();
        let context = Arc::into_raw(Arc::clone(self)).cast();
        // SAFETY: the caller's promise; the store is counted until `destroy_counted`.
        unsafe { Garbage::in_context(object, Self::BYTES, context, destroy_counted::<K, V>) }
    }

    /// Size of an entry.
    pub(crate) const BYTES: usize = size_of::<Pair<K, V>>();

    /// The buckets of an array for a retire list of the table's own. Readers pin them by the address of the array.
    ///
    /// # Safety
    /// The array is outgrown, and retired once; it stays as long as the table.
    pub(crate) unsafe fn array(&self, array: &Array) -> Garbage {
        let destroy = scrap_array::<K, V>;
        // SAFETY: the array is alive when `destroy` is called, by the caller's promise: a shared reference is made of the
        // address then. The store is alive, too, as in `entry`.
        unsafe {
            Garbage::in_context(NonNull::from(array).cast(), size_of::<Array>(), self.context(), destroy)
        }
    }
}

/// Drops the pair of an entry and gives its slot back.
///
/// # Safety
/// `object` is the pair of a slot of the store `context`, and the caller's alone.
pub(crate) unsafe extern "C-unwind" fn destroy<K, V>(object: NonNull<()>, context: *const ()) {
    struct FreeSlot<'a, K, V>(&'a Arena<K, V>, u32);

    impl<K, V> Drop for FreeSlot<'_, K, V> {
        fn drop(&mut self) {
            // SAFETY: the pair is gone, also if its drop panicked, and the slot the caller's alone.
            unsafe { self.0.free(self.1, hint()) };
        }
    }

    // SAFETY: the caller's promise.
    let arena = unsafe { &(*context.cast::<Store<K, V>>()).arena };
    let pair = object.cast::<Pair<K, V>>();
    let _slot = FreeSlot(arena, arena.index_of(pair));
    // SAFETY: the caller's promise; an entry that was linked holds a pair.
    unsafe { ptr::drop_in_place(pair.as_ptr()) };
}

/// # Safety
/// As for [`destroy`], with a `context` that was counted for this call.
unsafe extern "C-unwind" fn destroy_counted<K, V>(object: NonNull<()>, context: *const ()) {
    // Dropped after the pair, also when that panics.
    // SAFETY: the caller's promise.
    let store = unsafe { Arc::from_raw(context.cast::<Store<K, V>>()) };
    // SAFETY: the caller's promise.
    unsafe { destroy::<K, V>(object, Arc::as_ptr(&store).cast()) };
}

/// # Safety
/// `object` is an array whose buckets nobody uses any more, and is passed once; `context` is a store. Both are alive.
unsafe extern "C-unwind" fn scrap_array<K, V>(object: NonNull<()>, context: *const ()) {
    // SAFETY: both are alive, by the caller's promise.
    let (array, store) = unsafe { (object.cast::<Array>().as_ref(), &*context.cast::<Store<K, V>>()) };
    #[cfg(loom)]
    {
        array.end();
        if crate::table::busted::is(crate::table::busted::Variant::NextNotPinned) {
            // The memory stays until the table's drop, so that a late reader meets the witness instead of something else.
            return;
        }
    }
    // SAFETY: nobody uses the buckets any more, and this is the one call for this array.
    store.scrap.put(unsafe { array.take_slabs() });
}
