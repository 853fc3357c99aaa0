//! Tests of the table: the promises of each operation, comparison with the standard library's map, and several threads.

#![cfg(not(stillpoint_loom))]

mod bad_input;
mod budgets;
mod bytes;
mod census;
mod compute;
mod decide;
mod differential;
mod elsewhere;
mod growth;
mod hashing;
mod history;
#[path = "../support/identity.rs"]
mod identity;
mod limit;
mod linearizable;
mod operations;
#[cfg(not(miri))]
mod out_of_memory;
mod own_writes;
mod protect;
mod random_bytes;
mod reclamation;
mod room;
mod shared;
mod short;
mod shrink;
mod whole;

#[cfg(not(miri))]
#[path = "../support/child.rs"]
mod child;
#[path = "../support/ending.rs"]
mod ending;
#[path = "../support/other.rs"]
mod other;
#[path = "../support/rounds.rs"]
mod rounds;

use stillpoint::rcu::Domain;

/// Polls until nothing waits on the table's own shelves. Where several threads have written, some of it may be left to the domain: there,
/// `Domain::barrier`.
fn free_all<K, V, S>(table: &stillpoint::table::Table<K, V, S>) {
    while table.pending() > 0 {
        table.poll();
    }
}
