use std::sync::{Mutex, TryLockError};

use crossbeam_utils::CachePadded;

use super::arm_error::ArmError;
use super::mailbox::{Mailbox, Remote};
use super::timer::SharedTimer;
use crate::timer::wheel::Schedule;
use stillpoint_sys::os;

/// A mailbox that threads share: for pools of threads, which then need no thread-local variable.
///
/// It has a [`Mailbox`] or two for each processor, from 4 to 64, each under a mutex, which is only tried: a thread that finds its own
/// one taken uses the next. So no call waits for another thread. An [`add`](Self::add) costs an uncontended lock more than that of a
/// mailbox of one's own.
///
/// What a [`Mailbox`] does when its service is gone, each of them does when it is used the next time, or when this is dropped: a
/// destructor of a value may then run in a call of any thread.
///
/// ```
/// use stillpoint::timer::shared::TimerService;
/// use stillpoint::timer::Limit;
///
/// let mut service = TimerService::new(0);
/// let remote = service.remote();
/// let mailbox = remote.shared_mailbox(1024);
/// std::thread::scope(|scope| {
///     for session in 0..4 {
///         let (remote, mailbox) = (&remote, &mailbox);
///         scope.spawn(move || mailbox.add(&remote.timer(), 10, session).expect("there is room"));
///     }
/// });
/// assert_eq!(service.run(10, Limit::NONE, |_, _| {}).expired(), 4);
/// ```
pub struct SharedMailbox<T> {
    /// Of all of them.
    capacity: usize,
    mailboxes: Box<[CachePadded<Mutex<Mailbox<T>>>]>,
}

impl<T> Remote<T> {
    /// A mailbox for any number of threads, with room for at least `capacity` timers that the service has not taken yet.
    ///
    /// Allocates 8 bytes for each place at once. As in the standard library, the process aborts when there is no memory.
    ///
    /// # Panics
    /// If `capacity` is greater than 2³¹.
    ///
    /// ```
    /// use stillpoint::timer::shared::TimerService;
    ///
    /// let service = TimerService::<&str>::new(0);
    /// let mailbox = service.remote().shared_mailbox(100);
    /// assert!(mailbox.capacity() >= 100);
    /// ```
    #[track_caller]
    pub fn shared_mailbox(&self, capacity: usize) -> SharedMailbox<T> {
        assert!(capacity <= 1 << 31, "a mailbox with {capacity} places is impossible: at most 2^31");
        let count = std::thread::available_parallelism().map_or(4, |count| (2 * count.get()).clamp(4, 64));
        let mailboxes: Vec<_> = (0..count).map(|_| self.mailbox(capacity.div_ceil(count))).collect();
        SharedMailbox {
            capacity: mailboxes.iter().map(Mailbox::capacity).sum(),
            mailboxes: mailboxes.into_iter().map(|mailbox| CachePadded::new(Mutex::new(mailbox))).collect(),
        }
    }
}

impl<T> SharedMailbox<T> {
    /// As [`Mailbox::add`], from any thread.
    ///
    /// # Errors
    /// [`ArmError`], with the value, when the timer is not armed. `Full` if no place is free, except in mailboxes that other threads
    /// are in at this moment: in all of them, if as many threads were preempted there, or wait in [alarms](super::Alarm). Then another
    /// attempt succeeds when one of them has gone on.
    ///
    /// ```
    /// use stillpoint::timer::shared::{ArmError, TimerService};
    ///
    /// let service = TimerService::new(0);
    /// let remote = service.remote();
    /// let mailbox = remote.shared_mailbox(1);
    /// for _ in 0..mailbox.capacity() {
    ///     mailbox.add(&remote.timer(), 10, "session")?;
    /// }
    /// assert_eq!(mailbox.add(&remote.timer(), 10, "late"), Err(ArmError::Full("late")));
    /// # Ok::<(), ArmError<&str>>(())
    /// ```
    pub fn add(
        &self,
        timer: &SharedTimer<T>,
        schedule: impl Into<Schedule>,
        value: T,
    ) -> Result<(), ArmError<T>> {
        let schedule = schedule.into();
        self.send(value, |mailbox, value| mailbox.add(timer, schedule, value))
    }

    /// As [`Mailbox::reset`], from any thread.
    ///
    /// # Errors
    /// As [`Mailbox::reset`].
    ///
    /// ```
    /// use stillpoint::timer::shared::{ArmError, TimerService};
    ///
    /// let service = TimerService::new(0);
    /// let (timer, mailbox) = (service.remote().timer(), service.remote().shared_mailbox(16));
    /// assert_eq!(mailbox.reset(&timer, 20), Err(ArmError::AtRest(())));
    /// mailbox.add(&timer, 10, "session").expect("there is room");
    /// mailbox.reset(&timer, 20)?; // after traffic
    /// # Ok::<(), ArmError<()>>(())
    /// ```
    pub fn reset(&self, timer: &SharedTimer<T>, schedule: impl Into<Schedule>) -> Result<(), ArmError<()>> {
        let schedule = schedule.into();
        self.send((), |mailbox, ()| mailbox.reset(timer, schedule))
    }

    /// The number of timers that it has room for while it is empty.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    fn send<V>(
        &self,
        mut value: V,
        send: impl Fn(&mut Mailbox<T>, V) -> Result<(), ArmError<V>>,
    ) -> Result<(), ArmError<V>> {
        let (first, count) = (os::thread_number() as usize, self.mailboxes.len());
        for number in 0..count {
            let mut mailbox = match self.mailboxes[first.wrapping_add(number) % count].try_lock() {
                Ok(mailbox) => mailbox,
                // A value's destructor has panicked, since the service is gone: the mailbox knows.
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // By another thread, or by this one: an alarm that rings in `add` may add a timer.
                Err(TryLockError::WouldBlock) => continue,
            };
            match send(&mut mailbox, value) {
                Err(ArmError::Full(unused)) => value = unused,
                result => return result,
            }
        }
        Err(ArmError::Full(value))
    }
}

stillpoint_sys::debug!([T] |this| SharedMailbox<T> { capacity: this.capacity, .. });
