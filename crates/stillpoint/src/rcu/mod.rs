//! Read-copy-update: readers that never wait, writers that free what no reader can hold any more.
//!
//! ```
//! use stillpoint::rcu::{self, RcuCell};
//!
//! let config = RcuCell::new(String::from("first"));
//! assert_eq!(*config.get().expect("never empty here"), "first"); // holds up this one string
//! config.set(String::from("second")); // replaces, and frees what no reader can hold any more
//! let guard = rcu::pin(); // a region, for bursts of loads
//! assert_eq!(config.load(&guard).map(String::as_str), Some("second"));
//! ```
//!
//! That is the [default domain](default_domain), in which each thread is a reader from its first use on. Where one group of readers
//! must not hold up another, where limits have to hold, and in libraries, name a [`Domain`]: its readers are registered by
//! [`Domain::reader`], its cells made by [`Domain::cell`], and its reclaimers by [`Domain::reclaimer`].
//!
//! A writer *unlinks* an object (the cell holds another one from then on), *retires* it, and it is *freed* after
//! every reader that may hold it has let go. What that costs, and what a preempted reader holds up, depends on
//! how it reads:
//!
//! | reader | cost on the read side | what a preempted thread holds up | for |
//! |---|---|---|---|
//! | [`Protected`], from [`RcuCell::get`] or [`RcuCell::protect`] | store, reload and compare, store | the objects in its hand, nothing else | the default: any code, as long as it likes |
//! | [`Guard`], from [`pin`] or [`Reader::pin`] | one store in, one out | everything retired since, while it is inside | traversals, bursts of loads |
//! | [`QsbrReader`] | nothing; three loads for each quiescent state, and a store if a writer has started a grace period | everything retired since its last quiescent state | run-to-completion loops on cores of their own |
//!
//! A [`Domain`] may mix them; everything retired then waits for the slowest region reader (guards and QSBR
//! readers), and single objects for the protected loads that hold them.
//!
//! # Writers
//!
//! - [`RcuCell::set`], in the default domain: replaced, retired and in time freed, in one call.
//! - [`Reclaimer`]: a bounded queue that its owner polls; no thread.
//! - [`BackgroundReclaimer`]: a thread that the user creates, fed from any thread.
//! - [`raw`]: objects that `Box` has not made, and callbacks in the objects themselves, for bindings and data structures.
//! - [`Domain::start`] and [`Domain::check`]: the token itself, for writers that keep their own books.
//! - [`Domain::synchronize`] and [`Domain::wait`], which wait, and [`Domain::grace_period`], a future.
//!
//! What waits to be freed is limited for each reclaimer, and for a domain if it is built so
//! ([`DomainBuilder::max_pending`]); what a retirement does that finds no room is for [`WhenFull`] to say.
//!
//! # Data structures
//!
//! Cells own their objects. Lists, queues and trees are made of typed links, [`Atomic`], which own nothing and carry tags; to
//! follow one is `unsafe`, in a region or protected hand over hand ([`ProtectedLink`]). The crate `stillpoint-structures`
//! has some that are safe to use.
//!
//! # Correctness
//!
//! The argument, with what each memory access pairs with, is in `docs/design/rcu.md` of the repository. It
//! is modelled with loom, and every ordering it relies on has a deliberately broken variant that the checks
//! catch.
//!
//! Sources: token-based quiescent state detection after DPDK's `rte_rcu_qsbr`; hazard pointers after M. Michael,
//! "Hazard Pointers: Safe Memory Reclamation for Lock-Free Objects", IEEE TPDS 15(6), 2004; asymmetric fences
//! after `membarrier(2)` and Dice, Huang, Yang, "Asymmetric Dekker Synchronization", 2001.

mod array;
mod background;
mod barrier;
mod boost;
mod bound;
#[cfg(all(test, not(any(loom, miri))))]
mod budgets;
mod cell;
pub(crate) mod default_domain;
mod domain;
pub(crate) mod engine;
mod error;
mod future;
mod limits;
mod link;
mod links;
#[cfg(all(test, loom))]
mod models;
mod offline;
pub(crate) mod orders;
mod owned;
mod qsbr;
#[cfg(not(loom))]
pub mod raw;
mod reader;
mod reclaimer;
pub(crate) mod region;
mod retire;
pub(crate) mod retired;
mod stall;
mod stats;
#[cfg(all(test, not(loom)))]
mod wakes;
mod weak_domain;

pub use array::RcuArray;
pub use background::{BackgroundReclaimer, RetireHandle};
pub use boost::Boost;
pub use bound::{ArrayGuard, ArrayHandle, BoundArray};
pub use cell::RcuCell;
#[cfg(target_os = "linux")]
pub use default_domain::reset_after_fork;
pub use default_domain::{barrier, barrier_timeout, default_domain, pin, try_pin};
pub use domain::{Domain, DomainBuilder, Token};
pub use engine::core::record::ReaderKind;
pub use error::{BuildError, CompareExchangeError, RetireError, RetireErrorKind, SynchronizeError};
pub use future::GracePeriod;
pub use limits::WhenFull;
pub use links::{Atomic, InArc, Linkable, Owned, Pointee, ProtectedLink, Scope, Shared, Unprotected};
pub use offline::OfflineReader;
pub use owned::OwnedProtected;
pub use qsbr::QsbrReader;
pub use reader::{Guard, Protected, Reader};
pub use reclaimer::{Reclaimer, ReclaimerBuilder};
pub use region::Region;
pub use retired::Retired;
pub use stall::{Activity, Stall};
pub use stats::Stats;
