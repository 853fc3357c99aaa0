//! The pool: what each call promises, beside a set, with several threads, and with bad input.

#![cfg(not(loom))]

mod bad_input;
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
#[cfg(not(miri))]
#[path = "../support/skip.rs"]
mod skip;
