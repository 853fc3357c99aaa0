//! What the crates of stillpoint share, below all of them. Internal: no promise is made to others.
//!
//! - [`os`]: the edge to the operating system: [`linux`], or elsewhere [`portable`].
//! - [`sync`]: the atomics and cells of the engines, which are loom's in a model; a lock for short work.
//! - [`busted`]: the switch of broken variants, which the checkers must catch.
//! - [`work`]: counts the steps of calls that promise a bound.
//! - [`panics`]: panics of the user's functions, kept until what was begun is done.
//! - [`tsan`]: what ThreadSanitizer is told of programs in C.
//! - [`bits`]: the bits of a word.

#![cfg_attr(not(feature = "std"), no_std)]

pub mod bits;
#[cfg(feature = "std")]
pub mod busted;
#[cfg(all(feature = "std", target_os = "linux"))]
pub mod linux;
#[cfg(feature = "std")]
pub mod os;
#[cfg(feature = "std")]
pub mod panics;
#[cfg(feature = "std")]
pub mod portable;
#[cfg(all(feature = "std", loom))]
pub mod quarantine;
#[cfg(feature = "std")]
pub mod sync;
#[cfg(feature = "std")]
pub mod tsan;
#[cfg(feature = "std")]
pub mod work;
