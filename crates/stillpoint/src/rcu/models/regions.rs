//! Guards and QSBR readers against retirement.

use super::{explore, spawn, spawn_reader, Object, Shared, EVERY};

#[test]
fn pin_against_retire() {
    explore(5, || {
        let shared = Shared::<1>::new();
        let reader = spawn(&shared, |shared| {
            let reader = shared.domain.reader();
            shared.cells[0].load(&reader.pin()).expect("never empty").read();
        });
        shared.replace_each();
        reader.join().unwrap();
    });
}

/// The scan may read the state of the second section, and must still come after the first.
#[test]
fn a_section_follows_another() {
    explore(4, || {
        let shared = Shared::<1>::new();
        let reader = spawn(&shared, |shared| {
            let reader = shared.domain.reader();
            for _ in 0..2 {
                if let Some(object) = shared.cells[0].load(&reader.pin()) {
                    object.read();
                }
            }
        });
        let mut reclaimer = shared.domain.reclaimer();
        reclaimer.retire(shared.cells[0].take().unwrap()).unwrap();
        reclaimer.poll();
        reader.join().unwrap();
    });
}

/// A handler begins a region after the entry that it interrupts has stored its token, and before that has fenced.
#[test]
fn a_handler_interrupts_an_entry() {
    explore(4, || {
        let shared = Shared::<1>::new();
        let reader = spawn_reader(&shared, |shared, reader| {
            reader.core().protocol.announce(reader.record());
            shared.cells[0].load(&reader.pin_in_handler()).expect("never empty").read();
            reader.fence().issue();
        });
        shared.replace_each();
        reader.join().unwrap();
    });
}

#[test]
fn guards_overlap() {
    explore(5, || {
        let shared = Shared::<1>::new();
        let reader = spawn(&shared, |shared| {
            let reader = shared.domain.reader();
            let outer = reader.pin();
            let inner = reader.pin();
            let object = shared.cells[0].load(&inner).expect("never empty");
            drop(outer);
            object.read();
        });
        shared.replace_each();
        reader.join().unwrap();
    });
}

#[test]
fn qsbr_against_retire() {
    explore(EVERY, || {
        let shared = Shared::<1>::new();
        let reader = spawn(&shared, |shared| {
            let mut reader = shared.domain.qsbr_reader();
            for _ in 0..2 {
                shared.cells[0].load(&reader).expect("never empty").read();
                reader.quiescent();
            }
        });
        shared.replace_each();
        reader.join().unwrap();
    });
}

/// Reports that find the same token as before store nothing: the section goes on.
#[test]
fn qsbr_reports_the_same_token() {
    explore(EVERY, || {
        let shared = Shared::<1>::new();
        let reader = spawn(&shared, |shared| {
            let mut reader = shared.domain.qsbr_reader();
            for _ in 0..3 {
                shared.cells[0].load(&reader).expect("never empty").read();
                reader.quiescent();
            }
        });
        shared.replace_each();
        reader.join().unwrap();
    });
}

#[test]
fn qsbr_goes_offline_and_online() {
    explore(EVERY, || {
        let shared = Shared::<1>::new();
        let reader = spawn(&shared, |shared| {
            let mut reader = shared.domain.qsbr_reader();
            shared.cells[0].load(&reader).expect("never empty").read();
            reader.offline(|| ());
            shared.cells[0].load(&reader).expect("never empty").read();
        });
        shared.replace_each();
        reader.join().unwrap();
    });
}

/// Readers of all kinds: an object waits for each of them.
#[test]
fn kinds_are_mixed() {
    explore(2, || {
        let shared = Shared::<1>::new();
        let qsbr = spawn(&shared, |shared| {
            let mut reader = shared.domain.qsbr_reader();
            shared.cells[0].load(&reader).expect("never empty").read();
            reader.quiescent();
        });
        let other = spawn(&shared, |shared| {
            let reader = shared.domain.reader();
            let object = shared.cells[0].protect(&reader).expect("never empty");
            shared.cells[0].load(&reader.pin()).expect("never empty").read();
            object.read();
        });
        let old = shared.cells[0].replace(Object::new()).unwrap();
        drop(old.try_free());
        qsbr.join().unwrap();
        other.join().unwrap();
    });
}

/// Another thread made the object that is found instead. It stays alive as long as the region.
#[test]
fn an_exchange_that_fails_lends_what_it_found() {
    explore(4, || {
        let shared = Shared::<1>::new();
        let reader = spawn(&shared, |shared| {
            let reader = shared.domain.reader();
            let guard = reader.pin();
            let Err(error) = shared.cells[0].compare_exchange_in(&guard, None, None) else { unreachable!() };
            error.found.expect("never empty").read();
        });
        shared.replace_each();
        reader.join().unwrap();
    });
}
