//! How time goes on: slots that are reached, timers that are moved, timers that fire.

use super::expired::{Expired, Limit, Popped, Progress};
use super::lent::Lent;
use super::level::{self, LATE, MOVING, READY};
use super::schedule::{CATCH_UP, PERIODIC};
use super::slab::Timer;
use super::{Key, Wheel};

/// Timers that are moved before those that became due by it fire.
const MOVES: usize = 32;

/// A timer that fires: its value is in `Some` unless it is periodic.
struct Fired<T> {
    key: Key,
    deadline: u64,
    missed: u64,
    value: Option<T>,
}

impl<T> Wheel<T> {
    /// Sets the time, and fires what is due: `callback` is called with the wheel, and with each timer that has fired.
    ///
    /// The callback may do anything with the wheel: cancel timers of the same batch, which do not fire then, add
    /// others, poll. A timer that it adds and that is due already fires in the next poll, so that a poll ends whatever the
    /// callback adds; [`Progress::More`] says that there is one. (A callback that polls or advances is the next poll: one
    /// that adds due timers *and* does that each time keeps the outer poll going for as long as `limit` lets it.)
    ///
    /// A periodic timer is armed again before the callback, and its value is lent. When it is cancelled by its own callback,
    /// [`cancel`](Self::cancel) answers `None`, since it has fired; its value is dropped after the callback.
    ///
    /// What is in slots that are past fires before other timers are moved, exact timers before
    /// [coarse](super::Schedule::coarse) ones. Exact timers fire by deadline as far as they are in different slots, and as
    /// armed where their deadlines are the same and they were armed between polls that finished. Coarse ones fire by the
    /// granularity of their slots, then by slot. What was due when it was added fires before them all. In a poll that stops
    /// at its limit of [moves](Limit::moves), and in those after it until one has finished, timers fire in no order.
    ///
    /// A time before the last one counts as the last one, and in
    /// [`WheelStats::time_went_back`](super::WheelStats::time_went_back).
    ///
    /// Complexity: constant when no slot has been reached; otherwise by the slots that were reached and are occupied, the
    /// timers that fire, and those of one slot of each reached level. The time that has passed does not count.
    ///
    /// # Panics
    /// With the panic of the callback: the wheel stays valid, and what has not fired fires in the next poll. A periodic
    /// timer whose callback panics stays armed.
    ///
    /// ```
    /// use stillpoint::timer::{Limit, Wheel};
    ///
    /// let mut wheel = Wheel::new(0);
    /// wheel.add(10, "first")?;
    /// wheel.add(20, "second")?;
    /// let mut fired = Vec::new();
    /// let progress = wheel.poll(10, Limit::NONE, |wheel, expired| {
    ///     let at = expired.deadline() + 90;
    ///     fired.extend(expired.into_value());
    ///     wheel.add(at, "third").expect("there is memory");
    /// });
    /// assert!(progress.is_done());
    /// assert_eq!(fired, ["first"]);
    /// assert_eq!(wheel.len(), 2);
    /// # Ok::<(), stillpoint::timer::Full<&str>>(())
    /// ```
    #[inline]
    pub fn poll<F>(&mut self, now: u64, limit: Limit, callback: F) -> Progress
    where
        F: FnMut(&mut Self, Expired<'_, T>),
    {
        let mut callback = callback;
        poll_within(
            self,
            |wheel| wheel,
            now,
            limit,
            |wheel, expired| {
                callback(wheel, expired);
                true
            },
        )
    }

    /// Sets the time, for [`pop`](Self::pop). What was reached is due from then on; nothing fires by itself.
    ///
    /// A timer that is added after this and is due already can be popped after the next call. Time that goes back is dealt
    /// with as in [`poll`](Self::poll).
    pub fn advance(&mut self, now: u64) {
        let before = self.now;
        if now < before {
            self.went_back += 1;
        }
        self.slab.lists.splice(LATE, READY);
        if now > before {
            self.now = now;
            if now >= self.next {
                self.cross(before);
            }
        }
    }

    /// Takes a timer that is due at the time of the last [`advance`](Self::advance), in the order of
    /// [`poll`](Self::poll).
    ///
    /// ```
    /// use stillpoint::timer::Wheel;
    ///
    /// let mut wheel = Wheel::new(0);
    /// wheel.add(10, "ten")?;
    /// wheel.advance(15);
    /// let popped = wheel.pop().expect("it is due");
    /// assert_eq!((popped.value, popped.deadline), (Some("ten"), 10));
    /// assert_eq!(wheel.pop(), None);
    /// # Ok::<(), stillpoint::timer::Full<&str>>(())
    /// ```
    pub fn pop(&mut self) -> Option<Popped<T>> {
        let mut fired = self.fire();
        while fired.is_none() && self.move_some(&mut { usize::MAX }) {
            fired = self.fire();
        }
        if fired.is_none() {
            self.look_ahead();
        }
        let Fired { key, deadline, missed, value } = fired?;
        Some(Popped { key, deadline, missed, value })
    }

    /// Takes the first ready timer; a periodic one is armed again.
    #[inline]
    fn fire(&mut self) -> Option<Fired<T>> {
        let index = self.slab.lists.pop(READY)?;
        let key = self.slab.key(index);
        let &Timer { deadline, flags, .. } = self.slab.timer(index);
        // At the end of time there is no next beat.
        if flags & PERIODIC == 0 || deadline == u64::MAX {
            let value = self.slab.release(index);
            return Some(Fired { key, deadline, missed: 0, value });
        }
        Some(self.beat(index, key))
    }

    /// Arms a periodic timer again.
    #[cold]
    fn beat(&mut self, index: u32, key: Key) -> Fired<T> {
        let &Timer { deadline, flags, .. } = self.slab.timer(index);
        let period = self.slab.period(index);
        let behind = self.now.saturating_sub(deadline);
        let missed = if flags & CATCH_UP != 0 || behind < period { 0 } else { behind / period };
        let next = deadline.saturating_add(period.saturating_mul(missed.saturating_add(1)));
        self.slab.timer_mut(index).deadline = next;
        self.file(index, next, flags, LATE);
        Fired { key, deadline, missed, value: None }
    }

    /// Moves a few timers of reached slots to where they belong now; whether there were any.
    fn move_some(&mut self, moves: &mut usize) -> bool {
        let mut moved = false;
        for _ in 0..MOVES {
            if *moves == 0 {
                break;
            }
            let Some(index) = self.slab.lists.pop(MOVING) else { break };
            let &Timer { deadline, flags, .. } = self.slab.timer(index);
            self.file(index, deadline, flags, READY);
            *moves -= 1;
            self.moved += 1;
            moved = true;
        }
        moved
    }

    /// Takes what was reached since `before`: slots that are past become ready as a whole; of the one that the time is
    /// in now, each timer is to be looked at.
    fn cross(&mut self, before: u64) {
        let mut rows = self.slab.lists.rows();
        while rows != 0 {
            let row = rows.trailing_zeros();
            rows &= rows - 1;
            if !level::is_level(row) {
                continue;
            }
            let occupied = self.slab.lists.occupied(row);
            let crossing = level::crossing(row, before, self.now);
            let head = row * level::SLOTS;
            let mut due = (occupied & crossing.due).rotate_right(crossing.first);
            while due != 0 {
                let slot = (due.trailing_zeros() + crossing.first) % level::SLOTS;
                due &= due - 1;
                self.slab.lists.splice(head + slot, READY);
            }
            if let Some(slot) = crossing.entered {
                self.slab.lists.splice(head + slot, MOVING);
            }
        }
    }

    /// Finds out anew when a slot is reached next: 0 when there is something to do already.
    fn look_ahead(&mut self) {
        self.next = self.next_event().unwrap_or(u64::MAX);
    }

    /// When there is something to do next: 0 for at once, `None` for never.
    pub(super) fn next_event(&self) -> Option<u64> {
        let mut rows = self.slab.lists.rows();
        if rows.leading_zeros() == 0 {
            return Some(0);
        }
        let mut next = None;
        while rows != 0 {
            let row = rows.trailing_zeros();
            rows &= rows - 1;
            // Of the exact levels, the lowest is reached first.
            if level::is_exact(row) && next.is_some() {
                continue;
            }
            let start = level::next_start(row, self.slab.lists.occupied(row), self.now);
            next = Some(next.map_or(start, |next: u64| next.min(start)));
        }
        next
    }
}

/// [`Wheel::poll`] for a wheel that belongs to `host`, which the callback is lent in its place. It says whether the timer
/// has fired, or was cancelled before.
#[inline]
pub(crate) fn poll_within<H, T>(
    host: &mut H,
    wheel_of: impl Fn(&mut H) -> &mut Wheel<T> + Copy,
    now: u64,
    limit: Limit,
    callback: impl FnMut(&mut H, Expired<'_, T>) -> bool,
) -> Progress {
    let wheel = wheel_of(host);
    if wheel.now <= now && now < wheel.next {
        wheel.now = now;
        return Progress::Done(0);
    }
    serve(host, wheel_of, now, limit, callback)
}

/// A function of its own, so that the way above is short enough to be part of its callers.
#[inline(never)]
fn serve<H, T>(
    host: &mut H,
    wheel_of: impl Fn(&mut H) -> &mut Wheel<T> + Copy,
    now: u64,
    limit: Limit,
    mut callback: impl FnMut(&mut H, Expired<'_, T>) -> bool,
) -> Progress {
    wheel_of(host).advance(now);
    let (mut expired, mut left, mut moves) = (0, limit.expiries, limit.moves);
    loop {
        while left > 0 {
            let Some(fired) = wheel_of(host).fire() else { break };
            // What was cancelled counts, too, so that a poll is short however many there are.
            left -= 1;
            expired += usize::from(call(host, wheel_of, fired, &mut callback));
        }
        let wheel = wheel_of(host);
        if wheel.slab.lists.first(READY).is_some() || moves == 0 || !wheel.move_some(&mut moves) {
            break;
        }
    }
    let wheel = wheel_of(host);
    wheel.look_ahead();
    if wheel.next == 0 {
        Progress::More(expired)
    } else {
        Progress::Done(expired)
    }
}

#[inline]
fn call<H, T>(
    host: &mut H,
    wheel_of: impl Fn(&mut H) -> &mut Wheel<T> + Copy,
    fired: Fired<T>,
    callback: &mut impl FnMut(&mut H, Expired<'_, T>) -> bool,
) -> bool {
    let Fired { key, deadline, missed, value } = fired;
    if let Some(value) = value {
        callback(host, Expired { key, deadline, missed, value: Lent::Given(value) })
    } else if let Some(value) = wheel_of(host).slab.lend(key) {
        let mut lending = Lending { host, wheel_of, key, value: Some(value) };
        let Lending { host, value: Some(value), .. } = &mut lending else { return false };
        callback(host, Expired { key, deadline, missed, value: Lent::Lent(value) })
    } else {
        false
    }
}

/// The value of a periodic timer while its callback runs: it goes back, unless the timer is gone by then.
struct Lending<'a, H, T, W: Fn(&mut H) -> &mut Wheel<T>> {
    host: &'a mut H,
    wheel_of: W,
    key: Key,
    value: Option<T>,
}

impl<H, T, W: Fn(&mut H) -> &mut Wheel<T>> Drop for Lending<'_, H, T, W> {
    fn drop(&mut self) {
        // The callback may even have put another wheel in this one's place.
        let value = self.value.take();
        let rest = (self.wheel_of)(self.host).slab.give_back(self.key, value);
        drop(rest);
    }
}
