//! Objects of unusual types, and more readers and hazard slots than usual.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Barrier;
use std::thread;

use stillpoint::rcu::{Domain, RcuArray, RcuCell};

use crate::census::Census;
use crate::eager;

#[test]
fn objects_of_size_zero_are_dropped_once_each() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Nothing;
    impl Drop for Nothing {
        fn drop(&mut self) {
            // Relaxed: a count of this thread.
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    let domain = Domain::new();
    let cell = domain.cell(Nothing);
    let mut reclaimer = eager(&domain);
    for _ in 0..10 {
        reclaimer.retire(cell.replace(Nothing).expect("the cell is full")).expect("there is room");
    }
    assert_eq!((reclaimer.pending(), reclaimer.pending_bytes()), (10, 0));
    assert_eq!(reclaimer.poll(), 10);
    drop(cell.take());
    drop((cell, reclaimer, domain));
    assert_eq!(DROPPED.load(Ordering::Relaxed), 11);
}

/// Values of size zero have no address of their own.
#[test]
fn a_protected_object_of_size_zero_holds_up_its_like_and_nothing_else() {
    let (domain, census) = (Domain::new(), Census::default());
    let (empty, full) = (domain.cell(()), domain.cell(census.object()));
    let reader = domain.reader();
    let nothing = empty.protect(&reader).expect("the cell is full");
    let mut reclaimer = eager(&domain);
    reclaimer.retire(empty.take().expect("the cell is full")).expect("there is room");
    reclaimer.retire(full.take().expect("the cell is full")).expect("there is room");
    assert_eq!((reclaimer.poll(), census.freed()), (1, 1));
    drop(nothing);
    assert_eq!(reclaimer.poll(), 1);
}

/// A closure without captures has size zero as well, but it is no object that could be protected.
#[test]
fn a_deferred_call_is_not_held_up_by_a_protected_object_of_size_zero() {
    static CALLED: AtomicUsize = AtomicUsize::new(0);
    let domain = Domain::new();
    let empty = domain.cell(());
    let reader = domain.reader();
    let nothing = empty.protect(&reader).expect("the cell is full");
    let mut reclaimer = eager(&domain);
    // Relaxed, both: a count of this thread.
    reclaimer.defer(|| _ = CALLED.fetch_add(1, Ordering::Relaxed));
    assert_eq!(reclaimer.poll(), 1);
    assert_eq!(CALLED.load(Ordering::Relaxed), 1);
    drop(nothing);
}

#[test]
fn large_alignment_is_kept() {
    #[repr(align(4096))]
    struct Page([u8; 4096]);

    let domain = Domain::new();
    let array = RcuArray::new_in(&domain, 8, |index| Some(Box::new(Page([index as u8; 4096]))));
    let reader = domain.reader();
    let mut reclaimer = eager(&domain);
    for index in 0..8 {
        let page = array.protect(index, &reader).expect("the slot is full");
        assert_eq!((&raw const *page).addr() % 4096, 0);
        reclaimer.retire(array.swap(index, None).expect("the slot is full")).expect("there is room");
        assert_eq!((page.0[4095], reclaimer.poll()), (index as u8, 0));
        drop(page);
        assert_eq!(reclaimer.poll(), 1);
    }
}

#[test]
fn a_reader_protects_a_thousand_objects_at_a_time() {
    let count = if cfg!(miri) { 50 } else { 1000 };
    let (domain, census) = (Domain::new(), Census::default());
    let array = RcuArray::new_in(&domain, count, |_| Some(Box::new(census.object())));
    let reader = domain.reader();
    let mut reclaimer = eager(&domain);
    for _ in 0..3 {
        let mut held: Vec<_> = (0..count).map(|index| array.protect(index, &reader)).collect();
        for index in 0..count {
            let old = array.swap(index, Some(Box::new(census.object()))).expect("the slot is full");
            reclaimer.retire(old).expect("there is room");
        }
        assert_eq!(reclaimer.poll(), 0);
        held.iter().flatten().for_each(|object| object.verify());
        // Every second one, starting in the middle of the chain of slots.
        for index in (0..count / 2).rev() {
            held.swap_remove(2 * index);
        }
        assert_eq!(reclaimer.poll(), count / 2);
        held.iter().flatten().for_each(|object| object.verify());
        drop(held);
        assert_eq!(reclaimer.poll(), count - count / 2);
    }
    assert_eq!(census.alive(), count);
}

#[test]
fn a_thousand_threads_read_at_a_time() {
    let threads = if cfg!(miri) { 20 } else { 1000 };
    let (domain, census) = (Domain::new(), Census::default());
    let cell = domain.cell(census.object());
    let (loaded, replaced) = (Barrier::new(threads + 1), Barrier::new(threads + 1));
    let mut reclaimer = eager(&domain);
    thread::scope(|scope| {
        for number in 0..threads {
            let (domain, cell, loaded, replaced) = (&domain, &cell, &loaded, &replaced);
            let thread = thread::Builder::new().stack_size(128 << 10);
            let read = move || {
                if number % 2 == 0 {
                    let reader = domain.reader();
                    let object = cell.protect(&reader).expect("never empty");
                    loaded.wait();
                    replaced.wait();
                    object.verify();
                } else {
                    let reader = domain.qsbr_reader();
                    let object = cell.load(&reader).expect("never empty");
                    loaded.wait();
                    replaced.wait();
                    object.verify();
                }
            };
            thread.spawn_scoped(scope, read).expect("the system has room for the thread");
        }
        loaded.wait();
        assert_eq!(domain.stats().readers, threads);
        reclaimer.retire(cell.replace(census.object()).expect("never empty")).expect("there is room");
        assert_eq!(reclaimer.poll(), 0);
        replaced.wait();
    });
    assert_eq!(domain.stats().readers, 0);
    assert_eq!(reclaimer.poll(), 1);
}

#[test]
fn a_domain_of_ten_thousand_cells_costs_them_nothing_when_it_goes() {
    let count = if cfg!(miri) { 100 } else { 10_000 };
    let census = Census::default();
    let domain = Domain::new();
    let cells: Vec<RcuCell<_>> = (0..count).map(|_| domain.cell(census.object())).collect();
    drop(domain);
    assert_eq!(census.freed(), 0);
    drop(cells);
    assert_eq!((census.freed(), census.alive()), (count, 0));
}
