//! The program as its users see it: what it prints, what it refuses, how it ends.

mod bad_input;
mod bench;
mod capi;
mod common;
mod guest;
mod judge;
mod membarrier;
mod module;
mod other_commands;
mod pool;
mod preempt;
mod report;
mod rows;
mod simulate;
#[path = "../../../stillpoint/tests/support/skip.rs"]
mod skip;
mod structures;
mod table;
mod timer;
