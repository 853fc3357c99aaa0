//! Waits for callbacks.

use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use stillpoint::rcu::raw::Callback;
use stillpoint::rcu::SynchronizeError;

use super::flavour::{of, Flavour};
use super::reader::{acquires, releases, AGAIN};
use super::report;
use super::worker::{Worker, Workers};
use crate::border::call;

/// How many markers are left, and who waits for them.
struct Markers {
    left: Mutex<usize>,
    none_left: Condvar,
}

/// A callback behind those that are waited for.
#[repr(C)]
struct Marker {
    node: Callback,
    markers: Arc<Markers>,
}

unsafe extern "C-unwind" fn pass(node: NonNull<Callback>) {
    // SAFETY: the first part of a marker that came from a box.
    let Marker { markers, .. } = *unsafe { Box::from_raw(node.cast::<Marker>().as_ptr()) };
    releases();
    let mut left = markers.left.lock().unwrap_or_else(PoisonError::into_inner);
    *left -= 1;
    if *left == 0 {
        markers.none_left.notify_all();
    }
}

impl Flavour {
    /// Waits until everything was called that these workers had before, and everything that they have passed on. Reported and not
    /// done where that would be to wait for itself.
    pub(super) fn wait_for(
        &'static self,
        name: &str,
        workers: impl FnOnce(&Workers) -> Vec<&'static Worker>,
    ) {
        if self.is_within_callback() {
            return report(self, &format!("{name} was called by a callback, and would wait for itself"));
        }
        if !self.is_qsbr() && self.is_ongoing() {
            return report(
                self,
                &format!("{name} was called in a read-side section, and would wait for itself"),
            );
        }
        self.while_offline(|| self.wait_behind(name, workers));
        acquires();
    }

    fn wait_behind(&'static self, name: &str, workers: impl FnOnce(&Workers) -> Vec<&'static Worker>) {
        let markers = Arc::new(Markers { left: Mutex::new(1), none_left: Condvar::new() });
        {
            // A worker that is freed stays in the list until what it has was passed on.
            let lock = self.lock();
            for worker in workers(&lock) {
                *markers.left.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                let marker = Box::new(Marker { node: Callback::new(), markers: Arc::clone(&markers) });
                let node = NonNull::from(Box::leak(marker)).cast();
                releases();
                // SAFETY: the box is the worker's now, and `pass` frees it.
                unsafe { worker.queue.push(node, pass) };
            }
        }
        *markers.left.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        let mut is_told = false;
        loop {
            // Only these may have no thread; everything that is passed on goes there.
            for worker in self.default().into_iter().chain(self.deferring()) {
                if worker.has_thread() {
                    continue;
                }
                acquires();
                let answer = worker.queue.barrier();
                releases();
                match answer {
                    Err(error @ SynchronizeError::Fence(_)) if !std::mem::replace(&mut is_told, true) => {
                        report(self, &format!("{name}: {error}"));
                    }
                    _ => {}
                }
            }
            let left = markers.left.lock().unwrap_or_else(PoisonError::into_inner);
            if *left == 0 {
                return;
            }
            // It ends with the last marker; from time to time it looks again for workers without threads.
            let waited = markers.none_left.wait_timeout_while(left, AGAIN, |left| *left > 0);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 == 0 {
                return;
            }
        }
    }
}

#[no_mangle]
pub extern "C" fn still_urcu_barrier_(flavour: u32) {
    call(|| {
        let flavour = of(flavour);
        flavour.wait_for("rcu_barrier", |lock| lock.live.clone());
        Ok(())
    });
}
