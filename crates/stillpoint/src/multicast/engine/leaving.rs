//! A thread that ends with a registration that was forgotten leaves nevertheless: nobody waits for it.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::Arc;

use super::slots::Slot;
use super::Core;
use crate::multicast::transport::Transport;
use stillpoint_sys::sync::atomic::{AtomicU32, Ordering};

/// A thread's registration in a group, counted.
#[derive(Debug)]
pub(crate) struct Registration<T: Transport> {
    core: Arc<Core<T>>,
    /// The calling thread's: so this is neither `Send` nor `Sync`.
    slot: NonNull<Slot>,
}

impl<T: Transport> Registration<T> {
    /// Registers the calling thread; `None` when that ends and has left already, so that it would never leave again.
    pub(crate) fn new(core: &Arc<Core<T>>) -> Option<Self> {
        can_remember().then(|| {
            let slot = core.join();
            remember(core, slot);
            Self { core: Arc::clone(core), slot }
        })
    }

    pub(crate) fn core(&self) -> &Core<T> {
        &self.core
    }

    pub(crate) fn slot(&self) -> &Slot {
        // SAFETY: places live as long as their group, which this value holds.
        unsafe { self.slot.as_ref() }
    }
}

impl<T: Transport> Drop for Registration<T> {
    fn drop(&mut self) {
        if self.core.leave(self.slot()) {
            forget(self.slot);
        }
    }
}

/// How a thread ends what it has left in a group.
trait Leave {
    fn leave_for_good(&self, slot: NonNull<Slot>);
}

impl<T: Transport> Leave for Core<T> {
    fn leave_for_good(&self, slot: NonNull<Slot>) {
        // SAFETY: places live as long as their group, which the caller holds.
        let slot = unsafe { slot.as_ref() };
        if slot.is_of(stillpoint_sys::linux::thread_number()) {
            slot.set_joins(1);
            self.leave(slot);
        }
    }
}

/// What is to be done when the thread ends.
struct Registered {
    /// What it is registered with.
    places: RefCell<Sorted<NonNull<Slot>, Arc<dyn Leave>>>,
    /// In which words bits are to be set, and which.
    words: RefCell<Sorted<NonNull<AtomicU32>, u32>>,
}

/// Values by their keys, of which most threads have one or two: without an allocation each time that there is one.
struct Sorted<K, V>(Vec<(K, V)>);

impl<K: Ord, V> Sorted<K, V> {
    fn find(&self, key: &K) -> Result<usize, usize> {
        self.0.binary_search_by(|(one, _)| one.cmp(key))
    }

    /// Adds a value unless there is one.
    fn insert(&mut self, key: K, value: impl FnOnce() -> V) {
        if let Err(place) = self.find(&key) {
            self.0.insert(place, (key, value()));
        }
    }

    fn remove(&mut self, key: &K) -> Option<V> {
        self.find(key).ok().map(|place| self.0.remove(place).1)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // First, both: what the thread does from here on no multicast reaches.
        HAS_LEFT.set(true);
        for (word, bits) in std::mem::take(&mut self.words.get_mut().0) {
            // SAFETY: alive, as `tell_when_left` asks for, since it was not taken back.
            // Relaxed: for the calling thread.
            unsafe { word.as_ref() }.fetch_or(bits, Ordering::Relaxed);
        }
        let places = std::mem::take(&mut self.places.get_mut().0);
        for (slot, core) in places {
            core.leave_for_good(slot);
        }
    }
}

/// Sets these bits of a word when the calling thread leaves every group for good, unless that is
/// [taken back](forget_to_tell) before. For who relies on being reached.
///
/// # Safety
/// The word is alive until that is taken back, on this thread, or for ever.
#[cfg(not(any(loom, miri)))]
pub(crate) unsafe fn tell_when_left(word: &AtomicU32, bits: u32) {
    let _ =
        REGISTERED.try_with(|registered| registered.words.borrow_mut().insert(NonNull::from(word), || bits));
}

/// Takes [`tell_when_left`] back.
#[cfg(not(any(loom, miri)))]
pub(crate) fn forget_to_tell(word: &AtomicU32) {
    let _ = REGISTERED.try_with(|registered| registered.words.borrow_mut().remove(&NonNull::from(word)));
}

std::thread_local! {
    static REGISTERED: Registered = const {
        Registered { places: RefCell::new(Sorted(Vec::new())), words: RefCell::new(Sorted(Vec::new())) }
    };
    /// Without a destructor: it can be looked at to the end.
    static HAS_LEFT: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread ends and has left every group for good. Values that were registered before may be alive in
/// its thread-local storage: what they do is reached by nobody.
#[inline(always)]
#[cfg(not(any(loom, miri)))]
pub(crate) fn has_left() -> bool {
    HAS_LEFT.get()
}

/// Whether it can be written down that the thread is to leave: not when it ends, and has done so already.
fn can_remember() -> bool {
    cfg!(loom) || REGISTERED.try_with(|_| ()).is_ok()
}

/// Writes down that the thread is to leave when it ends. Not in a model.
fn remember<T: Transport>(core: &Arc<Core<T>>, slot: NonNull<Slot>) {
    if cfg!(loom) {
        return;
    }
    let _ = REGISTERED.try_with(|registered| {
        registered.places.borrow_mut().insert(slot, || Arc::clone(core) as Arc<dyn Leave>);
    });
}

/// The thread has left.
fn forget(slot: NonNull<Slot>) {
    let left = REGISTERED.try_with(|registered| registered.places.borrow_mut().remove(&slot));
    // Outside the borrow: it may be the last that holds the group, and what that owns.
    drop(left);
}
