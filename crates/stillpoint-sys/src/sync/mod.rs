//! The atomics of the engine, and its cells: the standard library's, or loom's in a model. Also a lock for short work, a door,
//! an inbox, a place for a value that threads hand to each other, values that last, and a witness of when an object is used.

mod door;
mod inbox;
mod lasting;
mod patience;
mod place;
mod try_lock;
mod witness;

pub use door::Door;
pub use inbox::{Inbox, Message, Messages};
pub use lasting::Lasting;
pub use patience::Patience;
pub use place::Place;
pub use try_lock::{Locked, TryLock};
pub use witness::Witness;

#[cfg(not(stillpoint_loom))]
pub use std::sync::atomic;

#[cfg(stillpoint_loom)]
pub use loom::{cell::UnsafeCell, sync::atomic};

/// For a value that its last owner takes apart: in a model, loom sees that the taking apart comes after everything that the other
/// owners did.
#[cfg(stillpoint_loom)]
pub use loom::sync::Arc;
#[cfg(not(stillpoint_loom))]
pub use std::sync::Arc;

#[cfg(stillpoint_loom)]
pub use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(stillpoint_loom))]
pub use std::sync::{Condvar, Mutex, MutexGuard};

/// A cell whose accesses loom can watch.
#[cfg(not(stillpoint_loom))]
#[derive(Debug, Default)]
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(stillpoint_loom))]
impl<T> UnsafeCell<T> {
    /// A cell with this value.
    pub fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Reads the value.
    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// Writes the value.
    pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

/// Prefetches a cache line. A hint.
#[inline(always)]
pub fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch affects only the time, at any address.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// Tells the processor, or the model, that this thread waits for another.
#[inline]
pub fn spin() {
    #[cfg(not(stillpoint_loom))]
    std::hint::spin_loop();
    #[cfg(stillpoint_loom)]
    loom::thread::yield_now();
}
