use core::fmt;

use super::lent::Lent;
use super::Key;

/// A timer that has fired, as [`Wheel::poll`](super::Wheel::poll) passes it to the callback.
///
/// ```
/// use std::num::NonZeroU64;
/// use stillpoint::timer::{Limit, Schedule, Wheel};
///
/// let mut wheel = Wheel::new(0);
/// let period = NonZeroU64::new(10).expect("not zero");
/// let probe = wheel.add(Schedule::at(10).every(period), 0)?;
/// let _ = wheel.poll(35, Limit::NONE, |_, mut expired| {
///     assert_eq!((expired.key(), expired.deadline()), (probe, 10));
///     assert_eq!(expired.missed(), 2); // the beats at 20 and 30
///     assert!(expired.is_periodic());
///     *expired.value() += 1 + expired.missed();
/// });
/// assert_eq!(wheel.get(probe), Some(&3)); // the value stays with its timer
/// # Ok::<(), stillpoint::timer::Full<u64>>(())
/// ```
#[derive(Debug)]
pub struct Expired<'a, T> {
    pub(crate) key: Key,
    pub(crate) deadline: u64,
    pub(crate) missed: u64,
    pub(crate) value: Lent<'a, T>,
}

impl<T> Expired<'_, T> {
    /// The timer's key. It is stale unless the timer is periodic.
    #[inline]
    pub fn key(&self) -> Key {
        self.key
    }

    /// The deadline of the timer.
    #[inline]
    pub fn deadline(&self) -> u64 {
        self.deadline
    }

    /// Whether the timer is periodic: it stays armed until it is cancelled.
    #[inline]
    pub fn is_periodic(&self) -> bool {
        self.value.is_lent()
    }

    /// The number of beats of a periodic timer that were missed and are skipped.
    #[inline]
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// The value.
    #[inline]
    pub fn value(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// The value. `None` for a periodic timer, which keeps its value.
    #[inline]
    pub fn into_value(self) -> Option<T> {
        self.value.into_given()
    }
}

/// A timer that has fired, as [`Wheel::pop`](super::Wheel::pop) returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Popped<T> {
    /// The timer's key. It is stale unless the timer is periodic.
    pub key: Key,
    /// The deadline of the timer.
    pub deadline: u64,
    /// The number of beats of a periodic timer that were missed and are skipped.
    pub missed: u64,
    /// The value. `None` for a periodic timer, whose value stays in the wheel: see
    /// [`Wheel::get_mut`](super::Wheel::get_mut). Also `None` for a timer whose own callback has the value and calls
    /// `pop`, or has had it and moved the wheel away.
    pub value: Option<T>,
}

/// Limits the work of one poll.
///
/// ```
/// use stillpoint::timer::{Limit, Wheel};
///
/// let mut wheel = Wheel::new(0);
/// for number in 0..10 {
///     wheel.add(5, number)?;
/// }
/// let progress = wheel.poll(5, Limit::expiries(4).moves(64), |_, _| {}); // a short poll
/// assert_eq!((progress.expired(), progress.is_done()), (4, false));
/// assert_eq!(wheel.poll(5, Limit::NONE, |_, _| {}).expired(), 6);
/// # Ok::<(), stillpoint::timer::Full<i32>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The number of timers that may fire. In a service, cancelled timers that are still in the wheel count, too, and delays that begin. A
    /// periodic timer counts once, however many beats it has missed.
    pub expiries: usize,
    /// The number of timers that may be moved to a lower level, for each [level in use](super::WheelStats::levels).
    pub moves: usize,
}

impl Limit {
    /// No limit: the poll does everything.
    pub const NONE: Self = Self { expiries: usize::MAX, moves: usize::MAX };

    /// At most `expiries` expiries, and at most `expiries` moves for each [level in use](super::WheelStats::levels):
    /// together at most (1 + levels in use) × `expiries`.
    #[inline]
    pub fn expiries(expiries: usize) -> Self {
        Self { expiries, moves: expiries }
    }

    /// Sets another limit of moves, for each [level in use](super::WheelStats::levels).
    #[inline]
    pub fn moves(self, moves: usize) -> Self {
        Self { moves, ..self }
    }
}

/// The result of a poll: whether it has finished, and the number of timers that have fired.
///
/// ```
/// use stillpoint::timer::{Limit, Progress, Wheel};
///
/// let mut wheel = Wheel::new(0);
/// wheel.add(5, "flow 1")?;
/// wheel.add(5, "flow 2")?;
/// let (mut fired, mut progress) = (0, Progress::More(0));
/// while !progress.is_done() {
///     progress = wheel.poll(5, Limit::expiries(1), |_, _| {});
///     fired += progress.expired(); // between two polls, the thread serves its queues
/// }
/// assert_eq!(fired, 2);
/// # Ok::<(), stillpoint::timer::Full<&str>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a poll that has not finished must be called again"]
pub enum Progress {
    /// Everything that was due has fired.
    Done(usize),
    /// There is more to do at the same time: a limit was reached, or a callback has added a timer that is due already.
    /// What is left may be only moves ahead of time, with nothing due.
    More(usize),
}

impl Progress {
    /// The number of timers that have fired.
    #[inline]
    pub fn expired(self) -> usize {
        match self {
            Self::Done(expired) | Self::More(expired) => expired,
        }
    }

    /// Whether everything that was due has fired.
    #[inline]
    pub fn is_done(self) -> bool {
        matches!(self, Self::Done(_))
    }
}

/// The wheel is full. The value is handed back.
///
/// A wheel made by [`Wheel::with_max_len`](super::Wheel::with_max_len) is full at its limit; other wheels are full when
/// there is no memory.
///
/// ```
/// use stillpoint::timer::{Full, Wheel};
///
/// let mut wheel = Wheel::with_max_len(0, 1);
/// wheel.add(10, "first")?;
/// let full = wheel.add(20, "second").unwrap_err();
/// assert_eq!(full, Full("second"));
/// assert_eq!(full.into_inner(), "second");
/// # Ok::<(), Full<&str>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Full<T>(
    /// The value.
    pub T,
);

impl<T> Full<T> {
    /// The value.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> fmt::Debug for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Full").finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the wheel has no room for another timer: cancel some, or make it with a higher limit")
    }
}

impl<T> core::error::Error for Full<T> {}
