//! How threads and futures wait for readers, which stalls are reported, and what is counted.

pub(crate) mod counters;
pub(crate) mod delays;
pub(crate) mod error;
pub(crate) mod own_holds;
pub(crate) mod park;
pub(crate) mod report;
pub(crate) mod stall;
pub(crate) mod tasks;
pub(crate) mod wakers;
