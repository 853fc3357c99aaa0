//! [`stillpoint_epoch`] under the name `crossbeam_epoch`, for the programs that depend on that. The module `domain` is
//! left out: the original has none, and a program that imports everything may have a module of that name.

#[cfg(crossbeam_loom)]
compile_error!("stillpoint replaces crossbeam-epoch in programs, but not in models: take the [patch] entry out for `--cfg crossbeam_loom`");

#[cfg(not(crossbeam_loom))]
pub use stillpoint_epoch::{
    default_collector, is_pinned, pin, unprotected, Atomic, Collector, CompareExchangeError, Guard, LocalHandle, Owned, Pointable,
    Pointer, Shared,
};
#[cfg(not(crossbeam_loom))]
#[expect(deprecated, reason = "the original has them")]
pub use stillpoint_epoch::{CompareAndSetError, CompareAndSetOrdering};
