//! The timers that are left when a service is closed.

use super::entry::Entry;
use super::home::Hints;
use super::ring::Sink;
use crate::timer::busted::{self, Variant};
use crate::timer::wheel::Drain;

/// The values of all timers that are left. If the iteration ends early, even by a panic, the drop ends the remaining
/// timers, so that none stays armed in a service that is gone.
pub(super) struct Rest<'a, T> {
    /// The rings. They are kept until the wheel is empty: the source of a ring that has no other end would end timers of
    /// the wheel that it has reset.
    sinks: Vec<Sink<T>>,
    /// How many rings were found empty in the first round.
    empty: usize,
    hints: [Hints<T>; 2],
    wheel: Drain<'a, Entry<T>>,
}

impl<'a, T> Rest<'a, T> {
    pub(super) fn new(sinks: Vec<Sink<T>>, hints: [Hints<T>; 2], wheel: Drain<'a, Entry<T>>) -> Self {
        Self { sinks, empty: 0, hints, wheel }
    }

    /// A value from a ring, in the first round.
    fn message(&mut self) -> Option<T> {
        while let Some(sink) = self.sinks.get_mut(self.empty) {
            if let Some(value) = value_in(sink) {
                return Some(value);
            }
            if busted::is(Variant::RingsLetGo) {
                drop(self.sinks.remove(self.empty));
            } else {
                self.empty += 1;
            }
        }
        None
    }

    /// A value from a ring, in the last round: some messages may have come meanwhile. Drops each ring that is empty.
    fn late_message(&mut self) -> Option<T> {
        while let Some(sink) = self.sinks.last_mut() {
            if let Some(value) = value_in(sink) {
                return Some(value);
            }
            drop(self.sinks.pop());
        }
        None
    }

    fn hinted(&mut self) -> Option<T> {
        self.hints.iter_mut().find_map(|hints| loop {
            if let Some(value) = hints.pop()?.abandon() {
                return Some(value);
            }
        })
    }

    fn entry(&mut self) -> Option<T> {
        self.wheel.find_map(|entry| match entry {
            Entry::Local(value) => Some(value),
            Entry::Shared(timer, _) => timer.0.abandon(),
        })
    }
}

/// The value of the first timer in the ring that is armed. Ends: the ring has room only for that many messages, and none is
/// given back.
fn value_in<T>(sink: &mut Sink<T>) -> Option<T> {
    loop {
        if let Some(value) = sink.pop()?.abandon() {
            return Some(value);
        }
    }
}

impl<T> Iterator for Rest<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.message().or_else(|| self.hinted()).or_else(|| self.entry()).or_else(|| self.late_message())
    }
}

impl<T> Drop for Rest<'_, T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}
