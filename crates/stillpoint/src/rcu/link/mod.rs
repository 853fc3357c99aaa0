//! [`Atomic`]: a typed link, of which authors of data structures make lists, queues and trees.
//!
//! Unlike a [cell](super::RcuCell), a link owns nothing and does not know its domain: the structure decides when an object is
//! unlinked, and to which domain the object is retired. So it is `unsafe` to follow a link, and to retire what it pointed to. The
//! contract is in the documentation of [`Atomic`]; its argument is in `docs/design/rcu.md`.
//!
//! ```
//! use std::sync::atomic::Ordering::{AcqRel, Acquire};
//! use stillpoint::rcu::link::{Atomic, Owned, Shared};
//! use stillpoint::rcu::Domain;
//!
//! let domain = Domain::new();
//! let (reader, mut reclaimer) = (domain.reader(), domain.reclaimer());
//! let top = Atomic::new("first");
//!
//! let guard = reader.pin();
//! let old = top.swap(Owned::new("second"), AcqRel, &guard); // unlinks
//! // SAFETY: it was linked within this region.
//! assert_eq!(unsafe { old.as_ref() }, Some(&"first"));
//! // SAFETY: the swap unlinked it, and nothing else retires it.
//! reclaimer.retire(unsafe { old.into_retired(&domain) })?;
//!
//! let last = top.swap(Shared::null(), AcqRel, &guard);
//! // SAFETY: as above.
//! reclaimer.retire(unsafe { last.into_retired(&domain) })?;
//! drop(guard);
//! reclaimer.poll(); // frees both
//! assert_eq!(domain.stats().freed, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | type | is |
//! |---|---|
//! | [`Atomic`] | the link: one word, with a tag in its lowest bits |
//! | [`Owned`] | an object that is not linked yet |
//! | [`Shared`] | what a link held: an address and a tag, for the time of a [`Scope`] |
//! | [`ProtectedLink`] | the same with a hazard slot of its own, for walks hand over hand |
//! | [`Scope`], [`Unprotected`] | how long what was loaded may be followed: in a region, or not at all |
//! | [`Pointee`], [`Linkable`] | what a link can point to, and be set to |
//! | [`CompareExchangeError`] | what a link or a cell held instead of what was expected |
//!
//! Cells and arrays are made of links of another kind, which own their objects (`owning.rs`).

mod atomic;
pub(super) mod error;
mod owned;
pub(super) mod owning;
mod pointee;
mod protected;
mod shared;
#[cfg(all(test, not(stillpoint_loom)))]
mod tests;

pub use atomic::Atomic;
pub use error::CompareExchangeError;
pub use owned::Owned;
pub use pointee::Pointee;
pub use protected::ProtectedLink;
pub use shared::{Linkable, Scope, Shared, Unprotected};
