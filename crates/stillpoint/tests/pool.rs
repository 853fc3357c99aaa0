//! The pool: what each call promises, beside a set, with several threads, and with bad input.

#![cfg(not(loom))]

#[path = "pool/bad_input.rs"]
mod bad_input;
#[path = "pool/defects.rs"]
mod defects;
#[cfg(not(miri))]
#[path = "pool/differential.rs"]
mod differential;
#[cfg(not(miri))]
#[path = "pool/growing.rs"]
mod growing;
#[path = "pool/hardened.rs"]
mod hardened;
#[path = "pool/kept.rs"]
mod kept;
#[cfg(not(miri))]
#[path = "pool/memory.rs"]
mod memory;
#[path = "pool/misuse.rs"]
mod misuse;
#[path = "pool/operations.rs"]
mod operations;
#[path = "pool/places.rs"]
mod places;
#[path = "pool/reentrancy.rs"]
mod reentrancy;
#[path = "pool/retirement.rs"]
mod retirement;
#[path = "pool/stress.rs"]
mod stress;
#[path = "pool/threads.rs"]
mod threads;

#[cfg(not(miri))]
#[path = "support/skip.rs"]
mod skip;
