//! What the lock of a queue protects.

use super::item::InsertError;
use super::waiters::{Outside, Place, Waiters};
use crate::timer::shared::Alarm;
use crate::timer::wheel::{NextDue, Taken};
use crate::timer::{Key, Wheel};

/// Events of the wheel in one critical section.
const STEPS: usize = 16;

/// Nothing in here runs code of users: no value, waker or clock. So no panic leaves it half changed, and the lock is held only
/// for what the wheel does.
#[derive(Debug)]
pub(super) struct State<T> {
    pub(super) wheel: Wheel<T>,
    waiters: Waiters,
    is_closed: bool,
}

/// What a call that wants the next item finds.
#[derive(Debug)]
pub(super) enum Found<T> {
    Item(Taken<T>),
    /// The queue is closed, and empty.
    End,
    /// Nothing is due before a tick; it is `now`.
    Nothing {
        until: u64,
        now: u64,
    },
    /// The caller asks again, with the time: the lock is released meanwhile.
    More,
}

/// The answer to a call that waits.
#[derive(Debug)]
pub(super) enum Answer<T> {
    Item(Taken<T>),
    End,
    /// The caller leads: it sleeps until a tick, or until its alarm rings.
    Sleep {
        until: u64,
        now: u64,
    },
    /// The caller sleeps until its alarm rings.
    Follow,
}

/// What a call that waits does next.
#[derive(Debug)]
pub(super) enum Asked<T> {
    Answer(Answer<T>),
    /// As [`Found::More`].
    More,
    /// The caller comes again with an alarm.
    NoAlarm,
}

impl<T> State<T> {
    pub(super) fn new(wheel: Wheel<T>) -> Self {
        Self { wheel, waiters: Waiters::default(), is_closed: false }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    fn has_ended(&self) -> bool {
        self.is_closed && self.wheel.is_empty()
    }

    /// Adds an item. An alarm that is returned rings outside of the lock.
    #[inline]
    pub(super) fn insert(&mut self, deadline: u64, value: T) -> Result<(Key, Option<Alarm>), InsertError<T>> {
        if self.is_closed {
            return Err(InsertError::Closed(value));
        }
        let key = self.wheel.add(deadline, value).map_err(|full| InsertError::Full(full.into_inner()))?;
        Ok((key, self.waiters.wake_before(deadline)))
    }

    /// Gives an item another deadline. `None` if there is no such item.
    #[inline]
    pub(super) fn reset(&mut self, key: Key, deadline: u64) -> Option<Option<Alarm>> {
        self.wheel.reset(key, deadline).then(|| self.waiters.wake_before(deadline))
    }

    #[inline]
    pub(super) fn remove(&mut self, key: Key) -> Option<(T, Option<Alarm>)> {
        let value = self.wheel.cancel(key)?;
        Some((value, self.wake_at_the_end()))
    }

    /// Takes out the item in the first place from `*from` on, whether it is due or not.
    pub(super) fn take_from(&mut self, from: &mut u32) -> Option<(Taken<T>, Option<Alarm>)> {
        let taken = self.wheel.take_from(from)?;
        Some((taken, self.wake_at_the_end()))
    }

    pub(super) fn close(&mut self) -> Option<Alarm> {
        self.is_closed = true;
        self.wake_at_the_end()
    }

    /// The leader sleeps for an item that is gone, and would wake up in vain, or never. It passes the end on.
    fn wake_at_the_end(&mut self) -> Option<Alarm> {
        if self.has_ended() {
            self.waiters.wake()
        } else {
            None
        }
    }

    /// What is there at the tick `now`; if there is none, what is known to be due. Whoever takes an item then calls
    /// `wake_at_the_end`.
    fn look(&mut self, now: Option<u64>) -> Found<T> {
        let Some(now) = now else {
            return self.wheel.take_ready().map_or(Found::More, Found::Item);
        };
        match self.wheel.next_due(now, STEPS) {
            NextDue::Due(taken) => Found::Item(taken),
            NextDue::More => Found::More,
            NextDue::NotBefore(_) if self.has_ended() => Found::End,
            NextDue::NotBefore(until) => Found::Nothing { until, now },
        }
    }

    /// What is there, for a call that does not wait: see `look`.
    pub(super) fn try_take(&mut self, now: Option<u64>) -> (Found<T>, Option<Alarm>) {
        let found = self.look(now);
        let alarm = if matches!(found, Found::Item(_)) { self.wake_at_the_end() } else { None };
        (found, alarm)
    }

    /// What is there, for a call that waits: see `look` and [`Waiters::enter`].
    pub(super) fn ask(
        &mut self,
        ticket: &mut Option<u64>,
        now: Option<u64>,
        alarm: &mut Option<Alarm>,
        rings_caller: impl FnOnce(&Alarm) -> bool,
    ) -> (Asked<T>, Outside) {
        let answer = match self.look(now) {
            Found::Item(taken) => Answer::Item(taken),
            Found::End => Answer::End,
            Found::More => return (Asked::More, Outside::default()),
            Found::Nothing { until, now } => {
                return match self.waiters.enter(ticket, until, alarm, rings_caller) {
                    Some((Place::Leads, outside)) => (Asked::Answer(Answer::Sleep { until, now }), outside),
                    Some((Place::Follows, outside)) => (Asked::Answer(Answer::Follow), outside),
                    None => (Asked::NoAlarm, Outside::default()),
                };
            }
        };
        let outside = match ticket.take() {
            Some(ticket) => self.waiters.leave(ticket),
            None => Outside::default(),
        };
        // After the caller has left: if it has led, nobody else is woken.
        (Asked::Answer(answer), outside.and_ring(self.wake_at_the_end()))
    }

    /// A call that waits ends without an answer.
    pub(super) fn leave(&mut self, ticket: u64) -> Outside {
        self.waiters.leave(ticket)
    }
}
