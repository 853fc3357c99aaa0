//! A lock-free hash table that frees its entries through [`rcu`](crate::rcu).
//!
//! Lookups take no lock and write nothing that is shared; writers lock one stripe of the buckets. While the table
//! grows, each write moves a few buckets, and readers go on. Removed entries and old arrays are freed during the
//! writers' own calls, once no reader can hold them any more. The caller writes no code for that.
//!
//! ```
//! use stillpoint::table::Table;
//!
//! let flows: Table<u64, String> = Table::new(); // in the default domain
//! flows.insert(7, "seven".into())?;
//! let flow = flows.get(&7).expect("inserted above");
//! flows.remove(&7); // a later write frees the entry, once `flow` is dropped
//! assert_eq!(*flow, "seven");
//! # Ok::<(), stillpoint::table::Full<u64, String>>(())
//! ```
//!
//! Three types are the core:
//!
//! - [`Table`]: the entries. Any thread reads and writes it. Its lookups return a [`Ref`], which keeps one entry alive, and keeps alive
//!   nothing else.
//! - [`TableGuard`]: a region, from [`Table::pin`], for bursts and traversals. Its lookups return plain references. It keeps alive
//!   everything that is retired meanwhile.
//! - [`TableReader`]: a thread's reader that is bound to the table: the fastest way to look up entry after entry.
//!
//! With your own domain and readers:
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
//! assert!(!lookup.contains_key(&7));
//! # Ok::<(), stillpoint::table::Full<u64, String>>(())
//! ```
//!
//! # Usage
//!
//! | call | what a preempted thread keeps alive | for |
//! |---|---|---|
//! | [`Table::get`], [`Table::protect`] | the entry that it holds | the default |
//! | [`TableReader::get`] and its other methods | the entry that it holds, and an array of buckets | loops of lookups |
//! | [`TableReader::pin`], then [`TableGuard::get`], [`get_many`](TableGuard::get_many), [`iter`](TableGuard::iter) | everything retired since | bursts, traversals |
//! | [`Table::within`] a [`QsbrReader`](crate::rcu::QsbrReader) or any other region: the same calls | as that region | loops that have one already |
//!
//! [`Table::insert`] and [`Table::remove`] need no reader. A thread that keeps an `Arc` of the table can call
//! [`Table::handle`]: it returns the table and a reader in one value, which borrows nothing. A [`Set`] is a table
//! without values.
//!
//! # Consistency
//!
//! Operations on one key are linearizable, in the order of *happens-before*: each takes effect at one instant between its
//! call and its return. No single order covers several keys: two threads that each insert a key and then look for the
//! other's may both fail, unless each puts a [`SeqCst` fence](core::sync::atomic::fence) in between. Iteration,
//! [`retain`](TableGuard::retain), [`clear`](Table::clear), [`len`](Table::len), and what is built on them (`Debug`,
//! serialization) are not atomic. An entry that is in the table from beginning to end is seen exactly once. An entry
//! that is inserted or removed meanwhile may or may not be seen.
//!
//! Two operations in a row are not atomic together. To read and change an entry atomically, use one of the operations
//! below.
//!
//! # Atomic operations
//!
//! | call | key is there | key is not there |
//! |---|---|---|
//! | [`Table::insert`] | replaces | inserts |
//! | [`Table::update`], [`update_owned`](Table::update_owned) | replaces | – |
//! | [`update_or_insert`](Table::update_or_insert), `_with` | replaces | inserts |
//! | [`get_or_insert`](Table::get_or_insert), `_with` | – | inserts |
//! | [`get_or_init`](Table::get_or_init) | – | inserts; other callers wait |
//! | [`try_insert`](Table::try_insert), `_with` | hands the pair back | inserts |
//! | [`remove_if`](Table::remove_if) | removes, or not | – |
//! | [`compute`](Table::compute) | replaces, removes, or not | inserts, or not |
//!
//! They are methods of the table in the default domain, and of a [`TableReader`] or a [`TableGuard`] in any domain.
//!
//! Values are replaced, never changed: a reader that holds the old value keeps it as it is. (For values that change in
//! place, use atomics or locks.) Functions that are passed to these calls run without a lock, on an entry that is kept
//! alive: they may use the table. A function is called again if another writer changes the entry first. If it panics,
//! the call has changed nothing. A function that itself changes the entry, or inserts the key, is called again once; the
//! second time, the call panics.
//!
//! # Lifetimes
//!
//! A [`Ref`] keeps one entry alive. References from a [`TableGuard`] are valid as long as the guard. A [`Removed`]
//! entry belongs to the caller, who can read it, retire it by dropping it, or [take it apart](Removed::into_entry)
//! once no reader can hold it any more. An entry is freed only when no reader can hold it. A `Ref` that is never
//! dropped keeps alive the memory of its entry; a guard that is never dropped keeps alive everything that is retired after it
//! began. Key and value are `'static`, since their destructors may run later, on any thread. When the table has been
//! dropped, they have run for every entry, except those handed to a reclaimer, which frees them, and those that a
//! [`barrier`](crate::rcu::barrier) or another thread was freeing just then, or has left to the domain, which the domain frees.
//!
//! With exclusive access to the table, no reader is needed: [`iter_mut`](Table::iter_mut), [`get_mut`](Table::get_mut),
//! and `into_iter`.
//!
//! # Performance
//!
//! - In a large table, a lookup that finds its key has two cache misses: bucket and entry. It writes only to the
//!   thread's own cache line.
//! - A writer locks one of 256 stripes of the buckets (in a table of up to 80 entries, of 16) while it searches, and for a few
//!   stores.
//! - While the table grows, each write moves at most three chains of buckets, and each attempt that it repeats two more.
//!   [`with_capacity_in`](Table::with_capacity_in) and [`reserve`](Table::reserve) avoid this cost, and page faults;
//!   [`shrink_to_fit`](Table::shrink_to_fit) gives buckets back, and blocks of 2 MiB without entries.
//! - Keep a [`TableReader`] or a [`TableHandle`] as long as the thread looks things up: making one costs more than a lookup.
//! - Replacing a value allocates a slot and retires one, as an insertion and a removal do.
//!
//! # What the user's code may do
//!
//! `Eq` and `Hash` of the keys run under a stripe's lock: they must not write to the same table, nor to one whose
//! `Eq` or `Hash` writes to this one, which would deadlock.
//! What they retire elsewhere is freed later; [`Table::poll`] frees nothing then, what may wait for readers is refused, and a
//! reclaimer must not be polled, since destructors may need the lock. They may look keys up, and call [`stats`](Table::stats) and [`capacity`](Table::capacity). If they panic, the
//! operation does not take place, and the table stays valid. (If the panic comes while the call helps with a growth,
//! the operation has taken place.) If they give wrong results, entries are not found; nothing worse happens.
//! Destructors run during the writers' calls, outside any lock, and may use the table.
//!
//! # Correctness
//!
//! The argument is in `docs/design/table.md` of the repository. Models check the engine under loom, with a broken
//! variant for each step.

mod builder;
#[doc(hidden)]
pub mod busted;
mod compute;
mod decide;
pub(crate) mod engine;
pub mod error;
mod foreign;
mod full;
mod guard;
mod handle;
#[cfg(all(test, not(any(miri, stillpoint_loom))))]
#[path = "../../tests/support/identity.rs"]
mod identity;
mod iter;
mod methods;
#[cfg(all(test, stillpoint_loom))]
mod models;
mod orders;
#[cfg(not(stillpoint_loom))]
#[doc(hidden)]
pub mod raw;
mod reader;
mod removed;
mod set;
#[expect(clippy::module_inception, reason = "the table of the module `table`")]
mod table;
mod whole;

pub use builder::TableBuilder;
pub use compute::{Compute, TryInsertError};
pub use engine::change::Operation;
pub use full::{Full, OutOfMemory};
pub use guard::TableGuard;
pub use handle::TableHandle;
pub use iter::{IntoIter, Iter, IterMut};
pub use reader::{Ref, TableReader};
pub use removed::{Removed, Replaced};
pub use set::Set;
pub use table::{Table, TableStats};

/// The default hasher of a table. It is keyed with random numbers: an attacker who does not know them cannot choose
/// keys that collide.
///
/// It is the `quality` hasher of the crate `foldhash`, which takes two multiplications for a short key. Its lower bits
/// choose the bucket, and its upper 16 make the tag. The crate's `fast` hasher, the default of `hashbrown`, takes one
/// multiplication less. But some of its seeds spread the lower bits badly: keys in steps of a power of two then crowd
/// into a few buckets.
pub type RandomState = foldhash::quality::RandomState;
