//! Objects that are left to the domain: dropped retirements, and objects of dropped reclaimers.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::thread;

use stillpoint::rcu::wait::SynchronizeError;
use stillpoint::rcu::{Domain, RcuCell};

use super::holding::{Holder, Kind};
use super::retire_one;
use crate::census::{Census, Object};
use crate::modes::in_each_mode;
use crate::{eager, LONG, SHORT};

/// Leaves one object to the domain in each of the two ways.
fn leave_two(domain: &Domain, cell: &RcuCell<Object>, census: &Census) {
    drop(cell.replace(census.object()));
    let mut reclaimer = eager(domain);
    retire_one(cell, census, &mut reclaimer);
}

#[test]
fn synchronize_frees_what_was_left_to_the_domain() {
    in_each_mode(|domain| {
        let census = Census::default();
        let cell = domain.cell(census.object());
        let mut qsbr = domain.qsbr_reader();
        qsbr.offline(|| {
            leave_two(&domain, &cell, &census);
            domain.synchronize().expect("nothing is in the way");
            assert_eq!(census.freed(), 2);
            leave_two(&domain, &cell, &census);
            domain.synchronize_timeout(LONG).expect("nothing is in the way");
            assert_eq!(census.freed(), 4);
        });
        leave_two(&domain, &cell, &census);
        qsbr.synchronize().expect("nothing is in the way");
        assert_eq!((census.freed(), domain.stats().pending), (6, 0));
    });
}

#[test]
fn synchronize_frees_nothing_that_is_held_and_loses_nothing() {
    in_each_mode(|domain| {
        for kind in Kind::ALL {
            let census = Census::default();
            let cell = domain.cell(census.object());
            thread::scope(|scope| {
                let holder = Holder::start(scope, &domain, &cell, kind);
                leave_two(&domain, &cell, &census);
                let answer = domain.synchronize_timeout(SHORT);
                let freed = if kind == Kind::Protected {
                    assert_eq!(answer, Ok(()), "it is a matter of regions");
                    1
                } else {
                    assert!(matches!(answer, Err(SynchronizeError::Stalled(_))), "{kind:?}: {answer:?}");
                    0
                };
                assert_eq!((census.freed(), domain.stats().pending), (freed, 2 - freed as u64), "{kind:?}");
                holder.release();
                domain.synchronize_timeout(LONG).expect("nothing is in the way");
            });
            assert_eq!((census.freed(), domain.stats().pending), (2, 0), "{kind:?}");
        }
    });
}

#[test]
fn synchronize_resumes_the_panic_of_a_destructor_and_frees_the_rest() {
    struct Panics(Object);

    impl Drop for Panics {
        fn drop(&mut self) {
            self.0.verify();
            std::panic::resume_unwind(Box::new(5));
        }
    }
    let (domain, census) = (Domain::new(), Census::default());
    let (nasty, cell) = (domain.cell(Panics(census.object())), domain.cell(census.object()));
    drop(cell.replace(census.object()));
    drop(nasty.take());
    drop(cell.replace(census.object()));
    let panic = catch_unwind(AssertUnwindSafe(|| domain.synchronize())).expect_err("a destructor panics");
    assert_eq!(panic.downcast_ref(), Some(&5));
    assert_eq!((census.freed(), domain.stats().pending), (3, 0));
}

#[test]
fn a_retirement_is_freed_by_whoever_waits_for_it() {
    in_each_mode(|domain| {
        for kind in Kind::ALL {
            let census = Census::default();
            let cell = domain.cell(census.object());
            thread::scope(|scope| {
                let holder = Holder::start(scope, &domain, &cell, kind);
                let old = cell.replace(census.object()).expect("never empty");
                let error = old.free_timeout(SHORT).expect_err("a reader holds it");
                assert_eq!(
                    matches!(error.cause(), SynchronizeError::Pinned { .. }),
                    kind == Kind::Protected,
                    "{error:?}"
                );
                let waits = scope.spawn(move || error.into_inner().free());
                holder.release();
                waits.join().expect("it does not panic").expect("the reader has let go");
            });
            assert_eq!(census.freed(), 1, "{kind:?}");
        }
    });
}
