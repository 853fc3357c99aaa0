//! The queue of delays. `cargo test -p stillpoint --features delay-queue --test delay_queue`.

#![cfg(all(feature = "delay-queue", not(stillpoint_loom)))]

#[path = "../support/allocated.rs"]
mod allocated;
mod ends;
mod mock;
mod model;
mod operations;
mod panics;
mod threads;
mod waking;
