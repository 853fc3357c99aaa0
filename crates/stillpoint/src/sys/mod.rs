//! The edge to Linux.

mod futex;
mod thread;

pub(crate) use futex::{wait, wake_all};
pub(crate) use thread::{thread_handle, thread_id, thread_name};
