//! Runs a function on every registered thread, and waits until all have run it. Messages go out flat or along a tree.
//!
//! ```
//! use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
//! use std::sync::Barrier;
//! use stillpoint_multicast::Group;
//!
//! let (group, all_there) = (Group::new(), Barrier::new(4));
//! let flushed = AtomicUsize::new(0);
//! std::thread::scope(|scope| {
//!     for _ in 0..3 {
//!         scope.spawn(|| {
//!             let member = group.join();
//!             all_there.wait();
//!             member.wait(); // or `poll`, between two bursts of packets
//!         });
//!     }
//!     all_there.wait();
//!     group.multicast().run(|| _ = flushed.fetch_add(1, Relaxed)); // returns when all have run it
//!     assert_eq!(flushed.load(Relaxed), 3);
//! });
//! ```
//!
//! The kernel's `smp_call_function_many` does this for processors; this crate does it for the threads of a process. Two kinds
//! of threads take part:
//!
//! - Members of a [`Group`] run the function when they poll, or when a message wakes them. Any closure will do.
//! - Threads that are registered with [`signals`] are interrupted, and run the function at once in a signal handler. What
//!   it may do is limited, and the caller promises to respect that. A [fence](signals::SignalMulticast::fence) needs no
//!   promise.
//!
//! # The algorithm
//!
//! ```text
//!   initiator: 7 receivers 0 … 6            who sends what
//!     ├─ sends to 3, delegates 4 5 6          3 ─┬─ 5 ─── 6
//!     ├─ sends to 1, delegates 2                 └─ 4
//!     └─ sends to 0                           1 ─── 2
//!                                             0
//! ```
//!
//! A sender takes one receiver out of its set, sends it the message, and delegates half of the remaining receivers to it. It
//! repeats this until the set is empty ([`Strategy`] sets how many receivers are delegated). A receiver first forwards the
//! message to its own set, then runs the function. It acknowledges to its sender when all of its children have acknowledged.
//! No tree is built or kept, so threads may join and leave at any time.
//!
//! A receiver that does not get a processor holds up every receiver below it. So an initiator that waits *helps*: it forwards
//! to the receivers that were delegated to such threads. A thread that leaves first forwards what was delegated to it. If a
//! receiver has left already, the sender *adopts* the receivers that it would have delegated to that one.
//!
//! `docs/design/multicast.md` argues why this is correct.
//!
//! # Features
//!
//! `lab`, off by default, is only for measurements: acknowledgements to one counter, multicasts without help, and the shape
//! of the tree that was sent.

// The documentation of each item names the feature that it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(target_os = "linux"))]
compile_error!("stillpoint-multicast is written for Linux: it needs signals for single threads, and futexes");

#[cfg(not(any(stillpoint_loom, miri)))]
mod bell;
mod busted;
mod engine;
mod group;
#[cfg(not(any(stillpoint_loom, miri)))]
mod looks;
mod orders;
mod plan;
mod run;
#[cfg(not(any(stillpoint_loom, miri)))]
mod signal;
#[cfg(not(any(stillpoint_loom, miri)))]
pub mod signals;
mod transport;

pub use group::{Group, Member};
#[cfg(feature = "lab")]
pub use plan::Acknowledgement;
pub use plan::{rotation, Cut, Shape, Share, Strategy};
pub use run::{Late, Multicast, Report};
