//! The readers of the default domain, which are the threads themselves, vouch for themselves and go offline.
//!
//! A process has one default domain, so the tests run one after the other.

#![cfg(not(stillpoint_loom))]

#[path = "support/census.rs"]
mod census;
#[path = "support/other.rs"]
mod other;

use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use census::{Census, Object};
use other::{silent, Other, Turns};
use stillpoint::fence::Mode;
use stillpoint::rcu::{self, Domain, RcuArray, RcuCell};
use stillpoint::table::Table;

/// Gives the caller exclusive use of the domain.
fn own() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a thread does in its turns.
type Body = fn(Turns);

#[test]
fn whatever_a_thread_loads_it_vouches() {
    let _own = own();
    let domain = rcu::default_domain();
    if domain.fence_mode() == Mode::Symmetric {
        return; // writers need no heavy fence
    }
    let bodies: [(&str, Body); 7] = [
        ("a cell", |turns| {
            let cell = RcuCell::new(1);
            turns.for_each(|()| drop(cell.get().expect("it is full")));
        }),
        ("an array", |turns| {
            let array = RcuArray::new(1, |_| Some(Box::new(1)));
            turns.for_each(|()| drop(array.get(0).expect("it is full")));
        }),
        ("a guard", |turns| turns.for_each(|()| drop(rcu::pin()))),
        ("a guard of a table", |turns| {
            let table: Table<i32, i32> = Table::new();
            turns.for_each(|()| assert!(table.pin().get(&2).is_none()));
        }),
        ("a handle of a table, with the key", |turns| {
            let mut handle = Arc::new(Table::from([(1, 1)])).handle();
            turns.for_each(|()| drop(handle.reader().get(&1).expect("it is there")));
        }),
        ("a handle of a table, without the key", |turns| {
            let mut handle = Arc::new(Table::from([(1, 1)])).handle();
            turns.for_each(|()| assert!(handle.reader().get(&2).is_none()));
        }),
        ("a thread that goes offline", |turns| {
            turns.for_each(|()| {
                drop(rcu::pin());
                assert!(rcu::offline() && !rcu::offline());
            });
        }),
    ];
    for (name, body) in bodies {
        let mut reclaimer =
            domain.reclaimer_builder().batch(usize::MAX).fence_interval(Duration::from_secs(1000)).build();
        let retire = |reclaimer: &mut rcu::Reclaimer| {
            reclaimer.retire(domain.cell(1).take().expect("it was full")).expect("there is room");
        };
        // Now no other fence is due before the end of the test.
        let only = silent(domain);
        let before = domain.stats().heavy_fences;
        assert_eq!(domain.synchronize(), Ok(()));
        let fences = domain.stats().heavy_fences;
        assert_eq!(fences, before + 1, "{name}");
        drop(only);
        let other = Other::start(body);
        for turn in 0..3 {
            other.turn();
            retire(&mut reclaimer);
            if name != "a thread that goes offline" {
                while domain.stats().silent == 0 {
                    assert_eq!(reclaimer.poll(), 0, "{name}: it is silent in turn {turn}");
                }
                assert!((0..100).all(|_| reclaimer.poll() == 0), "{name}: it is silent in turn {turn}");
            }
            while reclaimer.pending() > 0 {
                other.turn();
                reclaimer.poll();
            }
        }
        assert_eq!(domain.stats().heavy_fences, fences, "{name}");
    }
}

#[test]
fn a_thread_that_has_not_used_the_domain_does_not_go_offline() {
    let _own = own();
    let thread = std::thread::spawn(|| {
        assert!(!rcu::offline());
        let cell = RcuCell::new(1);
        let held = cell.get().expect("it is full");
        let guard = rcu::pin();
        assert!(!rcu::offline(), "a guard is held");
        drop(guard);
        assert!(rcu::offline());
        cell.set(2);
        assert_eq!((*held, cell.get().as_deref()), (1, Some(&2)), "what is held stays");
    });
    thread.join().expect("it does not panic");
}

/// A key whose comparison calls a function of the test. All keys have one hash.
#[derive(Debug, Eq)]
struct Key(usize);

thread_local! {
    static IN_EQ: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        IN_EQ.with_borrow(|function| function.iter().for_each(|function| function()));
        self.0 == other.0
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u8(0);
    }
}

/// Comparisons may go offline. That ends neither the guard of a lookup nor what a lookup holds.
#[test]
fn a_lookup_whose_comparisons_go_offline_holds_what_it_finds() {
    const KEYS: usize = 20;
    let _own = own();
    let census = Census::default();
    let table: Arc<Table<Key, Object>> = Arc::new(Table::new());
    (0..KEYS).for_each(|key| drop(table.insert(Key(key), census.object()).expect("there is room")));
    let (its_table, its_census) = (Arc::clone(&table), census.clone());
    let remover = Rc::new(Other::start(move |turns| {
        for () in turns {
            for key in 0..KEYS {
                its_table.remove(&Key(key)).expect("it is there").verify();
                drop(its_table.insert(Key(key), its_census.object()).expect("there is room"));
            }
            its_table.poll();
        }
    }));
    let compared = Rc::new(Cell::new(0));
    // In each comparison, the thread goes offline or cannot, and then everything in the table is replaced.
    let while_compared = |goes_offline: bool| {
        let (compared, remover) = (Rc::clone(&compared), Rc::clone(&remover));
        IN_EQ.set(Some(Box::new(move || {
            if goes_offline {
                drop(rcu::pin());
            }
            assert_eq!(rcu::offline(), goes_offline);
            compared.set(compared.get() + 1);
            remover.turn();
        })));
    };
    let mut found = 0;
    let mut meet = |object: Option<&Object>| {
        IN_EQ.set(None);
        if let Some(object) = object {
            object.verify();
            remover.turn();
            object.verify();
            found += 1;
        }
    };
    let mut handle = table.handle();
    for key in 0..=KEYS {
        let guard = table.pin();
        while_compared(false);
        meet(guard.get(&Key(key)));
        drop(guard);
        while_compared(true);
        let mut lookup = handle.reader();
        let entry = lookup.get(&Key(key));
        meet(entry.as_ref().map(|entry| entry.value()));
    }
    assert!(compared.get() > KEYS && found > 0, "{} compared, {found} found", compared.get());
    drop((handle, remover));
    drop(table);
    rcu::barrier().expect("nothing is in the way");
    assert_eq!(census.alive(), 0);
}
