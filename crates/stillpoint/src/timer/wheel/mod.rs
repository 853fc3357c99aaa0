//! The wheel of one thread.

mod drain;
#[cfg(feature = "delay-queue")]
mod due;
mod engine;
mod expired;
mod key;
mod lent;
mod level;
mod lists;
mod moves;
mod nodes;
mod poll;
mod schedule;
mod slab;
#[cfg(all(test, not(stillpoint_loom)))]
mod tests;

pub use drain::Drain;
#[cfg(feature = "delay-queue")]
pub(crate) use due::{NextDue, Taken};
pub use expired::{Expired, Full, Limit, Popped, Progress};
pub use key::Key;
#[cfg(feature = "std")]
pub(crate) use lent::Lent;
pub use nodes::{Node, NodeWheel};
#[cfg(feature = "std")]
pub(crate) use poll::poll_within;
pub use schedule::Schedule;
#[cfg(feature = "std")]
pub(crate) use schedule::{PERIODIC, RELATIVE};
pub(crate) use slab::END;

use engine::Core;
use level::LATE;
use slab::Slab;

/// A hierarchical timer wheel, for one thread.
///
/// Each timer has a value, and fires when [`poll`](Self::poll) is called with a time at or after its deadline: never
/// before, and then in the first poll that finishes. The wheel reads no clock. Time is a number of *ticks* of the
/// caller's choice (usually nanoseconds) that never goes back; all 64 bits can be used.
///
/// ```
/// use stillpoint::timer::{Limit, Schedule, Wheel};
///
/// let mut wheel = Wheel::new(1_000);
/// let key = wheel.add(1_500, "timeout")?;
/// wheel.add(Schedule::after(2_000), "later")?;
///
/// assert_eq!(wheel.cancel(key), Some("timeout")); // the timer has not fired, and never will
///
/// let mut fired = Vec::new();
/// let _ = wheel.poll(3_000, Limit::NONE, |_, expired| fired.extend(expired.into_value()));
/// assert_eq!(fired, ["later"]);
/// # Ok::<(), stillpoint::timer::Full<&str>>(())
/// ```
///
/// Values can be used until their timers fire:
///
/// ```
/// use stillpoint::timer::Wheel;
///
/// let mut wheel = Wheel::new(0);
/// let session = wheel.add(60_000, vec!["login"])?;
/// wheel.add(90_000, vec!["login", "order"])?;
/// if let Some(requests) = wheel.get_mut(session) {
///     requests.push("logout");
/// }
/// assert_eq!(wheel.get(session).map(Vec::len), Some(2));
/// assert_eq!((wheel.now(), wheel.stats().timers), (0, 2));
///
/// let open: Vec<_> = wheel.drain().collect(); // for example at the end of the program
/// assert!(wheel.is_empty() && open.len() == 2);
/// # Ok::<(), stillpoint::timer::Full<Vec<&str>>>(())
/// ```
///
/// | operation | complexity |
/// |---|---|
/// | [`add`](Self::add), [`cancel`](Self::cancel), [`reset`](Self::reset) | constant, except that an addition that finds no free place doubles the number of places |
/// | [`poll`](Self::poll) with nothing reached | constant, and a few cycles |
/// | [`poll`](Self::poll) | proportional to the timers that fire, those that are moved, and the occupied slots that were reached |
///
/// A timer is moved at most twelve times before it fires: about once each time its remaining delay shrinks to a 32nd. A
/// [coarse](Schedule::coarse) timer is never moved. A timer takes 32 bytes and an `Option<T>`. Eight of these bytes are
/// touched only for periodic timers. The wheel itself takes 17 KiB, of which only the parts in use are touched often.
///
/// # Short polls that are not late
///
/// A poll with [`Limit::expiries(n)`](Limit::expiries) fires at most *n* timers, and moves at most *n* for each
/// [level in use](WheelStats::levels). Timers are moved ahead of time: those of a slot are moved between the beginning
/// of the slot before it and its own beginning. With such a poll at least every *P* ticks, no timer is late by *P* or
/// more, provided that
///
/// - at most *n* timers are due in any *P* ticks, and
/// - no slot of *P* ticks or more has more timers than *n* times the number of polls within its width.
///
/// After a longer gap, or beyond these conditions, the due timers fire within a number of polls that is at most the
/// number of due timers plus the number of timers in overdue slots, divided by *n*. The slots of a level are 32 times
/// as wide as those of the level below; those of the lowest level are one tick wide. Timers with a delay between 2⁵ᵏ⁺¹
/// and 2⁵ᵏ⁺⁶ ticks are in slots of 2⁵ᵏ ticks. So a million timers of 300 s in nanoseconds, added at a steady rate, fill
/// slots of 2³⁵ ticks with 115,000 each: with a poll each millisecond, *n* = 4 is enough. The 3.3 expiries in a
/// millisecond need *n* = 4, too.
///
/// The structure is that of G. Varghese and T. Lauck, "Hashed and hierarchical timing wheels", SOSP 1987, scheme 7,
/// with a bitset for each level, and with 64 slots in each level, which cover two slots of the level above.
pub struct Wheel<T> {
    core: Core<Slab<T>>,
}

/// The counts of a wheel. See [`Wheel::stats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WheelStats {
    /// Timers in the wheel, including those that are due.
    pub timers: usize,
    /// Timers that the wheel has memory for.
    pub capacity: usize,
    /// The number of moves of timers from one level to another.
    pub moved: u64,
    /// Levels in use: those with timers that are moved before they fire. There are 12 at most. Timers that fire within
    /// 64 ticks and [coarse](Schedule::coarse) timers do not count.
    pub levels: u32,
    /// Polls with a time before that of an earlier one.
    pub time_went_back: u64,
}

impl<T> Wheel<T> {
    /// An empty wheel, at the time `now`. It takes memory as timers are added.
    pub fn new(now: u64) -> Self {
        Self::with_capacity(now, 0)
    }

    /// An empty wheel with memory for `capacity` timers. It grows by doubling; the addition that finds it full pays for
    /// the copy.
    ///
    /// As in the standard library, the process aborts when there is no memory. A later addition that finds no memory
    /// returns [`Full`] instead.
    ///
    /// # Panics
    /// If `capacity` is greater than 2³² − 2,177, the greatest number of timers that a wheel can have, or if that many would
    /// take more than half of the address space.
    ///
    /// ```
    /// let mut wheel = stillpoint::timer::Wheel::with_capacity(0, 1_000);
    /// (0..1_000).try_for_each(|number| wheel.add(10, number).map(drop))?;
    /// assert_eq!(wheel.stats().capacity, 1_000); // it has not grown
    /// # Ok::<(), stillpoint::timer::Full<u64>>(())
    /// ```
    #[track_caller]
    pub fn with_capacity(now: u64, capacity: usize) -> Self {
        Self::make(now, capacity, usize::MAX)
    }

    /// An empty wheel with memory for `max_len` timers, and room for no more. It allocates again only to replace a
    /// worn-out place, so that no [key](Key) is used twice. A place is worn out after 2³¹ to 2³² timers.
    ///
    /// As in the standard library, the process aborts when there is no memory.
    ///
    /// # Panics
    /// If `max_len` is greater than 2³² − 2,177, the greatest number of timers that a wheel can have, or if that many would
    /// take more than half of the address space.
    ///
    /// ```
    /// use stillpoint::timer::{Full, Wheel};
    ///
    /// let mut wheel = Wheel::with_max_len(0, 1);
    /// wheel.add(10, "first")?;
    /// assert_eq!(wheel.add(20, "second"), Err(Full("second")));
    /// # Ok::<(), Full<&str>>(())
    /// ```
    #[track_caller]
    pub fn with_max_len(now: u64, max_len: usize) -> Self {
        Self::make(now, max_len, max_len)
    }

    #[track_caller]
    fn make(now: u64, capacity: usize, limit: usize) -> Self {
        Self { core: Core::new(Slab::new(capacity, limit), now) }
    }

    /// The time of the last poll or advance.
    #[inline]
    pub fn now(&self) -> u64 {
        self.core.now
    }

    pub(in crate::timer) fn went_back(&self) -> u64 {
        self.core.went_back
    }

    /// The number of timers, including those that are due and have not fired.
    #[inline]
    pub fn len(&self) -> usize {
        self.core.store.len()
    }

    /// Whether there is no timer.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The counts of the wheel.
    pub fn stats(&self) -> WheelStats {
        self.core.stats(self.len(), self.core.store.capacity())
    }

    /// Adds a timer. A number is its deadline: see [`Schedule::at`]. A [`Schedule`] may also have a delay from the time of the last
    /// poll, and be periodic, or coarse, or both.
    ///
    /// # Errors
    /// [`Full`], with the value, when there is no room.
    ///
    /// ```
    /// use std::num::NonZeroU64;
    /// use stillpoint::timer::{Limit, Schedule, Wheel};
    ///
    /// let mut wheel = Wheel::new(0);
    /// let ten = NonZeroU64::new(10).expect("not zero");
    /// let key = wheel.add(Schedule::at(10).every(ten), 0)?;
    /// for now in [10, 20, 45] {
    ///     let _ = wheel.poll(now, Limit::NONE, |_, mut beat| *beat.value() += 1 + beat.missed());
    /// }
    /// assert_eq!(wheel.cancel(key), Some(4)); // four times: at 10, at 20, and at 30 and 40 in one poll
    /// # Ok::<(), stillpoint::timer::Full<u64>>(())
    /// ```
    #[inline]
    pub fn add(&mut self, schedule: impl Into<Schedule>, value: T) -> Result<Key, Full<T>> {
        let schedule = schedule.into().resolved(self.core.now);
        let head = self.core.place(schedule.deadline, schedule.flags, LATE);
        let key = self.core.store.insert(head, schedule.deadline, value).map_err(Full)?;
        if schedule.flags != 0 {
            self.core.store.set_schedule(key.index(), schedule);
        }
        Ok(key)
    }

    /// As [`add`](Self::add), for a schedule with a deadline, and a value that is made in its place. If the
    /// value were built elsewhere, its copy would have to wait for the stores of its parts.
    #[cfg(feature = "std")]
    #[inline(always)]
    pub(crate) fn add_made(&mut self, schedule: Schedule, make: impl FnOnce() -> T) -> Option<Key> {
        let head = self.core.place(schedule.deadline, schedule.flags, LATE);
        let key = self.core.store.insert_made(head, schedule.deadline, make)?;
        if schedule.flags != 0 {
            self.core.store.set_schedule(key.index(), schedule);
        }
        Some(key)
    }

    /// Takes a timer out of the wheel. `Some` means that it has not fired since it was last armed, and never will;
    /// `None` that it has fired, or was cancelled before.
    #[inline]
    pub fn cancel(&mut self, key: Key) -> Option<T> {
        self.cancel_if(key, |_| true)
    }

    /// As [`cancel`](Self::cancel), unless `may` refuses the value. It is not asked about a value that is lent.
    #[inline]
    pub(crate) fn cancel_if(&mut self, key: Key, may: impl FnOnce(&T) -> bool) -> Option<T> {
        self.core.store.remove_if(key, may)
    }

    /// Gives a timer another deadline, even if it is due. Returns false if it had fired already. A periodic timer goes
    /// on from the new deadline.
    ///
    /// ```
    /// use stillpoint::timer::{Limit, Wheel};
    ///
    /// let mut wheel = Wheel::new(0);
    /// let key = wheel.add(10, "alive")?;
    /// assert!(wheel.reset(key, 20));
    /// assert_eq!(wheel.poll(19, Limit::NONE, |_, _| {}).expired(), 0);
    /// assert_eq!(wheel.poll(20, Limit::NONE, |_, _| {}).expired(), 1);
    /// assert!(!wheel.reset(key, 30));
    /// # Ok::<(), stillpoint::timer::Full<&str>>(())
    /// ```
    #[inline]
    pub fn reset(&mut self, key: Key, deadline: u64) -> bool {
        let Some(index) = self.core.store.find(key) else { return false };
        self.core.store.lists.unlink(index);
        let timer = self.core.store.timer_mut(index);
        timer.deadline = deadline;
        let flags = timer.flags;
        self.core.file(index, deadline, flags, LATE);
        true
    }

    /// Whether the next addition will find room. Makes room if necessary and possible.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        self.core.store.has_room()
    }

    /// Whether cancelling this timer makes room for another.
    #[cfg(feature = "std")]
    pub(crate) fn can_be_replaced(&self, key: Key) -> bool {
        self.core.store.find(key).is_some() && key.generation() != u32::MAX
    }

    /// The value of a timer that has not fired; `None` also while it is lent to the timer's own callback. (In a wheel
    /// that this callback has moved away, a little longer: see [`poll`](Self::poll).)
    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        self.core.store.timer(self.core.store.find(key)?).value.as_ref()
    }

    /// The value of a timer that has not fired; `None` also while it is lent to the timer's own callback.
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let index = self.core.store.find(key)?;
        self.core.store.timer_mut(index).value.as_mut()
    }

    /// The deadline of a timer that has not fired.
    #[inline]
    pub fn deadline(&self, key: Key) -> Option<u64> {
        Some(self.core.store.timer(self.core.store.find(key)?).deadline)
    }

    /// When to poll next: `None` when there is no timer; the time of the last poll when there is something to do
    /// already.
    ///
    /// A lower bound: no timer fires before this time. It is exact for timers that fire within 32 ticks, and for coarse
    /// timers. For others it is the time when they are moved: a thread that sleeps until then wakes up in vain at most
    /// twelve times for each timer. Timers that a limited poll has not moved in time count as something to do.
    ///
    /// Complexity: constant. It reads a word for each level in use, 34 at most, and the head of a slot in twelve of them.
    ///
    /// ```
    /// use stillpoint::timer::Wheel;
    ///
    /// let mut wheel = Wheel::new(0);
    /// wheel.add(1_000, ())?;
    /// wheel.add(10, ())?;
    /// assert_eq!(wheel.next_deadline(), Some(10));
    /// # Ok::<(), stillpoint::timer::Full<()>>(())
    /// ```
    pub fn next_deadline(&self) -> Option<u64> {
        self.core.next_deadline()
    }

    /// The earliest deadline of all timers, including those that are due; `None` when there is no timer. A thread that
    /// sleeps until then does not wake up in vain, but a [coarse](Schedule::coarse) timer may fire later.
    ///
    /// Complexity: proportional to the number of timers that are read, at worst all. These are the timers that are due
    /// and have not fired, and, in each level, those of the first slot with timers, unless that slot begins after the
    /// earliest deadline found so far. See [`next_deadline`](Self::next_deadline) for a bound in constant time.
    ///
    /// ```
    /// use stillpoint::timer::Wheel;
    ///
    /// let mut wheel = Wheel::new(0);
    /// wheel.add(5_000, ())?;
    /// assert_eq!(wheel.earliest_deadline(), Some(5_000));
    /// assert!(wheel.next_deadline() < Some(5_000)); // the time when the timer is moved
    /// # Ok::<(), stillpoint::timer::Full<()>>(())
    /// ```
    pub fn earliest_deadline(&self) -> Option<u64> {
        self.core.earliest().map(|(deadline, _)| deadline)
    }

    /// Sets the time, also to an earlier one: for example, after a clock has given a wrong time. Timers whose deadlines
    /// are not in the future are due, and fire in the next poll; others are not due, even if they were before. All
    /// deadlines stay as they are.
    ///
    /// Complexity: proportional to the number of timers. Afterwards, timers with the same deadline fire in no
    /// particular order.
    ///
    /// ```
    /// use stillpoint::timer::{Limit, Schedule, Wheel};
    ///
    /// let mut wheel = Wheel::new(0);
    /// let _ = wheel.poll(u64::MAX, Limit::NONE, |_, _| {}); // a wrong time from a broken clock
    /// wheel.set_time(50);
    /// wheel.add(Schedule::after(10), "ten later")?;
    /// assert_eq!(wheel.poll(59, Limit::NONE, |_, _| {}).expired(), 0);
    /// assert_eq!(wheel.poll(60, Limit::NONE, |_, _| {}).expired(), 1);
    /// # Ok::<(), stillpoint::timer::Full<&str>>(())
    /// ```
    pub fn set_time(&mut self, now: u64) {
        self.core.set_time(now);
    }

    /// Frees memory that no timer needs: all places after the last one in use. An empty wheel keeps 17 KiB.
    ///
    /// A wheel made by [`with_max_len`](Self::with_max_len) allocates again when it needs memory, up to its limit.
    /// Stale keys stay stale: a place that is allocated again has later generations than those that were freed. Each
    /// place then has at least 2³⁰ uses left. A place that has fewer left is kept.
    ///
    /// Complexity: proportional to the capacity of the wheel.
    ///
    /// ```
    /// use stillpoint::timer::Wheel;
    ///
    /// let mut wheel = Wheel::with_capacity(0, 100_000);
    /// let key = wheel.add(10, "ten")?;
    /// wheel.shrink();
    /// assert_eq!(wheel.stats().capacity, 1);
    /// assert_eq!(wheel.cancel(key), Some("ten"));
    /// # Ok::<(), stillpoint::timer::Full<&str>>(())
    /// ```
    pub fn shrink(&mut self) {
        self.core.store.shrink();
    }

    /// Takes all timers out of the wheel, and returns an iterator over their values, in no order. Dropping the iterator
    /// drops the values that are left.
    pub fn drain(&mut self) -> Drain<'_, T> {
        Drain::new(self)
    }
}

stillpoint_sys::debug!([T] |this| Wheel<T> {
    timers: this.len(), now: this.core.now, next_deadline: this.next_deadline(), ..
});
