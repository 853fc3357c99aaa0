//! Functions that change what they are to decide about: once is allowed, twice panics, and nothing else does.

use std::cell::Cell;
use std::hash::{BuildHasherDefault, Hasher};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::mpsc;

use stillpoint::rcu::Domain;
use stillpoint::table::{Compute, Operation, Table};

#[derive(Default)]
struct Constant;

impl Hasher for Constant {
    fn finish(&self) -> u64 {
        7 << 50
    }
    fn write(&mut self, _: &[u8]) {}
}

type Colliding = Table<u64, u64, BuildHasherDefault<Constant>>;

fn colliding(domain: &Domain) -> Colliding {
    let table = Table::builder_in(domain).hasher(BuildHasherDefault::default()).build().unwrap();
    drop(table.insert(1, 0).unwrap());
    table
}

/// Whether `call` panics because of its own writes.
fn panics(call: impl FnOnce()) -> bool {
    let Err(panic) = catch_unwind(AssertUnwindSafe(call)) else { return false };
    let message = panic.downcast::<String>().expect("a message");
    assert!(message.contains("for the second time"), "{message}");
    true
}

/// Changes the entry that a function was called with.
type OwnWrite<'t> = Box<dyn Fn() + 't>;

/// The ways in which a function can change the entry that it is called with; key 1 stays in the table.
fn own_writes<'t>(domain: &'t Domain, table: &'t Colliding) -> [(&'static str, OwnWrite<'t>); 6] {
    let put = |value| drop(table.insert(1, value).unwrap());
    [
        ("insert", Box::new(move || put(50))),
        (
            "remove and insert",
            Box::new(move || {
                drop(table.remove(&1));
                put(50);
            }),
        ),
        (
            "clear",
            Box::new(move || {
                table.clear();
                put(50);
            }),
        ),
        (
            "retain",
            Box::new(move || {
                table.within(&domain.reader().pin()).retain(|_, _| false);
                put(50);
            }),
        ),
        (
            "update",
            Box::new(move || {
                drop(table.within(&domain.reader().pin()).update(&1, |_| 50).unwrap());
            }),
        ),
        // Other writes come after it, and the entry is not retired before the call is over.
        (
            "others",
            Box::new(move || {
                std::mem::forget(table.insert(1, 50).unwrap());
                drop(table.insert(2, 50).unwrap());
                drop(table.remove(&3));
            }),
        ),
    ]
}

/// Each kind of call, with each kind of write in its function: `times` writes, one in each run.
#[test]
fn an_own_write_in_every_run_panics_the_second_time() {
    let domain = Domain::new();
    let table = colliding(&domain);
    let (mut reader, other) = (domain.reader(), domain.reader());
    let mut lookup = table.reader(&mut reader);
    for (how, write) in &own_writes(&domain, &table) {
        for times in [1, 2, 1_000_000] {
            for kind in 0..7 {
                drop(table.insert(1, 0).unwrap());
                let runs = Cell::new(0);
                let run = || {
                    runs.set(runs.get() + 1);
                    if runs.get() <= times {
                        write();
                    }
                };
                let value = |old: &u64| {
                    run();
                    old + 1
                };
                let decide =
                    |present: Option<(&u64, &u64)>| Operation::<u64>::Insert(value(present.unwrap().1));
                let guard = other.pin();
                let view = table.within(&guard);
                let has_panicked = panics(|| match kind {
                    0 => drop(lookup.update(&1, value).unwrap()),
                    1 => drop(view.update(&1, value).unwrap()),
                    2 => drop(lookup.update_or_insert(1, value, 0).unwrap()),
                    3 => _ = view.update_or_insert(1, value, 0).unwrap(),
                    4 => drop(lookup.compute(1, decide).unwrap()),
                    5 => drop(view.compute(1, decide).unwrap()),
                    _ => drop(lookup.compute(1, |_| {
                        run();
                        Operation::<u64>::Remove
                    })),
                });
                let end = lookup.copied(&1);
                let what = format!("{kind}, {how}, {times}");
                assert_eq!((has_panicked, runs.get()), (times > 1, 2), "{what}");
                assert_eq!(end, if times > 1 { Some(50) } else { Some(51).filter(|_| kind < 6) }, "{what}");
            }
            let runs = Cell::new(0);
            drop(table.insert(1, 0).unwrap());
            let has_panicked = panics(|| {
                drop(lookup.remove_if(&1, |_, _| {
                    runs.set(runs.get() + 1);
                    if runs.get() <= times {
                        write();
                    }
                    true
                }));
            });
            assert_eq!(
                (has_panicked, runs.get(), !table.is_empty()),
                (times > 1, 2, times > 1 || *how == "others")
            );
        }
    }
}

/// Nothing was found, and the function inserts the key, then removes it, and so on.
#[test]
fn an_own_insertion_of_the_absent_key_counts() {
    let domain = Domain::new();
    let table = colliding(&domain);
    let other = domain.reader();
    let mut reader = domain.reader();
    let mut lookup = table.reader(&mut reader);
    for (how, insert) in [
        ("insert", &(|| drop(table.insert(1, 50).unwrap())) as &dyn Fn()),
        ("get_or_insert", &|| _ = table.within(&other.pin()).get_or_insert(1, 50).unwrap()),
        ("twice", &|| (50..52).for_each(|value| drop(table.insert(1, value).unwrap()))),
        ("others", &|| (1..9).for_each(|key| drop(table.insert(key, 50).unwrap()))),
    ] {
        table.clear();
        let mut runs = 0;
        let has_panicked = panics(|| {
            drop(lookup.compute(1, |present| {
                runs += 1;
                match present {
                    None => insert(),
                    Some(_) => drop(table.remove(&1)),
                }
                Operation::<u64>::Insert(1)
            }));
        });
        assert_eq!((has_panicked, runs, lookup.contains_key(&1)), (true, 2, false), "{how}");
    }
    // What it has taken back itself is not in the way.
    table.clear();
    let done = lookup.compute(1, |_| {
        drop(table.insert(1, 50).unwrap());
        drop(table.remove(&1));
        Operation::<u64>::Insert(1)
    });
    assert!(matches!(done, Ok(Compute::Inserted(_))), "{done:?}");
}

/// Another thread changes the entry in each of many runs. The function writes, too, but not to this entry.
#[test]
fn writes_of_other_threads_and_to_other_keys_do_not_count() {
    const RUNS: u64 = 20;
    let domain = Domain::new();
    let (table, twin) = (colliding(&domain), colliding(&domain));
    let (ask, asked) = mpsc::channel::<bool>();
    let (answer, answered) = mpsc::channel();
    std::thread::scope(|scope| {
        let far = &table;
        scope.spawn(move || {
            for is_insertion in asked {
                if is_insertion {
                    drop(far.insert(1, 60).unwrap());
                } else {
                    drop(far.remove(&1));
                }
                answer.send(()).unwrap();
            }
        });
        let other = |is_insertion| {
            ask.send(is_insertion).unwrap();
            answered.recv().unwrap();
        };
        let mut reader = domain.reader();
        let mut lookup = table.reader(&mut reader);
        let runs = Cell::new(0);
        // The same key in another table, another key with the same hash, and a write that changes nothing.
        let write = || {
            runs.set(runs.get() + 1);
            drop(twin.insert(1, runs.get()).unwrap());
            drop(table.insert(2, runs.get()).unwrap());
            drop(table.within(&domain.reader().pin()).try_insert(1, 9));
            drop(table.remove(&2));
        };
        let value = |old: &u64| {
            write();
            if runs.get() < RUNS {
                other(true);
            }
            old + 1
        };
        drop(lookup.update(&1, value).unwrap());
        assert_eq!(runs.replace(0), RUNS);
        drop(lookup.update_or_insert(1, value, 0).unwrap());
        assert_eq!(runs.replace(0), RUNS);
        // The entry comes and goes.
        let done = lookup.compute(1, |present| {
            runs.set(runs.get() + 1);
            drop(table.insert(2, runs.get()).unwrap());
            if runs.get() < RUNS {
                other(present.is_none());
            }
            Operation::<u64>::Insert(1)
        });
        drop(done.unwrap());
        assert_eq!(runs.get(), RUNS);
        drop(ask);
    });
}

/// The watch of a function ends with it, even by a panic: later writes of the thread are nobody's.
#[test]
fn a_watch_ends_with_its_function() {
    let domain = Domain::new();
    let table = colliding(&domain);
    let mut reader = domain.reader();
    let mut lookup = table.reader(&mut reader);
    for _ in 0..3 {
        let end = catch_unwind(AssertUnwindSafe(|| drop(lookup.update(&1, |_| panic!("on purpose")))));
        assert!(end.is_err());
        drop(table.insert(1, 5).unwrap());
        // A call within the function of another one ends its own watch only.
        let mut inner = domain.reader();
        let mut inner = table.reader(&mut inner);
        let mut runs = 0;
        let has_panicked = panics(|| {
            drop(lookup.update(&1, |old| {
                runs += 1;
                drop(inner.update(&1, |old| old + 10).unwrap());
                old + 1
            }));
        });
        assert_eq!((has_panicked, runs, lookup.copied(&1)), (true, 2, Some(25)));
    }
}
