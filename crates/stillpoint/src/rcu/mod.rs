//! Read-copy-update: readers that never wait, writers that free what no reader can hold any more.
//!
//! ```
//! use stillpoint::rcu::{self, RcuCell};
//!
//! let config = RcuCell::new(String::from("first"));
//! assert_eq!(*config.get().expect("never empty here"), "first"); // keeps only this string alive
//! config.set(String::from("second")); // replaces, and frees what no reader can hold any more
//! let guard = rcu::pin(); // a region, for bursts of loads
//! assert_eq!(config.load(&guard).map(String::as_str), Some("second"));
//! ```
//!
//! Three types are the core:
//!
//! - [`RcuCell`]: a place for one object. Readers load the object, and writers replace it.
//! - [`Protected`]: a reference to one object, from [`RcuCell::get`]. It keeps that object alive, and nothing else.
//! - [`Guard`]: a region, from [`pin`]. Loads in it cost no more than plain loads. It keeps alive everything that is retired meanwhile.
//!
//! This example uses the [default domain](default_domain): each thread becomes a reader of it at its first use. Name a
//! [`Domain`] where one group of readers must not delay another, where limits must hold, and in libraries.
//! [`Domain::reader`] registers readers, [`Domain::cell`] makes cells, and [`Domain::reclaimer`] makes reclaimers.
//!
//! A writer *unlinks* an object (from then on the cell holds another one) and *retires* it. The object is *freed* after every
//! reader that may hold it has released it. What reading costs, and what a preempted reader keeps alive, depend on the kind of reader:
//!
//! | reader | cost on the read side | what a preempted thread keeps alive | for |
//! |---|---|---|---|
//! | [`Protected`], from [`RcuCell::get`] or [`RcuCell::protect`] | store, reload and compare, store | the objects that it holds, nothing else | the default: any code, for any length of time |
//! | [`Guard`], from [`pin`] or [`Reader::pin`] | a store on entry, a store on exit | everything retired since it entered, until it leaves | traversals, bursts of loads |
//! | [`QsbrReader`] | nothing; three loads for each quiescent state, and a store if a writer has started a grace period | everything retired since its last quiescent state | run-to-completion loops on dedicated cores |
//!
//! A [`Domain`] may have readers of all kinds. Everything that is retired in it waits for the slowest region reader (guard or QSBR
//! reader). Each object also waits for the protected loads that hold it.
//!
//! # Writers
//!
//! - [`RcuCell::set`], in the default domain: one call replaces the object and retires it. Later calls free it.
//! - [`Reclaimer`]: a bounded queue that its owner polls; it needs no thread.
//! - [`BackgroundReclaimer`]: a queue that a separate thread serves, and that any thread fills. The user creates the thread.
//! - [`raw`]: for bindings and data structures. Objects need not come from `Box`, and callbacks can lie in the objects
//!   themselves.
//! - [`Domain::start`] and [`Domain::check`]: the token itself, for writers that keep track of their objects themselves.
//! - [`Domain::synchronize`] and [`Domain::wait`], which wait, and [`Domain::grace_period`], a future.
//!
//! Each reclaimer limits how much may wait to be freed, and so does a domain that was built with a limit
//! ([`DomainBuilder::max_pending`]). [`limits::WhenFull`] says what a retirement does when there is no room.
//!
//! # One level down
//!
//! This page has the types that most programs name. The others are in modules of their own:
//!
//! | module | has | for |
//! |---|---|---|
//! | [`wait`] | tokens, futures, the reports of stalls, and the error of waits | writers that wait, and whoever looks for what holds them up |
//! | [`limits`] | what a retirement does when there is no room, and why it was refused | programs that bound what waits to be freed |
//! | [`bound`] | an [`RcuArray`] together with one reader of it | loops over arrays |
//! | [`link`] | typed links that own nothing | authors of lists, queues and trees; the crate `stillpoint-structures` has structures that are safe to use |
//! | [`raw`] | the engine without types and lifetimes | bindings to other languages |
//!
//! # Correctness
//!
//! The argument, with the partner of each memory access, is in `docs/design/rcu.md` of the repository. The protocols are modelled
//! with loom. Every ordering that the argument relies on has a deliberately broken variant, which the checks catch.
//!
//! Sources: token-based quiescent state detection after DPDK's `rte_rcu_qsbr`; hazard pointers after M. Michael,
//! "Hazard Pointers: Safe Memory Reclamation for Lock-Free Objects", IEEE TPDS 15(6), 2004; asymmetric fences
//! after `membarrier(2)` and Dice, Huang, Yang, "Asymmetric Dekker Synchronization", 2001.

mod array;
mod background;
mod boost;
pub mod bound;
#[cfg(all(test, not(any(stillpoint_loom, miri))))]
mod budgets;
mod cell;
pub(crate) mod default_domain;
mod domain;
pub(crate) mod engine;
mod error;
pub mod limits;
pub mod link;
#[cfg(all(test, stillpoint_loom))]
mod models;
mod on_thread;
pub(crate) mod orders;
#[cfg(all(test, not(stillpoint_loom)))]
#[path = "../../tests/support/other.rs"]
mod other;
pub(crate) mod owned;
mod qsbr;
#[cfg(not(stillpoint_loom))]
pub mod raw;
mod reader;
mod reclaimer;
pub(crate) mod region;
mod retire;
pub(crate) mod retired;
mod stats;
pub mod wait;
#[cfg(all(test, not(stillpoint_loom)))]
mod wakes;
mod weak_domain;

pub use array::RcuArray;
pub use background::{BackgroundReclaimer, RetireHandle};
pub use boost::Boost;
pub use cell::RcuCell;
#[cfg(target_os = "linux")]
pub use default_domain::reset_after_fork;
pub use default_domain::{barrier, barrier_timeout, default_domain, offline, pin, try_pin};
pub use domain::{Domain, DomainBuilder};
pub use error::BuildError;
pub(crate) use on_thread::OnThread;
pub use owned::OwnedProtected;
pub use qsbr::{OfflineReader, QsbrReader};
pub use reader::{Guard, Protected, Reader};
pub use reclaimer::{Reclaimer, ReclaimerBuilder};
pub use region::Region;
pub use retired::{RetireError, Retired};
pub use stats::Stats;
