//! Finds a domain for objects that keep neither the domain nor its memory alive.
//!
//! An unlinked object names its domain by a number that is never reused, and by the domain's entry here. An entry lives for
//! ever, and serves one domain after the other. So naming a domain copies two words. Finding it takes two operations on its
//! entry, and is meant for rare paths.
//!
//! ```text
//!            begin                     end                       no thread looks any more
//!   free -----------------> listed ----------> ENDED, looked at --------------------------> ENDED | CLEARED: free
//! ```
//!
//! The argument is in `docs/design/rcu.md`.

#[cfg(not(stillpoint_loom))]
use std::cell::Cell;
use std::fmt;
#[cfg(not(stillpoint_loom))]
use std::mem::offset_of;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

#[cfg(not(stillpoint_loom))]
use super::core::registry::{Claim, Registry};
use super::Core;
use crate::busted::{self, Variant};
use crate::rcu::orders;
#[cfg(stillpoint_loom)]
use stillpoint_sys::sync::atomic::AtomicBool;
use stillpoint_sys::sync::atomic::{fence, AtomicU64, Ordering};
use stillpoint_sys::sync::UnsafeCell;

/// The domain has ended: no look begins.
const ENDED: u64 = 1 << 63;
/// A thread has cleared the entry, or is about to.
const CLEARED: u64 = 1 << 62;

/// A place for one domain at a time.
pub(crate) struct Entry {
    /// The number of threads that look at what is listed, and above it the bits [`ENDED`] and [`CLEARED`].
    word: AtomicU64,
    /// Written by the thread that lists and by the thread that clears.
    listed: UnsafeCell<Option<Listed>>,
    #[cfg(not(stillpoint_loom))]
    claim: Cell<Option<Claim<Entry>>>,
    /// In models: replaces the claim.
    #[cfg(stillpoint_loom)]
    is_free: AtomicBool,
}

/// A domain, as long as it has a handle.
struct Listed {
    number: u64,
    /// From `Weak::into_raw`.
    core: NonNull<Core>,
}

// SAFETY: the cells are accessed as their comments say. Any thread may use and drop what they hold.
unsafe impl Send for Entry {}
// SAFETY: threads share the word, which is atomic, and the cells that it guards.
unsafe impl Sync for Entry {}

impl Default for Entry {
    fn default() -> Self {
        Self {
            word: AtomicU64::new(ENDED | CLEARED),
            listed: UnsafeCell::new(None),
            #[cfg(not(stillpoint_loom))]
            claim: Cell::new(None),
            #[cfg(stillpoint_loom)]
            is_free: AtomicBool::new(true),
        }
    }
}

#[cfg(not(stillpoint_loom))]
pub(super) static ENTRIES: Registry<Entry> = Registry::new();

#[cfg(not(stillpoint_loom))]
impl Entry {
    /// For debuggers. What is listed begins where the option does, since its address is never null.
    pub(super) const LAYOUT: [usize; 2] =
        [offset_of!(Self, word), offset_of!(Self, listed) + offset_of!(Listed, core)];
}

#[cfg(not(stillpoint_loom))]
const _: () = assert!(size_of::<Option<Listed>>() == size_of::<Listed>());

impl Entry {
    /// A free entry, which belongs to the caller.
    #[cfg(not(stillpoint_loom))]
    fn claim() -> &'static Self {
        let claim = ENTRIES.claim();
        // SAFETY: the registry lives for ever.
        let entry: &'static Self = unsafe { claim.slot() };
        entry.claim.set(Some(claim));
        entry
    }

    /// In a model, each domain has its own entry.
    #[cfg(stillpoint_loom)]
    fn claim() -> &'static Self {
        Box::leak(Box::default())
    }

    /// Lists a domain.
    ///
    /// # Safety
    /// The entry is free, and belongs to the caller.
    pub(crate) unsafe fn begin(&self, number: u64, core: &Arc<Core>) {
        let core = NonNull::new(Arc::downgrade(core).into_raw().cast_mut()).expect("it is in an `Arc`");
        // SAFETY: no thread looks before the bits are cleared below.
        self.listed.with_mut(|listed| unsafe { *listed = Some(Listed { number, core }) });
        self.word.fetch_and(!(ENDED | CLEARED), orders::list());
    }

    /// The domain with this number, unless its last handle is gone. If it is gone, everything that was done through its handles
    /// happens before the return.
    pub(crate) fn find(&self, number: u64) -> Option<Arc<Core>> {
        self.look(|listed| listed.number == number)
    }

    /// As [`find`](Entry::find), for the domain that is listed now.
    fn look(&self, is_meant: impl FnOnce(&Listed) -> bool) -> Option<Arc<Core>> {
        let before = self.word.fetch_add(1, orders::look());
        let found = if before & ENDED == 0 || busted::is(Variant::EndedUnseen) {
            // SAFETY: no thread writes while a thread looks.
            self.listed.with(|listed| unsafe { (*listed).as_ref() }.filter(|&it| is_meant(it))?.core())
        } else {
            None
        };
        if self.word.fetch_sub(1, orders::looked()) & ENDED != 0 {
            self.clear();
        }
        if found.is_none() {
            // Acquire: pairs with the release decrement of each handle's drop, if the look has found the core: `upgrade`
            // has read the last decrement, or what followed it in its release sequence, by a relaxed load. What readers did
            // before they dropped their handles happens before what the caller does with an object that no domain looks
            // after.
            fence(Ordering::Acquire);
        }
        found
    }

    /// Marks the domain as ended.
    pub(crate) fn end(&self) {
        self.word.fetch_or(ENDED, orders::end());
        self.clear();
    }

    /// Clears the entry of a domain that has ended, unless a thread looks, or another thread clears it.
    fn clear(&self) {
        let cleared = ENDED | CLEARED;
        if self.word.compare_exchange(ENDED, cleared, orders::clear(), Ordering::Relaxed).is_err() {
            return;
        }
        // SAFETY: no thread looks any more, and the exchange succeeds once.
        let listed = self.listed.with_mut(|listed| unsafe { (*listed).take() });
        // SAFETY: it came from `into_raw`, and is dropped once.
        drop(listed.map(|listed| unsafe { Weak::from_raw(listed.core.as_ptr()) }));
        #[cfg(not(stillpoint_loom))]
        if let Some(claim) = self.claim.take() {
            ENTRIES.release(&claim);
        }
        #[cfg(stillpoint_loom)]
        self.is_free.store(true, Ordering::Release);
    }

    /// Whether another domain may be listed. If so, the entry belongs to the caller.
    #[cfg(stillpoint_loom)]
    pub(crate) fn try_claim(&self) -> bool {
        self.is_free.swap(false, Ordering::Acquire)
    }
}

impl Listed {
    fn core(&self) -> Option<Arc<Core>> {
        // SAFETY: it came from `into_raw`, and is not dropped here.
        ManuallyDrop::new(unsafe { Weak::from_raw(self.core.as_ptr()) }).upgrade()
    }
}

/// Every domain of the process that has a handle when the iterator passes it.
#[cfg(not(stillpoint_loom))]
pub(crate) fn all() -> impl Iterator<Item = Arc<Core>> {
    ENTRIES.iter().filter_map(|entry| entry.look(|_| true))
}

/// How an object names its domain.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    entry: &'static Entry,
    number: u64,
}

impl Name {
    /// For debuggers.
    #[cfg(not(stillpoint_loom))]
    pub(super) const NUMBER: usize = offset_of!(Self, number);

    /// A new, unique name with a free entry.
    pub(super) fn new(number: u64) -> Self {
        Self { entry: Entry::claim(), number }
    }

    /// Makes the domain findable by this name.
    pub(super) fn list(&self, core: &Arc<Core>) {
        // SAFETY: `new` claimed the entry, and only the thread that makes the domain lists it, once.
        unsafe { self.entry.begin(self.number, core) };
    }

    /// Makes the domain unfindable. Called by the drop of the domain.
    pub(super) fn unlist(&self) {
        self.entry.end();
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    #[inline(always)]
    pub(crate) fn is(&self, core: &Core) -> bool {
        self.number == core.id()
    }

    /// The domain, unless its last handle is gone.
    pub(crate) fn core(&self) -> Option<Arc<Core>> {
        self.entry.find(self.number)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.core() {
            Some(core) => f.write_str(core.name()),
            None => f.write_str("(its last handle was dropped)"),
        }
    }
}
