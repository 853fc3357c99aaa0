use std::sync::Arc;

use super::alarm::wakes_before;
use super::arm_error::ArmError;
use super::home::Home;
use super::record::{Occupied, Record};
use super::ring::Source;
use super::timer::SharedTimer;
use crate::timer::busted::{self, Variant};
use crate::timer::wheel::{Schedule, WheelStats};

/// A handle of a service for other threads, which makes timers and mailboxes. It can be cloned and shared.
///
/// ```
/// use stillpoint::timer::shared::TimerService;
/// use stillpoint::timer::Limit;
///
/// let mut service = TimerService::new(0);
/// let remote = service.remote();
/// std::thread::scope(|scope| {
///     for session in 0..2 {
///         let remote = remote.clone();
///         scope.spawn(move || {
///             let mut mailbox = remote.mailbox(64); // one for each thread, kept
///             mailbox.add(&remote.timer(), 10, session).expect("there is room");
///         });
///     }
/// });
/// assert_eq!(service.run(10, Limit::NONE, |_, _| {}).expired(), 2);
/// ```
pub struct Remote<T> {
    pub(super) home: Arc<Home<T>>,
}

impl<T> Remote<T> {
    /// A timer of this service, at rest.
    pub fn timer(&self) -> SharedTimer<T> {
        SharedTimer::new(&self.home)
    }

    /// The counts of the service's wheel, for any thread at any time: for a page of metrics. They are those of the owner's last
    /// [`process`](super::TimerService::process) or [`manage`](super::TimerService::manage) that has changed something; messages in
    /// mailboxes do not count. No timers once the service is gone.
    ///
    /// ```
    /// use stillpoint::timer::shared::TimerService;
    /// use stillpoint::timer::Limit;
    ///
    /// let mut service = TimerService::new(0);
    /// let remote = service.remote();
    /// remote.mailbox(4).add(&remote.timer(), 10, "idle")?;
    /// assert_eq!(remote.stats().timers, 0);
    /// let _ = service.run(0, Limit::NONE, |_, _| {});
    /// assert_eq!(remote.stats().timers, 1);
    /// drop(service);
    /// assert_eq!(remote.stats().timers, 0);
    /// # Ok::<(), stillpoint::timer::shared::ArmError<&str>>(())
    /// ```
    pub fn stats(&self) -> WheelStats {
        self.home.shown()
    }

    /// A mailbox with room for `capacity` timers that the service has not taken yet, rounded up to a power of two. For one
    /// thread; threads that keep nothing share a [`shared_mailbox`](Self::shared_mailbox).
    ///
    /// Allocates 8 bytes for each place at once. As in the standard library, the process aborts when there is no
    /// memory.
    ///
    /// # Panics
    /// If `capacity` is greater than 2³¹.
    #[track_caller]
    pub fn mailbox(&self, capacity: usize) -> Mailbox<T> {
        assert!(capacity <= 1 << 31, "a mailbox with {capacity} places is impossible: at most 2^31");
        let source = self.home.ring(capacity);
        let capacity = source.capacity();
        Mailbox { source: Some(source), capacity, home: Arc::clone(&self.home), earliest: u64::MAX }
    }
}

impl<T> Clone for Remote<T> {
    fn clone(&self) -> Self {
        Self { home: Arc::clone(&self.home) }
    }
}

stillpoint_sys::debug!([T] Remote<T> { .. });

/// A bounded ring through which one thread adds timers to the service of another. Neither thread waits.
///
/// Dropping the mailbox does not affect timers that were added. A timer that is added while the service is being closed
/// comes back with the error [`Gone`](ArmError::Gone), or its value goes where [`TimerService::close`] passes it. In a
/// service that was not made to [sleep](super::TimerService::sleeping), this thread may also see too late that the service
/// is gone: it then drops the value when it uses the mailbox again or drops it.
///
/// [`TimerService::close`]: super::TimerService::close
///
/// ```
/// use std::num::NonZeroU64;
/// use stillpoint::timer::shared::TimerService;
/// use stillpoint::timer::{Limit, Schedule};
///
/// let mut service = TimerService::new(0);
/// let mut mailbox = service.remote().mailbox(50);
/// assert_eq!(mailbox.capacity(), 64);
///
/// let probe = service.remote().timer();
/// let period = NonZeroU64::new(10).expect("not zero");
/// mailbox.add(&probe, Schedule::at(10).every(period), "probe")?;
/// assert_eq!(service.run(10, Limit::NONE, |_, _| {}).expired(), 1);
/// assert_eq!(service.run(20, Limit::NONE, |_, _| {}).expired(), 1);
/// assert!(probe.cancel().is_cancelled());
/// # Ok::<(), stillpoint::timer::shared::ArmError<&str>>(())
/// ```
pub struct Mailbox<T> {
    /// `None` once this thread has seen that the service is gone.
    source: Option<Source<T>>,
    capacity: usize,
    home: Arc<Home<T>>,
    /// The earliest deadline of messages that are not published yet, in a service that sleeps.
    earliest: u64,
}

impl<T> Mailbox<T> {
    /// Arms a timer of the mailbox's service. A number in place of a schedule is a deadline: see [`Schedule::at`]. The owner takes it into its wheel in
    /// its next [`process`](super::TimerService::process).
    ///
    /// A [delay](Schedule::after) begins at the time of the first [`manage`](super::TimerService::manage) that the owner calls after
    /// it has taken the message, and that comes to it within its [limit](crate::timer::Limit::expiries), so this thread needs no clock.
    ///
    /// # Errors
    /// [`ArmError`], with the value, when the timer is not armed.
    ///
    /// ```
    /// use stillpoint::timer::shared::{ArmError, TimerService};
    /// use stillpoint::timer::{Limit, Schedule};
    ///
    /// let mut service = TimerService::new(0);
    /// let mut mailbox = service.remote().mailbox(1);
    /// let (first, second) = (service.remote().timer(), service.remote().timer());
    /// mailbox.add(&first, 10, "first")?;
    /// assert_eq!(mailbox.add(&second, 20, "second"), Err(ArmError::Full("second")));
    /// assert_eq!(service.run(1_000, Limit::NONE, |_, _| {}).expired(), 1);
    ///
    /// mailbox.add(&second, Schedule::after(30), "idle")?;
    /// assert_eq!(service.run(1_001, Limit::NONE, |_, _| {}).expired(), 0); // the delay begins here
    /// assert_eq!(service.run(1_030, Limit::NONE, |_, _| {}).expired(), 0);
    /// assert_eq!(service.run(1_031, Limit::NONE, |_, _| {}).expired(), 1);
    /// # Ok::<(), ArmError<&str>>(())
    /// ```
    #[inline]
    pub fn add(
        &mut self,
        timer: &SharedTimer<T>,
        schedule: impl Into<Schedule>,
        value: T,
    ) -> Result<(), ArmError<T>> {
        let result = self.push(timer, schedule.into(), value);
        let is_gone = self.publish();
        let generation = result?;
        if is_gone {
            let value = timer.0.take_back(generation);
            self.leave();
            if let Some(value) = value {
                return Err(ArmError::Gone(value));
            }
        }
        Ok(())
    }

    /// Gives an armed timer another deadline in one operation; any thread may have armed it. The timer stays armed
    /// throughout, and keeps its value. A periodic timer goes on from the new deadline; a coarse timer stays coarse.
    /// Until the owner has seen the message, the timer does not fire. Only the deadline of `schedule` counts, or its delay,
    /// which begins as for [`add`](Self::add).
    ///
    /// # Errors
    /// [`ArmError::AtRest`] if the timer is not armed, or was cancelled meanwhile. `Busy` if its callback is
    /// running, or another thread is arming, resetting or revoking it. `Full`, `Gone` and `Foreign` as [`ArmError`]
    /// says. In each case, the timer is unchanged.
    ///
    /// ```
    /// use stillpoint::timer::shared::{ArmError, TimerService};
    /// use stillpoint::timer::{Limit, Schedule};
    ///
    /// let mut service = TimerService::new(0);
    /// let timer = service.remote().timer();
    /// service.arm(&timer, 10, "alive").expect("it is at rest");
    ///
    /// let mut mailbox = service.remote().mailbox(4);
    /// mailbox.reset(&timer, 25)?; // after traffic on the connection
    /// assert_eq!(service.run(24, Limit::NONE, |_, _| {}).expired(), 0);
    /// mailbox.reset(&timer, Schedule::after(10))?; // from the owner's next time on
    /// assert_eq!(service.run(25, Limit::NONE, |_, _| {}).expired(), 0);
    /// assert_eq!(service.run(35, Limit::NONE, |_, _| {}).expired(), 1);
    /// assert_eq!(mailbox.reset(&timer, 40), Err(ArmError::AtRest(())));
    /// # Ok::<(), stillpoint::timer::shared::ArmError<()>>(())
    /// ```
    pub fn reset(
        &mut self,
        timer: &SharedTimer<T>,
        schedule: impl Into<Schedule>,
    ) -> Result<(), ArmError<()>> {
        let schedule = schedule.into();
        let result = self.send(timer, schedule, (), |record, ()| {
            record.reset(schedule).map_err(|occupied| (occupied, ()))
        });
        if self.publish() {
            self.leave();
        }
        result
    }

    /// Publishes the pushed messages, and wakes the owner if it sleeps beyond the earliest of them. Returns whether the
    /// service is gone, so that the owner may not have seen them.
    #[inline]
    fn publish(&mut self) -> bool {
        let Some(source) = &mut self.source else { return true };
        let is_new = source.publish();
        // Even a message that wakes no owner needs the fence in `rouse`, before the look below.
        if self.home.bed.is_some() && (is_new || self.earliest != u64::MAX) {
            self.home.rouse(std::mem::replace(&mut self.earliest, u64::MAX));
        }
        source.is_closed() && !busted::is(Variant::GoneUnseen)
    }

    /// Gives up the ring of a service that is gone. The timers of messages that the owner has not taken end with the
    /// ring's second end.
    #[cold]
    fn leave(&mut self) {
        self.source = None;
    }

    /// Adds several timers, which is cheaper than one by one. The owner sees them together, when the burst is dropped
    /// or finds the mailbox full.
    ///
    /// ```
    /// use stillpoint::timer::shared::TimerService;
    ///
    /// let service = TimerService::new(0);
    /// let timers: Vec<_> = (0..32).map(|_| service.remote().timer()).collect();
    /// let mut mailbox = service.remote().mailbox(64);
    /// let mut burst = mailbox.burst();
    /// for (number, timer) in timers.iter().enumerate() {
    ///     burst.add(timer, 100, number)?;
    /// }
    /// drop(burst);
    /// # Ok::<(), stillpoint::timer::shared::ArmError<usize>>(())
    /// ```
    pub fn burst(&mut self) -> Burst<'_, T> {
        Burst { mailbox: self }
    }

    /// The number of timers that an empty mailbox has room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    #[inline]
    fn push(&mut self, timer: &SharedTimer<T>, schedule: Schedule, value: T) -> Result<u64, ArmError<T>> {
        self.send(timer, schedule, value, |record, value| record.arm(schedule, value, false))
    }

    /// Sends a message about a timer if `change` succeeds.
    #[inline]
    fn send<R, V>(
        &mut self,
        timer: &SharedTimer<T>,
        schedule: Schedule,
        value: V,
        change: impl FnOnce(&Record<T>, V) -> Result<R, (Occupied, V)>,
    ) -> Result<R, ArmError<V>> {
        let record = &timer.0;
        if !Arc::ptr_eq(record.home(), &self.home) {
            return Err(ArmError::Foreign(value));
        }
        let Some(source) = self.source.as_mut().filter(|source| !source.is_closed()) else {
            self.leave();
            return Err(ArmError::Gone(value));
        };
        // Room is checked first, since an arming cannot be undone.
        if !source.has_room() {
            // A burst's own messages may fill the ring: publish them and wake the owner, so that it makes room.
            self.earliest = 0;
            if self.publish() {
                self.leave();
                return Err(ArmError::Gone(value));
            }
            return Err(ArmError::Full(value));
        }
        let changed = change(record, value)?;
        source.push(Arc::clone(record));
        if self.home.bed.is_some() {
            self.earliest = self.earliest.min(wakes_before(schedule));
        }
        Ok(changed)
    }
}

stillpoint_sys::debug!([T] |this| Mailbox<T> { capacity: this.capacity(), .. });

/// Several additions that the owner sees together: see [`Mailbox::burst`]. If the service is closed meanwhile, it may not
/// see them: their values are then dropped with the burst, and their timers are [`Gone`](super::Outcome::Gone).
#[derive(Debug)]
#[must_use = "the owner sees the timers of a burst when the burst is dropped"]
pub struct Burst<'a, T> {
    mailbox: &'a mut Mailbox<T>,
}

impl<T> Burst<'_, T> {
    /// As [`Mailbox::add`].
    ///
    /// # Errors
    /// [`ArmError`], with the value, when the timer is not armed.
    #[inline]
    pub fn add(
        &mut self,
        timer: &SharedTimer<T>,
        schedule: impl Into<Schedule>,
        value: T,
    ) -> Result<(), ArmError<T>> {
        self.mailbox.push(timer, schedule.into(), value).map(drop)
    }
}

impl<T> Drop for Mailbox<T> {
    fn drop(&mut self) {
        // What a forgotten burst has pushed.
        self.publish();
    }
}

impl<T> Drop for Burst<'_, T> {
    fn drop(&mut self) {
        if self.mailbox.publish() {
            self.mailbox.leave();
        }
    }
}
