//! Entries that are freed elsewhere: by a background reclaimer that the table is attached to, or by a reclaimer of the
//! writer.

use std::time::{Duration, Instant};

use stillpoint::rcu::Domain;
use stillpoint::table::Table;

use crate::census::{Census, Counted};
use crate::free_all;

const LONG: Duration = Duration::from_secs(60);

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LONG, "not in time: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn an_attached_reclaimer_frees_everything() {
    let census = Census::default();
    let domain = Domain::new();
    let mut background = domain.background();
    let table: Table<u64, Counted> =
        Table::builder_in(&domain).attach(background.retire_handle()).build().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || background.run());
        let mut reader = domain.reader();
        let mut lookup = table.reader(&mut reader);
        for number in 0..20_000 {
            drop(table.insert(number % 1_000, census.value(number)).unwrap());
        }
        wait_until("the other thread frees replaced entries", || census.alive() == 1_000);
        let entry = lookup.get(&1).unwrap();
        table.clear();
        wait_until("everything but the entry that is held", || census.alive() == 1);
        assert_eq!(entry.value % 1_000, 1);
        drop(entry);
        wait_until("everything", || census.alive() == 0);
        drop(lookup);
        drop(table);
    });
    assert_eq!(domain.stats().pending, 0);
}

/// The destructors of entries that wait elsewhere run after the table is dropped, in memory that is still valid.
#[test]
fn what_waits_elsewhere_outlives_the_table() {
    let census = Census::default();
    let domain = Domain::new();
    let mut background = domain.background();
    let mut reclaimer = domain.reclaimer();
    let handle = background.retire_handle();
    let table: Table<u64, Counted> = Table::builder_in(&domain).attach(handle.clone()).build().unwrap();
    for key in 0..100 {
        table.insert(key, census.value(key)).unwrap();
    }
    for key in 0..30 {
        drop(table.remove(&key));
    }
    for key in 30..60 {
        table.remove(&key).unwrap().retire_to(&mut reclaimer).unwrap();
    }
    drop(table);
    assert_eq!((census.alive(), handle.pending(), reclaimer.pending()), (60, 30, 30));
    reclaimer.flush().unwrap();
    assert_eq!(census.alive(), 30);
    handle.stop();
    background.run();
    assert_eq!(census.alive(), 0);
}

/// Nothing is lost if the reclaimer is full, or gone.
#[test]
fn writers_free_what_an_attached_reclaimer_does_not_take() {
    let census = Census::default();
    let domain = Domain::new();
    let background = domain.reclaimer_builder().max_pending(10).build_background();
    let table: Table<u64, Counted> =
        Table::builder_in(&domain).attach(background.retire_handle()).build().unwrap();
    let replace = |from: u64| {
        for number in from..from + 1_000 {
            drop(table.insert(7, census.value(number)).unwrap());
        }
        free_all(&table);
    };
    replace(0);
    assert_eq!(census.alive(), 11, "the reclaimer has ten that it has not freed yet, and the table has one");
    drop(background);
    replace(1_000);
    domain.reclaimer().flush().unwrap(); // takes over the ten
    assert_eq!(census.alive(), 1);
}

#[test]
fn a_full_reclaimer_hands_the_entry_back() {
    let census = Census::default();
    let domain = Domain::new();
    let mut reclaimer = domain.reclaimer_builder().max_pending(1).build();
    let table: Table<u64, Counted> = Table::new_in(&domain);
    let reader = domain.reader();
    let guard = reader.pin();
    for key in 0..2 {
        table.insert(key, census.value(key)).unwrap();
    }
    table.remove(&0).unwrap().retire_to(&mut reclaimer).unwrap();
    let removed = table.remove(&1).unwrap().retire_to(&mut reclaimer).expect_err("there is room for one");
    assert_eq!((removed.value().value, table.pending()), (1, 0));
    drop(removed);
    assert_eq!(table.pending(), 1, "the entry waits in the table");
    drop(guard);
    reclaimer.flush().unwrap();
    free_all(&table);
    assert_eq!(census.alive(), 0);
}

/// Entries that wait count with their size in every queue, so limits in bytes hold.
#[test]
fn entries_that_wait_have_their_size() {
    const BYTES: usize = 1024;
    type Value = [u8; BYTES - 8];
    let domain = Domain::new();
    let mut reclaimer = domain.reclaimer_builder().max_pending_bytes(10 * BYTES).build();
    let background = domain.reclaimer_builder().max_pending_bytes(5 * BYTES).build_background();
    let attached: Table<u64, Value> =
        Table::builder_in(&domain).attach(background.retire_handle()).build().unwrap();
    let table: Table<u64, Value> = Table::new_in(&domain);
    let reader = domain.reader();
    let guard = reader.pin();
    for key in 0..20 {
        table.insert(key, [0; BYTES - 8]).unwrap();
        attached.insert(key, [0; BYTES - 8]).unwrap();
    }
    for key in 0..20 {
        let taken = table.remove(&key).unwrap().retire_to(&mut reclaimer).is_ok();
        assert_eq!(taken, key < 10, "{key}");
        drop(attached.remove(&key));
    }
    assert_eq!((reclaimer.pending(), reclaimer.pending_bytes(), table.pending()), (10, 10 * BYTES, 10));
    assert_eq!((background.retire_handle().pending(), attached.pending()), (5, 15));
    assert_eq!(domain.stats().pending_bytes, 40 * BYTES as u64);
    drop(guard);
}
