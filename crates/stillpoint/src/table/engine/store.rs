//! The memory of a table's entries, and its arrays. It outlives the table while a removed entry waits on a shelf that another thread
//! serves, or in another queue.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::arena::{Arena, Pair};
use super::array::Array;
use super::hint;
use super::scrap::Scrap;
use crate::rcu::engine::core::garbage::Garbage;
use crate::rcu::engine::queue::shelf::Tenant;
use stillpoint_sys::sync::atomic::{AtomicBool, Ordering};

/// What the garbage of a shelf is. Less than the alignment of a store.
#[derive(Clone, Copy)]
enum What {
    Entry = 1,
    Array = 2,
}

/// Aligned, so that [`What`], and the places of a table, can be told apart by addresses in the store.
#[repr(align(8))]
pub(crate) struct Store<K, V> {
    pub(crate) arena: Arena<K, V>,
    pub(crate) scrap: Scrap,
    /// The first array. It comes from a box, as do all later ones; all stay as long as the store.
    pub(crate) first: NonNull<Array>,
    /// Whether the table is gone.
    pub(crate) is_gone: AtomicBool,
}

// SAFETY: the store owns its slots and arrays, which are `Send`.
unsafe impl<K: Send, V: Send> Send for Store<K, V> {}
// SAFETY: slots are shared with readers, and freed by any thread that polls: hence both bounds. Arrays are `Sync`.
unsafe impl<K: Send + Sync, V: Send + Sync> Sync for Store<K, V> {}

impl<K, V> Store<K, V> {
    /// The store of a new table.
    pub(crate) fn new(arena: Arena<K, V>, first: Box<Array>) -> Self {
        let first = NonNull::from(Box::leak(first));
        Self { arena, scrap: Scrap::default(), first, is_gone: AtomicBool::new(false) }
    }

    /// What garbage belongs to that needs the lease of a shelf: the address of the store, and what it is. Never just the address, which
    /// garbage with a reference count of its own belongs to.
    fn context(&self, what: What) -> *const () {
        ptr::from_ref(self).cast::<u8>().wrapping_add(what as usize).cast()
    }

    /// # Safety
    /// The context is from [`context`](Store::context), of a store that is alive during `'a`.
    unsafe fn of<'a>(context: *const (), what: What) -> &'a Self {
        // SAFETY: the pointer was made from the store's, which is alive, by the caller's promise.
        unsafe { &*context.cast::<u8>().wrapping_sub(what as usize).cast::<Self>() }
    }

    /// Drops the pair of an entry, and frees its slot.
    ///
    /// # Safety
    /// It is the pair in a slot of this store, and only the caller has it.
    pub(crate) unsafe fn destroy_entry(&self, pair: NonNull<()>) {
        struct FreeSlot<'a, K, V>(&'a Arena<K, V>, u32);

        impl<K, V> Drop for FreeSlot<'_, K, V> {
            fn drop(&mut self) {
                // SAFETY: the pair was dropped, even if its destructor panicked, and only the caller has the slot.
                unsafe { self.0.free(self.1, hint()) };
            }
        }

        let pair = pair.cast::<Pair<K, V>>();
        let _slot = FreeSlot(&self.arena, self.arena.index_of(pair));
        // SAFETY: only the caller has the pair, by its promise, and an entry that was linked holds a pair.
        unsafe { ptr::drop_in_place(pair.as_ptr()) };
    }

    /// An entry for a shelf of the table.
    ///
    /// # Safety
    /// The entry is unlinked, and the caller owns it. Its parts are `Send + Sync + 'static`.
    pub(crate) unsafe fn entry(&self, entry: u32) -> Garbage {
        // SAFETY: the entry is unlinked, the caller owns it, and any thread may drop it, by the caller's promise. The
        // lease of the shelf keeps the store alive until the entry is freed or detached.
        unsafe {
            let context = self.context(What::Entry);
            Garbage::in_context(self.arena.pair(entry).cast(), Self::BYTES, context, destroy_leased::<K, V>)
        }
    }

    /// An entry for a retire list that may outlive the table: it keeps the store alive.
    ///
    /// # Safety
    /// As for [`entry`](Store::entry).
    pub(crate) unsafe fn entry_counted(self: &Arc<Self>, entry: u32) -> Garbage {
        // SAFETY: the caller owns the entry, by its promise.
        unsafe { Arc::clone(self).counted(self.arena.pair(entry).cast()) }
    }

    /// # Safety
    /// As for [`entry`](Store::entry), with the pair of the entry.
    unsafe fn counted(self: Arc<Self>, pair: NonNull<()>) -> Garbage {
        let context = Arc::into_raw(self).cast();
        // SAFETY: the entry is unlinked, the caller owns it, and any thread may drop it, by the caller's promise. The
        // reference count keeps the store alive until `destroy_counted`.
        unsafe { Garbage::in_context(pair, Self::BYTES, context, destroy_counted::<K, V>) }
    }

    /// Size of an entry.
    pub(crate) const BYTES: usize = size_of::<Pair<K, V>>();

    /// The buckets of an array, for a shelf of the table. Readers pin them by the address of the array.
    ///
    /// # Safety
    /// Every stripe has left the array, and it is retired once.
    pub(crate) unsafe fn array(&self, array: &Array) -> Garbage {
        // SAFETY: the array is alive when `scrap_array` makes a shared reference of its address, since the lease of the shelf keeps
        // the store alive, as for an entry.
        unsafe {
            let object = NonNull::from(array).cast();
            let context = self.context(What::Array);
            Garbage::in_context(object, size_of::<Array>(), context, scrap_array_leased::<K, V>)
        }
    }
}

impl<K: Send + Sync, V: Send + Sync> Tenant for Store<K, V> {
    fn has(&self, garbage: &Garbage) -> bool {
        garbage.is_of(self.context(What::Entry)) || garbage.is_of(self.context(What::Array))
    }

    /// Arrays run no code of the user, and a `TableReader` that is not used pins one.
    fn is_awaited(&self, garbage: &Garbage) -> bool {
        garbage.is_of(self.context(What::Entry))
    }

    fn detach(self: Arc<Self>, garbage: Garbage) -> Garbage {
        if garbage.is_of(self.context(What::Entry)) {
            // SAFETY: the garbage came from `entry`. It is consumed, and the entry is owned by the new one.
            return unsafe { self.counted(garbage.pointer()) };
        }
        let context = Arc::into_raw(self).cast();
        // SAFETY: the garbage came from `array`, and is consumed. The reference count keeps the store alive until
        // `scrap_array_counted`.
        unsafe {
            Garbage::in_context(garbage.pointer(), size_of::<Array>(), context, scrap_array_counted::<K, V>)
        }
    }

    fn is_gone(&self) -> bool {
        // Acquire: pairs with the release in the table's drop.
        self.is_gone.load(Ordering::Acquire)
    }
}

impl<K, V> Drop for Store<K, V> {
    fn drop(&mut self) {
        let mut next = self.first.as_ptr();
        while !next.is_null() {
            // SAFETY: this is a pointer that `Box::leak` or `Box::into_raw` returned for the array. It is made a box only here, and
            // nothing refers to an array any more: neither the table nor a garbage of this store is left.
            let array = unsafe { Box::from_raw(next) };
            next = array.next_raw();
        }
    }
}

/// # Safety
/// As for [`Store::destroy_entry`], with the context of a leased entry.
unsafe extern "C-unwind" fn destroy_leased<K, V>(object: NonNull<()>, context: *const ()) {
    // SAFETY: the lease of the shelf keeps the store alive.
    let store = unsafe { Store::<K, V>::of(context, What::Entry) };
    // SAFETY: the object is the pair in a slot of this store, and only the caller has it, by its promise.
    unsafe { store.destroy_entry(object) };
}

/// # Safety
/// As for [`Store::destroy_entry`]. `context` is the store, and has a reference count that this call gives up.
unsafe extern "C-unwind" fn destroy_counted<K, V>(object: NonNull<()>, context: *const ()) {
    // Dropped after the pair, even if the pair's drop panics. SAFETY: the context has a reference count that this call
    // gives up, by the caller's promise.
    let store = unsafe { Arc::from_raw(context.cast::<Store<K, V>>()) };
    // SAFETY: the object is the pair in a slot of this store, and only the caller has it, by its promise.
    unsafe { store.destroy_entry(object) };
}

/// # Safety
/// `object` is an array of the store, whose buckets no thread uses any more, and is passed once.
unsafe fn scrap_array<K, V>(store: &Store<K, V>, object: NonNull<()>) {
    // SAFETY: arrays live as long as their store.
    let array = unsafe { object.cast::<Array>().as_ref() };
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

/// # Safety
/// As for [`scrap_array`], with the context of a leased array.
unsafe extern "C-unwind" fn scrap_array_leased<K, V>(object: NonNull<()>, context: *const ()) {
    // SAFETY: the lease of the shelf keeps the store alive, and the array is its own, by the caller's promise.
    unsafe { scrap_array(Store::<K, V>::of(context, What::Array), object) };
}

/// # Safety
/// As for [`scrap_array`], but `context` is the store. It has a reference count that this call gives up.
unsafe extern "C-unwind" fn scrap_array_counted<K, V>(object: NonNull<()>, context: *const ()) {
    // SAFETY: the context has a reference count that this call gives up, by the caller's promise.
    let store = unsafe { Arc::from_raw(context.cast::<Store<K, V>>()) };
    // SAFETY: the array belongs to this store, and is passed once, by the caller's promise.
    unsafe { scrap_array(&*store, object) };
}
