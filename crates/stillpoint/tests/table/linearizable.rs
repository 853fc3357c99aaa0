//! Small histories of several threads on one key have an order in which they make sense.
//!
//! Each thread notes when it called and when the call returned, and what it got; a search over the orders that keep
//! those times looks for one that a single register with insert, remove and get would have produced. After Wing and
//! Gong, "Testing and Verifying Concurrent Objects", Journal of Parallel and Distributed Computing 17, 1993.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Barrier;

use stillpoint::rcu::Domain;
use stillpoint::table::Table;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Call {
    Insert(u64),
    Remove,
    Get,
}

#[derive(Debug, Clone, Copy)]
struct Event {
    begin: u64,
    end: u64,
    call: Call,
    /// What was in the table before, as the call said.
    seen: Option<u64>,
}

/// Whether an order of `events` makes sense, from the value `state` on; `done` is a set of bits.
fn has_order(
    events: &[Event],
    done: u32,
    state: Option<u64>,
    failed: &mut HashSet<(u32, Option<u64>)>,
) -> bool {
    if done.count_ones() as usize == events.len() {
        return true;
    }
    if failed.contains(&(done, state)) {
        return false;
    }
    let open = || events.iter().enumerate().filter(move |(at, _)| done & 1 << at == 0);
    let first_end = open().map(|(_, event)| event.end).min().unwrap();
    for (at, event) in open().filter(|(_, event)| event.begin <= first_end && event.seen == state) {
        let next = match event.call {
            Call::Insert(value) => Some(value),
            Call::Remove => None,
            Call::Get => state,
        };
        if has_order(events, done | 1 << at, next, failed) {
            return true;
        }
    }
    failed.insert((done, state));
    false
}

#[test]
fn the_search_refuses_what_cannot_be() {
    let event = |begin, end, call, seen| Event { begin, end, call, seen };
    let inserted = event(0, 1, Call::Insert(5), None);
    let check = |events: &[Event]| has_order(events, 0, None, &mut HashSet::new());
    assert!(check(&[inserted, event(2, 3, Call::Get, Some(5))]));
    assert!(!check(&[inserted, event(2, 3, Call::Get, None)]), "it was there");
    let long = event(0, 9, Call::Insert(5), None);
    let (found, missed) = (event(1, 2, Call::Get, Some(5)), event(3, 4, Call::Get, None));
    assert!(!check(&[long, found, missed]), "found, and then not found");
    assert!(check(&[long, event(1, 2, Call::Get, None), event(3, 4, Call::Get, Some(5))]));
}

/// Three threads on one key, in a table that grows at the same time.
#[test]
fn small_histories_are_linearizable() {
    const ROUNDS: u64 = 1_500;
    const CALLS: u64 = 4;
    let domain = Domain::new();
    let table: Table<u64, u64> = Table::new(&domain);
    let (clock, barrier) = (AtomicU64::new(0), Barrier::new(4));
    let history = |thread: u64| {
        let mut reader = domain.reader();
        let mut lookup = table.reader(&mut reader);
        let mut events: Vec<Vec<Event>> = Vec::new();
        for round in 0..ROUNDS {
            barrier.wait();
            events.push(Vec::new());
            for number in 0..CALLS {
                let random = (round * 31 + thread * 7 + number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                let value = (round * 10 + thread) * 10 + number;
                // SeqCst: the stamps and the calls between them are in the order of the program.
                let begin = clock.fetch_add(1, Ordering::SeqCst);
                let (call, seen) = match random % 4 {
                    0 => (Call::Insert(value), table.insert(round, value).unwrap().map(|old| *old)),
                    1 => (Call::Remove, table.remove(&round).map(|old| *old)),
                    2 => (Call::Get, lookup.copied(&round)),
                    _ => (Call::Get, lookup.pin().get(&round).copied()),
                };
                let end = clock.fetch_add(1, Ordering::SeqCst);
                events.last_mut().unwrap().push(Event { begin, end, call, seen });
            }
        }
        events
    };
    let histories: Vec<Vec<Vec<Event>>> = std::thread::scope(|scope| {
        let history = &history;
        let threads: Vec<_> = (0..3).map(|thread| scope.spawn(move || history(thread))).collect();
        for round in 0..ROUNDS {
            barrier.wait();
            for key in 0..20 {
                table.insert(1_000_000 + round * 20 + key, 0).unwrap();
            }
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for round in 0..ROUNDS as usize {
        let events: Vec<Event> = histories.iter().flat_map(|of_thread| of_thread[round].clone()).collect();
        assert!(has_order(&events, 0, None, &mut HashSet::new()), "no order makes sense of {events:?}");
    }
    assert!(table.stats().growths >= 3);
}
