//! Typed links, for authors of data structures: [`Atomic`], [`Owned`], [`Shared`], and [`ProtectedLink`].
//!
//! Unlike a cell, a link owns nothing and does not know its domain: the structure decides when an object is unlinked, and to which
//! domain the object is retired. So it is `unsafe` to follow a link, and to retire what it pointed to. The contract is in the
//! documentation of [`Atomic`]; its argument is in `docs/design/rcu.md`.

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
pub use pointee::{InArc, Pointee};
pub use protected::ProtectedLink;
pub use shared::{Linkable, Scope, Shared, Unprotected};
