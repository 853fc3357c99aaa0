//! Timers: what each operation promises, beside a sorted map, in the cases that others have failed in, and with several
//! threads.

#![cfg(not(loom))]

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
mod service;
mod shared;
mod sleeping;
mod threads;
mod time;
