//! Compiled and run by `../path.rs`, under callgrind: trips of one object, from the call that unlinks it to its destructor.

use std::sync::atomic::{AtomicUsize, Ordering};

use stillpoint::rcu::RcuCell;
use stillpoint::table::Table;

static FREED: AtomicUsize = AtomicUsize::new(0);

struct Counted;

impl Drop for Counted {
    fn drop(&mut self) {
        FREED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Calls `unlink` until it has run a destructor: of its own object, or of one that it was called with before.
fn until_freed(unlink: impl Fn()) {
    let before = FREED.load(Ordering::Relaxed);
    while FREED.load(Ordering::Relaxed) == before {
        unlink();
    }
}

/// The files that this enters are counted.
#[inline(never)]
fn set(cell: &RcuCell<Counted>) {
    until_freed(|| cell.set(Counted));
}

/// The files that this enters are counted.
#[inline(never)]
fn insert(table: &Table<u64, Counted>) {
    until_freed(|| drop(table.insert(1, Counted)));
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("set") => {
            let cell = RcuCell::new(Counted);
            // What happens only once, such as the registration of the thread, is not counted.
            (0..100).for_each(|_| cell.set(Counted));
            set(&cell);
        }
        Some("insert") => {
            let table = Table::new();
            (0..100).for_each(|_| drop(table.insert(1, Counted)));
            insert(&table);
        }
        trip => panic!("there is no trip {trip:?}"),
    }
}
