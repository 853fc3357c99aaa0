//! The hash table under torture.
//!
//! - [`mixed`]: more threads than CPUs, every operation, tables that grow, are full, and end.
//! - [`races`]: a reader and a writer that meet in one bucket, or in a growth.

mod bout;
mod content;
mod mixed;
mod races;
mod reader;
mod world;
mod writer;

pub(super) use self::mixed::Tables;
pub(super) use self::races::TableRaces;
