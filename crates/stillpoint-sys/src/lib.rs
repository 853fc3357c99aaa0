//! What the crates of stillpoint share; it depends on none of them. Internal: its interface may change at any time.
//!
//! - [`os`]: the edge to the operating system: [`linux`], or elsewhere [`portable`].
//! - [`sync`]: the atomics and cells of the engines, which are loom's in a model; a lock for short work; a door.
//! - [`busted`]: selects a broken variant, which the checkers must catch.
//! - [`work`]: counts the steps of calls that promise a bound.
//! - [`panics`]: panics of the user's functions, kept until the work that was begun is done.
//! - [`tsan`]: hand-overs reported to ThreadSanitizer, for programs in C.
//! - [`mod@probe`]: places that tracers find.
//! - [`mod@debug`]: `Debug` of types whose parts are not all shown.
//! - [`marks`]: the small marks of a thread.
//! - [`bits`]: the bits of a word.

#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(all(stillpoint_loom, not(feature = "loom")))]
compile_error!(
    "with `--cfg stillpoint_loom`, stillpoint's atomics are loom's: enable the feature `loom` of stillpoint"
);

#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "stillpoint needs 64-bit addresses: entries, tokens and debuggers' tables are laid out for them"
);

pub mod bits;
#[cfg(feature = "std")]
pub mod busted;
pub mod debug;
#[cfg(all(feature = "std", target_os = "linux"))]
pub mod linux;
#[cfg(feature = "std")]
pub mod marks;
#[cfg(feature = "std")]
pub mod os;
#[cfg(feature = "std")]
pub mod panics;
#[cfg(feature = "std")]
pub mod portable;
pub mod probe;
#[cfg(all(feature = "std", stillpoint_loom))]
pub mod quarantine;
#[cfg(all(feature = "std", stillpoint_loom, target_os = "linux"))]
pub mod stacks;
#[cfg(feature = "std")]
pub mod sync;
#[cfg(feature = "std")]
pub mod tsan;
#[cfg(feature = "std")]
pub mod work;
