//! The table: what each operation promises, beside the standard library's map, and with several threads.

#![cfg(not(loom))]

#[path = "table/bad_input.rs"]
mod bad_input;
#[path = "table/budgets.rs"]
mod budgets;
#[path = "table/bytes.rs"]
mod bytes;
#[path = "table/census.rs"]
mod census;
#[path = "table/differential.rs"]
mod differential;
#[path = "table/elsewhere.rs"]
mod elsewhere;
#[path = "table/growth.rs"]
mod growth;
#[path = "table/hashing.rs"]
mod hashing;
#[path = "table/history.rs"]
mod history;
#[path = "table/linearizable.rs"]
mod linearizable;
#[path = "table/operations.rs"]
mod operations;
#[cfg(not(miri))]
#[path = "table/out_of_memory.rs"]
mod out_of_memory;
#[path = "table/random_bytes.rs"]
mod random_bytes;
#[path = "table/reclamation.rs"]
mod reclamation;
#[path = "table/room.rs"]
mod room;
#[path = "table/shared.rs"]
mod shared;
#[path = "table/short.rs"]
mod short;

#[cfg(not(miri))]
#[path = "support/child.rs"]
mod child;
