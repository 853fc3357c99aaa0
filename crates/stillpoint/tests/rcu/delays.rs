//! The histogram of delays from retirement to free.

use std::thread;
use std::time::{Duration, Instant};

use stillpoint::rcu::Domain;

/// Retires one object, and frees it.
fn retire_one(domain: &Domain) {
    let mut reclaimer = domain.reclaimer();
    reclaimer.retire(domain.cell(1).take().expect("never empty here")).expect("it has room");
    while reclaimer.poll() == 0 {}
}

fn let_pass(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        thread::yield_now();
    }
}

/// A count that began anew with each thread, or with each reclaimer, would find nothing here.
#[test]
fn threads_that_free_one_object_are_sampled_as_others() {
    let domain = Domain::new();
    for _ in 0..128 {
        thread::scope(|scope| {
            scope.spawn(|| retire_one(&domain));
        });
    }
    assert_eq!(domain.stats().freed, 128);
    assert_eq!(domain.stats().delays.count(), 2);
}

/// What one poll frees is one in 64, too.
#[test]
fn a_poll_that_frees_many_is_sampled_more_than_once() {
    let domain = Domain::new();
    let mut reclaimer = domain.reclaimer();
    for number in 0..200 {
        reclaimer.retire(domain.cell(number).take().expect("never empty here")).expect("it has room");
    }
    while domain.stats().pending > 0 {
        reclaimer.poll();
    }
    assert_eq!(domain.stats().delays.count(), 3);
}

/// As for an object that a region holds up, or that a protected load holds.
#[test]
fn a_delay_is_the_whole_time() {
    let least = Duration::from_millis(10);
    let domain = Domain::new();
    let reader = domain.reader();
    (0..63).for_each(|_| retire_one(&domain));
    let region = reader.pin();
    let mut reclaimer = domain.reclaimer();
    reclaimer.retire(domain.cell(1).take().expect("never empty here")).expect("it has room");
    assert_eq!(reclaimer.poll(), 0, "a region is in the way");
    let_pass(least);
    drop(region);
    while reclaimer.poll() == 0 {}
    drop(reclaimer);
    assert_eq!(domain.stats().delays.count(), 1);
    let by_region = domain.stats().delays.percentile(100.0).expect("there is one");
    assert!(by_region >= least, "{by_region:?}");

    let domain = Domain::new();
    let reader = domain.reader();
    (0..63).for_each(|_| retire_one(&domain));
    let cell = domain.cell(1);
    let held = cell.protect(&reader).expect("never empty here");
    let mut reclaimer = domain.reclaimer();
    reclaimer.retire(cell.take().expect("never empty here")).expect("it has room");
    while domain.stats().pinned == 0 {
        assert_eq!(reclaimer.poll(), 0, "a protected load holds it");
    }
    let_pass(least);
    drop(held);
    while reclaimer.poll() == 0 {}
    assert_eq!(domain.stats().delays.count(), 1);
    let by_load = domain.stats().delays.percentile(100.0).expect("there is one");
    assert!(by_load >= least, "{by_load:?}");
}

#[test]
fn without_samples_there_is_no_percentile() {
    let delays = Domain::new().stats().delays;
    assert_eq!((delays.count(), delays.percentile(50.0), delays.buckets().count()), (0, None, 0));
}
