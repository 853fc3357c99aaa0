//! Polls, and expiries.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::expired::{Expired, Limit, Popped, Progress};
use super::lent::Lent;
use super::level::{LATE, READY};
use super::moves::MOVES;
use super::schedule::PERIODIC;
use super::slab::Timer;
use super::{Key, Wheel};

/// A timer that fires.
struct Fired {
    key: Key,
    deadline: u64,
    missed: u64,
    /// Whether the timer does not fire again. Its place is then freed as its value is taken.
    is_over: bool,
}

impl<T> Wheel<T> {
    /// Sets the time, and fires the timers that are due: calls `callback` with the wheel, and with each timer.
    ///
    /// The callback may do anything with the wheel: cancel other due timers, which then do not fire, add timers, or
    /// poll. If it adds a timer that is already due, that timer fires in the next poll, so a poll always ends.
    /// [`Progress::More`] says that there is such a timer. (A call of `poll` or `advance` in the callback counts as the
    /// next poll. A callback that adds due timers *and* polls each time keeps the outer poll going until its `limit`.)
    ///
    /// A periodic timer is armed again before the callback, and its value is lent to the callback. If the callback
    /// cancels its own timer, [`cancel`](Self::cancel) returns `None`, since the timer has fired; the value is dropped
    /// after the callback.
    ///
    /// The callback may also put another wheel in the place of this one (`mem::swap`). The poll then goes on with that
    /// wheel, whose time it does not advance. If the callback is that of a periodic timer, the timer ends with it: its value
    /// is dropped, and its wheel forgets it when its next beat is due.
    ///
    /// Timers that were due when they were added fire first; then exact timers fire before
    /// [coarse](super::Schedule::coarse) timers. Exact timers fire by deadline if their slots do not overlap. Those
    /// with the same deadline fire in the order in which they were armed, if all polls since have finished. Coarse
    /// timers fire by the granularity of their slots, then by slot. In a poll that stops at its limit of
    /// [moves](Limit::moves), and until a later poll has finished, timers fire in no particular order.
    ///
    /// If `now` is before the last time, the last time is used, and
    /// [`WheelStats::time_went_back`](super::WheelStats::time_went_back) counts the poll.
    ///
    /// Complexity: constant when no slot has been reached. Otherwise proportional to the occupied slots that were
    /// reached, 2,112 at most, and to the timers that are moved and that fire, which `limit` bounds. It does not depend
    /// on the time that has passed.
    ///
    /// # Panics
    /// With the panic of the callback. The wheel stays valid, and timers that have not fired fire in the next poll. A
    /// periodic timer whose callback panics stays armed.
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

    /// Sets the time, for [`pop`](Self::pop). Timers that were reached are due from now on. Nothing fires by itself.
    ///
    /// A timer that is added after this call, and is due already, can be popped after the next advance. Time that goes
    /// back is handled as in [`poll`](Self::poll).
    ///
    /// Complexity: that of a poll with [`Limit::expiries(64)`](Limit::expiries), without the expiries: moves at most 64
    /// timers for each [level in use](super::WheelStats::levels).
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
    /// `None` means that no timer is known to be due. [`next_deadline`](Self::next_deadline) is the present time all the same if there are more
    /// timers to move than one call moves, or if one was due already when it was added. Another `pop` serves only the first kind, an
    /// [`advance`](Self::advance) to the same time serves both: a loop that pops until `next_deadline` changes, and does not advance, may not end.
    ///
    /// Complexity: constant when a timer is ready; otherwise moves at most 64 timers for each [level in
    /// use](super::WheelStats::levels).
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
        let Fired { key, deadline, missed, is_over } = fired?;
        let value = if is_over { self.core.store.release(key) } else { None };
        Some(Popped { key, deadline, missed, value })
    }

    /// Takes the first ready timer out of a wheel that has no periodic timers.
    #[cfg(feature = "delay-queue")]
    #[inline]
    pub(crate) fn take_ready(&mut self) -> Option<super::Taken<T>> {
        let Fired { key, deadline, .. } = self.fire()?;
        let value = self.core.store.release(key)?;
        Some(super::Taken { key, deadline, value })
    }

    /// Takes the first ready timer; a periodic one is armed again.
    #[inline]
    fn fire(&mut self) -> Option<Fired> {
        let index = self.core.store.lists.pop(READY)?;
        let key = self.core.store.key(index);
        let &Timer { deadline, flags, .. } = self.core.store.timer(index);
        // After a deadline of `u64::MAX` there is no next beat.
        if flags & PERIODIC == 0 || deadline == u64::MAX {
            return Some(Fired { key, deadline, missed: 0, is_over: true });
        }
        Some(self.beat(index, key))
    }

    /// Arms a periodic timer again, unless its value is lost.
    #[cold]
    fn beat(&mut self, index: u32, key: Key) -> Fired {
        let &Timer { deadline, flags, .. } = self.core.store.timer(index);
        if self.core.store.is_lost(index) {
            return Fired { key, deadline, missed: 0, is_over: true };
        }
        let period = self.core.store.period(index);
        let behind = self.core.now.saturating_sub(deadline);
        let missed = if behind < period { 0 } else { behind / period };
        let next = deadline.saturating_add(period.saturating_mul(missed.saturating_add(1)));
        self.core.store.timer_mut(index).deadline = next;
        self.core.file(index, next, flags, LATE);
        Fired { key, deadline, missed, is_over: false }
    }
}

/// [`Wheel::poll`] for a wheel that belongs to `host`, which is passed to the callback in place of the wheel. The
/// callback returns false if the timer did not fire because it was cancelled.
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

/// A separate function, so that `poll_within` is short enough to be inlined.
#[inline(never)]
fn serve<H, T>(
    host: &mut H,
    wheel_of: impl Fn(&mut H) -> &mut Wheel<T> + Copy,
    now: u64,
    limit: Limit,
    mut callback: impl FnMut(&mut H, Expired<'_, T>) -> bool,
) -> Progress {
    let wheel = wheel_of(host);
    wheel.core.go_on(now, limit.moves);
    let (mut expired, mut left, mut lost) = (0, limit.expiries, None);
    while left > 0 {
        let Some(fired) = wheel_of(host).fire() else { break };
        // Cancelled timers count, too, so that many of them do not make a poll long.
        left -= 1;
        expired += usize::from(call(host, wheel_of, fired, &mut lost, &mut callback));
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
    fired: Fired,
    lost: &mut Option<Arc<AtomicUsize>>,
    callback: &mut impl FnMut(&mut H, Expired<'_, T>) -> bool,
) -> bool {
    let Fired { key, deadline, missed, is_over } = fired;
    let store = &mut wheel_of(host).core.store;
    if is_over {
        let Some(value) = store.release(key) else { return false };
        return callback(host, Expired { key, deadline, missed, value: Lent::Given(value) });
    }
    // Usually that of the beat before: another reference to it would be two atomic read-modify-writes.
    let lost = match lost.take().filter(|before| Arc::ptr_eq(before, &store.lost)) {
        Some(before) => lost.insert(before),
        None => lost.insert(Arc::clone(&store.lost)),
    };
    if let Some(value) = store.lend(key) {
        let mut lending = Lending { host, wheel_of, key, lost, value: Some(value) };
        let Lending { host, value: Some(value), .. } = &mut lending else { return false };
        callback(host, Expired { key, deadline, missed, value: Lent::Lent(value) })
    } else {
        false
    }
}

/// Gives the value of a periodic timer back after its callback, even after a panic. If the callback has put another wheel
/// in the place of the timer's own, the value is dropped, and the timer is over.
struct Lending<'a, H, T, W: Fn(&mut H) -> &mut Wheel<T>> {
    host: &'a mut H,
    wheel_of: W,
    key: Key,
    /// That of the timer's wheel.
    lost: &'a Arc<AtomicUsize>,
    value: Option<T>,
}

impl<H, T, W: Fn(&mut H) -> &mut Wheel<T>> Drop for Lending<'_, H, T, W> {
    fn drop(&mut self) {
        let Some(value) = self.value.take() else { return };
        let store = &mut (self.wheel_of)(self.host).core.store;
        if Arc::ptr_eq(&store.lost, self.lost) {
            drop(store.give_back(self.key, value));
        } else {
            // Relaxed: only a count; see `Slab::is_lost`.
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}
