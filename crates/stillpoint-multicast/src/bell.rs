//! The signal that is the bell of the service: the service of the process, how it rings, and the handler.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Arc;

use super::engine::Core;
use super::signal;
use super::transport::Transport;
use stillpoint_sys::linux::Errno;

/// The service of the process, started once.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) core: Arc<Core<Signals>>,
    pub(super) signal: i32,
}

/// Null before the first use. An atomic pointer and not a `Once`: the child of a `fork` must not find it half done.
pub(super) static SERVICE: AtomicPtr<Service> = AtomicPtr::new(std::ptr::null_mut());

/// The service, if it was started.
#[inline]
pub(super) fn started() -> Option<&'static Service> {
    // Acquire: pairs with the exchange in `signals::launch`.
    // SAFETY: null, or from `Box::into_raw` there, never freed and never written again.
    unsafe { SERVICE.load(Ordering::Acquire).as_ref() }
}

#[derive(Debug)]
pub(crate) struct Signals {
    pub(super) signal: i32,
}

impl Transport for Signals {
    const CATCHES: bool = false;

    fn notify(&self, tid: u32) {
        // The initiator detects a refusal when it sends the signal again.
        let _ = signal::send(tid, self.signal);
    }

    fn alone<R>(&self, function: impl FnOnce() -> R) -> R {
        let _blocked = signal::block(self.signal);
        function()
    }
}

/// The signal handler. The signal may also come from elsewhere.
pub(super) extern "C" fn answer(_signal: libc::c_int) {
    let _errno = Errno::new();
    if let Some(service) = started() {
        service.core.serve_thread(stillpoint_sys::linux::thread_id());
    }
}
