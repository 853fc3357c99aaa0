//! The timers that are left when a service is closed.

use super::home::Hints;
use super::ring::Sink;
use super::Entry;
use crate::timer::wheel::Drain;

/// The values of all timers that are left. If the iteration ends early, even by a panic, the drop ends the remaining
/// timers, so that none stays armed in a service that is gone.
pub(super) struct Rest<'a, T> {
    pub(super) sinks: Vec<Sink<T>>,
    pub(super) hints: [Hints<T>; 2],
    pub(super) wheel: Drain<'a, Entry<T>>,
}

impl<T> Rest<'_, T> {
    /// A value from a ring, or from the hints; `None` when these are empty.
    fn message(&mut self) -> Option<T> {
        while let Some(sink) = self.sinks.last_mut() {
            match sink.pop() {
                Some(record) => {
                    if let Some(value) = record.abandon() {
                        return Some(value);
                    }
                }
                None => drop(self.sinks.pop()),
            }
        }
        self.hints.iter_mut().find_map(|hints| loop {
            if let Some(value) = hints.pop()?.abandon() {
                return Some(value);
            }
        })
    }
}

impl<T> Iterator for Rest<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.message().or_else(|| {
            self.wheel.find_map(|entry| match entry {
                Entry::Local(value) => Some(value),
                Entry::Shared(timer, _) => timer.0.abandon(),
            })
        })
    }
}

impl<T> Drop for Rest<'_, T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}
