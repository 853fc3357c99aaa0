//! A gate at which the readers of a round wait until all of them are registered.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Opened once, when all have arrived.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    arrived: usize,
    failed: bool,
    open: bool,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the calling thread and waits until the gate opens.
    pub fn pass(&self) {
        let mut state = self.lock();
        state.arrived += 1;
        self.changed.notify_all();
        while !state.open {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Records that a thread will never arrive.
    pub fn fail(&self) {
        self.lock().failed = true;
        self.changed.notify_all();
    }

    /// Waits until `expected` threads have arrived. Returns false if one of them has failed.
    pub fn gathered(&self, expected: usize) -> bool {
        let mut state = self.lock();
        while state.arrived < expected && !state.failed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.failed
    }

    /// Lets all threads through, now and later.
    pub fn open(&self) {
        self.lock().open = true;
        self.changed.notify_all();
    }
}

/// Opens a gate when it is dropped, even by a panic: threads of a scope that wait there go on, and the scope ends.
pub struct OpenOnDrop<'a>(pub &'a Gate);

impl Drop for OpenOnDrop<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// When dropped by a panic, records that its thread will never arrive.
pub struct FailOnPanic<'a>(pub &'a Gate);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn nobody_passes_before_all_have_arrived() {
        let (gate, passed) = (Gate::default(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    gate.pass();
                    // Relaxed: the scope's end orders the count for the last assertion.
                    passed.fetch_add(1, Ordering::Relaxed);
                });
            }
            assert!(gate.gathered(3));
            assert_eq!(passed.load(Ordering::Relaxed), 0);
            gate.open();
        });
        assert_eq!(passed.into_inner(), 3);
    }

    #[test]
    fn a_thread_that_fails_does_not_hold_up_the_others() {
        let gate = Gate::default();
        std::thread::scope(|scope| {
            scope.spawn(|| gate.pass());
            scope.spawn(|| gate.fail());
            assert!(!gate.gathered(2));
            gate.open();
        });
    }

    #[test]
    fn a_thread_that_panics_has_failed() {
        let gate = Gate::default();
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let _failing = FailOnPanic(&gate);
                gate.pass();
            });
            assert!(gate.gathered(1));
            let failing = scope.spawn(|| {
                let _failing = FailOnPanic(&gate);
                std::panic::resume_unwind(Box::new(()));
            });
            assert!(!gate.gathered(2));
            assert!(!worker.is_finished());
            gate.open();
            assert!(failing.join().is_err());
        });
    }
}
