//! How an owner that sleeps between its calls is woken.
//!
//! A word says until when the owner sleeps, or that it is awake. Whoever changes the word from a time to ROUSING owns the alarm, and
//! sets the word to AWAKE when the place of the alarm is empty again. The owner puts an alarm there only while it is awake.

use std::fmt;
#[cfg(unix)]
use std::os::fd::OwnedFd;
use std::panic::RefUnwindSafe;
#[cfg(unix)]
use std::sync::Arc;
use std::task::Waker;
use std::thread::Thread;

use crate::timer::busted::{self, Variant};
use crate::timer::orders;
use stillpoint_sys::sync::atomic::{fence, AtomicU64, Ordering};
use stillpoint_sys::sync::UnsafeCell;

/// How a service's thread is woken when it sleeps: see [`TimerService::sleep`](super::TimerService::sleep).
///
/// ```
/// use stillpoint::timer::Alarm;
///
/// let alarm = Alarm::from(std::thread::current());
/// assert!(matches!(alarm, Alarm::Thread(_)));
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Alarm {
    /// It is parked: a futex on Linux.
    Thread(Thread),
    /// It is a task.
    Task(Waker),
    /// It waits for an eventfd, to which the number one is added: for threads that wait in `epoll`. Any other descriptor that
    /// takes eight bytes works as well, if it does not block: one that takes nothing just now (a full pipe, a counter at its end)
    /// already has something to read.
    #[cfg(unix)]
    Event(Arc<OwnedFd>),
}

impl Alarm {
    fn ring(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            Self::Task(waker) => waker.wake(),
            #[cfg(unix)]
            // An error says that there is already something to read, or that nobody can read.
            Self::Event(event) => _ = rustix::io::write(&*event, &1u64.to_ne_bytes()),
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
    /// Not at all: there is something to do, or another thread is just waking this one.
    Not,
    /// Until this time, in ticks of the wheel, or until the alarm.
    Until(u64),
    /// Until the alarm: there is no timer.
    Forever,
}

const AWAKE: u64 = 0;
const ROUSING: u64 = 1;
/// Earlier times count as this one: at worst the owner is woken in vain.
const FIRST: u64 = 2;

/// Whether the owner sleeps, and its alarm.
pub(super) struct Bed {
    until: AtomicU64,
    alarm: UnsafeCell<Option<Alarm>>,
}

// SAFETY: the alarm is the owner's while the word says AWAKE, and otherwise that of whoever has changed the word from a time:
// see `lie_down`, `rise` and `rouse`. Alarms can be sent.
unsafe impl Sync for Bed {}

// The alarm is put there and taken as a whole.
impl RefUnwindSafe for Bed {}

impl fmt::Debug for Bed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bed").finish_non_exhaustive()
    }
}

impl Bed {
    pub(super) fn new() -> Self {
        Self { until: AtomicU64::new(AWAKE), alarm: UnsafeCell::new(None) }
    }

    /// The owner announces that it sleeps; it looks for messages after this. Returns false if somebody is just rousing it.
    pub(super) fn lie_down(&self, until: u64, alarm: Alarm) -> bool {
        // Acquire: pairs with the release in `rouse`: the place is empty.
        if self.until.load(Ordering::Acquire) != AWAKE {
            return false;
        }
        // SAFETY: the word says AWAKE, and only the owner, which this is, changes that.
        self.alarm.with_mut(|place| unsafe { *place = Some(alarm) });
        self.until.store(until.max(FIRST), orders::sleep());
        if !busted::is(Variant::SleepUnfenced) {
            // SeqCst: pairs with the same in `rouse`: either the owner sees the message, or the source of the message sees that the
            // owner sleeps.
            fence(Ordering::SeqCst);
        }
        true
    }

    /// The owner is awake.
    pub(super) fn rise(&self) {
        // Relaxed: the owner has put the alarm there itself.
        let until = self.until.load(Ordering::Relaxed);
        let is_mine = until >= FIRST
            // Relaxed, both: as above.
            && self.until.compare_exchange(until, AWAKE, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_mine {
            // SAFETY: the word was a time, and says AWAKE now: nobody else uses the place of the alarm.
            let alarm = self.alarm.with_mut(|place| unsafe { (*place).take() });
            drop(alarm);
        }
    }

    /// After a message: wakes the owner if it sleeps beyond this time.
    fn rouse_beyond(&self, deadline: u64) {
        // Relaxed: the fence orders; the exchange acquires.
        let mut until = self.until.load(Ordering::Relaxed);
        while until >= FIRST && deadline < until {
            match self.until.compare_exchange(until, ROUSING, orders::rouse(), Ordering::Relaxed) {
                Ok(_) => {
                    // SAFETY: whoever has changed the word from a time owns the place of the alarm.
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
        if !busted::is(Variant::PostUnfenced) {
            // SeqCst: as in `lie_down`.
            fence(Ordering::SeqCst);
        }
        self.rouse_beyond(deadline);
    }
}
