//! The libraries that stillpoint is compared with, its peers, behind one trait.
//!
//! A [`Contender`] is a way to read an array of pointers while a writer replaces its elements, and to
//! free each replaced [`Element`] once no reader can hold it. The experiment `reclaim` of the program
//! `stillpoint` runs the same workload over each of them; stillpoint itself takes part through the same trait.
//!
//! - [`contenders`] makes all contenders that this build has; [`catalogue`] lists them without making any.
//! - [`missing`] names the peers that were not found at build time, and the package to install for each; [`versions`] names the
//!   others. liburcu, DPDK and Concurrency Kit come from the system, and their own headers are compiled; the Rust peers are ordinary
//!   dependencies.
//! - [`table`] has hash tables, [`timer`] timers, and [`pool`] object pools, for the experiments of these names.
//! - [`structures`] has a stack, a queue and a list over two schemes, for the experiment of this name.
//! - [`micro`] lists single operations to be timed.
//! - [`read_until_stopped`] is the loop of all readers; [`read_sections`] is that of readers whose sections hold [`Work`].
//!
//! A contender removes its state when it is dropped, so rounds of several contenders may follow each other in one process.
//! The exception is the `call_rcu` workers of liburcu: they belong to the process, and stay.

#[cfg(not(all(peer_c, peer_dpdk)))]
mod absent;
#[cfg(any(peer_c, peer_urcu, peer_dpdk, peer_ck))]
mod c_functions;
mod catalogue;
mod contender;
mod delays;
mod element;
mod lookup;
mod micro;
#[cfg(any(peer_c, peer_urcu, peer_dpdk, peer_ck))]
mod native;
pub mod pool;
mod rust;
mod sections;
pub mod structures;
pub mod table;
pub mod timer;

pub use catalogue::{Entry, MissingPeer, catalogue, contenders, missing, versions};
pub use contender::{Contender, Named, ReadJob, ReadOutcome, Writer};
pub use delays::Delays;
pub use element::{Element, Recipe, Slots, free_element};
pub use lookup::{Lookups, read_until_stopped};
pub use micro::{Micro, Timed, Waits, micro, timed, waits};
pub use sections::{Work, read_sections};

/// The programs of the book for users of the Rust peers.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/from-rust.md")]
mod from_rust {}
