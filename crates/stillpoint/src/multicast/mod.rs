//! Runs a function on every registered thread, and waits for all: flat or along a tree.

mod plan;

pub use plan::{rotation, Cut, Shape, Share, Strategy};
