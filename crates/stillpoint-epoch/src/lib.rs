//! crossbeam-epoch's interface, version 0.9, over [`stillpoint::rcu`].
//!
//! A lock-free structure unlinks an object while other threads may still read it. A thread that reads is *pinned*: it holds a
//! [`Guard`]. The destruction of an unlinked object is *deferred* until every guard that existed at that time has been
//! dropped.
//!
//! ```
//! use std::sync::atomic::Ordering::{AcqRel, Acquire};
//! use stillpoint_epoch::{self as epoch, Atomic, Owned};
//!
//! let current = Atomic::new(10);
//! let guard = epoch::pin();
//! // SAFETY: the link is never null, and its object is not destroyed before this guard is dropped.
//! assert_eq!(unsafe { current.load(Acquire, &guard).deref() }, &10);
//! let old = current.swap(Owned::new(20), AcqRel, &guard);
//! // SAFETY: this thread has just unlinked the object.
//! unsafe { guard.defer_destroy(old) };
//! # drop(unsafe { current.into_owned() });
//! ```
//!
//! An [`Atomic`] is a link, an [`Owned`] is an object that is not linked yet, and a [`Shared`] is a pointer that was
//! loaded under a guard. [`pin`] uses the [default collector](default_collector). A structure with a separate
//! [`Collector`] registers a [`LocalHandle`] for each thread. A program that depends on the package `crossbeam-epoch`
//! can use this crate without a change to its code: one more entry in its manifest replaces the package.
//!
//! The module [`domain`] has what the original does not: how much waits to be destroyed, which threads hold it up, and
//! boosting of preempted threads that are pinned.
//!
//! The argument for the crate's correctness is in `docs/design/epoch.md` of the repository. A table of the differences
//! from the original is in `docs/guide/from-rust.md`.

mod atomic;
mod cells;
mod collector;
mod default;
pub mod domain;
mod guard;
mod handle;
mod lists;
mod local;
mod owned;
mod pointable;
mod rounds;
mod shared;
mod word;

pub use atomic::{Atomic, CompareExchangeError};
#[expect(deprecated, reason = "the original has them")]
pub use atomic::{CompareAndSetError, CompareAndSetOrdering};
pub use collector::Collector;
pub use default::{default_collector, is_pinned, pin};
pub use guard::{unprotected, Guard};
pub use handle::LocalHandle;
pub use owned::Owned;
pub use pointable::{Pointable, Pointer};
pub use shared::Shared;
