//! The edge to Linux.

mod clock;
mod futex;
pub(crate) mod page_map;
#[cfg(not(loom))]
pub(crate) mod pages;
#[cfg(not(any(loom, miri)))]
pub(crate) mod region;
#[cfg(any(loom, miri))]
#[path = "region_model.rs"]
pub(crate) mod region;
#[cfg(not(any(loom, miri)))]
pub(crate) mod sched;
#[cfg(any(loom, miri))]
#[path = "sched_model.rs"]
pub(crate) mod sched;
#[cfg(not(any(loom, miri)))]
pub(crate) mod signal;
/// What the unit tests say that cannot show anything here.
#[cfg(all(test, not(any(loom, miri))))]
#[path = "../../tests/support/skip.rs"]
pub(crate) mod skip;
mod thread;

pub(crate) use clock::{ticks, TICKS_PER_MICRO};
pub(crate) use futex::{wait, wake, wake_all};
pub(crate) use thread::{look_at_thread, thread_handle, thread_id, thread_number, yield_cpu, Doing};
