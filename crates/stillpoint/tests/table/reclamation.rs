//! When entries are freed; each is freed once.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stillpoint::fence::Mode;
use stillpoint::rcu::Domain;
use stillpoint::table::Table;

use crate::census::{Census, Counted};
use crate::free_all;

#[test]
fn every_key_and_value_is_dropped_once() {
    for mode in [Mode::best(), Mode::Symmetric] {
        let census = Census::default();
        let domain = Domain::builder().fence(mode).build().unwrap();
        let table: Table<Counted, Counted> = Table::new_in(&domain);
        for round in 0..3 {
            for key in 0..3_000 {
                drop(table.insert(census.value(key), census.value(round)).unwrap());
            }
            for key in (0..3_000).step_by(3) {
                drop(table.remove(&key));
            }
        }
        free_all(&table);
        assert_eq!(census.alive(), 2 * table.len());
        assert_eq!(census.made(), 18_000);
        drop(table);
        assert_eq!(census.alive(), 0);
    }
}

/// Dropping the table frees the entries that wait, even if a reader still exists.
#[test]
fn a_dropped_table_leaves_nothing() {
    let census = Census::default();
    let domain = Domain::new();
    let mut reader = domain.reader();
    let table: Table<u64, Counted> = Table::new_in(&domain);
    for key in 0..100 {
        table.insert(key, census.value(key)).unwrap();
    }
    let mut lookup = table.reader(&mut reader);
    let entry = lookup.get(&1).unwrap();
    for key in 0..50 {
        table.remove(&key);
    }
    assert_eq!(entry.value, 1);
    std::mem::forget(entry);
    std::mem::forget(lookup);
    drop(table);
    assert_eq!(census.alive(), 0);
    assert_eq!(domain.stats().pending, 0);
}

/// Writers free entries in their own calls. The number of entries that wait stays within what may gather for one fence.
#[test]
fn writers_free_what_they_removed() {
    let census = Census::default();
    let domain = Domain::new();
    let mut reader = domain.reader();
    let table: Table<u64, Counted> = Table::new_in(&domain);
    let mut lookup = table.reader(&mut reader);
    assert!(!lookup.contains_key(&0));
    for number in 0..20_000 {
        drop(table.insert(number % 10, census.value(number)).unwrap());
        assert!(census.alive() < 33 * 128, "{} alive after {number}", census.alive());
    }
}

/// A guard that stays holds everything up. Memory grows, nothing is lost, and everything is freed afterwards.
#[test]
fn a_guard_that_stays_loses_nothing() {
    let census = Census::default();
    let domain = Domain::new();
    // There is room for the final entries, but not also for those that wait.
    let table: Table<u64, Counted> = Table::with_capacity_in(&domain, 4_000);
    let reader = domain.reader();
    let guard = reader.pin();
    for number in 0..5_000 {
        drop(table.insert(number % 10, census.value(number)).unwrap());
    }
    assert_eq!((census.alive(), table.pending()), (5_000, 4_990));
    drop(guard);
    free_all(&table);
    assert_eq!(census.alive(), 10);
    let before = table.stats();
    for number in 0..4_000 {
        table.insert(number, census.value(number)).unwrap();
    }
    assert_eq!(table.stats().growths, before.growths);
    assert_eq!(table.stats().bytes, before.bytes, "the slots are used again");
}

/// Inserts until the table has grown, and polls until only what readers hold up waits.
fn grow(table: &Table<u64, u64>, next: &mut u64) {
    let growths = table.stats().growths;
    while table.stats().growths == growths {
        table.insert(*next, *next).unwrap();
        *next += 1;
    }
}

fn arrays_that_wait(table: &Table<u64, u64>) -> usize {
    for _ in 0..1_000 {
        table.poll();
    }
    std::thread::sleep(Duration::from_millis(1)); // the pace of grace periods
    table.poll();
    table.pending()
}

/// A bound, idle reader holds up only the array that it saw last.
#[test]
fn an_idle_reader_holds_up_one_array() {
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    let mut reader = domain.reader();
    let mut lookup = table.reader(&mut reader);
    let mut next = 0;
    grow(&table, &mut next);
    assert!(lookup.contains_key(&0));
    assert_eq!(arrays_that_wait(&table), 0, "the reader has pinned the current array");
    grow(&table, &mut next);
    assert_eq!(arrays_that_wait(&table), 1, "the array that the reader saw last");
    grow(&table, &mut next);
    assert_eq!(arrays_that_wait(&table), 1, "the reader never saw the array after that");
    assert!(lookup.contains_key(&0));
    assert_eq!(arrays_that_wait(&table), 0);

    // A lookup in the middle of a growth sees two arrays, and keeps one pinned.
    for found in [true, false] {
        while !table.stats().growing {
            table.insert(next, next).unwrap();
            next += 1;
        }
        let growths = table.stats().growths;
        while table.stats().growths == growths {
            assert_eq!(lookup.contains_key(&if found { next / 2 } else { 1 << 40 | next }), found);
            table.insert(next, next).unwrap();
            next += 1;
        }
        grow(&table, &mut next);
        assert_eq!(arrays_that_wait(&table), 1, "the array after the one that the reader saw is not held up");
        assert!(lookup.contains_key(&0));
        assert_eq!(arrays_that_wait(&table), 0);
    }
    drop(lookup);
}

/// A reader that is no longer bound holds nothing up.
#[test]
fn a_reader_that_is_given_back_holds_nothing_up() {
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    let mut reader = domain.reader();
    let mut next = 0;
    for _ in 0..3 {
        let mut lookup = table.reader(&mut reader);
        while !table.stats().growing {
            table.insert(next, next).unwrap();
            next += 1;
        }
        assert!((0..next).all(|key| lookup.contains_key(&key)));
        drop(lookup);
        grow(&table, &mut next);
        assert_eq!(arrays_that_wait(&table), 0);
    }
}

/// A destructor uses the table that it comes from.
#[test]
fn a_destructor_may_use_the_table() {
    struct Chained {
        table: std::sync::Weak<Table<u64, Chained>>,
        next: u64,
        drops: Arc<AtomicUsize>,
    }

    impl Drop for Chained {
        fn drop(&mut self) {
            self.drops.fetch_add(1, Ordering::Relaxed);
            if let Some(table) = self.table.upgrade() {
                table.remove(&self.next);
            }
        }
    }

    let domain = Domain::new();
    let drops = Arc::new(AtomicUsize::new(0));
    let table = Arc::new(Table::new_in(&domain));
    for key in 0..1_000 {
        let (table_of, drops) = (Arc::downgrade(&table), Arc::clone(&drops));
        table.insert(key, Chained { table: table_of, next: key + 1, drops }).unwrap();
    }
    table.remove(&0);
    free_all(&table);
    assert_eq!((table.len(), drops.load(Ordering::Relaxed)), (0, 1_000));
}

#[test]
fn a_destructor_that_panics_costs_its_own_entry_alone() {
    struct Bomb(u64, Census);

    impl Drop for Bomb {
        fn drop(&mut self) {
            drop(self.1.value(0));
            assert!(self.0 != 7, "on purpose");
        }
    }

    let census = Census::default();
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    for key in 0..20 {
        table.insert(key, Bomb(key, census.clone())).unwrap();
    }
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for key in 0..20 {
            drop(table.remove(&key));
        }
        free_all(&table);
    }));
    assert!(outcome.is_err());
    for key in 0..20 {
        drop(table.remove(&key));
    }
    free_all(&table);
    assert_eq!((table.len(), census.made()), (0, 20));
    // The slot is used again.
    for key in 30..50 {
        table.insert(key, Bomb(key, census.clone())).unwrap();
    }
    drop(table);
    assert_eq!(census.made(), 40);
}

/// The comparison of keys runs under a lock that a destructor may need.
#[test]
fn no_destructor_runs_within_a_comparison_of_keys() {
    use std::cell::Cell;
    use std::time::Instant;

    thread_local! {
        static COMPARES: Cell<bool> = const { Cell::new(false) };
    }

    /// A key with two other tables, the second of which is full.
    struct Key(u64, Arc<(Table<u64, u64>, Table<u64, Value>)>);

    impl PartialEq for Key {
        /// Writes to another table, for much longer than it takes until others serve a shelf.
        fn eq(&self, other: &Self) -> bool {
            COMPARES.set(true);
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(20) {
                drop(self.1 .0.insert(0, 0));
                self.1 .0.poll();
            }
            let refused = self.1 .1.insert(1, Value(Census::default(), Arc::default()));
            COMPARES.set(false);
            drop(refused);
            self.0 == other.0
        }
    }
    impl Eq for Key {}
    impl Hash for Key {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }

    struct Value(Census, Arc<AtomicUsize>);

    impl Drop for Value {
        fn drop(&mut self) {
            drop(self.0.value(0));
            self.1.fetch_add(usize::from(COMPARES.get()), Ordering::Relaxed);
        }
    }

    let (census, within) = (Census::default(), Arc::new(AtomicUsize::new(0)));
    let domain = Domain::new();
    let reader = domain.reader();
    // Until it is dropped, nothing is destroyed.
    let guard = reader.pin();
    let full = Table::builder_in(&domain).max_len(1).build().unwrap();
    drop(full.insert(0, Value(census.clone(), Arc::clone(&within))).ok().unwrap());
    drop(full.remove(&0));
    let other = Arc::new((Table::new_in(&domain), full));
    let table = Table::new_in(&domain);
    let value = || Value(census.clone(), Arc::clone(&within));
    for key in 0..50 {
        table.insert(Key(key, Arc::clone(&other)), value()).unwrap();
    }
    table.clear();
    assert_eq!(census.made(), 0);
    drop(guard);
    let key = || Key(100, Arc::clone(&other));
    table.insert(key(), value()).unwrap();
    // What was left to the domain, and any poll may adopt.
    drop(domain.cell(value()).take());
    drop(table.insert(key(), value()).unwrap());
    drop(table.remove(&key()));
    assert_eq!(within.load(Ordering::Relaxed), 0);
    domain.barrier().unwrap();
    assert_eq!(census.made(), 54);
}

/// The destructor of an entry of a table that is going writes to another table, which may have had a shelf before that has other entries of
/// the first table by now: these are destroyed by its drop, and not within the write.
#[test]
fn a_write_frees_nothing_of_a_table_that_goes() {
    use std::cell::Cell;
    use std::sync::OnceLock;

    thread_local! {
        static DEPTH: Cell<usize> = const { Cell::new(0) };
    }

    struct Writes(Arc<OnceLock<Table<u64, Counted>>>, Census, Arc<AtomicUsize>);

    impl Drop for Writes {
        fn drop(&mut self) {
            DEPTH.set(DEPTH.get() + 1);
            self.2.fetch_max(DEPTH.get(), Ordering::Relaxed);
            let other = self.0.get().expect("it was made before");
            for key in 0..10 {
                drop(other.insert(key, self.1.value(key)).unwrap());
            }
            DEPTH.set(DEPTH.get() - 1);
        }
    }

    let (census, domain) = (Census::default(), Domain::new());
    let (other, deepest) = (Arc::new(OnceLock::new()), Arc::new(AtomicUsize::new(0)));
    let other_table = other.get_or_init(|| Table::new_in(&domain));
    let table = Table::new_in(&domain);
    // Every thread of this test leaves an entry of the other table, whose shelves are given back before this table leases them.
    let on_each_shelf = |put: &(dyn Fn(u64) + Sync)| {
        (0..16).for_each(|number| std::thread::scope(|scope| scope.spawn(|| put(number)).join().unwrap()));
    };
    let reader = domain.reader();
    let guard = reader.pin();
    on_each_shelf(&|number| {
        drop(other_table.insert(number, census.value(0)).unwrap());
        drop(other_table.remove(&number));
    });
    drop(guard);
    domain.barrier().unwrap();
    let guard = reader.pin();
    on_each_shelf(&|number| {
        let value = Writes(Arc::clone(&other), census.clone(), Arc::clone(&deepest));
        drop(table.insert(number, value).ok().unwrap());
        drop(table.remove(&number));
    });
    drop(guard);
    assert!(table.pending() > 1, "{}", table.pending());
    drop(table);
    assert_eq!(deepest.load(Ordering::Relaxed), 1, "destructors do not nest");
}

/// Another write than the last one of a table runs a bounded number of destructors, even if it drops the table.
#[test]
fn a_table_that_goes_while_it_is_served_costs_the_server_no_destructor() {
    const ENTRIES: u64 = 5_000;
    struct Last(Arc<Mutex<Option<Table<u64, Last>>>>, Arc<AtomicUsize>);

    impl Drop for Last {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
            let table = self.0.lock().unwrap().take();
            drop(table);
        }
    }

    let (place, freed) = (Arc::default(), Arc::new(AtomicUsize::new(0)));
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    let reader = domain.reader();
    let guard = reader.pin();
    for key in 0..ENTRIES {
        drop(table.insert(key, Last(Arc::clone(&place), Arc::clone(&freed))).ok().unwrap());
        drop(table.remove(&key));
    }
    *place.lock().unwrap() = Some(table);
    drop(guard);
    let other = Table::new_in(&domain);
    let (mut key, mut most) = (0, 0);
    while freed.load(Ordering::Relaxed) < ENTRIES as usize {
        let before = freed.load(Ordering::Relaxed);
        drop(other.insert(key, key).unwrap());
        drop(other.remove(&key));
        most = most.max(freed.load(Ordering::Relaxed) - before);
        key += 1;
    }
    assert!(most <= 2 * 64, "{most} destructors in two calls");
}

/// Each of these tables makes a few calls, and is gone. Together they come to every shelf.
#[test]
fn tables_that_are_gone_soon_serve_all_shelves() {
    let census = Census::default();
    let domain = Domain::new();
    let idle: Vec<Table<u64, Counted>> = (0..4).map(|_| Table::new_in(&domain)).collect();
    let (held, last) = idle.split_at(3);
    let mut readers: Vec<_> = held.iter().map(|_| domain.reader()).collect();
    idle.iter().for_each(|table| drop(table.insert(1, census.value(1)).unwrap()));
    let held: Vec<_> =
        held.iter().zip(&readers).map(|(table, reader)| (table, table.protect(reader, &1))).collect();
    idle.iter().for_each(|table| drop(table.remove(&1)));
    let mut tables = 0;
    while last[0].pending() > 0 {
        let table: Table<u64, u64> = Table::new_in(&domain);
        for key in 0..2 {
            drop(table.insert(key, key).unwrap());
            drop(table.remove(&key));
        }
        tables += 1;
        assert!(tables < 100_000, "no table has come to the last shelf");
    }
    drop(held);
    readers.clear();
}

/// A barrier has taken the entry, and fails, so that it is left to the domain.
#[test]
fn a_full_table_finds_its_entries_that_were_left_to_the_domain() {
    let domain = Domain::new();
    let table: Table<u64, u64> = Table::builder_in(&domain).max_len(1).build().unwrap();
    let reader = domain.reader();
    drop(table.insert(1, 1).unwrap());
    let held = table.protect(&reader, &1);
    drop(table.remove(&1));
    assert!(domain.barrier().is_err());
    assert_eq!((table.pending(), domain.stats().pending), (0, 1));
    assert!(table.insert(2, 2).is_err());
    drop(held);
    assert!(table.insert(2, 2).is_ok());
}

/// If a table grows only by `get_or_insert_with`, these calls free the old arrays, too.
#[cfg(not(miri))]
#[test]
fn whoever_gets_or_inserts_frees_old_arrays() {
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    let mut reader = domain.reader();
    let mut lookup = table.reader(&mut reader);
    for key in 0..200_000_u64 {
        assert_eq!(*lookup.get_or_insert_with(key, || key).unwrap().0, key);
        // The array that was just left, and the one that this reader's last lookup saw.
        assert!(table.pending() <= 2, "{} wait after {key}", table.pending());
    }
    assert!(table.stats().growths >= 6, "{:?}", table.stats());
}
