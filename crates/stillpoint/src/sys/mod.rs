//! The edge to Linux.

mod futex;
#[cfg(not(loom))]
pub(crate) mod pages;
mod thread;

pub(crate) use futex::{wait, wake_all};
pub(crate) use thread::{thread_handle, thread_id, thread_name};
