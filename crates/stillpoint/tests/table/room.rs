//! The room of a table: its maximum, the spare slots besides, and `reserve`.

use std::hash::{Hash, Hasher};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Barrier, Weak};

use stillpoint::rcu::Domain;
use stillpoint::table::{Full, Table};

use crate::census::{Census, Counted};
use crate::free_all;
use crate::identity::Identity;

/// Slots for replacements besides the maximum, as `TableBuilder::max_len` says.
const SPARE: u64 = 64;

fn full_table(domain: &Domain, maximum: u64) -> Table<u64, u64> {
    let table = Table::builder_in(domain).max_len(maximum as usize).build().unwrap();
    for key in 0..maximum {
        table.insert(key, key).unwrap();
    }
    table
}

/// A value whose drop panics, if it is armed.
struct Bomb {
    armed: bool,
    _counted: Counted,
}

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(!self.armed, "on purpose");
    }
}

#[test]
fn a_full_table_replaces() {
    let domain = Domain::new();
    let table = full_table(&domain, 100);
    let mut reader = domain.reader();
    let mut lookup = table.reader(&mut reader);
    for round in 1..50 {
        for key in 0..100 {
            assert_eq!(table.insert(key, key + round).unwrap().as_deref(), Some(&(key + round - 1)));
        }
        assert_eq!(lookup.update(&3, |value| *value).unwrap().as_deref(), Some(&(3 + round)));
        assert_eq!(lookup.copied(&3), Some(3 + round));
        let Err(Full(1_000, 7)) = table.insert(1_000, 7) else { panic!("a replacement has made room") };
        assert_eq!(table.len(), 100);
    }
}

/// A table has only the spare slots beyond its maximum; a replacement that finds none hands the pair back.
#[test]
fn a_full_table_replaces_as_often_as_it_has_spare_slots() {
    let domain = Domain::new();
    let table = full_table(&domain, 10);
    let mut reader = domain.reader();
    let holder = domain.reader();
    let mut lookup = table.reader(&mut reader);
    for round in 0..4 {
        let guard = holder.pin();
        for number in 0..SPARE {
            if number % 2 == 0 {
                assert!(
                    table.insert(number % 10, number).unwrap().is_some(),
                    "insertion {number} replaced nothing"
                );
            } else {
                assert!(
                    lookup.update(&(number % 10), |_| number).unwrap().is_some(),
                    "update {number} replaced nothing"
                );
            }
        }
        let Err(Full(1, 77)) = table.insert(1, 77) else {
            panic!("a slot that the guard holds up was used again")
        };
        assert_eq!(lookup.update(&1, |_| 78).unwrap_err(), Full(1, 78));
        assert_eq!((table.pending() as u64, table.len()), (SPARE, 10));
        drop(guard);
        // When what waited is freed, spare slots are filled up first. So there is no room for another key.
        if round % 2 == 0 {
            assert_eq!(lookup.update(&1, |_| 78).unwrap().as_deref(), Some(&61));
        } else {
            assert_eq!(table.insert(1, 78).unwrap().as_deref(), Some(&61));
        }
        assert!(table.insert(2, 79).unwrap().is_some());
        assert!(table.insert(11, 0).is_err());
        assert_eq!(table.len(), 10);
    }
    // A removal makes room for exactly one entry.
    table.remove(&0).unwrap();
    assert!(table.insert(11, 0).unwrap().is_none());
    assert!(table.insert(12, 0).is_err());
}

/// The number of entries, including those that wait, never exceeds the maximum and the spare slots, while several
/// threads replace, remove and insert.
#[test]
fn threads_at_the_maximum_do_not_go_beyond_it() {
    const MAXIMUM: usize = 20;
    let census = Census::default();
    let domain = Domain::new();
    let table: Table<u64, Counted> = Table::builder_in(&domain).max_len(MAXIMUM).build().unwrap();
    let rounds = if cfg!(miri) { 40 } else { 20_000 };
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (census, domain, table) = (&census, &domain, &table);
            scope.spawn(move || {
                let mut reader = domain.reader();
                let mut lookup = table.reader(&mut reader);
                let mut random = thread + 1;
                for number in 0..rounds {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let key = (random >> 40) % (2 * MAXIMUM as u64);
                    match random >> 62 {
                        0 => drop(table.remove(&key)),
                        1 => drop(lookup.update(&key, |_| census.value(number))),
                        _ => drop(table.insert(key, census.value(number))),
                    }
                    // Each thread may have one value that is not in the table yet, or was handed back.
                    assert!(census.alive() <= MAXIMUM + SPARE as usize + 3, "{}", census.alive());
                }
            });
        }
    });
    assert!(table.len() <= MAXIMUM);
    domain.barrier().unwrap();
    assert_eq!(census.alive(), table.len());
    // No slot is lost: normal slots take new keys, and spare slots take replacements.
    table.clear();
    free_all(&table);
    for key in 0..MAXIMUM as u64 {
        assert!(table.insert(key, census.value(0)).unwrap().is_none());
    }
    assert!(table.insert(99, census.value(0)).is_err());
    let guard = domain.reader();
    let guard = guard.pin();
    let replaced = (0..2 * SPARE).take_while(|_| table.insert(1, census.value(0)).is_ok()).count();
    assert_eq!(replaced as u64, SPARE);
    drop(guard);
}

#[test]
fn a_reservation_of_exactly_the_maximum_is_granted() {
    let domain = Domain::new();
    for (there, maximum) in [(0, 1), (0, 100), (40, 100), (99, 100), (100, 100), (0, 5_000), (1_000, 5_000)] {
        let table: Table<u64, u64> = Table::builder_in(&domain).max_len(maximum).build().unwrap();
        for key in 0..there as u64 {
            table.insert(key, key).unwrap();
        }
        let before = table.stats();
        let error = table.reserve(maximum - there + 1).expect_err("one more than the maximum");
        assert!(error.to_string().contains(&format!("{} entries", maximum - there + 1)), "{error}");
        assert_eq!(table.stats(), before, "the table stays as it is");
        table.reserve(maximum - there).unwrap();
        assert!(table.capacity() >= maximum);
        let bytes = table.stats().bytes;
        for key in there as u64..maximum as u64 {
            table.insert(key, key).unwrap();
        }
        assert_eq!(table.stats().bytes, bytes);
        assert!(table.insert(1 << 40, 0).is_err());
    }
}

/// The reservation is made during a growth to a smaller size.
#[test]
fn a_reservation_during_a_growth_makes_all_the_room() {
    const MORE: u64 = 20_000;
    let table: Table<u64, u64> = Table::new_in(&Domain::new());
    let mut there = 0;
    while !table.stats().growing {
        table.insert(there, there).unwrap();
        there += 1;
    }
    table.reserve(MORE as usize).unwrap();
    let before = table.stats();
    assert!(
        !before.growing && table.capacity() as u64 >= there + MORE,
        "the reservation made too little room: {before:?}"
    );
    for key in there..there + MORE {
        table.insert(key, key).unwrap();
    }
    assert_eq!((table.stats().growths, table.stats().bytes), (before.growths, before.bytes));
}

/// Removed entries that no reader holds count as room.
#[test]
fn a_reservation_counts_the_slots_that_are_free() {
    const ENTRIES: usize = if cfg!(miri) { 300 } else { 50_000 };
    let domain = Domain::new();
    let limited = full_table(&domain, ENTRIES as u64);
    limited.clear();
    limited.reserve(ENTRIES).unwrap();
    assert!(limited.reserve(ENTRIES + 1).is_err());

    let table: Table<u64, u64> = Table::with_capacity_in(&domain, ENTRIES);
    for round in 0..3 {
        for key in 0..ENTRIES as u64 {
            table.insert(key, key).unwrap();
        }
        let before = table.stats().bytes;
        if round == 1 {
            table.clear();
        } else {
            (0..ENTRIES as u64).for_each(|key| drop(table.remove(&key)));
        }
        table.reserve(ENTRIES).unwrap();
        assert_eq!(table.stats().bytes, before, "the memory of the removed entries is used again");
    }
    // Entries that a reader holds up do not count as room.
    for key in 0..ENTRIES as u64 {
        table.insert(key, key).unwrap();
    }
    let before = table.stats().bytes;
    let reader = domain.reader();
    let guard = reader.pin();
    table.clear();
    table.reserve(ENTRIES).unwrap();
    assert!(table.stats().bytes > before);
    for key in 0..ENTRIES as u64 {
        table.insert(key, key).unwrap();
    }
    drop(guard);
}

/// Each destructor runs, and each slot is used again, although some destructors panic.
#[test]
fn a_panic_in_clear_loses_nothing() {
    const ENTRIES: usize = 500;
    let census = Census::default();
    let domain = Domain::new();
    let table: Table<u64, Bomb> = Table::builder_in(&domain).max_len(ENTRIES).build().unwrap();
    let bomb = |armed| Bomb { armed, _counted: census.value(0) };
    for key in 0..ENTRIES as u64 {
        assert!(table.insert(key, bomb(key % 100 == 3)).is_ok());
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| table.clear()));
    assert!(outcome.is_err(), "the panic is passed on");
    assert_eq!(table.len(), 0, "all entries are removed in spite of the panic");
    while table.pending() > 0 {
        let _ = catch_unwind(AssertUnwindSafe(|| table.poll()));
    }
    assert_eq!((census.alive(), census.made()), (0, ENTRIES));
    for key in 0..ENTRIES as u64 {
        assert!(table.insert(key, bomb(false)).is_ok(), "room for {key}");
    }
}

/// A chain with more entries than one poll frees.
#[test]
fn a_panic_in_clear_loses_nothing_of_a_long_chain() {
    #[derive(Default)]
    struct Constant;

    impl Hasher for Constant {
        fn finish(&self) -> u64 {
            1 << 60
        }
        fn write(&mut self, _: &[u8]) {}
    }

    let census = Census::default();
    let domain = Domain::new();
    let hasher = std::hash::BuildHasherDefault::<Constant>::default();
    let table: Table<u64, Bomb, _> = Table::builder_in(&domain).hasher(hasher).build().unwrap();
    for key in 0..300 {
        assert!(table.insert(key, Bomb { armed: key == 7, _counted: census.value(key) }).is_ok());
    }
    let early = catch_unwind(AssertUnwindSafe(|| table.clear())).is_err();
    let late = catch_unwind(AssertUnwindSafe(|| free_all(&table))).is_err();
    assert!(early != late, "the panic is passed on once");
    free_all(&table);
    assert_eq!((census.alive(), table.len()), (0, 0));
}

/// Threads put the entries that they remove into different lists. A poll of one thread goes through all these lists.
#[test]
fn a_panic_in_a_poll_stops_no_other_destructor() {
    const THREADS: usize = 8;
    let census = Census::default();
    let domain = Domain::new();
    let table: Table<u64, Bomb> = Table::new_in(&domain);
    for key in 0..THREADS as u64 {
        assert!(table.insert(key, Bomb { armed: true, _counted: census.value(key) }).is_ok());
    }
    let reader = domain.reader();
    let guard = reader.pin();
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for key in 0..THREADS as u64 {
            let (table, barrier) = (&table, &barrier);
            scope.spawn(move || {
                barrier.wait(); // all threads exist at the same time, so their descriptors have different addresses
                drop(table.remove(&key));
                barrier.wait();
            });
        }
    });
    assert_eq!((census.alive(), table.pending()), (THREADS, THREADS));
    drop(guard);
    // This is longer than the pace of the table's grace periods, so everything is ready in the first poll afterwards.
    std::thread::sleep(std::time::Duration::from_millis(2));
    assert!(catch_unwind(AssertUnwindSafe(|| table.poll())).is_err());
    assert_eq!((census.alive(), table.pending()), (0, 0));
}

/// Reads the table's statistics in `Eq` and `Hash`, which run under a lock of the table.
#[derive(Clone)]
struct Curious {
    number: u64,
    table: Weak<Table<Curious, u64>>,
}

impl Curious {
    fn ask(&self) {
        if let Some(table) = self.table.upgrade() {
            assert!(table.capacity() >= 80 && table.stats().buckets >= 16);
            assert!(table.stats().entries <= table.len() + 1 && table.stats().bytes > 0);
            assert!(format!("{:?}", table.stats()).contains("entries") && table.pending() < usize::MAX);
        }
    }
}

impl PartialEq for Curious {
    fn eq(&self, other: &Self) -> bool {
        self.ask();
        self.number == other.number
    }
}

impl Eq for Curious {}

impl Hash for Curious {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.ask();
        (self.number / 2).hash(state);
    }
}

/// The statistics are read under the lock of every stripe, even during growths.
#[test]
fn eq_and_hash_may_ask_for_figures() {
    let run = || {
        let domain = Domain::new();
        let table = Arc::new(Table::new_in(&domain));
        let key = |number| Curious { number, table: Arc::downgrade(&table) };
        for number in 0..3_000 {
            table.insert(key(number), number).unwrap();
            table.insert(key(number), number).unwrap();
        }
        assert!(table.stats().growths > 0);
        for number in 0..3_000 {
            assert!(table.remove(&key(number)).is_some());
        }
    };
    // After a deadlock, the test must fail, not hang.
    let (done, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        run();
        let _ = done.send(());
    });
    wait.recv_timeout(std::time::Duration::from_secs(100)).expect("the calls neither hang nor panic");
}

/// Removed entries that no reader holds make room for a new entry, even one that is inserted through a reader.
#[test]
fn a_full_table_makes_room_for_whoever_gets_or_inserts() {
    let domain = Domain::new();
    let table = full_table(&domain, 10);
    let mut reader = domain.reader();
    let mut lookup = table.reader(&mut reader);
    for key in 0..100 {
        assert_eq!(lookup.get_or_insert_with(key + 10, || 7).unwrap_err(), Full(key + 10, 7));
        drop(table.remove(&key));
        assert_eq!(lookup.get_or_insert_with(key + 10, || key).map(|(entry, _)| *entry), Ok(key));
        assert_eq!(table.len(), 10);
    }
}

#[test]
fn a_maximum_of_nothing_is_one() {
    let table = Table::builder_in(&Domain::new()).max_len(0).build().unwrap();
    assert!(table.insert(1, 1).unwrap().is_none());
    let full = table.insert(2, 2).unwrap_err();
    assert_eq!(full, Full(2, 2));
    assert_eq!(full.into_inner(), (2, 2));
    assert_eq!(table.insert(1, 3).unwrap().as_deref(), Some(&1));
}

/// A capacity above the maximum allocates no memory that no entry may use.
#[test]
fn a_maximum_limits_the_memory_of_entries() {
    let builder = Table::<u64, [u8; 1024]>::builder_in(&Domain::new()).capacity(10_000).max_len(10);
    let bytes = builder.build().unwrap().stats().bytes;
    assert!(bytes < 10_000 * 1024 / 4, "the table takes {bytes} bytes");
}

fn with_identity<V: Send + Sync + 'static>(
    domain: &Domain,
) -> Table<u64, V, std::hash::BuildHasherDefault<Identity>> {
    Table::builder_in(domain).hasher(Default::default()).unmixed().build().unwrap()
}

/// A table takes as many entries as its capacity, however they are distributed, and grows with the next entry.
#[test]
fn a_table_grows_with_the_first_entry_beyond_its_capacity() {
    let table = with_identity(&Domain::new());
    let capacity = table.capacity() as u64;
    // The last entries go to a part of the table that has far more than its share.
    let keys = (1..=capacity - 40).chain((1..).map(|number| number << 20));
    for (number, key) in keys.enumerate().take(capacity as usize + 1) {
        assert!(!table.stats().growing, "with {number} entries of {capacity}");
        table.insert(key, ()).unwrap();
    }
    assert!(table.stats().growing && table.capacity() as u64 >= 2 * capacity);
}

/// A bucket has eight slots. A slot that becomes free takes the next key of the chain. So no chain is longer than its
/// entries need. The statistics count overflow buckets and their memory.
#[test]
fn overflow_buckets_are_counted_and_filled() {
    const LENGTH: u64 = 600;
    let builder = Table::builder_in(&Domain::new())
        .hasher(std::hash::BuildHasherDefault::<Identity>::default())
        .unmixed();
    let table = builder.capacity(LENGTH as usize).build().unwrap();
    for number in 0..LENGTH {
        table.insert(number << 20, ()).unwrap();
        let stats = table.stats();
        assert_eq!(stats.overflow_buckets as u64, number / 8, "{stats:?}");
        let used = (stats.buckets + stats.overflow_buckets) * 64 + stats.entries * 8;
        assert!(stats.bytes >= used, "{used} bytes are in use: {stats:?}");
    }
    let full = table.stats();
    for number in 0..LENGTH {
        drop(table.remove(&((number * 7 % LENGTH) << 20)));
        table.insert((number + LENGTH) << 20, ()).unwrap();
    }
    assert_eq!((table.len() as u64, table.stats().overflow_buckets), (LENGTH, full.overflow_buckets));
}

/// Replaced entries within the capacity wait in slots that exist already.
#[test]
fn replacements_within_the_capacity_need_no_more_memory() {
    const ENTRIES: u64 = if cfg!(miri) { 300 } else { 5_000 };
    let hasher = std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default();
    let builder = Table::builder_in(&Domain::new()).hasher(hasher);
    let table = builder.capacity(ENTRIES as usize).build().unwrap();
    let before = table.stats();
    for number in 0..4 * ENTRIES {
        drop(table.insert(number % ENTRIES, number).unwrap());
    }
    assert_eq!((table.stats().bytes, table.stats().growths), (before.bytes, 0));
}

/// Every destructor runs, and the first panic is propagated.
#[test]
fn a_panic_in_the_drop_of_a_table_loses_nothing() {
    let census = Census::default();
    let domain = Domain::new();
    let holder = domain.reader();
    // Panics are slow under Miri.
    let one_in = if cfg!(miri) { 250 } else { 50 };
    // First without removed entries that wait, then with some.
    for removed in [0, 100] {
        let table: Table<u64, Bomb> = Table::new_in(&domain);
        let guard = holder.pin();
        for key in 0..500 {
            assert!(table
                .insert(key, Bomb { armed: key % one_in == 3, _counted: census.value(key) })
                .is_ok());
        }
        (0..removed).for_each(|key| drop(table.remove(&key)));
        drop(guard);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(table))).is_err());
        assert_eq!(census.alive(), 0);
    }
}

/// A `Removed` that is dropped by a panic is retired, but no destructor runs then: a second panic would abort.
#[test]
fn a_thread_that_panics_runs_no_destructor() {
    struct Calm;

    impl Drop for Calm {
        fn drop(&mut self) {
            assert!(!std::thread::panicking(), "a destructor has run while its thread panics");
        }
    }

    let domain = Domain::new();
    let table = Table::with_capacity_in(&domain, 200);
    let holder = domain.reader();
    let guard = holder.pin();
    for key in 0..200 {
        assert!(table.insert(key, Calm).is_ok());
    }
    (0..100).for_each(|key| drop(table.remove(&key)));
    drop(guard);
    let panics = if cfg!(miri) { 3 } else { 100 };
    for key in 100..100 + panics {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let _removed = table.remove(&key).unwrap();
            panic!("on purpose");
        }));
        assert!(outcome.is_err());
    }
    assert_eq!(table.pending() as u64, 100 + panics);
    free_all(&table);
}

/// Also of buckets: more than the limit needs would never be used.
#[test]
fn a_capacity_above_the_limit_allocates_what_the_limit_needs() {
    let build = |capacity| {
        Table::<u64, u64>::builder_in(&Domain::new()).capacity(capacity).max_len(10).build().unwrap()
    };
    let (small, large) = (build(10).stats(), build(100_000_000).stats());
    assert_eq!(small.buckets, large.buckets);
}
