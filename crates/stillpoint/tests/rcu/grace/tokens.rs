//! Tokens: their order, and the cost of checking them.

use std::thread;
use std::time::Instant;

use stillpoint::fence::Mode;
use stillpoint::rcu::Domain;

use super::holding::{Holder, Kind};
use crate::census::Census;
use crate::modes::in_each_mode;
use crate::other::silent;
use crate::{LONG, SHORT};

#[test]
fn a_token_is_over_when_every_region_has_passed() {
    in_each_mode(|domain| {
        let cell = domain.cell(Census::default().object());
        for kind in Kind::REGIONS {
            thread::scope(|scope| {
                let holder = Holder::start(scope, &domain, &cell, kind);
                let token = domain.start();
                assert!(!domain.check(token), "{kind:?}");
                holder.release();
                assert!(domain.check(token), "{kind:?}");
            });
        }
    });
}

#[test]
fn a_token_knows_nothing_of_protected_loads() {
    in_each_mode(|domain| {
        let cell = domain.cell(Census::default().object());
        thread::scope(|scope| {
            let holder = Holder::start(scope, &domain, &cell, Kind::Protected);
            assert!(domain.check(domain.start()));
            holder.release();
        });
    });
}

/// Each reader delays the tokens that were started while it was inside, and no others.
#[test]
fn several_grace_periods_go_on_at_a_time() {
    in_each_mode(|domain| {
        let cell = domain.cell(Census::default().object());
        thread::scope(|scope| {
            let first = Holder::start(scope, &domain, &cell, Kind::Guard);
            let early = domain.start();
            let second = Holder::start(scope, &domain, &cell, Kind::Qsbr);
            let late = domain.start();
            assert_eq!((domain.check(early), domain.check(late)), (false, false));
            first.release();
            assert_eq!((domain.check(late), domain.check(early)), (false, true));
            second.release();
            assert_eq!((domain.check(early), domain.check(late)), (true, true));
        });
    });
}

#[test]
fn when_a_later_token_is_over_so_is_an_earlier_one() {
    in_each_mode(|domain| {
        let reader = domain.reader();
        let guard = reader.pin();
        let tokens: Vec<_> = (0..10).map(|_| domain.start()).collect();
        assert!(tokens.iter().all(|&token| !domain.check(token)));
        drop(guard);
        assert!(domain.check(tokens[9]));
        // A guard that begins now delays none of them.
        let _guard = reader.pin();
        assert!(tokens.iter().all(|&token| domain.check(token)));
        let distinct: std::collections::HashSet<_> = tokens.iter().collect();
        assert_eq!(distinct.len(), tokens.len());
    });
}

#[test]
fn a_token_that_is_over_stays_over() {
    in_each_mode(|domain| {
        let token = domain.start();
        assert!(domain.check(token));
        let reader = domain.reader();
        let _guard = reader.pin();
        let _qsbr = domain.qsbr_reader();
        assert!(domain.check(token));
        assert!(domain.wait(token).is_ok());
    });
}

#[test]
fn check_never_waits() {
    in_each_mode(|domain| {
        let cell = domain.cell(Census::default().object());
        thread::scope(|scope| {
            let holder = Holder::start(scope, &domain, &cell, Kind::Guard);
            let token = domain.start();
            let begun = Instant::now();
            assert!((0..1000).all(|_| !domain.check(token)));
            assert!(begun.elapsed() < LONG);
            holder.release();
        });
    });
}

#[test]
fn a_check_of_a_token_that_was_fenced_needs_no_other_fence() {
    in_each_mode(|domain| {
        let fences = || domain.stats().heavy_fences;
        let (reader, _silent) = (domain.reader(), silent(&domain));
        let guard = reader.pin();
        let (older, token) = (domain.start(), domain.start());
        for _ in 0..100 {
            assert!(!domain.check(token));
            assert!(!domain.check(older));
        }
        assert!(domain.wait_timeout(token, SHORT).is_err());
        assert_eq!(fences(), 0, "the guard is in the way: none is owed yet");
        drop(guard);
        assert!(domain.check(token));
        let first = fences();
        assert_eq!(first, u64::from(domain.fence_mode() != Mode::Symmetric));
        for _ in 0..100 {
            assert!(domain.check(older) && domain.check(token));
        }
        assert_eq!(fences(), first);
        assert!(domain.check(domain.start()));
        assert_eq!(fences(), 2 * first, "a new token needs a new one");
    });
}

#[test]
fn tokens_are_ordered_within_their_domain() {
    let (domain, other) = (Domain::new(), Domain::new());
    let (first, second) = (domain.start(), domain.start());
    assert!(first < second);
    assert_eq!(first.partial_cmp(&other.start()), None);
}

#[test]
fn tokens_are_counted() {
    let domain = Domain::new();
    for expected in 1..=5 {
        domain.start();
        assert_eq!(domain.stats().grace_periods, expected);
    }
}
