//! The end of a domain against threads that look for it by its number.

use loom::cell::UnsafeCell;
use loom::thread;

use super::{domain, explore, Object};
use crate::rcu::engine::directory::Entry;
use crate::rcu::Domain;

/// An entry that lists the domain under this number.
fn listed(number: u64, domain: &Domain) -> &'static Entry {
    let entry: &Entry = Box::leak(Box::default());
    assert!(entry.try_claim());
    // SAFETY: claimed above.
    unsafe { entry.begin(number, domain.core()) };
    entry
}

#[test]
fn a_domain_ends_while_two_look_for_it() {
    explore(3, || {
        let domain = domain();
        let entry = listed(1, &domain);
        let looks = [(); 2].map(|()| thread::spawn(|| drop(entry.find(1))));
        entry.end();
        looks.into_iter().for_each(|look| look.join().unwrap());
        assert!(entry.try_claim(), "a thread has cleared it");
        assert!(entry.find(1).is_none());
    });
}

/// A thread that looks for the first domain finds that domain, or none.
#[test]
fn an_entry_serves_one_domain_after_the_other() {
    explore(3, || {
        let (first, second) = (domain(), domain());
        let entry = listed(1, &first);
        let id = first.core().id();
        let look = thread::spawn(move || {
            let found = entry.find(1);
            assert!(found.is_none_or(|core| core.id() == id), "another domain was found");
        });
        entry.end();
        if entry.try_claim() {
            // SAFETY: claimed above.
            unsafe { entry.begin(2, second.core()) };
            let found = entry.find(2).expect("it is listed");
            assert_eq!(found.id(), second.core().id());
            entry.end();
        }
        look.join().unwrap();
    });
}

/// A thread that finds that a domain has ended sees what was done before its end.
#[test]
fn who_finds_no_domain_comes_after_its_end() {
    explore(3, || {
        let domain = domain();
        let entry = listed(1, &domain);
        let last: &UnsafeCell<u32> = Box::leak(Box::new(UnsafeCell::new(0)));
        let last = Last(last);
        let look = thread::spawn(move || {
            if entry.find(1).is_none() {
                assert_eq!(last.get(), Object::ALIVE);
            }
        });
        last.set();
        entry.end();
        look.join().unwrap();
    });
}

/// What the last handle of a domain has done.
#[derive(Clone, Copy)]
struct Last(&'static UnsafeCell<u32>);

// SAFETY: the model checks that its uses are ordered.
unsafe impl Send for Last {}

impl Last {
    fn set(self) {
        // SAFETY: loom reports an unordered use.
        self.0.with_mut(|value| unsafe { *value = Object::ALIVE });
    }

    fn get(self) -> u32 {
        // SAFETY: loom reports an unordered use.
        self.0.with(|value| unsafe { *value })
    }
}
