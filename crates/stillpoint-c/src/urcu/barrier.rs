//! Barriers, which wait for callbacks.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use stillpoint::rcu::raw::{self, Callback};
use stillpoint::rcu::wait::SynchronizeError;
use stillpoint_sys::os;
use stillpoint_sys::sync::atomic::AtomicU32;

use super::flavour::{of, Flavour};
use super::reader::{acquires, releases, AGAIN};
use super::worker::Worker;
use crate::border::{call, Refusal};
use crate::report::report;

/// A callback that a barrier pushes behind the others. All markers of a barrier share the number of markers that have not been called yet.
/// There is no lock, because another thread could hold it at a `fork`.
#[repr(C)]
struct Marker {
    node: Callback,
    left: Arc<AtomicU32>,
}

unsafe extern "C-unwind" fn pass(node: NonNull<Callback>) {
    // SAFETY: the node is the first field of a marker that came from a box.
    let Marker { left, .. } = *unsafe { Box::from_raw(node.cast::<Marker>().as_ptr()) };
    releases();
    // Release: pairs with the acquire in `wait_behind`, so that the callbacks before the marker happen before the end of the barrier.
    // Acquire: pairs with this release of the other markers, so that the last marker covers all of them.
    if left.fetch_sub(1, Ordering::AcqRel) == 1 {
        os::wake_all(&left);
    }
}

/// The callbacks for which a barrier waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pushed {
    ByCall,
    ByDefer,
}

impl Pushed {
    fn barrier(self) -> &'static str {
        match self {
            Self::ByCall => "rcu_barrier",
            Self::ByDefer => "rcu_defer_barrier",
        }
    }
}

impl Flavour {
    /// Waits until all such callbacks that were pushed before have been called. Refused if the thread would wait for itself.
    pub(super) fn wait_for(&'static self, pushed: Pushed) -> Result<(), Refusal> {
        if !self.is_qsbr() && self.is_ongoing() {
            return Err(self.waits_for_itself(pushed.barrier(), "in a read-side section"));
        }
        self.while_offline(|| {
            // Offline: who has the flavour's lock may wait for readers.
            let _barrier = self.within_barrier();
            self.wait_behind(pushed)
        })?;
        acquires();
        Ok(())
    }

    /// Why a call is refused.
    pub(super) fn waits_for_itself(&'static self, name: &str, place: &str) -> Refusal {
        Refusal::told(
            libc::EDEADLK,
            format_args!("urcu-{}: {name} was called {place}, and would wait for itself", self.name()),
            c"the call would wait for itself",
        )
    }

    fn wait_behind(&'static self, pushed: Pushed) -> Result<(), Refusal> {
        let left = self.push_markers(pushed)?;
        let mut is_told = false;
        loop {
            // Only these workers may lack a thread. The callbacks of a freed worker go to the default worker.
            let lasting = match pushed {
                Pushed::ByCall => self.default(),
                Pushed::ByDefer => self.deferring(),
            };
            if let Some(worker) = lasting.filter(|worker| !worker.has_thread()) {
                acquires();
                // Callbacks of other queues may wait for this one, as in liburcu. An error is reported below, and tried again.
                let _ = raw::let_wait(|| worker.queue.barrier());
                releases();
            }
            // Acquire: pairs with the release in `pass`.
            let seen = left.load(Ordering::Acquire);
            if seen == 0 {
                return Ok(());
            }
            // The kernel refuses the fence to this thread, or to a worker's thread, which has nobody to tell.
            if let Some(error) = raw::fence_error(&self.group().domain).filter(|_| !is_told) {
                is_told = true;
                let error = SynchronizeError::Fence(error);
                report(format_args!("urcu-{}: {}: {error}", self.name(), pushed.barrier()));
            }
            // The last marker wakes this thread. After the timeout, it looks again for a worker without a thread.
            os::wait(&left, seen, Some(AGAIN));
        }
    }

    /// Pushes a marker to each worker that may have such callbacks.
    fn push_markers(&'static self, pushed: Pushed) -> Result<Arc<AtomicU32>, Refusal> {
        // A worker that was freed stays in the list until its callbacks have been passed on.
        let lock = self.lock();
        let workers: Vec<&'static Worker> = match pushed {
            Pushed::ByCall => lock.live.clone(),
            Pushed::ByDefer => self.deferring().into_iter().collect(),
        };
        if lock.is_borrowed() {
            return Err(self.waits_for_itself(pushed.barrier(), "between the hooks of a fork"));
        }
        if workers.iter().any(|worker| worker.queue.is_served_here()) {
            return Err(self.waits_for_itself(pushed.barrier(), "by a callback of a queue that it waits for"));
        }
        let left = Arc::new(AtomicU32::new(workers.len() as u32));
        for worker in workers {
            let marker = Box::new(Marker { node: Callback::new(), left: Arc::clone(&left) });
            let node = NonNull::from(Box::leak(marker)).cast();
            releases();
            // SAFETY: the box belongs to the worker now, and `pass` frees it.
            unsafe { worker.queue.push(node, pass) };
        }
        Ok(left)
    }
}

#[no_mangle]
pub extern "C" fn still_urcu_barrier_(flavour: u32) {
    call(|| of(flavour).wait_for(Pushed::ByCall));
}
