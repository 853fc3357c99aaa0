//! [`stillpoint_epoch`], under the name that dependants of crossbeam-epoch look for. Its module `domain` is not here: the original has none, and those
//! who import all of it may have one of their own.

#[cfg(crossbeam_loom)]
compile_error!("stillpoint stands in for crossbeam-epoch in programs, not in models: take the [patch] entry out for `--cfg crossbeam_loom`");

#[cfg(not(crossbeam_loom))]
pub use stillpoint_epoch::{
    default_collector, is_pinned, pin, unprotected, Atomic, Collector, CompareExchangeError, Guard, LocalHandle, Owned, Pointable,
    Pointer, Shared,
};
#[cfg(not(crossbeam_loom))]
#[expect(deprecated, reason = "the original has them")]
pub use stillpoint_epoch::{CompareAndSetError, CompareAndSetOrdering};
