//! What a domain counts.

use std::time::Duration;

use stillpoint::rcu::Domain;

use super::retire_one;
use crate::census::{Census, Object};
use crate::{eager, with_cell};

const SIZE: u64 = size_of::<Object>() as u64;

/// Retired, freed, pending and their bytes.
fn counts(domain: &Domain) -> [u64; 4] {
    let stats = domain.stats();
    [stats.retired, stats.freed, stats.pending, stats.pending_bytes]
}

#[test]
fn every_object_is_counted_once_whichever_way_it_takes() {
    let (domain, census) = (Domain::new(), Census::default());
    let cell = domain.cell(census.object());
    let replace = || cell.replace(census.object()).expect("never empty");
    let mut reclaimer = eager(&domain);
    assert_eq!(counts(&domain), [0, 0, 0, 0]);

    retire_one(&cell, &census, &mut reclaimer);
    assert_eq!(counts(&domain), [1, 0, 1, SIZE]);
    assert_eq!(reclaimer.poll(), 1);
    assert_eq!(counts(&domain), [1, 1, 0, 0]);

    drop(replace()); // left to the domain, then adopted
    assert_eq!(counts(&domain), [2, 1, 1, SIZE]);
    assert_eq!(reclaimer.poll(), 1);
    assert_eq!(counts(&domain), [2, 2, 0, 0]);

    retire_one(&cell, &census, &mut reclaimer);
    drop(reclaimer); // left to the domain, then adopted
    assert_eq!(counts(&domain), [3, 2, 1, SIZE]);
    let mut reclaimer = eager(&domain);
    assert_eq!(reclaimer.poll(), 1);
    assert_eq!(counts(&domain), [3, 3, 0, 0]);

    assert!(replace().try_free().is_ok());
    assert!(replace().try_into_box().is_ok());
    assert_eq!(counts(&domain), [5, 5, 0, 0]);

    let mut background = domain.background();
    let handle = background.retire_handle();
    handle.retire(replace()).expect("there is room");
    handle.stop();
    background.run();
    assert_eq!(counts(&domain), [6, 6, 0, 0]);
    handle.retire(replace()).expect("there is room");
    drop(background); // left to the domain, then adopted
    assert_eq!(counts(&domain), [7, 6, 1, SIZE]);
    assert_eq!(reclaimer.poll(), 1);

    reclaimer.defer(|| ());
    assert_eq!(counts(&domain), [8, 7, 1, 0]);
    assert_eq!(reclaimer.poll(), 1);
    assert_eq!(counts(&domain), [8, 8, 0, 0]);
}

#[test]
fn readers_are_counted() {
    let domain = Domain::new();
    let (reader, qsbr) = (domain.reader(), domain.qsbr_reader());
    assert_eq!(domain.stats().readers, 2);
    drop(reader);
    assert_eq!(domain.stats().readers, 1);
    drop(qsbr);
    assert_eq!(domain.stats().readers, 0);
}

/// A program that is idle does not look stalled: what nobody holds is ready, although no thread has polled since.
#[test]
fn what_nobody_holds_is_ready_and_has_no_age() {
    let (domain, census) = (Domain::new(), Census::default());
    let cells = [domain.cell(census.object()), domain.cell(census.object())];
    let reader = domain.reader();
    let held: Vec<_> = cells.iter().map(|cell| cell.protect(&reader).expect("never empty")).collect();
    let mut reclaimer = eager(&domain);
    cells.iter().for_each(|cell| retire_one(cell, &census, &mut reclaimer));
    assert_eq!(reclaimer.poll(), 0);
    let seen = || {
        let stats = domain.stats();
        (stats.pending, stats.ready, stats.pinned, stats.oldest.is_some())
    };
    assert_eq!(seen(), (2, 0, 2, true));
    let heavy_fences = domain.stats().heavy_fences;
    drop(held);
    assert_eq!(seen(), (2, 2, 0, false));

    // The same for regions; objects without a grace period may be held by any region.
    let guard = reader.pin();
    retire_one(&cells[0], &census, &mut reclaimer);
    assert_eq!(seen(), (3, 2, 0, false), "no grace period waits for the region yet");
    assert_eq!(reclaimer.poll(), 2);
    assert_eq!(seen(), (1, 0, 0, true));
    let later = domain.reader();
    let later = later.pin();
    drop(guard);
    assert_eq!(seen(), (1, 1, 0, false), "the later region cannot hold it");
    retire_one(&cells[0], &census, &mut reclaimer);
    drop(later);
    assert_eq!(seen(), (2, 2, 0, false));
    let own = domain.stats().heavy_fences - heavy_fences;
    assert!(own <= 1, "a look issues no fence, and the poll has issued at most one: {own}");
    assert_eq!((reclaimer.poll(), seen()), (2, (0, 0, 0, false)));
}

#[test]
fn the_age_of_the_oldest_grace_period_grows_while_a_reader_holds_it_up() {
    let domain = Domain::new();
    let (census, cell, mut reclaimer) = with_cell(&domain);
    assert_eq!(domain.stats().oldest, None);
    let reader = domain.reader();
    let guard = reader.pin();
    retire_one(&cell, &census, &mut reclaimer);
    assert_eq!(reclaimer.poll(), 0);
    let step = Duration::from_millis(2);
    std::thread::sleep(step);
    let first = domain.stats().oldest.expect("a reader holds a grace period up");
    std::thread::sleep(step);
    let second = domain.stats().oldest.expect("a reader holds a grace period up");
    assert!(first >= step && second >= first + step, "{first:?}, {second:?}");
    drop(guard);
    assert_eq!(reclaimer.poll(), 1);
    assert_eq!(domain.stats().oldest, None);
}
