//! A call that waits for the next item, whether a task or a thread makes it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread;

use super::state::{Answer, Asked, State};
use super::time::Time;
use super::waiters::Outside;
use crate::timer::shared::Alarm;

/// What all calls on a queue share.
#[derive(Debug)]
pub(super) struct Shared<T> {
    state: Mutex<State<T>>,
    pub(super) time: Time,
    /// How many items tasks have taken since other tasks had their turn.
    taken: AtomicU32,
}

/// How many items tasks take before other tasks have their turn.
const TAKEN_IN_A_TURN: u32 = 128;

impl<T> Shared<T> {
    pub(super) fn new(state: State<T>, time: Time) -> Self {
        Self { state: Mutex::new(state), time, taken: AtomicU32::new(0) }
    }

    /// Whether other tasks have their turn now. While items are due, a task that takes one after another is always ready, and an executor
    /// does not interrupt it.
    pub(super) fn is_others_turn(&self) -> bool {
        // Relaxed, all: a count on its own.
        let is_it = self.taken.load(Ordering::Relaxed) >= TAKEN_IN_A_TURN;
        if is_it {
            self.taken.store(0, Ordering::Relaxed);
        }
        is_it
    }

    /// A task has taken an item.
    pub(super) fn took(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// No code of users runs under the lock, so a state is valid even if a thread has panicked there.
    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn into_state(self) -> State<T> {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rings an alarm that was taken out under the lock, which is released.
#[inline]
pub(super) fn ring(alarm: Option<Alarm>) {
    if let Some(alarm) = alarm {
        alarm.ring();
    }
}

/// Who sleeps in a call that waits.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sleeper<'a> {
    /// The calling thread.
    Thread,
    Task(&'a Waker),
}

impl Sleeper<'_> {
    fn alarm(self) -> Alarm {
        match self {
            Self::Thread => thread::current().into(),
            Self::Task(waker) => waker.clone().into(),
        }
    }

    /// Whether an alarm that the same call has left is still the right one. A task may move to another waker.
    fn is_rung_by(self, alarm: &Alarm) -> bool {
        match (self, alarm) {
            (Self::Task(waker), Alarm::Task(present)) => present.will_wake(waker),
            (Self::Thread, Alarm::Thread(_)) => true,
            _ => false,
        }
    }
}

/// A call that waits. If it ends without an answer, because its future is dropped or its time is over, it leaves the queue, and
/// another call leads in its stead.
#[derive(Debug)]
pub(super) struct Waiter<'q, T> {
    shared: &'q Shared<T>,
    /// `None` as long as the call has not had to wait.
    ticket: Option<u64>,
}

impl<'q, T> Waiter<'q, T> {
    pub(super) fn new(shared: &'q Shared<T>) -> Self {
        Self { shared, ticket: None }
    }

    /// What the call finds; if that is nothing, it is registered, and `sleeper` is woken for an answer.
    pub(super) fn ask(&mut self, sleeper: Sleeper<'_>) -> Answer<T> {
        let (mut now, mut alarm) = (None, None);
        loop {
            let (asked, outside) = self
                .shared
                .lock()
                .ask(&mut self.ticket, now, &mut alarm, |present| sleeper.is_rung_by(present));
            outside.settle();
            match asked {
                Asked::Answer(answer) => {
                    Outside::dropping(alarm).settle();
                    return answer;
                }
                // Cloning a waker runs code of its executor, and the clock may be one of users: outside of the lock.
                Asked::NoAlarm => alarm = Some(sleeper.alarm()),
                Asked::More => now = Some(self.shared.time.tick()),
            }
        }
    }
}

impl<T> Drop for Waiter<'_, T> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let outside = self.shared.lock().leave(ticket);
            outside.settle();
        }
    }
}
