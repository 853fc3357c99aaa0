//! Limits of a domain, which cover everything that waits in it.

use std::mem;

use stillpoint::rcu::limits::{RetireErrorKind, WhenFull};
use stillpoint::rcu::Domain;

use super::{limited, retired};
use crate::census::Census;
use crate::modes::in_each_mode;
use crate::then::Then;
use crate::{eager, LONG};

#[test]
fn everything_that_waits_counts_wherever_it_waits() {
    let (domain, census) = (limited(5), Census::default());
    let reader = domain.reader();
    let guard = reader.pin();
    let mut reclaimer = eager(&domain);
    let mut dropped = domain.reclaimer();
    let background = domain.background();
    let handle = background.retire_handle();
    reclaimer.retire(retired(&domain, census.object())).expect("there is room for the first");
    dropped.retire(retired(&domain, census.object())).expect("there is room for the second");
    drop(dropped);
    handle.retire(retired(&domain, census.object())).expect("there is room for the third");
    drop(retired(&domain, census.object()));
    reclaimer.defer(|| ());
    assert_eq!(domain.stats().pending, 5);

    let next = retired(&domain, census.object());
    let next = reclaimer.retire(next).expect_err("five wait");
    assert_eq!((next.kind(), next.kind().is_full()), (RetireErrorKind::DomainFull, true));
    let next = handle.retire(next.into_inner()).expect_err("five wait");
    assert_eq!(next.kind(), RetireErrorKind::DomainFull);
    let text = next.to_string();
    assert!(
        text.contains(&format!("domain `{}`", domain.name())) && text.contains("the domain is full"),
        "{text}"
    );
    let old = next.into_inner();
    old.verify();

    drop(guard);
    handle.retire(old).expect_err("five still wait, as there was no poll");
    assert!(reclaimer.poll() > 0);
    reclaimer.retire(retired(&domain, census.object())).expect("there is room");
    drop((handle, background));
    reclaimer.flush().expect("nothing is in the way");
    assert_eq!((domain.stats().pending, census.alive()), (0, 0));
    assert_eq!(domain.stats().beyond_limits, 1, "the object that was refused in the end, and dropped");
}

#[test]
fn room_is_there_again_however_an_object_is_freed() {
    in_each_mode(|domain| {
        let domain = Domain::builder().fence(domain.fence_mode()).max_pending(1).build().expect("probed");
        let census = Census::default();
        let mut reclaimer = eager(&domain);
        for _ in 0..3 {
            reclaimer.retire(retired(&domain, census.object())).expect("polled");
            assert_eq!(reclaimer.poll(), 1);

            reclaimer.retire(retired(&domain, census.object())).expect("flushed");
            reclaimer.flush().expect("nothing is in the way");

            drop(retired(&domain, census.object()));
            domain.synchronize().expect("nothing is in the way");

            drop(retired(&domain, census.object()));
            assert_eq!(reclaimer.poll(), 1);

            let mut background = domain.background();
            let handle = background.retire_handle();
            handle.retire(retired(&domain, census.object())).expect("background");
            handle.stop();
            background.run();

            let mut dropped = domain.reclaimer();
            dropped.retire(retired(&domain, census.object())).expect("dropped");
            drop(dropped);
            assert_eq!(reclaimer.poll(), 1);
        }
        let stats = domain.stats();
        assert_eq!((stats.pending, stats.beyond_limits, stats.handed_back), (0, 0, 0));
        assert_eq!((census.freed(), census.alive()), (18, 0));
    });
}

/// Objects that the caller keeps, or frees itself, do not wait in the domain.
#[test]
fn what_is_not_retired_does_not_count() {
    let (domain, census) = (limited(1), Census::default());
    let kept: Vec<_> = (0..4).map(|_| retired(&domain, census.object())).collect();
    let mut reclaimer = domain.reclaimer();
    reclaimer.retire(retired(&domain, census.object())).expect("nothing waits");
    for kept in kept {
        assert!(kept.try_free().is_ok());
    }
    assert_eq!((domain.stats().pending, domain.stats().beyond_limits), (1, 0));
}

#[test]
fn bytes_are_limited_exactly() {
    let domain =
        Domain::builder().max_pending_bytes(100).build().expect("the default mode is always available");
    let reader = domain.reader();
    let guard = reader.pin();
    let (mut first, mut second) = (domain.reclaimer(), domain.reclaimer());
    first.retire(retired(&domain, [0_u8; 60])).expect("there is room");
    let error = second.retire(retired(&domain, [0_u8; 41])).expect_err("one byte too many");
    assert_eq!(error.kind(), RetireErrorKind::DomainFull);
    second.retire(retired(&domain, [0_u8; 40])).expect("it fits exactly");
    second.retire(retired(&domain, ())).expect("it takes no room");
    let stats = domain.stats();
    assert_eq!((stats.pending, stats.pending_bytes), (3, 100));
    assert_eq!((stats.max_pending, stats.max_pending_bytes), (None, Some(100)));
    drop(guard);
    assert_eq!(first.poll(), 1);
    first.retire(error.into_inner()).expect("there is room again");
}

/// An attempt that one limit refuses uses no room of the other one.
#[test]
fn both_limits_hold() {
    let domain = Domain::builder()
        .max_pending(2)
        .max_pending_bytes(10)
        .build()
        .expect("the default mode is always available");
    let mut reclaimer = domain.reclaimer_builder().batch(1000).build();
    let reader = domain.reader();
    let _guard = reader.pin();
    for _ in 0..5 {
        let error = reclaimer.retire(retired(&domain, [0_u8; 11])).expect_err("it will never fit");
        mem::forget(error.into_inner());
    }
    reclaimer.retire(retired(&domain, [0_u8; 4])).expect("there is room");
    reclaimer.retire(retired(&domain, [0_u8; 4])).expect("there is room");
    mem::forget(reclaimer.retire(retired(&domain, ())).expect_err("two wait").into_inner());
    let stats = domain.stats();
    assert_eq!((stats.pending, stats.pending_bytes, stats.handed_back), (2, 8, 6));
    assert_eq!((stats.max_pending, stats.max_pending_bytes), (Some(2), Some(10)));
}

#[test]
fn a_capacity_of_nothing_holds_one() {
    let domain = limited(0);
    assert_eq!(domain.stats().max_pending, Some(1));
    let mut reclaimer = eager(&domain);
    reclaimer.retire(retired(&domain, 1)).expect("there is room for one");
    assert_eq!(reclaimer.poll(), 1);
}

#[test]
fn a_domain_without_limits_says_so() {
    let stats = Domain::new().stats();
    assert_eq!((stats.max_pending, stats.max_pending_bytes, stats.beyond_limits), (None, None, 0));
}

/// Drops beyond the limit are accepted, and no other object is until they are freed.
#[test]
fn what_is_dropped_beyond_the_limit_is_counted() {
    let (domain, census) = (limited(2), Census::default());
    let reader = domain.reader();
    let guard = reader.pin();
    for _ in 0..5 {
        drop(retired(&domain, census.object()));
    }
    assert_eq!((domain.stats().pending, domain.stats().beyond_limits), (5, 3));
    let mut reclaimer = eager(&domain);
    reclaimer.defer(|| ());
    let background = domain.background();
    background.retire_handle().defer(|| ());
    drop(background);
    assert_eq!((domain.stats().pending, domain.stats().beyond_limits), (7, 5));
    let next = reclaimer.retire(retired(&domain, census.object())).expect_err("seven wait").into_inner();
    drop(guard);
    assert_eq!(reclaimer.poll(), 7);
    reclaimer.retire(next).expect("there is room again");
    assert_eq!((domain.stats().pending, domain.stats().beyond_limits), (1, 5));
}

/// A destructor that retires finds the room of objects that were freed before its own, but not yet the room of its own
/// object.
#[test]
fn a_destructor_retires_within_the_limit() {
    let domain = limited(2);
    let mut reclaimer = eager(&domain);
    let census = Census::default();
    let (inner, object) = (domain.clone(), census.object());
    let retires = Then::new(move || {
        let mut other = inner.reclaimer();
        assert_eq!(inner.stats().pending, 1, "the one before is freed, this one is not");
        other.retire(retired(&inner, object)).expect("the first one's room is there");
        let error = inner.reclaimer().retire(retired(&inner, 0)).expect_err("this one's is not");
        assert!(error.into_inner().try_free().is_ok());
    });
    reclaimer.retire(retired(&domain, census.object())).expect("there is room");
    reclaimer.retire(retired(&domain, retires)).expect("there is room");
    assert_eq!(reclaimer.poll(), 2);
    assert_eq!(domain.stats().pending, 1);
    reclaimer.flush_timeout(LONG).expect("nothing is in the way");
    assert_eq!((census.alive(), domain.stats().pending, domain.stats().beyond_limits), (0, 0, 0));
}

/// A reclaimer that has freed its objects keeps no room that others need.
#[test]
fn those_that_are_idle_keep_no_room() {
    const LIMIT: usize = 10_000;
    let domain = limited(LIMIT);
    let idle: Vec<_> = (0..100)
        .map(|_| {
            let mut reclaimer = eager(&domain);
            reclaimer.retire(retired(&domain, 0)).expect("there is room");
            assert_eq!(reclaimer.poll(), 1);
            reclaimer
        })
        .collect();
    assert_eq!(domain.stats().pending, 0);
    let reader = domain.reader();
    let guard = reader.pin();
    let mut writer = domain.reclaimer();
    for _ in 0..LIMIT {
        writer.retire(retired(&domain, 0)).expect("no other reclaimer has an object");
    }
    assert_eq!(writer.retire(retired(&domain, 0)).unwrap_err().kind(), RetireErrorKind::DomainFull);
    drop((guard, idle));
    writer.flush().expect("nothing is in the way");
}

/// This holds for an object as large as the limit, too, when others have freed small ones before.
#[test]
fn a_large_object_finds_the_room_of_small_ones() {
    const LARGE: usize = 1 << 16;
    let domain = Domain::builder().max_pending_bytes(LARGE).build().expect("a limit is no reason to fail");
    let large = || retired(&domain, [0u8; LARGE]);
    let mut first = eager(&domain);
    first.retire(retired(&domain, 0u64)).expect("there is room");
    assert_eq!(first.poll(), 1);
    let mut second = eager(&domain);
    second.retire(large()).expect("nothing waits");
    assert_eq!(second.poll(), 1);

    let mut background = domain.background();
    let handle = background.retire_handle().when_full(WhenFull::Wait(LONG));
    std::thread::scope(|scope| {
        scope.spawn(|| background.run());
        handle.retire(retired(&domain, 0u64)).expect("there is room");
        handle.retire(large()).expect("it is freed, and its room is there again");
        drop(handle);
    });
    assert_eq!(domain.stats().pending_bytes, 0);

    // While one of its objects waits, a reclaimer may keep the room of freed ones, until a retirement is refused for
    // lack of it.
    let reader = domain.reader();
    let cell = domain.cell(1u64);
    let held = cell.protect(&reader);
    first.retire(cell.take().expect("it is full")).expect("there is room");
    (0..100).for_each(|_| first.retire(retired(&domain, 0u64)).expect("there is room"));
    assert_eq!(first.poll(), 100);
    let error = second.retire(large()).expect_err("one waits");
    first.poll();
    assert_eq!(domain.stats().pending_bytes, 8, "the reclaimer has given back the room that it kept");
    drop(held);
    assert_eq!(first.poll(), 1);
    second.retire(error.into_inner()).expect("nothing waits");
}
