//! `Domain::all`.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use stillpoint::rcu::Domain;

use crate::census::Census;
use crate::child;

const THREADS: usize = 3;
const DOMAINS: usize = 1_000;

/// In a process of its own: the handles that it takes would be those of other tests' domains.
#[test]
fn domains_may_begin_and_end_while_all_are_looked_at() {
    child::in_child("all::domains_may_begin_and_end_while_all_are_looked_at", begin_and_end);
}

/// Each object waits in its domain, and is freed by whoever drops the last handle: its maker, or the one that looks.
fn begin_and_end() {
    let lasting = Domain::builder().name("lasting").build().expect("the default mode is always available");
    let census = Census::default();
    let left = AtomicUsize::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..DOMAINS {
                    let domain = Domain::new();
                    let cell = domain.cell(census.object());
                    drop(cell.replace(census.object()));
                }
                left.fetch_sub(1, Ordering::Release);
            });
        }
        let mut is_last = false;
        while !is_last {
            is_last = left.load(Ordering::Acquire) == 0;
            let mut ids = HashSet::new();
            let mut has_found = false;
            for domain in Domain::all() {
                assert!(ids.insert(domain.id()), "domain {} is there twice", domain.id());
                let _ = domain.stats();
                has_found |= domain.id() == lasting.id();
            }
            assert!(has_found, "a domain with a handle is left out");
        }
    });
    assert_eq!(census.alive(), 0);
}
