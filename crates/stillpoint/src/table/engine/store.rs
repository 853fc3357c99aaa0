//! The memory of a table's entries. It outlives the table if a removed entry still waits in another queue.

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
    /// The context that a table's drop passes to [`Garbage::is_of`].
    pub(crate) fn context(&self) -> *const () {
        ptr::from_ref(self).cast()
    }

    /// An entry for one of the table's own retire lists, which the table's drop empties.
    ///
    /// # Safety
    /// The entry is unlinked, and the caller owns it. Its parts are `Send + Sync + 'static`.
    pub(crate) unsafe fn entry(&self, entry: u32) -> Garbage {
        // SAFETY: the entry is unlinked, the caller owns it, and any thread may drop it, by the caller's promise. The
        // store lives as long as the table, whose drop frees what is left.
        unsafe {
            Garbage::in_context(self.arena.pair(entry).cast(), Self::BYTES, self.context(), destroy::<K, V>)
        }
    }

    /// An entry for a retire list that may outlive the table: it keeps the store alive.
    ///
    /// # Safety
    /// As for [`entry`](Store::entry).
    pub(crate) unsafe fn entry_counted(self: &Arc<Self>, entry: u32) -> Garbage {
        let object = self.arena.pair(entry).cast();
        let context = Arc::into_raw(Arc::clone(self)).cast();
        // SAFETY: the entry is unlinked, the caller owns it, and any thread may drop it, by the caller's promise. The
        // reference count keeps the store alive until `destroy_counted`.
        unsafe { Garbage::in_context(object, Self::BYTES, context, destroy_counted::<K, V>) }
    }

    /// Size of an entry.
    pub(crate) const BYTES: usize = size_of::<Pair<K, V>>();

    /// The buckets of an array, for one of the table's own retire lists. Readers pin them by the address of the array.
    ///
    /// # Safety
    /// Every stripe has left the array, and it is retired once. It stays as long as the table.
    pub(crate) unsafe fn array(&self, array: &Array) -> Garbage {
        let destroy = scrap_array::<K, V>;
        // SAFETY: the array is alive when `destroy` makes a shared reference of its address, by the caller's promise.
        // The store is alive, too, as in `entry`.
        unsafe {
            Garbage::in_context(NonNull::from(array).cast(), size_of::<Array>(), self.context(), destroy)
        }
    }
}

/// Drops the pair of an entry, and frees its slot.
///
/// # Safety
/// `object` is the pair in a slot of the store `context`, and only the caller has it.
pub(crate) unsafe extern "C-unwind" fn destroy<K, V>(object: NonNull<()>, context: *const ()) {
    struct FreeSlot<'a, K, V>(&'a Arena<K, V>, u32);

    impl<K, V> Drop for FreeSlot<'_, K, V> {
        fn drop(&mut self) {
            // SAFETY: the pair was dropped, even if its destructor panicked, and only the caller has the slot.
            unsafe { self.0.free(self.1, hint()) };
        }
    }

    // SAFETY: the context is a store that is alive, by the caller's promise.
    let arena = unsafe { &(*context.cast::<Store<K, V>>()).arena };
    let pair = object.cast::<Pair<K, V>>();
    let _slot = FreeSlot(arena, arena.index_of(pair));
    // SAFETY: only the caller has the pair, by its promise, and an entry that was linked holds a pair.
    unsafe { ptr::drop_in_place(pair.as_ptr()) };
}

/// # Safety
/// As for [`destroy`]. `context` has a reference count that this call gives up.
unsafe extern "C-unwind" fn destroy_counted<K, V>(object: NonNull<()>, context: *const ()) {
    // Dropped after the pair, even if the pair's drop panics. SAFETY: the context has a reference count that this call
    // gives up, by the caller's promise.
    let store = unsafe { Arc::from_raw(context.cast::<Store<K, V>>()) };
    // SAFETY: the object is the pair in a slot of this store, and only the caller has it, by its promise.
    unsafe { destroy::<K, V>(object, Arc::as_ptr(&store).cast()) };
}

/// # Safety
/// `object` is an array whose buckets no thread uses any more, and is passed once. `context` is a store. Both are
/// alive.
unsafe extern "C-unwind" fn scrap_array<K, V>(object: NonNull<()>, context: *const ()) {
    // SAFETY: both are alive, by the caller's promise.
    let (array, store) = unsafe { (object.cast::<Array>().as_ref(), &*context.cast::<Store<K, V>>()) };
    #[cfg(stillpoint_loom)]
    {
        array.end();
        if crate::table::busted::is(crate::table::busted::Variant::NextNotPinned) {
            // The memory stays until the table's drop, so that a late reader is reported by the witness, not by another
            // failure.
            return;
        }
    }
    // SAFETY: no thread uses the buckets any more, and this is the only call for this array.
    store.scrap.put(unsafe { array.take_slabs() });
}
