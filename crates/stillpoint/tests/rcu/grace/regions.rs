//! Guards and QSBR readers: what they delay, and from when on.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::thread;

use super::holding::{each_holds, Holder, Kind};
use super::retire_one;
use crate::census::Census;
use crate::modes::in_each_mode;
use crate::{eager, with_cell};

#[test]
fn a_region_holds_up_everything_retired_since() {
    in_each_mode(|domain| {
        for kind in Kind::REGIONS {
            let census = Census::default();
            let (cell, other) = (domain.cell(census.object()), domain.cell(census.object()));
            let mut reclaimer = eager(&domain);
            thread::scope(|scope| {
                let holder = Holder::start(scope, &domain, &cell, kind);
                for _ in 0..10 {
                    retire_one(&other, &census, &mut reclaimer);
                    assert_eq!(reclaimer.poll(), 0, "{kind:?}");
                }
                holder.release();
                assert_eq!(reclaimer.poll(), 10, "{kind:?}");
            });
        }
    });
}

#[test]
fn a_region_does_not_hold_up_what_completed_before() {
    in_each_mode(|domain| {
        for kind in Kind::REGIONS {
            let (census, cell, mut reclaimer) = with_cell(&domain);
            retire_one(&cell, &census, &mut reclaimer);
            assert_eq!(reclaimer.poll_at_most(0), 0); // the grace period completes, nothing is freed yet
            thread::scope(|scope| {
                let holder = Holder::start(scope, &domain, &cell, kind);
                retire_one(&cell, &census, &mut reclaimer);
                assert_eq!(reclaimer.poll(), 1, "{kind:?}: the first one");
                assert_eq!(reclaimer.poll(), 0, "{kind:?}");
                holder.release();
                assert_eq!(reclaimer.poll(), 1, "{kind:?}");
            });
        }
    });
}

/// The region begins after the token was started, so the token does not wait for it.
#[test]
fn a_region_does_not_hold_up_a_token_that_was_started_before() {
    in_each_mode(|domain| {
        let cell = domain.cell(Census::default().object());
        for kind in Kind::REGIONS {
            let token = domain.start();
            thread::scope(|scope| {
                let holder = Holder::start(scope, &domain, &cell, kind);
                assert!(domain.check(token), "{kind:?}");
                holder.release();
            });
        }
    });
}

#[test]
fn everything_waits_for_the_slowest_region() {
    in_each_mode(|domain| each_holds(&domain, &Kind::REGIONS));
}

#[test]
fn nested_guards_end_their_region_with_the_last_one() {
    in_each_mode(|domain| {
        let census = Census::default();
        let cell = domain.cell(census.object());
        let reader = domain.reader();
        let mut guards: Vec<_> = (0..5).map(|_| reader.pin()).collect();
        let mut reclaimer = eager(&domain);
        retire_one(&cell, &census, &mut reclaimer);
        for next in [2, 0, 1, 1, 0] {
            assert_eq!(reclaimer.poll(), 0);
            drop(guards.remove(next));
        }
        assert_eq!(reclaimer.poll(), 1);
    });
}

/// Two readers of one thread each have their own region.
#[test]
fn readers_of_one_thread_are_told_apart() {
    in_each_mode(|domain| {
        let (census, cell, mut reclaimer) = with_cell(&domain);
        let (first, second) = (domain.reader(), domain.reader());
        let early = first.pin();
        retire_one(&cell, &census, &mut reclaimer);
        drop(second.pin());
        assert_eq!(reclaimer.poll(), 0);
        drop(early);
        assert_eq!(reclaimer.poll(), 1);
    });
}

#[test]
fn a_quiescent_state_lets_go_of_what_came_before_alone() {
    in_each_mode(|domain| {
        let (census, cell, mut reclaimer) = with_cell(&domain);
        let mut reader = domain.qsbr_reader();
        for _ in 0..10 {
            retire_one(&cell, &census, &mut reclaimer);
            assert_eq!(reclaimer.poll(), 0);
            reader.quiescent();
            cell.load(&reader).expect("never empty").verify();
            assert_eq!(reclaimer.poll(), 1);
        }
    });
}

#[test]
fn an_offline_reader_holds_nothing_up_and_is_back_online_after() {
    in_each_mode(|domain| {
        let (census, cell, mut reclaimer) = with_cell(&domain);
        let mut reader = domain.qsbr_reader();
        let answer = reader.offline(|| {
            for _ in 0..10 {
                retire_one(&cell, &census, &mut reclaimer);
                assert_eq!(reclaimer.poll(), 1);
            }
            "answer"
        });
        assert_eq!(answer, "answer");
        retire_one(&cell, &census, &mut reclaimer);
        assert_eq!(reclaimer.poll(), 0);
        drop(reader);
        assert_eq!(reclaimer.poll(), 1);
    });
}

#[test]
fn a_reader_that_panics_offline_is_back_online_after() {
    in_each_mode(|domain| {
        let (census, cell, mut reclaimer) = with_cell(&domain);
        let mut reader = domain.qsbr_reader();
        let panic = catch_unwind(AssertUnwindSafe(|| {
            reader.offline(|| {
                assert!(domain.check(domain.start()), "it is offline");
                std::panic::resume_unwind(Box::new(7));
            })
        }));
        assert_eq!(panic.expect_err("it panics").downcast_ref(), Some(&7));
        let object = cell.load(&reader).expect("never empty");
        retire_one(&cell, &census, &mut reclaimer);
        assert_eq!(reclaimer.poll(), 0);
        object.verify();
        reader.quiescent();
        assert_eq!(reclaimer.poll(), 1);
    });
}
