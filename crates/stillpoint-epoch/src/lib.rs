//! crossbeam-epoch's interface, version 0.9, over [`stillpoint::rcu`].
//!
//! A lock-free structure unlinks an object while other threads may still read it. A thread that reads is *pinned*: it holds a
//! [`Guard`]. What was unlinked is *deferred*, and destroyed when all guards have gone that existed then.
//!
//! ```
//! use std::sync::atomic::Ordering::{AcqRel, Acquire};
//! use stillpoint_epoch::{self as epoch, Atomic, Owned};
//!
//! let current = Atomic::new(10);
//! let guard = epoch::pin();
//! // SAFETY: it is never null, and is destroyed after this guard at the earliest.
//! assert_eq!(unsafe { current.load(Acquire, &guard).deref() }, &10);
//! let old = current.swap(Owned::new(20), AcqRel, &guard);
//! // SAFETY: unlinked just now, by this thread.
//! unsafe { guard.defer_destroy(old) };
//! # drop(unsafe { current.into_owned() });
//! ```
//!
//! [`Atomic`] is a link, [`Owned`] what is not linked yet, and [`Shared`] what was loaded under a guard. [`pin`] uses the
//! [default collector](default_collector); a structure that wants a [`Collector`] of its own registers a [`LocalHandle`] for each
//! thread. Programs that depend on the package `crossbeam-epoch` get this crate by one entry in their manifest, unchanged.
//!
//! What the original does not have is in the module [`domain`]: how much waits to be destroyed, who holds it up, and boosting of
//! guards whose threads were preempted.
//!
//! The argument is in `docs/design/epoch.md` of the repository, and a table of what differs in `docs/guide/epoch.md`.

mod atomic;
mod cells;
mod collector;
mod default;
pub mod domain;
mod guard;
mod local;
mod owned;
mod pointable;
mod shared;
mod word;

pub use atomic::{Atomic, CompareExchangeError};
#[expect(deprecated, reason = "the original has them")]
pub use atomic::{CompareAndSetError, CompareAndSetOrdering};
pub use collector::{Collector, LocalHandle};
pub use default::{default_collector, is_pinned, pin};
pub use guard::{unprotected, Guard};
pub use owned::Owned;
pub use pointable::{Pointable, Pointer};
pub use shared::Shared;

/// The programs of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/epoch.md")]
mod guide {}
