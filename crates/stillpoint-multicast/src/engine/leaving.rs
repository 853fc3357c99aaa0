//! A thread leaves at its end, even if its registration was forgotten: no multicast waits for it after that.

use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::Arc;

use super::slots::Slot;
use super::Core;
use crate::transport::Transport;
use stillpoint_sys::sync::atomic::{AtomicU32, Ordering};

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
            slot.set_joins(1);
            self.leave(slot);
        }
    }
}

/// The work at a thread's end, in its destructor.
struct Registered {
    /// The thread's places, and their groups.
    places: RefCell<Sorted<NonNull<Slot>, Arc<dyn Leave>>>,
    /// The words in which bits are set.
    words: RefCell<Sorted<NonNull<AtomicU32>, Bound>>,
}

/// A binding of the thread to a word.
#[cfg_attr(any(stillpoint_loom, miri), allow(dead_code, reason = "for fences by signals"))]
struct Bound {
    bits: u32,
    slot: NonNull<Slot>,
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
        // Both come before leaving: from then on no multicast reaches the thread.
        stillpoint::fence::end_light_fences();
        for (word, Bound { bits, .. }) in std::mem::take(&mut self.words.get_mut().0) {
            // SAFETY: the word is alive by the promise to `bind`, since it was not unbound.
            // Relaxed: for the calling thread.
            unsafe { word.as_ref() }.fetch_or(bits, Ordering::Relaxed);
        }
        let places = std::mem::take(&mut self.places.get_mut().0);
        for (slot, core) in places {
            core.leave_for_good(slot);
        }
    }
}

/// Registers the calling thread, as [`Registration::new`] does, until [`unbind`]. Returns whether it could. If the thread leaves
/// for good first, these bits are set in the word.
///
/// # Safety
/// The word is alive until it is unbound, on this thread, or for ever.
#[cfg(not(any(stillpoint_loom, miri)))]
pub(crate) unsafe fn bind<T: Transport>(core: &Arc<Core<T>>, word: &AtomicU32, bits: u32) -> bool {
    register(core).is_some_and(|slot| {
        let insert = |registered: &Registered| {
            registered.words.borrow_mut().insert(NonNull::from(word), || Bound { bits, slot })
        };
        let is_bound = REGISTERED.try_with(insert).unwrap_or(false);
        if !is_bound {
            drop(Registration { core: Arc::clone(core), slot });
        }
        is_bound
    })
}

/// Undoes [`bind`].
#[cfg(not(any(stillpoint_loom, miri)))]
pub(crate) fn unbind<T: Transport>(core: &Arc<Core<T>>, word: &AtomicU32) {
    let bound = REGISTERED.try_with(|registered| registered.words.borrow_mut().remove(&NonNull::from(word)));
    if let Ok(Some(Bound { slot, .. })) = bound {
        drop(Registration { core: Arc::clone(core), slot });
    }
}

std::thread_local! {
    static REGISTERED: Registered = const {
        Registered { places: RefCell::new(Sorted(Vec::new())), words: RefCell::new(Sorted(Vec::new())) }
    };
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
fn forget(slot: NonNull<Slot>) {
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

    /// Bits are set in the words that are still bound, before the thread leaves.
    #[test]
    #[cfg(not(miri))]
    fn words_are_told_of_the_end_of_their_thread() {
        static WORDS: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];

        /// Checks at the end of the thread, after the drop of its registrations.
        struct Late(Arc<Core<Polled>>);

        impl Drop for Late {
            fn drop(&mut self) {
                let values = || WORDS.each_ref().map(|word| word.load(Ordering::Relaxed));
                assert_eq!(values(), [8, 0, 2]);
                assert!(stillpoint::fence::light_fences_have_ended());
                // SAFETY: the word is alive for ever.
                assert!(!unsafe { bind(&self.0, &WORDS[1], 4) }, "bound after the thread had left");
                WORDS.iter().for_each(|word| unbind(&self.0, word));
                assert_eq!((self.0.members(), values()), (0, [8, 0, 2]));
            }
        }

        std::thread_local! {
            static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
        }
        let thread = std::thread::spawn(|| {
            let core = Core::new(Polled);
            // Used first, so dropped last.
            LATE.with(|late| *late.borrow_mut() = Some(Late(Arc::clone(&core))));
            for (word, bits) in WORDS.iter().zip([8, 4, 2]) {
                // SAFETY: the words are alive for ever.
                assert!(unsafe { bind(&core, word, bits) });
            }
            unbind(&core, &WORDS[1]);
            assert_eq!(core.members(), 1);
            assert!(!stillpoint::fence::light_fences_have_ended());
        });
        thread.join().expect("it does not panic");
    }

    #[test]
    #[cfg(not(miri))]
    fn a_thread_leaves_when_its_last_word_is_unbound() {
        let (core, words) = (Core::new(Polled), [const { AtomicU32::new(0) }; 2]);
        // SAFETY: the words are alive until they are unbound.
        assert!(words.iter().all(|word| unsafe { bind(&core, word, 1) }));
        // SAFETY: the words are alive until they are unbound.
        assert!(!unsafe { bind(&core, &words[1], 1) }, "a word was bound twice");
        unbind(&core, &words[0]);
        unbind(&core, &words[0]);
        assert_eq!(core.members(), 1);
        unbind(&core, &words[1]);
        assert_eq!(core.members(), 0);
    }
}
