//! Attempts to reach freed memory from safe code.

use std::mem;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;

use stillpoint::fence::Mode;
use stillpoint::rcu::{Domain, RcuArray, RcuCell, Region, Retired};

use crate::census::{Census, Object};
use crate::{eager, with_cell};

/// Plain memory: if a thread reads it while another one writes or frees it, a sanitizer notices, and probably the
/// comparison does as well.
#[derive(Debug)]
struct Pair(u64, u64);

impl Pair {
    fn verify(&self) {
        assert_eq!(self.0, self.1, "read while it was written");
    }
}

/// The object is taken out of the cell, changed, and put back: a reader cannot see that from its address.
#[test]
fn an_object_that_is_taken_out_changed_and_linked_again_is_never_seen_half_changed() {
    let rounds = if cfg!(miri) { 20 } else { 1000 };
    let domain = Domain::new();
    let cell = domain.cell(Pair(0, 0));
    let done = AtomicBool::new(false);
    // Relaxed: a flag that orders nothing.
    let is_done = || done.load(Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| {
            let reader = domain.reader();
            while !is_done() {
                if let Some(pair) = cell.protect(&reader) {
                    pair.verify();
                }
                if let Some(pair) = cell.load(&reader.pin()) {
                    pair.verify();
                }
            }
        });
        scope.spawn(|| {
            let mut reader = domain.qsbr_reader();
            while !is_done() {
                if let Some(pair) = cell.load(&reader) {
                    pair.verify();
                }
                reader.quiescent();
            }
        });
        for round in 0..rounds {
            let mut old = cell.take().expect("the only writer links what it took");
            let mut pair = loop {
                match old.try_into_box() {
                    Ok(pair) => break pair,
                    Err(held) => old = held,
                }
                thread::yield_now();
            };
            pair.0 = round;
            pair.1 = round;
            assert!(cell.swap(Some(pair)).is_none());
        }
        // Relaxed: as above.
        done.store(true, Ordering::Relaxed);
    });
}

/// Tries to free an object at once, in one of several ways, or hands it back.
type Free = fn(Retired<Pair>) -> Option<Retired<Pair>>;

/// A retirement outlives the last handle of its domain, and is freed by a thread that has never synchronized with the
/// reader.
///
/// On x86-64, an error would have no effect here, but Miri would see it. (The thread sanitizer would see it too, but it
/// does not understand fences, and would also report correct code.)
#[test]
fn what_a_reader_did_comes_before_a_free_that_finds_no_domain() {
    let rounds = if cfg!(miri) { 10 } else { 100 };
    let ways: [Free; 3] = [
        |old| old.try_free().err(),
        |old| {
            drop(old);
            None
        },
        |old| match old.try_into_box() {
            Ok(mut pair) => {
                pair.0 += 1; // exclusive
                None
            }
            Err(held) => Some(held),
        },
    ];
    for round in 0..rounds {
        let domain = Domain::new();
        let cell = domain.cell(Pair(5, 5));
        let (protected, unlinked, gone) =
            (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
        // Relaxed, both: the order must come from the library.
        let set = |flag: &AtomicBool| flag.store(true, Ordering::Relaxed);
        let wait = |flag: &AtomicBool| {
            while !flag.load(Ordering::Relaxed) {
                thread::yield_now();
            }
        };
        thread::scope(|scope| {
            let (cell, protected, unlinked, gone) = (&cell, &protected, &unlinked, &gone);
            scope.spawn(move || {
                let reader = domain.reader();
                drop(domain); // the reader is the last handle
                let pair = cell.protect(&reader).expect("the cell is full");
                set(protected);
                wait(unlinked);
                pair.verify();
                drop(pair);
                drop(reader);
                set(gone);
            });
            wait(protected);
            let mut old = cell.take();
            set(unlinked);
            wait(gone);
            while let Some(retired) = old {
                old = ways[round % ways.len()](retired);
            }
        });
    }
}

#[test]
fn guards_that_swap_places_hold_what_they_held() {
    let (domain, census) = (Domain::new(), Census::default());
    let cell = domain.cell(census.object());
    let (first, second) = (domain.reader(), domain.reader());
    let mut reclaimer = eager(&domain);
    let mut early = first.pin();
    reclaimer.retire(cell.replace(census.object()).expect("never empty")).expect("there is room");
    let mut late = second.pin();
    mem::swap(&mut early, &mut late);
    drop(early); // the region of the second reader, which came too late
    assert_eq!(reclaimer.poll(), 0);
    drop(late);
    assert_eq!(reclaimer.poll(), 1);
}

#[test]
fn a_qsbr_reader_replaced_by_its_successor_holds_nothing() {
    let domain = Domain::new();
    let (census, cell, mut reclaimer) = with_cell(&domain);
    let mut reader = domain.qsbr_reader();
    for _ in 0..10 {
        cell.load(&reader).expect("never empty").verify();
        reclaimer.retire(cell.replace(census.object()).expect("never empty")).expect("there is room");
        assert_eq!(reclaimer.poll(), 0);
        drop(mem::replace(&mut reader, domain.qsbr_reader()));
        assert_eq!(reclaimer.poll(), 1);
    }
}

/// One thread's region protects the references of all threads that borrow from it.
#[test]
fn references_under_a_guard_may_be_used_by_other_threads() {
    let (domain, census) = (Domain::new(), Census::default());
    let cell = domain.cell(census.object());
    let reader = domain.reader();
    let guard = reader.pin();
    let object = cell.load(&guard).expect("never empty");
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut reclaimer = eager(&domain);
                reclaimer.retire(cell.replace(census.object()).expect("never empty")).expect("there is room");
                assert_eq!(reclaimer.poll(), 0);
                object.verify();
            });
        }
    });
    object.verify();
}

/// A generic function sees any region only through the trait.
#[test]
fn regions_can_be_used_through_the_trait() {
    fn verify<R: Region>(cell: &RcuCell<Object>, region: &R) {
        cell.load(region).expect("never empty").verify();
    }
    let (domain, census) = (Domain::new(), Census::default());
    let cell = domain.cell(census.object());
    verify(&cell, &domain.reader().pin());
    verify(&cell, &domain.qsbr_reader());
}

#[test]
fn a_load_that_panics_holds_nothing() {
    let (domain, census) = (Domain::new(), Census::default());
    let array = RcuArray::new_in(&domain, 1, |_| Some(Box::new(census.object())));
    let reader = domain.reader();
    let foreign = Domain::new().reader();
    assert!(catch_unwind(AssertUnwindSafe(|| array.protect(1, &reader).is_some())).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| array.protect(0, &foreign).is_some())).is_err());
    let mut reclaimer = eager(&domain);
    reclaimer.retire(array.swap(0, None).expect("the slot is full")).expect("there is room");
    assert_eq!(reclaimer.poll(), 1);
}

/// A parent is freed together with its children, so readers of the parent must keep the children as well.
#[test]
fn children_live_as_long_as_a_reader_holds_their_parent() {
    struct Parent {
        object: Object,
        child: RcuCell<Object>,
    }
    for mode in [Mode::best(), Mode::Symmetric] {
        let census = Census::default();
        let domain = Domain::builder().fence(mode).build().expect("the mode was probed");
        let parent = Parent { object: census.object(), child: domain.cell(census.object()) };
        let cell = Arc::new(domain.cell(parent));
        let reader = domain.reader();
        let parent = cell.protect(&reader).expect("the cell is full");
        let child = parent.child.protect(&reader).expect("the cell is full");

        let mut reclaimer = eager(&domain);
        reclaimer.retire(cell.take().expect("the cell is full")).expect("there is room");
        assert_eq!(reclaimer.poll(), 0);
        child.verify();
        drop(child);
        assert_eq!(reclaimer.poll(), 0);
        let guard = reader.pin();
        let child = parent.child.load(&guard);
        child.expect("the cell is full").verify();
        parent.object.verify();
        drop(parent);
        assert_eq!(reclaimer.poll(), 1);
        assert_eq!((census.freed(), census.alive()), (2, 0));
    }
}
