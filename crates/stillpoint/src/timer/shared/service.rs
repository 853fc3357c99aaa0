use std::sync::Arc;

use super::alarm::Bed;
use super::arm_error::ArmError;
use super::entry::{has_room_for, local, take_in, Entry};
use super::home::{Hints, Home};
use super::mailbox::Remote;
use super::rest::Rest;
use super::ring::Sink;
use super::timer::SharedTimer;
use crate::timer::busted::{self, Variant};
use crate::timer::wheel::{Full, Key, Schedule, Wheel, WheelStats};
use stillpoint_sys::sync::atomic::{fence, Ordering};

/// A [`Wheel`] for one thread, with timers that other threads can add and cancel.
///
/// The thread is the *owner* of the service. It calls [`run`](Self::run) often, or calls separately
/// [`process`](Self::process), which takes messages of other threads, and [`manage`](Self::manage), which fires due
/// timers. No other call does any work, and no clock is read. A thread may have several services. In a `Mutex`, any thread that gets
/// the lock (by `try_lock`) is the owner for as long as it has it. [`Remote::stats`] takes no lock.
///
/// Timers of the thread itself are as cheap as those of a bare wheel. Timers that another thread adds or cancels are
/// [`SharedTimer`]s.
///
/// When the service is dropped, its timers' values are dropped, and its shared timers are [`Gone`](super::Outcome::Gone);
/// [`close`](Self::close) hands the values out instead.
///
/// ```
/// use stillpoint::timer::shared::TimerService;
/// use stillpoint::timer::Limit;
///
/// let mut service = TimerService::new(0);
/// service.add(10, "of this thread")?;
///
/// let remote = service.remote();
/// std::thread::spawn(move || {
///     let mut mailbox = remote.mailbox(64); // one for each thread, kept
///     mailbox.add(&remote.timer(), 20, "of another").expect("there is room");
/// }).join().unwrap();
///
/// let mut fired = Vec::new();
/// let progress = service.run(30, Limit::NONE, |_, event| fired.extend(event.into_value()));
/// assert!(progress.is_done());
/// assert_eq!(fired, ["of this thread", "of another"]);
/// # Ok::<(), stillpoint::timer::Full<&str>>(())
/// ```
///
/// With the two calls, a limit, and the end of the service:
///
/// ```
/// use stillpoint::timer::shared::TimerService;
/// use stillpoint::timer::{Limit, Schedule};
///
/// let mut service = TimerService::with_max_len(0, 1_000);
/// service.add(Schedule::after(30), "keepalive")?;
/// let idle = service.remote().timer();
/// service.arm(&idle, Schedule::at(20).coarse(), "idle").expect("it is at rest");
///
/// let taken = service.process(64, |_, revoked| drop(revoked)); // takes at most 64 messages
/// assert!(taken.is_done());
/// assert_eq!(service.manage(25, Limit::expiries(64), |_, _| {}).expired(), 1);
///
/// let mut open = Vec::new();
/// service.close(|value| open.push(value));
/// assert_eq!(open, ["keepalive"]);
/// # Ok::<(), stillpoint::timer::Full<&str>>(())
/// ```
pub struct TimerService<T> {
    pub(super) wheel: Wheel<Entry<T>>,
    pub(super) home: Arc<Home<T>>,
    pub(super) sinks: Vec<Sink<T>>,
    /// The index of the ring that the next call begins with, so that a full ring cannot starve the others.
    pub(super) turn: usize,
    pub(super) hints: Hints<T>,
    /// Whether hints get the larger half of an odd limit this time.
    pub(super) favour: bool,
    /// Whether the last call was `sleep`.
    pub(super) asleep: bool,
}

impl<T> TimerService<T> {
    /// A service at the time `now`. Its wheel takes memory as timers are added.
    pub fn new(now: u64) -> Self {
        Self::with_wheel(Wheel::new(now))
    }

    /// A service with memory for `capacity` timers, which grows beyond that.
    ///
    /// # Panics
    /// If `capacity` is greater than 2³² − 2,177, or if that many timers would take more than half of the address space.
    pub fn with_capacity(now: u64, capacity: usize) -> Self {
        Self::with_wheel(Wheel::with_capacity(now, capacity))
    }

    /// A service with room for at most `max_len` timers. Messages that the wheel has no room for stay in the mailboxes,
    /// until these are full, too.
    ///
    /// # Panics
    /// If `max_len` is greater than 2³² − 2,177, or if that many timers would take more than half of the address space.
    pub fn with_max_len(now: u64, max_len: usize) -> Self {
        Self::with_wheel(Wheel::with_max_len(now, max_len))
    }

    fn with_wheel(wheel: Wheel<Entry<T>>) -> Self {
        let home = Arc::new(Home::new());
        Self {
            wheel,
            home,
            sinks: Vec::new(),
            turn: 0,
            hints: Hints::default(),
            favour: false,
            asleep: false,
        }
    }

    /// Makes the service ready for a thread that [sleeps](Self::sleep) between its calls. Each message, or each burst
    /// of messages, costs its sender one more fence.
    ///
    /// # Panics
    /// If [`remote`](Self::remote) was called before, so that other threads can already reach this service.
    #[track_caller]
    pub fn sleeping(mut self) -> Self {
        let Some(home) = Arc::get_mut(&mut self.home) else {
            panic!("call `sleeping` before `remote`: senders must know that the service sleeps")
        };
        home.bed = Some(Bed::new());
        self
    }

    /// A handle with which other threads reach this service.
    pub fn remote(&self) -> Remote<T> {
        Remote { home: Arc::clone(&self.home) }
    }

    /// The time of the last [`manage`](Self::manage).
    #[inline]
    pub fn now(&self) -> u64 {
        self.wheel.now()
    }

    /// The counts of the wheel, including shared timers that it has taken in. For other threads: [`Remote::stats`].
    ///
    /// ```
    /// use stillpoint::timer::shared::TimerService;
    ///
    /// let service = TimerService::<()>::with_capacity(0, 1_000);
    /// assert_eq!((service.stats().timers, service.stats().capacity), (0, 1_000));
    /// ```
    pub fn stats(&self) -> WheelStats {
        self.wheel.stats()
    }

    /// When to call [`manage`](Self::manage) next; see [`Wheel::next_deadline`]. Messages in the mailboxes are not
    /// included.
    pub fn next_deadline(&self) -> Option<u64> {
        self.wheel.next_deadline()
    }

    /// The earliest deadline of all timers that the wheel has taken in; see [`Wheel::earliest_deadline`] for its cost. A timer whose delay has
    /// not begun is due, at 0.
    ///
    /// ```
    /// use stillpoint::timer::shared::TimerService;
    ///
    /// let mut service = TimerService::new(0);
    /// service.add(5_000, ())?;
    /// assert_eq!(service.earliest_deadline(), Some(5_000));
    /// # Ok::<(), stillpoint::timer::Full<()>>(())
    /// ```
    pub fn earliest_deadline(&self) -> Option<u64> {
        self.wheel.earliest_deadline()
    }

    /// Sets the time of the wheel, also to an earlier one; see [`Wheel::set_time`].
    ///
    /// ```
    /// use stillpoint::timer::shared::TimerService;
    /// use stillpoint::timer::Limit;
    ///
    /// let mut service = TimerService::<()>::new(0);
    /// let _ = service.run(u64::MAX, Limit::NONE, |_, _| {}); // a wrong time from a broken clock
    /// service.set_time(50);
    /// assert_eq!(service.now(), 50);
    /// ```
    pub fn set_time(&mut self, now: u64) {
        self.wheel.set_time(now);
        self.rouse(0);
    }

    /// Rings the alarm of this thread's own sleep if that lasts beyond `deadline`. A task, or a loop around `epoll`, may
    /// arm timers after it has said how long it will sleep.
    #[inline]
    pub(super) fn rouse(&mut self, deadline: u64) {
        if self.asleep {
            self.home.rouse_owner(deadline);
        }
    }

    /// Frees memory that no timer needs; see [`Wheel::shrink`].
    ///
    /// ```
    /// use stillpoint::timer::shared::TimerService;
    ///
    /// let mut service = TimerService::<()>::with_capacity(0, 100_000);
    /// service.shrink();
    /// assert_eq!(service.stats().capacity, 0);
    /// ```
    pub fn shrink(&mut self) {
        self.wheel.shrink();
        self.sinks.shrink_to_fit();
    }

    /// Adds a timer of this thread; see [`Wheel::add`]. A delay begins at the time of the last [`manage`](Self::manage).
    ///
    /// # Errors
    /// [`Full`], with the value, when there is no room.
    #[inline]
    pub fn add(&mut self, schedule: impl Into<Schedule>, value: T) -> Result<Key, Full<T>> {
        let schedule = schedule.into().resolved(self.now());
        let key = self.wheel.add(schedule, Entry::Local(value)).map_err(local)?;
        self.rouse(schedule.deadline);
        Ok(key)
    }

    /// Cancels a timer of this thread; see [`Wheel::cancel`].
    #[inline]
    pub fn cancel(&mut self, key: Key) -> Option<T> {
        // The keys of shared timers' entries are never given out, but a caller may invent one. While the timer's own callback
        // runs, its entry is cancelled, and the present beat is the last.
        self.wheel.cancel_if(key, |entry| matches!(entry, Entry::Local(_))).and_then(Entry::into_local)
    }

    /// Gives a timer of this thread another deadline; see [`Wheel::reset`].
    #[inline]
    pub fn reset(&mut self, key: Key, deadline: u64) -> bool {
        let was_reset =
            !matches!(self.wheel.get(key), Some(Entry::Shared(..))) && self.wheel.reset(key, deadline);
        if was_reset {
            self.rouse(deadline);
        }
        was_reset
    }

    /// Arms a shared timer from the owner's thread, without a mailbox. The timer's own callback may do so, too, unless
    /// a cancellation has returned [`Running`](super::Outcome::Running) meanwhile. A delay begins as that of [`add`](Self::add).
    ///
    /// # Errors
    /// [`ArmError`], with the value, when the timer is not armed.
    pub fn arm(
        &mut self,
        timer: &SharedTimer<T>,
        schedule: impl Into<Schedule>,
        value: T,
    ) -> Result<(), ArmError<T>> {
        let schedule = schedule.into().resolved(self.now());
        let record = &timer.0;
        if !Arc::ptr_eq(record.home(), &self.home) {
            return Err(ArmError::Foreign(value));
        }
        // Room is checked first, since an arming cannot be undone.
        if !has_room_for(&mut self.wheel, record) {
            return Err(ArmError::Full(value));
        }
        record.arm(schedule, value, true)?;
        take_in(&mut self.wheel, timer.clone());
        self.rouse(schedule.deadline);
        Ok(())
    }

    /// Gives an armed shared timer another deadline, from the owner's thread: as
    /// [`Mailbox::reset`](super::Mailbox::reset), but without a mailbox.
    ///
    /// # Errors
    /// As [`Mailbox::reset`](super::Mailbox::reset).
    ///
    /// ```
    /// use stillpoint::timer::shared::TimerService;
    /// use stillpoint::timer::Limit;
    ///
    /// let mut service = TimerService::new(0);
    /// let timer = service.remote().timer();
    /// service.arm(&timer, 10, "alive").expect("it is at rest");
    /// service.reset_shared(&timer, 20)?;
    /// assert_eq!(service.run(19, Limit::NONE, |_, _| {}).expired(), 0);
    /// assert_eq!(service.run(20, Limit::NONE, |_, _| {}).expired(), 1);
    /// # Ok::<(), stillpoint::timer::shared::ArmError<()>>(())
    /// ```
    pub fn reset_shared(&mut self, timer: &SharedTimer<T>, deadline: u64) -> Result<(), ArmError<()>> {
        let record = &timer.0;
        if !Arc::ptr_eq(record.home(), &self.home) {
            return Err(ArmError::Foreign(()));
        }
        // Room is checked first, since a reset cannot be undone.
        if !has_room_for(&mut self.wheel, record) {
            return Err(ArmError::Full(()));
        }
        record.reset(Schedule::at(deadline)).map_err(|occupied| (occupied, ()))?;
        take_in(&mut self.wheel, timer.clone());
        self.rouse(deadline);
        Ok(())
    }

    /// Closes the service, and passes the values of all its timers to `values`, in no order. Its shared timers are then
    /// [`Gone`](super::Outcome::Gone). A value that is lent to a callback, which has moved this service away, is dropped after the
    /// callback.
    ///
    /// # Panics
    /// With the panic of `values`. The remaining values are dropped, and their timers are gone, too.
    pub fn close(mut self, mut values: impl FnMut(T)) {
        self.shut(&mut values);
    }

    fn shut(&mut self, values: &mut dyn FnMut(T)) {
        self.sinks.extend(self.home.close_rings());
        // All rings are closed first, so that senders see from now on that the service is gone.
        self.sinks.iter().for_each(Sink::close);
        if !busted::is(Variant::CloseUnfenced) {
            // SeqCst: pairs with the fence in `Bed::rouse`: either the messages below include a sender's, or the sender
            // sees that the ring is closed.
            fence(Ordering::SeqCst);
        }
        let hints = [std::mem::take(&mut self.hints), self.home.close_hints()];
        Rest::new(std::mem::take(&mut self.sinks), hints, self.wheel.drain()).by_ref().for_each(values);
        // Others that know the service would keep its alarm.
        self.wake_up();
        self.home.show(WheelStats::default());
    }
}

impl<T> Drop for TimerService<T> {
    fn drop(&mut self) {
        self.shut(&mut drop);
    }
}

stillpoint_sys::debug!([T] |this| TimerService<T> { wheel: this.wheel, .. });
