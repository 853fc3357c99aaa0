use std::mem::offset_of;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// One element of the array: one cache line, with room for a peer's callback head.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Element {
    key: u64,
    value: AtomicU64,
    unlinked_at: AtomicU64,
    delays: &'static Delays,
    /// `struct rcu_head` of liburcu, `ck_epoch_entry_t` of Concurrency Kit. Only C code touches it.
    head: [usize; 2],
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

    /// A linked element for index `key`, whose delay goes to `delays` when it is dropped.
    pub fn new(key: u64, delays: &'static Delays) -> Self {
        Self { key, value: AtomicU64::new(key), unlinked_at: AtomicU64::new(0), delays, head: [0; 2] }
    }

    /// Whether the element is alive and is the one of index `key`.
    #[inline(always)]
    pub fn holds(&self, key: u64) -> bool {
        // Relaxed: both fields are plain data here; a freed element is an error whatever the order.
        self.key == key && self.value.load(Ordering::Relaxed) == key
    }

    /// Records that the element has just been unlinked.
    #[inline]
    pub fn stamp_unlinked(&self) {
        // Relaxed: the reclamation scheme orders this before the drop.
        self.unlinked_at.store(self.delays.now().max(1), Ordering::Relaxed);
    }
}

/// Poisons the element and records its delete-to-free delay, if it was ever unlinked.
impl Drop for Element {
    fn drop(&mut self) {
        let unlinked_at = *self.unlinked_at.get_mut();
        if unlinked_at != 0 {
            self.delays.record(self.delays.now() - unlinked_at);
        }
        // A store through the atomic, so that it is not removed as dead: a reader that still looks must see it.
        self.value.store(Self::POISON, Ordering::Relaxed);
    }
}

/// Delays between unlink and free, in nanoseconds, recorded by whichever thread frees.
#[derive(Debug)]
pub struct Delays {
    origin: Instant,
    samples: Box<[AtomicU64]>,
    freed: AtomicUsize,
}

impl Delays {
    /// Room for `capacity` samples; later ones are counted but not kept.
    pub fn new(capacity: usize) -> Self {
        Self {
            origin: Instant::now(),
            samples: (0..capacity).map(|_| AtomicU64::new(0)).collect(),
            freed: AtomicUsize::new(0),
        }
    }

    /// Nanoseconds since this record was made.
    #[inline]
    pub fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    fn record(&self, delay: u64) {
        // Relaxed: each sample has one writer, and `take` is called when the freeing threads are quiet.
        let at = self.freed.fetch_add(1, Ordering::Relaxed);
        if let Some(sample) = self.samples.get(at) {
            sample.store(delay, Ordering::Relaxed);
        }
    }

    /// Number of elements freed since the last [`take`](Delays::take).
    pub fn freed(&self) -> usize {
        // Relaxed: a count for progress and statistics; it orders nothing.
        self.freed.load(Ordering::Relaxed)
    }

    /// Takes all samples and starts afresh. To be called while no element is being freed.
    pub fn take(&self) -> Vec<u64> {
        // Relaxed: whoever waited for the freeing threads has already synchronised with them.
        let count = self.freed.swap(0, Ordering::Relaxed).min(self.samples.len());
        self.samples[..count].iter().map(|sample| sample.load(Ordering::Relaxed)).collect()
    }
}

/// An array of atomic pointers to elements, owned by the array: what the peers read and write.
#[derive(Debug)]
pub struct Slots {
    slots: Box<[AtomicPtr<Element>]>,
    delays: &'static Delays,
}

impl Slots {
    /// An array of `len` elements, each allocated on its own; `len` must be a power of two.
    ///
    /// # Panics
    /// If `len` is not a power of two.
    pub fn new(len: usize, delays: &'static Delays) -> Self {
        assert!(len.is_power_of_two(), "the number of elements must be a power of two");
        let slots = (0..len)
            .map(|key| AtomicPtr::new(Box::into_raw(Box::new(Element::new(key as u64, delays)))))
            .collect();
        Self { slots, delays }
    }

    /// The slots themselves.
    pub fn as_slice(&self) -> &[AtomicPtr<Element>] {
        &self.slots
    }

    /// Links a new element at `index` and returns the old one, stamped. The caller frees it with
    /// `drop(Box::from_raw(old))` (or [`free_element`] from C) once no reader can hold it.
    pub fn replace(&self, index: usize) -> *mut Element {
        let new = Box::into_raw(Box::new(Element::new(index as u64, self.delays)));
        // AcqRel: publishes `new` to the readers' acquire loads, and receives `old` from whoever linked it.
        let old = self.slots[index].swap(new, Ordering::AcqRel);
        // SAFETY: `old` was linked until now and is freed by this caller alone, later.
        unsafe { (*old).stamp_unlinked() };
        old
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        for slot in &mut self.slots {
            // SAFETY: every slot owns its element, allocated by `Box`; no reader is left, as `self` is exclusive.
            drop(unsafe { Box::from_raw(*slot.get_mut()) });
        }
    }
}

/// Frees an element on behalf of a peer written in C.
///
/// # Safety
/// `element` came from [`Slots::replace`], is freed once, and no reader can hold it any more.
pub unsafe extern "C" fn free_element(element: *mut Element) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(element) });
}

/// Frees the element whose callback head a peer written in C passes to its callback.
///
/// # Safety
/// As for [`free_element`], with a pointer to the element's head that was made from a pointer to the element.
#[cfg(any(peer_urcu, peer_ck))]
pub(crate) unsafe extern "C" fn free_by_head(head: *mut std::ffi::c_void) {
    // SAFETY: the caller's promise; the head lies inside the element.
    unsafe { free_element(head.byte_sub(offset_of!(Element, head)).cast()) };
}
