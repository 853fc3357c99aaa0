//! Readers that come and go while a writer checks.

use super::{explore, spawn, Shared, EVERY, UNORDERED};
use crate::rcu::engine::core::record::PASSIVE;

/// The reader's record is claimed, left, and claimed again by a reader of another kind.
#[test]
fn a_record_changes_hands() {
    explore(4, || {
        let shared = Shared::<1>::new();
        let reader = spawn(&shared, |shared| {
            let reader = shared.domain.reader();
            if let Some(object) = shared.cells[0].protect(&reader) {
                object.read();
            }
            drop(reader);
            let reader = shared.domain.qsbr_reader();
            if let Some(object) = shared.cells[0].load(&reader) {
                object.read();
            }
        });
        let mut reclaimer = shared.domain.reclaimer();
        reclaimer.retire(shared.cells[0].take().unwrap()).unwrap();
        reclaimer.poll();
        reader.join().unwrap();
    });
}

/// A reader of guards follows a QSBR reader on the same record: it must not find itself in a section already.
#[test]
fn a_record_goes_from_qsbr_to_guards() {
    explore(4, || {
        let shared = Shared::<1>::new();
        let reader = spawn(&shared, |shared| {
            drop(shared.domain.qsbr_reader());
            let reader = shared.domain.reader();
            let guard = reader.pin();
            if let Some(object) = shared.cells[0].load(&guard) {
                object.read();
            }
            drop(guard);
            assert_eq!(reader.record().state(), PASSIVE, "{UNORDERED}: the section goes on");
        });
        let mut reclaimer = shared.domain.reclaimer();
        reclaimer.retire(shared.cells[0].take().unwrap()).unwrap();
        reclaimer.poll();
        reader.join().unwrap();
    });
}

/// Without a registered `Reader`, the writer omits the heavy fence.
#[test]
fn a_reader_registers_while_the_fence_is_left_out() {
    explore(EVERY, || {
        let shared = Shared::<1>::new();
        let reader = spawn(&shared, |shared| {
            let reader = shared.domain.qsbr_reader();
            if let Some(object) = shared.cells[0].load(&reader) {
                object.read();
            }
        });
        let mut reclaimer = shared.domain.reclaimer();
        reclaimer.retire(shared.cells[0].take().unwrap()).unwrap();
        reclaimer.poll();
        reader.join().unwrap();
    });
}

/// Two readers append a chunk of records at the same time (a chunk has two in the model).
#[test]
fn a_chunk_is_appended() {
    explore(1, || {
        let shared = Shared::<1>::new();
        let _first = shared.domain.reader();
        let _second = shared.domain.reader();
        let read = |shared: &Shared<1>| {
            let reader = shared.domain.reader();
            if let Some(object) = shared.cells[0].load(&reader.pin()) {
                object.read();
            };
        };
        let threads = [spawn(&shared, read), spawn(&shared, read)];
        let mut reclaimer = shared.domain.reclaimer();
        reclaimer.retire(shared.cells[0].take().unwrap()).unwrap();
        reclaimer.poll();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}
