//! The pool: what each call promises, beside a set, with several threads, and with bad input.

#![cfg(not(loom))]

#[cfg(not(miri))]
#[path = "pool/bad_input.rs"]
mod bad_input;
#[cfg(not(miri))]
#[path = "pool/defects.rs"]
mod defects;
#[cfg(not(miri))]
#[path = "pool/differential.rs"]
mod differential;
#[cfg(not(miri))]
#[path = "pool/hardened.rs"]
mod hardened;
#[cfg(not(miri))]
#[path = "pool/memory.rs"]
mod memory;
#[cfg(not(miri))]
#[path = "pool/misuse.rs"]
mod misuse;
#[cfg(not(miri))]
#[path = "pool/operations.rs"]
mod operations;
#[cfg(not(miri))]
#[path = "pool/reentrancy.rs"]
mod reentrancy;
#[cfg(not(miri))]
#[path = "pool/retirement.rs"]
mod retirement;
#[cfg(not(miri))]
#[path = "pool/stress.rs"]
mod stress;
#[path = "pool/threads.rs"]
mod threads;

#[cfg(not(miri))]
#[path = "support/skip.rs"]
mod skip;
