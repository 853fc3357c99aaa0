//! Preempted readers that hold others up are helped to run.

pub(crate) mod policy;
pub(crate) mod state;
