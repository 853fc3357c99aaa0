//! Timers in Rust: nexus-timer, tokio-util and hierarchical_hash_wheel_timer.

use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use hierarchical_hash_wheel_timer::IdOnlyTimerEntry;
use hierarchical_hash_wheel_timer::wheels::Skip;
use hierarchical_hash_wheel_timer::wheels::cancellable::QuadWheelWithOverflow;
use nexus_timer::{BoundedWheel, TimerHandle, WheelBuilder};
use tokio_util::time::DelayQueue;

use super::{Ability, Delays, IdleTimers, TimerContender};

/// The wheel of `nexus-timer`. Either the experiment sets the time, or the contender reads the clock at
/// each addition, reset and poll, and adds an offset to it instead of waiting.
pub struct Nexus {
    wheel: BoundedWheel<u64>,
    /// The time, if the experiment sets it.
    now: Instant,
    /// The offset, if the contender reads the clock.
    ahead: Option<Duration>,
    handles: Vec<Option<TimerHandle<u64>>>,
    fired: Vec<u64>,
}

impl Nexus {
    /// The tick where deadlines are within seconds: the ticks of ours.
    pub const TICK: Duration = Duration::from_micros(1);

    /// A wheel with room for `timers` timers. If `clock` is set, the contender reads the clock. The wheel has seven levels of 64 slots,
    /// each with slots eight times as long: with a `tick` of 1 µs it reaches 16 seconds ahead, and with the crate's 1 ms more than four hours.
    ///
    /// # Errors
    /// If the crate refuses the settings.
    pub fn new(timers: usize, clock: bool, tick: Duration) -> Result<Self, String> {
        let now = Instant::now();
        let wheel = WheelBuilder::new()
            .tick_duration(tick)
            .bounded(timers)
            .build(now)
            .map_err(|error| error.to_string())?;
        let (handles, fired) = (Vec::with_capacity(timers), Vec::with_capacity(timers));
        Ok(Self { wheel, now, ahead: clock.then_some(Duration::ZERO), handles, fired })
    }

    #[inline(always)]
    fn now(&self) -> Instant {
        self.ahead.map_or(self.now, |ahead| Instant::now() + ahead)
    }

    /// The deadline of a connection: see `IdleTimers`.
    fn at(&self, nanoseconds: u64) -> Instant {
        self.now + Duration::from_nanos(nanoseconds.next_multiple_of(MICROSECOND) + 1)
    }

    fn pass(&mut self, time: Duration) {
        match &mut self.ahead {
            Some(ahead) => *ahead += time,
            None => self.now += time,
        }
    }

    fn poll(&mut self) -> u64 {
        self.fired.clear();
        let now = self.now();
        self.wheel.poll_and_rebalance(now, &mut self.fired) as u64
    }
}

impl TimerContender for Nexus {
    fn add(&mut self, delays: &[u64]) -> Result<(), String> {
        for &delay in delays {
            let at = self.now() + Duration::from_micros(delay);
            let handle = self.wheel.schedule(at, 1);
            self.handles.push(Some(handle));
        }
        Ok(())
    }

    fn reset(&mut self, delays: &[u64]) -> u64 {
        let mut done = 0;
        for (at, &delay) in delays.iter().enumerate() {
            let deadline = self.now() + Duration::from_micros(delay);
            self.handles[at] = self.handles[at].take().map(|handle| {
                done += 1;
                self.wheel.reschedule(handle, deadline)
            });
        }
        done
    }

    fn cancel(&mut self, order: &[u32]) -> u64 {
        order
            .iter()
            .filter_map(|&which| self.handles[which as usize].take())
            .fold(0, |sum, handle| sum + self.wheel.cancel(handle).unwrap_or(0))
    }

    fn idle(&mut self, polls: usize) -> u64 {
        (0..polls).fold(0, |sum, _| {
            if self.ahead.is_none() {
                self.now += Duration::from_micros(1);
            }
            sum + self.poll()
        })
    }

    fn expire(&mut self, ticks: u64) -> u64 {
        self.pass(Duration::from_micros(ticks));
        self.poll()
    }

    fn forget(&mut self) {
        for handle in self.handles.drain(..).flatten() {
            self.wheel.free(handle);
        }
    }

    fn millisecond(&self) -> Option<u64> {
        self.ahead.is_none().then_some(1_000)
    }

    fn renew(&mut self, delay: u64, count: u64) -> Result<(), String> {
        let at = self.now + Duration::from_micros(delay);
        (0..count).for_each(|_| self.wheel.schedule_forget(at, 1));
        Ok(())
    }
}

/// Time passes by the clock, from `now` on. A handle is kept for each connection. The wheel rounds deadlines down to ticks, and takes a
/// whole number of microseconds for one tick less: so deadlines are rounded up, and a nanosecond is added.
impl IdleTimers for Nexus {
    fn clock(&mut self) -> u64 {
        self.now.elapsed().as_nanos() as u64
    }

    fn tick(&self) -> u64 {
        2 * MICROSECOND
    }

    fn open(&mut self, connection: u32, now: u64, timeout: u64) -> Result<(), String> {
        let at = connection as usize;
        if self.handles.len() <= at {
            self.handles.resize_with(at + 1, || None);
        }
        // A timer that has fired keeps its place until its handle is given back.
        if let Some(fired) = self.handles[at].take() {
            self.wheel.free(fired);
        }
        let deadline = self.at(now + timeout);
        let handle = self.wheel.try_schedule(deadline, u64::from(connection));
        self.handles[at] = Some(handle.map_err(|_| "a timer was refused")?);
        Ok(())
    }

    fn packets(&mut self, connections: &[u32], now: u64, timeout: u64) -> usize {
        let deadline = self.at(now + timeout);
        let mut anew = |&&connection: &&u32| {
            let place = &mut self.handles[connection as usize];
            *place = place.take().map(|handle| self.wheel.reschedule(handle, deadline));
            place.is_some()
        };
        connections.iter().filter(&mut anew).count()
    }

    fn expire(&mut self, now: u64, expired: &mut Vec<u32>) -> bool {
        self.fired.clear();
        self.wheel.poll_and_rebalance(self.now + Duration::from_nanos(now), &mut self.fired);
        expired.extend(self.fired.iter().map(|&connection| connection as u32));
        true
    }
}

impl Drop for Nexus {
    fn drop(&mut self) {
        self.forget();
    }
}

/// tokio-util's `DelayQueue`, with ticks of a millisecond. It fires only by the clock of its runtime.
pub struct DelayQueues {
    queue: DelayQueue<u64>,
    runtime: tokio::runtime::Runtime,
    begin: tokio::time::Instant,
    keys: Vec<Option<tokio_util::time::delay_queue::Key>>,
}

impl DelayQueues {
    /// A queue with room for `timers` timers.
    ///
    /// # Errors
    /// If the runtime cannot be built.
    pub fn new(timers: usize) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(|error| error.to_string())?;
        let (queue, begin) = {
            let _inside = runtime.enter();
            (DelayQueue::with_capacity(timers), tokio::time::Instant::now())
        };
        Ok(Self { queue, runtime, begin, keys: Vec::with_capacity(timers) })
    }
}

impl TimerContender for DelayQueues {
    fn can(&self, ability: Ability) -> bool {
        ability != Ability::Expire
    }

    fn add(&mut self, delays: &[u64]) -> Result<(), String> {
        let _inside = self.runtime.enter();
        for &delay in delays {
            // Delays count from the time at which the queue was made. An hour is added, so that no deadline has passed already.
            let at = self.begin + Duration::from_millis(delay + 3_600_000);
            self.keys.push(Some(self.queue.insert_at(1, at)));
        }
        Ok(())
    }

    fn reset(&mut self, delays: &[u64]) -> u64 {
        let _inside = self.runtime.enter();
        let mut done = 0;
        for (key, &delay) in self.keys.iter().zip(delays) {
            if let Some(key) = key {
                self.queue.reset_at(key, self.begin + Duration::from_millis(delay + 3_600_000));
                done += 1;
            }
        }
        done
    }

    fn cancel(&mut self, order: &[u32]) -> u64 {
        let _inside = self.runtime.enter();
        order
            .iter()
            .filter_map(|&which| self.keys[which as usize].take())
            .fold(0, |sum, key| sum + self.queue.remove(&key).into_inner())
    }

    fn idle(&mut self, polls: usize) -> u64 {
        let _inside = self.runtime.enter();
        let mut context = Context::from_waker(Waker::noop());
        (0..polls).filter(|_| self.queue.poll_expired(&mut context).is_ready()).count() as u64
    }

    fn forget(&mut self) {
        self.keys.clear();
    }
}

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;

impl DelayQueues {
    /// The runtime's time `time` nanoseconds after the queue was made.
    fn at(&self, time: u64) -> tokio::time::Instant {
        self.begin + Duration::from_nanos(time)
    }
}

impl IdleTimers for DelayQueues {
    fn clock(&mut self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    /// Two roundings to milliseconds: the queue rounds up from the time at which it was made, the runtime from its own start.
    fn tick(&self) -> u64 {
        2 * MILLISECOND
    }

    fn open(&mut self, connection: u32, now: u64, timeout: u64) -> Result<(), String> {
        let at = self.at(now + timeout);
        let _inside = self.runtime.enter();
        let key = self.queue.insert_at(u64::from(connection), at);
        let place = connection as usize;
        self.keys.resize(self.keys.len().max(place + 1), None);
        self.keys[place] = Some(key);
        Ok(())
    }

    fn packets(&mut self, connections: &[u32], now: u64, timeout: u64) -> usize {
        let at = self.at(now + timeout);
        let _inside = self.runtime.enter();
        let keys = connections.iter().filter_map(|&connection| self.keys[connection as usize].as_ref());
        keys.map(|key| self.queue.reset_at(key, at)).count()
    }

    /// Does what a task would do that polls between other work: lets the runtime read the clock, and takes all timers that are ready.
    fn expire(&mut self, _now: u64, expired: &mut Vec<u32>) -> bool {
        let (queue, keys) = (&mut self.queue, &mut self.keys);
        let ready = std::future::poll_fn(|context| {
            while let Poll::Ready(Some(timer)) = queue.poll_expired(context) {
                let connection = timer.into_inner() as u32;
                keys[connection as usize] = None;
                expired.push(connection);
            }
            Poll::Ready(())
        });
        self.runtime.block_on(async {
            tokio::task::yield_now().await;
            tokio::task::unconstrained(ready).await;
        });
        true
    }
}

impl Delays for DelayQueues {
    fn insert(&mut self, delays: &[u64]) -> Result<(), String> {
        let _inside = self.runtime.enter();
        let insert = |&delay: &u64| Some(self.queue.insert(1, Duration::from_nanos(delay)));
        self.keys.extend(delays.iter().map(insert));
        Ok(())
    }

    fn reset(&mut self, order: &[u32], delays: &[u64]) -> u64 {
        let _inside = self.runtime.enter();
        let mut done = 0;
        for (&which, &delay) in order.iter().zip(delays) {
            if let Some(key) = &self.keys[which as usize] {
                self.queue.reset(key, Duration::from_nanos(delay));
                done += 1;
            }
        }
        done
    }

    fn take(&mut self) -> u64 {
        let queue = &mut self.queue;
        let ready = std::future::poll_fn(|context| {
            let mut sum = 0;
            while let Poll::Ready(Some(timer)) = queue.poll_expired(context) {
                sum += timer.into_inner();
            }
            Poll::Ready(sum)
        });
        // The runtime has to see the time first.
        self.runtime.block_on(async {
            tokio::task::yield_now().await;
            tokio::task::unconstrained(ready).await
        })
    }

    fn clear(&mut self) {
        let _inside = self.runtime.enter();
        self.queue.clear();
        self.keys.clear();
    }
}

/// The cancellable wheel of `hierarchical_hash_wheel_timer`, with ticks of a millisecond. The experiment sets the time.
pub struct HashWheel {
    wheel: QuadWheelWithOverflow<IdOnlyTimerEntry<u64>>,
    added: u64,
    begin: Instant,
    /// The wheel's time, in milliseconds since `begin`.
    now: u64,
}

impl HashWheel {
    /// An empty wheel, which allocates as timers are added.
    pub fn new() -> Self {
        Self { wheel: QuadWheelWithOverflow::new(), added: 0, begin: Instant::now(), now: 0 }
    }
}

impl HashWheel {
    /// Advances the time by `ticks`, and passes the timers that fire at each tick to `fired`.
    fn pass(&mut self, ticks: u64, mut fired: impl FnMut(Vec<Rc<IdOnlyTimerEntry<u64>>>)) {
        let mut left = ticks;
        while left > 0 {
            match self.wheel.can_skip() {
                Skip::Empty => break,
                Skip::Millis(skip) => {
                    let skip = u64::from(skip).min(left);
                    self.wheel.skip(skip as u32);
                    left -= skip;
                }
                Skip::None => {
                    fired(self.wheel.tick());
                    left -= 1;
                }
            }
        }
    }
}

impl IdleTimers for HashWheel {
    fn clock(&mut self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    fn tick(&self) -> u64 {
        MILLISECOND
    }

    fn open(&mut self, connection: u32, now: u64, timeout: u64) -> Result<(), String> {
        // Delays count from the last tick. The deadline is rounded up, so that the timer is not early.
        let delay = (now + timeout).div_ceil(MILLISECOND) - self.now;
        let entry = IdOnlyTimerEntry { id: u64::from(connection), delay: Duration::from_millis(delay) };
        self.wheel.insert(entry).map_err(|_| "a timer was refused".to_owned())
    }

    /// The wheel has no reset: each timer is cancelled, and another one added.
    fn packets(&mut self, connections: &[u32], now: u64, timeout: u64) -> usize {
        let mut anew = |&&connection: &&u32| {
            self.wheel.cancel(&u64::from(connection)).is_ok() && self.open(connection, now, timeout).is_ok()
        };
        connections.iter().filter(&mut anew).count()
    }

    fn expire(&mut self, now: u64, expired: &mut Vec<u32>) -> bool {
        let to = now / MILLISECOND;
        self.pass(to - self.now, |timers| expired.extend(timers.iter().map(|timer| timer.id as u32)));
        self.now = to;
        true
    }
}

impl Default for HashWheel {
    fn default() -> Self {
        Self::new()
    }
}

impl TimerContender for HashWheel {
    fn can(&self, ability: Ability) -> bool {
        ability == Ability::Expire
    }

    fn add(&mut self, delays: &[u64]) -> Result<(), String> {
        for &delay in delays {
            let entry = IdOnlyTimerEntry { id: self.added, delay: Duration::from_millis(delay) };
            self.wheel.insert(entry).map_err(|_| "a timer was refused")?;
            self.added += 1;
        }
        Ok(())
    }

    fn cancel(&mut self, order: &[u32]) -> u64 {
        order.iter().filter(|&&which| self.wheel.cancel(&u64::from(which)).is_ok()).count() as u64
    }

    fn expire(&mut self, ticks: u64) -> u64 {
        let mut fired = 0;
        self.pass(ticks, |timers| fired += timers.len() as u64);
        fired
    }

    /// Replaces the wheel, because cancelled timers stay in it until their deadline.
    fn forget(&mut self) {
        *self = Self::new();
    }

    fn millisecond(&self) -> Option<u64> {
        Some(1)
    }

    fn renew(&mut self, delay: u64, count: u64) -> Result<(), String> {
        (0..count).try_for_each(|_| self.add(&[delay]))
    }
}
