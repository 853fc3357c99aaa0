//! The table beside `std::collections::HashMap`, on operations made from bytes: `cargo +nightly fuzz run table`.
//!
//! The function itself also runs with the library's tests, on random bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/stillpoint/tests/table/bytes.rs"]
mod bytes;
#[path = "../../crates/stillpoint/tests/table/census.rs"]
mod census;
#[path = "../../crates/stillpoint/tests/table/history.rs"]
mod history;

fuzz_target!(|data: &[u8]| bytes::run(data));
