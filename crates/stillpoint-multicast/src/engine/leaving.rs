//! A thread leaves at its end, even if its registration was forgotten: no multicast waits for it after that.

use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::Arc;

use super::slots::Slot;
use super::Core;
use crate::transport::Transport;

/// A thread's registration in a group, counted.
#[derive(Debug)]
pub(crate) struct Registration<T: Transport> {
    core: Arc<Core<T>>,
    /// The place of the registered thread. Makes this neither `Send` nor `Sync`.
    slot: NonNull<Slot>,
}

impl<T: Transport> Registration<T> {
    /// Registers the calling thread. `None` if the thread is ending and has left already: it would never leave again.
    pub(crate) fn new(core: &Arc<Core<T>>) -> Option<Self> {
        register(core).map(|slot| Self { core: Arc::clone(core), slot })
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

/// How a thread leaves a group at its end.
trait Leave {
    fn leave_for_good(&self, slot: NonNull<Slot>);
}

impl<T: Transport> Leave for Core<T> {
    fn leave_for_good(&self, slot: NonNull<Slot>) {
        // SAFETY: places live as long as their group, which the caller holds.
        let slot = unsafe { slot.as_ref() };
        if slot.is_of(stillpoint_sys::os::thread_number()) {
            self.leave_completely(slot);
        }
    }
}

/// The work at a thread's end, in its destructor.
struct Registered {
    /// The thread's places, and their groups.
    places: RefCell<Sorted<NonNull<Slot>, Arc<dyn Leave>>>,
}

/// A map in a sorted vector, for the one or two entries of most threads. Its memory is kept when an entry is removed.
struct Sorted<K, V>(Vec<(K, V)>);

impl<K: Ord, V> Sorted<K, V> {
    fn find(&self, key: &K) -> Result<usize, usize> {
        self.0.binary_search_by(|(one, _)| one.cmp(key))
    }

    /// Adds a value unless the key has one. Returns whether it was added.
    fn insert(&mut self, key: K, value: impl FnOnce() -> V) -> bool {
        let found = self.find(&key);
        if let Err(place) = found {
            self.0.insert(place, (key, value()));
        }
        found.is_err()
    }

    fn remove(&mut self, key: &K) -> Option<V> {
        self.find(key).ok().map(|place| self.0.remove(place).1)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let places = std::mem::take(&mut self.places.get_mut().0);
        for (slot, core) in places {
            core.leave_for_good(slot);
        }
    }
}

std::thread_local! {
    static REGISTERED: Registered = const { Registered { places: RefCell::new(Sorted(Vec::new())) } };
}

/// Registers the calling thread; `None` as [`Registration::new`].
fn register<T: Transport>(core: &Arc<Core<T>>) -> Option<NonNull<Slot>> {
    can_remember().then(|| {
        let slot = core.join();
        remember(core, slot);
        slot
    })
}

/// Whether the thread's end can still run the destructor of [`REGISTERED`].
fn can_remember() -> bool {
    cfg!(stillpoint_loom) || REGISTERED.try_with(|_| ()).is_ok()
}

/// Makes the thread leave when it ends. Not in a model.
fn remember<T: Transport>(core: &Arc<Core<T>>, slot: NonNull<Slot>) {
    if cfg!(stillpoint_loom) {
        return;
    }
    let _ = REGISTERED.try_with(|registered| {
        registered.places.borrow_mut().insert(slot, || Arc::clone(core) as Arc<dyn Leave>);
    });
}

/// Forgets a place that the thread has left.
pub(super) fn forget(slot: NonNull<Slot>) {
    let left = REGISTERED.try_with(|registered| registered.places.borrow_mut().remove(&slot));
    // Dropped outside the borrow: it may be the last reference to the group.
    drop(left);
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::transport::Polled;

    /// In any order of joining and leaving.
    #[test]
    fn a_thread_that_has_left_a_group_does_not_keep_it() {
        for first in 0..7 {
            let groups: Vec<_> = (0..7).map(|_| Core::new(Polled)).collect();
            let register = |group| Registration::new(group).expect("the thread does not end");
            // Allocates the places.
            groups.iter().for_each(|group| drop(register(group)));
            let order = (0..7).map(|group| (first + 3 * group) % 7);
            let twice = order.clone().chain(order.rev());
            let mut registered: Vec<_> = twice.map(|group| register(&groups[group])).collect();
            for group in (0..7).map(|group| (first + 2 * group) % 7) {
                let place = |one: &Registration<Polled>| std::ptr::eq(one.core(), &raw const *groups[group]);
                for left in [1, 0] {
                    let one = registered.iter().position(place).expect("registered twice");
                    drop(registered.swap_remove(one));
                    assert_eq!(Arc::strong_count(&groups[group]), 1 + 2 * left, "group {group}");
                }
            }
        }
    }

    thread_local! {
        static MEMBER: RefCell<Option<Registration<Polled>>> = const { RefCell::new(None) };
    }

    /// The multicast holds the place until its end.
    #[test]
    fn a_thread_that_leaves_within_its_own_multicast_does_not_keep_the_group() {
        let group = Core::new(Polled);
        MEMBER.set(Registration::new(&group));
        crate::run::Multicast::new(&group).run(|| drop(MEMBER.take()));
        assert_eq!((group.members(), Arc::strong_count(&group)), (0, 1));
    }
}
