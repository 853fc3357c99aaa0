//! Wakes an owner that sleeps between its calls.
//!
//! A word holds the time until which the owner sleeps, or AWAKE. The thread that changes the word from a time to
//! ROUSING owns the alarm. That thread takes the alarm out, and then sets the word to AWAKE. The owner stores an alarm
//! only while the word is AWAKE.

#[cfg(unix)]
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::RefUnwindSafe;
#[cfg(unix)]
use std::sync::Arc;
use std::task::Waker;
use std::thread::Thread;

use crate::timer::busted::{self, Variant};
use crate::timer::orders;
use crate::timer::wheel::{Schedule, RELATIVE};
use stillpoint_sys::panics;
use stillpoint_sys::sync::atomic::{fence, AtomicU64, Ordering};
use stillpoint_sys::sync::UnsafeCell;

/// How to wake a service's thread that sleeps: see [`TimerService::sleep`](super::TimerService::sleep).
///
/// ```
/// use stillpoint::timer::shared::Alarm;
///
/// let alarm = Alarm::from(std::thread::current());
/// assert!(matches!(alarm, Alarm::Thread(_)));
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Alarm {
    /// Unparks the thread: a futex on Linux.
    Thread(Thread),
    /// Wakes a task. The waker is called within the call that arms, resets, revokes or cancels a timer, or drops a mailbox, also on
    /// the owner's own thread: so it cannot use the service at once. If it panics, the panic is discarded, and the call goes on.
    Task(Waker),
    /// Adds 1 to an eventfd, for threads that wait in `epoll`. Any other descriptor to which eight bytes can be written
    /// works as well, if it does not block. If the write fails because a pipe is full or a counter is at its maximum,
    /// there is something to read already.
    #[cfg(unix)]
    Event(Arc<OwnedFd>),
}

impl Alarm {
    /// A panic of a waker goes no further, as in the domains: it does not concern the thread that rings, which has armed a
    /// timer and returns its key, or an answer that only this call can give.
    pub(in crate::timer) fn ring(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            Self::Task(waker) => panics::catch(|| waker.wake()).unwrap_or_else(panics::discard),
            #[cfg(unix)]
            // An error means that there is something to read already, or that there is no reader.
            Self::Event(event) => {
                let one = 1u64.to_ne_bytes();
                // SAFETY: the descriptor is open, and the bytes can be read.
                unsafe { libc::write(event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
            }
        }
    }
}

impl From<Thread> for Alarm {
    fn from(thread: Thread) -> Self {
        Self::Thread(thread)
    }
}

impl From<Waker> for Alarm {
    fn from(waker: Waker) -> Self {
        Self::Task(waker)
    }
}

#[cfg(unix)]
impl From<Arc<OwnedFd>> for Alarm {
    fn from(event: Arc<OwnedFd>) -> Self {
        Self::Event(event)
    }
}

/// How long a service's thread may sleep: see [`TimerService::sleep`](super::TimerService::sleep).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "a thread that does not sleep has to run its service again"]
pub enum Sleep {
    /// The thread may not sleep: there is something to do, or another thread is waking it.
    Not,
    /// Until this time, in ticks of the wheel, or until the alarm wakes the thread.
    Until(u64),
    /// Until the alarm wakes the thread: there is no timer.
    Forever,
}

const AWAKE: u64 = 0;
const ROUSING: u64 = 1;
/// Earlier times are raised to this one, since smaller numbers are states. At worst the owner is woken in vain.
const FIRST: u64 = 2;

/// Whether the owner sleeps, and its alarm.
pub(super) struct Bed {
    until: AtomicU64,
    alarm: UnsafeCell<Option<Alarm>>,
}

// SAFETY: while the word is AWAKE, only the owner accesses the alarm. Otherwise, only the thread that has changed the
// word from a time accesses it: see `lie_down`, `rise` and `rouse_beyond`. Alarms can be sent.
unsafe impl Sync for Bed {}

// Unwind-safe, because the alarm is stored and taken as a whole.
impl RefUnwindSafe for Bed {}

stillpoint_sys::debug!(Bed { .. });

impl Bed {
    pub(super) fn new() -> Self {
        Self { until: AtomicU64::new(AWAKE), alarm: UnsafeCell::new(None) }
    }

    /// The owner announces that it will sleep; afterwards it checks for messages. Returns false if another thread is
    /// waking it.
    pub(super) fn lie_down(&self, until: u64, alarm: Alarm) -> bool {
        // Acquire: pairs with the release in `rouse_beyond`, which comes after the alarm was taken out.
        if self.until.load(Ordering::Acquire) != AWAKE {
            return false;
        }
        // SAFETY: the word is AWAKE, and only the owner, which calls this, changes it from AWAKE.
        self.alarm.with_mut(|place| unsafe { *place = Some(alarm) });
        self.until.store(until.max(FIRST), orders::sleep());
        if !busted::is(Variant::SleepUnfenced) {
            // SeqCst: pairs with the fence in `rouse`: either the owner sees the message, or the sender sees that the
            // owner sleeps.
            fence(Ordering::SeqCst);
        }
        true
    }

    /// The owner is awake.
    pub(super) fn rise(&self) {
        // Relaxed: the owner has stored the alarm itself.
        let until = self.until.load(Ordering::Relaxed);
        let is_mine = until >= FIRST
            // Relaxed, both: the owner has stored the alarm itself.
            && self.until.compare_exchange(until, AWAKE, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_mine {
            // SAFETY: this thread changed the word from a time, so only it accesses the alarm.
            let alarm = self.alarm.with_mut(|place| unsafe { (*place).take() });
            drop(alarm);
        }
    }

    /// Wakes the owner if it sleeps beyond `deadline`. Called after a message, or by the owner itself.
    pub(super) fn rouse_beyond(&self, deadline: u64) {
        // Relaxed: the fence in `rouse` orders this load, and the exchange is an acquire. The owner finds the time that
        // it has stored itself, unless another thread has changed it.
        let mut until = self.until.load(Ordering::Relaxed);
        while until >= FIRST && deadline < until {
            match self.until.compare_exchange(until, ROUSING, orders::rouse(), Ordering::Relaxed) {
                Ok(_) => {
                    // SAFETY: this thread changed the word from a time, so only it accesses the alarm.
                    let alarm = self.alarm.with_mut(|place| unsafe { (*place).take() });
                    self.until.store(AWAKE, orders::roused());
                    if let Some(alarm) = alarm {
                        alarm.ring();
                    }
                    return;
                }
                Err(other) => until = other,
            }
        }
    }

    #[inline]
    pub(super) fn rouse(&self, deadline: u64) {
        self.rouse_if(deadline, || true);
    }

    /// As [`rouse`](Bed::rouse), if `is_message` then finds that it was one.
    #[inline]
    pub(super) fn rouse_if(&self, deadline: u64, is_message: impl FnOnce() -> bool) {
        if !busted::is(Variant::PostUnfenced) {
            // SeqCst: pairs with the fence in `lie_down`: either the owner sees the message, or this thread sees that
            // the owner sleeps.
            fence(Ordering::SeqCst);
        }
        if is_message() {
            self.rouse_beyond(deadline);
        }
    }
}

/// An owner that sleeps until this time, or earlier, need not be woken when a timer is armed. Only the owner can compute
/// the deadline of a delay, so a delay always wakes it. A deadline of `u64::MAX` wakes no owner.
#[inline]
pub(super) fn wakes_before(schedule: Schedule) -> u64 {
    if schedule.flags & RELATIVE == 0 {
        schedule.deadline
    } else {
        0
    }
}
