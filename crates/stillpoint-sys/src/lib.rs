//! What the crates of stillpoint share, below all of them. Internal: no promise is made to others.
//!
//! - [`linux`]: the edge to the operating system.
//! - [`sync`]: the atomics and cells of the engines, which are loom's in a model; a lock for short work.
//! - [`busted`]: the switch of broken variants, which the checkers must catch.
//! - [`work`]: counts the steps of calls that promise a bound.
//! - [`panics`]: panics of the user's functions, kept until what was begun is done.
//! - [`bits`]: the bits of a word.

#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(all(feature = "std", not(target_os = "linux")))]
compile_error!("stillpoint is written for Linux: it needs membarrier and futex");

pub mod bits;
#[cfg(feature = "std")]
pub mod busted;
#[cfg(feature = "std")]
pub mod linux;
#[cfg(feature = "std")]
pub mod panics;
#[cfg(all(feature = "std", loom))]
pub mod quarantine;
#[cfg(feature = "std")]
pub mod sync;
#[cfg(feature = "std")]
pub mod work;
