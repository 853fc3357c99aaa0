//! Nothing: `cargo build --package stillpoint-c` builds the library.
