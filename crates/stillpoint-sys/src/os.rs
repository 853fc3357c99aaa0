//! What every system has: on Linux by system calls, [`linux`](crate::linux), and elsewhere by [`portable`](crate::portable). With
//! `--cfg stillpoint_portable` Linux uses the latter, too, so that tests on Linux run the code of other systems.

pub use crate::portable::{coarse, thread_number, ticks, Activity, ThreadEnd, TICKS_PER_MICRO};

#[cfg(all(target_os = "linux", not(any(stillpoint_loom, stillpoint_portable))))]
pub use crate::linux::pages;
#[cfg(all(target_os = "linux", not(stillpoint_portable)))]
pub use crate::linux::{look_at_thread, thread_handle, thread_id, wait, wake, wake_all, yield_cpu};

#[cfg(any(not(target_os = "linux"), stillpoint_portable))]
pub use crate::portable::{look_at_thread, pages, thread_handle, thread_id, wait, wake, wake_all, yield_cpu};
