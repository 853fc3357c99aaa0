//! [`stillpoint_epoch`], under the name that dependants of crossbeam-epoch look for.

#[cfg(crossbeam_loom)]
compile_error!("stillpoint stands in for crossbeam-epoch in programs, not in models: take the [patch] entry out for `--cfg crossbeam_loom`");

#[cfg(not(crossbeam_loom))]
pub use stillpoint_epoch::*;
