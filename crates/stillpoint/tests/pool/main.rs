//! Tests of the pool: the promises of each call, comparison with a set, several threads, and bad input.

#![cfg(not(stillpoint_loom))]

mod bad_input;
mod common;
mod counts;
mod defects;
#[cfg(not(miri))]
mod differential;
mod given;
#[cfg(not(miri))]
mod growing;
mod hardened;
mod kept;
#[cfg(not(miri))]
mod memory;
mod misuse;
mod operations;
mod places;
mod reentrancy;
mod retirement;
mod stress;
mod threads;

#[cfg(not(miri))]
#[path = "../support/asleep.rs"]
mod asleep;
#[path = "../support/ending.rs"]
mod ending;
#[cfg(not(miri))]
#[path = "../support/filter.rs"]
mod filter;
#[cfg(not(miri))]
#[path = "../support/skip.rs"]
mod skip;
