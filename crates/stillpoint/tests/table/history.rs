//! Checks histories of several threads on one key for a valid order.
//!
//! Each thread records the times at which a call began and returned, and its result. Of the orders that agree with
//! these times, a search looks for one that a single register would have produced. After Wing and Gong, "Testing and
//! Verifying Concurrent Objects", Journal of Parallel and Distributed Computing 17, 1993.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Call {
    Insert(u64),
    /// Inserts if there is no entry.
    InsertNew(u64),
    /// Replaces the entry, if there is one.
    Update(u64),
    Remove,
    /// Removes the entry, if its value has this remainder modulo 2.
    RemoveIf(u64),
    Get,
    /// Only returns whether there is an entry.
    Contains,
    /// Does nothing, since the table is full: so there is no entry that it could have returned or replaced.
    Refused,
}

impl Call {
    /// The value in the table after the call.
    fn next(self, state: Option<u64>) -> Option<u64> {
        match self {
            Self::Insert(value) => Some(value),
            Self::InsertNew(value) => state.or(Some(value)),
            Self::Update(value) => state.and(Some(value)),
            Self::Remove => None,
            Self::RemoveIf(remainder) => state.filter(|value| value % 2 != remainder),
            Self::Get | Self::Contains | Self::Refused => state,
        }
    }

    /// Whether the call returns this when `state` is in the table.
    fn sees(self, state: Option<u64>, seen: Option<u64>) -> bool {
        match self {
            Self::Contains => state.is_some() == seen.is_some(),
            _ => state == seen,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) call: Call,
    /// The value that was in the table before the call, according to its result.
    pub(crate) seen: Option<u64>,
}

/// Gives the times at which calls begin and end.
#[derive(Debug, Default)]
pub(crate) struct Clock(AtomicU64);

impl Clock {
    /// Records a call: `make` calls the table, and returns the value before.
    pub(crate) fn note(&self, call: Call, make: impl FnOnce() -> Option<u64>) -> Event {
        // SeqCst: the stamps and the calls between them are in the order of the program.
        let begin = self.0.fetch_add(1, Ordering::SeqCst);
        let seen = make();
        let end = self.0.fetch_add(1, Ordering::SeqCst);
        Event { begin, end, call, seen }
    }
}

/// The most events of one history.
pub(crate) const MOST: usize = 64;

/// Panics unless there is a valid order of the events on one key, which is not in the table at first.
pub(crate) fn check(events: &[Event]) {
    assert!(has_order(events), "no order is valid for {events:?}");
}

fn has_order(events: &[Event]) -> bool {
    assert!(events.len() <= MOST);
    search(events, 0, None, &mut HashSet::new())
}

/// Whether there is a valid order of the events not in the bit set `done`, from the value `state` on.
fn search(events: &[Event], done: u64, state: Option<u64>, failed: &mut HashSet<(u64, Option<u64>)>) -> bool {
    if done.count_ones() as usize == events.len() {
        return true;
    }
    if failed.contains(&(done, state)) {
        return false;
    }
    let open = || events.iter().enumerate().filter(move |(at, _)| done & 1 << at == 0);
    let first_end = open().map(|(_, event)| event.end).min().unwrap();
    for (at, event) in
        open().filter(|(_, event)| event.begin <= first_end && event.call.sees(state, event.seen))
    {
        if search(events, done | 1 << at, event.call.next(state), failed) {
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
    assert!(has_order(&[inserted, event(2, 3, Call::Get, Some(5))]));
    assert!(!has_order(&[inserted, event(2, 3, Call::Get, None)]), "the value was in the table");
    assert!(!has_order(&[inserted, event(2, 3, Call::InsertNew(6), None)]), "the value was in the table");
    assert!(!has_order(&[event(2, 3, Call::Update(6), None), event(4, 5, Call::Get, Some(6))]));
    let long = event(0, 9, Call::Insert(5), None);
    let (found, missed) = (event(1, 2, Call::Get, Some(5)), event(3, 4, Call::Get, None));
    assert!(!has_order(&[long, found, missed]), "found, and then not found");
    assert!(has_order(&[long, event(1, 2, Call::Get, None), event(3, 4, Call::Get, Some(5))]));
    // Calls with conditions, and calls whose results say less.
    assert!(has_order(&[inserted, event(2, 3, Call::RemoveIf(1), Some(5)), event(4, 5, Call::Get, None)]));
    assert!(has_order(&[inserted, event(2, 3, Call::RemoveIf(0), Some(5)), event(4, 5, Call::Get, Some(5))]));
    assert!(!has_order(&[inserted, event(2, 3, Call::RemoveIf(0), Some(5)), event(4, 5, Call::Get, None)]));
    assert!(!has_order(&[
        inserted,
        event(2, 3, Call::RemoveIf(1), Some(5)),
        event(4, 5, Call::Contains, Some(0))
    ]));
    assert!(has_order(&[inserted, event(2, 3, Call::Contains, Some(0))]));
    assert!(!has_order(&[inserted, event(2, 3, Call::Contains, None)]));
    assert!(!has_order(&[inserted, event(2, 3, Call::Refused, None)]), "the entry was there");
    // A value that is inserted again after it was replaced.
    let second = event(2, 3, Call::Insert(6), Some(5));
    assert!(!has_order(&[inserted, second, event(4, 5, Call::Get, Some(5))]));
}
