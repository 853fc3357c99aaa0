//! Heavy fences interrupt every core: how many of them are issued, and when none is.

use std::thread;
use std::time::{Duration, Instant};

use stillpoint::fence::Mode;
use stillpoint::rcu::Domain;

use super::retire_one;
use crate::census::Census;
use crate::modes::modes;
use crate::other::silent;
use crate::with_cell;

/// Calls the test with a domain that issues heavy fences, in each mode that has any.
pub(crate) fn with_heavy_fences(test: impl Fn(Domain)) {
    for mode in modes().filter(|&mode| mode != Mode::Symmetric) {
        test(Domain::builder().fence(mode).build().expect("the mode was probed"));
    }
}

#[test]
fn a_domain_with_only_qsbr_readers_issues_no_heavy_fence() {
    with_heavy_fences(|domain| {
        let (census, cell, mut reclaimer) = with_cell(&domain);
        let mut reader = domain.qsbr_reader();
        for _ in 0..100 {
            retire_one(&cell, &census, &mut reclaimer);
            reclaimer.poll();
            reader.quiescent();
            assert_eq!(reclaimer.poll(), 1);
            reader.offline(|| domain.synchronize()).expect("nothing is in the way");
        }
        assert_eq!(domain.stats().heavy_fences, 0);
    });
}

#[test]
fn a_domain_whose_readers_have_left_issues_no_heavy_fence() {
    with_heavy_fences(|domain| {
        let silent = silent(&domain);
        domain.synchronize().expect("nothing is in the way");
        assert_eq!(domain.stats().heavy_fences, 1);
        drop(silent);
        domain.synchronize().expect("nothing is in the way");
        assert_eq!(domain.stats().heavy_fences, 1);
    });
}

#[test]
fn a_symmetric_domain_issues_no_heavy_fence() {
    let domain = Domain::builder().fence(Mode::Symmetric).build().expect("it is always available");
    let _silent = silent(&domain);
    domain.synchronize().expect("nothing is in the way");
    assert_eq!((domain.stats().heavy_fences, domain.fence_mode()), (0, Mode::Symmetric));
}

#[test]
fn a_burst_of_retirements_shares_one_token_and_one_fence() {
    with_heavy_fences(|domain| {
        let census = Census::default();
        let cell = domain.cell(census.object());
        let (reader, _silent) = (domain.reader(), silent(&domain));
        let mut reclaimer = domain.reclaimer();
        for _ in 0..1000 {
            retire_one(&cell, &census, &mut reclaimer);
        }
        assert_eq!(reclaimer.poll(), 1000);
        let stats = domain.stats();
        assert_eq!((stats.grace_periods, stats.heavy_fences), (1, 1));

        // This holds while a reader delays the grace period, too: objects that are retired later share the next one.
        let guard = reader.pin();
        for _ in 0..1000 {
            retire_one(&cell, &census, &mut reclaimer);
        }
        thread::sleep(Duration::from_millis(1)); // longer than the fence interval
        for _ in 0..100 {
            assert_eq!(reclaimer.poll(), 0);
        }
        assert_eq!(domain.stats().grace_periods, 2);
        drop(guard);
        while reclaimer.poll() == 0 {}
        let stats = domain.stats();
        assert_eq!((stats.grace_periods, stats.heavy_fences, stats.freed), (2, 2, 2000));
    });
}

#[test]
fn the_fence_interval_bounds_the_rate_of_fences() {
    with_heavy_fences(|domain| {
        let interval = Duration::from_millis(5);
        let census = Census::default();
        let cell = domain.cell(census.object());
        let _silent = silent(&domain);
        let mut reclaimer = domain.reclaimer_builder().batch(usize::MAX).fence_interval(interval).build();
        let begun = Instant::now();
        // On a busy machine, this goes on until there was a second fence.
        while begun.elapsed() < 10 * interval || domain.stats().heavy_fences < 2 {
            retire_one(&cell, &census, &mut reclaimer);
            reclaimer.poll();
            thread::yield_now();
        }
        let possible = begun.elapsed().as_nanos() / interval.as_nanos() + 1;
        let stats = domain.stats();
        assert!(u128::from(stats.heavy_fences) <= possible, "{stats:?} in {:?}", begun.elapsed());
        assert!(stats.freed > 0, "{stats:?}");
        reclaimer.flush().expect("nothing is in the way");
    });
}

#[test]
fn a_full_batch_does_not_wait_for_the_fence_interval() {
    let census = Census::default();
    let domain = Domain::new();
    let cell = domain.cell(census.object());
    let _silent = silent(&domain);
    let mut reclaimer =
        domain.reclaimer_builder().batch(10).fence_interval(Duration::from_secs(1000)).build();
    retire_one(&cell, &census, &mut reclaimer);
    assert_eq!(reclaimer.poll(), 1, "the first one has no other before it");
    for batch in 0..3 {
        for _ in 0..9 {
            retire_one(&cell, &census, &mut reclaimer);
            if domain.fence_mode() == Mode::Asymmetric {
                assert_eq!(reclaimer.poll(), 0, "batch {batch} is not full");
            }
        }
        retire_one(&cell, &census, &mut reclaimer);
        // The batch may wait a little for the fence: see `ReclaimerBuilder::batch`.
        while reclaimer.poll() == 0 {}
        assert_eq!(reclaimer.pending(), 0);
    }
    assert_eq!(census.freed(), 31);
}

#[test]
fn flush_does_not_wait_for_the_fence_interval() {
    let census = Census::default();
    let domain = Domain::new();
    let cell = domain.cell(census.object());
    let _silent = silent(&domain);
    let mut reclaimer = domain.reclaimer_builder().fence_interval(Duration::from_secs(1000)).build();
    let begun = Instant::now();
    for _ in 0..3 {
        retire_one(&cell, &census, &mut reclaimer);
        reclaimer.flush().expect("nothing is in the way");
    }
    assert!(begun.elapsed() < Duration::from_secs(100));
    assert_eq!(census.freed(), 3);
}
