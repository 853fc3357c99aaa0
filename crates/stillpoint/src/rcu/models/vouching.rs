//! Readers that vouch for themselves, and readers that are away, against retirement.
//!
//! A check of a model never puts a heavy fence off. So each model explores both: the reader vouches in time, or it is silent and the
//! writer fences.

use stillpoint_sys::sync::atomic::{fence, Ordering};

use super::{explore, race_away, race_reader, spawn_away, spawn_reader, Object, Shared, EVERY};
use crate::rcu::Reader;

/// What the reader loads after it has vouched is newer than the unlink.
#[test]
fn a_protected_load_vouches() {
    race_reader::<1>(3, protect_and_read, |shared| shared.retire(0, 1));
}

fn protect_and_read(shared: &Shared<1>, reader: Reader) {
    shared.protect_and_read(&reader, 0);
}

/// A region that is older than the token holds it up. At its end it vouches for what comes after it, or the reader is silent: the fence is
/// owed then.
#[test]
fn a_fence_is_owed_when_an_older_region_ends() {
    let read = |shared: &Shared<1>, reader: Reader| {
        shared.read_in(&reader.pin(), 0);
        shared.protect_and_read(&reader, 0);
    };
    race_reader(3, read, |shared| shared.retire(0, 2));
}

/// Whoever sees that the reader vouches also sees the slots that it has set before.
#[test]
fn what_is_protected_stays_so_when_the_reader_vouches() {
    let read = |shared: &Shared<2>, reader: Reader| {
        let held = shared.cells[0].protect(&reader);
        shared.protect_and_read(&reader, 1);
        if let Some(object) = held {
            object.read();
        }
    };
    race_reader(3, read, |shared| shared.retire(0, 2));
}

/// A protected load does not vouch within a region, and the reader does not go away.
#[test]
fn a_region_goes_on() {
    let read = |shared: &Shared<2>, reader: Reader| {
        let guard = reader.pin();
        let object = shared.cells[0].load(&guard);
        shared.protect_and_read(&reader, 1);
        let _ = reader.offline();
        if let Some(object) = object {
            object.read();
        }
    };
    race_reader(3, read, |shared| shared.retire(0, 2));
}

#[test]
fn a_reader_comes_back_to_protect() {
    race_away::<1>(3, protect_and_read, |shared| shared.retire(0, 1));
}

#[test]
fn a_reader_comes_back_to_pin() {
    race_away::<1>(3, |shared, reader| shared.read_in(&reader.pin(), 0), |shared| shared.retire(0, 1));
}

/// The writer does not look at what the reader vouches for, and must see what it holds.
#[test]
fn what_is_protected_stays_so_when_the_reader_is_away() {
    let read = |shared: &Shared<1>, reader: Reader| {
        let held = shared.cells[0].protect(&reader);
        reader.offline();
        if let Some(object) = held {
            object.read();
        }
    };
    race_reader(3, read, |shared| shared.retire(0, 2));
}

/// A handler reads after each step by which the reader comes back.
#[test]
fn a_handler_interrupts_a_return() {
    for interrupted in 0..3 {
        let read = move |shared: &Shared<1>, reader: Reader| {
            let handler = |step| {
                if step == interrupted {
                    shared.read_in(&reader.pin_in_handler(), 0);
                }
            };
            let (protocol, record) = (&reader.core().protocol, reader.record());
            handler(0);
            protocol.begin_return(record);
            handler(1);
            fence(Ordering::SeqCst); // as in `come_back`
            handler(2);
            shared.protect_and_read(&reader, 0);
        };
        race_away(3, read, |shared| shared.retire(0, 1));
    }
}

/// The writer's own reader is silent, with a slot that is set, and has a region.
#[test]
fn the_callers_own_reader_holds_what_it_holds() {
    explore(EVERY, || {
        let shared = Shared::<2>::new();
        let reader = shared.domain.reader();
        let protected = shared.cells[0].protect(&reader).expect("never empty");
        let guard = reader.pin();
        let object = shared.cells[1].load(&guard).expect("never empty");
        shared.replace_each();
        protected.read();
        object.read();
    });
}

/// The first writer fences for no reader of its own thread. The other writer relies on what the first one has found out, and this reader
/// is not its own.
#[test]
fn a_writer_relies_on_a_check_by_a_reader() {
    let read = |shared: &Shared<1>, reader: Reader| {
        let held = shared.cells[0].protect(&reader);
        shared.domain.check(shared.domain.start());
        shared.protect_and_read(&reader, 0);
        if let Some(object) = held {
            object.read();
        }
    };
    race_reader(3, read, |shared| drop(shared.cells[0].take().expect("never empty").try_free()));
}

/// Readers that vouch, and one that was away, with one writer.
#[test]
fn readers_that_vouch_and_readers_that_are_away() {
    explore(2, || {
        let shared = Shared::<1>::new();
        let here = spawn_reader(&shared, protect_and_read);
        let away = spawn_away(&shared, |shared, reader| shared.read_in(&reader.pin(), 0));
        let old = shared.cells[0].replace(Object::new()).expect("never empty");
        drop(old.try_free());
        here.join().unwrap();
        away.join().unwrap();
    });
}
