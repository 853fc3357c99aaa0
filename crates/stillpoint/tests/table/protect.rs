//! Lookups by readers that are not bound: `get`, `protect`.

use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;
use std::sync::Arc;

use stillpoint::rcu::{Domain, Reader};
use stillpoint::table::Table;

use crate::census::{Census, Counted};
use crate::free_all;

/// Any number of results, dropped in any order; each holds its own entry, and nothing else.
#[test]
fn each_result_holds_one_entry() {
    const HELD: u64 = if cfg!(miri) { 20 } else { 300 };
    let census = Census::default();
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    let reader = domain.reader();
    for key in 0..2 * HELD {
        table.insert(key, census.value(key)).unwrap();
    }
    let mut held: Vec<_> =
        (0..HELD).map(|key| (key, table.protect(&reader, &key).expect("it is there"))).collect();
    table.clear();
    assert!(table.protect(&reader, &0).is_none());
    while !held.is_empty() {
        while table.pending() > held.len() {
            table.poll();
        }
        assert_eq!(census.alive(), held.len());
        let (key, entry) = held.swap_remove(held.len() * 7 / 11);
        assert_eq!((*entry.key(), entry.value().value), (key, key));
    }
    free_all(&table);
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_result_that_is_forgotten_holds_its_entry_until_the_reader_goes() {
    let census = Census::default();
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    let reader = domain.reader();
    for key in 0..3 {
        table.insert(key, census.value(key)).unwrap();
    }
    std::mem::forget(table.protect(&reader, &0));
    std::mem::forget(table.protect(&reader, &1));
    assert_eq!(table.protect(&reader, &2).map(|entry| entry.value), Some(2));
    table.clear();
    while table.pending() > 2 {
        table.poll();
    }
    assert_eq!(census.alive(), 2);
    drop(reader);
    free_all(&table);
    assert_eq!(census.alive(), 0);
}

/// What a bound reader that was forgotten has left in its slots does not disturb others.
#[test]
fn a_bound_reader_that_was_forgotten_leaves_the_reader_usable() {
    let census = Census::default();
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    let mut reader = domain.reader();
    for key in 0..100 {
        table.insert(key, census.value(key)).unwrap();
    }
    let mut lookup = table.reader(&mut reader);
    std::mem::forget(lookup.get(&1));
    std::mem::forget(lookup);
    for key in 0..100 {
        let entry = table.protect(&reader, &key).expect("it is there");
        drop(table.remove(&key));
        assert_eq!(entry.value().value, key);
    }
    drop(reader);
    free_all(&table);
    assert_eq!(census.alive(), 0);
}

/// What `Eq` does, as often as the number says.
type Hook = (usize, Option<fn()>);

thread_local! {
    static HOOK: Cell<Hook> = const { Cell::new((0, None)) };
    static SCENE: RefCell<Option<Rc<Scene>>> = const { RefCell::new(None) };
}

/// A key whose `Eq` calls [`HOOK`]. All keys have the same hash.
#[derive(Debug, Clone)]
struct Hooked(u64);

impl Hash for Hooked {
    fn hash<H: Hasher>(&self, state: &mut H) {
        0_u64.hash(state);
    }
}

impl PartialEq for Hooked {
    fn eq(&self, other: &Self) -> bool {
        if let (left @ 1.., Some(hook)) = HOOK.get() {
            HOOK.set((left - 1, Some(hook)));
            hook();
        }
        self.0 == other.0
    }
}

impl Eq for Hooked {}

/// The domain, reader and table of a test whose keys are [`Hooked`].
struct Scene {
    reader: Reader,
    table: Table<Hooked, Counted>,
    census: Census,
}

/// A scene with ten keys, for the time of `test`.
fn with_scene(test: impl FnOnce(&Scene)) {
    let domain = Domain::new();
    let scene = Scene { reader: domain.reader(), table: Table::new_in(&domain), census: Census::default() };
    for key in 0..10 {
        drop(scene.table.insert(Hooked(key), scene.census.value(key)).unwrap());
    }
    SCENE.set(Some(Rc::new(scene)));
    test(&present());
    HOOK.set((0, None));
    SCENE.set(None);
}

fn present() -> Rc<Scene> {
    SCENE.with_borrow(|scene| Rc::clone(scene.as_ref().expect("a test has set it")))
}

fn get(key: u64) -> Option<u64> {
    let scene = present();
    let entry = scene.table.protect(&scene.reader, &Hooked(key));
    entry.map(|entry| entry.value().value)
}

/// A lookup within the comparison of another one, by the same reader, and so on.
#[test]
fn a_comparison_may_look_up() {
    with_scene(|scene| {
        for depth in [1, 2, 3, 7, 40] {
            for key in 0..12 {
                let hook = || {
                    for key in [3, 11, 9] {
                        assert_eq!(get(key), Some(key).filter(|key| *key < 10));
                    }
                };
                HOOK.set((depth, Some(hook)));
                assert_eq!(get(key), Some(key).filter(|key| *key < 10));
            }
        }
        // All slots were given back.
        scene.table.clear();
        while scene.table.pending() > 0 {
            scene.table.poll();
        }
        assert_eq!(scene.census.alive(), 0);
    });
}

/// The entry that is compared is removed, and everything that can be freed is freed.
#[test]
fn a_comparison_may_remove_what_is_compared() {
    with_scene(|scene| {
        let hook = || {
            let scene = present();
            scene.table.clear();
            scene.table.poll();
            for key in 100..110 {
                drop(scene.table.insert(Hooked(key), scene.census.value(key)).unwrap());
            }
        };
        HOOK.set((1, Some(hook)));
        assert!(matches!(get(9), None | Some(9)));
        assert_eq!(get(105), Some(105));
        while scene.table.pending() > 0 {
            scene.table.poll();
        }
        assert_eq!(scene.census.alive(), scene.table.len());
    });
}

/// Nothing is held after a panic: neither the entry that was compared, nor an array.
#[test]
fn a_comparison_may_panic() {
    with_scene(|scene| {
        for nested in [false, true] {
            let hook = if nested {
                || {
                    HOOK.set((1, Some(|| panic!("on purpose"))));
                    get(1);
                }
            } else {
                || panic!("on purpose")
            };
            HOOK.set((1, Some(hook)));
            assert!(catch_unwind(AssertUnwindSafe(|| get(1))).is_err());
        }
        HOOK.set((0, None));
        scene.table.clear();
        scene.table.reserve(10 * scene.table.capacity()).unwrap();
        while scene.table.pending() > 0 {
            scene.table.poll();
        }
        assert_eq!(scene.census.alive(), 0);
    });
}

/// As above, for a bound reader.
#[test]
fn a_comparison_of_a_bound_reader_may_panic() {
    let census = Census::default();
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    let mut reader = domain.reader();
    table.insert(Hooked(1), census.value(1)).unwrap();
    let mut lookup = table.reader(&mut reader);
    HOOK.set((1, Some(|| panic!("on purpose"))));
    assert!(catch_unwind(AssertUnwindSafe(|| lookup.get(&Hooked(1)).is_some())).is_err());
    HOOK.set((0, None));
    drop(table.remove(&Hooked(1)));
    free_all(&table);
    assert_eq!(census.alive(), 0);
    assert!(lookup.get(&Hooked(1)).is_none());
}

/// Unlike a bound reader, it holds up no array between lookups.
#[test]
fn an_idle_reader_holds_up_no_array() {
    let domain = Domain::new();
    let table: Table<u64, u64> = Table::new_in(&domain);
    let reader = domain.reader();
    for key in 0..if cfg!(miri) { 3_000 } else { 100_000 } {
        drop(table.insert(key, key).unwrap());
        assert_eq!(table.protect(&reader, &(key / 2)).map(|entry| *entry), Some(key / 2));
    }
    assert!(table.stats().growths > 0);
    free_all(&table);
}

/// In the default domain, with the reader of each thread; also when a thread-local is dropped at the end of its thread.
#[test]
fn threads_look_up_with_their_own_readers() {
    struct AtEnd(Arc<Table<String, u64>>);

    impl Drop for AtEnd {
        fn drop(&mut self) {
            assert_eq!(self.0.copied("7"), Some(7));
            self.0.remove("0");
        }
    }

    thread_local! {
        static AT_END: Cell<Option<AtEnd>> = const { Cell::new(None) };
    }

    let table: Arc<Table<String, u64>> = Arc::new((0..10).map(|key| (key.to_string(), key)).collect());
    let threads = (0..3).map(|_| {
        let table = Arc::clone(&table);
        std::thread::spawn(move || {
            AT_END.set(Some(AtEnd(Arc::clone(&table))));
            let (first, second) = (table.get("1").unwrap(), table.get("2").unwrap());
            assert!(table.contains_key("3") && !table.contains_key("10") && table.get("10").is_none());
            assert_eq!((table.copied("4"), table.cloned("5"), *first, *second), (Some(4), Some(5), 1, 2));
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    assert!(!table.contains_key("0"));
}

/// A thread that stops while it holds an entry holds up nothing else.
#[test]
fn one_entry_is_all_that_a_sleeping_thread_holds_up() {
    let census = Census::default();
    let domain = Domain::new();
    let table = Table::new_in(&domain);
    for key in 0..if cfg!(miri) { 40 } else { 1_000 } {
        table.insert(key, census.value(key)).unwrap();
    }
    let barrier = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let reader = domain.reader();
            let entry = table.protect(&reader, &20);
            barrier.wait();
            barrier.wait();
            assert_eq!(entry.map(|entry| entry.value().value), Some(20));
        });
        barrier.wait();
        table.clear();
        while table.pending() > 1 {
            table.poll();
        }
        assert_eq!(census.alive(), 1);
        barrier.wait();
    });
    free_all(&table);
    assert_eq!(census.alive(), 0);
}
