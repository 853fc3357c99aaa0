//! Protected loads against retirement.

use super::{explore, spawn, Shared, EVERY};
use crate::rcu::engine::core::record::set_hazard;

#[test]
fn protect_against_retire() {
    explore(EVERY, || {
        let shared = Shared::<1>::new();
        let reader = spawn(&shared, |shared| {
            let reader = shared.domain.reader();
            shared.cells[0].protect(&reader).expect("never empty").read();
        });
        shared.replace_each();
        reader.join().unwrap();
    });
}

/// The slot goes from one object to the next: the scan may read the second and must still come after the first.
#[test]
fn a_slot_is_set_again() {
    explore(5, || {
        let shared = Shared::<2>::new();
        let reader = spawn(&shared, |shared| {
            let reader = shared.domain.reader();
            for cell in &shared.cells {
                if let Some(object) = cell.protect(&reader) {
                    object.read();
                }
            }
        });
        let mut reclaimer = shared.domain.reclaimer();
        reclaimer.retire(shared.cells[0].take().unwrap()).unwrap();
        reclaimer.poll();
        reclaimer.poll();
        reader.join().unwrap();
    });
}

/// It is bound to no thread, so that no heavy fence is issued for it; and it is dropped by another thread.
#[test]
fn an_owned_load_against_retire() {
    explore(4, || {
        let shared = Shared::<1>::new();
        let reader = spawn(&shared, |shared| {
            let object = shared.cells[0].protect_owned().expect("never empty");
            object.read();
        });
        shared.replace_each();
        reader.join().unwrap();
    });
}

/// The record of an owned load is claimed next by a QSBR reader, whose slots no scan looks at.
#[test]
fn an_owned_load_is_followed_by_a_qsbr_reader() {
    explore(3, || {
        let shared = Shared::<1>::new();
        let reader = spawn(&shared, |shared| {
            shared.cells[0].protect_owned().expect("never empty").read();
            drop(shared.domain.qsbr_reader());
        });
        shared.replace_each();
        reader.join().unwrap();
    });
}

/// More objects in one hand than the record has slots: a block is chained while the writer scans.
#[test]
fn a_block_is_chained() {
    explore(3, || {
        let shared = Shared::<2>::new();
        let reader = spawn(&shared, |shared| {
            let reader = shared.domain.reader();
            let first = shared.cells[0].protect(&reader).expect("never empty");
            let second = shared.cells[1].protect(&reader).expect("never empty");
            second.read();
            first.read();
        });
        let mut reclaimer = shared.domain.reclaimer();
        reclaimer.retire(shared.cells[1].replace(super::Object::new()).unwrap()).unwrap();
        reclaimer.poll();
        reader.join().unwrap();
    });
}

/// What the crate's own data structures do: an object reached under a guard is pinned before the guard ends.
#[test]
fn a_guard_is_exchanged_for_a_slot() {
    explore(5, || {
        let shared = Shared::<1>::new();
        let reader = spawn(&shared, |shared| {
            let reader = shared.domain.reader();
            let guard = reader.pin();
            if let Some(object) = shared.cells[0].load(&guard) {
                let object = std::ptr::from_ref(object);
                set_hazard(&reader.record().free_hazard(), object.cast_mut().cast());
                drop(guard);
                // SAFETY: the slot was set while the guard protected the object; the reader's drop clears it.
                unsafe { (*object).read() };
            }
        });
        let mut reclaimer = shared.domain.reclaimer();
        reclaimer.retire(shared.cells[0].take().unwrap()).unwrap();
        reclaimer.poll();
        reader.join().unwrap();
    });
}
