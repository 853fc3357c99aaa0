//! How timers fire.

use super::expired::{Expired, Limit, Popped, Progress};
use super::lent::Lent;
use super::level::{LATE, READY};
use super::moves::MOVES;
use super::schedule::PERIODIC;
use super::slab::Timer;
use super::{Key, Wheel};

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
    /// What was due when it was added fires first, exact timers before [coarse](super::Schedule::coarse) ones. Exact timers fire
    /// by deadline as far as they are in slots that do not overlap, and as armed where their deadlines are the same and they
    /// were armed between polls that finished. Coarse ones fire by the granularity of their slots, then by slot. In a poll that
    /// stops at its limit of [moves](Limit::moves), and in those after it until one has finished, timers fire in no order.
    ///
    /// A time before the last one counts as the last one, and in
    /// [`WheelStats::time_went_back`](super::WheelStats::time_went_back).
    ///
    /// Complexity: constant when no slot has been reached; otherwise by the occupied slots that were reached, 2,112 at most,
    /// and by the timers that are moved and that fire, which `limit` bounds. The time that has passed does not count.
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
    ///
    /// Complexity: as that of a poll with [`Limit::expiries(64)`](Limit::expiries), without the expiries: at most 64 timers
    /// are moved for each [level in use](super::WheelStats::levels).
    ///
    /// ```
    /// use stillpoint::timer::Wheel;
    ///
    /// let mut wheel = Wheel::new(0);
    /// wheel.add(10, "ten")?;
    /// wheel.advance(9);
    /// assert_eq!(wheel.pop(), None);
    /// # Ok::<(), stillpoint::timer::Full<&str>>(())
    /// ```
    pub fn advance(&mut self, now: u64) {
        self.core.go_on(now, MOVES);
    }

    /// Takes a timer that is due at the time of the last [`advance`](Self::advance), in the order of
    /// [`poll`](Self::poll).
    ///
    /// `None` says that no timer is known to be due. When there were more timers to be moved than one call moves, some may be
    /// due, all the same: [`next_deadline`](Self::next_deadline) is the present time then, and the next call moves others.
    ///
    /// Complexity: constant when a timer is ready; otherwise at most 64 timers are moved for each
    /// [level in use](super::WheelStats::levels).
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
        let fired = self.fire().or_else(|| {
            self.core.move_some(MOVES);
            self.fire()
        });
        if fired.is_none() {
            self.core.look_ahead();
        }
        let Fired { key, deadline, missed, value } = fired?;
        Some(Popped { key, deadline, missed, value })
    }

    /// Takes the first ready timer; a periodic one is armed again.
    #[inline]
    fn fire(&mut self) -> Option<Fired<T>> {
        let index = self.core.store.lists.pop(READY)?;
        let key = self.core.store.key(index);
        let &Timer { deadline, flags, .. } = self.core.store.timer(index);
        // At the end of time there is no next beat.
        if flags & PERIODIC == 0 || deadline == u64::MAX {
            let value = self.core.store.release(index);
            return Some(Fired { key, deadline, missed: 0, value });
        }
        Some(self.beat(index, key))
    }

    /// Arms a periodic timer again.
    #[cold]
    fn beat(&mut self, index: u32, key: Key) -> Fired<T> {
        let &Timer { deadline, flags, .. } = self.core.store.timer(index);
        let period = self.core.store.period(index);
        let behind = self.core.now.saturating_sub(deadline);
        let missed = if behind < period { 0 } else { behind / period };
        let next = deadline.saturating_add(period.saturating_mul(missed.saturating_add(1)));
        self.core.store.timer_mut(index).deadline = next;
        self.core.file(index, next, flags, LATE);
        Fired { key, deadline, missed, value: None }
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
    if wheel.core.now <= now && now < wheel.core.next {
        wheel.core.now = now;
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
    wheel_of(host).core.go_on(now, limit.moves);
    let (mut expired, mut left) = (0, limit.expiries);
    while left > 0 {
        let Some(fired) = wheel_of(host).fire() else { break };
        // What was cancelled counts, too, so that a poll is short however many there are.
        left -= 1;
        expired += usize::from(call(host, wheel_of, fired, &mut callback));
    }
    let wheel = wheel_of(host);
    wheel.core.look_ahead();
    if wheel.core.next == 0 {
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
    } else if let Some(value) = wheel_of(host).core.store.lend(key) {
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
        let rest = (self.wheel_of)(self.host).core.store.give_back(self.key, value);
        drop(rest);
    }
}
