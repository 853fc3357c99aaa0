//! The moment at the end of a part when its threads still exist, but no longer do anything.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// How often each side checks. Not a barrier, at which the others would hang if a thread panicked.
const PERIOD: Duration = Duration::from_micros(200);

#[derive(Debug, Default)]
pub(crate) struct Lull {
    arrived: AtomicUsize,
    over: AtomicBool,
}

/// Counts its thread as arrived when it is dropped, also by a panic.
#[derive(Debug)]
pub(crate) struct Arrival<'l>(&'l Lull);

impl Lull {
    pub(crate) fn expect(&self) -> Arrival<'_> {
        Arrival(self)
    }

    /// Waits for `threads` arrivals.
    pub(crate) fn wait_for_all(&self, threads: usize) {
        // Acquire: pairs with the release in `drop`.
        while self.arrived.load(Ordering::Acquire) < threads {
            thread::sleep(PERIOD);
        }
    }

    pub(crate) fn end(&self) {
        // Relaxed: a flag; the threads are joined.
        self.over.store(true, Ordering::Relaxed);
    }
}

impl Arrival<'_> {
    /// Marks the thread as finished, and waits for the end of the lull.
    pub(crate) fn finish(self) {
        let Self(lull) = self;
        drop(self);
        // Relaxed: see `end`.
        while !lull.over.load(Ordering::Relaxed) {
            thread::sleep(PERIOD);
        }
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `wait_for_all`.
        self.0.arrived.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panics_has_arrived_as_well() {
        let lull = Lull::default();
        thread::scope(|scope| {
            let worker = scope.spawn(|| lull.expect().finish());
            let failing = scope.spawn(|| {
                let _arrival = lull.expect();
                std::panic::resume_unwind(Box::new(()));
            });
            lull.wait_for_all(2);
            assert!(!worker.is_finished());
            lull.end();
            assert!(failing.join().is_err());
        });
    }
}
