//! Slots that a caller of `raw` keeps stay its own, whatever safe code does with exclusive use of the reader.

use std::mem::forget;
use std::sync::atomic::{AtomicPtr, Ordering};

use stillpoint::rcu::{raw, Domain, RcuArray, Reader, Reclaimer};
use stillpoint::table::Table;

use crate::census::{Census, Object};

/// Objects that are retired while slots of one reader hold them.
struct Held {
    objects: Vec<(*const Object, raw::Slot)>,
    reclaimer: Reclaimer,
}

impl Held {
    fn new(domain: &Domain, census: &Census, reader: &Reader, number: usize) -> Self {
        let mut reclaimer = domain.reclaimer();
        let objects = (0..number).map(|_| {
            let (object, retired) = super::object(census);
            let link = AtomicPtr::new(object.as_ptr());
            let (found, slot) = raw::protect(reader, &link).expect("it is not null");
            link.store(std::ptr::null_mut(), Ordering::Release);
            // SAFETY: it is unlinked, and its destructor frees what `Box` has made.
            unsafe { reclaimer.retire_raw(retired) }.expect("there is room");
            (found.as_ptr().cast_const(), slot)
        });
        Self { objects: objects.collect(), reclaimer }
    }

    /// Releases the slots, of which each still holds its object.
    fn release(mut self, census: &Census) {
        let number = self.objects.len();
        assert_eq!((self.reclaimer.poll(), census.freed()), (0, 0), "all are held");
        for (released, (object, slot)) in self.objects.into_iter().enumerate() {
            // SAFETY: the slot holds it.
            unsafe { (*object).verify() };
            // SAFETY: this thread has the reader, and the slot is released once.
            unsafe { slot.release() };
            assert_eq!((self.reclaimer.poll(), census.freed()), (1, released + 1), "{number}");
        }
    }
}

/// From no slot to more than a record has without further blocks.
const NUMBERS: [usize; 6] = [0, 1, 2, 3, 5, 20];

#[test]
fn a_bound_array_leaves_them_alone() {
    for number in NUMBERS {
        let (domain, census, others) = (Domain::new(), Census::default(), Census::default());
        let mut reader = domain.reader();
        let held = Held::new(&domain, &census, &reader, number);
        let array = RcuArray::new_in(&domain, 2, |_| Some(Box::new(others.object())));
        {
            let mut bound = array.bind(&mut reader);
            bound.protect(0).expect("it is not empty").verify();
            forget(bound.protect(1));
        }
        array.bind(&mut reader).protect(0).expect("it is not empty").verify();
        held.release(&census);
    }
}

#[test]
fn a_reader_of_a_table_leaves_them_alone() {
    for number in NUMBERS {
        let (domain, census) = (Domain::new(), Census::default());
        let mut reader = domain.reader();
        let held = Held::new(&domain, &census, &reader, number);
        let table: Table<u64, u64> = Table::new_in(&domain);
        // Enough for several growths: lookups pin two arrays at a time.
        for key in 0..200 {
            table.insert(key, key).expect("there is room");
            assert_eq!(table.reader(&mut reader).copied(&key), Some(key));
        }
        forget(table.reader(&mut reader));
        assert_eq!(table.reader(&mut reader).copied(&7), Some(7));
        held.release(&census);
    }
}

/// A slot that was handed out belongs to the caller from then on, and not only while it holds something.
#[test]
fn a_slot_that_holds_nothing_yet_has_an_owner() {
    let (domain, census) = (Domain::new(), Census::default());
    let mut reader = domain.reader();
    let parts = raw::Parts::of(&reader);
    // SAFETY: this is the reader's thread.
    let slots = [(); 9].map(|()| unsafe { parts.slot() });
    for (number, slot) in slots.iter().enumerate() {
        assert!(!slots[..number].contains(slot), "it was handed out twice");
    }
    let table: Table<u64, u64> = Table::new_in(&domain);
    table.insert(1, 1).expect("there is room");
    let array = RcuArray::new_in(&domain, 1, |_| Some(Box::new(census.object())));
    assert_eq!(table.reader(&mut reader).copied(&1), Some(1));
    array.bind(&mut reader).protect(0).expect("it is not empty").verify();

    let mut objects = slots.map(|_| super::object(&census));
    let mut reclaimer = domain.reclaimer();
    for ((object, retired), slot) in objects.iter_mut().zip(slots) {
        // SAFETY: a slot is a pointer, which its owner stores.
        let hazard = unsafe { slot.into_raw().cast::<AtomicPtr<Object>>().as_ref() };
        hazard.store(object.as_ptr(), Ordering::Release);
        // SAFETY: it is linked nowhere, and its destructor frees what `Box` has made.
        unsafe { reclaimer.retire_raw(*retired) }.expect("there is room");
    }
    assert_eq!(reclaimer.poll(), 0);
    for slot in slots {
        // SAFETY: this is the reader's thread, and the slot is released once.
        unsafe { slot.release() };
    }
    assert_eq!(reclaimer.poll(), slots.len());
}
