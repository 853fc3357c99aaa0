//! Scheduling for models: one thread that others may raise. Under Miri, which has no scheduler to speak of, nobody is
//! helped.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Realtime { reset_on_fork: bool },
    Migrate,
}

#[derive(Debug)]
pub(crate) struct Before;

#[derive(Debug)]
pub(crate) struct Subject;

#[derive(Debug)]
pub(crate) struct Refused;

impl Refused {
    pub(crate) fn raw_os_error(&self) -> i32 {
        libc::EPERM
    }
}

pub(crate) fn probe_realtime() -> Result<Way, Refused> {
    if cfg!(loom) {
        Ok(Way::Realtime { reset_on_fork: true })
    } else {
        Err(Refused)
    }
}

pub(crate) fn restore_after_fork(_before: &Before) {}

impl Subject {
    pub(crate) fn current() -> Result<Self, Refused> {
        if cfg!(loom) {
            Ok(Self)
        } else {
            Err(Refused)
        }
    }

    /// As if the thread always waited for a CPU.
    pub(crate) fn examine(&self, _way: Way) -> Result<Option<Before>, Refused> {
        Ok(cfg!(loom).then_some(Before))
    }

    pub(crate) fn help(&self, _way: Way, _before: &Before) -> Result<(), Refused> {
        set_raised(true);
        Ok(())
    }

    pub(crate) fn restore(&self, _before: &Before) {
        set_raised(false);
    }
}

#[cfg(loom)]
mod kernel {
    use loom::sync::atomic::{AtomicBool, Ordering};

    loom::lazy_static! {
        static ref RAISED: AtomicBool = AtomicBool::new(false);
    }

    // Relaxed, and a read-modify-write: the kernel changes the thread under a lock, which orders nothing else.
    pub(super) fn set(raised: bool) {
        RAISED.swap(raised, Ordering::Relaxed);
    }

    pub(crate) fn is_raised() -> bool {
        RAISED.fetch_or(false, Ordering::Relaxed)
    }
}

#[cfg(loom)]
pub(crate) use kernel::is_raised;

fn set_raised(raised: bool) {
    #[cfg(loom)]
    kernel::set(raised);
    let _ = raised;
}
