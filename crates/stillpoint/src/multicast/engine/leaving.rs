//! A thread that ends with a registration that was forgotten leaves nevertheless: nobody waits for it.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::Arc;

use super::slots::Slot;
use super::Core;
use crate::multicast::transport::Transport;

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

/// What is left of a thread in a group.
struct Left {
    core: Arc<dyn Leave>,
    slot: NonNull<Slot>,
}

trait Leave {
    fn leave_for_good(&self, slot: NonNull<Slot>);
}

impl<T: Transport> Leave for Core<T> {
    fn leave_for_good(&self, slot: NonNull<Slot>) {
        // SAFETY: places live as long as their group, which the caller holds.
        let slot = unsafe { slot.as_ref() };
        if slot.is_of(crate::sys::thread_handle()) {
            slot.set_joins(1);
            self.leave(slot);
        }
    }
}

/// What the thread is registered with.
struct Registered(RefCell<Vec<Left>>);

impl Drop for Registered {
    fn drop(&mut self) {
        // First: what the thread does from here on no multicast reaches.
        HAS_LEFT.set(true);
        for left in self.0.take() {
            left.core.leave_for_good(left.slot);
        }
    }
}

std::thread_local! {
    static REGISTERED: Registered = const { Registered(RefCell::new(Vec::new())) };
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
        let mut registered = registered.0.borrow_mut();
        if registered.iter().all(|left| left.slot != slot) {
            registered.push(Left { core: Arc::clone(core) as Arc<dyn Leave>, slot });
        }
    });
}

/// The thread has left.
fn forget(slot: NonNull<Slot>) {
    let left = REGISTERED.try_with(|registered| {
        let mut registered = registered.0.borrow_mut();
        let at = registered.iter().position(|left| left.slot == slot)?;
        Some(registered.swap_remove(at))
    });
    // Outside the borrow: it may be the last that holds the group, and what that owns.
    drop(left);
}
