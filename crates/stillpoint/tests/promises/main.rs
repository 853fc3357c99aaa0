//! What a public type promises beside its methods: its variance, who may send and share it, whether it may be used after a
//! panic, and what must be alive when it is dropped. Each of these changes with a private field, and nothing else says so.

#![cfg(not(any(loom, miri)))]

#[macro_use]
mod rows;
mod book;
mod complete;
mod examples;
mod generic;
mod plain;
