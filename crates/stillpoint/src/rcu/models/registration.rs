//! Readers that come and go while a writer checks.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{fence, AtomicBool, AtomicPtr, AtomicU32, Ordering};
use loom::thread;

use super::{explore, race, spawn, spawn_reader, Object, Shared, EVERY, UNORDERED};
use crate::rcu::engine::core::record::is_open;
use crate::rcu::engine::core::registry::Registry;

/// The reader's record is claimed, left, and claimed again by a reader of another kind.
#[test]
fn a_record_changes_hands() {
    let read = |shared: &Shared<1>| {
        shared.protect_and_read(&shared.domain.reader(), 0);
        shared.read_in(&shared.domain.qsbr_reader(), 0);
    };
    race(4, read, |shared| shared.retire(0, 1));
}

/// A reader of guards follows a QSBR reader on the same record: it must not find itself in a section already.
#[test]
fn a_record_goes_from_qsbr_to_guards() {
    let read = |shared: &Shared<1>| {
        drop(shared.domain.qsbr_reader());
        let reader = shared.domain.reader();
        shared.read_in(&reader.pin(), 0);
        assert!(!is_open(reader.record().state()), "{UNORDERED}: the section goes on");
    };
    race(4, read, |shared| shared.retire(0, 1));
}

/// A QSBR reader follows a reader of guards on the same record. A check that reads the word of the first one, and then finds that the
/// holder does not rely on light fences, comes after what the first one did. The writer frees by its own hand: it looks at no slots,
/// which would order it.
#[test]
fn a_record_goes_from_guards_to_qsbr() {
    explore(3, || {
        let shared = Shared::<0>::new();
        let link = Arc::new(AtomicPtr::new(Box::into_raw(Box::new(Object::new()))));
        let source = Arc::clone(&link);
        let reader = spawn_reader(&shared, move |shared, reader| {
            let guard = reader.pin();
            // SAFETY: null, or the object, which the protocol under test keeps alive; otherwise loom reports it.
            if let Some(object) = unsafe { source.load(Ordering::Acquire).as_ref() } {
                object.read();
            }
            drop(guard);
            drop(reader);
            drop(shared.domain.qsbr_reader());
        });
        let object = link.swap(std::ptr::null_mut(), Ordering::AcqRel);
        let token = shared.domain.start();
        let is_over = shared.domain.check(token);
        // SAFETY: it came from `Box::into_raw`, and no reader holds it: otherwise loom reports it.
        let free = || drop(unsafe { Box::from_raw(object) });
        if is_over {
            free();
        }
        reader.join().unwrap();
        if !is_over {
            free();
        }
    });
}

/// A reader registers while a writer looks, whose own reader relies on light fences as well.
#[test]
fn a_reader_registers_while_there_is_another_one() {
    explore(3, || {
        let shared = Shared::<1>::new();
        let _own = shared.domain.reader();
        let reader = spawn(&shared, |shared| shared.protect_and_read(&shared.domain.reader(), 0));
        shared.retire(0, 2);
        reader.join().unwrap();
    });
}

/// Without a registered `Reader`, the writer omits the heavy fence.
#[test]
fn a_reader_registers_while_the_fence_is_left_out() {
    let read = |shared: &Shared<1>| shared.read_in(&shared.domain.qsbr_reader(), 0);
    race(EVERY, read, |shared| shared.retire(0, 1));
}

/// Two readers append a chunk of records at the same time (a chunk has two in the model).
#[test]
fn a_chunk_is_appended() {
    explore(1, || {
        let shared = Shared::<1>::new();
        let _own = [shared.domain.reader(), shared.domain.reader()];
        let threads = [(); 2].map(|()| {
            spawn(&shared, |shared| {
                let reader = shared.domain.reader();
                shared.read_in(&reader.pin(), 0);
            })
        });
        shared.retire(0, 1);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// A reader claims a slot of the group, while its last holder leaves and a walk looks. If another claims one at the same time, one of
/// them may fail at first. (The group of the model has two slots, behind a chunk without a group.)
fn a_reader_comes_to_a_group(preemptions: usize, is_another_there: bool) {
    explore(preemptions, move || {
        let registry = Arc::new(Registry::<AtomicU32>::new());
        let is_unlinked = Arc::new(AtomicBool::new(false));
        let object = Box::into_raw(Box::new(Object::new()));
        let [_, _, leaves] = std::array::from_fn(|_| registry.claim());
        let reader = thread::spawn({
            let (registry, is_unlinked, object) =
                (Arc::clone(&registry), Arc::clone(&is_unlinked), object as usize);
            move || {
                let claim = registry.claim();
                fence(Ordering::SeqCst);
                if !is_unlinked.load(Ordering::Relaxed) {
                    // SAFETY: the protocol under test keeps the object alive; otherwise loom reports it.
                    unsafe { &*(object as *const Object) }.read();
                }
                registry.release(&claim);
            }
        });
        let other = is_another_there.then(|| {
            let registry = Arc::clone(&registry);
            thread::spawn(move || registry.release(&registry.claim()))
        });
        registry.release(&leaves);
        is_unlinked.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let is_free = registry.iter().count() == 2;
        // SAFETY: it came from `Box::into_raw`, and no reader holds it: otherwise loom reports it.
        let free = || drop(unsafe { Box::from_raw(object) });
        if is_free {
            free();
        }
        reader.join().unwrap();
        if let Some(other) = other {
            other.join().unwrap();
        }
        if !is_free {
            free();
        }
    });
}

/// A walk skips a group in which nothing is claimed, and no other: a claim comes while the last holder leaves. A holder that the
/// walk does not see has left the object before.
#[test]
fn a_group_is_skipped() {
    a_reader_comes_to_a_group(EVERY, false);
}

/// A claim that fails changes the count of its group twice, relaxed. These changes continue the release sequences of holders.
#[test]
fn a_claim_fails_in_a_group() {
    a_reader_comes_to_a_group(3, true);
}

/// A walk sees the slots of each claim that it sees. Then two threads may append the first chunk, and make its slots.
#[test]
fn the_first_slots_are_made() {
    explore(EVERY, || {
        let registry = Arc::new(Registry::<AtomicU32>::new());
        let other = thread::spawn({
            let registry = Arc::clone(&registry);
            move || registry.claim().number()
        });
        assert!(registry.iter().all(|slot| slot.load(Ordering::Relaxed) == 0));
        let own = registry.claim().number();
        assert_eq!(own + other.join().unwrap(), 1, "they are the slots 0 and 1");
    });
}

/// What a holder does with a slot comes after what the last one did.
#[test]
fn a_slot_has_one_holder_after_the_other() {
    explore(EVERY, || {
        let shared = Arc::new((Registry::<AtomicU32>::new(), UnsafeCell::new(0)));
        let hold = |(registry, content): &(Registry<AtomicU32>, UnsafeCell<u32>)| {
            let claim = registry.claim();
            if claim.number() == 0 {
                // SAFETY: the slot has one holder at a time; otherwise loom reports it.
                content.with_mut(|content| unsafe { *content += 1 });
            }
            registry.release(&claim);
        };
        let other = thread::spawn({
            let shared = Arc::clone(&shared);
            move || hold(&shared)
        });
        hold(&shared);
        other.join().unwrap();
    });
}
