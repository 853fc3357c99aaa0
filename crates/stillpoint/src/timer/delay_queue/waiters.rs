//! Who waits for the next item, and who is woken.

use std::collections::BTreeMap;

use crate::timer::shared::Alarm;
use stillpoint_sys::panics;

/// The calls that wait. One of them, the leader, sleeps until something may be due. The others sleep until they are promoted.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    tickets: u64,
    /// There is one as long as there are followers.
    leader: Option<Leader>,
    /// By their tickets: the oldest is promoted first.
    followers: BTreeMap<u64, Alarm>,
}

#[derive(Debug)]
struct Leader {
    ticket: u64,
    /// The tick until which it sleeps.
    until: u64,
    /// `None` from when it is woken until it asks again: so it is woken once.
    alarm: Option<Alarm>,
}

/// What a call that has entered does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// It sleeps until the time that it has given, or until its alarm rings.
    Leads,
    /// It sleeps until its alarm rings.
    Follows,
}

/// What is left to do when the lock is released, since it runs the code of users.
#[derive(Debug, Default)]
#[must_use = "it is done outside of the lock"]
pub(super) struct Outside {
    ring: Option<Alarm>,
    drop: Option<Alarm>,
}

impl Outside {
    /// Rings this alarm, too: that of the leader, who has none if it was promoted just now.
    pub(super) fn and_ring(self, alarm: Option<Alarm>) -> Self {
        debug_assert!(self.ring.is_none() || alarm.is_none());
        Self { ring: self.ring.or(alarm), ..self }
    }

    pub(super) fn dropping(alarm: Option<Alarm>) -> Self {
        Self { ring: None, drop: alarm }
    }

    /// A panic goes no further: the caller may have an item that only this call can return.
    pub(super) fn settle(self) {
        if let Some(alarm) = self.ring {
            alarm.ring();
        }
        if self.drop.is_some() {
            panics::catch(|| drop(self.drop)).unwrap_or_else(panics::discard);
        }
    }
}

impl Waiters {
    /// The leader's alarm, if it sleeps beyond `deadline`, and was not woken yet.
    pub(super) fn wake_before(&mut self, deadline: u64) -> Option<Alarm> {
        self.leader.as_mut().filter(|leader| deadline < leader.until)?.alarm.take()
    }

    /// The leader's alarm, if it was not woken yet.
    pub(super) fn wake(&mut self) -> Option<Alarm> {
        self.leader.as_mut()?.alarm.take()
    }

    /// Enters a call, or one that has entered before and found nothing again. `until` is how long it sleeps if it leads. Without
    /// an alarm that rings the caller, `None`: the call has to come again with `alarm`.
    pub(super) fn enter(
        &mut self,
        ticket: &mut Option<u64>,
        until: u64,
        alarm: &mut Option<Alarm>,
        rings_caller: impl FnOnce(&Alarm) -> bool,
    ) -> Option<(Place, Outside)> {
        let leads = self.leader.as_ref().is_none_or(|leader| Some(leader.ticket) == *ticket);
        let present = if leads {
            self.leader.as_ref().and_then(|leader| leader.alarm.as_ref())
        } else {
            ticket.as_ref().and_then(|ticket| self.followers.get(ticket))
        };
        if alarm.is_none() && !present.is_some_and(rings_caller) {
            return None;
        }
        let number = *ticket.get_or_insert(self.tickets);
        self.tickets += u64::from(number == self.tickets);
        let alarm = alarm.take();
        let (place, drop) = if leads {
            let leader = self.leader.get_or_insert(Leader { ticket: number, until, alarm: None });
            leader.until = until;
            (Place::Leads, alarm.and_then(|alarm| leader.alarm.replace(alarm)))
        } else {
            (Place::Follows, alarm.and_then(|alarm| self.followers.insert(number, alarm)))
        };
        Some((place, Outside { ring: None, drop }))
    }

    /// A call ends. If it has led, the oldest follower leads, and is woken: only then somebody sleeps until the next deadline.
    pub(super) fn leave(&mut self, ticket: u64) -> Outside {
        let Some(leader) = self.leader.take_if(|leader| leader.ticket == ticket) else {
            return Outside { ring: None, drop: self.followers.remove(&ticket) };
        };
        let ring = self.followers.pop_first().map(|(ticket, alarm)| {
            self.leader = Some(Leader { ticket, until: 0, alarm: None });
            alarm
        });
        Outside { ring, drop: leader.alarm }
    }
}
