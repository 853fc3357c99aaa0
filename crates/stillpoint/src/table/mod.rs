//! A lock-free hash table that frees its entries through [`rcu`](crate::rcu).
//!
//! Lookups take no lock and write nothing that is shared; writers lock one stripe of the buckets. The table grows a
//! few buckets with each write, and never stops a reader. Removed entries and old arrays are freed on the writers'
//! own calls, when no reader can hold them any more: one line of set-up, and no further code.
//!
//! ```
//! use stillpoint::{rcu::Domain, table::Table};
//!
//! let domain = Domain::new();
//! let flows: Table<u64, String> = Table::new_in(&domain);
//! flows.insert(7, "seven".into())?;
//!
//! let mut reader = domain.reader(); // one for each thread, kept
//! let mut lookup = flows.reader(&mut reader); // checks the domain here, not at each lookup
//! let entry = lookup.get(&7).expect("inserted above");
//! assert_eq!(*entry, "seven");
//!
//! flows.remove(&7); // the entry is freed after the reader has let it go
//! assert_eq!(*entry, "seven");
//! drop(entry);
//! assert!(!lookup.contains(&7));
//! # Ok::<(), stillpoint::table::Full<u64, String>>(())
//! ```
//!
//! # Three ways to read
//!
//! | call | what a preempted thread holds up | for |
//! |---|---|---|
//! | [`TableReader::get`] | the entry in its hand | the default |
//! | [`TableReader::pin`], then [`TableGuard::get`], [`get_many`](TableGuard::get_many) | everything retired since | bursts, traversals |
//! | [`Table::get_in`] with a [`QsbrReader`](crate::rcu::QsbrReader) or any other region | as that region | loops that have one already |
//!
//! # Consistency
//!
//! Single operations are linearizable: each takes effect at one instant between its call and its return. Iteration,
//! [`retain`](Table::retain), [`clear`](Table::clear) and [`len`](Table::len) are not instants: an entry that is there
//! all the while is seen exactly once, one that comes or goes meanwhile may be seen or not.
//!
//! # What the user's code may do
//!
//! `Eq` and `Hash` of the keys run under a stripe's lock: they must not write to the same table, which would wait for
//! itself. They may look keys up, and ask for figures ([`stats`](Table::stats), [`capacity`](Table::capacity)). If they panic, the operation does not take place (or has taken place, when a growth was being helped
//! along), and the table stays valid. If they lie, entries are not found; nothing worse happens. Destructors run on
//! the calls of writers, outside any lock, and may use the table.
//!
//! # Correctness
//!
//! The argument is in `docs/design/table.md` of the repository; the models run it under loom, with a broken variant for
//! each step.

mod builder;
#[doc(hidden)]
pub mod busted;
pub(crate) mod engine;
mod error;
mod iter;
#[cfg(all(test, loom))]
mod models;
mod orders;
mod reader;
mod removed;
#[expect(clippy::module_inception, reason = "the table of the module `table`")]
mod table;

pub use builder::TableBuilder;
pub use error::{Full, OutOfMemory};
pub use iter::Iter;
pub use reader::{Ref, TableGuard, TableReader};
pub use removed::{Removed, Replaced};
pub use table::{Table, TableStats};

/// The hasher of a table, unless another one is chosen: keyed with random numbers, so that nobody can choose keys
/// that collide without knowing them.
///
/// It is the `quality` hasher of the crate `foldhash`: two multiplications for a short key. Its lower bits choose the
/// bucket, and its upper 16 make the tag. The crate's `fast` hasher, the default of `hashbrown`, has one multiplication
/// less, and lower bits that some seeds spread badly: keys in steps of a power of two then crowd in few buckets.
pub type RandomState = foldhash::quality::RandomState;
