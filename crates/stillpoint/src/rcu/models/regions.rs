//! Guards and QSBR readers against retirement.

use super::{explore, race, race_reader, spawn, Object, Shared, EVERY};
use crate::rcu::Reader;

#[test]
fn pin_against_retire() {
    let read = |shared: &Shared<1>| {
        let reader = shared.domain.reader();
        shared.cells[0].load(&reader.pin()).expect("never empty").read();
    };
    race(5, read, Shared::replace_each);
}

/// The scan may read the state of the second section, and must still come after the first.
#[test]
fn a_section_follows_another() {
    let read = |shared: &Shared<1>| {
        let reader = shared.domain.reader();
        shared.read_in(&reader.pin(), 0);
        shared.read_in(&reader.pin(), 0);
    };
    race(4, read, |shared| shared.retire(0, 1));
}

/// A handler begins a region after the entry that it interrupts has stored its token, and before that has fenced.
#[test]
fn a_handler_interrupts_an_entry() {
    let read = |shared: &Shared<1>, reader: Reader| {
        reader.core().protocol.announce(reader.record());
        shared.cells[0].load(&reader.pin_in_handler()).expect("never empty").read();
        reader.fence().issue();
    };
    race_reader(4, read, Shared::replace_each);
}

#[test]
fn guards_overlap() {
    let read = |shared: &Shared<1>| {
        let reader = shared.domain.reader();
        let outer = reader.pin();
        let inner = reader.pin();
        let object = shared.cells[0].load(&inner).expect("never empty");
        drop(outer);
        object.read();
    };
    race(5, read, Shared::replace_each);
}

#[test]
fn qsbr_against_retire() {
    race(EVERY, |shared| read_and_report(shared, 2), Shared::replace_each);
}

/// Reports that find the same token as before store nothing: the section goes on.
#[test]
fn qsbr_reports_the_same_token() {
    race(EVERY, |shared| read_and_report(shared, 3), Shared::replace_each);
}

fn read_and_report(shared: &Shared<1>, times: usize) {
    let mut reader = shared.domain.qsbr_reader();
    for _ in 0..times {
        shared.cells[0].load(&reader).expect("never empty").read();
        reader.quiescent();
    }
}

#[test]
fn qsbr_goes_offline_and_online() {
    let read = |shared: &Shared<1>| {
        let mut reader = shared.domain.qsbr_reader();
        shared.cells[0].load(&reader).expect("never empty").read();
        reader.offline(|| ());
        shared.cells[0].load(&reader).expect("never empty").read();
    };
    race(EVERY, read, Shared::replace_each);
}

/// Readers of all kinds: an object waits for each of them.
#[test]
fn kinds_are_mixed() {
    explore(2, || {
        let shared = Shared::<1>::new();
        let qsbr = spawn(&shared, |shared| read_and_report(shared, 1));
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
    let read = |shared: &Shared<1>| {
        let reader = shared.domain.reader();
        let guard = reader.pin();
        let Err(error) = shared.cells[0].compare_exchange_in(&guard, None, None) else { unreachable!() };
        error.found.expect("never empty").read();
    };
    race(4, read, Shared::replace_each);
}
