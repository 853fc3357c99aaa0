use std::fmt;
use std::future::{poll_fn, Future};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::pin;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use super::item::{Delayed, InsertError};
use super::state::{Answer, Found, State};
use super::time::{Time, NEVER};
use super::waiter::{ring, Shared, Sleeper, Waiter};
use crate::timer::shared::Alarm;
use crate::timer::wheel::{Taken, END};
use crate::timer::{Key, Wheel, WheelStats};
use stillpoint_sys::panics;

/// A queue of items that come out when their time has come.
///
/// Any task or thread may insert, reset and remove items, and wait for the next one: a task in [`next`](Self::next), with the
/// sleep of its runtime, a thread in [`wait`](Self::wait). Each item is handed out once, and never before its deadline.
///
/// ```
/// use std::time::Duration;
/// use stillpoint::timer::delay_queue::DelayQueue;
///
/// let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// runtime.block_on(async {
///     let queue = DelayQueue::new();
///     let session = queue.insert("session", Duration::from_millis(2))?;
///     queue.insert("probe", Duration::from_millis(1))?;
///     queue.reset(&session, Duration::from_millis(3)); // after traffic
///
///     queue.close(); // no more insertions
///     let mut out = Vec::new();
///     while let Some(item) = queue.next(|at| tokio::time::sleep_until(at.into())).await {
///         out.push(item.into_inner());
///     }
///     assert_eq!(out, ["probe", "session"]);
///     Ok::<(), stillpoint::timer::delay_queue::InsertError<&str>>(())
/// }).unwrap();
/// ```
///
/// # Several who wait
///
/// One of those who wait, the *leader*, sleeps until an item may be due. The others sleep until the leader has got an item, or has
/// given up; then the oldest of them leads. An insertion or a reset wakes the leader, and nobody else, if its deadline is before
/// the time until which the leader sleeps; otherwise it wakes nobody. So a `select!` that drops the future of `next` loses
/// neither an item nor a wake-up.
///
/// **A future that was polled must be polled again when it is woken, or be dropped**, as for an asynchronous mutex. A future that
/// is only kept may be the leader, and others wait for it.
///
/// # Order
///
/// The queue looks at the clock when it knows of no item that is due. Items that were due at one look come before those that became
/// due by the next one. Those that became due between two looks come roughly in the order of their deadlines, and those with the
/// same deadline in the order of insertion, or of the last reset. Where more than 64 items are close together, it may be another
/// order, as in [`Wheel::poll`] with a [`Limit`](crate::timer::Limit). With a leader that sleeps by tokio's clock, looks are a
/// millisecond apart.
///
/// # Time
///
/// Deadlines are rounded up to ticks of 1,024 ns since the queue was made, and nothing comes out before its deadline. How late an
/// item is depends on the sleep: tokio's is rounded up to the next millisecond, and that of a thread is late by about 50 µs on
/// Linux. A deadline that has passed is due at once. The farthest one is 2⁶⁴ ticks after the beginning, half a million years: what
/// is later, as after [`Duration::MAX`], is never due.
///
/// | operation | complexity, under the lock of the queue |
/// |---|---|
/// | [`insert`](Self::insert), [`reset`](Self::reset), [`remove`](Self::remove) | constant, except that an insertion that finds no free place doubles the number of places |
/// | [`next`](Self::next), [`wait`](Self::wait), [`try_next`](Self::try_next) | in proportion to the items that come nearer to their deadlines: each is moved at most twelve times in all, and while the lock is held, at most 1,024 for each level of the wheel |
/// | [`peek`](Self::peek) | in proportion to the items that are next in each level of the wheel, at worst all |
///
/// An item takes 32 bytes and an `Option<T>`, and the queue 17 KiB. A call that waits takes some 50 bytes. No insertion, reset or
/// removal that fails allocates.
///
/// # Panics of others
///
/// No code of users runs under the lock: values are dropped, wakers are called and cloned, and the clock is read outside of it. A
/// panic leaves the queue valid. That of a waker that is called or dropped, and that of a sleep that is dropped for an item, is
/// discarded, since only this call can return the item; others go to the caller.
pub struct DelayQueue<T> {
    shared: Shared<T>,
}

// A panic leaves the queue as it is: see above.
impl<T> UnwindSafe for DelayQueue<T> {}
impl<T> RefUnwindSafe for DelayQueue<T> {}

impl<T> Default for DelayQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> DelayQueue<T> {
    /// An empty queue. It takes memory as items are inserted.
    pub fn new() -> Self {
        Self::over(Wheel::new(0))
    }

    /// An empty queue with memory for `capacity` items. It grows by doubling; the insertion that finds it full pays for the copy,
    /// and other calls wait meanwhile.
    ///
    /// As in the standard library, the process aborts when there is no memory. A later insertion that finds no memory returns
    /// [`InsertError::Full`] instead.
    ///
    /// # Panics
    /// As [`Wheel::with_capacity`]: if `capacity` is greater than 2³² − 2,177.
    ///
    /// ```
    /// use std::time::Duration;
    /// use stillpoint::timer::delay_queue::DelayQueue;
    ///
    /// let queue = DelayQueue::with_capacity(10_000);
    /// queue.insert("session", Duration::from_secs(30))?;
    /// # Ok::<(), stillpoint::timer::delay_queue::InsertError<&str>>(())
    /// ```
    #[track_caller]
    pub fn with_capacity(capacity: usize) -> Self {
        Self::over(Wheel::with_capacity(0, capacity))
    }

    /// An empty queue with memory for `max_len` items, and room for no more: see [`InsertError`] for an example. It allocates
    /// again only as [`Wheel::with_max_len`] does.
    ///
    /// # Panics
    /// As [`Wheel::with_max_len`]: if `max_len` is greater than 2³² − 2,177.
    #[track_caller]
    pub fn with_max_len(max_len: usize) -> Self {
        Self::over(Wheel::with_max_len(0, max_len))
    }

    fn over(wheel: Wheel<T>) -> Self {
        Self { shared: Shared::new(State::new(wheel), Time::of_system()) }
    }

    /// The same queue with another clock: `now` is called in place of [`Instant::now`], by each call that needs the time. For a
    /// runtime whose time can be paused, and for tests. It should not go back: items that are inserted then may be due too early.
    ///
    /// What sleeps has to go by the same clock: [`next`](Self::next) with a sleep that ends too early asks again and again until
    /// the time has come. Threads in [`wait`](Self::wait) sleep by the system's clock, for as long as is left by `now`.
    ///
    /// # Panics
    /// If items were inserted before.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use std::sync::Arc;
    /// use std::time::{Duration, Instant};
    /// use stillpoint::timer::delay_queue::DelayQueue;
    ///
    /// // With tokio's time: `DelayQueue::new().timed_by(|| tokio::time::Instant::now().into_std())`.
    /// let (begin, passed) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    /// let seconds = Arc::clone(&passed);
    /// let queue = DelayQueue::new().timed_by(move || begin + Duration::from_secs(seconds.load(Ordering::Relaxed)));
    /// queue.insert("session", Duration::from_secs(3_600))?;
    /// assert_eq!(queue.try_next(), None);
    /// passed.store(3_600, Ordering::Relaxed); // the test does not sleep
    /// assert_eq!(queue.try_next().map(|item| item.into_inner()), Some("session"));
    /// # Ok::<(), stillpoint::timer::delay_queue::InsertError<&str>>(())
    /// ```
    #[track_caller]
    pub fn timed_by(self, now: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        let mut state = self.shared.into_state();
        assert!(state.wheel.is_empty(), "items were inserted by another clock: set the clock first");
        state.wheel.set_time(0);
        Self { shared: Shared::new(state, Time::of(Box::new(now))) }
    }

    /// Inserts an item that is due after `delay`: never before that, and at the next tick if `delay` is zero. Wakes the leader of
    /// those who wait if it sleeps for longer.
    ///
    /// The [key](Key) names the item until it is taken out. Keys of other items, or of other queues, are harmless: see [`Key`] for
    /// the limit.
    ///
    /// Complexity: constant, or proportional to the number of items if the queue grows.
    ///
    /// # Errors
    /// [`InsertError`], with the value, if the queue is closed or has no room.
    ///
    /// ```
    /// use std::time::Duration;
    /// use stillpoint::timer::delay_queue::DelayQueue;
    ///
    /// let queue = DelayQueue::new();
    /// let key = queue.insert("session", Duration::from_secs(30))?;
    /// assert_eq!(queue.remove(&key), Some("session"));
    /// # Ok::<(), stillpoint::timer::delay_queue::InsertError<&str>>(())
    /// ```
    pub fn insert(&self, value: T, delay: Duration) -> Result<Key, InsertError<T>> {
        let now = self.shared.time.now();
        let deadline = self.shared.time.tick_after(now, delay);
        let inserted = {
            let mut state = self.shared.lock();
            state.wheel.pass(self.shared.time.passed(now));
            state.insert(deadline, value)
        };
        inserted.map(ring_inserted)
    }

    /// As [`insert`](Self::insert), with the time at which the item is due. Does not read the clock.
    ///
    /// # Errors
    /// [`InsertError`], with the value, if the queue is closed or has no room.
    pub fn insert_at(&self, value: T, deadline: Instant) -> Result<Key, InsertError<T>> {
        let deadline = self.shared.time.tick_of(deadline);
        let inserted = self.shared.lock().insert(deadline, value);
        inserted.map(ring_inserted)
    }

    /// Makes an item due after `delay` from now instead, even if it is due already. Returns false if it was taken out before.
    /// Wakes the leader of those who wait if it sleeps for longer than the new deadline; a deadline that is put off wakes nobody.
    ///
    /// Complexity: constant.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use stillpoint::timer::delay_queue::DelayQueue;
    ///
    /// let queue = DelayQueue::new();
    /// let key = queue.insert("session", Duration::ZERO)?;
    /// assert!(queue.reset(&key, Duration::from_secs(30)));
    /// assert_eq!(queue.try_next(), None);
    /// assert!(queue.reset_at(&key, Instant::now()));
    /// assert!(queue.wait().is_some());
    /// assert!(!queue.reset(&key, Duration::ZERO));
    /// # Ok::<(), stillpoint::timer::delay_queue::InsertError<&str>>(())
    /// ```
    pub fn reset(&self, key: &Key, delay: Duration) -> bool {
        let deadline = self.shared.time.tick_after(self.shared.time.now(), delay);
        self.reset_to(*key, deadline)
    }

    /// As [`reset`](Self::reset), with the time at which the item is due. Does not read the clock.
    pub fn reset_at(&self, key: &Key, deadline: Instant) -> bool {
        self.reset_to(*key, self.shared.time.tick_of(deadline))
    }

    fn reset_to(&self, key: Key, deadline: u64) -> bool {
        let reset = self.shared.lock().reset(key, deadline);
        let is_there = reset.is_some();
        ring(reset.flatten());
        is_there
    }

    /// Takes an item out, whether it is due or not. `None` if it was taken out before: it has been handed out, or was removed.
    ///
    /// As tokio-util's `try_remove`, without the deadline; its `remove` panics for a stale key.
    ///
    /// Complexity: constant. Nobody is woken, except at the end of a closed queue.
    pub fn remove(&self, key: &Key) -> Option<T> {
        let removed = self.shared.lock().remove(*key);
        let (value, alarm) = removed?;
        ring(alarm);
        Some(value)
    }

    /// When an item is due, rounded up by less than 1,024 ns; `None` if it was taken out.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use stillpoint::timer::delay_queue::DelayQueue;
    ///
    /// let queue = DelayQueue::new();
    /// let (now, second) = (Instant::now(), Duration::from_secs(1));
    /// let key = queue.insert_at("session", now + second)?;
    /// assert!(queue.deadline(&key).is_some_and(|at| at - now >= second));
    /// queue.remove(&key);
    /// assert_eq!(queue.deadline(&key), None);
    /// # Ok::<(), stillpoint::timer::delay_queue::InsertError<&str>>(())
    /// ```
    pub fn deadline(&self, key: &Key) -> Option<Instant> {
        let deadline = self.shared.lock().wheel.deadline(*key);
        deadline.map(|tick| self.shared.time.instant(tick))
    }

    /// The key of the item with the earliest deadline, due or not; of several with the same deadline, any. `None` if the queue is
    /// empty. Another task may take the item at any time: then the key is stale.
    ///
    /// Complexity: as [`Wheel::earliest_deadline`], proportional to the items that are next in each level of the wheel, at worst
    /// all.
    ///
    /// ```
    /// use std::time::Duration;
    /// use stillpoint::timer::delay_queue::DelayQueue;
    ///
    /// let queue = DelayQueue::new();
    /// queue.insert("later", Duration::from_secs(9))?;
    /// let next = queue.insert("next", Duration::from_secs(3))?;
    /// assert_eq!(queue.peek(), Some(next));
    /// # Ok::<(), stillpoint::timer::delay_queue::InsertError<&str>>(())
    /// ```
    pub fn peek(&self) -> Option<Key> {
        self.shared.lock().wheel.earliest_key()
    }

    /// The number of items, including those that are due.
    pub fn len(&self) -> usize {
        self.shared.lock().wheel.len()
    }

    /// The counts of the wheel behind the queue, in which each item is a timer.
    ///
    /// ```
    /// use std::time::Duration;
    /// use stillpoint::timer::delay_queue::DelayQueue;
    ///
    /// let queue = DelayQueue::new();
    /// queue.insert("session", Duration::from_secs(30))?;
    /// assert_eq!(queue.stats().timers, 1);
    /// # Ok::<(), stillpoint::timer::delay_queue::InsertError<&str>>(())
    /// ```
    pub fn stats(&self) -> WheelStats {
        self.shared.lock().wheel.stats()
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the next item that is due, without waiting. `None` if there is none.
    ///
    /// It does not go behind those who wait: it may take an item that one of them is being woken for.
    ///
    /// ```
    /// use std::time::Duration;
    /// use stillpoint::timer::delay_queue::DelayQueue;
    ///
    /// let queue = DelayQueue::new();
    /// queue.insert("later", Duration::from_secs(3))?;
    /// assert_eq!(queue.try_next(), None);
    /// # Ok::<(), stillpoint::timer::delay_queue::InsertError<&str>>(())
    /// ```
    pub fn try_next(&self) -> Option<Delayed<T>> {
        let mut now = None;
        loop {
            let (found, alarm) = self.shared.lock().try_take(now);
            ring(alarm);
            match found {
                Found::Item(taken) => return Some(self.delayed(taken)),
                Found::Nothing { .. } | Found::End => return None,
                Found::More => now = Some(self.shared.time.tick()),
            }
        }
    }

    /// Waits for the next item that is due. `None` if the queue is [closed](Self::close) and empty.
    ///
    /// `sleep_until` makes a future that is ready at the given time, by the runtime's clock. It is called when nothing is due, with
    /// the time at which something may be, and not at all while another task or thread sleeps for this one. With tokio, it is
    /// `|at| tokio::time::sleep_until(at.into())`.
    ///
    /// The time that it is given may be earlier than the next deadline: the queue moves items between the levels of its wheel
    /// then, at most twelve times for each item. A sleep that ends too early costs only another sleep.
    ///
    /// Once in about 128 items, a poll lets other tasks run, even while items are due: it wakes the task at once, and is pending.
    ///
    /// # Cancellation
    ///
    /// The future may be dropped at any time, for example by a `select!`: it has not taken an item until it is ready. If it was the
    /// leader, another one is woken in its stead.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::{Duration, Instant};
    /// use stillpoint::timer::delay_queue::DelayQueue;
    ///
    /// async fn sleep_until(at: Instant) {
    ///     tokio::time::sleep_until(at.into()).await;
    /// }
    ///
    /// let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    /// runtime.block_on(async {
    ///     let queue = Arc::new(DelayQueue::new());
    ///     queue.insert("an hour", Duration::from_secs(3_600))?;
    ///     let task = tokio::spawn({
    ///         let queue = Arc::clone(&queue);
    ///         async move { queue.next(sleep_until).await }
    ///     });
    ///     queue.insert("a millisecond", Duration::from_millis(1))?; // wakes the task, if it sleeps already
    ///     let item = task.await.expect("it does not panic").expect("the queue is open");
    ///     assert_eq!(item.into_inner(), "a millisecond");
    ///     Ok::<(), stillpoint::timer::delay_queue::InsertError<&str>>(())
    /// }).unwrap();
    /// ```
    pub async fn next<S, F>(&self, mut sleep_until: S) -> Option<Delayed<T>>
    where
        S: FnMut(Instant) -> F,
        F: Future<Output = ()>,
    {
        let mut waiter = Waiter::new(&self.shared);
        let mut sleep = pin!(None::<F>);
        let mut until = NEVER;
        poll_fn(|cx| {
            if self.shared.is_others_turn() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let mut has_slept = false;
            loop {
                let tick = match waiter.ask(Sleeper::Task(cx.waker())) {
                    Answer::Item(taken) => {
                        // Nobody else can return the item.
                        panics::catch(|| sleep.set(None)).unwrap_or_else(panics::discard);
                        self.shared.took();
                        return Poll::Ready(Some(self.delayed(taken)));
                    }
                    Answer::Sleep { until, .. } => until,
                    Answer::Follow => NEVER,
                    Answer::End => return Poll::Ready(None),
                };
                if tick != until {
                    sleep.set(None);
                    until = tick;
                    if tick != NEVER {
                        sleep.set(Some(sleep_until(self.shared.time.instant(tick))));
                    }
                }
                if sleep.as_mut().as_pin_mut().is_none_or(|sleeping| sleeping.poll(cx).is_pending()) {
                    return Poll::Pending;
                }
                sleep.set(None);
                until = NEVER;
                if has_slept {
                    // It sleeps by another clock than ours. Other tasks have their turn before it is asked again.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                has_slept = true;
            }
        })
        .await
    }

    /// Waits for the next item that is due, and blocks the thread meanwhile. `None` if the queue is [closed](Self::close) and empty.
    ///
    /// The thread is parked: a token of [`unpark`](std::thread::Thread::unpark) that others have left for it may get lost, and one
    /// may be left.
    ///
    /// ```
    /// use std::time::Duration;
    /// use stillpoint::timer::delay_queue::DelayQueue;
    ///
    /// let queue = DelayQueue::new();
    /// queue.insert("one", Duration::from_millis(1))?;
    /// assert_eq!(queue.wait().map(|item| item.into_inner()), Some("one"));
    /// queue.close();
    /// assert_eq!(queue.wait(), None);
    /// # Ok::<(), stillpoint::timer::delay_queue::InsertError<&str>>(())
    /// ```
    pub fn wait(&self) -> Option<Delayed<T>> {
        self.wait_until(None)
    }

    /// As [`wait`](Self::wait), for at most `timeout` by the system's clock. `None` also if the time is over.
    ///
    /// ```
    /// use std::time::Duration;
    /// use stillpoint::timer::delay_queue::DelayQueue;
    ///
    /// let queue = DelayQueue::<u32>::new();
    /// assert_eq!(queue.wait_timeout(Duration::from_millis(1)), None);
    /// assert!(!queue.is_closed()); // so the time was over
    /// ```
    pub fn wait_timeout(&self, timeout: Duration) -> Option<Delayed<T>> {
        if timeout.is_zero() {
            return self.try_next();
        }
        // Without an end if that is beyond what the system can name.
        self.wait_until(Instant::now().checked_add(timeout))
    }

    fn wait_until(&self, end: Option<Instant>) -> Option<Delayed<T>> {
        let time = &self.shared.time;
        let mut waiter = Waiter::new(&self.shared);
        loop {
            let sleep = match waiter.ask(Sleeper::Thread) {
                Answer::Item(taken) => return Some(self.delayed(taken)),
                Answer::Sleep { until: NEVER, .. } | Answer::Follow => None,
                // The clock is not read again: it may be one that parks, and so loses the token of whoever wakes this thread.
                Answer::Sleep { until, now } => {
                    Some(time.instant(until).saturating_duration_since(time.instant(now)))
                }
                Answer::End => return None,
            };
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return None;
            }
            match sleep.into_iter().chain(left).min() {
                Some(duration) => thread::park_timeout(duration),
                None => thread::park(),
            }
        }
    }

    /// Closes the queue: from now on, insertions hand their values back. The items that are left come out at their deadlines, and
    /// may be reset. When there are none, those who wait get `None`.
    ///
    /// A program that cannot wait takes out what is left by [`drain`](Self::drain), or drops it by [`clear`](Self::clear).
    ///
    /// ```
    /// use std::time::Duration;
    /// use stillpoint::timer::delay_queue::DelayQueue;
    ///
    /// let queue = DelayQueue::new();
    /// queue.insert("session", Duration::from_secs(3_600))?;
    /// std::thread::scope(|scope| {
    ///     let server = scope.spawn(|| queue.wait());
    ///     queue.close();
    ///     let left: Vec<_> = queue.drain().map(|item| (item.deadline(), item.into_inner())).collect();
    ///     assert_eq!(left.len(), 1); // to be stored, for example
    ///     assert_eq!(server.join().unwrap(), None);
    /// });
    /// # Ok::<(), stillpoint::timer::delay_queue::InsertError<&str>>(())
    /// ```
    pub fn close(&self) {
        let alarm = self.shared.lock().close();
        ring(alarm);
    }

    /// Whether the queue was [closed](Self::close). It has ended if it is also [empty](Self::is_empty).
    pub fn is_closed(&self) -> bool {
        self.shared.lock().is_closed()
    }

    /// Takes out all items, whether they are due or not, in no order. Dropping the iterator drops those that are left.
    ///
    /// Items are taken one by one, and the lock is held for one item, or for a look at 1,024 free places. Of items that are inserted
    /// meanwhile, some may stay: see [`close`](Self::close).
    ///
    /// Complexity: proportional to the capacity of the queue.
    pub fn drain(&self) -> impl Iterator<Item = Delayed<T>> + '_ {
        Rest { queue: self, from: 0 }
    }

    /// Drops all items, as [`drain`](Self::drain) takes them out. The queue stays open.
    ///
    /// # Panics
    /// With the panic of a destructor. The items that are left stay in the queue.
    ///
    /// ```
    /// use std::time::Duration;
    /// use stillpoint::timer::delay_queue::DelayQueue;
    ///
    /// let queue = DelayQueue::new();
    /// queue.insert("session", Duration::from_secs(3_600))?;
    /// queue.clear();
    /// assert!(queue.is_empty() && queue.peek().is_none());
    /// # Ok::<(), stillpoint::timer::delay_queue::InsertError<&str>>(())
    /// ```
    pub fn clear(&self) {
        drop(self.drain());
    }

    /// Frees memory that no item needs, as [`Wheel::shrink`]: all places after the last one in use.
    ///
    /// Complexity: proportional to the capacity of the queue. Other calls wait meanwhile.
    ///
    /// ```
    /// use stillpoint::timer::delay_queue::DelayQueue;
    ///
    /// let queue = DelayQueue::<u64>::with_capacity(100_000);
    /// queue.shrink_to_fit();
    /// ```
    pub fn shrink_to_fit(&self) {
        self.shared.lock().wheel.shrink();
    }

    fn delayed(&self, taken: Taken<T>) -> Delayed<T> {
        let Taken { key, deadline, value } = taken;
        Delayed { value, deadline: self.shared.time.instant(deadline), key }
    }
}

/// Rings the alarm of an insertion, outside of the lock.
#[inline]
fn ring_inserted((key, alarm): (Key, Option<Alarm>)) -> Key {
    ring(alarm);
    key
}

impl<T> fmt::Debug for DelayQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (items, is_closed) = {
            let state = self.shared.lock();
            (state.wheel.len(), state.is_closed())
        };
        f.debug_struct("DelayQueue")
            .field("items", &items)
            .field("is_closed", &is_closed)
            .finish_non_exhaustive()
    }
}

/// The items that are left: see [`DelayQueue::drain`].
struct Rest<'q, T> {
    queue: &'q DelayQueue<T>,
    /// The place of the wheel from which on there may be items.
    from: u32,
}

impl<T> Iterator for Rest<'_, T> {
    type Item = Delayed<T>;

    fn next(&mut self) -> Option<Delayed<T>> {
        while self.from != END {
            let taken = self.queue.shared.lock().take_from(&mut self.from);
            if let Some((taken, alarm)) = taken {
                ring(alarm);
                return Some(self.queue.delayed(taken));
            }
        }
        None
    }
}

impl<T> Drop for Rest<'_, T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}
