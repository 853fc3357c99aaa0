//! Tests of timers: the promises of each operation, comparisons with a sorted map, cases in which other wheels have
//! failed, and several threads.

#![cfg(not(stillpoint_loom))]

mod attacks;
mod bitset;
mod bounds;
mod callbacks;
mod clock;
mod differential;
mod failures;
mod messages;
mod nodes;
mod periodic;
#[path = "../support/random.rs"]
mod random;
#[path = "../support/rounds.rs"]
mod rounds;
mod service;
mod shared;
mod shared_mailbox;
mod sleeping;
mod threads;
mod time;
