//! Writes that decide by the present entry, as the calling thread's reader sees it; what becomes of what they replace; lookups by other
//! keys and by known hashes.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Barrier, LazyLock, Mutex};
use std::thread;
use std::time::Duration;

use equivalent::Equivalent;
use stillpoint::rcu::wait::SynchronizeError;
use stillpoint::rcu::{self, Domain, Guard, OwnedProtected};
use stillpoint::table::error::{InitError, UpdateError};
use stillpoint::table::{Compute, Full, Operation, Set, Table, TryInsertError};

use crate::census::{Census, Counted};
use crate::free_all;

/// As with a map: every call, on a table of the default domain.
#[test]
fn calls_decide_by_the_present_entry() {
    let table: Table<u64, u64> = Table::new();
    assert_eq!(table.get_or_insert(1, 10).map(|(entry, new)| (*entry, new)), Ok((10, true)));
    assert_eq!(table.get_or_insert(1, 11).map(|(entry, new)| (*entry, new)), Ok((10, false)));
    assert_eq!(
        table.get_or_insert_with(1, || unreachable!()).map(|(entry, new)| (*entry, new)),
        Ok((10, false))
    );
    assert_eq!(*table.try_insert(2, 20).unwrap(), 20);
    assert!(matches!(
        table.try_insert(2, 21),
        Err(TryInsertError::Occupied { current, key: 2, value: 21 }) if *current == 20
    ));
    assert!(matches!(
        table.try_insert_with(2, || unreachable!()),
        Err(TryInsertError::Occupied { key: 2, value: None, .. })
    ));
    assert_eq!(table.update(&1, |value| value + 1).unwrap().as_deref(), Some(&10));
    assert!(table.update(&3, |_| unreachable!()).unwrap().is_none());
    assert_eq!(*table.update_or_insert(1, |value| value + 1, 0).unwrap(), 12);
    assert_eq!(*table.update_or_insert_with(3, |_| unreachable!(), || 30).unwrap(), 30);
    assert_eq!(*table.update_owned(3, |value| value + 1).unwrap(), 30);
    assert_eq!(table.update_owned(4, |_| unreachable!()).unwrap_err(), UpdateError::Absent(4));
    let computed = table.compute(3, |present| Operation::<_>::Insert(present.unwrap().1 + 1));
    assert!(matches!(computed, Ok(Compute::Updated { old, new }) if (*old, *new) == (31, 32)));
    let computed = table.compute(4, |present| Operation::<_>::Insert(present.map_or(40, |_| 0)));
    assert!(matches!(computed, Ok(Compute::Inserted(new)) if *new == 40));
    assert!(
        matches!(table.compute(4, |_| Operation::<u64>::Remove), Ok(Compute::Removed(old)) if *old == 40)
    );
    assert!(
        matches!(table.compute(3, |_| Operation::<u64>::Keep), Ok(Compute::Kept(Some(kept))) if *kept == 32)
    );
    assert_eq!(*table.remove_if(&3, |_, value| *value == 0).unwrap_err(), 32);
    assert_eq!(table.remove_if(&3, |key, value| (*key, *value) == (3, 32)).unwrap().as_deref(), Some(&32));
    assert!(table.remove_if(&3, |_, _| unreachable!()).unwrap().is_none());
    assert_eq!((table.len(), table.copied(&1), table.copied(&2)), (2, Some(12), Some(20)));
}

/// The functions run in no region, and each result holds one entry.
#[test]
fn what_a_call_holds_is_one_entry() {
    let census = Census::default();
    let table: Table<u64, Counted> = Table::new();
    let others: Table<u64, Counted> = Table::new();
    let keep = |key: u64| others.insert(key, census.value(key)).map(drop).unwrap();
    let free = || {
        keep(7);
        others.clear();
        free_all(&others);
        census.alive()
    };
    let (first, _) = table.get_or_insert_with(1, || census.value(1)).unwrap();
    let (second, _) = table.get_or_insert_with(2, || census.value(2)).unwrap();
    assert_eq!(free(), 2, "the new entries only");
    let now = table.update(&1, |old| {
        assert_eq!(free(), 2, "the present entries only");
        census.value(old.value + 10)
    });
    assert_eq!(now.unwrap().map(|old| old.value), Some(1));
    let third = table.compute(1, |present| {
        assert_eq!(free(), 3, "the first entry is held");
        Operation::<_>::Insert(census.value(present.unwrap().1.value + 10))
    });
    let Ok(Compute::Updated { old, new: third }) = third else { panic!("it is there") };
    assert_eq!((first.value, second.value, old.value, third.value), (1, 2, 11, 21));
    drop(old);
    table.clear();
    while table.pending() > 3 {
        table.poll();
    }
    assert_eq!(census.alive(), 3, "those that are held");
    assert_eq!((first.value, second.value, third.value), (1, 2, 21));
    drop((first, second, third));
    free_all(&table);
    assert_eq!(census.alive(), 0);
}

/// A function that panics leaves nothing changed, and nothing held.
#[test]
fn a_panic_leaves_nothing_held() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let census = Census::default();
    let table: Table<u64, Counted> = Table::new();
    drop(table.insert(1, census.value(1)).unwrap());
    let bang = || -> Counted { panic!("on purpose") };
    let calls: [&dyn Fn(); 8] = [
        &|| drop(table.get_or_insert_with(2, bang)),
        &|| drop(table.get_or_init(2, bang)),
        &|| drop(table.try_insert_with(2, bang)),
        &|| drop(table.update(&1, |_| bang())),
        &|| drop(table.update_owned(1, |_| bang())),
        &|| drop(table.update_or_insert_with(2, |_| bang(), bang)),
        &|| drop(table.compute(1, |_| Operation::<_>::Insert(bang()))),
        &|| drop(table.remove_if(&1, |_, _| bang().value == 0)),
    ];
    for (number, call) in calls.iter().enumerate() {
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err(), "call {number} passed no panic on");
        assert_eq!((table.len(), census.alive()), (1, 1), "{number}");
    }
    std::panic::set_hook(hook);
    table.clear();
    free_all(&table);
    assert_eq!(census.alive(), 0);
}

/// In the error, nothing is lost.
#[test]
fn a_full_table_hands_back_what_it_was_given() {
    let table: Table<u64, u64> =
        Table::builder_in(rcu::default_domain()).max_len(1).build().expect("there is memory");
    table.insert(1, 10).unwrap();
    assert!(matches!(table.get_or_insert(2, 20), Err(Full(2, 20))));
    assert!(matches!(table.get_or_init(2, || 20), Err(InitError::Full(Full(2, 20)))));
    assert!(matches!(table.try_insert(2, 20), Err(TryInsertError::Full(Full(2, 20)))));
    assert!(matches!(table.update_or_insert(2, |_| 0, 20), Err(Full(2, 20))));
    let mut replaced = Vec::new();
    let refused = loop {
        match table.update_owned(1, |value| value + 1) {
            Ok(old) => replaced.push(old),
            Err(error) => break error,
        }
    };
    assert_eq!(refused, UpdateError::Full(Full(1, 11 + replaced.len() as u64)));
    assert_eq!(table.copied(&1), Some(10 + replaced.len() as u64));
}

/// References under a borrowed region live as long as the region.
#[test]
fn references_outlive_the_view() {
    fn find<'g>(table: &'g Table<u64, String>, guard: &'g Guard<'_>, key: u64) -> Option<&'g str> {
        table.within(guard).get(&key).map(String::as_str)
    }
    fn all<'g>(table: &'g Table<u64, String>, guard: &'g Guard<'_>) -> Vec<&'g str> {
        let mut all: Vec<&str> = table.within(guard).values().map(String::as_str).collect();
        all.sort_unstable();
        all
    }
    let table = Table::from([(1, "one".to_owned()), (2, "two".to_owned())]);
    let guard = rcu::pin();
    let one = find(&table, &guard, 1);
    let (key, two) = table.within(&guard).get_key_value(&2).unwrap();
    let several = table.within(&guard).get_many(&[1, 3]);
    let mut seen: Vec<&str> = Vec::new();
    let kept = table.within(&guard).compute(2, |present| {
        seen.extend(present.map(|(_, value)| value.as_str()));
        Operation::<_>::Keep
    });
    assert!(matches!(kept, Ok(Compute::Kept(Some(_)))) && seen == ["two"]);
    let new = table.within(&guard).update_or_insert(1, |_| "three".to_owned(), String::new()).unwrap();
    assert_eq!((one, *key, two.as_str(), new.as_str()), (Some("one"), 2, "two", "three"));
    assert_eq!(several, [Some(&"one".to_owned()), None]);
    assert_eq!(all(&table, &guard), ["three", "two"]);
    assert_eq!(table.within(&guard).keys().count(), 2);
}

/// What is removed can be read as long as the region lasts, and is freed after it.
#[test]
fn a_removed_entry_is_read_in_a_region() {
    let census = Census::default();
    let domain = Domain::new();
    let table = Table::from_iter_in(&domain, [(1, census.value(1))]);
    let reader = domain.reader();
    let guard = reader.pin();
    let (key, value) = table.remove(&1).unwrap().within(&guard);
    table.poll();
    assert_eq!((*key, value.value, table.pending()), (1, 1, 1));
    drop(guard);
    free_all(&table);
    assert_eq!(census.alive(), 0);
    let other = Domain::new();
    let foreign = other.reader();
    let guard = foreign.pin();
    table.insert(2, census.value(2)).unwrap();
    let removed = table.remove(&2).unwrap();
    let refused = catch_unwind(AssertUnwindSafe(|| removed.within(&guard).1.value));
    let message = *refused.unwrap_err().downcast::<String>().expect("it says why");
    assert!(message.contains(&other.name().to_string()), "{message}");
    free_all(&table);
    assert_eq!(census.alive(), 0, "the table has retired it");
}

/// A wait for readers ends with them; it is refused if the thread waits for itself, and ends at its limit.
#[test]
fn a_removed_entry_is_waited_for() {
    let domain = Domain::new();
    let table = Table::from_iter_in(&domain, [(1, "one"), (2, "two"), (3, "three")]);
    let reader = domain.reader();
    let own = table.protect(&reader, &1);
    let refused = table.remove(&1).unwrap().into_entry().unwrap_err();
    assert!(matches!(refused.cause, SynchronizeError::WouldDeadlock { .. }), "{refused:?}");
    drop(own);
    assert_eq!(refused.removed.into_entry().unwrap(), (1, "one"));
    let guard = reader.pin();
    let refused = table.remove(&2).unwrap().into_entry_timeout(Duration::from_secs(3600)).unwrap_err();
    assert!(matches!(refused.cause, SynchronizeError::WouldDeadlock { .. }), "{refused:?}");
    drop(guard);
    assert_eq!(refused.removed.into_entry_timeout(Duration::from_secs(3600)).unwrap(), (2, "two"));
    let (held, wait) = (mpsc::channel(), mpsc::channel::<()>());
    thread::scope(|scope| {
        let (table, domain) = (&table, &domain);
        scope.spawn(move || {
            let reader = domain.reader();
            let entry = table.protect(&reader, &3).expect("it is there");
            held.0.send(()).unwrap();
            assert!(wait.1.recv().is_err());
            assert_eq!(*entry, "three");
        });
        held.1.recv().unwrap();
        let refused = table.remove(&3).unwrap().into_entry_timeout(Duration::from_millis(1)).unwrap_err();
        assert!(matches!(refused.cause, SynchronizeError::Pinned { .. }), "{refused:?}");
        assert!(refused.to_string().contains("not taken apart"), "{refused}");
        drop(wait.0);
        assert_eq!(refused.removed.into_entry().unwrap(), (3, "three"));
    });
}

/// An entry that is held by no thread outlives its removal, its thread, and with an `Arc` the program's last handle of the table.
#[test]
fn an_owned_entry_is_held_until_it_is_dropped() {
    const HELD: u64 = if cfg!(miri) { 5 } else { 500 };
    let census = Census::default();
    for domain in [rcu::default_domain().clone(), Domain::new()] {
        let table = Arc::new(Table::new_in(&domain));
        for key in 0..2 * HELD {
            table.insert(key, census.value(key)).unwrap();
        }
        let mut held: Vec<_> = thread::scope(|scope| {
            let here =
                scope.spawn(|| (0..HELD).map(|key| table.get_owned(&key).expect("it is there")).collect());
            here.join().unwrap()
        });
        assert!(table.get_owned(&(2 * HELD)).is_none() && table.get_arc(&(2 * HELD)).is_none());
        let last = table.get_arc(&0).expect("it is there");
        table.clear();
        assert!(table.get_owned(&0).is_none());
        while !held.is_empty() {
            let left = held.len().max(1);
            // In the default domain, a thread of another test may just run a destructor.
            while table.pending() > left || census.alive() > left {
                table.poll();
            }
            assert_eq!(census.alive(), left, "those that are held");
            let entry = held.pop().expect("it is not empty");
            assert_eq!(entry.value, held.len() as u64);
            thread::scope(|scope| scope.spawn(move || drop(entry)).join().unwrap());
        }
        drop(held);
        drop(table);
        assert_eq!(last.value, 0);
        thread::spawn(move || drop(last)).join().unwrap();
        domain.barrier().unwrap();
        assert_eq!(census.alive(), 0);
    }
}

/// No type makes the table, or its domain, outlive the drop.
#[test]
fn an_owned_entry_may_be_dropped_last() {
    let mut held = Vec::new();
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    table.insert(7, "seven".to_owned()).unwrap();
    held.extend(table.get_owned(&7));
    assert_eq!(*held[0], "seven");
}

/// Entries are held while others replace, remove and move them.
#[test]
fn an_owned_entry_is_the_one_that_was_found() {
    for domain in [rcu::default_domain().clone(), Domain::new()] {
        found_among_writers(&domain);
    }
}

fn found_among_writers(domain: &Domain) {
    const ROUNDS: u64 = if cfg!(miri) { 30 } else { 3_000 };
    let census = Census::default();
    let table = Table::new_in(domain);
    let done = AtomicUsize::new(0);
    thread::scope(|scope| {
        for first in 0..2_u64 {
            let (table, census, done) = (&table, &census, &done);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let key = first + round % 8;
                    drop(table.insert(key, census.value(key * ROUNDS + round)).unwrap());
                    drop(table.insert(100 + first * ROUNDS + round, census.value(0)).unwrap());
                    if round % 3 == 0 {
                        drop(table.remove(&key));
                    }
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        scope.spawn(|| {
            let mut held = std::collections::VecDeque::new();
            while done.load(Ordering::Relaxed) < 2 {
                for key in 0..9 {
                    held.extend(table.get_owned(&key).map(|entry| (key, entry)));
                }
                held.iter().for_each(|(key, entry)| assert_eq!(entry.value / ROUNDS, *key));
                while held.len() > 20 {
                    held.pop_front();
                }
            }
        });
    });
    drop(table);
    domain.barrier().unwrap();
    assert_eq!(census.alive(), 0);
}

/// `Eq` looks entries up by the same slots as the lookup that calls it, and keeps them.
#[test]
fn an_owned_entry_is_not_the_one_that_eq_found() {
    static OTHER: LazyLock<Table<u64, Counted>> = LazyLock::new(Table::new);
    static KEPT: Mutex<Vec<OwnedProtected<'static, Counted>>> = Mutex::new(Vec::new());

    #[derive(Clone, Copy)]
    struct Curious(u64);
    impl Hash for Curious {
        fn hash<H: Hasher>(&self, state: &mut H) {
            state.write_u64(0); // all in one chain
        }
    }
    impl PartialEq for Curious {
        fn eq(&self, other: &Self) -> bool {
            let mut kept = KEPT.lock().unwrap();
            kept.extend(OTHER.get_owned(&0));
            if kept.len() > 5 {
                kept.clear();
            }
            self.0 == other.0
        }
    }
    impl Eq for Curious {}

    let census = Census::default();
    OTHER.insert(0, census.value(7)).unwrap();
    let table: Table<Curious, Counted> = Table::new();
    for key in 0..6 {
        table.insert(Curious(key), census.value(key)).unwrap();
    }
    for key in 0..6 {
        let held = table.get_owned(&Curious(key)).expect("it is there");
        drop(table.remove(&Curious(key)));
        drop(OTHER.insert(0, census.value(7)).unwrap());
        for _ in 0..10 {
            rcu::default_domain().synchronize().unwrap();
            table.poll();
            OTHER.poll();
        }
        assert_eq!((held.value, table.pending()), (key, 1));
        let kept = KEPT.lock().unwrap();
        assert!(kept.iter().all(|kept| kept.value == 7));
        assert!(kept.is_empty() || OTHER.pending() > 0);
        drop((kept, held));
        free_all(&table);
    }
    KEPT.lock().unwrap().clear();
}

/// Of all threads that ask at once, one makes the value.
#[test]
fn a_value_is_made_once() {
    const THREADS: usize = if cfg!(miri) { 3 } else { 8 };
    const ROUNDS: u64 = if cfg!(miri) { 2 } else { 200 };
    let (table, made): (Table<u64, usize>, AtomicUsize) = (Table::new(), AtomicUsize::new(0));
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for key in 0..ROUNDS {
                    start.wait();
                    let make = || {
                        thread::yield_now();
                        made.fetch_add(1, Ordering::Relaxed)
                    };
                    let entry = table.get_or_init(key, make).unwrap();
                    assert_eq!(*entry, key as usize);
                }
            });
        }
    });
    assert_eq!(made.into_inner(), ROUNDS as usize);
}

/// Who waits for a value that is never made makes it.
#[test]
fn a_panic_wakes_those_who_wait() {
    let table: Table<u64, u64> = Table::new();
    let ((begun, has_begun), (end, may_end)) = (mpsc::channel(), mpsc::channel::<()>());
    thread::scope(|scope| {
        let table = &table;
        let first = scope.spawn(move || {
            table
                .get_or_init(1, || {
                    begun.send(()).unwrap();
                    let _ = may_end.recv();
                    panic!("on purpose");
                })
                .map(|entry| *entry)
        });
        has_begun.recv().unwrap();
        let asked = AtomicUsize::new(0);
        let waiting = scope.spawn(move || {
            asked.store(1, Ordering::Relaxed);
            table.get_or_init(1, || 2).map(|entry| *entry)
        });
        // Whether or not it waits already.
        drop(end);
        assert!(first.join().is_err());
        assert_eq!(waiting.join().unwrap(), Ok(2));
    });
}

/// Where a wait might never end, the call that would wait is refused, and the one that need not is not.
#[test]
fn who_must_not_wait_is_refused() {
    let (table, other): (Table<u64, u64>, Table<u64, u64>) = (Table::new(), Table::new());
    let ((begun, has_begun), (end, may_end)) = (mpsc::channel(), mpsc::channel::<()>());
    thread::scope(|scope| {
        let (table, other) = (&table, &other);
        let first = scope.spawn(move || {
            table
                .get_or_init(1, || {
                    begun.send(()).unwrap();
                    let _ = may_end.recv();
                    1
                })
                .map(|entry| *entry)
        });
        has_begun.recv().unwrap();
        let within = other.get_or_init(7, || {
            assert_eq!(table.get_or_init(1, || 0).map(|_| ()).unwrap_err(), InitError::WouldDeadlock(1));
            *table.get_or_init(2, || 2).unwrap()
        });
        assert_eq!(within.map(|entry| *entry), Ok(2));
        let guard = rcu::pin();
        let refused = table.get_or_init(1, || 0).map(|_| ()).unwrap_err();
        assert_eq!(refused, InitError::WouldDeadlock(1));
        assert!(refused.to_string().contains("must not wait"), "{refused}");
        assert_eq!(table.get_or_init(3, || 3).map(|entry| *entry), Ok(3));
        drop(guard);
        // Does not wait: the maker finds this entry.
        table.insert(1, 5).unwrap();
        assert_eq!(table.get_or_init(1, || 0).map(|entry| *entry), Ok(5));
        drop(end);
        assert_eq!(first.join().unwrap(), Ok(5));
    });
}

/// A call of a bound reader.
#[test]
fn a_bound_reader_makes_a_value_once() {
    let domain = Domain::new();
    let table: Table<u64, u64> = Table::new_in(&domain);
    let mut reader = domain.reader();
    let mut lookup = table.reader(&mut reader);
    assert_eq!(lookup.get_or_init(1, || 10).map(|entry| *entry), Ok(10));
    assert_eq!(lookup.get_or_init(1, || unreachable!()).map(|entry| *entry), Ok(10));
    assert_eq!(lookup.copied(&1), Some(10));
    assert_eq!(lookup.update_owned(1, |value| value + 1).map(|old| *old), Ok(10));
}

/// A pair of strings, found without making strings.
#[derive(PartialEq, Eq, Hash)]
struct Pair(String, String);

#[derive(Hash)]
struct Borrowed<'a>(&'a str, &'a str);

impl Equivalent<Pair> for Borrowed<'_> {
    fn equivalent(&self, key: &Pair) -> bool {
        self.0 == key.0 && self.1 == key.1
    }
}

#[test]
fn keys_are_found_by_what_is_equivalent() {
    let table = Table::from([(Pair("a".into(), "b".into()), 1)]);
    assert_eq!(table.copied(&Borrowed("a", "b")), Some(1));
    assert!(!table.contains_key(&Borrowed("b", "a")));
    assert_eq!(table.pin().get(&Borrowed("a", "b")), Some(&1));
    assert!(table.remove_if(&Borrowed("a", "b"), |_, _| false).is_err());
    assert_eq!(table.remove(&Borrowed("a", "b")).as_deref(), Some(&1));
}

#[test]
fn keys_are_found_by_a_hash_that_is_known() {
    let domain = Domain::new();
    let hasher = RandomState::new();
    let table = Table::builder_in(&domain).hasher(hasher).build().expect("there is memory");
    for key in 0..1_000_u64 {
        table.insert(key, key).unwrap();
    }
    let mut reader = domain.reader();
    for key in 0..1_000 {
        let (hash, wrong) = (table.hash(&key), table.hash(&(key + 1)));
        assert_eq!(table.protect_hashed(&reader, hash, &key).as_deref(), Some(&key));
        assert_eq!(table.within(&reader.pin()).get_hashed(hash, &key), Some(&key));
        assert_eq!(table.within(&reader.pin()).get_hashed(wrong, &key), None);
        assert_eq!(table.reader(&mut reader).get_hashed(hash, &key).as_deref(), Some(&key));
    }
}

/// A struct need not repeat what a table demands of its parts.
struct Cache<K, V> {
    map: Table<K, V, BuildHasherDefault<DefaultHasher>>,
    seen: Set<K, BuildHasherDefault<DefaultHasher>>,
}

impl<K: Hash + Eq + Clone, V: Copy> Cache<K, V> {
    fn look(&self, key: &K) -> Option<V> {
        let _ = self.seen.insert(key.clone());
        self.map.copied(key)
    }
}

#[test]
fn tables_of_any_hasher_are_made_and_filled() {
    let cache: Cache<_, _> = Cache { map: [(1, 10), (2, 20)].into_iter().collect(), seen: Set::default() };
    assert_eq!((cache.look(&1), cache.look(&3), cache.seen.len()), (Some(10), None, 2));
    let mut empty: Table<u64, u64, RandomState> = Table::default();
    empty.extend([(1, 1)]);
    assert_eq!((cache.map.into_iter().len(), empty.iter_mut().len()), (2, 1));
    let mut left = Table::from([(1, 1), (2, 2)]).into_iter();
    assert_eq!((left.next().is_some(), left.len(), left.by_ref().count(), left.len()), (true, 1, 1, 0));
    let keys: Set<u64, RandomState> = [1, 1, 2].into_iter().collect();
    assert_eq!((empty.len(), keys.len(), Set::from([1, 1]).len()), (1, 2, 1));
}
