//! Preempted readers that hold others up are boosted.

pub(crate) mod policy;
pub(crate) mod state;
