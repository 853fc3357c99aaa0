use std::mem::offset_of;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::Delays;

/// An element of the array. It is one cache line, with room for a peer's callback head; its body is a separate allocation.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Element {
    key: u64,
    value: AtomicU64,
    unlinked_at: AtomicU64,
    delays: &'static Delays,
    /// `struct rcu_head` of liburcu, `ck_epoch_entry_t` of Concurrency Kit. Only C code touches it.
    head: [usize; 2],
    /// The body; empty if the element needs none. Every word has the same value.
    body: Box<[AtomicU64]>,
}

// `struct element` in c/peer.h has the same layout.
const _: () = {
    assert!(size_of::<Element>() == 64);
    assert!(offset_of!(Element, key) == 0);
    assert!(offset_of!(Element, value) == 8);
    assert!(offset_of!(Element, head) == 32);
};

impl Element {
    const POISON: u64 = 0xdead_dead_dead_dead;

    /// A new element for index `key`. If it was stamped, its delay goes to `delays` when it is dropped.
    pub fn new(key: u64, delays: &'static Delays) -> Self {
        Self::with_body(key, 0, delays)
    }

    /// As [`new`](Element::new), with a body of `words` words of 8 bytes.
    pub fn with_body(key: u64, words: usize, delays: &'static Delays) -> Self {
        let word = Self::word(key);
        let body = (0..words).map(|_| AtomicU64::new(word)).collect();
        Self { key, value: AtomicU64::new(key), unlinked_at: AtomicU64::new(0), delays, head: [0; 2], body }
    }

    /// The value of each word in the body of an element of this key.
    fn word(key: u64) -> u64 {
        key ^ 0x5151_5151_5151_5151
    }

    /// Bytes of an element with a body of `words` words, without the allocator's overhead.
    pub const fn bytes_with_body(words: usize) -> usize {
        size_of::<Self>() + words * size_of::<u64>()
    }

    /// Whether the element is alive and belongs to index `key`.
    #[inline(always)]
    pub fn holds(&self, key: u64) -> bool {
        // Relaxed: both fields are plain data here. A freed element is an error, in whatever order the fields are read.
        self.key == key && self.value.load(Ordering::Relaxed) == key
    }

    /// [`holds`](Element::holds), with a check of every word of the body.
    pub fn is_whole(&self, key: u64) -> bool {
        let word = Self::word(key);
        // Relaxed: as in `holds`.
        self.body.iter().all(|found| found.load(Ordering::Relaxed) == word) && self.holds(key)
    }

    /// [`holds`](Element::holds), with a check of the first and the last word of the body, which the destructor poisons.
    pub fn ends_hold(&self, key: u64) -> bool {
        let word = Self::word(key);
        let mut ends = [self.body.first(), self.body.last()].into_iter().flatten();
        // Relaxed: as in `holds`.
        ends.all(|found| found.load(Ordering::Relaxed) == word) && self.holds(key)
    }

    /// Makes the element look freed.
    pub fn poison(&self) {
        // Stores through atomics, so that they are not removed as dead: a reader that still holds the element must see them.
        self.value.store(Self::POISON, Ordering::Relaxed);
        for word in [self.body.first(), self.body.last()].into_iter().flatten() {
            word.store(Self::POISON, Ordering::Relaxed);
        }
    }

    /// Records that the element has just been unlinked.
    #[inline]
    pub fn stamp_unlinked(&self) {
        // Relaxed: the reclamation scheme orders this before the drop.
        self.unlinked_at.store(self.delays.stamp(), Ordering::Relaxed);
    }
}

#[cfg(any(peer_urcu, peer_ck))]
impl Element {
    /// The element whose callback head this is.
    ///
    /// # Safety
    /// `head` is the callback head of an element, and was made from a pointer to that element.
    pub(crate) unsafe fn of_head(head: *mut std::ffi::c_void) -> *mut Self {
        // SAFETY: the head lies inside the element.
        unsafe { head.byte_sub(offset_of!(Self, head)).cast() }
    }
}

/// How the elements of a run of the experiment are made.
#[derive(Debug, Clone, Copy)]
pub struct Recipe {
    /// Words of 8 bytes in the body of each.
    pub words: usize,
    /// The record of their delays.
    pub delays: &'static Delays,
}

impl Recipe {
    /// A recipe for elements without bodies.
    pub fn plain(delays: &'static Delays) -> Self {
        Self { words: 0, delays }
    }

    /// A new element for index `key`.
    pub fn element(&self, key: u64) -> Element {
        Element::with_body(key, self.words, self.delays)
    }
}

/// Poisons the element and its body, and records its delete-to-free delay, if it was ever unlinked.
impl Drop for Element {
    fn drop(&mut self) {
        let unlinked_at = *self.unlinked_at.get_mut();
        if unlinked_at != 0 {
            self.delays.record_freed(unlinked_at, Self::bytes_with_body(self.body.len()));
        }
        self.poison();
    }
}

/// An array of atomic pointers to elements, which the array owns. The peers read and write it.
#[derive(Debug)]
pub struct Slots {
    slots: Box<[AtomicPtr<Element>]>,
    recipe: Recipe,
}

impl Slots {
    /// An array of `len` elements without bodies, each in its own allocation; `len` must be a power of two.
    ///
    /// # Panics
    /// If `len` is not a power of two.
    pub fn new(len: usize, delays: &'static Delays) -> Self {
        Self::made_by(len, Recipe::plain(delays))
    }

    /// The same with elements that are made by `recipe`.
    ///
    /// # Panics
    /// If `len` is not a power of two.
    pub fn made_by(len: usize, recipe: Recipe) -> Self {
        assert!(len.is_power_of_two(), "the number of elements must be a power of two");
        let element = |key| Box::into_raw(Box::new(recipe.element(key)));
        Self { slots: (0..len as u64).map(|key| AtomicPtr::new(element(key))).collect(), recipe }
    }

    /// An array of `len` empty slots; `len` must be a power of two. Lookups in sections may find empty slots, other lookups must not.
    ///
    /// # Panics
    /// If `len` is not a power of two.
    pub fn empty(len: usize, delays: &'static Delays) -> Self {
        assert!(len.is_power_of_two(), "the number of elements must be a power of two");
        let slots = (0..len).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        Self { slots, recipe: Recipe::plain(delays) }
    }

    /// How new elements are made.
    #[cfg(peer_urcu)]
    pub(crate) fn recipe(&self) -> Recipe {
        self.recipe
    }

    /// The slots themselves.
    pub fn as_slice(&self) -> &[AtomicPtr<Element>] {
        &self.slots
    }

    /// Links a new element at `index` and returns the old one, stamped. The caller frees it with
    /// `drop(Box::from_raw(old))` (or [`free_element`] from C) once no reader can hold it.
    ///
    /// # Panics
    /// If the slot was empty.
    pub fn replace(&self, index: usize) -> *mut Element {
        let new = Box::new(self.recipe.element(index as u64));
        self.publish(index, Some(new)).expect("the slot holds an element")
    }

    /// As [`replace`](Slots::replace), with a given element or none; `None` if the slot was empty.
    pub fn publish(&self, index: usize, new: Option<Box<Element>>) -> Option<*mut Element> {
        let new = new.map_or(ptr::null_mut(), Box::into_raw);
        // AcqRel: publishes `new` to the readers' acquire loads, and receives `old` from the thread that linked it.
        let old = NonNull::new(self.slots[index].swap(new, Ordering::AcqRel))?;
        // SAFETY: `old` was linked until now, and only this caller frees it, later.
        unsafe { old.as_ref().stamp_unlinked() };
        Some(old.as_ptr())
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        for slot in &mut self.slots {
            let element = *slot.get_mut();
            if !element.is_null() {
                // SAFETY: every slot owns its element, which came from a `Box`; no reader is left, because `self` is exclusive.
                drop(unsafe { Box::from_raw(element) });
            }
        }
    }
}

/// Frees an element on behalf of a peer written in C.
///
/// # Safety
/// `element` came from [`Slots::replace`] or [`Slots::publish`], is freed once, and no reader can hold it any more.
pub unsafe extern "C" fn free_element(element: *mut Element) {
    // SAFETY: the element is from a box, is freed once, and no reader holds it, by the caller's promise.
    drop(unsafe { Box::from_raw(element) });
}

/// Frees the element whose callback head a peer written in C passes to its callback.
///
/// # Safety
/// As for [`free_element`], with a pointer to the element's head that was made from a pointer to the element.
#[cfg(any(peer_urcu, peer_ck))]
pub(crate) unsafe extern "C" fn free_by_head(head: *mut std::ffi::c_void) {
    // SAFETY: the head is that of an element that may be freed, by the caller's promise.
    unsafe { free_element(Element::of_head(head)) };
}
