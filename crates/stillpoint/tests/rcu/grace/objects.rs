//! An object is freed at once when it is no longer held, and never before.

use std::thread;

use stillpoint::rcu::RcuArray;

use super::holding::{each_holds, Holder, Kind};
use super::{noticing, retire_one};
use crate::census::Census;
use crate::modes::{in_each_mode, modes};
use crate::{eager, with_cell, LONG};

#[test]
fn an_object_is_not_freed_while_it_is_read_and_is_freed_right_after() {
    in_each_mode(|domain| {
        for kind in Kind::ALL {
            let (census, cell, mut reclaimer) = with_cell(&domain);
            thread::scope(|scope| {
                let holder = Holder::start(scope, &domain, &cell, kind);
                retire_one(&cell, &census, &mut reclaimer);
                for _ in 0..100 {
                    assert_eq!(reclaimer.poll(), 0, "{kind:?}");
                }
                holder.release();
                assert_eq!(reclaimer.poll(), 1, "{kind:?}");
            });
            assert_eq!((census.freed(), census.alive()), (1, 1), "{kind:?}");
        }
    });
}

#[test]
fn a_single_retirement_is_freed_by_the_same_rule() {
    in_each_mode(|domain| {
        for kind in Kind::ALL {
            let census = Census::default();
            let cell = domain.cell(census.object());
            thread::scope(|scope| {
                let holder = Holder::start(scope, &domain, &cell, kind);
                let old = cell.take().expect("the cell is full");
                let old = old.try_free().expect_err("a reader holds it");
                let old = old.try_into_box().expect_err("a reader holds it");
                holder.release();
                assert!(old.try_free().is_ok(), "{kind:?}");
            });
            assert_eq!((census.freed(), census.alive()), (1, 0));
        }
    });
}

#[test]
fn a_background_reclaimer_frees_by_the_same_rule() {
    for mode in modes() {
        for kind in Kind::ALL {
            let (domain, is_noticed) = noticing(mode);
            let census = Census::default();
            let cell = domain.cell(census.object());
            let mut background = domain.background();
            let handle = background.retire_handle();
            thread::scope(|scope| {
                let holder = Holder::start(scope, &domain, &cell, kind);
                handle.retire(cell.replace(census.object()).expect("never empty")).expect("there is room");
                handle.stop();
                let run = scope.spawn(move || background.run());
                // The writer has looked: it finds the region in its way, or the object in a hazard slot.
                match kind {
                    Kind::Protected => {
                        while domain.stats().pinned == 0 && !run.is_finished() {
                            thread::yield_now();
                        }
                    }
                    _ => is_noticed.recv().expect("the domain is alive"),
                }
                assert!(!run.is_finished(), "{mode:?}, {kind:?}");
                assert_eq!(census.freed(), 0, "{mode:?}, {kind:?}");
                holder.release();
                run.join().expect("nothing panics");
                assert_eq!(census.freed(), 1, "{mode:?}, {kind:?}");
            });
        }
    }
}

#[test]
fn a_protected_load_holds_up_its_object_alone() {
    in_each_mode(|domain| {
        let census = Census::default();
        let (cell, other) = (domain.cell(census.object()), domain.cell(census.object()));
        let mut reclaimer = eager(&domain);
        thread::scope(|scope| {
            let holder = Holder::start(scope, &domain, &cell, Kind::Protected);
            retire_one(&other, &census, &mut reclaimer);
            retire_one(&cell, &census, &mut reclaimer);
            for _ in 0..50 {
                retire_one(&cell, &census, &mut reclaimer);
                retire_one(&other, &census, &mut reclaimer);
            }
            assert_eq!((reclaimer.poll(), reclaimer.pending()), (101, 1));
            holder.release();
            assert_eq!((reclaimer.poll(), reclaimer.pending()), (1, 0));
        });
    });
}

#[test]
fn each_of_two_protected_loads_of_an_object_holds_it() {
    in_each_mode(|domain| each_holds(&domain, &[Kind::Protected, Kind::Protected]));
}

/// A reader changes from a guard to a protected load. At every moment, one of the two holds the object.
#[test]
fn an_object_protected_under_a_guard_is_held_after_the_guard() {
    in_each_mode(|domain| {
        let (census, cell, mut reclaimer) = with_cell(&domain);
        let reader = domain.reader();
        let guard = reader.pin();
        let object = cell.protect(&reader).expect("never empty");
        retire_one(&cell, &census, &mut reclaimer);
        assert_eq!(reclaimer.poll(), 0);
        drop(guard);
        assert_eq!(reclaimer.poll(), 0);
        object.verify();
        drop(object);
        assert_eq!(reclaimer.poll(), 1);
    });
}

#[test]
fn a_protected_load_finds_what_is_linked_now() {
    in_each_mode(|domain| {
        let array = RcuArray::new_in(&domain, 3, |index| (index < 2).then(|| Box::new(index)));
        let reader = domain.reader();
        assert_eq!(array.protect(0, &reader).as_deref(), Some(&0));
        assert!(array.protect(2, &reader).is_none());
        drop(array.swap(1, Some(Box::new(5))));
        assert_eq!(array.protect(1, &reader).as_deref(), Some(&5));
        assert_eq!((array.len(), array.is_empty()), (3, false));
    });
}

#[test]
fn a_deferred_call_waits_for_regions_and_not_for_protected_loads() {
    in_each_mode(|domain| {
        let census = Census::default();
        let cell = domain.cell(census.object());
        for kind in Kind::ALL {
            let mut reclaimer = eager(&domain);
            thread::scope(|scope| {
                let holder = Holder::start(scope, &domain, &cell, kind);
                let object = census.object();
                reclaimer.defer(move || drop(object));
                assert_eq!(reclaimer.poll(), usize::from(kind == Kind::Protected), "{kind:?}");
                holder.release();
                reclaimer.flush_timeout(LONG).expect("nothing is in the way");
            });
        }
        assert_eq!(census.freed(), Kind::ALL.len());
    });
}
