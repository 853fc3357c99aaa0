//! Futures that are dropped half-way leave nothing behind.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;

use stillpoint::rcu::Domain;

use super::{poll, while_held, Alarm, End};
use crate::modes::in_each_mode;

#[test]
fn a_dropped_future_drops_its_waker() {
    in_each_mode(|domain| {
        while_held(&domain, End::Guard, |leave| {
            let alarm = Alarm::new();
            let mut dropped = Box::pin(domain.grace_period(domain.start()));
            assert!(poll(dropped.as_mut(), &alarm).is_pending());
            assert_eq!(Arc::strong_count(&alarm), 2);
            drop(dropped);
            assert_eq!(Arc::strong_count(&alarm), 1);

            // Another future uses the request that it made.
            let mut kept = pin!(domain.grace_period(domain.start()));
            let other = Alarm::new();
            assert!(poll(kept.as_mut(), &other).is_pending());
            drop(leave);
            other.wait_beyond(0);
            assert_eq!(poll(kept.as_mut(), &other), Poll::Ready(Ok(())));
            assert_eq!(alarm.wakes(), 0);
        });
        assert_eq!(domain.stall(), None);
    });
}

/// A loop around `select!` with a timer drops a future in each turn.
#[test]
fn a_thousand_dropped_futures_cost_one_fence_and_no_memory() {
    in_each_mode(|domain| {
        while_held(&domain, End::Guard, |_leave| {
            let token = domain.start();
            assert!(!domain.check(token));
            let before = domain.stats().heavy_fences;
            let alarm = Alarm::new();
            for _ in 0..1000 {
                assert!(poll(pin!(domain.grace_period(token)), &alarm).is_pending());
            }
            assert!(domain.stats().heavy_fences <= before + 1);
            assert_eq!(Arc::strong_count(&alarm), 1);
        });
    });
}

#[test]
fn a_forgotten_future_does_not_outlive_the_domain() {
    let alarm = Alarm::new();
    let weak: Weak<Alarm> = Arc::downgrade(&alarm);
    let domain = Domain::new();
    let reader = domain.reader();
    let guard = reader.pin();
    let mut future = Box::pin(domain.grace_period(domain.start()));
    assert!(poll(future.as_mut(), &alarm).is_pending());
    drop(alarm);
    drop(guard); // takes the waker out
    assert!(weak.upgrade().is_none());
    drop((future, reader, domain));
}

#[test]
fn a_future_keeps_the_domain_alive() {
    let future = {
        let domain = Domain::new();
        domain.grace_period(domain.start())
    };
    assert_eq!(super::block_on(future), (Ok(()), 1));
}

#[test]
fn a_future_dates_a_stall_as_long_as_it_waits() {
    let domain = Domain::new();
    while_held(&domain, End::Guard, |_leave| {
        let mut future = Box::pin(domain.grace_period(domain.start()));
        assert!(poll(future.as_mut(), &Alarm::new()).is_pending());
        let first = domain.stall().expect("a reader is in the way").waited;
        let second = domain.stall().expect("a reader is in the way").waited;
        assert!(second > first);
        drop(future);
        assert!(domain.stall().expect("a reader is in the way").waited.is_zero());
    });
}
