//! The edge to operating systems other than Linux, by means of the standard library. It is weaker in these points:
//!
//! - Threads sleep by locks: see [`parking`]. So a wake-up takes a lock: signal handlers must not wake, and the child of a `fork`
//!   may find the lock taken.
//! - No thread can see what another one is doing. The id of a thread is a number of this library.
//! - Without POSIX threads, only the destructors of thread-locals run at the end of a thread: see [`ThreadEnd`].
//! - No pages are requested from the system: memory comes from the allocator.

mod clock;
pub mod pages;
pub mod parking;
mod thread;
mod thread_end;

pub use clock::{coarse, nanoseconds, ticks, TICKS_PER_MICRO};
pub use parking::{wait, wake, wake_all};
pub use thread::{look_at_thread, thread_handle, thread_id, thread_number, yield_cpu, Activity, Sighting};
pub use thread_end::ThreadEnd;
