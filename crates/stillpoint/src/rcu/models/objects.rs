//! Protected loads against retirement.

use loom::sync::mpsc;
use loom::thread;

use super::{explore, race, race_reader, spawn, spawn_reader, Shared};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::rcu::engine::core::grace::Grace;
use crate::rcu::engine::core::record::{clear_hazard, set_hazard, Record};
use crate::rcu::engine::core::registry::Claim;
use crate::rcu::engine::queue::account::Limits;
use crate::rcu::engine::queue::retire_list::{Pace, RetireList};
use crate::rcu::Reader;

#[test]
fn protect_against_retire() {
    let read = |shared: &Shared<1>| {
        let reader = shared.domain.reader();
        shared.cells[0].protect(&reader).expect("never empty").read();
    };
    race(4, read, Shared::replace_each);
}

/// A scan also serves what waited for tokens that were over when it began, and no others: the reader goes from its guard to a slot after the
/// scan has passed the slot, and ends the token itself.
#[test]
fn a_scan_serves_no_token_that_was_over_later() {
    explore(2, || {
        let shared = Shared::<3>::new();
        let own = shared.domain.reader();
        // Only a scan that finds a slot in use serves again.
        let in_use = shared.cells[2].protect(&own);
        let core = shared.domain.core();
        let mut list = RetireList::new(Arc::clone(core), Pace::DEFAULT, Limits::NONE);
        let retire = |list: &mut RetireList, cell: usize| {
            let old = shared.cells[cell].take().expect("only this thread takes it");
            list.push(old.into_parts().into_garbage());
            list.close().expect("it waits for one")
        };
        let first = retire(&mut list, 0);
        assert!(matches!(core.protocol.check(first), Ok(Grace::Over)));
        let (is_reached, wait) = mpsc::channel();
        let reader = spawn(&shared, move |shared| {
            let reader = shared.domain.reader();
            let guard = reader.pin();
            let object = std::ptr::from_ref(shared.cells[1].load(&guard).expect("it is linked"));
            is_reached.send(()).expect("it waits");
            set_hazard(&reader.record().free_hazard(), object.cast_mut().cast());
            drop(guard);
            shared.domain.check(shared.domain.start());
            // SAFETY: the slot was set while the guard protected the object; the reader's drop clears it.
            unsafe { (*object).read() };
        });
        wait.recv().expect("it is sent");
        retire(&mut list, 1);
        (0..2).for_each(|_| _ = list.poll_at(1, core.protocol.age(), true));
        reader.join().unwrap();
        drop(in_use);
    });
}

/// The slot goes from one object to the next. The scan may read the second address, and must still come after the first.
#[test]
fn a_slot_is_set_again() {
    let read = |shared: &Shared<2>| {
        let reader = shared.domain.reader();
        shared.protect_and_read(&reader, 0);
        shared.protect_and_read(&reader, 1);
    };
    race(3, read, |shared| shared.retire(0, 2));
}

/// A reader gives back the block of the slot that has protected the object. (A block of the model has one slot.)
#[test]
fn blocks_of_slots_are_given_back() {
    let read = |shared: &Shared<2>| {
        let reader = shared.domain.reader();
        let first = shared.cells[0].protect(&reader).expect("never empty");
        let second = shared.cells[0].protect(&reader).expect("never empty");
        shared.protect_and_read(&reader, 1);
        drop((second, first));
    };
    race(2, read, |shared| shared.retire(1, 1));
}

/// The load is bound to no thread, so no heavy fence is issued for it. Another thread drops it.
#[test]
fn an_owned_load_against_retire() {
    let read = |shared: &Shared<1>| shared.cells[0].protect_owned().expect("never empty").read();
    race(4, read, Shared::replace_each);
}

/// The fence is that of a reader, which ends before the object is read.
#[test]
fn an_owned_slot_outlives_the_reader_that_set_it() {
    let load = |shared: &Shared<1>| {
        let reader = shared.domain.reader();
        let protocol = &shared.domain.core().protocol;
        let claim = protocol.claim_owned();
        reader.vouch();
        let slot = record_of(&claim).first_hazard();
        let object = shared.cells[0].link.protect_by(reader.fence(), &slot).expect("never empty");
        drop(reader);
        read(object);
        protocol.release_owned(&claim);
    };
    race(3, load, Shared::replace_each);
}

/// The slot relies on light fences. Another thread gives it back.
#[test]
fn a_slot_of_nobody_against_retire() {
    explore(4, || {
        let shared = Shared::<1>::new();
        let reader = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let claim = shared.domain.core().protocol.claim_slot();
                read_by(&shared, &claim, 0);
                claim
            }
        });
        shared.replace_each();
        give_back(&shared, &reader.join().unwrap());
    });
}

/// The slot goes from one thread to the next while it holds an object, and then holds another one.
#[test]
fn a_slot_of_nobody_changes_hands() {
    explore(3, || {
        let shared = Shared::<2>::new();
        let claim = shared.domain.core().protocol.claim_slot();
        read_by(&shared, &claim, 0);
        let reader = spawn(&shared, move |shared| {
            read_by(shared, &claim, 1);
            give_back(shared, &claim);
        });
        shared.replace_each();
        reader.join().unwrap();
    });
}

/// The thread lends its slot, and ends its reader. It does not lend the slot again before that is clear.
#[test]
fn a_lent_slot_against_retire() {
    let lend_and_read = |shared: &Shared<2>, reader: Reader| {
        let claim = shared.domain.core().protocol.begin_lending();
        let record = record_of(&claim);
        let first = lend(shared, &reader, record, 0).expect("nothing is lent yet");
        let second = lend(shared, &reader, record, 1);
        reader.offline();
        for object in second.into_iter().chain([first]) {
            read(object);
        }
        take_back(record);
        shared.domain.core().protocol.end_lending(&claim);
    };
    race_reader(3, lend_and_read, Shared::replace_each);
}

/// Another thread clears the slot, which is then lent again. A third one, which frees the first object, sees only the second one in the
/// slot.
#[test]
fn a_lent_slot_comes_back_from_another_thread() {
    explore(3, || {
        let shared = Shared::<2>::new();
        let reader = shared.domain.reader();
        let claim = shared.domain.core().protocol.begin_lending();
        let record = record_of(&claim);
        let first = lend(&shared, &reader, record, 0).expect("nothing is lent yet");
        let other = spawn(&shared, move |_| {
            read(first);
            take_back(record);
        });
        let writer = spawn(&shared, |shared| {
            let mut reclaimer = shared.domain.reclaimer();
            reclaimer.retire(shared.cells[0].take().unwrap()).unwrap();
            reclaimer.poll();
        });
        if let Some(object) = lend(&shared, &reader, record, 1) {
            reader.vouch();
            read(object);
            take_back(record);
        }
        other.join().unwrap();
        writer.join().unwrap();
        shared.domain.core().protocol.end_lending(&claim);
    });
}

/// A thread ends while its slot is lent, and the next one takes the slot over.
#[test]
fn a_lender_ends_before_its_slot_comes_back() {
    explore(2, || {
        let shared = Shared::<2>::new();
        let reader = spawn_reader(&shared, |shared, reader| {
            let protocol = &shared.domain.core().protocol;
            let claim = protocol.begin_lending();
            let record = record_of(&claim);
            let object = lend(shared, &reader, record, 0);
            protocol.end_lending(&claim);
            // The other thread may have emptied the cell.
            if let Some(object) = object {
                read(object);
                take_back(record);
            }
        });
        let next = shared.domain.reader();
        let protocol = &shared.domain.core().protocol;
        let claim = protocol.begin_lending();
        let record = record_of(&claim);
        let object = lend(&shared, &next, record, 1);
        shared.retire(0, 1);
        if let Some(object) = object {
            read(object);
            take_back(record);
        }
        reader.join().unwrap();
        protocol.end_lending(&claim);
        drop(next);
        // One record was left, or none: the next thread takes it over, or claims one.
        let last = protocol.begin_lending();
        protocol.end_lending(&last);
        assert_eq!(protocol.readers(), (0, 0));
    });
}

/// As `RcuCell::protect_owned` in the default domain.
fn lend<const CELLS: usize>(
    shared: &Shared<CELLS>,
    reader: &Reader,
    record: &Record,
    cell: usize,
) -> Option<NonNull<super::Object>> {
    let slot = record.unlent()?;
    reader.vouch();
    shared.cells[cell].link.protect_by(reader.fence(), &slot)
}

fn read(object: NonNull<super::Object>) {
    // SAFETY: a slot holds the object.
    unsafe { object.as_ref() }.read();
}

/// As the drop of the `OwnedProtected`.
fn take_back(record: &Record) {
    clear_hazard(&record.first_hazard());
}

fn record_of(claim: &Claim<Record>) -> &'static Record {
    // SAFETY: the domain of a model is alive as long as the model uses the record.
    unsafe { claim.slot() }
}

/// Reads the object of a cell, by a slot that belongs to no thread.
fn read_by<const CELLS: usize>(shared: &Shared<CELLS>, claim: &Claim<Record>, cell: usize) {
    // SAFETY: the domain is alive.
    let record: &Record = unsafe { claim.slot() };
    let protocol = &shared.domain.core().protocol;
    protocol.vouch(record);
    let fence = protocol.reader_fence();
    let held = shared.cells[cell].link.protect_by(fence, &record.first_hazard()).expect("never empty");
    // SAFETY: the slot holds the object.
    unsafe { held.as_ref() }.read();
}

fn give_back<const CELLS: usize>(shared: &Shared<CELLS>, claim: &Claim<Record>) {
    let protocol = &shared.domain.core().protocol;
    // SAFETY: the domain is alive.
    protocol.sign_off(unsafe { claim.slot() });
    protocol.records.release(claim);
}

/// A QSBR reader is the next to claim the record of an owned load. No scan looks at the slots of QSBR readers.
#[test]
fn an_owned_load_is_followed_by_a_qsbr_reader() {
    let read = |shared: &Shared<1>| {
        shared.cells[0].protect_owned().expect("never empty").read();
        drop(shared.domain.qsbr_reader());
    };
    race(3, read, Shared::replace_each);
}

/// A reader protects more objects than its record has slots: a block is chained while the writer scans.
#[test]
fn a_block_is_chained() {
    let read = |shared: &Shared<2>| {
        let reader = shared.domain.reader();
        let first = shared.cells[0].protect(&reader).expect("never empty");
        let second = shared.cells[1].protect(&reader).expect("never empty");
        second.read();
        first.read();
    };
    race(3, read, |shared| {
        let mut reclaimer = shared.domain.reclaimer();
        reclaimer.retire(shared.cells[1].replace(super::Object::new()).unwrap()).unwrap();
        reclaimer.poll();
    });
}

/// An object that was reached under a guard is protected before the guard ends, as in the crate's own data structures.
#[test]
fn a_guard_is_exchanged_for_a_slot() {
    let read = |shared: &Shared<1>, reader: Reader| {
        let guard = reader.pin();
        if let Some(object) = shared.cells[0].load(&guard) {
            let object = std::ptr::from_ref(object);
            set_hazard(&reader.record().free_hazard(), object.cast_mut().cast());
            drop(guard);
            // SAFETY: the slot was set while the guard protected the object; the reader's drop clears it.
            unsafe { (*object).read() };
        }
    };
    race_reader(4, read, |shared| shared.retire(0, 1));
}
