//! Lock-free structures made of [`stillpoint::rcu`]'s typed links. Each is a worked example of how to write your own.
//!
//! ```
//! use stillpoint::rcu::Domain;
//! use stillpoint_structures::Queue;
//!
//! let domain = Domain::new();
//! let queue = Queue::new_in(&domain);
//! std::thread::scope(|scope| {
//!     scope.spawn(|| {
//!         let reader = domain.reader();
//!         (0..100).for_each(|number| queue.push(number, &reader));
//!     });
//!     scope.spawn(|| {
//!         let (reader, mut reclaimer) = (domain.reader(), domain.reclaimer());
//!         let mut numbers = Vec::new();
//!         while numbers.len() < 100 {
//!             numbers.extend(queue.pop(&reader, &mut reclaimer));
//!             reclaimer.poll();
//!         }
//!         assert!(numbers.is_sorted());
//!     });
//! });
//! ```
//!
//! | structure | is | readers |
//! |---|---|---|
//! | [`Stack`] | R. K. Treiber's stack | protect one node |
//! | [`Queue`] | the queue of M. Michael and M. Scott | protect two nodes |
//! | [`List`] | T. Harris's and M. Michael's ordered list, as a map | walk in a region, over nodes that are removed meanwhile; or protect three nodes, hand over hand |
//!
//! Each belongs to a domain. Its users pass a [`Reader`](stillpoint::rcu::Reader) of the domain and, to take something out or to
//! insert into a list, a [`Reclaimer`](stillpoint::rcu::Reclaimer). The reclaimer takes the unlinked nodes, and its owner polls
//! it as usual. A reclaimer without room leaves the nodes to the domain. A reader or reclaimer of another domain causes a panic
//! that names both.
//!
//! The argument is in `docs/design/structures.md` of the repository.
//!
//! Sources: R. K. Treiber, "Systems Programming: Coping with Parallelism", IBM RJ 5118, 1986; M. Michael, M. Scott, "Simple,
//! Fast, and Practical Non-Blocking and Blocking Concurrent Queue Algorithms", PODC 1996; T. Harris, "A Pragmatic
//! Implementation of Non-Blocking Linked-Lists", DISC 2001; M. Michael, "High Performance Dynamic Lock-Free Hash Tables and
//! List-Based Sets", SPAA 2002.

mod busted;
mod chain;
mod list;
#[cfg(all(test, stillpoint_loom))]
mod models;
mod orders;
mod queue;
mod stack;
mod watch;

pub use list::{Entry, Iter, List};
pub use queue::Queue;
pub use stack::Stack;
