use core::num::NonZeroU64;

/// When and how a timer fires: see [`Wheel::add`](super::Wheel::add). A number is a deadline, as for [`at`](Schedule::at).
///
/// ```
/// use std::num::NonZeroU64;
/// use stillpoint::timer::{Schedule, Wheel};
///
/// let mut wheel = Wheel::new(0);
/// let second = NonZeroU64::new(1_000_000_000).expect("not zero");
/// wheel.add(Schedule::at(second.get()).every(second), "tick")?;
/// wheel.add(Schedule::at(30 * second.get()).coarse(), "idle connection")?;
/// # Ok::<(), stillpoint::timer::Full<&str>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "a schedule does nothing until a timer is added with it"]
pub struct Schedule {
    pub(crate) deadline: u64,
    pub(crate) period: Option<NonZeroU64>,
    pub(crate) flags: u32,
}

/// The timer may be late by up to 8/63 of its delay, and is never moved.
pub(crate) const COARSE: u32 = 1;
/// The timer is armed again when it fires.
pub(crate) const PERIODIC: u32 = 2;
/// `deadline` is a delay.
pub(crate) const RELATIVE: u32 = 4;
/// The value is lent to a callback: a flag of the timer, not of a schedule.
pub(crate) const LENT: u32 = 8;

impl Schedule {
    /// Fires once, at `deadline`, in the wheel's ticks. A deadline that is not in the future is due at once.
    #[inline]
    pub fn at(deadline: u64) -> Self {
        Self { deadline, period: None, flags: 0 }
    }

    /// Fires once, `delay` ticks after the time of the wheel, at `u64::MAX` at the latest. For a timer that is sent
    /// through a [`Mailbox`](crate::timer::shared::Mailbox), the delay begins at the first
    /// [`manage`](crate::timer::shared::TimerService::manage) that comes to it within its [limit](super::Limit::expiries) after the owner has taken
    /// the message, at the time that is passed there. So the timer is not early, even if the owner sleeps; it is late by the time that
    /// the message took. But [`run`](crate::timer::shared::TimerService::run) is given its time before it takes messages: the timer may be early by what has passed
    /// since its caller read the clock. Where that matters, call `process`, read the clock, and call `manage`.
    ///
    /// ```
    /// use stillpoint::timer::{Schedule, Wheel};
    ///
    /// let mut wheel = Wheel::new(100);
    /// let key = wheel.add(Schedule::after(50), "later")?;
    /// assert_eq!(wheel.deadline(key), Some(150));
    /// # Ok::<(), stillpoint::timer::Full<&str>>(())
    /// ```
    #[inline]
    pub fn after(delay: u64) -> Self {
        Self { deadline: delay, period: None, flags: RELATIVE }
    }

    /// Replaces a delay, which begins at `now`, with a deadline.
    #[inline]
    pub(crate) fn resolved(self, now: u64) -> Self {
        if self.flags & RELATIVE == 0 {
            return self;
        }
        Self { deadline: now.saturating_add(self.deadline), flags: self.flags & !RELATIVE, ..self }
    }

    /// Makes the timer periodic: it fires again after each `period`. Each firing is a *beat*. Periods count from the
    /// deadline, so beats do not drift. Missed beats are skipped, and [counted](super::Expired::missed).
    #[inline]
    pub fn every(self, period: NonZeroU64) -> Self {
        Self { period: Some(period), flags: self.flags | PERIODIC, ..self }
    }

    /// Makes the timer coarse: it may fire late, by up to 8/63 of its delay (about an eighth), and is never moved
    /// between addition and expiry. For timeouts that are nearly always cancelled. A coarse timer is never early. With
    /// a delay below 63 ticks, it is exact. If it is so near to `u64::MAX` that there is no later slot, it is an exact
    /// timer, which may be moved.
    ///
    /// The delay counts from the wheel's time, that of its last poll or advance: after a sleep, call [`advance`](super::Wheel::advance) before you
    /// add, or part of the sleep counts as delay. A service takes messages at the time of its last
    /// [`manage`](crate::timer::shared::TimerService::manage): after a sleep, call that before `run` or `process`.
    #[inline]
    pub fn coarse(self) -> Self {
        Self { flags: self.flags | COARSE, ..self }
    }
}

impl From<u64> for Schedule {
    #[inline]
    fn from(deadline: u64) -> Self {
        Self::at(deadline)
    }
}
