//! Scheduling for models: all threads of a model share one policy, which is enough, since only one of them is
//! ever boosted. Under Miri, which has no scheduler, no thread is boosted.

use super::{Finding, Way};

/// Whether the thread was raised.
#[derive(Debug)]
pub struct Before(bool);

#[derive(Debug)]
pub struct Subject;

pub fn probe_realtime() -> Result<Way, i32> {
    if cfg!(stillpoint_loom) {
        Ok(Way::Realtime)
    } else {
        Err(libc::EPERM)
    }
}

#[cfg(miri)]
impl Subject {
    pub fn lose(self) {}

    pub fn current() -> Result<Self, i32> {
        Err(libc::EPERM)
    }

    pub fn examine(&self, _way: Way) -> Result<Finding, i32> {
        Ok(Finding::NoNeed)
    }

    pub fn boost(&self, _before: &Before) -> Result<(), i32> {
        Err(libc::EPERM)
    }

    pub fn restore(&self, _before: &Before) -> Result<(), i32> {
        Ok(())
    }
}

/// Acts as if the thread always waited for a CPU. It records the policy that it finds. While another booster is at work, that may
/// be the raised one, and restoring it would leave the thread raised.
#[cfg(stillpoint_loom)]
impl Subject {
    pub fn current() -> Result<Self, i32> {
        Ok(Self)
    }

    pub fn examine(&self, _way: Way) -> Result<Finding, i32> {
        Ok(Finding::Boost(Before(is_raised())))
    }

    pub fn boost(&self, _before: &Before) -> Result<(), i32> {
        kernel::set(true);
        Ok(())
    }

    pub fn restore(&self, before: &Before) -> Result<(), i32> {
        if is_raised() {
            kernel::set(before.0);
        }
        Ok(())
    }
}

#[cfg(stillpoint_loom)]
mod kernel {
    use loom::sync::atomic::{AtomicBool, Ordering};

    loom::lazy_static! {
        static ref RAISED: AtomicBool = AtomicBool::new(false);
    }

    // Relaxed, and a read-modify-write: the kernel changes the thread under a lock, which orders nothing else.
    pub(super) fn set(raised: bool) {
        RAISED.swap(raised, Ordering::Relaxed);
    }

    pub fn is_raised() -> bool {
        RAISED.fetch_or(false, Ordering::Relaxed)
    }
}

#[cfg(stillpoint_loom)]
pub use kernel::is_raised;
