//! Timers one by one: for a queue of delays.

use super::moves::MOVES;
use super::{Key, Wheel};

/// What comes next: see [`Wheel::next_due`].
#[derive(Debug)]
pub(crate) enum NextDue<T> {
    /// A timer that is due. It is out of the wheel.
    Due(Taken<T>),
    /// Nothing is due, or has to be moved, before this time; `u64::MAX` if there is no timer.
    NotBefore(u64),
    /// There is more to move. The caller asks again.
    More,
}

/// A timer that was taken out of a wheel.
#[derive(Debug)]
pub(crate) struct Taken<T> {
    pub(crate) key: Key,
    pub(crate) deadline: u64,
    pub(crate) value: T,
}

impl<T> Wheel<T> {
    /// Takes a timer that is due at `now`, in the order of a [`poll`](Wheel::poll). For wheels without periodic timers, whose time
    /// is advanced by this method only.
    ///
    /// Complexity: at most `steps` times as many moves as of [`advance`](Wheel::advance).
    pub(crate) fn next_due(&mut self, now: u64, steps: usize) -> NextDue<T> {
        let now = now.max(self.core.now);
        for _ in 0..steps {
            if let Some(taken) = self.take_ready() {
                return NextDue::Due(taken);
            }
            let event = self.core.next_event().unwrap_or(u64::MAX);
            self.core.next = event;
            if event > now {
                self.core.now = now;
                return NextDue::NotBefore(event);
            }
            self.core.go_on(now, MOVES);
        }
        NextDue::More
    }

    /// Sets the time, if nothing is reached by then: so that delays from now on are short ones.
    #[inline]
    pub(crate) fn pass(&mut self, now: u64) {
        if now < self.core.next {
            self.core.now = self.core.now.max(now);
        }
    }

    /// The key of a timer with the earliest deadline. Complexity: see [`earliest_deadline`](Self::earliest_deadline).
    pub(crate) fn earliest_key(&self) -> Option<Key> {
        self.core.earliest().map(|(_, index)| self.core.store.key(index))
    }

    /// Takes the timer in the first place from `*from` on that is in use, and sets `*from` to the place after it. Looks at 1,024 places
    /// at most: if there is none among them, `*from` is behind them, or [`END`](super::END).
    pub(crate) fn take_from(&mut self, from: &mut u32) -> Option<Taken<T>> {
        let (key, deadline, value) = self.core.store.take_from(from)?;
        Some(Taken { key, deadline, value })
    }
}
