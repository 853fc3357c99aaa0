//! What a public type promises besides its methods: its variance, whether it can be sent to and shared with other
//! threads, whether it can be used after a panic, and what must be alive when it is dropped. A private field can change
//! each of these, and only these tests would show it.

#![cfg(not(any(stillpoint_loom, miri)))]

#[macro_use]
mod rows;
mod book;
mod callers;
mod complete;
mod door;
mod examples;
mod generic;
mod methods;
mod plain;
