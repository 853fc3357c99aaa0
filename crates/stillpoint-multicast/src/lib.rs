//! Runs a function on every registered thread, and waits for all: flat or along a tree.
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
//! What the kernel's `smp_call_function_many` is for processors, for the threads of a process. Two kinds of threads take
//! part:
//!
//! - members of a [`Group`] run the function when they poll, or when they wake up beside their mailbox: any closure
//!   will do;
//! - threads that are registered with [`signals`] are interrupted, and run it in a signal handler at once, wherever they
//!   are: what it may do is limited, and the caller vouches for it. A [fence](signals::SignalMulticast::fence) needs no
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
//! A sender takes one receiver out of its set, sends it the message, delegates half of those that remain to it, and
//! goes on while the set is not empty ([`Strategy`] says how much is delegated). A receiver forwards first, runs the
//! function, and acknowledges to the one that sent to it when all of its children have: nothing is built or kept, so
//! that threads may join and leave at any time.
//!
//! A receiver that is not given a processor holds up everybody below it. So an initiator that waits *helps*: it takes
//! over what was delegated to threads that have not come to it. A thread that leaves does what was delegated to it
//! first; what is delegated to one that has left, the sender adopts.
//!
//! The argument why it is correct is in `docs/design/multicast.md`.
//!
//! # As fences of `stillpoint`
//!
//! A domain of `stillpoint::rcu` that is built with [`Mode::Provided`](stillpoint::fence::Mode::Provided) of
//! [`signals::PROVIDER`] fences its readers by signals.
//!
//! # Features
//!
//! `lab`, off by default, has what is there for measurements only: acknowledgements to one counter, multicasts without
//! help, and the shape of what was sent.

// Each item says which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(target_os = "linux"))]
compile_error!("stillpoint-multicast is written for Linux: it needs signals for single threads, and futexes");

mod busted;
mod engine;
#[cfg(not(any(loom, miri)))]
mod fences;
mod group;
#[cfg(not(any(loom, miri)))]
mod looks;
mod orders;
mod plan;
mod run;
#[cfg(not(any(loom, miri)))]
pub mod signals;
mod transport;

pub use group::{Group, Member};
pub use plan::{rotation, Cut, Shape, Share, Strategy};
#[cfg(feature = "lab")]
pub use run::Acknowledgement;
pub use run::{Late, Multicast, Report};
